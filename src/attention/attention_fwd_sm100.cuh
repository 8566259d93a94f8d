// Attention forward on Blackwell (sm_100a): O = softmax(scale * Q K^T) V over jagged sequences.
// Q [tokens, heads_q, D], K and V [tokens, heads_kv, D] in BF16 or MXFP8; O BF16; LSE FP32 [heads_q, rows_o],
// natural logarithm.  MXFP8: E4M3 with a UE8M0 scale per 32 elements, of Q and K along D, of V along the
// tokens of a sequence.
//
// A CTA owns 256 query rows of a head as two stages of 128.  Two softmax warpgroups (one a stage), a
// correction warpgroup that keeps O scaled and writes it out, and a warp each for the MMAs, the loads and the
// store of O. S and O live in tensor memory, P overwrites S.  While the tensor core computes for one stage
// the softmax of the other runs.  Blocks of 128 keys go from the last, the only one that is masked, to the
// first. Tables: attention_fwd_sm100_tables.cuh.  Why each overlay and handshake is safe:
// docs/attention_fwd_sm100.md.
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
#include "src/attention/attention_fwd_sm100_softmax.cuh"
#include "src/attention/attention_fwd_sm100_tables.cuh"
#include "src/common/jagged.cuh"
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
  auto q_empty = PipelineState<1>::producer();
  const int32_t group = p.heads_q / p.heads_kv;
  for (Tile tile(p); tile.valid(); tile.next()) {
    if (tile.blocks == 0) continue;
    const int32_t head_kv = tile.head / group;
    // Scales of tile n of (head, sequence): atom head * S/128 + scale_offset/128 + n, the same for both
    // orientations.
    const uint8_t *sf_q = nullptr, *sf_k = nullptr, *sf_v = nullptr;
    if constexpr (kMxfp8) {
      const int64_t atom_q = int64_t(tile.head) * p.scale_tiles_q +
                             ptx::ld_global_s32(pointer<int32_t>(p.scale_offsets_q) + tile.batch) / 128;
      const int64_t atom_k = int64_t(head_kv) * p.scale_tiles_k +
                             ptx::ld_global_s32(pointer<int32_t>(p.scale_offsets_k) + tile.batch) / 128;
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
    load_kv(p.k, sf_k, tile.blocks - 1);
#pragma unroll
    for (uint32_t stage = 0; stage < kStages; ++stage) {
      const uint32_t full = c.barrier<Barrier::kQFull>(stage);
      const int32_t row = tile.row + int32_t(stage * kTile);
      ptx::mbarrier_wait(c.barrier<Barrier::kQEmpty>(stage), q_empty.phase);
      ptx::mbarrier_arrive_expect_tx(full, kLoadBytes);
      load_tile(c.address<Smem::kQ>(stage), p.q, full, tile.head, ragged_row(tile.q, row));
      if constexpr (kMxfp8) {
        // A stage past the end of the sequence computes on zeros and stores nothing; it borrows the last
        // atom, because the next one may lie outside the buffer.
        const int32_t atom = min_of(row / int32_t(kTile), ceil_div(tile.q.length, int32_t(kTile)) - 1);
        ptx::bulk_load(c.address<Smem::kSfQ>(stage), sf_q + atom * kScaleAtomBytes, kScaleAtomBytes, full);
      }
    }
    q_empty.advance();
    load_kv(p.v, sf_v, tile.blocks - 1);
    for (int32_t block = tile.blocks - 2; block >= 0; --block) {
      load_kv(p.k, sf_k, block);
      load_kv(p.v, sf_v, block);
    }
  }
  // Every slot is free again when the last commits have arrived: nothing is in flight when the CTA exits.
  for (uint32_t slot = 0; slot < kKvStages; ++slot) {
    ptx::mbarrier_wait(c.barrier<Barrier::kKvEmpty>(kv.stage), kv.phase);
    kv.advance();
  }
  for (uint32_t stage = 0; stage < kStages; ++stage)
    ptx::mbarrier_wait(c.barrier<Barrier::kQEmpty>(stage), q_empty.phase);
}

// ---- mma: one thread ----
//
// MMAs and scale copies of one thread execute in issue order.  PTX promises that for cp -> mma and for MMAs
// on the same accumulator; that an MMA also finishes reading before a later one overwrites its operands is
// how the tensor pipe works (docs, "In-order tensor pipe").
inline constexpr ptx::Swizzle kSwizzle = kPanelRowBytes == 128 ? ptx::Swizzle::k128B : ptx::Swizzle::k64B;
inline constexpr uint32_t kStepBytes = 32;  // K of an instruction: 16 BF16 or 32 E4M3
inline constexpr uint32_t kStepTokens = kStepBytes / kElementBytes;
inline constexpr uint32_t kQkSteps = kD / kStepTokens, kPvSteps = kTile / kStepTokens;
inline constexpr uint32_t kFirstPvSteps = kMxfp8 ? kPvSteps : kPvSteps * 3 / 4;  // their P comes with p_full

struct Mma {
  const Context& c;
  PipelineState<kKvStages> kv = PipelineState<kKvStages>::consumer();
  PipelineState<1> q_full = PipelineState<1>::consumer();
  PipelineState<1> p_full = PipelineState<1>::consumer();  // also p_last
  PipelineState<1> s_read = PipelineState<1>::consumer();
  uint32_t parity_k = 0, parity_v = 0;  // which copy of the dedicated scale columns
  bool first_block = true;              // of the kernel
  // Descriptors of the start of shared memory; each operand lies a constant and a stage further.
  uint64_t k_major = ptx::smem_descriptor_k_major(c.shared, kSwizzle);
  uint64_t mn_major = ptx::smem_descriptor_mn_major(c.shared, kPanelBytes, kSwizzle);
  uint64_t scale_atom = ptx::smem_descriptor_scale_atom(c.shared);

  MXFA_DEVICE void copy_scales(uint32_t column, uint32_t offset) const {
    ptx::tcgen05_cp_32x128b_warpx4(column, ptx::descriptor_advance(scale_atom, offset));
  }

  // S(stage) = Q(stage) K^T, K in ring slot `slot`.
  MXFA_DEVICE void scores(uint32_t stage, uint32_t slot) {
    const uint32_t d = c.column<Tmem::kS0, Tmem::kS1>(stage);
    const uint64_t a = ptx::descriptor_advance(k_major, c.offset<Smem::kQ>(stage));
    const uint64_t b = ptx::descriptor_advance(k_major, c.offset<Smem::kKv>(slot));
    uint32_t sfa = 0, sfb = 0;
    if constexpr (kOverlay) {
      // Over the other stage's S, once its softmax has taken the scores out.  Before the first block nothing
      // lives in O, so there stage 1 need not wait for the softmax of stage 0.
      sfa = first_block ? c.column<Tmem::kSfStart0, Tmem::kSfStart1>(stage)
                        : c.column<Tmem::kSfQk0, Tmem::kSfQk1>(stage);
      sfb = sfa + kSfColumns;
      if (!first_block) {
        ptx::mbarrier_wait(c.barrier<Barrier::kSRead>(1 - stage), s_read.phase);
        ptx::tcgen05_fence_after_thread_sync();  // the softmax's loads, before our copies
      }
      copy_scales(sfa, c.offset<Smem::kSfQ>(stage));
      copy_scales(sfb, c.offset<Smem::kSfKv>(slot));
    } else if constexpr (kMxfp8) {
      // Two copies of the K scales in turn: when one comes round again both S of two blocks ago are known to
      // be complete.
      sfa = c.column<Tmem::kSfQ0, Tmem::kSfQ1>(stage);
      sfb = c.column<Tmem::kSfK, Tmem::kSfK>(0) + parity_k * kSfColumns;
      if (stage == 0) copy_scales(sfb, c.offset<Smem::kSfKv>(slot));
    }
#pragma unroll
    for (uint32_t step = 0; step < kQkSteps; ++step) {
      constexpr uint32_t kStepsOfPanel = kPanelRowBytes / kStepBytes;
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
    if (stage + 1 == kStages) {
      if (!first_block) s_read.advance();
      first_block = false;
      parity_k ^= 1;
    }
  }

  // O(stage) += P(stage) V, V in ring slot `slot`; the first `steps` K steps, those with tokens.
  MXFA_DEVICE void weighted_sum(uint32_t stage, uint32_t slot, uint32_t steps, bool accumulate) {
    const uint32_t d = c.column<Tmem::kO0, Tmem::kO1>(stage);
    const uint32_t a = c.column<Tmem::kP0, Tmem::kP1>(stage);
    const uint64_t b = ptx::descriptor_advance(mn_major, c.offset<Smem::kKv>(slot));
    ptx::mbarrier_wait(c.barrier<Barrier::kPFull>(stage), p_full.phase);
    ptx::tcgen05_fence_after_thread_sync();  // P stored by softmax, O rescaled by the correction
    uint32_t sfa = 0, sfb = 0;
    if constexpr (kOverlay) {
      sfa = c.column<Tmem::kSfPv0, Tmem::kSfPv1>(stage);
      sfb = sfa + kSfColumns;
      copy_scales(sfa, c.offset<Smem::kSfP>());  // S overwrites it, so again for every block
      copy_scales(sfb, c.offset<Smem::kSfKv>(slot));
    } else if constexpr (kMxfp8) {
      sfa = c.column<Tmem::kSfP, Tmem::kSfP>(0);
      sfb = c.column<Tmem::kSfV, Tmem::kSfV>(0) + parity_v * kSfColumns;
      if (stage == 0) copy_scales(sfb, c.offset<Smem::kSfKv>(slot));
    }
#pragma unroll
    for (uint32_t step = 0; step < kPvSteps; ++step) {
      if (!kMxfp8 && step == kFirstPvSteps) {
        ptx::mbarrier_wait(c.barrier<Barrier::kPLast>(stage), p_full.phase);
        ptx::tcgen05_fence_after_thread_sync();  // the last quarter of P
      }
      if (step >= steps) continue;  // scale bytes of tokens past the end are never read
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
    if (stage + 1 == kStages) {
      p_full.advance();
      parity_v ^= 1;
    }
  }

  MXFA_DEVICE void wait_kv(uint32_t slot, uint32_t phase) const {
    ptx::mbarrier_wait(c.barrier<Barrier::kKvFull>(slot), phase);
  }

  MXFA_DEVICE void run() {
    if constexpr (kMxfp8 && !kOverlay)
      copy_scales(c.column<Tmem::kSfP, Tmem::kSfP>(0), c.offset<Smem::kSfP>());
    for (Tile tile(c.p); tile.valid(); tile.next()) {
      if (tile.blocks == 0) continue;
      wait_kv(kv.stage, kv.phase);
#pragma unroll
      for (uint32_t stage = 0; stage < kStages; ++stage) {
        ptx::mbarrier_wait(c.barrier<Barrier::kQFull>(stage), q_full.phase);
        if constexpr (kMxfp8 && !kOverlay)
          copy_scales(c.column<Tmem::kSfQ0, Tmem::kSfQ1>(stage), c.offset<Smem::kSfQ>(stage));
        scores(stage, kv.stage);
      }
      q_full.advance();
      ptx::tcgen05_commit(c.barrier<Barrier::kKvEmpty>(kv.stage));
      kv.advance();

      uint32_t steps = ceil_div(uint32_t(tile.tail), kStepTokens);  // of the block whose P V comes next
      for (int32_t block = 1; block < tile.blocks; ++block) {
        const PipelineState<kKvStages> v = kv;
        kv.advance();
        wait_kv(v.stage, v.phase);
        weighted_sum(0, v.stage, steps, block > 1);
        wait_kv(kv.stage, kv.phase);
        scores(0, kv.stage);
        weighted_sum(1, v.stage, steps, block > 1);
        ptx::tcgen05_commit(c.barrier<Barrier::kKvEmpty>(v.stage));
        scores(1, kv.stage);
        ptx::tcgen05_commit(c.barrier<Barrier::kKvEmpty>(kv.stage));
        kv.advance();
        steps = kPvSteps;
      }
      // Q is free for the next tile while the last P V runs.
      for (uint32_t stage = 0; stage < kStages; ++stage)
        ptx::tcgen05_commit(c.barrier<Barrier::kQEmpty>(stage));
      wait_kv(kv.stage, kv.phase);
#pragma unroll
      for (uint32_t stage = 0; stage < kStages; ++stage) {
        weighted_sum(stage, kv.stage, steps, tile.blocks > 1);
        ptx::tcgen05_commit(c.barrier<Barrier::kOFull>(stage));
      }
      ptx::tcgen05_commit(c.barrier<Barrier::kKvEmpty>(kv.stage));
      kv.advance();
    }
  }
};

// ---- correction: 128 threads, thread = row of both stages ----
inline constexpr uint32_t kOChunk = 16;  // columns of O in registers at a time

MXFA_DEVICE void rescale_output(const Context& c, uint32_t stage, float alpha) {
  const uint32_t column = c.quadrant_lanes() + c.column<Tmem::kO0, Tmem::kO1>(stage);
  const uint64_t alpha2 = ptx::pack_f32x2(alpha, alpha);
#pragma unroll
  for (uint32_t d = 0; d < kD; d += kOChunk) {
    float o[kOChunk];
    ptx::tcgen05_ld_32x32b(column + d, o);
    ptx::tcgen05_wait_ld();
#pragma unroll
    for (uint32_t i = 0; i < kOChunk; i += 2)
      ptx::unpack_f32x2(ptx::mul_rn_ftz_f32x2(ptx::pack_f32x2(o[i], o[i + 1]), alpha2), o[i], o[i + 1]);
    ptx::tcgen05_st_32x32b(column + d, o);
  }
  ptx::tcgen05_wait_st();
}

// O(stage) * scale as BF16 into the staging buffer, in the 128-byte swizzle of its tensor map: 16-byte chunk
// j of row r lies at j ^ (r % 8).
MXFA_DEVICE void stage_output(const Context& c, uint32_t stage, float scale, bool empty) {
  const uint32_t column = c.quadrant_lanes() + c.column<Tmem::kO0, Tmem::kO1>(stage);
  const uint32_t row = c.row(), buffer = c.address<Smem::kO>(stage) + row * 128;
#pragma unroll
  for (uint32_t d = 0; d < kD; d += kOChunk) {
    float o[kOChunk] = {};
    if (!empty) {
      ptx::tcgen05_ld_32x32b(column + d, o);
      ptx::tcgen05_wait_ld();
    }
#pragma unroll
    for (uint32_t i = 0; i < kOChunk; i += 8) {
      uint32_t w[4];
#pragma unroll
      for (uint32_t j = 0; j < 4; ++j)
        w[j] = ptx::cvt_rn_bf16x2_f32(o[i + 2 * j + 1] * scale, o[i + 2 * j] * scale);
      const uint32_t chunk = (d + i) / 8;
      ptx::st_shared_v4(buffer + chunk / 8 * kOPanelBytes + ((chunk % 8 ^ row % 8) << 4),
                        {w[0], w[1], w[2], w[3]});
    }
  }
}

MXFA_DEVICE void correction(const Context& c) {
  auto alpha_full = PipelineState<1>::consumer();
  auto done = PipelineState<1>::consumer();  // sum_full and o_full
  auto out_empty = PipelineState<1>::producer();
  for (Tile tile(c.p); tile.valid(); tile.next()) {
    if (tile.blocks != 0) {
      // The first P V of the tile overwrites O: this warp has taken the last tile's out.
      ptx::tcgen05_fence_before_thread_sync();  // those loads, before the MMA behind the barrier
      for (uint32_t stage = 0; stage < kStages; ++stage) warp_arrive(c.barrier<Barrier::kPFull>(stage));
    }
    for (int32_t block = 1; block < tile.blocks; ++block) {
      for (uint32_t stage = 0; stage < kStages; ++stage) {
        ptx::mbarrier_wait(c.barrier<Barrier::kAlphaFull>(4 * stage + c.warp_in_group()), alpha_full.phase);
        const float alpha = ptx::ld_shared_f32(c.row_address<Smem::kAlpha>(stage));
        if (ptx::vote_any(alpha != 1.0f)) {
          ptx::tcgen05_fence_after_thread_sync();  // P V(n-1), complete since S(n) is
          rescale_output(c, stage, alpha);
          ptx::tcgen05_fence_before_thread_sync();  // our stores, before the MMA behind the barrier
        }
        warp_arrive(c.barrier<Barrier::kPFull>(stage));
      }
      alpha_full.advance();
    }
    for (uint32_t stage = 0; stage < kStages; ++stage) {
      float scale = 0.0f;  // O = +0 for queries without keys
      if (tile.blocks != 0) {
        ptx::mbarrier_wait(c.barrier<Barrier::kSumFull>(stage), done.phase);
        const float sum = ptx::ld_shared_f32(c.row_address<Smem::kRowSum>(stage));
        warp_arrive(c.barrier<Barrier::kSumEmpty>(stage));
        // The sum is of 2^kPBias p, and so is P; the constant scale 2^-kPBias of P V has already taken it out
        // of O.
        scale = sum == 0.0f ? 0.0f : ptx::rcp_approx_ftz(sum) * (kMxfp8 ? 256.0f : 1.0f);
        ptx::mbarrier_wait(c.barrier<Barrier::kOFull>(stage), done.phase);
        ptx::tcgen05_fence_after_thread_sync();  // the last P V
      }
      ptx::mbarrier_wait(c.barrier<Barrier::kOutEmpty>(stage), out_empty.phase);
      stage_output(c, stage, scale, tile.blocks == 0);
      ptx::fence_proxy_async_shared_cta();  // generic writes, read by the TMA store
      warp_arrive(c.barrier<Barrier::kOutFull>(stage));
    }
    if (tile.blocks != 0) done.advance();
    out_empty.advance();
  }
}

// ---- epilogue: one thread ----
MXFA_DEVICE void epilogue(const Context& c) {
  auto out_full = PipelineState<1>::consumer();
  for (Tile tile(c.p); tile.valid(); tile.next()) {
    for (uint32_t stage = 0; stage < kStages; ++stage) {
      ptx::mbarrier_wait(c.barrier<Barrier::kOutFull>(stage), out_full.phase);
      for (uint32_t row = 0; row < kTile; row += kOBoxRows) {
        // Rows past the end are dropped.
        const RaggedRow at = ragged_row(tile.q, tile.row + int32_t(stage * kTile + row));
#pragma unroll
        for (uint32_t panel = 0; panel < kOPanels; ++panel)
          ptx::tma_store_5d(&c.p.o, c.address<Smem::kO>(stage) + panel * kOPanelBytes + row * 128, panel * 64,
                            tile.head, at.row, at.shift, at.end);
      }
      ptx::bulk_commit_group();
    }
    out_full.advance();
    ptx::bulk_wait_group_read<1>();
    ptx::mbarrier_arrive(c.barrier<Barrier::kOutEmpty>(0));
    ptx::bulk_wait_group_read<0>();
    ptx::mbarrier_arrive(c.barrier<Barrier::kOutEmpty>(1));
  }
  ptx::bulk_wait_group<0>();  // no store in flight at exit
}

// ---- the CTA ----
MXFA_DEVICE void run(const AttentionForwardParams& p) {
  extern __shared__ __align__(1024) uint8_t dynamic_shared[];
  const uint32_t warp = ptx::warp_id();
  const Context c{p, warp, smem_address(dynamic_shared)};
  if (warp == kIdleWarp && ptx::elect_one()) {
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
  if (kMxfp8 && warp == kEpilogueWarp) {
    constexpr uint32_t kScaleP = 0x77777777;  // 2^(0x77 - 127) = 2^-8, cancels kPBias
    static_assert(kPBias == 127 - 0x77 || !kMxfp8, "the scale of P takes the softmax's bias out");
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
