// The first of the backward kernels: for every tile of R query rows (attention_bwd_params.cuh) and head it
// computes delta = rowsum(O * dO), brings LSE into the form the main kernel exponentiates with, and zeroes
// the accumulators of dQ.
#include "ptx/ld_st.cuh"
#include "ptx/shuffle.cuh"
#include "src/attention/attention_bwd_mx.cuh"
#include "src/attention/attention_bwd_params.cuh"
#include "src/common/jagged.cuh"
#include "src/common/math.cuh"
#include "src/common/tables.cuh"
#include "src/common/types.cuh"

namespace mxfa {

using namespace ptx;

template <int kD, int kRows, bool kDqFp16, bool kMxfp8>
struct AttentionBwdPrepare {
  static constexpr int kThreads = 256;
  static constexpr int kLanes = kD > 64 ? 16 : 8;  // lanes a row, 8 elements each; D = 96 leaves four idle
  static constexpr int kRowsAPass = kThreads / kLanes, kPasses = kRows / kRowsAPass;

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

  MXFA_DEVICE static float dot(U32x4 a, U32x4 b) {
    float sum = bf16x2_low(a.x) * bf16x2_low(b.x);
    sum += bf16x2_high(a.x) * bf16x2_high(b.x);
    sum += bf16x2_low(a.y) * bf16x2_low(b.y);
    sum += bf16x2_high(a.y) * bf16x2_high(b.y);
    sum += bf16x2_low(a.z) * bf16x2_low(b.z);
    sum += bf16x2_high(a.z) * bf16x2_high(b.z);
    sum += bf16x2_low(a.w) * bf16x2_low(b.w);
    sum += bf16x2_high(a.w) * bf16x2_high(b.w);
    return sum;
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
    int head = blockIdx.x % p.heads_q;
    const auto [batch, m] =
        ld_global_v2_s32(pointer<const int32_t>(p.q_tiles) + 2 * (blockIdx.x / p.heads_q));
    if (batch < 0) {  // a spare slot of attention_lengths
      if (p.broadcast_q) zero_part(p);
      return;
    }
    Sequence q = load_sequence(pointer<const int32_t>(p.offsets_q), p.broadcast_q ? 0 : batch);
    int64_t o_first = p.broadcast_q ? int64_t(batch) * q.length : q.first;
    int stat_tile = p.broadcast_q ? batch * ceil_div(q.length, kRows) : padded_start(q.first, batch, kRows);

    int chunk = threadIdx.x % kLanes, pass_row = threadIdx.x / kLanes;
    // A group of kLanes lanes takes kPasses rows that follow each other.  Everything that is read is in
    // flight before any of it is used; LSE of a row is read, and its statistics are written, by one lane of
    // the group.
    const int first_row = kPasses * pass_row, own_row = kRows * m + first_row + chunk;
    float lse = -bits_float(0x7f800000);
    if (chunk < kPasses && own_row < q.length)
      lse = bits_float(
          ld_global_s32(pointer<const int32_t>(p.lse) + int64_t(head) * p.rows_o + o_first + own_row));
    U32x4 o[kPasses], d_out[kPasses];
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      int row = kRows * m + first_row + i;
      bool valid = row < q.length && 8 * chunk < kD;
      int64_t column = int64_t(head) * kD + 8 * chunk;
      o[i] = ld_global_nc_v4_if(pointer<const bf16_bits>(p.o) + (o_first + row) * p.stride_o + column, valid);
      d_out[i] = ld_global_nc_v4_if(
          pointer<const bf16_bits>(p.d_out_rows) + (o_first + row) * p.stride_d_out + column, valid);
    }
    // The accumulators: this tile's own, or, where sequences share them, a part of all.
    if (p.dq_accumulator == 0) {
      // attention_bwd_dq_sm90 adds nothing in memory
    } else if (p.broadcast_q) {
      zero_part(p);
    } else {
      constexpr int kUnitBytes = dq_unit_bytes(kD, kDqFp16);
      int64_t unit = int64_t(head) * p.dq_units + padded_start(q.first, batch, kDqUnit) + kRows / kDqUnit * m;
      int units = min_of(ceil_div(q.length - kRows * m, kDqUnit), kRows / kDqUnit);
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
      float delta = dot(o[i], d_out[i]);
#pragma unroll
      for (int lane = kLanes / 2; lane > 0; lane /= 2) delta += shfl_bfly(delta, lane);
      if (chunk == i) own_delta = delta;
    }
    if (chunk < kPasses) {
      float* statistics = pointer<float>(p.statistics) +
                          (int64_t(head) * p.stat_tiles + stat_tile + m) * (2 * kRows) + first_row + chunk;
      bool dead = lse == -bits_float(0x7f800000);
      const float exponent = kMxfp8 ? kMxExponent - lse * kLog2E : -lse * kLog2E;
      st_global_f32(statistics, dead ? lse : exponent);
      st_global_f32(statistics + kRows, dead ? 0.0f : own_delta);
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
