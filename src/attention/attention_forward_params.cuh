// Parameters of the attention_fwd kernels: twin of AttentionForwardParams in
// runtime/host/kernel_abi.hpp, which says what each field means.
#pragma once
#include "ptx/types.cuh"

namespace mxfa {

struct AttentionForwardParams {
  TensorMap q, k, v, o;
  uint64_t scales_q, scales_k, scales_v;
  uint64_t tiles;
  uint64_t offsets_q, offsets_k;
  uint64_t scale_offsets_q, scale_offsets_k;
  uint64_t lse;
  int64_t rows_o;
  int32_t tile_count;
  int32_t heads_q, heads_kv;
  int32_t scale_tiles_q, scale_tiles_k;
  float scale_log2;
  int32_t window_left, window_right;
  int32_t broadcast_q;
  int32_t device_batch;
  uint64_t counters;
};

}  // namespace mxfa
