// Atomic operations on global memory that return the old value.  PTX ISA 9.7.13.4, "atom"; sm_90.
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

}  // namespace mxfa::ptx
