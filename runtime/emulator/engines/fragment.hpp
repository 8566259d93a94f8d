// Register fragments of the warp-level and warpgroup-level MMAs (PTX ISA 9.7.14.5, 9.7.15.5), one warp's 16
// rows. With g = lane / 4 and q = lane % 4:
//   D, f32 or s32: register i is row g + 8 * ((i >> 1) & 1), column 8 * (i >> 2) + 2 * q + (i & 1)
//   D, f16: register j holds elements i = 2 * j (low half) and 2 * j + 1
//   A, any type of 32 bytes a row: register j is row g + 8 * (j & 1), bytes 4 * q + 16 * (j >> 1) and the
//   next three B, the same: register j is column g, bytes 4 * q + 16 * j
#pragma once

#include <cstdint>
#include <span>

#include "core/machine.hpp"

namespace mxfa::emulator {

// Between registers and columns: word(row, column) = words[column * pitch + row]; an f16 takes the low half
// of a word.
void gather_fragment(std::span<const Row* const> registers, bool f16, uint32_t* words, uint32_t pitch);
void scatter_fragment(const uint32_t* words, uint32_t pitch, bool f16, std::span<Row* const> registers);

// raw[row * 32 + byte] of 16 rows of A; the number of registers (4, or 2 and 1 for rows of 16 bytes; then the
// rest of a row is zero) says how much of a row there is.
void gather_a(std::span<const Row* const> registers, uint8_t* raw);
void gather_b(std::span<const Row* const> registers, uint8_t* raw);  // 8 columns, 2 or 1 registers

}  // namespace mxfa::emulator
