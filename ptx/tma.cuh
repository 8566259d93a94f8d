// TMA: copies of tensor boxes between global and shared memory.  PTX ISA 9.7.9.27, "cp.async.bulk.tensor";
// PTX 8.0, sm_90. Callers: one thread.  Coordinates are in elements, innermost first.  The shared address is
// 128-byte aligned (1024 for a 128-byte swizzle).  Loads count the bytes of the whole box on the mbarrier,
// also where the box leaves the tensor (zeros). A store reads shared memory through the async proxy: writers
// call fence_proxy_async_shared_cta before they signal.
#pragma once
#include "ptx/types.cuh"

namespace mxfa::ptx {

// L2 eviction priorities in the form createpolicy produces; hints only.  Values as CUTLASS passes them
// (copy_sm90_desc.hpp).
inline constexpr uint64_t kCacheEvictFirst = 0x12f0000000000000;
inline constexpr uint64_t kCacheEvictLast = 0x14f0000000000000;

// prefetch.tensormap -- brings the 128 bytes of the map into the descriptor cache.
MXFA_DEVICE void prefetch_tensor_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" : : "l"(map) : "memory");
}

// cp.async.bulk.tensor.2d
MXFA_DEVICE void tma_load_2d(uint32_t dst, const TensorMap* map, uint32_t bar, int32_t c0, int32_t c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4}], [%2];"
      :
      : "r"(dst), "l"(map), "r"(bar), "r"(c0), "r"(c1)
      : "memory");
}

MXFA_DEVICE void tma_load_2d_hint(uint32_t dst, const TensorMap* map, uint32_t bar, uint64_t policy,
                                  int32_t c0, int32_t c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%4, %5}], [%2], %3;"
      :
      : "r"(dst), "l"(map), "r"(bar), "l"(policy), "r"(c0), "r"(c1)
      : "memory");
}

MXFA_DEVICE void tma_store_2d(const TensorMap* map, uint32_t src, int32_t c0, int32_t c1) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];"
               :
               : "l"(map), "r"(src), "r"(c0), "r"(c1)
               : "memory");
}

// cp.async.bulk.tensor.3d
MXFA_DEVICE void tma_load_3d(uint32_t dst, const TensorMap* map, uint32_t bar, int32_t c0, int32_t c1,
                             int32_t c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];"
      :
      : "r"(dst), "l"(map), "r"(bar), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}

MXFA_DEVICE void tma_load_3d_hint(uint32_t dst, const TensorMap* map, uint32_t bar, uint64_t policy,
                                  int32_t c0, int32_t c1, int32_t c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%4, %5, %6}], [%2], %3;"
      :
      : "r"(dst), "l"(map), "r"(bar), "l"(policy), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}

MXFA_DEVICE void tma_store_3d(const TensorMap* map, uint32_t src, int32_t c0, int32_t c1, int32_t c2) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];"
               :
               : "l"(map), "r"(src), "r"(c0), "r"(c1), "r"(c2)
               : "memory");
}

// cp.async.bulk.tensor.4d
MXFA_DEVICE void tma_load_4d(uint32_t dst, const TensorMap* map, uint32_t bar, int32_t c0, int32_t c1,
                             int32_t c2, int32_t c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];"
      :
      : "r"(dst), "l"(map), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}

MXFA_DEVICE void tma_load_4d_hint(uint32_t dst, const TensorMap* map, uint32_t bar, uint64_t policy,
                                  int32_t c0, int32_t c1, int32_t c2, int32_t c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%4, %5, %6, %7}], [%2], %3;"
      :
      : "r"(dst), "l"(map), "r"(bar), "l"(policy), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}

MXFA_DEVICE void tma_store_4d(const TensorMap* map, uint32_t src, int32_t c0, int32_t c1, int32_t c2,
                              int32_t c3) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];"
               :
               : "l"(map), "r"(src), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
               : "memory");
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

MXFA_DEVICE void tma_load_5d_hint(uint32_t dst, const TensorMap* map, uint32_t bar, uint64_t policy,
                                  int32_t c0, int32_t c1, int32_t c2, int32_t c3, int32_t c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%4, %5, %6, %7, %8}], [%2], %3;"
      :
      : "r"(dst), "l"(map), "r"(bar), "l"(policy), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
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
