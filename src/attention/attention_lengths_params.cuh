// Parameters of attention_lengths: twin of AttentionLengthsParams in runtime/host/kernel_abi.hpp, which says
// what each field means.
#pragma once
#include "ptx/types.cuh"

namespace mxfa {

struct AttentionLengthsParams {
  uint64_t offsets_q, offsets_k;
  uint64_t checked_q, checked_k;
  uint64_t scale_offsets_q, scale_offsets_k;
  uint64_t tiles, q_tiles;
  uint64_t error;
  int32_t batch, broadcast_q;
  int32_t max_total_q, max_total_k;
  int32_t max_length_q, max_length_k;
  int32_t of_keys, heads;
  int32_t tile_rows, unit_rows, block_rows;
  int32_t window_left, window_right;
  int32_t in_order;
  int32_t grid, zigzag;
  int32_t tile_slots;
  int32_t q_tile_rows, q_tile_slots;
};

}  // namespace mxfa
