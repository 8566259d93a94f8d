// TMA: copies of tensor boxes between global and shared memory.  PTX ISA 9.7.9.27, "cp.async.bulk.tensor";
// PTX 8.0, sm_90. Callers: one thread.  Coordinates are in elements, innermost first.  The shared address is
// 128-byte aligned (1024 for a 128-byte swizzle).  Loads count the bytes of the whole box on the mbarrier,
// also where the box leaves the tensor (zeros). A store reads shared memory through the async proxy: writers
// call fence_proxy_async_shared_cta before they signal.
#pragma once
#include "ptx/types.cuh"

namespace mxfa::ptx {

// prefetch.tensormap -- brings the 128 bytes of the map into the descriptor cache.
MXFA_DEVICE void prefetch_tensor_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" : : "l"(map) : "memory");
}

// cp.async.bulk.tensor.5d
MXFA_DEVICE void tma_load_5d(uint32_t dst, const TensorMap* map, uint32_t bar, int32_t c0, int32_t c1,
                             int32_t c2, int32_t c3, int32_t c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];"
      :
      : "r"(dst), "l"(map), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

// The same by a CTA of a cluster: `dst` is its own, `bar` may with kCtaGroup 2 be a barrier of either CTA of
// its pair (from mapa).  PTX 8.6, sm_100a.
template <int kCtaGroup>
MXFA_DEVICE void tma_load_5d_group(uint32_t dst, const TensorMap* map, uint32_t bar, int32_t c0, int32_t c1,
                                   int32_t c2, int32_t c3, int32_t c4) {
  static_assert(kCtaGroup == 1 || kCtaGroup == 2, "a CTA group is one CTA or a pair");
  asm volatile(
      "cp.async.bulk.tensor.5d.cta_group::%8.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];"
      :
      : "r"(dst), "l"(map), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4), "n"(kCtaGroup)
      : "memory");
}

MXFA_DEVICE void tma_store_5d(const TensorMap* map, uint32_t src, int32_t c0, int32_t c1, int32_t c2,
                              int32_t c3, int32_t c4) {
  asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];"
               :
               : "l"(map), "r"(src), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
               : "memory");
}

}  // namespace mxfa::ptx
