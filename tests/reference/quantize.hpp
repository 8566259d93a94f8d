// The MX quantiser by its definition, on jagged tensors [tokens, heads, head_dim].  For a block of 32 (or
// 32x32) elements:
//   amax = max |x| in FP32, seeded with 0, NaNs ignored;
//   RCEIL: the smallest byte B >= 0 with amax <= 448 * 2^(B-127);
//   FLOOR: B - 127 = floor(log2 amax) - 8, at least -127; amax above 448 * 2^(B-127) is clipped;
//   amax 0 -> B = 0;  amax infinite -> B = 254;
//   payload = E4M3(x * 2^(127-B)), to nearest even, saturating; a NaN element -> 0x7F, its block unharmed.
// Blocks along tokens start with their sequence and end with it (the last may be short); so do the rows of a
// square block.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/scale_layout.hpp"

namespace mxfa::reference {

enum class ScalingMode { kRceil, kFloor };
enum class BlockLayout { kAlongD, kAlongTokens, kSquare };
enum class Orientation { kAlongD, kAlongTokens };  // of a scale tensor; kSquare blocks have both

uint8_t scale_byte(float amax, ScalingMode mode);
// One block on its own: the byte, and the payload of each element.
uint8_t quantize_block(std::span<const float> x, ScalingMode mode, std::span<uint8_t> payload);

struct JaggedShape {
  std::vector<int32_t> offsets;  // batch + 1
  int heads = 0, head_dim = 0;
  int batch() const { return static_cast<int>(offsets.size()) - 1; }
  int64_t tokens() const { return offsets.back(); }
  int64_t elements() const { return tokens() * heads * head_dim; }
};

struct QuantizedTensor {
  JaggedShape shape;
  BlockLayout layout = BlockLayout::kAlongD;
  std::vector<uint8_t> payload;  // [tokens, heads, head_dim]
  // Atoms; empty when the layout does not produce them; padding bytes 0.
  std::vector<uint8_t> scales_d, scales_tokens;
};

// x: [tokens, heads, head_dim], contiguous.
QuantizedTensor quantize(std::span<const float> x, const JaggedShape& shape, BlockLayout layout,
                         ScalingMode mode);
QuantizedTensor quantize_bf16(std::span<const uint16_t> x, const JaggedShape& shape, BlockLayout layout,
                              ScalingMode mode);

// payload * 2^(scale-127), exact.
std::vector<double> dequantize(std::span<const uint8_t> payload, std::span<const uint8_t> scales,
                               Orientation orientation, const JaggedShape& shape);
// From whichever scales the tensor has.
std::vector<double> dequantize(const QuantizedTensor& tensor);

// Sets every byte of a scale tensor that belongs to no element of the tensor (rows past a sequence, columns
// past the head).
void fill_scale_padding(std::span<uint8_t> scales, Orientation orientation, const JaggedShape& shape,
                        uint8_t value);

}  // namespace mxfa::reference
