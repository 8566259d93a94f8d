// Attention forward on Blackwell (sm_100a) by pairs of CTAs: attention_fwd_sm100 in BF16 with head_dim 128
// and without a mask, where the two CTAs of a cluster share every block of keys and values.
//
// A pair owns 512 query rows of a head as two stages of 256, of which each CTA has 128 in its shared and
// tensor memory: MMAs of cta_group::2 with M = 256, all issued by the first CTA.  Of the B operand, K or V,
// each CTA holds half, so that shared memory is filled and read half as often a product.  Softmax,
// correction, epilogue, tensor memory and handshakes are those of attention_fwd_sm100
// (docs/attention_fwd_sm100.md, "Pairs of CTAs").
#include "ptx/barrier.cuh"
#include "ptx/descriptor.cuh"
#include "ptx/elect.cuh"
#include "ptx/fence.cuh"
#include "ptx/launch.cuh"
#include "ptx/ld_st.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/sreg.cuh"
#include "ptx/tcgen05_alloc.cuh"
#include "ptx/tcgen05_mma.cuh"
#include "ptx/tma.cuh"
#include "src/attention/attention_fwd_sm100_context.cuh"
#include "src/attention/attention_fwd_sm100_output.cuh"
#include "src/attention/attention_fwd_sm100_softmax.cuh"
#include "src/attention/attention_fwd_sm100_tables.cuh"
#include "src/common/jagged.cuh"
#include "src/common/math.cuh"
#include "src/common/pipeline.cuh"

namespace mxfa::attention_fwd_sm100_pair {

using namespace attention_fwd_sm100;

static_assert(kCtas == 2 && !kMxfp8 && kD == 128 && !kRightMask && !kLeftMask,
              "a pair: BF16, head_dim 128, no mask");

// ---- load: one thread of each CTA ----
//
// Each CTA loads its rows of Q, keys 64 rank .. 64 rank + 63 of a block of K, and channels 64 rank .. of all
// 128 rows of V: the halves of the N dimension that cta_group::2 takes from each CTA.  All bytes count on the
// full barrier of the first CTA, which alone expects them and arrives.  The second may run ahead of it by a
// load: the phase cannot complete before the first has arrived, and the slot was free in both CTAs because
// one commit frees it in both.
inline constexpr uint32_t kHalfKeys = kTile / 2;
inline constexpr uint32_t kHalfPanelBytes = kHalfKeys * kPanelRowBytes;
inline constexpr uint32_t kPanelChannels = kPanelRowBytes / kElementBytes;
static_assert(kPanels == 2 && kPanels * kHalfPanelBytes == kKvTileBytes && kPanelBytes == kKvTileBytes,
              "half of K is two panels of half the rows, half of V one panel");

MXFA_DEVICE void load(const Context& c) {
  const AttentionForwardParams& p = c.p;
  const uint32_t rank = ptx::cluster_cta_rank();
  auto kv = PipelineState<kKvStages>::producer();
  auto q_empty = StagePhases::producer();
  const int32_t group = p.heads_q / p.heads_kv;
  auto expect = [&](uint32_t full, uint32_t bytes) {
    if (rank == 0) ptx::mbarrier_arrive_expect_tx(full, bytes);
    return ptx::mapa(full, 0);
  };
  for (Tiles<Walker::kThread> tile(c); tile.valid(); tile.next()) {
    const TileBlocks blocks(tile);
    const int32_t head_kv = tile.head / group;
    auto wait_slot = [&] {
      ptx::mbarrier_wait(c.barrier<Barrier::kKvEmpty>(kv.stage), kv.phase);
      return expect(c.barrier<Barrier::kKvFull>(kv.stage), kLoadBytes);
    };
    auto load_q = [&](uint32_t stage) {
      ptx::mbarrier_wait(c.barrier<Barrier::kQEmpty>(stage), q_empty[stage]);
      q_empty.advance(stage);
      const uint32_t full = expect(c.barrier<Barrier::kQFull>(stage), kCtas * kLoadBytes);
      const RaggedRow queries = ragged_row(tile.q, tile.stage_row(stage));
#pragma unroll
      for (uint32_t panel = 0; panel < kPanels; ++panel)
        ptx::tma_load_5d_group<2>(c.address<Smem::kQ>(stage) + panel * kPanelBytes, &p.q, full,
                                  panel * kPanelChannels, tile.head, queries.row, queries.shift, queries.end);
    };
    for (int32_t block = blocks.end() - 1; block >= blocks.first(); --block) {
      const int32_t key = block * int32_t(kTile);
      const uint32_t full_k = wait_slot();
      const RaggedRow keys = ragged_row(tile.k, key + int32_t(rank * kHalfKeys));
#pragma unroll
      for (uint32_t panel = 0; panel < kPanels; ++panel)
        ptx::tma_load_5d_group<2>(c.address<Smem::kKv>(kv.stage) + panel * kHalfPanelBytes, &p.k, full_k,
                                  panel * kPanelChannels, head_kv, keys.row, keys.shift, keys.end);
      kv.advance();
      // In the order of the MMAs: a stage's Q before the first K it meets.
#pragma unroll
      for (uint32_t stage = 0; stage < kStages; ++stage)
        if (block == blocks.stage[stage].end - 1) load_q(stage);
      const uint32_t full_v = wait_slot();
      const RaggedRow values = ragged_row(tile.k, key);
      ptx::tma_load_5d_group<2>(c.address<Smem::kKv>(kv.stage), &p.v, full_v, rank * kPanelChannels, head_kv,
                                values.row, values.shift, values.end);
      kv.advance();
    }
  }
  // Every slot is free again when the last commits have arrived: nothing is in flight when the CTA exits.
  for (uint32_t slot = 0; slot < kKvStages; ++slot) {
    ptx::mbarrier_wait(c.barrier<Barrier::kKvEmpty>(kv.stage), kv.phase);
    kv.advance();
  }
  for (uint32_t stage = 0; stage < kStages; ++stage)
    ptx::mbarrier_wait(c.barrier<Barrier::kQEmpty>(stage), q_empty[stage]);
}

// ---- mma: one thread of the first CTA ----
//
// As in attention_fwd_sm100, with M = 256: rows of A and D, P in tensor memory included, 128 from each CTA at
// the same addresses.  The descriptors are those of the first CTA; the second reads its own memory with them.
inline constexpr uint32_t kPairM = 2 * kTile;
inline constexpr uint16_t kBothCtas = 3;

struct Mma {
  const Context& c;
  PipelineState<kKvStages> kv = PipelineState<kKvStages>::consumer();
  StagePhases q_full = StagePhases::consumer();
  StagePhases p_full = StagePhases::consumer();  // also p_last
  uint32_t pending = 0;                          // the parts of the block whose P V comes next
  uint32_t pending_steps = 0;
  uint64_t k_major = ptx::smem_descriptor_k_major(c.shared, ptx::Swizzle::k128B);
  uint64_t mn_major = ptx::smem_descriptor_mn_major(c.shared, kPanelBytes, ptx::Swizzle::k128B);

  // To both CTAs: when every MMA so far is complete.
  template <Barrier kRow>
  MXFA_DEVICE void commit(uint32_t stage) const {
    ptx::tcgen05_commit_multicast<2>(c.barrier<kRow>(stage), kBothCtas);
  }

  // For the warps of both CTAs.  An acquire of global memory as well would empty the L1 cache.
  template <Barrier kRow>
  MXFA_DEVICE void wait_both(uint32_t stage) const {
    ptx::mbarrier_wait_cluster_relaxed(c.barrier<kRow>(stage), p_full[stage]);
    ptx::fence_acquire_shared_cluster();
  }

  // S(stage) = Q(stage) K^T, K in ring slot `slot`.
  MXFA_DEVICE void scores(uint32_t stage, uint32_t slot) {
    const uint32_t d = c.column<Tmem::kS0, Tmem::kS1>(stage);
    const uint64_t a = ptx::descriptor_advance(k_major, c.offset<Smem::kQ>(stage));
    const uint64_t b = ptx::descriptor_advance(k_major, c.offset<Smem::kKv>(slot));
    constexpr uint32_t kDescriptor =
        ptx::instruction_descriptor_bf16(kPairM, kTile, ptx::Major::kK, ptx::Major::kK);
#pragma unroll
    for (uint32_t step = 0; step < kQkSteps; ++step) {
      const uint32_t panel = step / kStepsOfPanel, byte = step % kStepsOfPanel * kStepBytes;
      ptx::tcgen05_mma_f16_ss<2>(d, ptx::descriptor_advance(a, panel * kPanelBytes + byte),
                                 ptx::descriptor_advance(b, panel * kHalfPanelBytes + byte), kDescriptor,
                                 step != 0);
    }
    commit<Barrier::kSFull>(stage);
  }

  // O(stage) += P(stage) V, V in ring slot `slot`; the first pending_steps K steps, those with tokens.
  MXFA_DEVICE void weighted_sum(uint32_t stage, uint32_t slot, bool accumulate) {
    const uint32_t d = c.column<Tmem::kO0, Tmem::kO1>(stage);
    const uint32_t a = c.column<Tmem::kP0, Tmem::kP1>(stage);
    const uint64_t b = ptx::descriptor_advance(mn_major, c.offset<Smem::kKv>(slot));
    constexpr uint32_t kDescriptor =
        ptx::instruction_descriptor_bf16(kPairM, kD, ptx::Major::kK, ptx::Major::kMN);
    wait_both<Barrier::kPFull>(stage);
    ptx::tcgen05_fence_after_thread_sync();  // P stored by softmax, O rescaled by the correction, in both
                                             // CTAs
#pragma unroll
    for (uint32_t step = 0; step < kPvSteps; ++step) {
      if (step == kFirstPvSteps) {
        wait_both<Barrier::kPLast>(stage);
        ptx::tcgen05_fence_after_thread_sync();  // the last quarter of P
      }
      if (step >= pending_steps) continue;
      ptx::tcgen05_mma_f16_ts<2>(d, a + 8 * step,
                                 ptx::descriptor_advance(b, step * kStepTokens * kPanelRowBytes), kDescriptor,
                                 accumulate || step != 0);
    }
    p_full.advance(stage);
  }

  MXFA_DEVICE void wait_kv(const PipelineState<kKvStages>& at) const {
    ptx::mbarrier_wait(c.barrier<Barrier::kKvFull>(at.stage), at.phase);
  }

  // P V of the pending block and Q K^T of the block after it, which may belong to the next tile; either may
  // be missing (0).  Stage by stage, so that one's softmax runs under the other's MMAs.
  MXFA_DEVICE void step(uint32_t current, uint32_t current_steps) {
    const PipelineState<kKvStages> v = kv;
    if (pending != 0) {
      kv.advance();
      wait_kv(v);
    }
#pragma unroll
    for (uint32_t stage = 0; stage < kStages; ++stage) {
      if (pending & kActive << stage) {
        weighted_sum(stage, v.stage, !(pending & kFirst << stage));
        if (pending & kLast << stage) commit<Barrier::kOFull>(stage);
      }
      if (stage == 0 && current != 0) wait_kv(kv);
      if (stage + 1 == kStages && pending != 0) commit<Barrier::kKvEmpty>(v.stage);
      if (current & kActive << stage) {
        if (current & kFirst << stage) {
          ptx::mbarrier_wait(c.barrier<Barrier::kQFull>(stage), q_full[stage]);
          q_full.advance(stage);
        }
        scores(stage, kv.stage);
        // Q is free for the next tile while the last P V runs.
        if (current & kLast << stage) commit<Barrier::kQEmpty>(stage);
      }
    }
    if (current != 0) {
      commit<Barrier::kKvEmpty>(kv.stage);
      kv.advance();
    }
    pending = current;
    pending_steps = current_steps;
  }

  MXFA_DEVICE void run() {
    for (Tiles<Walker::kThread> tile(c); tile.valid(); tile.next()) {
      const TileBlocks blocks(tile);
      for (int32_t block = blocks.end() - 1; block >= blocks.first(); --block) {
        const uint32_t current = blocks.parts(block);
        const int32_t tokens = min_of(tile.k.length - block * int32_t(kTile), int32_t(kTile));
        step(current, ceil_div(uint32_t(tokens), kStepTokens));
      }
    }
    if (pending != 0) step(0, 0);
  }
};

// ---- the pair ----
MXFA_DEVICE void run(const AttentionForwardParams& p) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  const uint32_t warp = ptx::warp_id();
  const Context c{p, warp, smem_address(dynamic_shared)};
  if (warp == kSchedulerWarp && ptx::elect_one()) {
    constexpr ArrivalCounts kArrivals = arrival_counts();
#pragma unroll
    for (uint32_t i = 0; i < kArrivals.barriers; ++i)
      ptx::mbarrier_init(c.barrier<Barrier::kQFull>(i), kArrivals.count[i]);
    ptx::fence_mbarrier_init();  // visible to the copy engines and to the other CTA as well
  }
  if (warp == kLoadWarp && ptx::elect_one()) {
    ptx::prefetch_tensor_map(&p.q);
    ptx::prefetch_tensor_map(&p.k);
    ptx::prefetch_tensor_map(&p.v);
    ptx::prefetch_tensor_map(&p.o);
  }
  if (warp == kMmaWarp) {
    ptx::tcgen05_alloc<2>(c.address<Smem::kTmemBase>(), kTmemColumns);
    ptx::tcgen05_relinquish_alloc_permit<2>();
    ptx::tcgen05_fence_before_thread_sync();  // the allocation, before anybody's use
  }
  ptx::cluster_sync();  // no signal to a CTA whose barriers do not exist yet
  ptx::tcgen05_fence_after_thread_sync();
  if (warp == kMmaWarp && ptx::ld_shared_b32(c.address<Smem::kTmemBase>()) != 0) ptx::trap();

  if (warp < kCorrectionWarp) {
    ptx::setmaxnreg_inc<kSoftmaxRegisters>();
    softmax(c, warp / 4);
  } else if (warp < kMmaWarp) {
    ptx::setmaxnreg_dec<kCorrectionRegisters>();
    correction(c);
  } else {
    ptx::setmaxnreg_dec<kOtherRegisters>();  // all four warps, or the registers never come free
    if (warp == kMmaWarp && ptx::cluster_cta_rank() == 0 && ptx::elect_one()) Mma{c}.run();
    if (warp == kEpilogueWarp && ptx::elect_one()) epilogue(c);
    if (warp == kLoadWarp && ptx::elect_one()) load(c);
  }
  ptx::warp_sync();                         // the elected lanes rejoin: the barrier is for whole warps
  ptx::tcgen05_fence_before_thread_sync();  // every use, before the deallocation
  // Neither CTA leaves while the other may signal to it, and the MMAs that use both are complete: each load
  // thread has waited for their last commits.
  ptx::cluster_sync();
  if (warp == kMmaWarp) {
    ptx::tcgen05_fence_after_thread_sync();
    ptx::tcgen05_dealloc<2>(0, kTmemColumns);
  }
}

}  // namespace mxfa::attention_fwd_sm100_pair

MXFA_PUBLISH_TABLES(attention_fwd_sm100_pair,
                    mxfa::attention_fwd_sm100::published_tables(sizeof(mxfa::AttentionForwardParams)));

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(mxfa::attention_fwd_sm100::kThreads, 1)
    attention_fwd_sm100_pair(const __grid_constant__ mxfa::AttentionForwardParams p) {
  mxfa::attention_fwd_sm100_pair::run(p);
}
