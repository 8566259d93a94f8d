// Number formats of the kernels, bit by bit: BF16, E4M3 ("FN": no infinities) and UE8M0.  Decoding is exact;
// encoding rounds to nearest even from the exact value (a double holds every FP32 and every product of a BF16
// with a power of two exactly), so no intermediate rounding hides.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace mxfa::reference {

inline constexpr double kE4m3Max = 448.0;
// What cvt.rn.satfinite gives for a NaN of either sign; 0xFF decodes to NaN as well.
inline constexpr uint8_t kE4m3Nan = 0x7f;
// What cvt.rn.bf16.f32 gives for any NaN.
inline constexpr uint16_t kBf16Nan = 0x7fff;

double bf16_to_double(uint16_t bits);
uint16_t bf16_from_double(double value);  // to nearest even; overflow to infinity, as cvt.rn.bf16.f32
double round_to_bf16(double value);       // decode(encode(value))

double e4m3_to_double(uint8_t bits);
uint8_t e4m3_from_double(double value);  // to nearest even, saturating at +-448 (infinities too); NaN -> 0x7F
double round_to_e4m3(double value);

double ue8m0_to_double(uint8_t bits);  // 2^(bits-127), there is no zero; 0xFF -> NaN

// Whole arrays.
std::vector<double> bf16_to_double(std::span<const uint16_t> bits);
std::vector<uint16_t> bf16_from_double(std::span<const double> values);

}  // namespace mxfa::reference
