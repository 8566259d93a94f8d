// Fences: memory model scopes, proxies, and the tensor core's ordering with thread synchronisation.
#pragma once
#include "ptx/types.cuh"

namespace mxfa::ptx {

// fence.{release,acquire}.sync_restrict -- at cluster scope for accesses of shared memory alone, that of this
// CTA (release) or of the cluster (acquire): with relaxed signals, the ordering that is wanted of shared
// memory without that of global memory.  PTX ISA 9.7.13.4, "membar / fence"; PTX 8.6, sm_90.  Any thread.
MXFA_DEVICE void fence_release_shared_cta() {
  asm volatile("fence.release.sync_restrict::shared::cta.cluster;" ::: "memory");
}
MXFA_DEVICE void fence_acquire_shared_cluster() {
  asm volatile("fence.acquire.sync_restrict::shared::cluster.cluster;" ::: "memory");
}

// fence.mbarrier_init.release.cluster -- makes this thread's mbarrier_init calls visible to whoever passes
// the barrier that follows (other threads, other CTAs, the copy engines).  PTX 8.0, sm_90.
MXFA_DEVICE void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// fence.proxy.async -- orders this thread's ordinary accesses of shared memory with those of the async proxy
// (TMA, bulk copies, and the operands of wgmma, tcgen05.mma and tcgen05.cp).  The thread that wrote must
// call it, before it signals. PTX 8.0, sm_90.
MXFA_DEVICE void fence_proxy_async_shared_cta() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ... of global memory.
MXFA_DEVICE void fence_proxy_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

// tcgen05.fence -- orders this thread's earlier (before_) or later (after_) asynchronous tcgen05 operations
// with its synchronising operations.  Carries no data itself: it pairs with an mbarrier or a barrier.  PTX
// ISA 9.7.16.11; PTX 8.6, sm_100a.
MXFA_DEVICE void tcgen05_fence_before_thread_sync() {
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}

MXFA_DEVICE void tcgen05_fence_after_thread_sync() {
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

}  // namespace mxfa::ptx
