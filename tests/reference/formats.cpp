// Number formats: encoding by scaling to an integer significand, rounding that to nearest even (the default
// rounding of nearbyint) and letting a carry move into the exponent.
#include "reference/formats.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace mxfa::reference {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Magnitude -> code of a format with `mantissa_bits`, smallest normal exponent `min_exponent`, without its
// special values.  Subnormals and normals share the step at the smallest exponent, so one formula covers
// both.
uint32_t encode_magnitude(double magnitude, int mantissa_bits, int min_exponent) {
  if (magnitude == 0) return 0;
  const int exponent = std::max(std::ilogb(magnitude), min_exponent);
  const auto significand =
      static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent)));
  return (static_cast<uint32_t>(exponent - min_exponent) << mantissa_bits) + significand;
}

double decode_magnitude(uint32_t code, int mantissa_bits, int min_exponent) {
  const uint32_t mantissa = code & ((1u << mantissa_bits) - 1);
  const int biased = static_cast<int>(code >> mantissa_bits);
  if (biased == 0) return std::ldexp(mantissa, min_exponent - mantissa_bits);
  return std::ldexp(mantissa + (1u << mantissa_bits), biased - 1 + min_exponent - mantissa_bits);
}

constexpr int kBf16MantissaBits = 7, kBf16MinExponent = -126;
constexpr int kE4m3MantissaBits = 3, kE4m3MinExponent = -6;

}  // namespace

double bf16_to_double(uint16_t bits) {
  const uint32_t code = bits & 0x7fffu;
  const double sign = bits & 0x8000u ? -1.0 : 1.0;
  if (code > 0x7f80u) return kNan;
  if (code == 0x7f80u) return sign * std::numeric_limits<double>::infinity();
  return sign * decode_magnitude(code, kBf16MantissaBits, kBf16MinExponent);
}

uint16_t bf16_from_double(double value) {
  if (std::isnan(value)) return kBf16Nan;
  const uint32_t sign = std::signbit(value) ? 0x8000u : 0u;
  // Past the largest finite number by a whole step: infinity, without overflowing the integer significand.
  const double magnitude = std::min(std::fabs(value), 0x1p128);
  const uint32_t code = encode_magnitude(magnitude, kBf16MantissaBits, kBf16MinExponent);
  return static_cast<uint16_t>(sign | std::min(code, 0x7f80u));
}

double round_to_bf16(double value) { return bf16_to_double(bf16_from_double(value)); }

double e4m3_to_double(uint8_t bits) {
  const uint32_t code = bits & 0x7fu;
  if (code == 0x7fu) return kNan;
  return (bits & 0x80u ? -1.0 : 1.0) * decode_magnitude(code, kE4m3MantissaBits, kE4m3MinExponent);
}

uint8_t e4m3_from_double(double value) {
  if (std::isnan(value)) return kE4m3Nan;
  const uint32_t sign = std::signbit(value) ? 0x80u : 0u;
  const double magnitude = std::min(std::fabs(value), kE4m3Max);
  return static_cast<uint8_t>(sign | encode_magnitude(magnitude, kE4m3MantissaBits, kE4m3MinExponent));
}

double round_to_e4m3(double value) { return e4m3_to_double(e4m3_from_double(value)); }

double ue8m0_to_double(uint8_t bits) { return bits == 0xff ? kNan : std::ldexp(1.0, bits - 127); }

std::vector<double> bf16_to_double(std::span<const uint16_t> bits) {
  std::vector<double> values(bits.size());
  std::transform(bits.begin(), bits.end(), values.begin(), [](uint16_t b) { return bf16_to_double(b); });
  return values;
}

std::vector<uint16_t> bf16_from_double(std::span<const double> values) {
  std::vector<uint16_t> bits(values.size());
  std::transform(values.begin(), values.end(), bits.begin(), [](double v) { return bf16_from_double(v); });
  return bits;
}

}  // namespace mxfa::reference
