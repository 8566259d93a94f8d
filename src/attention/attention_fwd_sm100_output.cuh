// The roles of attention_fwd_sm100 and attention_fwd_sm100_pair behind the MMAs: the correction, which keeps
// O scaled and brings it to shared memory, and the epilogue, which stores it.
#pragma once
#include "ptx/bulk.cuh"
#include "ptx/convert.cuh"
#include "ptx/fence.cuh"
#include "ptx/ld_st.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/tcgen05_ld_st.cuh"
#include "ptx/tma.cuh"
#include "src/attention/attention_fwd_sm100_context.cuh"
#include "src/attention/attention_fwd_sm100_tiles.cuh"
#include "src/common/jagged.cuh"
#include "src/common/math.cuh"

namespace mxfa::attention_fwd_sm100 {

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

// O(stage) * scale as BF16 into the staging buffer, in the swizzle of its tensor map: 16-byte chunk j of row
// r lies at j ^ (r % 8) where rows have 128 bytes, at j ^ (r / 2 % 4) where they have 64.  A row without a
// key (scale 0) becomes +0, whatever stands in O.
MXFA_DEVICE void stage_output(const Context& c, uint32_t stage, float scale, bool empty) {
  const uint32_t column = c.quadrant_lanes() + c.column<Tmem::kO0, Tmem::kO1>(stage);
  const uint32_t row = c.row(), buffer = c.address<Smem::kO>(stage) + row * kOPanelRowBytes;
  constexpr uint32_t kChunks = kOPanelRowBytes / 16;
  const uint32_t swizzle = kChunks == 8 ? row % 8 : row / 2 % 4;
  // Only a mask leaves rows without a key in a stage that has some.
  const bool zero = (kRightMask || kLeftMask) && scale == 0.0f;
#pragma unroll
  for (uint32_t d = 0; d < kD; d += kOChunk) {
    float o[kOChunk] = {};
    if (!empty) ptx::tcgen05_ld_32x32b(column + d, o), ptx::tcgen05_wait_ld();
#pragma unroll
    for (uint32_t i = 0; i < kOChunk; i += 8) {
      uint32_t w[4];
#pragma unroll
      for (uint32_t j = 0; j < 4; ++j) {
        w[j] = ptx::cvt_rn_bf16x2_f32(o[i + 2 * j + 1] * scale, o[i + 2 * j] * scale);
        if (zero) w[j] = 0;
      }
      const uint32_t chunk = (d + i) / 8;
      ptx::st_shared_v4(buffer + chunk / kChunks * kOPanelBytes + ((chunk % kChunks ^ swizzle) << 4),
                        {w[0], w[1], w[2], w[3]});
    }
  }
}

MXFA_DEVICE void correction(const Context& c) {
  auto alpha_full = StagePhases::consumer();
  auto done = StagePhases::consumer();  // sum_full and o_full
  auto out_empty = StagePhases::producer();
  // The first P V of a tile overwrites O, and may: here for the first tile of a stage, below for each one
  // after. The last arrival of the kernel finds nobody waiting.
  for (uint32_t stage = 0; stage < kStages; ++stage) warp_arrive_at_mma<Barrier::kPFull>(c, stage);
  for (Tiles<Walker::kWarp> tile(c); tile.valid(); tile.next()) {
    const TileBlocks blocks(tile);
    for (int32_t block = blocks.end() - 1; block >= blocks.first(); --block) {
#pragma unroll
      for (uint32_t stage = 0; stage < kStages; ++stage) {
        const BlockRange range = blocks.stage[stage];
        if (!range.contains(block) || block == range.end - 1) continue;  // the first block finds no O
        ptx::mbarrier_wait(c.barrier<Barrier::kAlphaFull>(4 * stage + c.warp_in_group()), alpha_full[stage]);
        alpha_full.advance(stage);
        const float alpha = ptx::ld_shared_f32(c.row_address<Smem::kAlpha>(stage));
        if (ptx::vote_any(alpha != 1.0f)) {
          ptx::tcgen05_fence_after_thread_sync();  // P V(n-1), complete since S(n) is
          rescale_output(c, stage, alpha);
          ptx::tcgen05_fence_before_thread_sync();  // our stores, before the MMA behind the barrier
        }
        warp_arrive_at_mma<Barrier::kPFull>(c, stage);
      }
    }
#pragma unroll
    for (uint32_t stage = 0; stage < kStages; ++stage) {
      if (!tile.has_rows(stage)) continue;
      const bool empty = blocks.stage[stage].empty();
      float scale = 0.0f;  // O = +0 for queries without keys
      if (!empty) {
        ptx::mbarrier_wait(c.barrier<Barrier::kSumFull>(stage), done[stage]);
        const float sum = ptx::ld_shared_f32(c.row_address<Smem::kRowSum>(stage));
        warp_arrive(c.barrier<Barrier::kSumEmpty>(stage));
        // The sum is of 2^kPBias p, and so is P; the constant scale 2^-kPBias of P V has already taken it out
        // of O.
        scale = sum == 0.0f ? 0.0f : ptx::rcp_approx_ftz(sum) * (kConstantP ? 256.0f : 1.0f);
        ptx::mbarrier_wait(c.barrier<Barrier::kOFull>(stage), done[stage]);
        ptx::tcgen05_fence_after_thread_sync();  // the last P V
        done.advance(stage);
      }
      ptx::mbarrier_wait(c.barrier<Barrier::kOutEmpty>(stage), out_empty[stage]);
      out_empty.advance(stage);
      stage_output(c, stage, scale, empty);
      ptx::fence_proxy_async_shared_cta();  // generic writes, read by the TMA store
      warp_arrive(c.barrier<Barrier::kOutFull>(stage));
      if (!empty) {
        ptx::tcgen05_fence_before_thread_sync();  // our loads of O, before the MMA behind the barrier
        warp_arrive_at_mma<Barrier::kPFull>(c, stage);
      }
    }
  }
}

// ---- epilogue: one thread ----
MXFA_DEVICE void store_output(const Context& c, const Tile& tile, uint32_t stage) {
  for (uint32_t row = 0; row < kTile; row += kOBoxRows) {
    // Rows past the end are dropped.
    const RaggedRow at = ragged_row({tile.first_o(), tile.q.length}, tile.query(stage, row));
#pragma unroll
    for (uint32_t panel = 0; panel < kOPanels; ++panel)
      ptx::tma_store_5d(&c.p.o, c.address<Smem::kO>(stage) + panel * kOPanelBytes + row * kOPanelRowBytes,
                        panel * (kOPanelRowBytes / 2), tile.head_q(0), at.row, at.shift, at.end);
  }
  ptx::bulk_commit_group();
}

MXFA_DEVICE void epilogue(const Context& c) {
  auto out_full = StagePhases::consumer();
  for (Tiles<Walker::kThread> tile(c); tile.valid(); tile.next()) {
    for (uint32_t stage = 0; stage < kStages; ++stage) {
      if (!tile.has_rows(stage)) continue;
      ptx::mbarrier_wait(c.barrier<Barrier::kOutFull>(stage), out_full[stage]);
      out_full.advance(stage);
      store_output(c, tile, stage);
    }
    if (tile.has_rows(1)) {
      ptx::bulk_wait_group_read<1>();
      ptx::mbarrier_arrive(c.barrier<Barrier::kOutEmpty>(0));
      ptx::bulk_wait_group_read<0>();
      ptx::mbarrier_arrive(c.barrier<Barrier::kOutEmpty>(1));
    } else {
      ptx::bulk_wait_group_read<0>();
      ptx::mbarrier_arrive(c.barrier<Barrier::kOutEmpty>(0));
    }
  }
  ptx::bulk_wait_group<0>();  // no store in flight at exit
}

}  // namespace mxfa::attention_fwd_sm100
