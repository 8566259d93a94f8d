// elect.sync -- one lane of a converged warp.  PTX ISA 9.7.13, "elect.sync"; PTX 8.0, sm_90.
#pragma once
#include "ptx/types.cuh"

namespace mxfa::ptx {

// True in exactly one lane.  Which one is unspecified but the same each time for the full mask, which is what
// makes "the thread that issued the MMAs also commits them" work.  Callers: all 32 lanes, converged.
MXFA_DEVICE bool elect_one() {
  uint32_t elected;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.b32 %0, 1, 0, p; }"
               : "=r"(elected)
               :
               : "memory");
  return elected != 0;
}

}  // namespace mxfa::ptx
