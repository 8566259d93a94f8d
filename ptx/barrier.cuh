// Execution barriers of a warp, of threads of a CTA, and of a cluster.
#pragma once
#include "ptx/types.cuh"

namespace mxfa::ptx {

// bar.warp.sync -- orders memory among the 32 lanes.  PTX ISA "bar.warp.sync"; sm_70.  Callers: all lanes.
MXFA_DEVICE void warp_sync() { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }

// nanosleep.u32 -- between two looks at what another CTA will change.  PTX ISA "nanosleep"; sm_70.
MXFA_DEVICE void nanosleep(uint32_t nanoseconds) {
  asm volatile("nanosleep.u32 %0;" : : "r"(nanoseconds) : "memory");
}

// bar.sync 0 -- all threads of the CTA.  PTX ISA 9.7.13.1, "barrier{.cta}".
MXFA_DEVICE void cta_sync() { asm volatile("bar.sync 0;" ::: "memory"); }

// bar.sync id, threads -- whole warps, `threads` in all, a multiple of 32.  Id 0 belongs to cta_sync.
MXFA_DEVICE void named_barrier_sync(uint32_t id, uint32_t threads) {
  asm volatile("bar.sync %0, %1;" : : "r"(id), "r"(threads) : "memory");
}

// bar.arrive id, threads -- counts among `threads` and goes on.
MXFA_DEVICE void named_barrier_arrive(uint32_t id, uint32_t threads) {
  asm volatile("bar.arrive %0, %1;" : : "r"(id), "r"(threads) : "memory");
}

// barrier.cluster.arrive.release / wait.acquire -- every thread of every CTA of the cluster, once a phase.
// PTX ISA "barrier.cluster"; PTX 7.8, sm_90.  A CTA must not exit before its peers have stopped touching its
// shared memory.
MXFA_DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
MXFA_DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

MXFA_DEVICE void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}

}  // namespace mxfa::ptx
