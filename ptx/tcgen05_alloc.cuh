// Tensor memory allocation.  PTX ISA 9.7.16.7; PTX 8.6, sm_100a.  Callers: all 32 lanes of one warp,
// converged; with kCtaGroup 2 the same warp of both CTAs of the pair.  ptxas refuses two cta_groups in one
// kernel.
#pragma once
#include "ptx/types.cuh"

namespace mxfa::ptx {

// tcgen05.alloc -- blocks until `columns` (a power of two, 32..512) are free, then stores the base address to
// shared memory.
template <int kCtaGroup = 1>
MXFA_DEVICE void tcgen05_alloc(uint32_t dst, uint32_t columns) {
  static_assert(kCtaGroup == 1 || kCtaGroup == 2, "a CTA group is one CTA or a pair");
  asm volatile("tcgen05.alloc.cta_group::%2.sync.aligned.shared::cta.b32 [%0], %1;"
               :
               : "r"(dst), "r"(columns), "n"(kCtaGroup)
               : "memory");
}

// tcgen05.relinquish_alloc_permit -- this CTA allocates no more; lets the next CTA of the SM allocate.
template <int kCtaGroup = 1>
MXFA_DEVICE void tcgen05_relinquish_alloc_permit() {
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::%0.sync.aligned;" : : "n"(kCtaGroup) : "memory");
}

// tcgen05.dealloc -- exactly what was allocated, before the CTA exits, after every use has been waited for.
template <int kCtaGroup = 1>
MXFA_DEVICE void tcgen05_dealloc(uint32_t address, uint32_t columns) {
  asm volatile("tcgen05.dealloc.cta_group::%2.sync.aligned.b32 %0, %1;"
               :
               : "r"(address), "r"(columns), "n"(kCtaGroup)
               : "memory");
}

}  // namespace mxfa::ptx
