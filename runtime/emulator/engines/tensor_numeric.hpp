// Arithmetic of one tensor-core instruction.  The model is the public bit-exact one (microsoft/MMA-Sim;
// north-numerical-computing's B200 model): all products of an instruction and the accumulator form one sum
// whose terms are aligned to the largest exponent E and truncated toward zero at F = 25 fractional bits; the
// exact integer sum is then truncated to f32 (rounded to nearest even for f16):
//   D = round(2^(E-F) * sum over terms of trunc(term * 2^(F-E)))
// The 8-bit floats of Hopper's wgmma are the exception: F = 13, and an f32 result keeps 13 fractional bits
// too. An exponent is that of the un-normalised product (sum of the operands' exponents, subnormals at their
// format's minimum, plus the scale exponents); zero terms take no part in the maximum; E is at least -133
// (f16 result: -21).  Any NaN, or infinities of both signs, give the canonical NaN; the result of an exact
// zero sum is +0.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "engines/matrix_descriptor.hpp"

namespace mxfa::emulator {

inline constexpr int kFractionBits = 25, kShortFractionBits = 13, kMinExponent = -133;
inline constexpr uint32_t kCanonicalNan = 0x7fffffff;

// Exponents of zero elements: far below the sum of two real ones, also after adding the partner's.  A sum
// below kNone belongs to a zero product; real ones are at least -28 (8-bit formats and f16) or -252.
inline constexpr int kZero8 = -64, kZero16 = -8192, kNone8 = -40, kNone16 = -4000;

enum class Numerics { Exact, F32 };
// MXFA_EMU_MMA = exact (default) | f32, read at each instruction.
Numerics numerics_from_environment();

// Operands of one instruction, decoded.  A is stored with rows along the fast axis, as D's lanes are; B along
// K.
struct Operands {
  static constexpr int kM = 128, kN = 256, kK = 32;
  int m = 0, n = 0, k = 0;
  bool narrow = false;  // exponents fit 8 bits: 8-bit formats and f16
  alignas(64) float a[kK][kM];
  alignas(64) int8_t a_exponent8[kK][kM];    // narrow
  alignas(64) int16_t a_exponent16[kK][kM];  // otherwise
  alignas(64) float b[kN][kK];
  alignas(64) int8_t b_exponent8[kN][kK];
  alignas(64) int16_t b_exponent16[kN][kK];
  alignas(64) int32_t a_scale[kM], b_scale[kN];  // exponents of block scales, 0 without
  uint16_t a_nan[kM / 16], a_inf[kM / 16];       // a bit per row that holds one (a NaN scale counts)
  uint8_t b_nan[kN], b_inf[kN];
  alignas(64) int32_t a_int[kK][kM], b_int[kN][kK];  // i8
  bool a_nan_at(int row) const { return a_nan[row / 16] >> (row % 16) & 1; }
};

inline bool is_narrow(Format f) {
  return f == Format::E4M3 || f == Format::E5M2 || f == Format::F16 || f >= Format::E2M3;
}
inline int min_exponent(Format f) {
  switch (f) {
    case Format::E4M3:
      return -6;
    case Format::E5M2:
    case Format::F16:
      return -14;
    case Format::E3M2:
      return -2;
    case Format::E2M3:
    case Format::E2M1:
      return 0;
    default:
      return -126;
  }
}

// raw operands: a[k][row] and b[column][k], elements of the format's size, k rows of 128 for A and rows of 32
// bytes for B.
void decode_a(Operands& o, Format format, bool negate, const uint8_t* raw);
void decode_b(Operands& o, Format format, bool negate, const uint8_t* raw);

// Where D lives: column j, row i is word d[j * pitch + lane(i)]; 16 consecutive rows are 16 consecutive
// lanes.
struct Accumulator {
  uint32_t* d = nullptr;              // word of lane 0 of the first column
  int pitch = 128;                    // words from column to column: the lanes of tensor memory
  std::array<uint8_t, 8> lane{};      // first lane of each group of 16 rows
  std::array<uint16_t, 8> enabled{};  // rows of the group that are written
  bool accumulate = false;
  int scale_exponent = 0;  // D is taken times 2^-this
  bool f16 = false;
  bool short_sums = false;  // F = 13
  int fraction_bits() const { return short_sums ? kShortFractionBits : kFractionBits; }
  uint32_t* words(int column, int group) const {
    return d + column * pitch + lane[static_cast<size_t>(group)];
  }
};

void fused_sums(const Operands& o, const Accumulator& d, Numerics numerics);
// kind::mxf4 and mxf4nvf4: 64 E2M1 elements a row, the first in the low nibble; 2 or 4 block scales a row,
// bytes of UE8M0 or UE4M3.  Four groups of 16 products are summed exactly, each is multiplied by its scales,
// and the four and the accumulator form the fused sum, with F = 35 and the exponents of the scales.
struct PackedOperands {
  int m = 0, n = 0, blocks = 2;
  bool ue4m3 = false, negate = false;
  const uint8_t *a = nullptr, *b = nullptr;  // 32 bytes a row
  std::array<std::array<uint8_t, 4>, 128> a_scale;
  std::array<std::array<uint8_t, 4>, 256> b_scale;
};
void packed_sums(const PackedOperands& o, const Accumulator& d);

void integer_sums(const Operands& o, const Accumulator& d, bool saturate);

// Decodes `count` consecutive elements: values, exponents (the narrow or the wide row), and a bit per NaN and
// per infinity for every 16.
void decode_run(Format format, bool negate, const uint8_t* raw, int count, float* value, int8_t* narrow,
                int16_t* wide, uint16_t* nan, uint16_t* inf);
bool decode_run_avx512(Format format, bool negate, const uint8_t* raw, int count, float* value,
                       int8_t* narrow, int16_t* wide, uint16_t* nan,
                       uint16_t* inf);  // false: not built in, or the count is not a multiple of 16

// Exact mode with f32 results, 16 or 64 rows at a time; false when the host or the instruction asks for the
// reference.
bool fused_sums_avx512(const Operands& o, const Accumulator& d);

// The chosen rows of a group of 16, element by element in integer arithmetic: what the vector code must agree
// with.
void fused_sums_reference(const Operands& o, const Accumulator& d, int column, int group, uint16_t rows);
uint32_t fused_sum_reference(const Operands& o, int row, int column, bool accumulate, uint32_t c,
                             int scale_exponent, bool f16, int fraction_bits = kFractionBits);

}  // namespace mxfa::emulator
