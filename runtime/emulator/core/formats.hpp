// Bit-exact conversions between number formats, one value at a time (PTX ISA 5.2.3, 9.7.9.21).
// e4m3: bias 7, no infinity, NaN 0x7f, largest 448.  e5m2: bias 15, IEEE-like, largest 57344.  ue8m0:
// 2^(x-127), NaN 0xff.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace mxfa::emulator {

inline constexpr uint32_t kNan32 = 0x7fffffffu;  // what NVIDIA devices produce for every single-precision NaN
inline constexpr uint64_t kNan64 = 0x7ff8000000000000ull;

inline float flush(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>((u & 0x7f800000u) == 0 ? u & 0x80000000u : u);
}
inline float canonical(float x) { return x == x ? x : std::bit_cast<float>(kNan32); }
inline double canonical(double x) { return x == x ? x : std::bit_cast<double>(kNan64); }

// Double precision passes the payload of a NaN on, made quiet; where several operands are NaN, the first of
// those named here decides.  An invalid operation gives 0xfff8000000000000.  (An H200's answers;
// tests/silicon.)
inline double quiet(double x) {
  return std::bit_cast<double>(std::bit_cast<uint64_t>(x) | 0x0008000000000000ull);
}
inline double with_nan(double result, double first, double second = 0, double third = 0) {
  if (result == result) return result;
  for (const double x : {first, second, third})
    if (x != x) return quiet(x);
  return std::bit_cast<double>(0xfff8000000000000ull);
}

inline float bf16_to_f32(uint16_t x) { return std::bit_cast<float>(static_cast<uint32_t>(x) << 16); }

inline float f16_to_f32(uint16_t x) {
  const uint32_t sign = static_cast<uint32_t>(x & 0x8000) << 16, magnitude = x & 0x7fff;
  // Scaling by 2^112 turns the f16 exponent into the f32 one, subnormals included.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  const uint32_t special = 0x7f800000u | magnitude << 13;
  return std::bit_cast<float>(sign | (magnitude >= 0x7c00 ? special : std::bit_cast<uint32_t>(scaled)));
}

// Round to nearest even.
inline uint16_t f32_to_bf16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
  return static_cast<uint16_t>((u & 0x7fffffff) > 0x7f800000 ? 0x7fff : rounded);
}

// Any float format of up to 32 bits from a double, in any rounding: magnitudes on the format's grid.
struct SmallFormat {
  int exponent_bits, mantissa_bits, bias;
  uint32_t max_finite;  // magnitude bits of the largest finite value
  uint32_t infinity;    // magnitude bits of infinity; = max_finite when there is none
  uint32_t nan;
};
inline constexpr SmallFormat kF16{5, 10, 15, 0x7bff, 0x7c00, 0x7fff};
inline constexpr SmallFormat kBF16{8, 7, 127, 0x7f7f, 0x7f80, 0x7fff};
inline constexpr SmallFormat kTF32{8,       10,     127, 0x3fbff,
                                   0x3fc00, 0x3ffff};  // as 19 bits; shifted left by 13 in its container
inline constexpr SmallFormat kE4M3{4, 3, 7, 0x7e, 0x7e, 0x7f};
inline constexpr SmallFormat kE5M2{5, 2, 15, 0x7b, 0x7c, 0x7f};
inline constexpr SmallFormat kE2M1{2, 1, 1, 0x7, 0x7, 0x7};
inline constexpr SmallFormat kE2M3{2, 3, 1, 0x1f, 0x1f, 0x1f};
inline constexpr SmallFormat kE3M2{3, 2, 3, 0x1f, 0x1f, 0x1f};

enum class Rounding : uint8_t { NearestEven, Zero, Down, Up, NearestAway };

// Bits of the value including the sign.  satfinite: overflow and infinity become the largest finite value.
inline uint32_t to_small(double x, const SmallFormat& f, Rounding rounding, bool satfinite) {
  const int width = f.exponent_bits + f.mantissa_bits;
  const uint64_t raw = std::bit_cast<uint64_t>(x);
  const uint32_t sign = static_cast<uint32_t>(raw >> 63) << width;
  const uint64_t magnitude = raw & 0x7fffffffffffffffull;
  if (magnitude > 0x7ff0000000000000ull) return f.nan;
  const uint32_t overflow = satfinite ? f.max_finite : f.infinity;
  if (magnitude == 0x7ff0000000000000ull) return sign | overflow;
  if (magnitude == 0) return sign;
  int exponent = static_cast<int>(magnitude >> 52) - 1023;
  uint64_t significand = (magnitude & 0xfffffffffffffull) | (magnitude >> 52 ? 0x10000000000000ull : 0);
  if (magnitude >> 52 == 0) exponent = -1022;
  const int minimum = 1 - f.bias;  // exponent of the smallest normal value
  const int drop = 52 - f.mantissa_bits + (exponent < minimum ? minimum - exponent : 0);
  uint64_t kept, rest, half;
  if (drop > 54)
    kept = 0, rest = 1, half = 2;  // below half of the smallest subnormal
  else
    kept = significand >> drop, rest = significand & ((uint64_t{1} << drop) - 1),
    half = uint64_t{1} << (drop - 1);
  bool up = false;
  switch (rounding) {
    case Rounding::NearestEven:
      up = rest > half || (rest == half && (kept & 1));
      break;
    case Rounding::NearestAway:
      up = rest >= half;
      break;
    case Rounding::Zero:
      break;
    case Rounding::Down:
      up = sign && rest;
      break;
    case Rounding::Up:
      up = !sign && rest;
      break;
  }
  kept += up;
  // The hidden bit of `kept` carries into the exponent field by itself.
  const uint64_t field = exponent < minimum ? 0 : static_cast<uint64_t>(exponent - minimum);
  const uint64_t result = (field << f.mantissa_bits) + kept;
  if (result > f.max_finite) {
    const bool toward_zero = rounding == Rounding::Zero || (rounding == Rounding::Down && !sign) ||
                             (rounding == Rounding::Up && sign);
    return sign | (toward_zero ? f.max_finite : overflow);
  }
  return sign | static_cast<uint32_t>(result);
}

inline double from_small(uint32_t bits, const SmallFormat& f) {
  const int width = f.exponent_bits + f.mantissa_bits;
  const bool negative = bits >> width & 1;
  const uint32_t magnitude = bits & ((1u << width) - 1);
  if (f.infinity != f.max_finite && magnitude == f.infinity) return negative ? -HUGE_VAL : HUGE_VAL;
  if (magnitude > f.max_finite) return std::bit_cast<double>(kNan64);
  const uint32_t exponent = magnitude >> f.mantissa_bits,
                 mantissa = magnitude & ((1u << f.mantissa_bits) - 1);
  const double value = exponent == 0 ? std::ldexp(mantissa, 1 - f.bias - f.mantissa_bits)
                                     : std::ldexp(mantissa + (1u << f.mantissa_bits),
                                                  static_cast<int>(exponent) - f.bias - f.mantissa_bits);
  return negative ? -value : value;
}

// Rounds a double sum to odd: the low bit records that the exact value lies beyond it, so that one later
// rounding is exact. `error` is the exact remainder of the sum.
inline double round_to_odd(double sum, double error) {
  if (error == 0 || !(std::fabs(sum) < HUGE_VAL)) return sum;
  uint64_t raw = std::bit_cast<uint64_t>(sum);
  if (raw & 1) return sum;
  const bool away = (error > 0) == (sum > 0);
  raw = away ? raw + 1 : raw - 1;
  return std::bit_cast<double>(raw);
}
// a * b + c for operands whose product is exact in double.
inline double fma_to_odd(double a, double b, double c) {
  const double p = a * b, s = p + c;
  if (!(std::fabs(s) < HUGE_VAL)) return s;
  const double bb = s - p, error = (p - (s - bb)) + (c - bb);
  return round_to_odd(s, error);
}

}  // namespace mxfa::emulator
