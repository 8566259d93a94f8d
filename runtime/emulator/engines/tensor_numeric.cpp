// The fused sum of tensor_numeric.hpp: decoding, integer reference, and the plain FP32 mode.
#include "engines/tensor_numeric.hpp"

#include <cuda.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "engines/small_floats.hpp"

namespace mxfa::emulator {
namespace {

constexpr int kMinExponentF16 = -21;
constexpr uint16_t kNanF16 = 0x7fff;

// The formats of MX below a byte: no infinity, no NaN, the exponent of 1 in the middle of its range.
float small_float(uint32_t raw, int exponent_bits, int mantissa_bits) {
  const uint32_t mantissa = raw & ((1u << mantissa_bits) - 1),
                 exponent = raw >> mantissa_bits & ((1u << exponent_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const float magnitude = std::ldexp(static_cast<float>(exponent ? mantissa | 1u << mantissa_bits : mantissa),
                                     std::max<int>(static_cast<int>(exponent), 1) - bias - mantissa_bits);
  return raw >> (exponent_bits + mantissa_bits) & 1 ? -magnitude : magnitude;
}

float value_of(Format format, uint32_t raw) {
  switch (format) {
    case Format::F16:
      return f16_to_float(static_cast<uint16_t>(raw));
    case Format::BF16:
      return bf16_to_float(static_cast<uint16_t>(raw));
    case Format::TF32:
      return std::bit_cast<float>(raw & 0xffffe000);  // the low 13 bits of the container are ignored
    case Format::E5M2:
      return f16_to_float(static_cast<uint16_t>(raw << 8));  // e5m2 is the upper half of an f16
    case Format::E4M3: {
      if ((raw & 0x7f) == 0x7f) return std::bit_cast<float>(kCanonicalNan);
      const float magnitude = f16_to_float(static_cast<uint16_t>((raw & 0x7f) << 7)) * 256.0f;  // 2^(15 - 7)
      return raw & 0x80 ? -magnitude : magnitude;
    }
    case Format::E2M3:
      return small_float(raw, 2, 3);
    case Format::E3M2:
      return small_float(raw, 3, 2);
    case Format::E2M1:
      return small_float(raw, 2, 1);
    default:
      return 0;
  }
}

uint32_t element(const uint8_t* raw, int bytes, size_t index) {
  if (bytes == 1) return raw[index];
  if (bytes == 2) {
    uint16_t x;
    std::memcpy(&x, raw + 2 * index, 2);
    return x;
  }
  uint32_t x;
  std::memcpy(&x, raw + 4 * index, 4);
  return x;
}

int32_t integer_of(Format format, uint8_t raw) {
  return format == Format::S8 ? static_cast<int8_t>(raw) : raw;
}

// Sum * 2^exponent as f32 with this many fractional bits, truncated toward zero; subnormals are kept,
// overflow is infinity.
uint32_t truncate_f32(int64_t sum, int exponent, int fraction) {
  if (sum == 0) return 0;
  const uint32_t sign = sum < 0 ? 0x80000000u : 0;
  uint64_t magnitude = sum < 0 ? static_cast<uint64_t>(-sum) : static_cast<uint64_t>(sum);
  const int top = 63 - std::countl_zero(magnitude) + exponent;  // exponent of the leading bit
  if (top > 127) return sign | 0x7f800000;
  const int quantum = std::max(top, -126) - fraction, shift = quantum - exponent;
  magnitude = shift >= 64 ? 0 : shift >= 0 ? magnitude >> shift : magnitude << -shift;
  magnitude <<= 23 - fraction;
  // The leading bit of a normal number adds one to the exponent field by itself.
  const uint32_t field = top >= -126 ? static_cast<uint32_t>(top + 126) << 23 : 0;
  return sign | (field + static_cast<uint32_t>(magnitude));
}

uint16_t round_f16(int64_t sum, int exponent) {
  if (sum == 0) return 0;
  const uint16_t sign = sum < 0 ? 0x8000 : 0;
  const uint64_t magnitude = sum < 0 ? static_cast<uint64_t>(-sum) : static_cast<uint64_t>(sum);
  const int top = 63 - std::countl_zero(magnitude) + exponent;
  const int quantum = std::max(top - 10, -24), shift = quantum - exponent;
  if (top > 16) return sign | 0x7c00;
  uint64_t kept = magnitude;
  if (shift > 0) {
    kept = shift >= 64 ? 0 : magnitude >> shift;
    const uint64_t rest = shift >= 64 ? magnitude : magnitude & ((1ull << shift) - 1);
    const uint64_t half = shift > 64 ? ~0ull : 1ull << (shift - 1);
    if (rest > half || (rest == half && (kept & 1))) ++kept;
  } else {
    kept = magnitude << -shift;
  }
  const uint64_t field = top >= -14 ? static_cast<uint64_t>(top + 14) << 10 : 0;
  const uint64_t result = field + kept;
  if (result == 0) return 0;  // rounded away: no negative zero
  return static_cast<uint16_t>(sign | std::min<uint64_t>(result, 0x7c00));
}

struct Term {
  int64_t significand = 0;  // value = significand * 2^lsb
  int lsb = 0, exponent = 0;
};

// A finite float as integer times power of two.
void split(float x, int64_t* significand, int* lsb) {
  const uint32_t u = std::bit_cast<uint32_t>(x), field = u >> 23 & 255;
  const int64_t magnitude = field ? (u & 0x7fffff) | 0x800000 : u & 0x7fffff;
  *significand = u >> 31 ? -magnitude : magnitude;
  *lsb = std::max<int>(static_cast<int>(field), 1) - 150;
}

int64_t aligned(const Term& term, int e, int fraction_bits) {
  const int shift = term.lsb + fraction_bits - e;
  const int64_t magnitude = term.significand < 0 ? -term.significand : term.significand;
  const int64_t t = shift >= 0 ? magnitude << shift : shift <= -63 ? 0 : magnitude >> -shift;
  return term.significand < 0 ? -t : t;
}

}  // namespace

Numerics numerics_from_environment() {
  const char* text = std::getenv("MXFA_EMU_MMA");
  const std::string_view mode = text ? text : "";
  if (mode.empty() || mode == "exact") return Numerics::Exact;
  if (mode == "f32") return Numerics::F32;
  throw Fault(CUDA_ERROR_INVALID_VALUE, fmt::format("MXFA_EMU_MMA={}: exact and f32 exist", mode));
}

void decode_run(Format format, bool negate, const uint8_t* raw, int count, float* value, int8_t* narrow,
                int16_t* wide, uint16_t* nan, uint16_t* inf) {
  if (decode_run_avx512(format, negate, raw, count, value, narrow, wide, nan, inf)) return;
  const int bytes = format_bits(format) / 8;
  for (int i = 0; i < count; ++i) {
    const float x = value_of(format, element(raw, bytes, static_cast<size_t>(i)));
    const uint32_t magnitude = std::bit_cast<uint32_t>(x) & 0x7fffffff;
    // Subnormals of the format keep its smallest exponent.
    const int exponent = std::max(static_cast<int>(magnitude >> 23) - 127, min_exponent(format));
    const bool real = magnitude != 0 && magnitude < 0x7f800000;
    value[i] = negate ? -x : x;
    if (is_narrow(format))
      narrow[i] = static_cast<int8_t>(real ? exponent : kZero8);
    else
      wide[i] = static_cast<int16_t>(real ? exponent : kZero16);
    nan[i / 16] = static_cast<uint16_t>(nan[i / 16] | (magnitude > 0x7f800000) << (i % 16));
    inf[i / 16] = static_cast<uint16_t>(inf[i / 16] | (magnitude == 0x7f800000) << (i % 16));
  }
}

void decode_a(Operands& o, Format format, bool negate, const uint8_t* raw) {
  const int stride = Operands::kM * format_bits(format) / 8;
  if (format == Format::U8 || format == Format::S8) {
    for (int k = 0; k < o.k; ++k)
      for (int i = 0; i < o.m; ++i) o.a_int[k][i] = integer_of(format, raw[k * stride + i]);
    return;
  }
  o.narrow = is_narrow(format);
  std::memset(o.a_nan, 0, sizeof(o.a_nan));
  std::memset(o.a_inf, 0, sizeof(o.a_inf));
  std::memset(o.a_scale, 0, sizeof(o.a_scale));
  for (int k = 0; k < o.k; ++k)
    decode_run(format, negate, raw + k * stride, o.m, o.a[k], o.a_exponent8[k], o.a_exponent16[k], o.a_nan,
               o.a_inf);
}

void decode_b(Operands& o, Format format, bool negate, const uint8_t* raw) {
  if (format == Format::U8 || format == Format::S8) {
    for (int j = 0; j < o.n; ++j)
      for (int k = 0; k < o.k; ++k) o.b_int[j][k] = integer_of(format, raw[j * 32 + k]);
    return;
  }
  std::memset(o.b_scale, 0, sizeof(o.b_scale));
  for (int j = 0; j < o.n; ++j) {
    uint16_t nan[2] = {}, inf[2] = {};
    decode_run(format, negate, raw + j * 32, o.k, o.b[j], o.b_exponent8[j], o.b_exponent16[j], nan, inf);
    o.b_nan[j] = (nan[0] | nan[1]) != 0;
    o.b_inf[j] = (inf[0] | inf[1]) != 0;
  }
}

uint32_t fused_sum_reference(const Operands& o, int row, int column, bool accumulate, uint32_t c,
                             int scale_exponent, bool f16, int fraction_bits) {
  Term terms[Operands::kK + 1];
  int count = 0;
  bool nan = o.a_nan_at(row) || o.b_nan[column], plus = false, minus = false;
  const auto infinite = [&](bool negative) { (negative ? minus : plus) = true; };
  const int scale = o.a_scale[row] + o.b_scale[column];
  for (int k = 0; k < o.k && !nan; ++k) {
    const float a = o.a[k][row], b = o.b[column][k];
    if (std::isinf(a) || std::isinf(b)) {
      if (a == 0 || b == 0) nan = true;
      infinite(std::signbit(a) != std::signbit(b));
      continue;
    }
    if (a == 0 || b == 0) continue;
    Term& term = terms[count++];
    int64_t sa, sb;
    int la, lb;
    split(a, &sa, &la);
    split(b, &sb, &lb);
    term.significand = sa * sb;
    term.lsb = la + lb + scale;
    term.exponent = scale + (o.narrow ? o.a_exponent8[k][row] + o.b_exponent8[column][k]
                                      : o.a_exponent16[k][row] + o.b_exponent16[column][k]);
  }
  if (accumulate) {
    const float value = f16 ? f16_to_float(static_cast<uint16_t>(c)) : std::bit_cast<float>(c);
    if (std::isnan(value)) nan = true;
    if (std::isinf(value)) infinite(value < 0);
    if (std::isfinite(value) && value != 0) {
      Term& term = terms[count++];
      split(value, &term.significand, &term.lsb);
      term.exponent = f16 ? std::max<int>(c >> 10 & 31, 1) - 15 : std::max<int>(c >> 23 & 255, 1) - 127;
      term.lsb -= scale_exponent;
      term.exponent -= scale_exponent;
    }
  }
  if (nan || (plus && minus)) return f16 ? kNanF16 : kCanonicalNan;
  if (plus || minus) return f16 ? (minus ? 0xfc00 : 0x7c00) : (minus ? 0xff800000 : 0x7f800000);
  int e = f16 ? kMinExponentF16 : kMinExponent;
  for (int i = 0; i < count; ++i) e = std::max(e, terms[i].exponent);
  int64_t sum = 0;
  for (int i = 0; i < count; ++i) sum += aligned(terms[i], e, fraction_bits);
  return f16 ? round_f16(sum, e - fraction_bits)
             : truncate_f32(sum, e - fraction_bits, std::min(fraction_bits, 23));
}

void fused_sums_reference(const Operands& o, const Accumulator& d, int column, int group, uint16_t rows) {
  uint32_t* words = d.words(column, group);
  for (int r = 0; r < 16; ++r)
    if (rows >> r & 1)
      words[r] = fused_sum_reference(o, group * 16 + r, column, d.accumulate, words[r], d.scale_exponent,
                                     d.f16, d.fraction_bits());
}

namespace {

// The plain mode: products and sums in f32, k ascending, round to nearest; C is added last.
void sums_f32(const Operands& o, const Accumulator& d) {
  for (int j = 0; j < o.n; ++j)
    for (int group = 0; group < o.m / 16; ++group) {
      alignas(64) float sum[16] = {};
      for (int k = 0; k < o.k; ++k)
        for (int r = 0; r < 16; ++r) sum[r] += o.a[k][group * 16 + r] * o.b[j][k];
      uint32_t* words = d.words(j, group);
      for (int r = 0; r < 16; ++r) {
        const int row = group * 16 + r;
        if (!(d.enabled[static_cast<size_t>(group)] >> r & 1)) continue;
        double value =
            o.a_nan_at(row) || o.b_nan[j] ? std::nan("") : std::ldexp(sum[r], o.a_scale[row] + o.b_scale[j]);
        if (d.accumulate)
          value += std::ldexp(
              d.f16 ? f16_to_float(static_cast<uint16_t>(words[r])) : std::bit_cast<float>(words[r]),
              -d.scale_exponent);
        const auto result = static_cast<float>(value);
        words[r] = d.f16                ? float_to_f16(result)
                   : std::isnan(result) ? kCanonicalNan
                                        : std::bit_cast<uint32_t>(result);
      }
    }
}

}  // namespace

void fused_sums(const Operands& o, const Accumulator& d, Numerics numerics) {
  if (numerics == Numerics::F32) return sums_f32(o, d);
  if (fused_sums_avx512(o, d)) return;
  for (int j = 0; j < o.n; ++j)
    for (int group = 0; group < o.m / 16; ++group)
      fused_sums_reference(o, d, j, group, d.enabled[static_cast<size_t>(group)]);
}

namespace {

// Twice the values of E2M1.
constexpr int8_t kTwiceE2M1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
constexpr int kPackedFraction = 35;

// A scale as significand * 2^-3 * 2^exponent; false: NaN.
bool split_scale(uint8_t raw, bool ue4m3, int64_t* significand, int* exponent) {
  if (!ue4m3) {
    *significand = 8, *exponent = raw - 127;
    return raw != 0xff;
  }
  const int field = raw >> 3 & 15;
  *significand = field ? 8 | (raw & 7) : raw & 7;
  *exponent = std::max(field, 1) - 7;
  return (raw & 0x7f) != 0x7f;
}

uint32_t packed_sum(const PackedOperands& o, int row, int column, bool accumulate, uint32_t c) {
  Term terms[5];
  int count = 0;
  for (int group = 0; group < 4; ++group) {
    const uint8_t *a = o.a + row * 32 + group * 8, *b = o.b + column * 32 + group * 8;
    int32_t sum = 0;  // of 16 products, times 4
    for (int k = 0; k < 8; ++k)
      sum += kTwiceE2M1[a[k] & 15] * kTwiceE2M1[b[k] & 15] + kTwiceE2M1[a[k] >> 4] * kTwiceE2M1[b[k] >> 4];
    const auto block = static_cast<size_t>(group * o.blocks / 4);
    int64_t sa, sb;
    int ea, eb;
    if (!split_scale(o.a_scale[static_cast<size_t>(row)][block], o.ue4m3, &sa, &ea) ||
        !split_scale(o.b_scale[static_cast<size_t>(column)][block], o.ue4m3, &sb, &eb))
      return kCanonicalNan;
    if (sum == 0 || sa == 0 || sb == 0) continue;
    if (o.negate) sum = -sum;
    terms[count++] = {sum * sa * sb, ea + eb - 8, ea + eb};
  }
  if (accumulate) {
    const float value = std::bit_cast<float>(c);
    if (std::isnan(value)) return kCanonicalNan;
    if (std::isinf(value)) return c;
    if (value != 0) {
      Term& term = terms[count++];
      split(value, &term.significand, &term.lsb);
      term.exponent = std::max<int>(c >> 23 & 255, 1) - 127;
    }
  }
  int e = kMinExponent - 127;  // two scales of 2^-127 are below every f32
  for (int i = 0; i < count; ++i) e = std::max(e, terms[i].exponent);
  int64_t sum = 0;
  for (int i = 0; i < count; ++i) sum += aligned(terms[i], e, kPackedFraction);
  return truncate_f32(sum, e - kPackedFraction, 23);
}

}  // namespace

void packed_sums(const PackedOperands& o, const Accumulator& d) {
  for (int j = 0; j < o.n; ++j)
    for (int group = 0; group < o.m / 16; ++group) {
      uint32_t* words = d.words(j, group);
      for (int r = 0; r < 16; ++r)
        if (d.enabled[static_cast<size_t>(group)] >> r & 1)
          words[r] = packed_sum(o, group * 16 + r, j, d.accumulate, words[r]);
    }
}

void integer_sums(const Operands& o, const Accumulator& d, bool saturate) {
  for (int j = 0; j < o.n; ++j)
    for (int group = 0; group < o.m / 16; ++group) {
      alignas(64) int32_t sum[16] = {};  // 32 products of 8 bits cannot overflow
      for (int k = 0; k < o.k; ++k)
        for (int r = 0; r < 16; ++r) sum[r] += o.a_int[k][group * 16 + r] * o.b_int[j][k];
      uint32_t* words = d.words(j, group);
      for (int r = 0; r < 16; ++r) {
        if (!(d.enabled[static_cast<size_t>(group)] >> r & 1)) continue;
        int64_t value = sum[r];
        if (d.accumulate) value += static_cast<int32_t>(words[r]);
        if (saturate) value = std::clamp<int64_t>(value, INT32_MIN, INT32_MAX);
        words[r] = static_cast<uint32_t>(value);
      }
    }
}

}  // namespace mxfa::emulator
