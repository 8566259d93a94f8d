// Warp reductions in one instruction.  PTX ISA "redux.sync"; integer forms sm_80, FP32 forms sm_100a.
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

// redux.sync.max.abs.f32 -- the largest magnitude; NaNs are ignored.  sm_100a.
MXFA_DEVICE float redux_max_abs_f32(float value) {
  float result;
  asm volatile("redux.sync.max.abs.f32 %0, %1, 0xffffffff;" : "=f"(result) : "f"(value) : "memory");
  return result;
}

}  // namespace mxfa::ptx
