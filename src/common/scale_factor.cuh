// MX scale factors: one UE8M0 byte B per block of 32 elements, value 2^(B-127), and where the byte is stored.
// The rule is the same integer arithmetic on host, device and every architecture; no conversion instruction
// is involved.
#pragma once
#include "src/common/math.cuh"

namespace mxfa {

inline constexpr uint32_t kScaleBlock = 32;      // elements that share a scale
inline constexpr uint32_t kScaleAtomRows = 128;  // an atom: 128 rows x 4 blocks, one byte each
inline constexpr uint32_t kScaleAtomBlocks = 4;
inline constexpr uint32_t kScaleAtomBytes = 512;

enum class ScaleRounding { kCeil, kFloor };

// The scale byte of an E4M3 block whose largest magnitude has the FP32 bits `amax` (a number: the caller's
// maximum skips NaN). E4M3 reaches 448 = 1.75 * 2^8.  kCeil: the smallest power of two X with amax <= 448 X,
// that is exponent - 8, one more when the mantissa exceeds 1.75 (0x600000).  kFloor: exponent - 8; up to the
// binade's top it saturates.  Clamped to [0, 254] because 255 is NaN; infinity has exponent 255 but means
// "larger than anything", hence 254.
template <ScaleRounding kRounding>
MXFA_CONSTEXPR uint32_t e4m3_scale_byte(uint32_t amax) {
  const int32_t exponent = static_cast<int32_t>(amax >> 23);
  const bool above = kRounding == ScaleRounding::kCeil && (amax & 0x7fffff) > 0x600000;
  const int32_t byte = max_of(exponent - 8 + static_cast<int32_t>(above), 0);
  return exponent == 255 ? 254u : static_cast<uint32_t>(byte);
}

// 2^(127-B), exactly.  FP32 exponent field 254-B; for B = 254 the value 2^-127 is subnormal.
MXFA_CONSTEXPR float scale_reciprocal(uint32_t byte) {
  return bits_float(byte == 254 ? 0x400000u : (254 - byte) << 23);
}

// Byte of (row, block) inside a 512-byte atom: 16-byte group row%32, in it the word row/32, in it the byte
// block.
MXFA_CONSTEXPR uint32_t scale_atom_byte(uint32_t row, uint32_t block) {
  return (row % 32) * 16 + (row / 32) * 4 + block;
}

}  // namespace mxfa
