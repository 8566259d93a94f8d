// Warpgroup MMAs.  PTX ISA 9.7.15, "wgmma"; PTX 8.0, sm_90a only.
// Callers: all four warps of an aligned warpgroup, converged, with the same descriptors.  D (64 x N, FP32) is
// in registers: element i of a thread is row 16*warp + lane/4 + 8*((i/2)%2), column 8*(i/4) + 2*(lane%4) +
// i%2.  Asynchronous: D and a register A may not be touched between the issue and the wgmma_wait that covers
// it.
#pragma once
#include "ptx/operand_lists.cuh"
#include "ptx/types.cuh"

namespace mxfa::ptx {

// wgmma.fence -- before the first wgmma, and after registers of D or A were touched.
MXFA_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// wgmma.commit_group -- closes the group of all wgmma issued since the last one.
MXFA_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// wgmma.wait_group N -- at most the N youngest groups are still running.
template <int kPending>
MXFA_DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(kPending) : "memory");
}

// Keeps the compiler from moving accesses of an accumulator across this point; emits nothing.
template <int kCount>
MXFA_DEVICE void wgmma_pin(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i]) : : "memory");
}

// wgmma.mma_async.m64nNk16.f32.bf16.bf16.  R registers of D; P0.. are the operand numbers that follow them.
// kTransA, kTransB: 0 = K-major, 1 = MN-major.  _first: D = A B, written without being read, so that the
// compiler knows that nothing is live in its registers before.
#define MXFA_WGMMA_BF16(N, R, P0, P1, P2, P3, P4, P5, P6)                                             \
  template <int kTransA, int kTransB>                                                                 \
  MXFA_DEVICE void wgmma_bf16_ss(float(&d)[R], uint64_t a, uint64_t b, bool accumulate) {             \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %" P2                                                \
                 ", 0; "                                                                              \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" MXFA_REGS_##R           \
                 "}, "                                                                                \
                 "%" P0 ", %" P1 ", p, 1, 1, %" P3 ", %" P4 "; }"                                     \
                 : MXFA_OPS_##R("+f", d, 0)                                                           \
                 : "l"(a), "l"(b), "r"(static_cast<uint32_t>(accumulate)), "n"(kTransA), "n"(kTransB) \
                 : "memory");                                                                         \
  }                                                                                                   \
  template <int kTransA, int kTransB>                                                                 \
  MXFA_DEVICE void wgmma_bf16_ss_first(float(&d)[R], uint64_t a, uint64_t b) {                        \
    asm volatile(                                                                                     \
        "{ .reg .pred p; setp.ne.b32 p, 0, 0; "                                                       \
        "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" MXFA_REGS_##R                    \
        "}, "                                                                                         \
        "%" P0 ", %" P1 ", p, 1, 1, %" P2 ", %" P3 "; }"                                              \
        : MXFA_OPS_##R("=f", d, 0)                                                                    \
        : "l"(a), "l"(b), "n"(kTransA), "n"(kTransB)                                                  \
        : "memory");                                                                                  \
  }                                                                                                   \
  template <int kTransB>                                                                              \
  MXFA_DEVICE void wgmma_bf16_rs(float(&d)[R], const uint32_t(&a)[4], uint64_t b, bool accumulate) {  \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %" P5                                                \
                 ", 0; "                                                                              \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" MXFA_REGS_##R           \
                 "}, "                                                                                \
                 "{%" P0 ", %" P1 ", %" P2 ", %" P3 "}, %" P4 ", p, 1, 1, %" P6 "; }"                 \
                 : MXFA_OPS_##R("+f", d, 0)                                                           \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),                                \
                   "r"(static_cast<uint32_t>(accumulate)), "n"(kTransB)                               \
                 : "memory");                                                                         \
  }

MXFA_WGMMA_BF16(64, 32, "32", "33", "34", "35", "36", "37", "38")
MXFA_WGMMA_BF16(80, 40, "40", "41", "42", "43", "44", "45", "46")
MXFA_WGMMA_BF16(96, 48, "48", "49", "50", "51", "52", "53", "54")
MXFA_WGMMA_BF16(112, 56, "56", "57", "58", "59", "60", "61", "62")
MXFA_WGMMA_BF16(128, 64, "64", "65", "66", "67", "68", "69", "70")
MXFA_WGMMA_BF16(144, 72, "72", "73", "74", "75", "76", "77", "78")
MXFA_WGMMA_BF16(160, 80, "80", "81", "82", "83", "84", "85", "86")
MXFA_WGMMA_BF16(176, 88, "88", "89", "90", "91", "92", "93", "94")
MXFA_WGMMA_BF16(192, 96, "96", "97", "98", "99", "100", "101", "102")

#undef MXFA_WGMMA_BF16

}  // namespace mxfa::ptx
