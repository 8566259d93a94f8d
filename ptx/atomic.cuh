// Operations on global memory by which CTAs take turns.  PTX ISA 9.7.13.4 "atom", 9.7.13.5 "red", 9.7.9.8
// "ld"; sm_90.
#pragma once
#include "ptx/types.cuh"

namespace mxfa::ptx {

// atom.add.acq_rel.gpu.global.s32 -- any lane.  Acquire and release at device scope: what other CTAs wrote
// before their addition is visible after this one.
MXFA_DEVICE int32_t atom_add_acq_rel_gpu_s32(int32_t* address, int32_t value) {
  int32_t old;
  asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], %2;"
               : "=r"(old)
               : "l"(address), "r"(value)
               : "memory");
  return old;
}

// ld.acquire.gpu.global.s32 -- what was written before the release that stored the value is visible after it.
MXFA_DEVICE int32_t ld_acquire_gpu_s32(const int32_t* address) {
  int32_t value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}

// red.release.gpu.global.add.s32 -- what this thread wrote, or saw written, before it is visible to whoever
// acquires the sum.
MXFA_DEVICE void red_add_release_gpu_s32(int32_t* address, int32_t value) {
  asm volatile("red.release.gpu.global.add.s32 [%0], %1;" : : "l"(address), "r"(value) : "memory");
}

}  // namespace mxfa::ptx
