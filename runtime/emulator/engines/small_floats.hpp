// 16-bit floats in software: conversions to and from float, round to nearest even.
#pragma once

#include <bit>
#include <cstdint>

namespace mxfa::emulator {

inline float bf16_to_float(uint16_t x) { return std::bit_cast<float>(static_cast<uint32_t>(x) << 16); }

inline uint16_t float_to_bf16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return static_cast<uint16_t>((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

inline float f16_to_float(uint16_t x) {
  const uint32_t sign = static_cast<uint32_t>(x & 0x8000) << 16, exponent = (x >> 10) & 31,
                 mantissa = x & 0x3ff;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

inline uint16_t float_to_f16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x), sign = (u >> 16) & 0x8000, magnitude = u & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0x7fff;
  if (magnitude >= 0x477ff000)
    return static_cast<uint16_t>(sign | 0x7c00);                   // 65520 and above round to infinity
  if (magnitude < 0x33000001) return static_cast<uint16_t>(sign);  // 2^-25 and below round to zero
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  uint32_t significand = (magnitude & 0x7fffff) | 0x800000;
  const int drop = exponent >= -14 ? 13 : 13 + (-14 - exponent);  // bits below the f16 grid
  const uint32_t rest = significand & ((1u << drop) - 1), half = 1u << (drop - 1);
  significand >>= drop;
  if (rest > half || (rest == half && (significand & 1))) ++significand;
  // A carry out of the significand moves into the exponent field by itself.
  const uint32_t field = exponent >= -14 ? static_cast<uint32_t>(exponent + 14) << 10 : 0;
  return static_cast<uint16_t>(sign | (field + significand));
}

}  // namespace mxfa::emulator
