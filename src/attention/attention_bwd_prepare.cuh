// The first of the backward kernels: statistics of the query rows and zeros in the accumulators of dQ
// (attention_bwd_rows.cuh), a CTA a tile of R rows of a head.  Of all rows, or of those that the main kernel
// needs first; it also resets the counters of the kernels behind it.
#include "ptx/ld_st.cuh"
#include "src/attention/attention_bwd_params.cuh"
#include "src/attention/attention_bwd_rows.cuh"
#include "src/common/math.cuh"
#include "src/common/tables.cuh"
#include "src/common/types.cuh"

namespace mxfa {

template <int kD, int kRows, bool kDqFp16, bool kMxfp8>
struct AttentionBwdPrepare : BackwardRows<kD, kRows, kDqFp16> {
  using Rows = BackwardRows<kD, kRows, kDqFp16>;
  using Statistics = typename Rows::Statistics;
  static constexpr int kThreads = 256;
  static constexpr int kPasses = kRows / (kThreads / 32 * Rows::kWarpRows);

  static constexpr KernelTables kTables = {.magic = kTablesMagic,
                                           .params_bytes = sizeof(AttentionBackwardParams),
                                           .threads = kThreads,
                                           .tile_rows = kRows,
                                           .role_count = 1,
                                           .roles = {{"row", 0, kThreads / 32, 0}}};

  // The turns of units `first`, `first` + `step`, ... up to `end`.
  MXFA_DEVICE static void zero_turns(const AttentionBackwardParams& p, int64_t first, int64_t end,
                                     int64_t step) {
    if (p.turns == 0) return;
#pragma unroll 1
    for (int64_t i = first; i < end; i += step) st_global_v2(pointer<int32_t>(p.turns) + 2 * i, 0, 0);
  }

  // Bytes `first`, `first` + 16 `step`, ... in sixteens up to `end`.
  MXFA_DEVICE static void zero(uint8_t* accumulator, int64_t first, int64_t end, int64_t step) {
#pragma unroll 1
    for (int64_t i = first; i < end; i += 16 * step) st_global_v4(accumulator + i, {0, 0, 0, 0});
  }

  // A grid-th part of all accumulators.
  MXFA_DEVICE static void zero_part(const AttentionBackwardParams& p) {
    int64_t thread = int64_t(blockIdx.x) * kThreads + threadIdx.x, threads = int64_t(gridDim.x) * kThreads;
    int64_t units = int64_t(p.dq_replicas) * p.heads_q * p.dq_units;
    zero(pointer<uint8_t>(p.dq_accumulator), 16 * thread, units * dq_unit_bytes(kD, kDqFp16), threads);
    zero_turns(p, thread, units, threads);
  }

  MXFA_DEVICE static void run(const AttentionBackwardParams& p) {
    const int64_t thread = int64_t(blockIdx.x) * kThreads + threadIdx.x;
    if (thread < 2) st_global_b32(pointer<int32_t>(p.counters) + thread, 0);
    if (p.progress != 0) {
      const Progress progress(p);
#pragma unroll 1
      for (int64_t i = thread; i < progress.size(); i += int64_t(gridDim.x) * kThreads)
        st_global_b32(progress.counters + i, 0);
    }
    const auto [batch, head, m, q] = Rows::Tile::read(p, blockIdx.x);
    if (batch < 0) {
      if (p.broadcast_q) zero_part(p);
      return;
    }
    const int64_t o_row = (p.broadcast_q ? int64_t(batch) * q.length : q.first) + kRows * m;
    const int stat_tile =
        (p.broadcast_q ? batch * ceil_div(q.length, kRows) : padded_start(q.first, batch, kRows)) + m;
    // kLanes lanes take kPasses rows that follow each other.  Everything that is read is in flight before any
    // of it is used; LSE of a row is read, and its statistics are written, by one lane.
    const int chunk = threadIdx.x % Rows::kLanes, first_row = threadIdx.x / Rows::kLanes * kPasses,
              left = q.length - kRows * m - first_row;
    float lse = Statistics::kDead;
    if (chunk < kPasses && chunk < left)
      lse = bits_float(ld_global_s32(pointer<const int32_t>(p.lse) + int64_t(head) * p.rows_o + o_row +
                                     first_row + chunk));
    U32x4 o[kPasses], d_out[kPasses];
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      const bool valid = i < left && 8 * chunk < kD;
      const int64_t row = o_row + first_row + i, column = int64_t(head) * kD + 8 * chunk;
      o[i] = ld_global_nc_v4_if(pointer<const bf16_bits>(p.o) + row * p.stride_o + column, valid);
      d_out[i] =
          ld_global_nc_v4_if(pointer<const bf16_bits>(p.d_out_rows) + row * p.stride_d_out + column, valid);
    }
    // The accumulators: this tile's own, or, where sequences share them, a part of all.
    if (p.dq_accumulator == 0) {
      // attention_bwd_dq_sm90 adds nothing in memory
    } else if (p.broadcast_q) {
      zero_part(p);
    } else {
      constexpr int kUnitBytes = Rows::kUnitBytes;
      const int64_t unit =
          int64_t(head) * p.dq_units + padded_start(q.first, batch, kDqUnit) + kRows / kDqUnit * m;
      const int units = min_of(ceil_div(q.length - kRows * m, kDqUnit), kRows / kDqUnit);
      uint8_t* accumulator = pointer<uint8_t>(p.dq_accumulator) + unit * kUnitBytes;
#pragma unroll
      for (int i = 0; i < kRows / kDqUnit * kUnitBytes; i += 16 * kThreads) {
        const int at = i + 16 * threadIdx.x;
        if (at < units * kUnitBytes) st_global_v4(accumulator + at, {0, 0, 0, 0});
      }
      zero_turns(p, unit + threadIdx.x, unit + units, kThreads);
    }
    float own_delta = 0.0f;
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      const float delta = Rows::sum_of_lanes(Rows::dot(o[i], d_out[i]));
      if (chunk == i) own_delta = delta;
    }
    if (chunk < kPasses) {
      const int row = first_row + chunk;
      uint8_t* statistics = Statistics::of_tile(p, int64_t(head) * p.stat_tiles + stat_tile);
      Statistics::template write_exponent<kMxfp8>(p, statistics, row, lse);
      Statistics::write_delta(statistics, row, lse == Statistics::kDead ? 0.0f : own_delta);
    }
  }
};

}  // namespace mxfa

using Prepare = mxfa::AttentionBwdPrepare<Config::head_dim, Config::tile_m, Config::dq_fp16, Config::mxfp8>;

MXFA_PUBLISH_TABLES(attention_bwd_prepare, Prepare::kTables);

extern "C" __global__ void __launch_bounds__(Prepare::kThreads)
    attention_bwd_prepare(const __grid_constant__ mxfa::AttentionBackwardParams p) {
  Prepare::run(p);
}
