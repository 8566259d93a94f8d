// The softmax warpgroups of attention_fwd_sm100: S (tensor memory) -> P (over S), row sums, LSE.  Thread =
// row of the query tile.
//
// Exponentials are base 2 with c = scale_log2 folded into one FMA: p = 2^(c S - c m + kPBias).  The reference
// point m follows the running maximum only when that has grown by more than kRescaleThreshold; any m is exact
// because O and the row sum share it, and most blocks then leave O alone (conditional rescaling,
// FlashAttention-4).
#pragma once
#include "ptx/convert.cuh"
#include "ptx/fence.cuh"
#include "ptx/ld_st.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tcgen05_ld_st.cuh"
#include "src/attention/attention_fwd_sm100_context.cuh"
#include "src/common/math.cuh"
#include "src/common/pipeline.cuh"

namespace mxfa::attention_fwd_sm100 {

inline constexpr float kInfinity = bits_float(0x7f800000);

// MXFP8 stores P as E4M3 with the constant scale 2^-8: the bias brings p = 1 to 256 (the row sum carries the
// same factor, the correction takes it out).  With the threshold p stays at or below 448, the largest E4M3.
// BF16 has range to spare: p <= 2^8.
inline constexpr float kPBias = kMxfp8 ? 8.0f : 0.0f;
inline constexpr float kRescaleThreshold = kMxfp8 ? 0.80735486f : 8.0f;  // log2(448 / 256), rounded down
MXFA_CONSTEXPR double exp2_series(double x) {
  double term = 1, sum = 1;
  for (int n = 1; n < 60; ++n) sum += term *= x * 0.693147180559945309417 / n;
  return sum;
}
static_assert(!kMxfp8 || exp2_series(double(kPBias) + double(kRescaleThreshold)) <= 448.0,
              "P would overflow E4M3");

// In every run of `period` scores the last `count` take 2^x from the FMA pipe instead of the special function
// unit, which is the busiest unit otherwise (16 results a clock and SM).  Not in the last fragment: the wait
// for P behind it would show the longer latency.
inline constexpr uint32_t kFragment = 32, kFragments = kTile / kFragment;
inline constexpr uint32_t kEmulationPeriod = Config::exp2_emulation_period,
                          kEmulationCount = Config::exp2_emulation_count;
static_assert(kEmulationPeriod > 0 && kEmulationPeriod % 2 == 0 && kEmulationCount % 2 == 0 &&
                  kEmulationCount <= kEmulationPeriod,
              "exp2_emulation_count and exp2_emulation_period are even (pairs), count <= period");
MXFA_CONSTEXPR bool is_emulated(uint32_t fragment, uint32_t column) {
  return fragment >= uint32_t(Config::exp2_emulation_first_fragment) && fragment + 1 < kFragments &&
         column % kEmulationPeriod >= kEmulationPeriod - kEmulationCount;
}

// 2^x on the FMA pipe for x <= 127, both halves of a pair.  Adding 1.5 * 2^23 rounding down leaves floor(x)
// in the low mantissa bits; the fraction goes through a cubic (minimax for the relative error, 8.8e-5;
// coefficients of FlashAttention-4); floor(x) is added to the exponent field.  From -127 down the result is
// exactly +0, so masked scores (-inf) stay exact.
MXFA_DEVICE void exp2_polynomial(uint64_t x2, float& y0, float& y1) {
  constexpr float kRound = 12582912.0f;
  float x0, x1;
  ptx::unpack_f32x2(x2, x0, x1);
  const uint64_t x = ptx::pack_f32x2(ptx::max_f32(x0, -127.0f), ptx::max_f32(x1, -127.0f));
  const uint64_t rounded = ptx::add_rm_ftz_f32x2(x, ptx::pack_f32x2(kRound, kRound));
  const uint64_t floor = ptx::add_rn_ftz_f32x2(rounded, ptx::pack_f32x2(-kRound, -kRound));
  const uint64_t f = ptx::fma_rn_ftz_f32x2(floor, ptx::pack_f32x2(-1.0f, -1.0f), x);
  uint64_t y = ptx::pack_f32x2(0.077119089663028717041015625f, 0.077119089663028717041015625f);
  y = ptx::fma_rn_ftz_f32x2(y, f, ptx::pack_f32x2(0.227564394474029541015625f, 0.227564394474029541015625f));
  y = ptx::fma_rn_ftz_f32x2(y, f, ptx::pack_f32x2(0.695146143436431884765625f, 0.695146143436431884765625f));
  y = ptx::fma_rn_ftz_f32x2(y, f, ptx::pack_f32x2(1.0f, 1.0f));
  float r0, r1;
  ptx::unpack_f32x2(rounded, r0, r1);
  ptx::unpack_f32x2(y, y0, y1);
  y0 = bits_float(float_bits(y0) + (float_bits(r0) << 23));
  y1 = bits_float(float_bits(y1) + (float_bits(r1) << 23));
}

struct SoftmaxRow {
  float max;  // the reference point m, in units of S
  float sum;  // of p, as stored before rounding
};

// One block of 128 keys.  kFirst: the block with the end of the sequence (only `valid` keys), and no O to
// rescale yet.
template <bool kFirst>
MXFA_DEVICE void softmax_block(const Context& c, uint32_t stage, uint32_t phase, bool signal_read,
                               int32_t valid, SoftmaxRow& row) {
  const uint32_t s_column = c.quadrant_lanes() + c.column<Tmem::kS0, Tmem::kS1>(stage);
  const uint32_t p_column = c.quadrant_lanes() + c.column<Tmem::kP0, Tmem::kP1>(stage);
  float s[kFragments][kFragment];

  ptx::mbarrier_wait(c.barrier<Barrier::kSFull>(stage), phase);
  ptx::tcgen05_fence_after_thread_sync();  // the MMA wrote S
#pragma unroll
  for (uint32_t f = 0; f < kFragments; ++f) ptx::tcgen05_ld_32x32b(s_column + f * kFragment, s[f]);
  ptx::tcgen05_wait_ld();
  if constexpr (kOverlay) {
    // The scales of the other stage's Q K^T may overwrite S now.
    if (signal_read) {
      ptx::tcgen05_fence_before_thread_sync();  // our loads, before the tcgen05.cp behind the barrier
      warp_arrive(c.barrier<Barrier::kSRead>(stage));
    }
  }
  if constexpr (kFirst) {
    // A select: neither a NaN nor what a padding scale byte made of the zero-filled keys passes.
#pragma unroll
    for (uint32_t f = 0; f < kFragments; ++f)
#pragma unroll
      for (uint32_t i = 0; i < kFragment; ++i)
        s[f][i] = int32_t(f * kFragment + i) < valid ? s[f][i] : -kInfinity;
  }

  // Four independent chains of three-input maxima.  A NaN score makes m, and with it the whole row, NaN, as
  // the mathematics has it; the polynomial alone would hide it.
  float chain[4] = {kFirst ? -kInfinity : row.max, -kInfinity, -kInfinity, -kInfinity};
#pragma unroll
  for (uint32_t f = 0; f < kFragments; ++f)
#pragma unroll
    for (uint32_t i = 0; i < kFragment; i += 2)
      chain[i / 2 % 4] = ptx::max3_nan_f32(chain[i / 2 % 4], s[f][i], s[f][i + 1]);
  const float block_max =
      ptx::max3_nan_f32(ptx::max3_nan_f32(chain[0], chain[1], chain[2]), chain[3], chain[3]);
  const float scale = c.p.scale_log2;
  float alpha = 0.0f;
  if constexpr (kFirst) {
    row.max = block_max;
  } else {
    // With nothing but -inf so far (or still) the exponent is -inf and alpha 0, which is right: O and the sum
    // are 0.
    const float shift = (row.max - (block_max == -kInfinity ? 0.0f : block_max)) * scale;
    const bool keep = shift >= -kRescaleThreshold;  // false for NaN, which has to reach O
    alpha = keep ? 1.0f : ptx::ex2_approx_ftz(shift);
    row.max = keep ? row.max : block_max;
    ptx::st_shared_f32(c.row_address<Smem::kAlpha>(stage), alpha);
    // S(n) complete implies P V(n-1) complete (one commit covers all earlier MMAs); the fence passes that on
    // to the correction.
    ptx::tcgen05_fence_before_thread_sync();
    warp_arrive(c.barrier<Barrier::kAlphaFull>(4 * stage + c.warp_in_group()));
  }
  const float bias = row.max == -kInfinity ? kPBias : kPBias - row.max * scale;  // -inf - -inf would be NaN

  const uint64_t scale2 = ptx::pack_f32x2(scale, scale), bias2 = ptx::pack_f32x2(bias, bias);
#pragma unroll
  for (uint32_t f = 0; f < kFragments; ++f) {
#pragma unroll
    for (uint32_t i = 0; i < kFragment; i += 2) {
      const uint64_t x = ptx::fma_rn_ftz_f32x2(ptx::pack_f32x2(s[f][i], s[f][i + 1]), scale2, bias2);
      if (is_emulated(f, i)) {
        exp2_polynomial(x, s[f][i], s[f][i + 1]);
      } else {
        ptx::unpack_f32x2(x, s[f][i], s[f][i + 1]);
        s[f][i] = ptx::ex2_approx_ftz(s[f][i]);
        s[f][i + 1] = ptx::ex2_approx_ftz(s[f][i + 1]);
      }
    }
    constexpr uint32_t kWords = kFragment * kElementBytes / 4;
    uint32_t words[kWords];
#pragma unroll
    for (uint32_t w = 0; w < kWords; ++w) {
      const float* v = &s[f][w * 4 / kElementBytes];
      words[w] = kMxfp8 ? ptx::cvt_rn_satfinite_e4m3x4_f32(v[3], v[2], v[1], v[0])
                        : ptx::cvt_rn_bf16x2_f32(v[1], v[0]);
    }
    ptx::tcgen05_st_32x32b(p_column + f * kWords, words);
    // BF16 hands P over in two parts, so that P V starts under the last quarter of the exponentials.
    if (f + 1 == kFragments || (!kMxfp8 && f + 2 == kFragments)) {
      ptx::tcgen05_wait_st();
      ptx::tcgen05_fence_before_thread_sync();  // our stores, before the MMA behind the barrier
      const bool last = !kMxfp8 && f + 1 == kFragments;
      warp_arrive(last ? c.barrier<Barrier::kPLast>(stage) : c.barrier<Barrier::kPFull>(stage));
    }
  }

  // Off the critical path, now that P is out.
  uint64_t sums[4] = {};
#pragma unroll
  for (uint32_t f = 0; f < kFragments; ++f)
#pragma unroll
    for (uint32_t i = 0; i < kFragment; i += 2)
      sums[i / 2 % 4] = ptx::add_rn_ftz_f32x2(sums[i / 2 % 4], ptx::pack_f32x2(s[f][i], s[f][i + 1]));
  float low, high;
  ptx::unpack_f32x2(
      ptx::add_rn_ftz_f32x2(ptx::add_rn_ftz_f32x2(sums[0], sums[1]), ptx::add_rn_ftz_f32x2(sums[2], sums[3])),
      low, high);
  row.sum = kFirst ? low + high : ptx::fma_rn_ftz_f32(row.sum, alpha, low + high);
}

// 128 threads: softmax warpgroup `stage`.
MXFA_DEVICE void softmax(const Context& c, uint32_t stage) {
  auto s_full = PipelineState<1>::consumer();
  auto sum_empty = PipelineState<1>::producer();
  bool first_block = true;  // of the kernel
  for (Tile tile(c.p); tile.valid(); tile.next()) {
    float lse = -kInfinity;  // without keys
    if (tile.blocks != 0) {
      SoftmaxRow row{};
      softmax_block<true>(c, stage, s_full.phase, stage == 1 || !first_block, tile.tail, row);
      s_full.advance();
      first_block = false;
      for (int32_t block = 1; block < tile.blocks; ++block) {
        softmax_block<false>(c, stage, s_full.phase, true, kTile, row);
        s_full.advance();
      }
      // The correction has taken the sum of the tile before?
      ptx::mbarrier_wait(c.barrier<Barrier::kSumEmpty>(stage), sum_empty.phase);
      sum_empty.advance();
      ptx::st_shared_f32(c.row_address<Smem::kRowSum>(stage), row.sum);
      warp_arrive(c.barrier<Barrier::kSumFull>(stage));
      const float reference = row.max == -kInfinity ? 0.0f : row.max * c.p.scale_log2;
      lse = (reference + ptx::lg2_approx_ftz(row.sum) - kPBias) * kLn2;
    }
    const int32_t token = tile.row + int32_t(stage * kTile + c.row());
    if (c.p.lse != 0 && token < tile.q.length)
      ptx::st_global_f32(pointer<float>(c.p.lse) + tile.head * c.p.rows_o + tile.q.first + token, lse);
  }
}

}  // namespace mxfa::attention_fwd_sm100
