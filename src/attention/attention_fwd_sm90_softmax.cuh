// Softmax of attention_fwd_sm90: a consumer warpgroup's S in registers to P, the A operand of P V.
//
// BF16: P is rounded to BF16.
// MXFP8: P is rounded to E4M3 with a scale, under the reference points of attention_fwd_sm100 (the maximum of
// the blocks of 128 keys seen, kept until it grows by the threshold), then multiplied with its scale: an E4M3
// value times a power of two is a BF16 number.
#pragma once
#include "ptx/convert.cuh"
#include "ptx/shuffle.cuh"
#include "src/attention/attention_fwd_sm90_tables.cuh"
#include "src/common/math.cuh"
#include "src/common/scale_factor.cuh"

namespace mxfa {

using namespace ptx;

struct SoftmaxSm90 : AttentionFwdSm90Tables {
  float s[kTileN / 2];
  uint32_t probability[kTileN / 4];
  float row_max[2], row_sum[2], alpha[2];  // of the thread's two rows, l/4 and l/4 + 8 of the warp's 16
  // MXFP8 only.
  uint32_t payload[kMxfp8 ? kTileN / 8 : 1];  // E4M3 of P: two columns of both rows a word
  uint32_t scale_bytes[2];                    // of P, kDynamicP: a byte for each 32 keys

  MXFA_DEVICE static float maximum_of_row(float m) {  // over the four lanes of a row
    m = kMxfp8 ? max_nan_f32(m, shfl_bfly(m, 1)) : max_f32(m, shfl_bfly(m, 1));
    return kMxfp8 ? max_nan_f32(m, shfl_bfly(m, 2)) : max_f32(m, shfl_bfly(m, 2));
  }

  // s of one row becomes 2^(c s + bias); returns the sum.
  MXFA_DEVICE float exponentials(int half, float c, float bias) {
    float sum0 = 0.0f, sum1 = 0.0f;
#pragma unroll
    for (int i = 0; i < kTileN / 8; ++i) {
      float& x0 = s[4 * i + 2 * half];
      float& x1 = s[4 * i + 2 * half + 1];
      x0 = ex2_approx_ftz(fma_rn_ftz_f32(x0, c, bias));
      x1 = ex2_approx_ftz(fma_rn_ftz_f32(x1, c, bias));
      sum0 += x0;
      sum1 += x1;
    }
    return sum0 + sum1;
  }

  // ---- BF16 ----
  // s becomes p = 2^(s c - m c); row_max, row_sum, alpha are updated.  The reference point m moves only when
  // the maximum grew by more than the threshold: any m is exact because O and row_sum share it
  // (attention-forward digest of FA4's conditional rescale).
  template <bool kFirst>
  MXFA_DEVICE void softmax_bf16(float c) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float m0 = s[2 * half], m1 = s[2 * half + 1];
#pragma unroll
      for (int i = 1; i < kTileN / 8; ++i) {
        m0 = max_f32(m0, s[4 * i + 2 * half]);
        m1 = max_f32(m1, s[4 * i + 2 * half + 1]);
      }
      const float m = maximum_of_row(max_f32(m0, m1));
      if (kFirst) {
        row_max[half] = m;
        alpha[half] = 0.0f;
      } else {
        float grown = (m - row_max[half]) * c;
        bool move = grown > kRescaleThreshold;  // also when row_max is -inf; false when both are (NaN)
        alpha[half] = move ? ex2_approx_ftz(-grown) : 1.0f;
        row_max[half] = move ? m : row_max[half];
      }
      const float sum = exponentials(half, c, row_max[half] == kMinusInfinity ? 0.0f : -row_max[half] * c);
      row_sum[half] = kFirst ? sum : fma_rn_ftz_f32(row_sum[half], alpha[half], sum);
    }
  }

  // p against the reference point in hand, without looking for the maximum first: that takes the maximum, its
  // shuffles and their latency off the path between Q K^T and the exponentials.  False if a row of the warp
  // has outgrown its reference point (sums far above a block's worth of p <= 1, infinities, NaN) or has none
  // yet (-inf: every p is infinite or NaN); S is then overwritten all the same and must be computed again.
  MXFA_DEVICE bool softmax_without_maximum(float c) {
    float sums[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sums[half] = exponentials(half, c, -row_max[half] * c);
      alpha[half] = 1.0f;
    }
    if (!vote_all(sums[0] < kSumLimit && sums[1] < kSumLimit)) return false;
    row_sum[0] += sums[0];
    row_sum[1] += sums[1];
    return true;
  }

  // ---- MXFP8 ----
  // -inf - -inf would be NaN.
  MXFA_DEVICE static float reference_bias(float max, float c) {
    return max == kMinusInfinity ? kPBias : kPBias - max * c;
  }

  // s becomes p = 2^(c s - c m + kPBias), with kDynamicP divided by the scale of its 32 keys; row_max,
  // row_sum and alpha are updated.  Step by step what softmax_block of attention_fwd_sm100 does.
  template <bool kFirst>
  MXFA_DEVICE void softmax_mxfp8(float c) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float maximum[kPGroups];
#pragma unroll
      for (int g = 0; g < kPGroups; ++g) {
        const float* x = s + 4 * kGroupParts * g + 2 * half;
        maximum[g] = max_nan_f32(x[0], x[1]);
#pragma unroll
        for (int i = 1; i < kGroupParts; ++i)
          maximum[g] = max_nan_f32(maximum[g], max_nan_f32(x[4 * i], x[4 * i + 1]));
        if (kDynamicP) maximum[g] = maximum_of_row(maximum[g]);
      }
      float block_max = maximum[0];
#pragma unroll
      for (int g = 1; g < kPGroups; ++g) block_max = max_nan_f32(block_max, maximum[g]);
      if (!kDynamicP) block_max = maximum_of_row(block_max);
      if (kFirst) {
        row_max[half] = block_max;
        alpha[half] = 0.0f;
      } else {
        // With nothing but -inf so far (or still) the exponent is -inf and alpha 0, which is right: O and the
        // sum are 0.
        block_max = max_nan_f32(block_max, row_max[half]);
        const float shift = (row_max[half] - (block_max == kMinusInfinity ? 0.0f : block_max)) * c;
        const bool keep = shift >= -kRescaleThreshold;  // false for NaN, which has to reach O
        alpha[half] = keep ? 1.0f : ex2_approx_ftz(shift);
        row_max[half] = keep ? row_max[half] : block_max;
      }
      const float bias = reference_bias(row_max[half], c);
      float total = 0.0f;
      if constexpr (kDynamicP) {
        scale_bytes[half] = 0;
#pragma unroll
        for (int g = 0; g < kPGroups; ++g) {
          // 2^k, the largest power of two that keeps the group's p at or below 448: the scale byte 127 - k as
          // for any E4M3 block, from the one exponential of its maximum.
          const uint32_t byte = e4m3_scale_byte<ScaleRounding::kCeil>(
              float_bits(ex2_approx_ftz(fma_rn_ftz_f32(maximum[g], c, bias))));
          const float x_bias = bias + float(127 - int32_t(byte));
          scale_bytes[half] |= byte << 8 * g;
          float sum0 = 0.0f, sum1 = 0.0f;
#pragma unroll
          for (int i = 0; i < kGroupParts; ++i) {
            float& x0 = s[4 * (kGroupParts * g + i) + 2 * half];
            float& x1 = s[4 * (kGroupParts * g + i) + 2 * half + 1];
            x0 = ex2_approx_ftz(fma_rn_ftz_f32(x0, c, x_bias));
            x1 = ex2_approx_ftz(fma_rn_ftz_f32(x1, c, x_bias));
            sum0 = i == 0 ? x0 : sum0 + x0;
            sum1 = i == 0 ? x1 : sum1 + x1;
          }
          // 2^(byte - 127) takes the group's factor out; byte 0 belongs to p of less than 2^-118.
          total = fma_rn_ftz_f32(sum0 + sum1, bits_float(byte << 23), total);
        }
      } else {
        total = exponentials(half, c, bias);
      }
      row_sum[half] = kFirst ? total : fma_rn_ftz_f32(row_sum[half], alpha[half], total);
    }
  }

  // P to E4M3, at once: a quarter of the registers.
  MXFA_DEVICE void round_p() {
#pragma unroll
    for (int i = 0; i < kTileN / 8; ++i)
      payload[i] = cvt_rn_satfinite_e4m3x4_f32(s[4 * i + 3], s[4 * i + 2], s[4 * i + 1], s[4 * i]);
  }
  // 2^120 and the scale of a group of P, a pair of BF16.
  MXFA_DEVICE uint32_t p_factor(int half, int group_of_keys) const {
    constexpr uint32_t kExponent = 0x00800080;
    if (!kDynamicP) return (127 + 120 - 8) * kExponent;
    return ((scale_bytes[half] >> 8 * group_of_keys & 255) + 120) * kExponent;
  }

  // ---- both ----
  template <bool kFirst>
  MXFA_DEVICE void softmax(float c) {
    if constexpr (kMxfp8) {
      softmax_mxfp8<kFirst>(c);
      round_p();
    } else {
      softmax_bf16<kFirst>(c);
    }
  }

  // P as the A operand: columns 16 s .. 16 s + 15 of D are exactly the A fragment of k-step s.
  MXFA_DEVICE void convert_p() {
    if constexpr (kMxfp8) {
      // p is not negative: its seven bits, moved to where BF16 has exponent and mantissa, are 2^-120 p,
      // subnormal E4M3 included.  A NaN is lost on the way, but the row sum has it.
#pragma unroll
      for (int i = 0; i < kTileN / 8; ++i) {
        const int group = i / kGroupParts;
        probability[2 * i] = mul_rn_bf16x2(__byte_perm(payload[i], 0, 0x4140) << 4, p_factor(0, group));
        probability[2 * i + 1] = mul_rn_bf16x2(__byte_perm(payload[i], 0, 0x4342) << 4, p_factor(1, group));
      }
    } else {
#pragma unroll
      for (int i = 0; i < kTileN / 4; ++i) probability[i] = cvt_rn_bf16x2_f32(s[2 * i + 1], s[2 * i]);
    }
  }
};

}  // namespace mxfa
