// Attention forward on Blackwell (sm_100a): O = softmax(scale * Q K^T) V over jagged sequences.
// Q [tokens, heads_q, D], K and V [tokens, heads_kv, D] in BF16 or MXFP8; O BF16; LSE FP32 [heads_q, rows_o],
// natural logarithm.  MXFP8: E4M3 with a UE8M0 scale per 32 elements, of Q and K along D, of V along the
// tokens of a sequence.
//
// A CTA owns 256 query rows of a head, or of the packed heads of a group, as two stages of 128, and walks
// such tiles: those of the plan's list that are its own, then, with cluster launch control, those it is
// granted.  Two softmax warpgroups (one a stage), a correction warpgroup that keeps O scaled and writes it
// out, and a warp each for the MMAs, the loads and the store of O.  S and O live in tensor memory, P
// overwrites S.  While the tensor core computes for one stage the softmax of the other runs.  Blocks of 128
// keys go from the last to the first, each stage its own range of them; the loop of the MMAs runs on across
// tiles, so that the last P V of one tile stands beside the first Q K^T of the next.  Tables:
// attention_fwd_sm100_tables.cuh.  Why each overlay and handshake is safe: docs/attention_fwd_sm100.md.
#include "ptx/barrier.cuh"
#include "ptx/bulk.cuh"
#include "ptx/convert.cuh"
#include "ptx/descriptor.cuh"
#include "ptx/elect.cuh"
#include "ptx/fence.cuh"
#include "ptx/launch.cuh"
#include "ptx/ld_st.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/sreg.cuh"
#include "ptx/tcgen05_alloc.cuh"
#include "ptx/tcgen05_cp.cuh"
#include "ptx/tcgen05_ld_st.cuh"
#include "ptx/tcgen05_mma.cuh"
#include "ptx/tma.cuh"
#include "src/attention/attention_fwd_sm100_context.cuh"
#include "src/attention/attention_fwd_sm100_output.cuh"
#include "src/attention/attention_fwd_sm100_softmax.cuh"
#include "src/attention/attention_fwd_sm100_tables.cuh"
#include "src/attention/attention_fwd_sm100_tiles.cuh"
#include "src/common/math.cuh"
#include "src/common/pipeline.cuh"

namespace mxfa::attention_fwd_sm100 {

// ---- load: one thread ----
//
// Tiles arrive through ragged tensor maps: rows beyond the end of the sequence are zeros, never a neighbour's
// NaN.  The 512-byte atom of scales rides on the same barrier.
MXFA_DEVICE void load_tile(uint32_t destination, const TensorMap& map, uint32_t full, int32_t head,
                           RaggedRow at) {
#pragma unroll
  for (uint32_t panel = 0; panel < kPanels; ++panel)
    ptx::tma_load_5d(destination + panel * kPanelBytes, &map, full, panel * (kPanelRowBytes / kElementBytes),
                     head, at.row, at.shift, at.end);
}

MXFA_DEVICE void load(const Context& c) {
  const AttentionForwardParams& p = c.p;
  auto kv = PipelineState<kKvStages>::producer();
  auto q_empty = StagePhases::producer();
  for (Tiles<Walker::kThread> tile(c); tile.valid(); tile.next()) {
    if constexpr (kLaunchControl)
      if (tile.following == 0) ptx::mbarrier_arrive(c.barrier<Barrier::kLastTile>(0));
    const TileBlocks blocks(tile);
    const int32_t head_kv = tile.head_kv();
    // Scales of tile n of (head, sequence): atom head * S/128 + scale_offset/128 + n, the same for both
    // orientations.
    const uint8_t *sf_q = nullptr, *sf_k = nullptr, *sf_v = nullptr;
    if constexpr (kMxfp8) {
      const auto* starts_q = pointer<int32_t>(p.scale_offsets_q);
      const auto* starts_k = pointer<int32_t>(p.scale_offsets_k);
      int32_t tiles_q = p.scale_tiles_q, tiles_k = p.scale_tiles_k;
      if (p.device_batch != 0) {  // only attention_lengths knew
        tiles_q = ptx::ld_global_s32(starts_q + (p.broadcast_q != 0 ? 1 : p.device_batch)) / 128;
        tiles_k = ptx::ld_global_s32(starts_k + p.device_batch) / 128;
      }
      const int64_t atom_q =
          int64_t(tile.head) * tiles_q + ptx::ld_global_s32(starts_q + tile.batch_q()) / 128;
      const int64_t atom_k = int64_t(head_kv) * tiles_k + ptx::ld_global_s32(starts_k + tile.batch) / 128;
      sf_q = pointer<uint8_t>(p.scales_q) + atom_q * kScaleAtomBytes;
      sf_k = pointer<uint8_t>(p.scales_k) + atom_k * kScaleAtomBytes;
      sf_v = pointer<uint8_t>(p.scales_v) + atom_k * kScaleAtomBytes;
    }
    auto load_kv = [&](const TensorMap& map, const uint8_t* scales, int32_t block) {
      const uint32_t full = c.barrier<Barrier::kKvFull>(kv.stage);
      ptx::mbarrier_wait(c.barrier<Barrier::kKvEmpty>(kv.stage), kv.phase);
      ptx::mbarrier_arrive_expect_tx(full, kLoadBytes);
      load_tile(c.address<Smem::kKv>(kv.stage), map, full, head_kv,
                ragged_row(tile.k, block * int32_t(kTile)));
      if constexpr (kMxfp8)
        ptx::bulk_load(c.address<Smem::kSfKv>(kv.stage), scales + block * kScaleAtomBytes, kScaleAtomBytes,
                       full);
      kv.advance();
    };
    auto load_q = [&](uint32_t stage) {
      const uint32_t full = c.barrier<Barrier::kQFull>(stage);
      const int32_t row = tile.stage_row(stage);
      ptx::mbarrier_wait(c.barrier<Barrier::kQEmpty>(stage), q_empty[stage]);
      q_empty.advance(stage);
      ptx::mbarrier_arrive_expect_tx(full, kLoadBytes);
      load_tile(c.address<Smem::kQ>(stage), p.q, full, tile.head_q(0), ragged_row(tile.q, row));
      if constexpr (kMxfp8)
        ptx::bulk_load(c.address<Smem::kSfQ>(stage), sf_q + row / int32_t(kTile) * kScaleAtomBytes,
                       kScaleAtomBytes, full);
    };
    // In the order of the MMAs: a stage's Q before the first K it meets.
    for (int32_t block = blocks.end() - 1; block >= blocks.first(); --block) {
      load_kv(p.k, sf_k, block);
#pragma unroll
      for (uint32_t stage = 0; stage < kStages; ++stage)
        if (block == blocks.stage[stage].end - 1) load_q(stage);
      load_kv(p.v, sf_v, block);
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

// ---- mma: one thread ----
//
// MMAs and scale copies of one thread execute in issue order.  PTX promises that for cp -> mma and for MMAs
// on the same accumulator; that an MMA also finishes reading before a later one overwrites its operands is
// how the tensor pipe works (docs, "In-order tensor pipe").
inline constexpr ptx::Swizzle kSwizzle = kPanelRowBytes == 128 ? ptx::Swizzle::k128B : ptx::Swizzle::k64B;

struct Mma {
  const Context& c;
  PipelineState<kKvStages> kv = PipelineState<kKvStages>::consumer();
  StagePhases q_full = StagePhases::consumer();
  StagePhases p_full = StagePhases::consumer();  // also p_last
  StagePhases s_read = StagePhases::consumer();
  uint32_t s_unread = 0;                // bit a stage: the latest S has not been waited for to be read
  uint32_t parity_k = 0, parity_v = 0;  // which copy of the dedicated scale columns
  bool first_block = true;              // of the kernel
  uint32_t pending = 0;                 // the parts of the block whose P V comes next
  uint32_t pending_steps = 0;
  // Descriptors of the start of shared memory; each operand lies a constant and a stage further.
  uint64_t k_major = ptx::smem_descriptor_k_major(c.shared, kSwizzle);
  uint64_t mn_major = ptx::smem_descriptor_mn_major(c.shared, kPanelBytes, kSwizzle);
  uint64_t scale_atom = ptx::smem_descriptor_scale_atom(c.shared);

  MXFA_DEVICE void copy_scales(uint32_t column, uint32_t offset) const {
    ptx::tcgen05_cp_32x128b_warpx4(column, ptx::descriptor_advance(scale_atom, offset));
  }

  // S(stage), if there is one that nobody has waited for, is in the registers of its softmax.
  MXFA_DEVICE void await_read(uint32_t stage) {
    if (!(s_unread >> stage & 1)) return;
    ptx::mbarrier_wait(c.barrier<Barrier::kSRead>(stage), s_read[stage]);
    s_read.advance(stage);
    s_unread ^= 1u << stage;
  }

  // S(stage) = Q(stage) K^T, K in ring slot `slot`.  `leads`: the first of this block's stages.
  MXFA_DEVICE void scores(uint32_t stage, uint32_t slot, bool leads) {
    const uint32_t d = c.column<Tmem::kS0, Tmem::kS1>(stage);
    const uint64_t a = ptx::descriptor_advance(k_major, c.offset<Smem::kQ>(stage));
    const uint64_t b = ptx::descriptor_advance(k_major, c.offset<Smem::kKv>(slot));
    uint32_t sfa = 0, sfb = 0;
    if constexpr (kOverlay) {
      // Over the other stage's S, once its softmax has taken the scores out.  Before the first block nothing
      // lives in O, so there stage 1 need not wait for the softmax of stage 0.
      if (stage == 1 && first_block) {
        sfa = c.column<Tmem::kSfStart, Tmem::kSfStart>(0);
      } else {
        sfa = c.column<Tmem::kSfQk0, Tmem::kSfQk1>(stage);
        await_read(1 - stage);
        ptx::tcgen05_fence_after_thread_sync();  // the softmax's loads, before our copies
      }
      // While the other stage sits out nobody has waited for the S before this one.  It has been read (p_full
      // says so), but a parity tells the phase that is awaited from the one before, not from older ones.
      // Without a mask stage 0 sits out where stage 1 does only.
      if (stage == 0 || kRightMask || kLeftMask) await_read(stage);
      s_unread |= 1u << stage;
      sfb = sfa + kSfColumns;
      copy_scales(sfa, c.offset<Smem::kSfQ>(stage));
      copy_scales(sfb, c.offset<Smem::kSfKv>(slot));
    } else if constexpr (kMxfp8) {
      // Two copies of the K scales in turn: when one comes round again both S of two blocks ago are known to
      // be complete.
      sfa = c.column<Tmem::kSfQ0, Tmem::kSfQ1>(stage);
      sfb = c.column<Tmem::kSfK, Tmem::kSfK>(0) + parity_k * kSfColumns;
      if (leads) copy_scales(sfb, c.offset<Smem::kSfKv>(slot));
    }
#pragma unroll
    for (uint32_t step = 0; step < kQkSteps; ++step) {
      const uint32_t offset = step / kStepsOfPanel * kPanelBytes + step % kStepsOfPanel * kStepBytes;
      const uint64_t a_step = ptx::descriptor_advance(a, offset), b_step = ptx::descriptor_advance(b, offset);
      if constexpr (kMxfp8) {
        const uint32_t idesc =
            ptx::instruction_descriptor_mxf8(kTile, kTile, ptx::Major::kK, ptx::Major::kK, step, step);
        ptx::tcgen05_mma_mxf8f6f4_ss(d, a_step, b_step, idesc, sfa, sfb, step != 0);
      } else {
        constexpr uint32_t kDescriptor =
            ptx::instruction_descriptor_bf16(kTile, kTile, ptx::Major::kK, ptx::Major::kK);
        ptx::tcgen05_mma_f16_ss(d, a_step, b_step, kDescriptor, step != 0);
      }
    }
    ptx::tcgen05_commit(c.barrier<Barrier::kSFull>(stage));
  }

  // O(stage) += P(stage) V, V in ring slot `slot`; the first pending_steps K steps, those with tokens.
  MXFA_DEVICE void weighted_sum(uint32_t stage, uint32_t slot, bool accumulate, bool leads) {
    const uint32_t d = c.column<Tmem::kO0, Tmem::kO1>(stage);
    const uint32_t a = c.column<Tmem::kP0, Tmem::kP1>(stage);
    const uint64_t b = ptx::descriptor_advance(mn_major, c.offset<Smem::kKv>(slot));
    const uint32_t sf_p = c.offset<Smem::kSfP>(kDynamicP ? stage : 0);
    ptx::mbarrier_wait(c.barrier<Barrier::kPFull>(stage), p_full[stage]);
    ptx::tcgen05_fence_after_thread_sync();  // P stored by softmax, O rescaled by the correction
    uint32_t sfa = 0, sfb = 0;
    if constexpr (kOverlay) {
      sfa = c.column<Tmem::kSfPv0, Tmem::kSfPv1>(stage);
      sfb = sfa + kSfColumns;
      copy_scales(sfa, sf_p);  // S overwrites it, so again for every block
      copy_scales(sfb, c.offset<Smem::kSfKv>(slot));
    } else if constexpr (kMxfp8) {
      sfa = kDynamicP ? c.column<Tmem::kSfP0, Tmem::kSfP1>(stage) : c.column<Tmem::kSfP0, Tmem::kSfP0>(0);
      sfb = c.column<Tmem::kSfV, Tmem::kSfV>(0) + parity_v * kSfColumns;
      if constexpr (kDynamicP) copy_scales(sfa, sf_p);
      if (leads) copy_scales(sfb, c.offset<Smem::kSfKv>(slot));
    }
#pragma unroll
    for (uint32_t step = 0; step < kPvSteps; ++step) {
      if (step == kFirstPvSteps) {
        ptx::mbarrier_wait(c.barrier<Barrier::kPLast>(stage), p_full[stage]);
        ptx::tcgen05_fence_after_thread_sync();  // the last quarter of P
      }
      if (step >= pending_steps) continue;  // scale bytes of tokens past the end are never read
      const uint64_t b_step = ptx::descriptor_advance(b, step * kStepTokens * kPanelRowBytes);
      if constexpr (kMxfp8) {
        const uint32_t idesc =
            ptx::instruction_descriptor_mxf8(kTile, kD, ptx::Major::kK, ptx::Major::kMN, step, step);
        ptx::tcgen05_mma_mxf8f6f4_ts(d, a + 8 * step, b_step, idesc, sfa, sfb, accumulate || step != 0);
      } else {
        constexpr uint32_t kDescriptor =
            ptx::instruction_descriptor_bf16(kTile, kD, ptx::Major::kK, ptx::Major::kMN);
        ptx::tcgen05_mma_f16_ts(d, a + 8 * step, b_step, kDescriptor, accumulate || step != 0);
      }
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
        weighted_sum(stage, v.stage, !(pending & kFirst << stage), stage == 0 || !(pending & kActive));
        if (pending & kLast << stage) ptx::tcgen05_commit(c.barrier<Barrier::kOFull>(stage));
      }
      if (stage == 0 && current != 0) wait_kv(kv);
      if (stage + 1 == kStages && pending != 0) ptx::tcgen05_commit(c.barrier<Barrier::kKvEmpty>(v.stage));
      if (current & kActive << stage) {
        if (current & kFirst << stage) {
          ptx::mbarrier_wait(c.barrier<Barrier::kQFull>(stage), q_full[stage]);
          q_full.advance(stage);
          if constexpr (kMxfp8 && !kOverlay)
            copy_scales(c.column<Tmem::kSfQ0, Tmem::kSfQ1>(stage), c.offset<Smem::kSfQ>(stage));
        }
        scores(stage, kv.stage, stage == 0 || !(current & kActive));
        // Q is free for the next tile while the last P V runs.
        if (current & kLast << stage) ptx::tcgen05_commit(c.barrier<Barrier::kQEmpty>(stage));
      }
    }
    if (current != 0) {
      ptx::tcgen05_commit(c.barrier<Barrier::kKvEmpty>(kv.stage));
      kv.advance();
    }
    parity_v ^= pending != 0;
    parity_k ^= 1;
    first_block = false;
    pending = current;
    pending_steps = current_steps;
  }

  MXFA_DEVICE void run() {
    for (Tiles<Walker::kThread> tile(c); tile.valid(); tile.next()) {
      const TileBlocks blocks(tile);
      // The P V in hand may not wait for a grant beyond the next one: other roles give a slot back only when
      // they have finished its tile, and a tile without blocks takes no P V along.
      if (kLaunchControl && pending != 0 && blocks.first() >= blocks.end()) step(0, 0);
      for (int32_t block = blocks.end() - 1; block >= blocks.first(); --block) {
        const uint32_t current = blocks.parts(block);
        const int32_t tokens = min_of(tile.k.length - block * int32_t(kTile), int32_t(kTile));
        // Here and not ahead of the tiles: without a block nothing would wait for the copy before the columns
        // are deallocated.
        if constexpr (kConstantP && !kOverlay)
          if (first_block) copy_scales(c.column<Tmem::kSfP0, Tmem::kSfP0>(0), c.offset<Smem::kSfP>());
        step(current, ceil_div(uint32_t(tokens), kStepTokens));
      }
    }
    if (pending != 0) step(0, 0);
  }
};

// ---- the CTA ----
MXFA_DEVICE void run(const AttentionForwardParams& p) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  const uint32_t warp = ptx::warp_id();
  const Context c{p, warp, smem_address(dynamic_shared)};
  if (warp == kSchedulerWarp && ptx::elect_one()) {
    constexpr ArrivalCounts kArrivals = arrival_counts();
#pragma unroll
    for (uint32_t i = 0; i < kArrivals.barriers; ++i)
      ptx::mbarrier_init(c.barrier<Barrier::kQFull>(i), kArrivals.count[i]);
    ptx::fence_mbarrier_init();  // visible to the copy engines as well
  }
  if (warp == kLoadWarp && ptx::elect_one()) {
    ptx::prefetch_tensor_map(&p.q);
    ptx::prefetch_tensor_map(&p.k);
    ptx::prefetch_tensor_map(&p.v);
    ptx::prefetch_tensor_map(&p.o);
  }
  if (kConstantP && warp == kEpilogueWarp) {
    constexpr uint32_t kScaleP = 0x77777777;  // 2^(0x77 - 127) = 2^-8, cancels kPBias
    static_assert(kPBias == 127 - 0x77 || !kConstantP, "the scale of P takes the softmax's bias out");
    ptx::st_shared_v4(c.address<Smem::kSfP>() + 16 * ptx::lane_id(), {kScaleP, kScaleP, kScaleP, kScaleP});
    ptx::fence_proxy_async_shared_cta();  // generic writes, read by tcgen05.cp
  }
  if (warp == kMmaWarp) {
    ptx::tcgen05_alloc(c.address<Smem::kTmemBase>(), kTmemColumns);
    ptx::tcgen05_relinquish_alloc_permit();
    ptx::tcgen05_fence_before_thread_sync();  // the allocation, before anybody's use
  }
  ptx::cta_sync();
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
    if (warp == kMmaWarp && ptx::elect_one()) Mma{c}.run();
    if (warp == kEpilogueWarp && ptx::elect_one()) epilogue(c);
    if (warp == kLoadWarp && ptx::elect_one()) load(c);
    if (kLaunchControl && warp == kSchedulerWarp && ptx::elect_one()) schedule(c);
  }
  ptx::warp_sync();                         // the elected lanes rejoin: bar.sync is for whole warps
  ptx::tcgen05_fence_before_thread_sync();  // every use, before the deallocation
  ptx::cta_sync();
  if (warp == kMmaWarp) {
    ptx::tcgen05_fence_after_thread_sync();
    ptx::tcgen05_dealloc(0, kTmemColumns);
  }
}

}  // namespace mxfa::attention_fwd_sm100

MXFA_PUBLISH_TABLES(attention_fwd_sm100,
                    mxfa::attention_fwd_sm100::published_tables(sizeof(mxfa::AttentionForwardParams)));

// One CTA an SM (shared memory and tensor memory see to that anyway): without the 1, ptxas drops setmaxnreg.
extern "C" __global__ void __launch_bounds__(mxfa::attention_fwd_sm100::kThreads, 1)
    attention_fwd_sm100(const __grid_constant__ mxfa::AttentionForwardParams p) {
  mxfa::attention_fwd_sm100::run(p);
}
