// What the three warps beside the loader of attention_bwd_sm90 do.  First they prepare query rows ahead of
// the tiles of keys, all but those that are needed first, which attention_bwd_prepare has done before the
// launch. Then they finish dQ of rows to which all tiles of keys have added; what is left when no tile of
// keys is left to be taken is attention_bwd_finish's.
//
// Rows to be prepared are taken tile by tile, in the order in which the list of tiles of keys needs them, by
// whichever warp is free, and whoever has taken a tile waits for nothing.  So the loader, which waits for all
// rows of a pair of sequence and key/value head, waits for warps that run.
//
// These warps have 24 registers.  What a loop does not need is read again behind it, addresses are worked out
// anew for each row, from numbers of 32 bits (the host has seen that they are), and special registers are
// read where they are used.  A spill here makes ptxas spill in the compute warps as well (docs/hopper.md).
#pragma once
#include "ptx/atomic.cuh"
#include "ptx/barrier.cuh"
#include "ptx/convert.cuh"
#include "ptx/fence.cuh"
#include "ptx/ld_st.cuh"
#include "ptx/matrix.cuh"
#include "src/attention/attention_bwd_params.cuh"
#include "src/attention/attention_bwd_rows.cuh"
#include "src/attention/attention_bwd_sm90_dq.cuh"
#include "src/common/math.cuh"

namespace mxfa {

struct AttentionBwdSm90Rows : AttentionBwdSm90Dq {
  using Rows = BackwardRows<kD, kTileM, kDqFp16>;
  using Statistics = Rows::Statistics;

  MXFA_DEVICE static uint32_t own_lane() { return lane_id_anew(); }
  // Of this warp among all of the grid.
  MXFA_DEVICE static int number() { return int(kRowWarps * cta_x_anew() + thread_x_anew() / 32) - 1; }
  MXFA_DEVICE static int read(const int32_t& field) { return ld_global_s32(&field); }
  MXFA_DEVICE static const BackwardRowTile* row_tile(const AttentionBackwardParams& p, int index) {
    return pointer<const BackwardRowTile>(p.row_list) + index;
  }
  MXFA_DEVICE static uint8_t* row_address(uint64_t tensor, uint32_t row, int64_t stride) {
    return pointer<uint8_t>(tensor) + 2 * (uint64_t{row} * uint32_t(stride));
  }

  // ---- ahead ------------------------------------------------------------------------------------------
  // The tile that this warp prepares.
  MXFA_DEVICE static int32_t* taken(const AttentionBackwardParams& p) { return Progress(p).taken(number()); }
  MXFA_DEVICE static const BackwardRowTile* taken_tile(const AttentionBackwardParams& p) {
    return row_tile(p, ld_global_s32(taken(p)));
  }

  // The loader: all rows of the tile's pair have been prepared.
  MXFA_DEVICE static void wait_prepared(const AttentionBackwardParams& p, const Tile& t) {
    const int all = ceil_div(t.q_length, kTileM) * (p.heads_q / p.heads_kv);
    while (ld_acquire_gpu_s32(Progress(p).prepared(t.pair())) < all) {
    }
    fence_proxy_async_global();  // statistics are read, and dQ is added, through the async proxy
  }

  MXFA_DEVICE static void prepare_tile(const AttentionBackwardParams& p) {
    // Few loads fit in the registers: in L2 they find what memory takes two microseconds to send.
    prefetch_rows(p, p.o, p.stride_o);
    prefetch_rows(p, p.d_out_rows, p.stride_d_out);
    if (!p.broadcast_q) zero(p);
    prepare_delta(p);
    warp_sync();  // a delta may be overwritten by another lane
    const BackwardRowTile* t = taken_tile(p);
    const int left = read(t->left);
    const int64_t first = read(t->head) * p.rows_o + read(t->row);
    uint8_t* statistics = Statistics::of_tile(p, read(t->statistics));
#pragma unroll 1
    for (int row = own_lane(); row < kTileM; row += 32) {
      const float lse = row < left ? bits_float(ld_global_s32(pointer<const int32_t>(p.lse) + first + row))
                                   : Statistics::kDead;
      Statistics::template write_exponent<kMxfp8>(p, statistics, row, lse);
      if (lse == Statistics::kDead) Statistics::write_delta(statistics, row, 0.0f);
    }
  }
  MXFA_DEVICE static void prefetch_rows(const AttentionBackwardParams& p, uint64_t tensor, int64_t stride) {
    constexpr int kLines = ceil_div(2 * kD, 128);
    const BackwardRowTile* t = taken_tile(p);
    const int row = read(t->row), column = 2 * read(t->head) * kD,
              lines = kLines * min_of(read(t->left), kTileM);
#pragma unroll 1
    for (int i = own_lane(); i < lines; i += 32)
      prefetch_l2(row_address(tensor, row + i / kLines, stride) + (column + 128 * (i % kLines)));
  }
  MXFA_DEVICE static void zero(const AttentionBackwardParams& p) {
    const BackwardRowTile* t = taken_tile(p);
    int bytes = min_of(ceil_div(read(t->left), kDqUnit), kTileM / kDqUnit) * Rows::kUnitBytes;
    uint8_t* at = pointer<uint8_t>(p.dq_accumulator) + int64_t(read(t->unit)) * Rows::kUnitBytes;
    at += 16 * own_lane();
#pragma unroll 1
    for (; bytes > 0; bytes -= 512, at += 512) st_global_v4(at, {0, 0, 0, 0});
  }
  MXFA_DEVICE static void prepare_delta(const AttentionBackwardParams& p) {
    const BackwardRowTile* t = taken_tile(p);
    const auto lane = [] { return own_lane() / Rows::kLanes; };  // row of kWarpRows
    const auto chunk = [] { return own_lane() % Rows::kLanes; };
    uint32_t row = read(t->row);
    const uint32_t end = row + min_of(read(t->left), kTileM), column = 2 * (read(t->head) * kD + 8 * chunk());
    uint8_t* statistics = Statistics::of_tile(p, read(t->statistics));
    row += lane();
#pragma unroll 1
    for (int of_tile = 0; row - lane() < end; row += Rows::kWarpRows, of_tile += Rows::kWarpRows) {
      const bool valid = row < end && 8 * chunk() < kD;
      const U32x4 o = ld_global_nc_v4_if(row_address(p.o, row, p.stride_o) + column, valid);
      const U32x4 d_out = ld_global_nc_v4_if(row_address(p.d_out_rows, row, p.stride_d_out) + column, valid);
      const float sum = Rows::sum_of_lanes(Rows::dot(o, d_out));
      if (chunk() == 0 && row < end) Statistics::write_delta(statistics, of_tile + lane(), sum);
    }
  }

  // ---- behind -----------------------------------------------------------------------------------------
  // Where dQ is transposed a compute warp hears of its own additions (bulk copies); where they come from
  // registers it would have to wait for them, and at D = 64 nothing was gained (docs/hopper.md).
  static constexpr bool kFinishes = kPrepares && kFinishesRows<kTileM>;

  // Every row_warps-th tile is this warp's: the next one.
  MXFA_DEVICE static int next_to_finish(const AttentionBackwardParams& p) {
    return number() + ld_global_s32(Progress(p).finished(number())) * p.row_warps;
  }
  // Finishes this warp's next tile if all has been added to it.  false: nothing is left to do, or no tile of
  // keys is left to be taken.
  MXFA_DEVICE static bool finish_next(const AttentionBackwardParams& p) {
    enum : uint32_t { kWait, kReady, kStop };
    uint32_t state = kWait;
    if (own_lane() == 0) {
      const int index = next_to_finish(p);
      const int tiles_taken = int(gridDim.x) + ld_acquire_gpu_s32(pointer<const int32_t>(p.counters));
      if (index >= p.row_tiles || tiles_taken >= p.tile_count) {
        state = kStop;
      } else {
        const BackwardRowTile* t = row_tile(p, index);
        if (ld_acquire_gpu_s32(Progress(p).added(read(t->pair))) >= read(t->additions)) state = kReady;
      }
    }
    state = uniform(state);
    if (state == kWait) nanosleep(2000);
    if (state != kReady) return state == kWait;
    warp_sync();  // all lanes read what lane 0 has acquired
    prefetch_sums(p);
#pragma unroll 1
    for (int span = 0; span < kD / 32; ++span) finish_channels(p, span);
    warp_sync();  // all lanes know which tile it is
    if (own_lane() == 0) {
      int32_t* count = Progress(p).finished(number());
      st_global_b32(count, ld_global_s32(count) + 1);
    }
    return true;
  }
  MXFA_DEVICE static void prefetch_sums(const AttentionBackwardParams& p) {
    const BackwardRowTile* t = row_tile(p, next_to_finish(p));
    const uint8_t* from =
        pointer<const uint8_t>(p.dq_accumulator) + int64_t(read(t->unit)) * Rows::kUnitBytes;
    const int bytes = min_of(ceil_div(read(t->left), kDqUnit), kTileM / kDqUnit) * Rows::kUnitBytes;
#pragma unroll 1
    for (int at = 128 * own_lane(); at < bytes; at += 32 * 128) prefetch_l2(from + at);
  }
  // 32 channels of all rows of the tile, a unit of 8 rows at a time.  A lane writes the eight channels from
  // 8 (lane % 4) on of row lane / 4.  It reads two rows of a channel of four matrices with channels as rows,
  // row i of matrix k being channel 8 (i / 2) + 2 k + i % 2: transposed, they are the four words it writes.
  MXFA_DEVICE static void finish_channels(const AttentionBackwardParams& p, int span) {
    constexpr int kElement = kDqFp16 ? 2 : 4, kLaneBytes = 4 * kElement;
    const BackwardRowTile* t = row_tile(p, next_to_finish(p));
    const uint32_t lane = own_lane();
    const int left = min_of(read(t->left), kTileM);
    // 16 channels of all units lie together, in a unit those of lane l at l: channels l / 4 and 8 further on.
    const int sixteen = ceil_div(left, kDqUnit) * kUnitBytes;
    const uint8_t* from = pointer<const uint8_t>(p.dq_accumulator) +
                          int64_t(read(t->unit)) * Rows::kUnitBytes + (2 * span + lane / 16) * sixteen +
                          lane / 8 % 2 * (2 * kElement) + lane % 8 * kLaneBytes;
    const int32_t tile_row = read(t->row), end = tile_row + left;
    const uint32_t column = 2 * (read(t->head) * kD + 32 * span + 8 * (lane % 4));
#pragma unroll 1
    for (int row = tile_row + lane / 4; row - int(own_lane() / 4) < end; row += kDqUnit, from += kUnitBytes) {
      const float scale = p.scale * p.dq_unscale;
      uint32_t words[4];
      if constexpr (kDqFp16) {
#pragma unroll
        for (int k = 0; k < 4; ++k)
          words[k] = ld_global_s32(reinterpret_cast<const int32_t*>(from + k * 8 * kLaneBytes));
#pragma unroll
        for (int k = 0; k < 4; ++k)
          words[k] = cvt_rn_bf16x2_f32(cvt_f32_f16_high(words[k]) * scale, cvt_f32_f16_low(words[k]) * scale);
      } else {
        S32x2 rows[4];
#pragma unroll
        for (int k = 0; k < 4; ++k)
          rows[k] = ld_global_v2_s32(reinterpret_cast<const int32_t*>(from + k * 8 * kLaneBytes));
#pragma unroll
        for (int k = 0; k < 4; ++k)
          words[k] = cvt_rn_bf16x2_f32(bits_float(rows[k].y) * scale, bits_float(rows[k].x) * scale);
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) words[k] = movmatrix_trans(words[k]);
      st_global_v4_if(row_address(p.dq, row, p.stride_dq) + column, {words[0], words[1], words[2], words[3]},
                      row < end);
    }
  }

  // ---- a warp -----------------------------------------------------------------------------------------
  MXFA_DEVICE static void run_rows(const AttentionBackwardParams& p) {
    if (p.progress == 0) return;
    for (;;) {
      if (own_lane() == 0)
        st_global_b32(taken(p), p.prepared_tiles + atom_add_acq_rel_gpu_s32(Progress(p).next(), 1));
      warp_sync();
      if (ld_global_s32(taken(p)) >= p.row_tiles) break;
      prepare_tile(p);
      fence_proxy_async_global();  // statistics are read, and dQ is added, through the async proxy
      warp_sync();
      if (own_lane() == 0) red_add_release_gpu_s32(Progress(p).prepared(read(taken_tile(p)->pair)), 1);
    }
    if constexpr (kFinishes) {
      if (p.broadcast_q) return;  // all sequences add to one dQ
      while (finish_next(p)) {
      }
    }
  }
};

}  // namespace mxfa
