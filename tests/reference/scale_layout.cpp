// Scale addresses: the published 128x4 formula, and one atom per tile and head of a jagged operand.
#include "reference/scale_layout.hpp"

namespace mxfa::reference {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

int64_t scale_offset(int64_t row, int64_t column, int64_t columns) {
  const int64_t atom = (row / kAtomRows) * ceil_div(columns, kAtomColumns) + column / kAtomColumns;
  return atom * kAtomBytes + (row % 32) * 16 + (row % kAtomRows) / 32 * 4 + column % kAtomColumns;
}

int64_t scale_bytes(int64_t rows, int64_t columns) {
  return ceil_div(rows, kAtomRows) * ceil_div(columns, kAtomColumns) * kAtomBytes;
}

std::vector<int32_t> scale_starts(std::span<const int32_t> offsets) {
  std::vector<int32_t> starts(offsets.size(), 0);
  for (size_t b = 0; b + 1 < offsets.size(); ++b)
    starts[b + 1] =
        starts[b] + static_cast<int32_t>(ceil_div(offsets[b + 1] - offsets[b], kAtomRows) * kAtomRows);
  return starts;
}

JaggedScaleLayout::JaggedScaleLayout(std::span<const int32_t> offsets, int heads)
    : starts_(scale_starts(offsets)), heads_(heads) {}

// Rows of all heads are stacked, head by head, each head S rows; four scale columns make one atom a row tile.
int64_t JaggedScaleLayout::along_d(int head, int sequence, int64_t token, int channel_block) const {
  return scale_offset(head * rows() + starts_[sequence] + token, channel_block, kAtomColumns);
}

// The transposed matrix of one head has the channels as rows and S/32 scale columns; its S/128 atoms follow
// each other, and the heads are stacked as before.
int64_t JaggedScaleLayout::along_tokens(int head, int sequence, int64_t token_block, int channel) const {
  const int64_t column = starts_[sequence] / 32 + token_block;
  return scale_offset(head * kAtomRows + channel, column, rows() / 32);
}

}  // namespace mxfa::reference
