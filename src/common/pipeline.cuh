// Where a ring of stages stands: which slot, and which parity its barriers are waited with.
//
// Both sides of a ring walk the same states.  A consumer starts with phase 0: its first wait blocks until the
// first stage is full.  A producer starts with phase 1: on a fresh mbarrier the wait for the preceding,
// never-run phase succeeds at once (PTX ISA 9.7.13.15.16), so the first pass over the ring finds every slot
// free without anybody arriving.
#pragma once
#include "ptx/mbarrier.cuh"
#include "ptx/types.cuh"

namespace mxfa {

template <uint32_t kStages>
struct PipelineState {
  uint32_t stage;
  uint32_t phase;

  MXFA_DEVICE static PipelineState producer() { return {0, 1}; }
  MXFA_DEVICE static PipelineState consumer() { return {0, 0}; }

  MXFA_DEVICE void advance() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

// The barriers of a ring that one thread fills, by copies whose bytes it announces, and `consumers` free.
MXFA_DEVICE void init_ring(uint32_t full, uint32_t empty, uint32_t stages, uint32_t consumers) {
  for (uint32_t i = 0; i < stages; ++i) {
    ptx::mbarrier_init(full + 8 * i, 1);
    ptx::mbarrier_init(empty + 8 * i, consumers);
  }
}

}  // namespace mxfa
