// Tensor core MMAs of the fifth generation and their commit.  PTX ISA 9.7.16.10 (mma), 9.7.16.11.4 (commit);
// PTX 8.6, sm_100a. Callers: one thread, for the whole CTA (kCtaGroup 1) or for the CTA pair (2);
// asynchronous, executed in issue order. D (M x N, FP32) is in tensor memory.  A is a shared-memory
// descriptor (_ss) or a tensor-memory address (_ts, K-major); B is a descriptor.  `accumulate` false: D =
// A*B, the old D is not read.
#pragma once
#include "ptx/types.cuh"

namespace mxfa::ptx {

// tcgen05.mma.kind::f16 -- FP16 or BF16 as the instruction descriptor says; K = 16.
template <int kCtaGroup = 1>
MXFA_DEVICE void tcgen05_mma_f16_ss(uint32_t d, uint64_t a, uint64_t b, uint32_t idesc, bool accumulate) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %4, 0; tcgen05.mma.cta_group::%5.kind::f16 [%0], %1, %2, %3, p; }"
      :
      : "r"(d), "l"(a), "l"(b), "r"(idesc), "r"(static_cast<uint32_t>(accumulate)), "n"(kCtaGroup)
      : "memory");
}

template <int kCtaGroup = 1>
MXFA_DEVICE void tcgen05_mma_f16_ts(uint32_t d, uint32_t a, uint64_t b, uint32_t idesc, bool accumulate) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %4, 0; tcgen05.mma.cta_group::%5.kind::f16 [%0], [%1], %2, %3, p; }"
      :
      : "r"(d), "r"(a), "l"(b), "r"(idesc), "r"(static_cast<uint32_t>(accumulate)), "n"(kCtaGroup)
      : "memory");
}

// tcgen05.mma.kind::mxf8f6f4.block_scale -- FP8 (here E4M3), one UE8M0 scale per row and 32 elements of K; K
// = 32. `sfa`, `sfb`: tensor-memory columns of the scales; which of the four bytes of a word is used stands
// in the descriptor.
template <int kCtaGroup = 1>
MXFA_DEVICE void tcgen05_mma_mxf8f6f4_ss(uint32_t d, uint64_t a, uint64_t b, uint32_t idesc, uint32_t sfa,
                                         uint32_t sfb, bool accumulate) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %6, 0; "
      "tcgen05.mma.cta_group::%7.kind::mxf8f6f4.block_scale.scale_vec::1X [%0], %1, %2, %3, [%4], [%5], p; }"
      :
      : "r"(d), "l"(a), "l"(b), "r"(idesc), "r"(sfa), "r"(sfb), "r"(static_cast<uint32_t>(accumulate)),
        "n"(kCtaGroup)
      : "memory");
}

template <int kCtaGroup = 1>
MXFA_DEVICE void tcgen05_mma_mxf8f6f4_ts(uint32_t d, uint32_t a, uint64_t b, uint32_t idesc, uint32_t sfa,
                                         uint32_t sfb, bool accumulate) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %6, 0; "
      "tcgen05.mma.cta_group::%7.kind::mxf8f6f4.block_scale.scale_vec::1X [%0], [%1], %2, %3, [%4], [%5], p; "
      "}"
      :
      : "r"(d), "r"(a), "l"(b), "r"(idesc), "r"(sfa), "r"(sfb), "r"(static_cast<uint32_t>(accumulate)),
        "n"(kCtaGroup)
      : "memory");
}

// tcgen05.commit -- one arrival on the mbarrier when every mma and cp this thread has issued so far is
// complete.  Implies fence::before_thread_sync.  Callers: the thread that issued them.
template <int kCtaGroup = 1>
MXFA_DEVICE void tcgen05_commit(uint32_t bar) {
  asm volatile("tcgen05.commit.cta_group::%1.mbarrier::arrive::one.shared::cluster.b64 [%0];"
               :
               : "r"(bar), "n"(kCtaGroup)
               : "memory");
}

// The same on the barrier at this offset in each CTA of the cluster whose bit is set in `cta_mask`.
template <int kCtaGroup = 1>
MXFA_DEVICE void tcgen05_commit_multicast(uint32_t bar, uint16_t cta_mask) {
  asm volatile(
      "tcgen05.commit.cta_group::%2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;"
      :
      : "r"(bar), "h"(cta_mask), "n"(kCtaGroup)
      : "memory");
}

}  // namespace mxfa::ptx
