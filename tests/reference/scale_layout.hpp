// Where the scale factors of a jagged MXFP8 tensor lie: 128x4 atoms of 512 bytes, one per (head, tile of 128
// tokens), each sequence padded to whole tiles.  A tile's atom has the same number in both orientations.
//   along D:      atom row = token in tile, atom column = channel / 32
//   along tokens: atom row = channel,       atom column = token in tile / 32
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace mxfa::reference {

inline constexpr int64_t kAtomRows = 128, kAtomColumns = 4, kAtomBytes = 512;

// Byte of scale (row, column) in the 128x4 tiling of a matrix with `columns` scale columns (cuBLAS "1D block
// scaling factors layout").
int64_t scale_offset(int64_t row, int64_t column, int64_t columns);
// Bytes of that tiling: rows padded to 128, columns to 4.
int64_t scale_bytes(int64_t rows, int64_t columns);

// First scale row of every sequence, and the total at the end: starts[b+1] = starts[b] + 128*ceil(len_b/128).
std::vector<int32_t> scale_starts(std::span<const int32_t> offsets);

// Byte addresses inside the scale tensor of one jagged operand of at most 128 channels.
class JaggedScaleLayout {
 public:
  JaggedScaleLayout(std::span<const int32_t> offsets, int heads);

  int64_t rows() const { return starts_.back(); }       // S
  int64_t tiles() const { return rows() / kAtomRows; }  // atoms of one head
  int64_t bytes() const { return heads_ * rows() * kAtomColumns; }
  std::span<const int32_t> starts() const { return starts_; }

  int64_t along_d(int head, int sequence, int64_t token, int channel_block) const;
  int64_t along_tokens(int head, int sequence, int64_t token_block, int channel) const;

 private:
  std::vector<int32_t> starts_;
  int64_t heads_;
};

}  // namespace mxfa::reference
