// What the backward kernels share: parameters and the layout of the workspace.
//
//   statistics      [heads_q][stat_tiles][statistics_bytes]: LSE and delta of R query rows, a step of the
//                   main kernel (attention_bwd_statistics.cuh).
//   dq_accumulator  [dq_replicas][heads_q][dq_units][8 x D], unscaled dQ in units of 8 query rows and in the
//                   order in which a warp holds accumulators, so that it adds 512 contiguous bytes at a time.
//                   FP32: [16 channels][lane][4]; lane l has row l/4 and columns 2 (l % 4), the next, and
//                   those 8 further on.  FP16, times 2^dq_scale_log2: [32 channels][lane][8], those 16 and 24
//                   further on as well.  R = 80: the 10 units of a tile, or as many as the sequence has left,
//                   lie together as [16 channels][units][lane][4], and lane l has channels l/4 and 8 further
//                   on, of each rows 2 (l % 4) and the next.
// A sequence starts on a tile and on a unit of its own, so that none holds rows of two: sequence b at
// offsets_q[b] / rows + b, which leaves every sequence ceil(len / rows) of them, the whole batch
// offsets_q[batch] / rows + batch.  With broadcast_q the statistics of sequence b start at
// b * ceil(len / R) and all sequences share the accumulators of the one Q, in dq_replicas copies that spread
// the additions over addresses.
//   turns           int32 [dq_replicas][heads_q][dq_units][2], with `deterministic` only: how many tiles of
//   keys
//                   have added to the 16 rows from a unit on and a panel of 64 channels.
#pragma once
#include "src/common/math.cuh"
#include "src/common/types.cuh"

namespace mxfa {

struct AttentionBackwardParams {
  // Ragged, boxes of 64 rows x 64 elements (q and d_out where R = 80: 80 rows), 128-byte swizzle.
  TensorMap q, k, v, d_out;
  uint64_t o, d_out_rows;  // bf16 [rows_o, heads_q, D]
  uint64_t lse;            // float [heads_q, rows_o], natural logarithm
  uint64_t dq, dk, dv;     // bf16 [tokens, heads, D]
  uint64_t statistics;
  uint64_t dq_accumulator;  // 0 for prepare: nothing to be zeroed
  uint64_t turns;           // 0 without `deterministic`
  // int32[4] {batch, head_kv, first key, keys + 256 x}: 64 or 128 keys.  x: with `deterministic` the rank
  // among the tiles that add to the same rows of dQ, in the order of the list; else 1 where the pair's rows
  // are prepared by the main kernel.
  uint64_t tiles;
  uint64_t q_tiles;               // int32[2] {batch, tile of R rows in the sequence}
  uint64_t offsets_q, offsets_k;  // int32[batch + 1]
  uint64_t counters;              // int32[2], zero before the main kernel: next tile, CTAs finished
  // Progress below, zeroed by prepare; 0 where prepare and finish do all rows.  BackwardRowTile of each tile
  // of R rows, in the order of q_tiles, head by head of a sequence.
  uint64_t progress, row_list;
  int64_t rows_o;
  int64_t stride_o, stride_d_out, stride_dq, stride_dk, stride_dv;  // elements from row to row
  int32_t tile_count;
  int32_t row_tiles, prepared_tiles;  // tiles of R rows of all heads; those of prepare
  int32_t pairs, row_warps;           // [batch][heads_kv]; warps of the main kernel that prepare and finish
  int32_t heads_q, heads_kv;
  int32_t stat_tiles, dq_units, dq_replicas;
  // Softmax scale (MXFP8: / 256); the same times log2(e) (never / 256), and one over that.
  float scale, scale_log2, inverse_scale_log2;
  float dq_scale, dq_unscale;         // 2^dq_scale_log2 (MXFP8: / 256), its reciprocal; FP32 accumulators: 1
  int32_t window_left, window_right;  // bottom-right aligned, inclusive; -1 unbounded.  causal: right = 0
  int32_t broadcast_q;
};

// R query rows of a head, for the main kernel.
struct BackwardRowTile {
  int32_t row;               // the first, in O and dO; in dQ as well but with broadcast_q
  int32_t left;              // rows of the sequence from it on
  int32_t statistics, unit;  // tile of the statistics and first unit of the accumulators, heads counted
  int32_t head, pair;
  int32_t additions;  // to the pair when all dQ has been added: tiles of keys times compute warps
};

// attention_bwd_dq_sm90: dQ of a tile of query rows, kept on chip.
struct AttentionBackwardDqParams {
  TensorMap q, d_out, dq;         // ragged, boxes of 64 rows x 64 elements, 128-byte swizzle
  TensorMap k, v;                 // boxes of tile_n rows
  uint64_t statistics;            // as above
  uint64_t dq_accumulator;        // with broadcast_q: run r of sequences writes copy r
  uint64_t tiles;                 // int32[4] {batch, head_q, first row, rows}; broadcast_q: {run, ...}
  uint64_t runs;                  // broadcast_q: int32[runs + 1], first sequence of each run; else 0
  uint64_t offsets_q, offsets_k;  // int32[batch + 1]
  uint64_t counters;              // int32[2], zero before the launch and after it: next tile, CTAs finished
  int32_t tile_count;
  int32_t heads_q, heads_kv;
  int32_t stat_tiles, dq_units;
  float scale, scale_log2;
  int32_t window_left, window_right;
};

// Query rows a tile, R, unless the main kernel's configuration says 80: 64 KB of registers for its scores.
MXFA_CONSTEXPR int backward_rows(int head_dim) { return head_dim == 64 ? 128 : 64; }

// 80 rows are no whole number of a product's 64: then dQ is computed, and added, transposed.
MXFA_CONSTEXPR bool dq_is_transposed(int tile_rows) { return tile_rows == 80; }

// What the main kernel counts: tiles of rows it has taken to prepare; of each pair how many it has prepared,
// and how often a compute warp has added all its dQ of a tile of keys; of each of its warps for rows how many
// of its tiles, every row_warps-th, it has finished, and the tile that it prepares.
struct Progress {
  int32_t* counters;
  int32_t pairs, warps;

  MXFA_DEVICE explicit Progress(const AttentionBackwardParams& p)
      : counters(pointer<int32_t>(p.progress)), pairs(p.pairs), warps(p.row_warps) {}
  MXFA_DEVICE int64_t size() const { return 1 + 2 * (int64_t{pairs} + warps); }
  MXFA_DEVICE int32_t* next() const { return counters; }
  MXFA_DEVICE int32_t* prepared(int pair) const { return counters + 1 + pair; }
  MXFA_DEVICE int32_t* added(int pair) const { return counters + 1 + pairs + pair; }
  MXFA_DEVICE int32_t* finished(int warp) const { return counters + 1 + 2 * pairs + warp; }
  MXFA_DEVICE int32_t* taken(int warp) const { return counters + 1 + 2 * pairs + warps + warp; }
};

// Whether the main kernel finishes rows in steps of kRows; the finishing kernel must know.
template <int kRows>
inline constexpr bool kFinishesRows = dq_is_transposed(kRows);

// Of R query rows (attention_bwd_statistics.cuh): two floats each, or, at head_dim 64, five bf16 for 8 rows
// at a time.
inline constexpr int kRowGroupBytes = 5 * 16;
MXFA_CONSTEXPR bool statistics_are_operands(int head_dim) { return head_dim == 64; }
MXFA_CONSTEXPR int statistics_bytes(int head_dim, int rows) {
  return statistics_are_operands(head_dim) ? rows / 8 * kRowGroupBytes : rows * 8;
}

inline constexpr int kDqUnit = 8;
MXFA_CONSTEXPR int dq_unit_bytes(int head_dim, bool fp16) { return kDqUnit * head_dim * (fp16 ? 2 : 4); }

// First tile (or unit) of `rows` rows of a sequence whose tokens start at `first`.
MXFA_DEVICE int32_t padded_start(int32_t first, int32_t batch, int rows) { return first / rows + batch; }

}  // namespace mxfa
