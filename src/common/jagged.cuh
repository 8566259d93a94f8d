// Jagged batches: sequences packed one after the other, and how a tile names rows of one of them.
//
// Offsets are int32[batch + 1], first 0, non-decreasing.  A ragged tensor map has two extra dimensions that
// cancel a shift of the row coordinate modulo 2^64, so that rows at or beyond the end of the sequence are out
// of bounds for the copy engine: loads give zeros, stores write nothing (coordinates (d, head, kRaggedShift -
// length + row, kRaggedShift, first + length)).
#pragma once
#include "ptx/ld_st.cuh"
#include "ptx/types.cuh"

namespace mxfa {

inline constexpr int32_t kRaggedShift = 1 << 30;

struct Sequence {
  int32_t first;  // row of its first token in the packed tensor
  int32_t length;
};

MXFA_DEVICE Sequence load_sequence(const int32_t* offsets, int32_t batch) {
  const int32_t first = ptx::ld_global_s32(offsets + batch);
  return {first, ptx::ld_global_s32(offsets + batch + 1) - first};
}

// The last three coordinates of a ragged map for row `row` of the sequence.
struct RaggedRow {
  int32_t row, shift, end;
};

MXFA_DEVICE RaggedRow ragged_row(Sequence sequence, int32_t row) {
  return {kRaggedShift - sequence.length + row, kRaggedShift, sequence.first + sequence.length};
}

// The sequence b with offsets[b] <= position < offsets[b + 1], by bisection; empty sequences are never found.
// The caller guarantees 0 <= position < offsets[batch].
MXFA_DEVICE int32_t find_sequence(const int32_t* offsets, int32_t batch, int32_t position) {
  int32_t low = 0, high = batch;  // offsets[low] <= position < offsets[high]
  while (high - low > 1) {
    const int32_t middle = (low + high) / 2;
    if (ptx::ld_global_s32(offsets + middle) <= position) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace mxfa
