// The fused sum of tensor_numeric.hpp for 64 (or 16) rows at a time.  Compiled to nothing where the host has
// no AVX-512.
#include "engines/tensor_numeric.hpp"

#ifdef __AVX512BW__

// GCC 12 takes the deliberately undefined operands inside its own intrinsics for uninitialised variables (GCC
// bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

namespace mxfa::emulator {
namespace {

// Largest product exponent of 64 rows, as four vectors of 16.  (Where only 16 rows count, the others are
// computed from whatever the operand rows hold, and ignored.)
inline void product_exponents(const Operands& o, int column, int row, __m512i out[4]) {
  if (o.narrow) {
    __m512i e = _mm512_set1_epi8(-128);
    for (int k = 0; k < o.k; ++k)
      e = _mm512_max_epi8(e, _mm512_add_epi8(_mm512_load_si512(&o.a_exponent8[k][row]),
                                             _mm512_set1_epi8(o.b_exponent8[column][k])));
    out[0] = _mm512_cvtepi8_epi32(_mm512_extracti32x4_epi32(e, 0));
    out[1] = _mm512_cvtepi8_epi32(_mm512_extracti32x4_epi32(e, 1));
    out[2] = _mm512_cvtepi8_epi32(_mm512_extracti32x4_epi32(e, 2));
    out[3] = _mm512_cvtepi8_epi32(_mm512_extracti32x4_epi32(e, 3));
  } else {
    __m512i e0 = _mm512_set1_epi16(-32768), e1 = e0;
    for (int k = 0; k < o.k; ++k) {
      const __m512i b = _mm512_set1_epi16(o.b_exponent16[column][k]);
      e0 = _mm512_max_epi16(e0, _mm512_add_epi16(_mm512_load_si512(&o.a_exponent16[k][row]), b));
      e1 = _mm512_max_epi16(e1, _mm512_add_epi16(_mm512_load_si512(&o.a_exponent16[k][row + 32]), b));
    }
    out[0] = _mm512_cvtepi16_epi32(_mm512_castsi512_si256(e0));
    out[1] = _mm512_cvtepi16_epi32(_mm512_extracti64x4_epi64(e0, 1));
    out[2] = _mm512_cvtepi16_epi32(_mm512_castsi512_si256(e1));
    out[3] = _mm512_cvtepi16_epi32(_mm512_extracti64x4_epi64(e1, 1));
  }
}

// (s0 + s1 + c) * 2^(e - F) for any e, through doubles, which hold the sum exactly; truncated, infinity from
// 2^128 on.
__m512i wide_result(__m512i s0, __m512i s1, __m512i c, __m512i e, int fraction_bits) {
  const auto half = [&](int h) {
    const auto convert = [h](__m512i x) {
      return _mm512_cvtepi32_pd(h ? _mm512_extracti64x4_epi64(x, 1) : _mm512_castsi512_si256(x));
    };
    const __m512d sum = _mm512_add_pd(_mm512_add_pd(convert(s0), convert(s1)), convert(c));
    const __m512i power = _mm512_add_epi32(e, _mm512_set1_epi32(1023 - fraction_bits));
    const __m256i part = h ? _mm512_extracti64x4_epi64(power, 1) : _mm512_castsi512_si256(power);
    const __m512d value =
        _mm512_mul_pd(sum, _mm512_castsi512_pd(_mm512_slli_epi64(_mm512_cvtepi32_epi64(part), 52)));
    const __mmask8 over = _mm512_cmp_pd_mask(_mm512_abs_pd(value), _mm512_set1_pd(0x1p128), _CMP_GE_OQ);
    // A truncating conversion would stop at the largest finite float.
    const __m256i result =
        _mm256_castps_si256(_mm512_cvt_roundpd_ps(value, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC));
    const __m256i infinity =
        _mm256_or_si256(_mm256_and_si256(result, _mm256_set1_epi32(static_cast<int>(0x80000000))),
                        _mm256_set1_epi32(0x7f800000));
    return _mm256_mask_mov_epi32(result, over, infinity);
  };
  return _mm512_inserti64x4(_mm512_castsi256_si512(half(0)), half(1), 1);
}

// One column, kVectors * 16 rows.  A product is exact in f32 and so is its multiplication by 2^(F-E), as long
// as E keeps both in range; terms are below 2^27 in magnitude, so 16 of them fit a 32-bit sum and the final
// sum is exact in a double.
template <int K, int kVectors, int F>
void sums(const Operands& o, const Accumulator& d, int column, int row, const uint16_t nan_rows[4],
          const uint16_t inf_rows[4]) {
  constexpr int kTermsPerSum = K < 16 ? K : 16, kSums = K / kTermsPerSum;
  __m512i product[4], e[4], old[4], old_exponent[4], sum[kSums][4];
  __m512 factor[4];
  __mmask16 slow[4], nan[4];
  product_exponents(o, column, row, product);
  const __m512i floor_exponent = _mm512_set1_epi32(kMinExponent);
  const int none = o.narrow ? kNone8 : kNone16;
  for (int q = 0; q < kVectors; ++q) {
    const int group = row / 16 + q;
    const __m512i scale =
        _mm512_add_epi32(_mm512_load_si512(&o.a_scale[row + 16 * q]), _mm512_set1_epi32(o.b_scale[column]));
    const __mmask16 real = _mm512_cmpgt_epi32_mask(product[q], _mm512_set1_epi32(none));
    e[q] = _mm512_mask_max_epi32(floor_exponent, real, floor_exponent, _mm512_add_epi32(product[q], scale));
    nan[q] = nan_rows[q];
    slow[q] = inf_rows[q];
    old[q] = _mm512_setzero_si512();
    old_exponent[q] = _mm512_set1_epi32(-1000);
    if (d.accumulate) {
      old[q] = _mm512_loadu_si512(d.words(column, group));
      const __m512i magnitude = _mm512_and_si512(old[q], _mm512_set1_epi32(0x7fffffff));
      const __m512i infinity = _mm512_set1_epi32(0x7f800000);
      nan[q] = static_cast<__mmask16>(nan[q] | _mm512_cmpgt_epi32_mask(magnitude, infinity));
      slow[q] = static_cast<__mmask16>(slow[q] | _mm512_cmpeq_epi32_mask(magnitude, infinity));
      const __m512i field = _mm512_max_epi32(_mm512_srli_epi32(magnitude, 23), _mm512_set1_epi32(1));
      old_exponent[q] = _mm512_sub_epi32(field, _mm512_set1_epi32(127 + d.scale_exponent));
      e[q] = _mm512_mask_max_epi32(e[q], _mm512_test_epi32_mask(magnitude, magnitude), e[q], old_exponent[q]);
    }
    // Factor of the products before their scales: 2^(F - E + scale).
    const __m512i relative = _mm512_sub_epi32(e[q], scale);
    if (!o.narrow)  // wide exponents: a product or a factor may leave the range of f32
      slow[q] = static_cast<__mmask16>(slow[q] |
                                       (real & (_mm512_cmplt_epi32_mask(relative, _mm512_set1_epi32(-98)) |
                                                _mm512_cmpgt_epi32_mask(relative, _mm512_set1_epi32(125)))));
    // Below 2^-126 the factor makes every term less than one, as it should; above 2^127 there is no product
    // but zero.
    __m512i power = _mm512_sub_epi32(_mm512_set1_epi32(F), relative);
    power = _mm512_min_epi32(_mm512_max_epi32(power, _mm512_set1_epi32(-126)), _mm512_set1_epi32(127));
    factor[q] = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(power, _mm512_set1_epi32(127)), 23));
    slow[q] = static_cast<__mmask16>(slow[q] & ~nan[q]);
  }
  for (int s = 0; s < kSums; ++s) {
    __m512i t0 = _mm512_setzero_si512(), t1 = t0, t2 = t0, t3 = t0;
    for (int k = s * kTermsPerSum; k < (s + 1) * kTermsPerSum; ++k) {
      const __m512 b = _mm512_set1_ps(o.b[column][k]);
      const float* a = &o.a[k][row];
      const auto term = [&](int q) {
        return _mm512_cvttps_epi32(_mm512_mul_ps(_mm512_mul_ps(_mm512_load_ps(a + 16 * q), b), factor[q]));
      };
      t0 = _mm512_add_epi32(t0, term(0));
      if constexpr (kVectors == 4) {
        t1 = _mm512_add_epi32(t1, term(1));
        t2 = _mm512_add_epi32(t2, term(2));
        t3 = _mm512_add_epi32(t3, term(3));
      }
    }
    sum[s][0] = t0, sum[s][1] = t1, sum[s][2] = t2, sum[s][3] = t3;
  }
  for (int q = 0; q < kVectors; ++q) {
    const int group = row / 16 + q;
    __m512i addend = _mm512_setzero_si512();
    if (d.accumulate) {
      // trunc(c * 2^(F-E)) = significand * 2^(F-23) >> (E - exponent); a shift of 32 or more gives 0.
      const __mmask16 normal = _mm512_test_epi32_mask(old[q], _mm512_set1_epi32(0x7f800000));
      const __m512i fraction = _mm512_and_si512(old[q], _mm512_set1_epi32(0x7fffff));
      const __m512i significand =
          _mm512_mask_or_epi32(fraction, normal, fraction, _mm512_set1_epi32(0x800000));
      const __m512i scaled =
          F >= 23 ? _mm512_slli_epi32(significand, F - 23) : _mm512_srli_epi32(significand, 23 - F);
      addend = _mm512_srlv_epi32(scaled, _mm512_sub_epi32(e[q], old_exponent[q]));
      addend = _mm512_mask_sub_epi32(addend, _mm512_movepi32_mask(old[q]), _mm512_setzero_si512(), addend);
    }
    // Usually the whole sum fits 32 bits and the result is a normal number or zero: then one truncating
    // conversion and an exact scaling do.
    const __m512i bound = _mm512_set1_epi32((1 << 30) - (1 << 27));
    __mmask16 wide = _mm512_cmpgt_epu32_mask(_mm512_abs_epi32(sum[0][q]), bound);
    __m512i total = _mm512_add_epi32(sum[0][q], addend);
    if (kSums == 2) {
      wide =
          static_cast<__mmask16>(wide | _mm512_cmpgt_epu32_mask(_mm512_abs_epi32(sum[kSums - 1][q]), bound));
      total = _mm512_add_epi32(total, sum[kSums - 1][q]);
    }
    const __mmask16 extreme = static_cast<__mmask16>(_mm512_cmplt_epi32_mask(e[q], _mm512_set1_epi32(-100)) |
                                                     _mm512_cmpgt_epi32_mask(e[q], _mm512_set1_epi32(90)));
    const __mmask16 ignored = static_cast<__mmask16>(nan[q] | slow[q]);
    __m512i result;
    if (((wide | _mm512_mask_test_epi32_mask(extreme, total, total)) & ~ignored) == 0) [[likely]] {
      const __m512i field =
          _mm512_max_epi32(_mm512_add_epi32(e[q], _mm512_set1_epi32(127 - F)), _mm512_setzero_si512());
      const __m512 power =
          _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_min_epi32(field, _mm512_set1_epi32(254)), 23));
      result = _mm512_castps_si512(
          _mm512_mul_ps(_mm512_cvt_roundepi32_ps(total, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC), power));
    } else {
      result =
          wide_result(sum[0][q], kSums == 2 ? sum[kSums - 1][q] : _mm512_setzero_si512(), addend, e[q], F);
    }
    // A short sum leaves a short fraction; infinities have none to lose.
    if constexpr (F < 23)
      result = _mm512_and_si512(result, _mm512_set1_epi32(static_cast<int>(0xffffffffu << (23 - F))));
    result = _mm512_mask_mov_epi32(result, nan[q], _mm512_set1_epi32(kCanonicalNan));
    const uint16_t enabled = d.enabled[static_cast<size_t>(group)];
    uint32_t* words = d.words(column, group);
    _mm512_mask_storeu_epi32(words, static_cast<__mmask16>(enabled & ~slow[q]), result);
    if (slow[q] & enabled)
      fused_sums_reference(o, d, column, group, static_cast<uint16_t>(slow[q] & enabled));
  }
}

__m512 load_values(Format format, const uint8_t* raw, int i) {
  const auto load16 = [&] { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(raw + 2 * i)); };
  const auto load8 = [&] {
    return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(raw + i)));
  };
  switch (format) {
    case Format::F16:
      return _mm512_cvtph_ps(load16());
    case Format::BF16:
      return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load16()), 16));
    case Format::TF32:
      return _mm512_castsi512_ps(
          _mm512_and_si512(_mm512_loadu_si512(raw + 4 * i), _mm512_set1_epi32(static_cast<int>(0xffffe000))));
    case Format::E5M2:
      return _mm512_cvtph_ps(_mm256_slli_epi16(load8(), 8));  // e5m2 is the upper half of an f16
    default: {  // e4m3: an f16 with a short exponent, 2^(15 - 7) too small; 0x7f is NaN
      const __m256i x = load8(), magnitude = _mm256_and_si256(x, _mm256_set1_epi16(0x7f));
      const __m256i sign = _mm256_slli_epi16(_mm256_andnot_si256(_mm256_set1_epi16(0x7f), x), 8);
      const __m512 value = _mm512_mul_ps(
          _mm512_cvtph_ps(_mm256_or_si256(sign, _mm256_slli_epi16(magnitude, 7))), _mm512_set1_ps(256.0f));
      const __mmask16 nan = _mm256_cmpeq_epi16_mask(magnitude, _mm256_set1_epi16(0x7f));
      return _mm512_mask_mov_ps(value, nan, _mm512_castsi512_ps(_mm512_set1_epi32(kCanonicalNan)));
    }
  }
}

}  // namespace

bool decode_run_avx512(Format format, bool negate, const uint8_t* raw, int count, float* value,
                       int8_t* narrow, int16_t* wide, uint16_t* nan, uint16_t* inf) {
  if (count % 16 != 0 || narrow_bits(format) < 8) return false;
  const __m512i sign = _mm512_set1_epi32(negate ? static_cast<int>(0x80000000) : 0),
                infinity = _mm512_set1_epi32(0x7f800000);
  for (int i = 0; i < count; i += 16) {
    const __m512i x = _mm512_castps_si512(load_values(format, raw, i));
    const __m512i magnitude = _mm512_and_si512(x, _mm512_set1_epi32(0x7fffffff));
    _mm512_storeu_si512(value + i, _mm512_xor_si512(x, sign));
    // Subnormals of the format keep its smallest exponent.
    const __m512i exponent =
        _mm512_max_epi32(_mm512_sub_epi32(_mm512_srli_epi32(magnitude, 23), _mm512_set1_epi32(127)),
                         _mm512_set1_epi32(min_exponent(format)));
    const __mmask16 real = static_cast<__mmask16>(_mm512_test_epi32_mask(magnitude, magnitude) &
                                                  _mm512_cmplt_epi32_mask(magnitude, infinity));
    if (is_narrow(format))
      _mm_storeu_si128(
          reinterpret_cast<__m128i*>(narrow + i),
          _mm512_cvtepi32_epi8(_mm512_mask_mov_epi32(_mm512_set1_epi32(kZero8), real, exponent)));
    else
      _mm256_storeu_si256(
          reinterpret_cast<__m256i*>(wide + i),
          _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(_mm512_set1_epi32(kZero16), real, exponent)));
    nan[i / 16] = static_cast<uint16_t>(nan[i / 16] | _mm512_cmpgt_epi32_mask(magnitude, infinity));
    inf[i / 16] = static_cast<uint16_t>(inf[i / 16] | _mm512_cmpeq_epi32_mask(magnitude, infinity));
  }
  return true;
}

namespace {

template <int K, int kVectors, int F>
void all_sums(const Operands& o, const Accumulator& d) {
  for (int j = 0; j < o.n; ++j)
    for (int row = 0; row < o.m; row += 16 * kVectors) {
      uint16_t nan[4], inf[4];
      for (int q = 0; q < kVectors; ++q) {
        nan[q] = o.b_nan[j] ? 0xffff : o.a_nan[row / 16 + q];
        inf[q] = o.b_inf[j] ? 0xffff : o.a_inf[row / 16 + q];
      }
      sums<K, kVectors, F>(o, d, j, row, nan, inf);
    }
}

template <int K>
void sums_of_depth(const Operands& o, const Accumulator& d) {
  if (d.short_sums)
    all_sums<K, 4, kShortFractionBits>(o, d);
  else if (o.m == 16)
    all_sums<K, 1, kFractionBits>(o, d);
  else
    all_sums<K, 4, kFractionBits>(o, d);
}

}  // namespace

bool fused_sums_avx512(const Operands& o, const Accumulator& d) {
  if (d.f16 || (o.m % 64 != 0 && (o.m != 16 || d.short_sums))) return false;
  if (o.k == 32)
    sums_of_depth<32>(o, d);
  else if (o.k == 16)
    sums_of_depth<16>(o, d);
  else
    sums_of_depth<8>(o, d);
  return true;
}

}  // namespace mxfa::emulator

#else

namespace mxfa::emulator {
bool fused_sums_avx512(const Operands&, const Accumulator&) { return false; }
bool decode_run_avx512(Format, bool, const uint8_t*, int, float*, int8_t*, int16_t*, uint16_t*, uint16_t*) {
  return false;
}
}  // namespace mxfa::emulator

#endif
