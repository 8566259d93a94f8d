// Cluster launch control: a running CTA takes over the work of one that has not started.  PTX ISA 9.7.13.17
// and 18; PTX 8.6, sm_100.  Callers: any thread.
#pragma once
#include "ptx/types.cuh"

namespace mxfa::ptx {

// clusterlaunchcontrol.try_cancel -- asks for a cluster of this grid that has not started; the answer, 16
// bytes (aligned to them), arrives in shared memory through the async proxy and is counted on the mbarrier.
// Undefined once a refusal has been seen by a thread of this cluster.
MXFA_DEVICE void launch_try_cancel(uint32_t answer, uint32_t bar) {
  asm volatile(
      "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], [%1];"
      :
      : "r"(answer), "r"(bar)
      : "memory");
}

struct LaunchGrant {
  bool granted;
  uint32_t cta_x;  // of the cluster's first CTA; 0 when refused
};

// clusterlaunchcontrol.query_cancel -- what the answer says.  The thread has waited for its mbarrier.
MXFA_DEVICE LaunchGrant launch_query(uint32_t answer) {
  uint32_t granted, x;
  asm volatile(
      "{ .reg .b128 q; .reg .pred p; ld.shared.b128 q, [%2]; "
      "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, q; "
      "selp.b32 %0, 1, 0, p; mov.b32 %1, 0; "
      "@p clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %1, q; }"
      : "=r"(granted), "=r"(x)
      : "r"(answer)
      : "memory");
  return {granted != 0, x};
}

}  // namespace mxfa::ptx
