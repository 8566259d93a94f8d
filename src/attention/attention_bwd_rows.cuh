// Tiles of query rows of the backward, and what is computed for each row before dQ of it is added: delta, and
// LSE in the form in which the main kernel takes it.  attention_bwd_prepare does so for the rows that are
// needed first, warps of the main kernel for the others (attention_bwd_sm90_rows.cuh).
#pragma once
#include "ptx/ld_st.cuh"
#include "ptx/shuffle.cuh"
#include "src/attention/attention_bwd_params.cuh"
#include "src/attention/attention_bwd_statistics.cuh"
#include "src/common/jagged.cuh"
#include "src/common/math.cuh"
#include "src/common/types.cuh"

namespace mxfa {

using namespace ptx;

// kRows query rows of a head.
template <int kRows>
struct RowTile {
  int32_t batch, head, m;  // batch -1: a spare slot of attention_lengths
  Sequence q;

  // Number `index` in the order of the list of q_tiles, head by head of a sequence.  By a whole warp: from
  // lane 0, so that the compiler knows the tile to be uniform and keeps it in uniform registers.
  MXFA_DEVICE static RowTile read(const AttentionBackwardParams& p, int index) {
    const auto uniform = [](int32_t value) { return int32_t(shfl_idx(value, 0)); };
    const int entry = index / p.heads_q;
    const S32x2 at = ld_global_v2_s32(pointer<const int32_t>(p.q_tiles) + 2 * entry);
    const int batch = uniform(at.x);
    const Sequence q =
        load_sequence(pointer<const int32_t>(p.offsets_q), p.broadcast_q ? 0 : max_of(batch, 0));
    const int length = uniform(q.length), of_head = max_of(ceil_div(length, kRows), 1);
    const int of_sequence = uniform(index - (entry - at.y) * p.heads_q),
              head = uniform(of_sequence / of_head);
    return {batch, head, of_sequence - head * of_head, {uniform(q.first), length}};
  }
};

template <int kD, int kRows, bool kDqFp16>
struct BackwardRows {
  using Tile = RowTile<kRows>;
  using Statistics = RowStatistics<kD, kRows>;
  static constexpr int kLanes = kD > 64 ? 16 : 8;  // lanes a row, 8 elements each; D = 96 leaves four idle
  static constexpr int kWarpRows = 32 / kLanes;    // that a warp reads at a time
  static constexpr int kUnitBytes = dq_unit_bytes(kD, kDqFp16);

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

  MXFA_DEVICE static float sum_of_lanes(float x) {
#pragma unroll
    for (int lane = kLanes / 2; lane > 0; lane /= 2) x += shfl_bfly(x, lane);
    return x;
  }
};

}  // namespace mxfa
