// What every role of attention_fwd_sm100 and attention_fwd_sm100_pair shares: addresses by the names of the
// tables, and arrivals.
#pragma once
#include "ptx/barrier.cuh"
#include "ptx/elect.cuh"
#include "ptx/fence.cuh"
#include "ptx/ld_st.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/sreg.cuh"
#include "src/attention/attention_forward_params.cuh"
#include "src/attention/attention_fwd_sm100_tables.cuh"

namespace mxfa {

namespace attention_fwd_sm100 {

struct Context {
  const AttentionForwardParams& p;
  uint32_t warp;    // of the CTA; known to be uniform
  uint32_t shared;  // base of dynamic shared memory

  template <Smem kRow>
  MXFA_DEVICE static uint32_t offset(uint32_t stage = 0) {
    constexpr SmemRow row = kTables.smem[index_of(kRow)];
    return row.offset + stage * row.bytes;
  }
  template <Smem kRow>
  MXFA_DEVICE uint32_t address(uint32_t stage = 0) const {
    return shared + offset<kRow>(stage);
  }
  template <Barrier kRow>
  MXFA_DEVICE uint32_t barrier(uint32_t stage) const {
    constexpr uint32_t offset = kTables.barriers[index_of(kRow)].offset;
    return shared + offset + 8 * stage;
  }
  // The column of stage 0 or 1.  The CTA owns all 512 columns, so the base is column 0: a constant, which
  // saves the roles many registers; the kernel checks it once.
  template <Tmem kRow0, Tmem kRow1>
  MXFA_DEVICE static uint32_t column(uint32_t stage) {
    constexpr uint32_t column0 = kTables.tmem[index_of(kRow0)].column,
                       column1 = kTables.tmem[index_of(kRow1)].column;
    return stage == 0 ? column0 : column1;
  }

  // Softmax and correction: this thread's row of the query tile, and its TMEM lanes in the form an address
  // takes (bits 16 to 31).
  MXFA_DEVICE uint32_t row() const { return threadIdx.x % kWarpgroupThreads; }
  MXFA_DEVICE uint32_t warp_in_group() const { return warp % 4; }
  MXFA_DEVICE uint32_t quadrant_lanes() const { return warp_in_group() * 32 << 16; }
  template <Smem kRow>
  MXFA_DEVICE uint32_t row_address(uint32_t stage) const {
    return address<kRow>(stage) + 4 * row();
  }
};

// One arrival for the warp: the lanes' earlier work happens before bar.warp.sync, and that before the elected
// lane's arrive (release).
MXFA_DEVICE void warp_arrive(uint32_t barrier) {
  ptx::warp_sync();
  if (ptx::elect_one()) ptx::mbarrier_arrive(barrier);
}

// The same on a barrier that the mma thread waits for: in a pair that of the first CTA, with a release of
// shared memory alone, because one of everything would wait for the whole GPU.
template <Barrier kRow>
MXFA_DEVICE void warp_arrive_at_mma(const Context& c, uint32_t stage) {
  const uint32_t barrier = c.barrier<kRow>(stage);
  if constexpr (kCtas == 1) {
    warp_arrive(barrier);
  } else {
    ptx::warp_sync();
    if (ptx::elect_one()) {
      ptx::fence_release_shared_cta();
      ptx::mbarrier_arrive_cluster_relaxed(ptx::mapa(barrier, 0));
    }
  }
}

// Parities of barriers with one slot a stage.  A consumer's first wait blocks, a producer's passes
// (PipelineState).
struct StagePhases {
  uint32_t bits;
  MXFA_DEVICE static StagePhases consumer() { return {0}; }
  MXFA_DEVICE static StagePhases producer() { return {(1u << kStages) - 1}; }
  MXFA_DEVICE uint32_t operator[](uint32_t stage) const { return bits >> stage & 1; }
  MXFA_DEVICE void advance(uint32_t stage) { bits ^= 1u << stage; }
};

}  // namespace attention_fwd_sm100
}  // namespace mxfa
