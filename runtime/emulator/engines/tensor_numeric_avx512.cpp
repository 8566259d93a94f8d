// The fused sum of tensor_numeric.hpp for 64 rows at a time.  Compiled to nothing where the host has no AVX-512.
#include "engines/tensor_numeric.hpp"

#ifdef __AVX512BW__

// GCC 12 takes the deliberately undefined operands inside its own intrinsics for uninitialised variables (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

namespace mxfa::emulator {
namespace {

// Largest product exponent of 64 rows, as four vectors of 16.
inline void product_exponents(const Operands& o, int column, int row, __m512i out[4]) {
  if (o.narrow) {
    __m512i e = _mm512_set1_epi8(-128);
    for (int k = 0; k < o.k; ++k)
      e = _mm512_max_epi8(e, _mm512_add_epi8(_mm512_load_si512(&o.a_exponent8[k][row]), _mm512_set1_epi8(o.b_exponent8[column][k])));
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

// One column, 64 rows.  A product is exact in f32 and so is its multiplication by 2^(25-E), as long as E keeps both in range; terms are
// below 2^27 in magnitude, so 16 of them fit a 32-bit sum and the final sum is exact in a double.
template <int K>
void sums_64(const Operands& o, const Accumulator& d, int column, int row, const uint16_t nan_rows[4], const uint16_t inf_rows[4]) {
  constexpr int kTermsPerSum = K < 16 ? K : 16, kSums = K / kTermsPerSum;
  __m512i product[4], e[4], old[4], old_exponent[4], sum[kSums][4];
  __m512 factor[4];
  __mmask16 slow[4], nan[4];
  product_exponents(o, column, row, product);
  const __m512i floor_exponent = _mm512_set1_epi32(kMinExponent);
  const int none = o.narrow ? kNone8 : kNone16;
  for (int q = 0; q < 4; ++q) {
    const int group = row / 16 + q;
    const __m512i scale = _mm512_add_epi32(_mm512_load_si512(&o.a_scale[row + 16 * q]), _mm512_set1_epi32(o.b_scale[column]));
    const __mmask16 real = _mm512_cmpgt_epi32_mask(product[q], _mm512_set1_epi32(none));
    e[q] = _mm512_mask_max_epi32(floor_exponent, real, floor_exponent, _mm512_add_epi32(product[q], scale));
    nan[q] = nan_rows[q];
    slow[q] = inf_rows[q];
    old[q] = _mm512_setzero_si512();
    old_exponent[q] = _mm512_set1_epi32(-1000);
    if (d.accumulate) {
      old[q] = _mm512_loadu_si512(d.d + column * 128 + d.lane[static_cast<size_t>(group)]);
      const __m512i magnitude = _mm512_and_si512(old[q], _mm512_set1_epi32(0x7fffffff));
      const __m512i infinity = _mm512_set1_epi32(0x7f800000);
      nan[q] = static_cast<__mmask16>(nan[q] | _mm512_cmpgt_epi32_mask(magnitude, infinity));
      slow[q] = static_cast<__mmask16>(slow[q] | _mm512_cmpeq_epi32_mask(magnitude, infinity));
      const __m512i field = _mm512_max_epi32(_mm512_srli_epi32(magnitude, 23), _mm512_set1_epi32(1));
      old_exponent[q] = _mm512_sub_epi32(field, _mm512_set1_epi32(127 + d.scale_exponent));
      e[q] = _mm512_mask_max_epi32(e[q], _mm512_test_epi32_mask(magnitude, magnitude), e[q], old_exponent[q]);
    }
    // Factor of the products before their scales: 2^(25 - E + scale).
    const __m512i relative = _mm512_sub_epi32(e[q], scale);
    if (!o.narrow)   // wide exponents: a product or a factor may leave the range of f32
      slow[q] = static_cast<__mmask16>(slow[q] | (real & (_mm512_cmplt_epi32_mask(relative, _mm512_set1_epi32(-98)) |
                                                          _mm512_cmpgt_epi32_mask(relative, _mm512_set1_epi32(125)))));
    // Below 2^-126 the factor makes every term less than one, as it should; above 2^127 there is no product but zero.
    __m512i power = _mm512_sub_epi32(_mm512_set1_epi32(kFractionBits), relative);
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
      t1 = _mm512_add_epi32(t1, term(1));
      t2 = _mm512_add_epi32(t2, term(2));
      t3 = _mm512_add_epi32(t3, term(3));
    }
    sum[s][0] = t0, sum[s][1] = t1, sum[s][2] = t2, sum[s][3] = t3;
  }
  for (int q = 0; q < 4; ++q) {
    const int group = row / 16 + q;
    __m512d low = _mm512_cvtepi32_pd(_mm512_castsi512_si256(sum[0][q]));
    __m512d high = _mm512_cvtepi32_pd(_mm512_extracti64x4_epi64(sum[0][q], 1));
    for (int s = 1; s < kSums; ++s) {
      low = _mm512_add_pd(low, _mm512_cvtepi32_pd(_mm512_castsi512_si256(sum[s][q])));
      high = _mm512_add_pd(high, _mm512_cvtepi32_pd(_mm512_extracti64x4_epi64(sum[s][q], 1)));
    }
    if (d.accumulate) {
      // trunc(c * 2^(25-E)) = significand << 2 >> (E - exponent); a shift of 32 or more gives 0.
      const __mmask16 normal = _mm512_test_epi32_mask(old[q], _mm512_set1_epi32(0x7f800000));
      const __m512i fraction = _mm512_and_si512(old[q], _mm512_set1_epi32(0x7fffff));
      const __m512i significand = _mm512_mask_or_epi32(fraction, normal, fraction, _mm512_set1_epi32(0x800000));
      __m512i term = _mm512_srlv_epi32(_mm512_slli_epi32(significand, 2), _mm512_sub_epi32(e[q], old_exponent[q]));
      term = _mm512_mask_sub_epi32(term, _mm512_movepi32_mask(old[q]), _mm512_setzero_si512(), term);
      low = _mm512_add_pd(low, _mm512_cvtepi32_pd(_mm512_castsi512_si256(term)));
      high = _mm512_add_pd(high, _mm512_cvtepi32_pd(_mm512_extracti64x4_epi64(term, 1)));
    }
    // 2^(E-25) as doubles.
    const __m512i power = _mm512_add_epi32(e[q], _mm512_set1_epi32(1023 - kFractionBits));
    const __m512i power_low = _mm512_slli_epi64(_mm512_cvtepi32_epi64(_mm512_castsi512_si256(power)), 52);
    const __m512i power_high = _mm512_slli_epi64(_mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64(power, 1)), 52);
    low = _mm512_mul_pd(low, _mm512_castsi512_pd(power_low));
    high = _mm512_mul_pd(high, _mm512_castsi512_pd(power_high));
    const __m256 result_low = _mm512_cvt_roundpd_ps(low, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    const __m256 result_high = _mm512_cvt_roundpd_ps(high, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    __m512i result = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_castps_si256(result_low)), _mm256_castps_si256(result_high), 1);
    if (_mm512_cmpgt_epi32_mask(e[q], _mm512_set1_epi32(90)) != 0) {   // only then can the sum reach 2^128: infinity, not the largest float
      const __m512d limit = _mm512_set1_pd(0x1p128);
      const __mmask16 over = static_cast<__mmask16>(_mm512_cmp_pd_mask(_mm512_abs_pd(low), limit, _CMP_GE_OQ) |
                                                    _mm512_cmp_pd_mask(_mm512_abs_pd(high), limit, _CMP_GE_OQ) << 8);
      const __m512i sign = _mm512_and_si512(result, _mm512_set1_epi32(static_cast<int>(0x80000000)));
      result = _mm512_mask_or_epi32(result, over, sign, _mm512_set1_epi32(0x7f800000));
    }
    result = _mm512_mask_mov_epi32(result, nan[q], _mm512_set1_epi32(kCanonicalNan));
    const uint16_t enabled = d.enabled[static_cast<size_t>(group)];
    uint32_t* words = d.d + column * 128 + d.lane[static_cast<size_t>(group)];
    _mm512_mask_storeu_epi32(words, static_cast<__mmask16>(enabled & ~slow[q]), result);
    if (slow[q] & enabled) fused_sums_reference(o, d, column, group, static_cast<uint16_t>(slow[q] & enabled));
  }
}

}  // namespace

bool fused_sums_avx512(const Operands& o, const Accumulator& d) {
  if (d.f16) return false;
  uint16_t a_nan[8] = {}, a_inf[8] = {};
  for (int i = 0; i < o.m; ++i) {
    a_nan[i / 16] = static_cast<uint16_t>(a_nan[i / 16] | (o.a_nan[i] ? 1 : 0) << (i % 16));
    a_inf[i / 16] = static_cast<uint16_t>(a_inf[i / 16] | (o.a_inf[i] ? 1 : 0) << (i % 16));
  }
  for (int j = 0; j < o.n; ++j)
    for (int row = 0; row < o.m; row += 64) {
      uint16_t nan[4], inf[4];
      for (int q = 0; q < 4; ++q) {
        nan[q] = o.b_nan[j] ? 0xffff : a_nan[row / 16 + q];
        inf[q] = o.b_inf[j] ? 0xffff : a_inf[row / 16 + q];
      }
      if (o.k == 32)
        sums_64<32>(o, d, j, row, nan, inf);
      else if (o.k == 16)
        sums_64<16>(o, d, j, row, nan, inf);
      else
        sums_64<8>(o, d, j, row, nan, inf);
    }
  return true;
}

}  // namespace mxfa::emulator

#else

namespace mxfa::emulator {
bool fused_sums_avx512(const Operands&, const Accumulator&) { return false; }
}  // namespace mxfa::emulator

#endif
