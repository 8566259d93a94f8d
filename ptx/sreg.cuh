// Special registers.  PTX ISA chapter 10, "Special Registers".  Callers: any thread unless said otherwise.
#pragma once
#include "ptx/shuffle.cuh"
#include "ptx/types.cuh"

namespace mxfa::ptx {

// The same value, of which the compiler knows nothing more; emits nothing.  What follows from it is then not
// computed early and kept in registers.
MXFA_DEVICE int32_t opaque(int32_t value) {
  asm volatile("" : "+r"(value));
  return value;
}

// %laneid; sm_20.
MXFA_DEVICE uint32_t lane_id() {
  uint32_t value;
  asm("mov.u32 %0, %%laneid;" : "=r"(value));
  return value;
}

// Warp index in the CTA (one-dimensional CTAs).  From %tid, because %warpid is volatile by specification;
// broadcast from lane 0, because only then does the compiler know that role dispatch does not diverge.
// Callers: all 32 lanes, converged.
MXFA_DEVICE uint32_t warp_id() { return shfl_idx(threadIdx.x / 32, 0); }

// %laneid, %tid.x and %ctaid.x, read where they stand and not kept in a register before and behind.
MXFA_DEVICE uint32_t lane_id_anew() {
  uint32_t value;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(value));
  return value;
}
MXFA_DEVICE uint32_t thread_x_anew() {
  uint32_t value;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(value));
  return value;
}
MXFA_DEVICE uint32_t cta_x_anew() {
  uint32_t value;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(value));
  return value;
}

// %cluster_ctarank; sm_90.
MXFA_DEVICE uint32_t cluster_cta_rank() {
  uint32_t value;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(value));
  return value;
}

}  // namespace mxfa::ptx
