// Operands of matrix instructions that are small integers, which every format holds.
#pragma once

#include "one_op.hpp"

namespace mxfa::test {

// -3 .. 3 in a format; unsigned integers take the magnitude.
inline uint32_t encode(const std::string& type, int v) {
  const int magnitude = v < 0 ? -v : v;
  const uint32_t sign = v < 0;
  if (type == "tf32") return bits_of(static_cast<float>(v));
  if (type == "bf16") return bits_of(static_cast<float>(v)) >> 16;
  static const uint16_t f16[] = {0, 0x3c00, 0x4000, 0x4200};
  if (type == "f16") return sign << 15 | f16[magnitude];
  static const uint8_t e4m3[] = {0, 0x38, 0x40, 0x44};
  if (type == "e4m3") return sign << 7 | e4m3[magnitude];
  if (type == "e5m2") return sign << 7 | f16[magnitude] >> 8;
  return static_cast<uint8_t>(type == "u8" ? magnitude : v);
}
inline int decoded(const std::string& type, int v) { return type == "u8" && v < 0 ? -v : v; }
inline uint16_t half(int v) {  // of an integer below 2048
  if (v == 0) return 0;
  const uint32_t b = bits_of(static_cast<float>(v));
  return static_cast<uint16_t>(b >> 16 & 0x8000) |
         static_cast<uint16_t>(((b >> 23 & 255) - 112) << 10 | (b >> 13 & 1023));
}

}  // namespace mxfa::test
