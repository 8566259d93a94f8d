// What crosses from the host to a kernel: parameter structs and the tables a kernel file publishes.  Each
// struct is re-declared, field by field, in the kernels' sources (the device side includes no host header);
// the tables carry sizeof(parameters), and loading a kernel whose number differs is an error.
#pragma once

#include <cstdint>

namespace mxfa::abi {

// A CUtensorMap.
struct alignas(64) TensorMap {
  unsigned char opaque[128];
};

// attention_fwd_sm100, attention_fwd_sm90.  Tensor maps are ragged (tensor_map.hpp), kBig = 2^30: coordinates
//   (d, head, kBig - len + row, kBig, off + len).
// Boxes are {box_d, 1, rows, 1, 1} with box_d * element bytes = 128 and a 128-byte swizzle (both 64 when a
// row of D has 64 bytes, and in sm100 when it has 192); rows:
//              sm100          sm90
//   Q          128            tile_rows (64 * consumer_warpgroups)
//   K, V       128            tile_n
//   O (BF16)   o_box_rows     64
// sm100 with packed_heads h: Q {box_d, h, 128 / h, 1, 1}, O {box_d, h, o_box_rows / h, 1, 1}.
// sm90 is always given BF16: MXFP8 operands are multiplied out first (ExpandParams).
struct AttentionForwardParams {
  TensorMap q, k, v, o;
  uint64_t scales_q, scales_k, scales_v;  // device, 512-byte atoms; 0 for BF16
  // device, int32[4] a tile.  sm100: {batch, head_q (packed: head_kv), first row, following}; CTA c takes
  // entries c, c + grid, ..., up to the first of batch -1; with launch control entry c, the one of number
  // `following`, and so on (0 ends the chain), then as many chains of CTAs that will not start as it is
  // granted.  sm90: {batch, head_q, first row, rows}, rows a multiple of 64; the first min(grid,
  // tile_count) belong to the CTAs of these numbers, the others to whoever is free, in this order, up to the
  // first of batch -1.
  uint64_t tiles;
  uint64_t offsets_q, offsets_k;              // device, int32[batch+1]; offsets_q int32[2] with broadcast_q
  uint64_t scale_offsets_q, scale_offsets_k;  // device, int32[batch+1], multiples of 128
  uint64_t lse;                               // device, float [heads_q, rows_o]; 0: not stored
  int64_t rows_o;                             // LSE row stride
  int32_t tile_count;
  int32_t heads_q, heads_kv;
  int32_t scale_tiles_q, scale_tiles_k;  // S/128 of the scale tensors
  float scale_log2;                      // softmax scale * log2(e), > 0 and normal
  int32_t window_left, window_right;     // bottom-right aligned, inclusive; -1 unbounded.  causal: right = 0
  int32_t broadcast_q;  // 1: every sequence takes rows [0, offsets_q[1]) of Q; O has its own rows
  // Sequences, if the lengths lie in device memory: S is the last of scale_offsets_q or _k then.  Else 0.
  int32_t device_batch;
  // sm90 only.
  uint64_t counters;  // device, int32[2], zero before and after a launch: next tile, CTAs that have finished
};

// attention_bwd_prepare, attention_bwd_sm90, attention_bwd_finish; src/attention/attention_bwd_params.cuh has
// the layout of statistics and dq_accumulator.  Tensor maps as above, boxes of 64 rows.
struct AttentionBackwardParams {
  TensorMap q, k, v, d_out;
  uint64_t o, d_out_rows;  // bf16 [rows_o, heads_q, D]; d_out_rows is the tensor of the map d_out
  uint64_t lse;            // float [heads_q, rows_o], natural logarithm
  uint64_t dq, dk, dv;     // bf16 [tokens, heads, D]
  uint64_t statistics, dq_accumulator, turns;  // turns: 0 without `deterministic`
  uint64_t tiles;                 // int32[4] {batch, head_kv, first key, keys + 256 x}; keys: 64 or 128
  uint64_t q_tiles;               // int32[2] {batch, tile of query rows in the sequence}
  uint64_t offsets_q, offsets_k;  // int32[batch + 1]; offsets_q int32[2] with broadcast_q
  uint64_t counters;              // int32[2], zero before the main kernel: next tile, CTAs finished
  uint64_t progress;              // int32[1 + 2 (pairs + row_warps)]; 0: prepare and finish do all rows
  uint64_t row_list;              // BackwardRowTile of each tile of query rows and head
  int64_t rows_o;
  int64_t stride_o, stride_d_out, stride_dq, stride_dk, stride_dv;  // elements
  int32_t tile_count;
  int32_t row_tiles, prepared_tiles;  // tiles of query rows of all heads; those of prepare
  int32_t pairs, row_warps;           // of `progress`
  int32_t heads_q, heads_kv;
  int32_t stat_tiles, dq_units, dq_replicas;
  float scale, scale_log2, inverse_scale_log2;
  float dq_scale, dq_unscale;
  int32_t window_left, window_right;
  int32_t broadcast_q;
};

struct BackwardRowTile {
  int32_t row, left;         // the first row in O and dO; rows of the sequence from it on
  int32_t statistics, unit;  // heads counted
  int32_t head, pair;
  int32_t additions;  // to the pair's counter when all dQ has been added
};

// attention_bwd_dq_sm90.  Maps q, d_out and dq as above, boxes of k and v have tile_n rows.
struct AttentionBackwardDqParams {
  TensorMap q, d_out, dq;
  TensorMap k, v;
  uint64_t statistics, dq_accumulator;  // dq_accumulator: with broadcast_q only, a copy for each run
  uint64_t tiles;                       // int32[4] {batch, head_q, first row, rows}; broadcast_q: {run, ...}
  uint64_t runs;                        // broadcast_q: int32[runs + 1], first sequence of each; else 0
  uint64_t offsets_q, offsets_k;
  uint64_t counters;  // int32[2], zero before and after a launch: next tile, CTAs finished
  int32_t tile_count;
  int32_t heads_q, heads_kv;
  int32_t stat_tiles, dq_units;
  float scale, scale_log2;
  int32_t window_left, window_right;
};

// attention_lengths: the lists of both for lengths that lie in device memory.
struct AttentionLengthsParams {
  uint64_t offsets_q, offsets_k;  // the caller's: int32[batch + 1]; offsets_q int32[2] with broadcast_q
  // All of the following are written.  The same, or all 0 where they are wrong.
  uint64_t checked_q, checked_k;
  uint64_t scale_offsets_q, scale_offsets_k;  // 0: not wanted
  uint64_t tiles, q_tiles;                    // as above, batch -1 ends a list; q_tiles: 0, not wanted
  uint64_t error;                             // int32[8], LengthsError of attention_lengths.cpp
  int32_t batch, broadcast_q;
  int32_t max_total_q, max_total_k;  // the capacity
  int32_t max_length_q, max_length_k;
  int32_t of_keys;                           // tiles are of keys, and see queries; else the reverse
  int32_t heads;                             // that tiles are made for
  int32_t tile_rows, unit_rows, block_rows;  // of a tile at most; they are multiples of unit_rows; of a step
  int32_t window_left, window_right;         // of a row of the tile; of keys: what the queries have, swapped
  int32_t in_order;                          // tiles of a sequence stand in its order and carry a rank
  int32_t grid, zigzag;                      // of the attention kernel; dealt to its CTAs forth and back
  int32_t tile_slots;                        // entries of `tiles`
  int32_t q_tile_rows, q_tile_slots;         // likewise, of q_tiles
};

// mxfp8_quantize.  Grid: scale_tiles * heads / heads_per_cta CTAs, heads fastest.
struct QuantizeParams {
  uint64_t input;      // bf16 [tokens, heads, D]
  int64_t row_stride;  // elements
  uint64_t payload;    // e4m3 [tokens, heads, D]
  uint64_t scales_d, scales_tokens;
  uint64_t offsets, scale_offsets;  // int32[batch+1]
  int32_t batch, heads, scale_tiles;
};

// mxfp8_expand.  Grid: the sum of scale_tiles * heads / heads_per_cta over the jobs, one job after the other,
// heads fastest.
struct ExpandJob {
  uint64_t payload;                 // e4m3 [tokens, heads, D]
  int64_t row_stride;               // bytes
  uint64_t scales, output;          // output: bf16 [tokens, heads, D], packed
  uint64_t offsets, scale_offsets;  // int32[batch+1]
  int32_t batch, heads, scale_tiles;
  int32_t along_tokens;  // the scales' orientation; 0: along D
};
inline constexpr int kExpandJobs = 4;
struct ExpandParams {
  ExpandJob jobs[kExpandJobs];  // those behind the last have heads 0
};

// A kernel file publishes its tables as `extern "C" __device__ const KernelTables <kernel>_tables`
// (src/common/tables.cuh has the device twin).
inline constexpr uint32_t kTablesMagic = 0x6166786d;  // "mxfa"
struct RoleRow {
  char name[24];
  uint32_t first_warp, warps, registers;
};
struct SmemRow {
  char name[24];
  uint32_t offset, bytes, stages, alignment;  // bytes of one stage
};
struct TmemRow {
  char name[24];
  uint32_t column, columns;
  char live_from[32], live_until[32];
};
struct BarrierRow {
  char name[24];
  uint32_t offset, stages, count, tx_bytes;  // offset in shared memory; arrivals and bytes per phase
  char producer[32], consumer[32];
  uint32_t producer_first_parity, consumer_first_parity;  // of their first wait; 2 = never waits
};
struct KernelTables {
  uint32_t magic, params_bytes, threads;
  uint32_t shared_bytes;  // dynamic shared memory to ask for
  uint32_t tmem_columns;
  uint32_t tile_rows;  // query rows (or tokens) a CTA tile covers
  uint32_t role_count, smem_count, tmem_count, barrier_count;
  RoleRow roles[8];
  SmemRow smem[16];
  TmemRow tmem[24];
  BarrierRow barriers[24];
};

}  // namespace mxfa::abi
