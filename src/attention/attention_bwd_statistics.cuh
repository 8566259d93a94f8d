// What the backward's main kernel needs of each query row, LSE and delta, in the form in which it takes them.
//
// Head_dim 96 and 128: two floats a row, x = -LSE log2(e) and delta, so that P = 2^(S scale log2(e) + x).
// (MXFP8: x = 8 - LSE log2(e), with which P and dS are 256 times what they are, attention_bwd_mx.cuh.)
//
// Head_dim 64: operands.  S^T and dP^T start as a product of ones and the rows' numbers, so that
// S^T + x / (scale log2(e)) and dP^T - delta leave the tensor core and the arithmetic behind it loads nothing
// (docs/hopper.md).  A number is the sum of bf16 parts: three for x / (scale log2(e)), 24 bits, two for
// -delta, 16 bits, which is finer than O and dO are.  Eight rows' first parts lie together, then their
// second, and so on: B of a product, MN-major without swizzle, in which a row of K is 16 bytes of eight
// columns.  A product takes 16 rows of K, of which A's ones choose three or two; the others are what follows
// in memory, times zero, so every part is finite.  K's second half repeats its first (LBO 0), so a part is
// half of what it counts.
#pragma once
#include "ptx/convert.cuh"
#include "ptx/ld_st.cuh"
#include "src/attention/attention_bwd_mx.cuh"
#include "src/attention/attention_bwd_params.cuh"
#include "src/common/math.cuh"
#include "src/common/types.cuh"

namespace mxfa {

using namespace ptx;

template <int kD, int kRows>
struct RowStatistics {
  static constexpr bool kOperands = statistics_are_operands(kD);
  static constexpr int kBytes = statistics_bytes(kD, kRows);
  static constexpr int kExponentParts = 3, kDeltaParts = 2;

  // LSE of a row that contributes nothing: past the end of the sequence, or without a visible key.
  static constexpr float kDead = -bits_float(0x7f800000);

  MXFA_DEVICE static uint8_t* of_tile(const AttentionBackwardParams& p, int64_t tile) {
    return pointer<uint8_t>(p.statistics) + tile * kBytes;
  }

  template <bool kMxfp8>
  MXFA_DEVICE static void write_exponent(const AttentionBackwardParams& p, uint8_t* tile, int row,
                                         float lse) {
    const float exponent = (kMxfp8 ? float(kMxExponent) : 0.0f) - lse * kLog2E;
    if constexpr (kOperands) {
      write_parts<kExponentParts>(part(tile, row, 0), lse == kDead ? kDead : exponent * p.inverse_scale_log2);
    } else {
      st_global_f32(reinterpret_cast<float*>(tile) + row, lse == kDead ? kDead : exponent);
    }
  }
  MXFA_DEVICE static void write_delta(uint8_t* tile, int row, float delta) {
    if constexpr (kOperands) {
      write_parts<kDeltaParts>(part(tile, row, kExponentParts), -delta);
    } else {
      st_global_f32(reinterpret_cast<float*>(tile) + kRows + row, delta);
    }
  }

  // x of a row, and delta.
  MXFA_DEVICE static float exponent(const uint8_t* tile, int row, float scale_log2) {
    if constexpr (!kOperands) return reinterpret_cast<const float*>(tile)[row];
    return sum_of_parts<kExponentParts>(part(tile, row, 0)) * scale_log2;
  }
  MXFA_DEVICE static float delta(const uint8_t* tile, int row) {
    if constexpr (!kOperands) return reinterpret_cast<const float*>(tile)[kRows + row];
    return -sum_of_parts<kDeltaParts>(part(tile, row, kExponentParts));
  }

 private:
  template <class Byte>
  MXFA_DEVICE static Byte* part(Byte* tile, int row, int number) {
    return tile + row / 8 * kRowGroupBytes + number * 16 + row % 8 * 2;
  }
  template <int kParts>
  MXFA_DEVICE static void write_parts(uint8_t* to, float x) {
    // Nothing but finite parts: what is not, becomes so large that P or dS of this row is seen to be
    // infinite.
    constexpr float kLargest = 0x1p127f;
    x = fabsf(x) < kLargest ? x * 0.5f : x < 0.0f ? -kLargest : kLargest;
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const uint32_t bits = cvt_rn_bf16x2_f32(0.0f, x);
      st_global_b16(to + 16 * i, bits);
      x -= bf16x2_low(bits);
    }
  }
  template <int kParts>
  MXFA_DEVICE static float sum_of_parts(const uint8_t* from) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kParts; ++i) sum += bf16x2_low(*reinterpret_cast<const uint16_t*>(from + 16 * i));
    return 2.0f * sum;
  }
};

}  // namespace mxfa
