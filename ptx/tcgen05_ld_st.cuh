// Tensor memory <-> registers, shape 32x32b.  PTX ISA 9.7.16.8, "tcgen05.ld / st / wait"; PTX 8.6, sm_100a.
// Callers: all 32 lanes of a warp, converged, with the same address; warp w reaches lanes
// 32*(w%4)..32*(w%4)+31 only. Thread t's register r is column (address + r) of lane t of the warp's quadrant.
// Asynchronous: loaded registers hold nothing before tcgen05_wait_ld, stored columns are not there for
// anybody before tcgen05_wait_st.
#pragma once
#include "ptx/operand_lists.cuh"
#include "ptx/types.cuh"

namespace mxfa::ptx {

#define MXFA_TCGEN05_LD(N, TYPE, C)                                                           \
  MXFA_DEVICE void tcgen05_ld_32x32b(uint32_t address, TYPE(&r)[N]) {                         \
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x" #N ".b32 {" MXFA_REGS_##N "}, [%" #N "];" \
                 : MXFA_OPS_##N("=" C, r, 0)                                                  \
                 : "r"(address)                                                               \
                 : "memory");                                                                 \
  }
#define MXFA_TCGEN05_ST(N, TYPE, C)                                                           \
  MXFA_DEVICE void tcgen05_st_32x32b(uint32_t address, const TYPE(&r)[N]) {                   \
    asm volatile("tcgen05.st.sync.aligned.32x32b.x" #N ".b32 [%" #N "], {" MXFA_REGS_##N "};" \
                 :                                                                            \
                 : MXFA_OPS_##N(C, r, 0), "r"(address)                                        \
                 : "memory");                                                                 \
  }
#define MXFA_TCGEN05_LD_ST(N)       \
  MXFA_TCGEN05_LD(N, uint32_t, "r") \
  MXFA_TCGEN05_LD(N, float, "f")    \
  MXFA_TCGEN05_ST(N, uint32_t, "r") \
  MXFA_TCGEN05_ST(N, float, "f")

// tcgen05.{ld,st}.sync.aligned.32x32b.xN.b32; N is the extent of the register array.
MXFA_TCGEN05_LD_ST(8)
MXFA_TCGEN05_LD_ST(16)
MXFA_TCGEN05_LD_ST(32)

// tcgen05.ld.red.sync.aligned.32x32b.x32.max.NaN.f32 -- the load, and the maximum of the thread's 32 columns:
// NaN when any of them is.  PTX 9.0, sm_103a; `maximum` too holds nothing before tcgen05_wait_ld.
MXFA_DEVICE void tcgen05_ld_red_max_nan_32x32b(uint32_t address, float (&r)[32], float& maximum) {
  asm volatile("tcgen05.ld.red.sync.aligned.32x32b.x32.max.NaN.f32 {" MXFA_REGS_32 "}, %32, [%33];"
               : MXFA_OPS_32("=f", r, 0), "=f"(maximum)
               : "r"(address)
               : "memory");
}

#undef MXFA_TCGEN05_LD_ST
#undef MXFA_TCGEN05_ST
#undef MXFA_TCGEN05_LD

// tcgen05.wait::{ld,st} -- all earlier loads (stores) of this thread are complete.
MXFA_DEVICE void tcgen05_wait_ld() { asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }
MXFA_DEVICE void tcgen05_wait_st() { asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); }

// The wait for a load into `r`, and a promise to the compiler that the registers get their value here: a wait
// alone does not keep arithmetic on them from being scheduled before it.  Emits the wait only.
template <class T, int kCount>
MXFA_DEVICE void tcgen05_wait_ld(T (&r)[kCount]) {
  tcgen05_wait_ld();
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if constexpr (sizeof(T) == sizeof(float) && T(0.5f) != T(0)) {
      asm volatile("" : "+f"(r[i]) : : "memory");
    } else {
      asm volatile("" : "+r"(r[i]) : : "memory");
    }
  }
}

}  // namespace mxfa::ptx
