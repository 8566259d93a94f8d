// Warp reductions in one instruction.  PTX ISA "redux.sync"; sm_80.
// Callers: all 32 lanes, converged.
#pragma once
#include "ptx/types.cuh"

namespace mxfa::ptx {

// redux.sync.max.u32
MXFA_DEVICE uint32_t redux_max_u32(uint32_t value) {
  uint32_t result;
  asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(result) : "r"(value) : "memory");
  return result;
}

}  // namespace mxfa::ptx
