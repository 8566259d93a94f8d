// Integer arithmetic of tiles, and bit views of floating point, usable in constant expressions.
#pragma once
#include "ptx/types.cuh"

namespace mxfa {

template <class T>
MXFA_CONSTEXPR T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

template <class T>
MXFA_CONSTEXPR T round_up(T a, T b) {
  return ceil_div(a, b) * b;
}

template <class T>
MXFA_CONSTEXPR T min_of(T a, T b) {
  return b < a ? b : a;
}

template <class T>
MXFA_CONSTEXPR T max_of(T a, T b) {
  return a < b ? b : a;
}

MXFA_CONSTEXPR uint32_t float_bits(float x) { return __builtin_bit_cast(uint32_t, x); }
MXFA_CONSTEXPR float bits_float(uint32_t x) { return __builtin_bit_cast(float, x); }

// The two BF16 values of a 32-bit word as FP32: exact, the low half is element 0.
MXFA_CONSTEXPR float bf16x2_low(uint32_t pair) { return bits_float(pair << 16); }
MXFA_CONSTEXPR float bf16x2_high(uint32_t pair) { return bits_float(pair & 0xffff0000u); }

inline constexpr float kLog2E = 1.44269504088896340736f;
inline constexpr float kLn2 = 0.69314718055994530942f;

}  // namespace mxfa
