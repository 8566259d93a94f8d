// The roundings of the MXFP8 backward: P and dS as E4M3 times a scale, multiplied out to the BF16 number that
// it is, for tensor cores that know no block scales.  Accumulator layout: ptx/wgmma.cuh, rows are keys,
// columns queries.
//
// Everything here is 256 P and 256 dS: the statistics hold 8 - LSE log2(e) instead of -LSE log2(e)
// (attention_bwd_prepare.cuh), and what is multiplied with dV, dK and dQ at the end carries the 2^-8.  The
// constant scale of P, 2^-8, then costs nothing.
#pragma once
#include "ptx/barrier.cuh"
#include "ptx/convert.cuh"
#include "ptx/ld_st.cuh"
#include "ptx/redux.cuh"
#include "src/common/math.cuh"
#include "src/common/scale_factor.cuh"

namespace mxfa {

using namespace ptx;

// A power of two that both P and dS carry in the kernel.
inline constexpr int kMxExponent = 8;
inline constexpr float kMxUnscale = 0x1p-8f;

// Two values rounded to E4M3, as BF16: exact, and NaN stays NaN.
MXFA_DEVICE uint32_t round_e4m3_bf16x2(float hi, float lo) {
  return truncate_bf16x2_f16x2(cvt_rn_f16x2_e4m3x2(cvt_rn_satfinite_e4m3x2_f32(hi, lo)));
}

// dS of one warp, 16 keys x kColumns queries, in blocks of 32 keys x 32 queries with a scale each: a block is
// shared with the warp beside it, which has the other 16 keys.
template <int kColumns>
struct SquareBlocks {
  static constexpr int kBlocks = kColumns / 32;
  static_assert(kBlocks == 2 || kBlocks == 4, "16 bytes of maxima a warp");
  // Where warps leave their maxima.  Two sets, used in turn: a warp writes a set again after the barrier of
  // the other one, which its neighbour reaches after it has read this one.
  static constexpr int kWarpBytes = 16, kSetBytes = 8 * kWarpBytes, kSharedBytes = 2 * kSetBytes;

  // `set`: shared address of this time's maxima; `warp`: of the compute warps, 0 to 7.  Between own maxima
  // and those of the neighbour `meanwhile` runs.
  template <class Meanwhile>
  MXFA_DEVICE static void round(uint32_t (&to)[kColumns / 4], const float (&x)[kColumns / 2], uint32_t set,
                                int warp, int lane, const Meanwhile& meanwhile) {
    const uint32_t own = set + warp * kWarpBytes, neighbour = set + (warp ^ 1) * kWarpBytes;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      float largest = 0;  // a NaN never becomes the largest
#pragma unroll
      for (int i = 0; i < 16; ++i) largest = max_f32(largest, fabsf(x[16 * block + i]));
      const uint32_t of_warp = redux_max_u32(float_bits(largest));
      if (lane == 0) st_shared_b32(own + 4 * block, of_warp);
    }
    meanwhile();
    named_barrier_sync(1 + warp / 2, 64);  // 0 is cta_sync's
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      // Both read back: registers are scarcer than loads.
      const uint32_t largest = max_of(ld_shared_b32(own + 4 * block), ld_shared_b32(neighbour + 4 * block));
      // The byte of dS itself is at least 0, and 8 less than that of 256 dS.
      const uint32_t byte = max_of(e4m3_scale_byte<ScaleRounding::kCeil>(largest), uint32_t(kMxExponent));
      const float reciprocal = scale_reciprocal(byte);
      const uint32_t scale = byte * 0x00800080;  // 2^(byte - 127) as BF16, twice
#pragma unroll
      for (int i = 8 * block; i < 8 * block + 8; ++i)
        to[i] = mul_rn_bf16x2(round_e4m3_bf16x2(x[2 * i + 1] * reciprocal, x[2 * i] * reciprocal), scale);
    }
  }
};

// P and dS of a warp, both times 256, as the MXFP8 backward rounds them: dS in square blocks, or to BF16.
template <int kColumns, bool kSquare>
MXFA_DEVICE void round_mx(uint32_t (&p_to)[kColumns / 4], uint32_t (&ds_to)[kColumns / 4],
                          const float (&p)[kColumns / 2], const float (&ds)[kColumns / 2], uint32_t maxima,
                          int warp, int lane) {
  const auto round_p = [&] {
#pragma unroll
    for (int i = 0; i < kColumns / 4; ++i) p_to[i] = round_e4m3_bf16x2(p[2 * i + 1], p[2 * i]);
  };
  if constexpr (kSquare) {
    SquareBlocks<kColumns>::round(ds_to, ds, maxima, warp, lane, round_p);
  } else {
    round_p();
#pragma unroll
    for (int i = 0; i < kColumns / 4; ++i) ds_to[i] = cvt_rn_bf16x2_f32(ds[2 * i + 1], ds[2 * i]);
  }
}

}  // namespace mxfa
