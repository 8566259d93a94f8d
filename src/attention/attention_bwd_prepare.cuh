// What the backward kernels share -- parameters, workspace layout -- and the first of them: for every tile of
// 64 query rows and head it computes delta = rowsum(O * dO), brings LSE into the form the main kernel
// exponentiates with, and zeroes the accumulators of dQ.
//
// Workspace, in tiles of R = backward_rows(D) query rows; a sequence starts on a tile of its own, so no tile
// holds rows of two.
//   statistics      float [heads_q][stat_tiles][2 R]: R x -LSE * log2(e), then R x delta.  Rows that
//   contribute
//                   nothing (past the end of the sequence, or without a visible key) have -inf and 0:
//                   2^(x - inf) = 0.
//   dq_accumulator  float [dq_replicas][heads_q][dq_tiles][R/64][64 x D], unscaled dQ in the order in which a
//                   warpgroup holds 64 x 64 accumulators: [panel of 64 channels][warp][chunk of 8
//                   channels][lane][4]; lane l of warp w has rows 16 w + l/4 and 8 below, columns 8 c + 2 (l
//                   % 4) and the next.  A warp adds 512 contiguous bytes a chunk, 4 KB in all.
// Tiles of sequence b start at offsets_q[b] / R + b, which leaves every sequence ceil(len / R) of them, the
// whole batch offsets_q[batch] / R + batch (FlashAttention's padded offsets). With broadcast_q the statistics
// of sequence b start at b * ceil(len / R) and all sequences share the accumulators of the one Q, in
// dq_replicas copies that spread the additions over addresses.
#pragma once
#include "ptx/ld_st.cuh"
#include "ptx/shuffle.cuh"
#include "src/common/jagged.cuh"
#include "src/common/math.cuh"
#include "src/common/types.cuh"

namespace mxfa {

using namespace ptx;

struct AttentionBackwardParams {
  TensorMap q, k, v, d_out;  // ragged, boxes of 64 rows x 64 elements, 128-byte swizzle
  uint64_t o, d_out_rows;    // bf16 [rows_o, heads_q, D]
  uint64_t lse;              // float [heads_q, rows_o], natural logarithm
  uint64_t dq, dk, dv;       // bf16 [tokens, heads, D]
  uint64_t statistics, dq_accumulator;
  uint64_t tiles;                 // int32[4] {batch, head_kv, first key, keys: 64 or 128}
  uint64_t q_tiles;               // int32[2] {batch, tile of R rows in the sequence}
  uint64_t offsets_q, offsets_k;  // int32[batch + 1]
  uint64_t counters;              // int32[2], zero before the launch and after it: next tile, CTAs finished
  int64_t rows_o;
  int64_t stride_o, stride_d_out, stride_dq, stride_dk, stride_dv;  // elements from row to row
  int32_t tile_count;
  int32_t heads_q, heads_kv;
  int32_t stat_tiles, dq_tiles, dq_replicas;
  float scale, scale_log2;            // softmax scale; the same times log2(e)
  int32_t window_left, window_right;  // bottom-right aligned, inclusive; -1 unbounded.  causal: right = 0
  int32_t broadcast_q;
};

// Query rows a tile, R: a step of the main kernel, 64 KB of registers for its scores.
MXFA_CONSTEXPR int backward_rows(int head_dim) { return head_dim == 64 ? 128 : 64; }

// First tile of the sequence in the accumulators (and, without broadcast_q, in the statistics).
template <int kD>
MXFA_DEVICE int32_t padded_tile(int32_t first, int32_t batch) {
  return first / backward_rows(kD) + batch;
}

// The accumulators of a 64 x D tile: chunks of a panel (D = 96 has half a second one), and where a lane's
// four values of chunk 0 are.  Chunks are 128 floats apart.
template <int kD>
MXFA_CONSTEXPR int dq_chunks(int panel) {
  return min_of(kD / 8 - 8 * panel, 8);
}
template <int kD>
MXFA_CONSTEXPR int dq_offset(int panel, int warp, int lane) {
  return 64 * 64 * panel + warp * dq_chunks<kD>(panel) * 128 + 4 * lane;
}

template <int kD>
struct AttentionBwdPrepare {
  static constexpr int kThreads = 256, kRows = backward_rows(kD);
  static constexpr int kLanes = kD > 64 ? 16 : 8;  // lanes a row, 8 elements each; D = 96 leaves four idle
  static constexpr int kRowsAPass = kThreads / kLanes, kPasses = kRows / kRowsAPass;
  static constexpr int kTileFloats = kRows * kD;

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

  MXFA_DEVICE static void zero(float* tile) {
    for (int i = threadIdx.x; i < kTileFloats / 4; i += kThreads) st_global_v4(tile + 4 * i, {0, 0, 0, 0});
  }

  MXFA_DEVICE static void run(const AttentionBackwardParams& p) {
    int head = blockIdx.x % p.heads_q;
    const int32_t* entry = pointer<const int32_t>(p.q_tiles) + 2 * (blockIdx.x / p.heads_q);
    int batch = ld_global_s32(entry), m = ld_global_s32(entry + 1);
    Sequence q = load_sequence(pointer<const int32_t>(p.offsets_q), p.broadcast_q ? 0 : batch);
    int64_t o_first = p.broadcast_q ? int64_t(batch) * q.length : q.first;
    int stat_tile = p.broadcast_q ? batch * ceil_div(q.length, kRows) : padded_tile<kD>(q.first, batch);

    int chunk = threadIdx.x % kLanes, pass_row = threadIdx.x / kLanes;
    U32x4 o[kPasses], d_out[kPasses];
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      int row = kRows * m + pass_row + kRowsAPass * i;
      bool valid = row < q.length && 8 * chunk < kD;
      int64_t column = int64_t(head) * kD + 8 * chunk;
      o[i] = ld_global_nc_v4_if(pointer<const bf16_bits>(p.o) + (o_first + row) * p.stride_o + column, valid);
      d_out[i] = ld_global_nc_v4_if(
          pointer<const bf16_bits>(p.d_out_rows) + (o_first + row) * p.stride_d_out + column, valid);
    }
    // The accumulators: this tile's own, or, where sequences share them, every grid-th one.
    float* accumulator = pointer<float>(p.dq_accumulator);
    if (p.broadcast_q) {
      for (int tile = blockIdx.x; tile < p.dq_replicas * p.heads_q * p.dq_tiles; tile += gridDim.x)
        zero(accumulator + int64_t(tile) * kTileFloats);
    } else {
      zero(accumulator + (int64_t(head) * p.dq_tiles + stat_tile + m) * kTileFloats);
    }
    float* statistics =
        pointer<float>(p.statistics) + (int64_t(head) * p.stat_tiles + stat_tile + m) * (2 * kRows);
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      float delta = dot(o[i], d_out[i]);
#pragma unroll
      for (int lane = kLanes / 2; lane > 0; lane /= 2) delta += shfl_bfly(delta, lane);
      int tile_row = pass_row + kRowsAPass * i, row = kRows * m + tile_row;
      if (chunk == 0) {
        float lse = -__builtin_huge_valf();
        if (row < q.length) lse = pointer<const float>(p.lse)[int64_t(head) * p.rows_o + o_first + row];
        bool dead = lse == -__builtin_huge_valf();
        st_global_f32(statistics + tile_row, dead ? lse : -lse * kLog2E);
        st_global_f32(statistics + kRows + tile_row, dead ? 0.0f : delta);
      }
    }
  }
};

}  // namespace mxfa

extern "C" __global__ void __launch_bounds__(mxfa::AttentionBwdPrepare<Config::head_dim>::kThreads)
    attention_bwd_prepare(const __grid_constant__ mxfa::AttentionBackwardParams p) {
  mxfa::AttentionBwdPrepare<Config::head_dim>::run(p);
}
