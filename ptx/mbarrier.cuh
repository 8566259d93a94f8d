// mbarrier objects in shared memory, in the order of their life.  PTX ISA 9.7.13.15; PTX 8.0, sm_90.
// Callers: any single thread, unless said otherwise.  `bar` is a shared-window address, 8-byte aligned.
#pragma once
#include "ptx/types.cuh"

namespace mxfa::ptx {

// mbarrier.init -- phase 0, `count` arrivals expected in each phase, no bytes pending.  Nobody else may touch
// the object before fence_mbarrier_init and a CTA (or cluster) barrier.
MXFA_DEVICE void mbarrier_init(uint32_t bar, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(bar), "r"(count) : "memory");
}

// mbarrier.arrive -- one arrival, release at CTA scope.
MXFA_DEVICE void mbarrier_arrive(uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(bar) : "memory");
}

// mbarrier.arrive.expect_tx -- adds `bytes` to the pending transaction count, then arrives once.
MXFA_DEVICE void mbarrier_arrive_expect_tx(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" : : "r"(bar), "r"(bytes) : "memory");
}

// mbarrier.try_wait.parity -- true when the phase of that parity has completed (acquire at CTA scope); may
// also return false early.  On a fresh barrier parity 1 is true at once: that is how the side that may run
// first starts.  Every thread that depends on the data must wait itself.
MXFA_DEVICE bool mbarrier_try_wait(uint32_t bar, uint32_t parity) {
  uint32_t done;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
               : "=r"(done)
               : "r"(bar), "r"(parity)
               : "memory");
  return done != 0;
}

MXFA_DEVICE void mbarrier_wait(uint32_t bar, uint32_t parity) {
  while (!mbarrier_try_wait(bar, parity)) {
  }
}

// The same for phases that threads of another CTA complete with mbarrier_arrive_cluster_relaxed, without
// ordering memory: the waiter has a fence of its own, since an acquire at cluster scope would invalidate the
// L1 cache.
MXFA_DEVICE bool mbarrier_try_wait_cluster_relaxed(uint32_t bar, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{ .reg .pred p; mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, "
      "0, p; }"
      : "=r"(done)
      : "r"(bar), "r"(parity)
      : "memory");
  return done != 0;
}

MXFA_DEVICE void mbarrier_wait_cluster_relaxed(uint32_t bar, uint32_t parity) {
  while (!mbarrier_try_wait_cluster_relaxed(bar, parity)) {
  }
}

// mapa.shared::cluster -- the address of the same shared object in the CTA of that cluster rank.  PTX ISA
// "mapa"; sm_90.
MXFA_DEVICE uint32_t mapa(uint32_t address, uint32_t cta_rank) {
  uint32_t mapped;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(cta_rank));
  return mapped;
}

// mbarrier.arrive on another CTA's barrier (`bar` from mapa), without ordering memory, behind a fence: a
// release at cluster scope waits until all of the thread's accesses are performed for the whole GPU
// (MEMBAR.GPU).
MXFA_DEVICE void mbarrier_arrive_cluster_relaxed(uint32_t bar) {
  asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" : : "r"(bar) : "memory");
}

}  // namespace mxfa::ptx
