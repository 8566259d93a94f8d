// Per-warpgroup registers, and stopping.
#pragma once
#include "ptx/types.cuh"

namespace mxfa::ptx {

// setmaxnreg.{inc,dec} -- registers a thread of this warpgroup; a multiple of 8 in 24..256.  PTX ISA
// "setmaxnreg"; PTX 8.0, sm_90a and sm_100a.  Callers: all warps of one warpgroup.  inc blocks until others
// have given registers back.  ptxas drops it (with a warning) unless the kernel has
// __launch_bounds__(threads, 1).
template <int kRegisters>
MXFA_DEVICE void setmaxnreg_inc() {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256,
                "setmaxnreg takes 24..256 in steps of 8");
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(kRegisters) : "memory");
}

template <int kRegisters>
MXFA_DEVICE void setmaxnreg_dec() {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256,
                "setmaxnreg takes 24..256 in steps of 8");
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(kRegisters) : "memory");
}

// trap -- stops the grid with an error the host sees.
MXFA_DEVICE void trap() { asm volatile("trap;" ::: "memory"); }

}  // namespace mxfa::ptx
