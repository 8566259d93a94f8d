// The softmax warpgroups of attention_fwd_sm100: S (tensor memory) -> P (over S), row sums, LSE.  Thread =
// row of the query tile.
//
// Exponentials are base 2 with c = scale_log2 folded into one FMA: p = 2^(c S - c m + kPBias).  The reference
// point m follows the running maximum only when that has grown by more than kRescaleThreshold; any m is exact
// because O and the row sum share it, and most blocks then leave O alone (conditional rescaling,
// FlashAttention-4).
//
// Fields of ::Config: load_maximum (sm_103a: the load of S brings its maximum), skip_maximum (BF16: see
// softmax_without_maximum), exp2_emulation_period, exp2_emulation_count, exp2_emulation_first_fragment,
// exp2_emulation_degree.
#pragma once
#include "ptx/convert.cuh"
#include "ptx/fence.cuh"
#include "ptx/ld_st.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/tcgen05_ld_st.cuh"
#include "src/attention/attention_fwd_sm100_context.cuh"
#include "src/attention/attention_fwd_sm100_tiles.cuh"
#include "src/common/math.cuh"
#include "src/common/pipeline.cuh"
#include "src/common/scale_factor.cuh"

namespace mxfa::attention_fwd_sm100 {

inline constexpr float kInfinity = bits_float(0x7f800000);

// With the constant scale 2^-8 of MXFP8 the bias brings p = 1 to 256 (the row sum carries the same factor,
// the correction takes it out), and the threshold keeps p at or below 448, the largest E4M3.  BF16, and E4M3
// with a scale of its own for each row and 32 keys, have range to spare: p <= 2^8.
inline constexpr float kPBias = kConstantP ? 8.0f : 0.0f;
inline constexpr float kRescaleThreshold = kConstantP ? 0.80735486f : 8.0f;  // log2(448 / 256), rounded down
MXFA_CONSTEXPR double exp2_series(double x) {
  double term = 1, sum = 1;
  for (int n = 1; n < 60; ++n) sum += term *= x * 0.693147180559945309417 / n;
  return sum;
}
static_assert(!kConstantP || exp2_series(double(kPBias) + double(kRescaleThreshold)) <= 448.0,
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

inline constexpr uint32_t kEmulationDegree = Config::exp2_emulation_degree;
static_assert(kEmulationDegree == 2 || kEmulationDegree == 3, "exp2_emulation_degree is 2 or 3");

// 2^x on the FMA pipe for x <= 127, both halves of a pair.  Adding 1.5 * 2^23 rounding down leaves floor(x)
// in the low mantissa bits; the fraction goes through a cubic or a parabola (minimax for the relative error,
// 8.8e-5 and 2.1e-3; coefficients of FlashAttention-4); floor(x) is added to the exponent field.  From -127
// down the result is exactly +0, so masked scores (-inf) stay exact.
MXFA_DEVICE void exp2_polynomial(uint64_t x2, float& y0, float& y1) {
  constexpr float kRound = 12582912.0f;
  float x0, x1;
  ptx::unpack_f32x2(x2, x0, x1);
  const uint64_t x = ptx::pack_f32x2(ptx::max_f32(x0, -127.0f), ptx::max_f32(x1, -127.0f));
  const uint64_t rounded = ptx::add_rm_ftz_f32x2(x, ptx::pack_f32x2(kRound, kRound));
  const uint64_t floor = ptx::add_rn_ftz_f32x2(rounded, ptx::pack_f32x2(-kRound, -kRound));
  const uint64_t f = ptx::fma_rn_ftz_f32x2(floor, ptx::pack_f32x2(-1.0f, -1.0f), x);
  constexpr bool kCubic = kEmulationDegree == 3;
  constexpr float kFirst = kCubic ? 0.695146143436431884765625f : 0.6657850742340087890625f,
                  kSecond = kCubic ? 0.227564394474029541015625f : 0.330107033252716064453125f,
                  kThird = 0.077119089663028717041015625f;
  uint64_t y = ptx::pack_f32x2(kSecond, kSecond);
  if constexpr (kCubic) y = ptx::fma_rn_ftz_f32x2(ptx::pack_f32x2(kThird, kThird), f, y);
  y = ptx::fma_rn_ftz_f32x2(y, f, ptx::pack_f32x2(kFirst, kFirst));
  y = ptx::fma_rn_ftz_f32x2(y, f, ptx::pack_f32x2(1.0f, 1.0f));
  float r0, r1;
  ptx::unpack_f32x2(rounded, r0, r1);
  ptx::unpack_f32x2(y, y0, y1);
  y0 = bits_float(float_bits(y0) + (float_bits(r0) << 23));
  y1 = bits_float(float_bits(y1) + (float_bits(r1) << 23));
}

inline constexpr bool kLoadMaximum = Config::load_maximum;
inline constexpr bool kSkipMaximum = Config::skip_maximum && !kMxfp8;

struct SoftmaxRow {
  float max;           // the reference point m, in units of S
  float sum;           // of p, as stored before rounding
  int32_t begin, end;  // the keys it sees; begin is used with a left mask only
};

// A block of scores in registers, and of each fragment of 32 columns its maximum and (kDynamicP) its scale
// byte, all four in the word of the row.
struct SoftmaxBlock {
  const Context& c;
  uint32_t stage;
  float s[kFragments][kFragment];
  float maximum[kFragments];
  uint32_t scale_bytes;

  template <bool kWithMaximum>
  MXFA_DEVICE void load() {
    const uint32_t column = c.quadrant_lanes() + c.column<Tmem::kS0, Tmem::kS1>(stage);
#pragma unroll
    for (uint32_t f = 0; f < kFragments; ++f) {
      if constexpr (kWithMaximum) {
        ptx::tcgen05_ld_red_max_nan_32x32b(column + f * kFragment, s[f], maximum[f]);
      } else {
        ptx::tcgen05_ld_32x32b(column + f * kFragment, s[f]);
      }
    }
    ptx::tcgen05_wait_ld();
  }

  // Of keys that the row does not see the score becomes -inf.  A select: neither a NaN nor what a padding
  // scale byte made of zero-filled keys passes.
  MXFA_DEVICE void mask(const SoftmaxRow& row, int32_t block) {
    const int32_t begin = row.begin - block * int32_t(kTile), end = row.end - block * int32_t(kTile);
#pragma unroll
    for (uint32_t f = 0; f < kFragments; ++f)
#pragma unroll
      for (uint32_t i = 0; i < kFragment; ++i) {
        const int32_t key = int32_t(f * kFragment + i);
        const bool seen = key < end && (!kLeftMask || key >= begin);
        s[f][i] = seen ? s[f][i] : -kInfinity;
      }
  }

  // A chain of three-input maxima for each fragment.  A NaN score makes m, and with it the whole row, NaN, as
  // the mathematics has it; the polynomial alone would hide it.
  MXFA_DEVICE void find_maxima() {
#pragma unroll
    for (uint32_t f = 0; f < kFragments; ++f) {
      maximum[f] = ptx::max3_nan_f32(s[f][0], s[f][1], s[f][1]);
#pragma unroll
      for (uint32_t i = 2; i < kFragment; i += 2)
        maximum[f] = ptx::max3_nan_f32(maximum[f], s[f][i], s[f][i + 1]);
    }
  }

  // kDynamicP: 2^k, the largest power of two that keeps a fragment's p at or below 448: the scale byte 127 -
  // k as for any E4M3 block, from the one exponential of its maximum.  All four ahead of the first p: the
  // MMAs of the first part of P need the atom they lie in.
  MXFA_DEVICE void find_scales(float scale, float bias) {
    scale_bytes = 0;
#pragma unroll
    for (uint32_t f = 0; f < kFragments; ++f)
      scale_bytes |= e4m3_scale_byte<ScaleRounding::kCeil>(
                         float_bits(ptx::ex2_approx_ftz(ptx::fma_rn_ftz_f32(maximum[f], scale, bias))))
                     << 8 * f;
  }

  // p of fragment f under the reference point row.max.
  MXFA_DEVICE void exponentials(uint32_t f, float scale, float bias) {
    if constexpr (kDynamicP) bias += float(127 - int32_t(scale_bytes >> 8 * f & 255));
    const uint64_t scale2 = ptx::pack_f32x2(scale, scale), bias2 = ptx::pack_f32x2(bias, bias);
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
  }

  // Fragment f of P over S.  P is handed over in two parts, so that P V starts under the last quarter of the
  // exponentials.
  MXFA_DEVICE void publish(uint32_t f) {
    const uint32_t column = c.quadrant_lanes() + c.column<Tmem::kP0, Tmem::kP1>(stage);
    constexpr uint32_t kWords = kFragment * kElementBytes / 4;
    uint32_t words[kWords];
#pragma unroll
    for (uint32_t w = 0; w < kWords; ++w) {
      const float* v = &s[f][w * 4 / kElementBytes];
      words[w] = kMxfp8 ? ptx::cvt_rn_satfinite_e4m3x4_f32(v[3], v[2], v[1], v[0])
                        : ptx::cvt_rn_bf16x2_f32(v[1], v[0]);
    }
    ptx::tcgen05_st_32x32b(column + f * kWords, words);
    if (f + 2 < kFragments) return;
    const bool last = f + 1 == kFragments;
    if (kDynamicP && !last) {
      // The row's word of the scale atom.  The copy of the block before has read it: S(n) is complete.
      ptx::st_shared_b32(c.address<Smem::kSfP>(stage) + scale_atom_byte(c.row(), 0), scale_bytes);
      ptx::fence_proxy_async_shared_cta();  // generic write, read by tcgen05.cp
    }
    ptx::tcgen05_wait_st();
    ptx::tcgen05_fence_before_thread_sync();  // our stores, before the MMA behind the barrier
    if (last) {
      warp_arrive_at_mma<Barrier::kPLast>(c, stage);
    } else {
      warp_arrive_at_mma<Barrier::kPFull>(c, stage);
    }
  }

  // The factor of O goes to the correction.
  MXFA_DEVICE void publish_alpha(float alpha) const {
    ptx::st_shared_f32(c.row_address<Smem::kAlpha>(stage), alpha);
    // S(n) complete implies P V(n-1) complete (one commit covers all earlier MMAs); the fence passes that on
    // to the correction.  Where S carries scales, the one ahead of s_read does.
    if constexpr (!kOverlay) ptx::tcgen05_fence_before_thread_sync();
    warp_arrive(c.barrier<Barrier::kAlphaFull>(4 * stage + c.warp_in_group()));
  }

  // Sum of p over the row.
  MXFA_DEVICE float sum() const {
    float total = 0.0f;
    uint64_t sums[4] = {};
#pragma unroll
    for (uint32_t f = 0; f < kFragments; ++f) {
#pragma unroll
      for (uint32_t i = 0; i < kFragment; i += 2)
        sums[i / 2 % 4] = ptx::add_rn_ftz_f32x2(sums[i / 2 % 4], ptx::pack_f32x2(s[f][i], s[f][i + 1]));
      if (!kDynamicP && f + 1 != kFragments) continue;
      float low, high;
      ptx::unpack_f32x2(ptx::add_rn_ftz_f32x2(ptx::add_rn_ftz_f32x2(sums[0], sums[1]),
                                              ptx::add_rn_ftz_f32x2(sums[2], sums[3])),
                        low, high);
      if constexpr (kDynamicP) {
        // 2^(byte - 127) takes the fragment's factor out; byte 0 belongs to p of less than 2^-118.
        total = ptx::fma_rn_ftz_f32(low + high, bits_float((scale_bytes >> 8 * f & 255) << 23), total);
#pragma unroll
        for (uint64_t& part : sums) part = 0;
      } else {
        total = low + high;
      }
    }
    return total;
  }
};

// -inf - -inf would be NaN.
MXFA_DEVICE float reference_bias(float max, float scale) {
  return max == -kInfinity ? kPBias : kPBias - max * scale;
}

// Sum of a row's p over a block up to which its reference point may stay: p <= 2^12 then.
inline constexpr float kSumLimit = 4096.0f;

// p against the reference point in hand, without looking for the maximum first: that takes the maximum and
// its latency off the path from S to P.  False, and nothing handed over, if a row of the warp has outgrown
// its reference point (then the sum of its p shows it; NaN and infinities too) or has none yet; S is still
// there, because P is stored when this is known.
MXFA_DEVICE bool softmax_without_maximum(SoftmaxBlock& block, SoftmaxRow& row) {
  const float scale = block.c.p.scale_log2, bias = reference_bias(row.max, scale);
#pragma unroll
  for (uint32_t f = 0; f < kFragments; ++f) block.exponentials(f, scale, bias);
  const float sum = block.sum();
  if (!ptx::vote_all(sum < kSumLimit && row.max != -kInfinity)) return false;
  block.publish_alpha(1.0f);
#pragma unroll
  for (uint32_t f = 0; f < kFragments; ++f) block.publish(f);
  row.sum += sum;
  return true;
}

// One block of 128 keys, number n.  kFirst: no O to rescale yet; kMasked: not every row sees every key.
template <bool kFirst, bool kMasked>
MXFA_DEVICE void softmax_block(const Context& c, uint32_t stage, uint32_t phase, int32_t n, SoftmaxRow& row) {
  SoftmaxBlock block{c, stage};
  ptx::mbarrier_wait(c.barrier<Barrier::kSFull>(stage), phase);
  ptx::tcgen05_fence_after_thread_sync();  // the MMA wrote S
  block.load<kLoadMaximum && !kMasked && !kSkipMaximum>();
  if constexpr (kOverlay) {
    // The scales of the other stage's Q K^T may overwrite S now.
    ptx::tcgen05_fence_before_thread_sync();  // our loads, before the tcgen05.cp behind the barrier
    warp_arrive(c.barrier<Barrier::kSRead>(stage));
  }
  if constexpr (kMasked) block.mask(row, n);
  if constexpr (kSkipMaximum && !kMasked) {
    if (softmax_without_maximum(block, row)) return;
    block.load<kLoadMaximum>();
  }
  if constexpr (kMasked || !kLoadMaximum) block.find_maxima();

  const float block_max =
      ptx::max3_nan_f32(ptx::max3_nan_f32(block.maximum[0], block.maximum[1], block.maximum[2]),
                        block.maximum[3], kFirst ? block.maximum[3] : row.max);
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
    block.publish_alpha(alpha);
  }
  const float bias = reference_bias(row.max, scale);
  if constexpr (kDynamicP) block.find_scales(scale, bias);
#pragma unroll
  for (uint32_t f = 0; f < kFragments; ++f) {
    block.exponentials(f, scale, bias);
    block.publish(f);
  }
  const float sum = block.sum();  // off the critical path, now that P is out
  row.sum = kFirst ? sum : ptx::fma_rn_ftz_f32(row.sum, alpha, sum);
}

// The blocks of a tile for one stage, from the last to the first: the last one, then those that the right end
// of the window cuts, those that nothing cuts, those that its left end cuts.
MXFA_DEVICE void softmax_tile(const Context& c, uint32_t stage, const Tile& tile, BlockRange blocks,
                              PipelineState<1>& s_full, SoftmaxRow& row) {
  const int32_t diagonal = tile.query(stage, c.row()) + tile.diagonal();
  row.end = tile.k.length;
  if constexpr (kRightMask) row.end = min_of(row.end, diagonal + c.p.window_right + 1);
  if constexpr (kLeftMask) row.begin = diagonal - c.p.window_left;
  int32_t n = blocks.end - 1;
  softmax_block<true, true>(c, stage, s_full.phase, n--, row);
  s_full.advance();
  if constexpr (kRightMask || kLeftMask) {
    const BlockRange inner = tile.unmasked(stage, blocks);
    // Twice: from the right end to the bulk, and from there to the left end.
    for (int32_t until = inner.end;; until = blocks.first) {
      for (; n >= until && n >= blocks.first; --n) {
        softmax_block<false, true>(c, stage, s_full.phase, n, row);
        s_full.advance();
      }
      if (n < blocks.first) break;
      for (; n >= inner.first; --n) {
        softmax_block<false, false>(c, stage, s_full.phase, n, row);
        s_full.advance();
      }
    }
  } else {
    for (; n >= blocks.first; --n) {
      softmax_block<false, false>(c, stage, s_full.phase, n, row);
      s_full.advance();
    }
  }
}

// 128 threads: softmax warpgroup `stage`.
MXFA_DEVICE void softmax(const Context& c, uint32_t stage) {
  auto s_full = PipelineState<1>::consumer();
  auto sum_empty = PipelineState<1>::producer();
  for (Tiles<Walker::kWarp> tile(c); tile.valid(); tile.next()) {
    if (!tile.has_rows(stage)) continue;
    const BlockRange blocks = tile.blocks(stage);
    // Of the tile this and the head outlive the blocks; the loop over them has no register to spare.
    const int32_t token = tile.query(stage, c.row());
    const int32_t lse_row = token < tile.q.length ? tile.first_o() + token : -1;
    float lse = -kInfinity;  // without keys
    if (!blocks.empty()) {
      SoftmaxRow row{};
      softmax_tile(c, stage, tile, blocks, s_full, row);
      // The correction has taken the sum of the tile before?
      ptx::mbarrier_wait(c.barrier<Barrier::kSumEmpty>(stage), sum_empty.phase);
      sum_empty.advance();
      ptx::st_shared_f32(c.row_address<Smem::kRowSum>(stage), row.sum);
      warp_arrive(c.barrier<Barrier::kSumFull>(stage));
      const float reference = row.max == -kInfinity ? 0.0f : row.max * c.p.scale_log2;
      lse = (reference + ptx::lg2_approx_ftz(row.sum) - kPBias) * kLn2;
    }
    if (c.p.lse != 0 && lse_row >= 0)
      ptx::st_global_f32(pointer<float>(c.p.lse) + tile.head_q(c.row()) * c.p.rows_o + lse_row, lse);
  }
}

}  // namespace mxfa::attention_fwd_sm100
