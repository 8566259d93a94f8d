// Jagged batches: sequences packed one after the other, and how a tile names rows of one of them.
//
// Offsets are int32[batch + 1], first 0, non-decreasing.  A ragged tensor map has two extra dimensions that
// cancel a shift of the row coordinate modulo 2^64, so that rows at or beyond the end of the sequence are out
// of bounds for the copy engine: loads give zeros, stores write nothing (coordinates (d, head, kRaggedShift -
// length + row, kRaggedShift, first + length)).
#pragma once
#include "ptx/ld_st.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/sreg.cuh"
#include "src/common/math.cuh"

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

// Where a row of padded rows lies: in a sequence whose padded rows begin at `start`.
struct PaddedRow {
  Sequence sequence;
  int32_t start;
};

// The sequence b with starts[b] <= position < starts[b + 1]; an empty sequence is never found.  Needs
// 0 <= position < starts[batch]; else the result means nothing, but nothing outside the arrays is read.  All
// 32 lanes of a warp call it: each round the lanes probe 32 evenly spaced candidates, and those of the last
// round fetch what belongs to their candidate as well.  Loads that depend on each other: two for a batch of
// 1024, three for 32768, where bisection and a look at the sequence found would take eleven and sixteen.
MXFA_DEVICE PaddedRow find_padded_row(const int32_t* starts, const int32_t* offsets, int32_t batch,
                                      int32_t position) {
  const int32_t lane = static_cast<int32_t>(ptx::lane_id());
  int32_t low = 0, high = batch;  // starts[low] <= position < starts[high]
  while (high - low > 32) {
    const int32_t step = ceil_div(high - low, 32);
    const int32_t probe = low + lane * step;
    const bool at_or_before = probe < high && ptx::ld_global_s32(starts + probe) <= position;
    // Starts do not decrease, so the lanes that answer yes are the first ones; lane 0 always does.
    low += (__popc(ptx::vote_ballot(at_or_before)) - 1) * step;
    high = min_of(low + step, high);
  }
  const int32_t candidate = low + lane;
  int32_t start = 0, first = 0, end = 0;
  if (candidate < high) {
    start = ptx::ld_global_s32(starts + candidate);
    first = ptx::ld_global_s32(offsets + candidate);
    end = ptx::ld_global_s32(offsets + candidate + 1);
  }
  const uint32_t found = __popc(ptx::vote_ballot(candidate < high && start <= position)) - 1;
  const int32_t found_first = ptx::shfl_idx(first, found);
  return {{found_first, static_cast<int32_t>(ptx::shfl_idx(end, found)) - found_first},
          static_cast<int32_t>(ptx::shfl_idx(start, found))};
}

}  // namespace mxfa
