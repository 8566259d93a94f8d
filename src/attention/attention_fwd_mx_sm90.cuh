// MXFP8 attention forward for Hopper (sm_90a): O = softmax(scale * Q K^T + mask) V over jagged sequences,
// with the operands and the roundings of attention_fwd_sm100.  Q [tokens, heads_q, D], K and V [tokens,
// heads_kv, D] E4M3 with a UE8M0 scale per 32 elements, of Q and K along D, of V along the tokens of a
// sequence; O bf16; LSE float [heads_q, rows of O], natural logarithm.
//
// Hopper's tensor cores know no block scales, but an E4M3 value times a power of two is a BF16 number.  The
// producer warpgroup multiplies the operands out on their way into shared memory
// (attention_fwd_mx_sm90_producer.cuh); the consumers multiply in BF16.  Each consumer warpgroup owns 64
// query rows and keeps S, P and O in registers.  P is rounded to E4M3 under the same reference points as on
// Blackwell (blocks of 128 keys from the last to the first, the same threshold), multiplied with its scale
// and fed from registers.
//
// CTAs are persistent and take tiles of 1 .. kConsumers runs of 64 rows from a list that the plan has ordered
// for load balance.
#include "ptx/barrier.cuh"
#include "ptx/bulk.cuh"
#include "ptx/convert.cuh"
#include "ptx/descriptor.cuh"
#include "ptx/elect.cuh"
#include "ptx/fence.cuh"
#include "ptx/launch.cuh"
#include "ptx/ld_st.cuh"
#include "ptx/matrix.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/sreg.cuh"
#include "ptx/tma.cuh"
#include "ptx/wgmma.cuh"
#include "src/attention/attention_fwd_mx_sm90_producer.cuh"
#include "src/attention/attention_fwd_mx_sm90_tables.cuh"
#include "src/common/jagged.cuh"
#include "src/common/math.cuh"
#include "src/common/pipeline.cuh"
#include "src/common/scale_factor.cuh"

namespace mxfa {

using namespace ptx;

// ---- consumer: one warpgroup, 64 rows ----
// Accumulator layout (PTX ISA, wgmma D fragment): register i of a thread is row 16 w + l/4 + 8 ((i>>1)&1),
// column 8 (i>>2) + 2 (l%4) + (i&1).
struct MxConsumer : MxWalk {
  static constexpr int kGroups = kTileN / int(kScaleBlock);  // of 32 keys
  static constexpr int kGroupParts = 8 / 2;                  // groups of 8 columns in one

  const AttentionForwardParams& p;
  uint32_t smem;
  int group, warp, lane;
  uint32_t tile;  // tiles before this one
  PipelineState<kStages> kv;
  float s[kTileN / 2];
  float o[kD / 2];
  uint32_t probability[kTileN / 4];
  float row_max[2], row_sum[2], alpha[2];
  uint32_t scale_bytes[2];  // of P, kDynamicP: a byte for each 32 keys

  MXFA_DEVICE uint32_t slot(const PipelineState<kStages>& state) const {
    return smem + kKvOffset + state.stage * kKvBytes;
  }
  MXFA_DEVICE void wait_kv(const PipelineState<kStages>& state) const {
    mbarrier_wait(smem + kKvFull + 8 * state.stage, state.phase);
  }
  MXFA_DEVICE void release_kv(const PipelineState<kStages>& state) const {
    if (lane == 0) mbarrier_arrive(smem + kKvEmpty + 8 * state.stage);
  }

  MXFA_DEVICE void issue_qk(uint32_t q, uint32_t k) {
    uint64_t a = wgmma_descriptor(q, 16, 1024, Swizzle::k128B),
             b = wgmma_descriptor(k, 16, 1024, Swizzle::k128B);
#pragma unroll
    for (int step = 0; step < kD / 16; ++step) {
      // 16 elements = 32 bytes inside a 128-byte panel row; four steps a panel.
      uint64_t da = descriptor_advance(a, (step / 4) * kQPanel + (step % 4) * 32);
      uint64_t db = descriptor_advance(b, (step / 4) * kKvPanel + (step % 4) * 32);
      // The first is written as an output: what stood in S is dead, and P may have its registers.
      if (step == 0)
        wgmma_bf16_ss_first<0, 0>(s, da, db);
      else
        wgmma_bf16_ss<0, 0>(s, da, db, true);
    }
    wgmma_commit();
  }
  MXFA_DEVICE void issue_pv(uint32_t v, bool accumulate) {
    // Panels of 64 channels, groups of 8 keys.
    uint64_t b = wgmma_descriptor(v, kKvPanel, 1024, Swizzle::k128B);
#pragma unroll
    for (int step = 0; step < kTileN / 16; ++step) {
      const uint32_t a[4] = {probability[4 * step], probability[4 * step + 1], probability[4 * step + 2],
                             probability[4 * step + 3]};
      wgmma_bf16_rs<1>(o, a, descriptor_advance(b, step * 16 * 128), accumulate || step != 0);
    }
    wgmma_commit();
  }

  // Keeps the keys of block n that the row may see; everything else becomes -inf (a select: neither a NaN nor
  // what a padding scale byte made of zero-filled keys passes).
  MXFA_DEVICE void mask(const MxTile& t, int n) {
    int shift = t.k_length - t.q_length;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int row = t.q_row + 64 * group + 16 * warp + lane / 4 + 8 * half;
      int end = t.k_length - n * kTileN, begin = 0;
      if (kRightMask) end = min_of(end, row + shift + p.window_right + 1 - n * kTileN);
      if (kLeftMask) begin = row + shift - p.window_left - n * kTileN;
      int column = 2 * (lane % 4);
      end -= column;
      begin -= column;
#pragma unroll
      for (int i = 0; i < kTileN / 4; ++i) {
        int c = 8 * (i >> 1) + (i & 1);
        bool keep = c < end && (!kLeftMask || c >= begin);
        float& x = s[4 * (i >> 1) + 2 * half + (i & 1)];
        x = keep ? x : -kInfinity;
      }
    }
  }

  MXFA_DEVICE static float maximum_of_row(float m) {  // over the four lanes of a row
    m = max_nan_f32(m, shfl_bfly(m, 1));
    return max_nan_f32(m, shfl_bfly(m, 2));
  }
  // -inf - -inf would be NaN.
  MXFA_DEVICE static float reference_bias(float max, float scale) {
    return max == -kInfinity ? kPBias : kPBias - max * scale;
  }

  // s becomes p = 2^(c s - c m + kPBias), with kDynamicP divided by the scale of its 32 keys; row_max,
  // row_sum and alpha are updated.  Step by step what softmax_block of attention_fwd_sm100 does.
  template <bool kFirst>
  MXFA_DEVICE void softmax() {
    const float c = p.scale_log2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float maximum[kGroups];
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        const float* x = s + 4 * kGroupParts * g + 2 * half;
        maximum[g] = max_nan_f32(x[0], x[1]);
#pragma unroll
        for (int i = 1; i < kGroupParts; ++i)
          maximum[g] = max_nan_f32(maximum[g], max_nan_f32(x[4 * i], x[4 * i + 1]));
        if (kDynamicP) maximum[g] = maximum_of_row(maximum[g]);
      }
      float block_max = max_nan_f32(max_nan_f32(maximum[0], maximum[1]), max_nan_f32(maximum[2], maximum[3]));
      if (!kDynamicP) block_max = maximum_of_row(block_max);
      if (kFirst) {
        row_max[half] = block_max;
        alpha[half] = 0.0f;
      } else {
        // With nothing but -inf so far (or still) the exponent is -inf and alpha 0, which is right: O and the
        // sum are 0.
        block_max = max_nan_f32(block_max, row_max[half]);
        const float shift = (row_max[half] - (block_max == -kInfinity ? 0.0f : block_max)) * c;
        const bool keep = shift >= -kRescaleThreshold;  // false for NaN, which has to reach O
        alpha[half] = keep ? 1.0f : ex2_approx_ftz(shift);
        row_max[half] = keep ? row_max[half] : block_max;
      }
      const float bias = reference_bias(row_max[half], c);
      float total = 0.0f, sum0 = 0.0f, sum1 = 0.0f;
      if (kDynamicP) scale_bytes[half] = 0;
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        float x_bias = bias;
        uint32_t byte = 127;
        if (kDynamicP) {
          // 2^k, the largest power of two that keeps the group's p at or below 448: the scale byte 127 - k as
          // for any E4M3 block, from the one exponential of its maximum.
          byte = e4m3_scale_byte<ScaleRounding::kCeil>(
              float_bits(ex2_approx_ftz(fma_rn_ftz_f32(maximum[g], c, bias))));
          x_bias += float(127 - int32_t(byte));
          scale_bytes[half] |= byte << 8 * g;
        }
#pragma unroll
        for (int i = 0; i < kGroupParts; ++i) {
          float& x0 = s[4 * (kGroupParts * g + i) + 2 * half];
          float& x1 = s[4 * (kGroupParts * g + i) + 2 * half + 1];
          x0 = ex2_approx_ftz(fma_rn_ftz_f32(x0, c, x_bias));
          x1 = ex2_approx_ftz(fma_rn_ftz_f32(x1, c, x_bias));
          const bool begins = i == 0 && (kDynamicP || g == 0);
          sum0 = begins ? x0 : sum0 + x0;
          sum1 = begins ? x1 : sum1 + x1;
        }
        // 2^(byte - 127) takes the group's factor out; byte 0 belongs to p of less than 2^-118.
        if (kDynamicP) total = fma_rn_ftz_f32(sum0 + sum1, bits_float(byte << 23), total);
      }
      if (!kDynamicP) total = sum0 + sum1;
      row_sum[half] = kFirst ? total : fma_rn_ftz_f32(row_sum[half], alpha[half], total);
    }
  }

  // 2^120 and the scale of a group of P, a pair of BF16.
  MXFA_DEVICE uint32_t p_factor(int half, int group_of_keys) const {
    constexpr uint32_t kExponent = 0x00800080;
    if (!kDynamicP) return (127 + 120 - 8) * kExponent;
    return ((scale_bytes[half] >> 8 * group_of_keys & 255) + 120) * kExponent;
  }
  // P as E4M3 times its scale, in BF16.  Columns 16 s .. 16 s + 15 of D are exactly the A fragment of k-step
  // s. p is not negative: its seven bits, moved to where BF16 has exponent and mantissa, are 2^-120 p,
  // subnormal E4M3 included.  A NaN is lost on the way, but the row sum has it.
  MXFA_DEVICE void convert_p() {
#pragma unroll
    for (int i = 0; i < kTileN / 4; i += 2) {  // of both halves: rows l/4 and l/4 + 8
      const uint32_t bytes = cvt_rn_satfinite_e4m3x4_f32(s[2 * i + 3], s[2 * i + 2], s[2 * i + 1], s[2 * i]);
      probability[i] = mul_rn_bf16x2(__byte_perm(bytes, 0, 0x4140) << 4, p_factor(0, i / (2 * kGroupParts)));
      probability[i + 1] =
          mul_rn_bf16x2(__byte_perm(bytes, 0, 0x4342) << 4, p_factor(1, i / (2 * kGroupParts)));
    }
  }
  MXFA_DEVICE void rescale() {
    // Warp-uniform skip: with the threshold most blocks keep their reference point.
    if (!vote_any(alpha[0] != 1.0f || alpha[1] != 1.0f)) return;
#pragma unroll
    for (int i = 0; i < kD / 2; ++i) o[i] *= alpha[(i >> 1) & 1];
  }

  MXFA_DEVICE void products_qk(uint32_t q, uint32_t k) {
    wgmma_fence();
    issue_qk(q, k);
  }
  MXFA_DEVICE void products_pv(uint32_t v, bool accumulate) {
    wgmma_pin(o);
    wgmma_fence();
    issue_pv(v, accumulate);
  }

  // kOverlap: S(n) and P V(n+1) on the tensor core, then the softmax of S(n).
  // Else: S(n), its softmax, P V(n); the tensor core works for the other warpgroups meanwhile.
  template <bool kMask, bool kFirst>
  MXFA_DEVICE void step(const MxTile& t, uint32_t q, int n, bool accumulate) {
    PipelineState<kStages> k_state = kv, v_state = kv;
    v_state.advance();
    wait_kv(k_state);
    products_qk(q, slot(k_state));
    if constexpr (kOverlap && !kFirst) {
      wait_kv(v_state);
      products_pv(slot(v_state), accumulate);
      wgmma_wait<1>();
    } else {
      wgmma_wait<0>();
    }
    wgmma_pin(s);
    release_kv(k_state);
    if (kMask) mask(t, n);
    softmax<kFirst>();
    if constexpr (kOverlap && !kFirst) {
      wgmma_wait<0>();
      wgmma_pin(o);
      release_kv(v_state);
    }
    if (!kFirst) rescale();
    convert_p();
    if constexpr (!kOverlap) {
      wait_kv(v_state);
      products_pv(slot(v_state), !kFirst);
      wgmma_wait<0>();
      wgmma_pin(o);
      release_kv(v_state);
    }
    kv = kOverlap && kFirst ? k_state : v_state;
    kv.advance();
  }

  MXFA_DEVICE void store(const MxTile& t, uint32_t buffer) {
    // This warpgroup's rows of the Q buffer are free: its last Q K^T is complete.
    float scale[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = row_sum[half];
      sum += shfl_bfly(sum, 1);
      sum += shfl_bfly(sum, 2);
      // The sum is of 2^kPBias p; the constant scale 2^-kPBias has already taken it out of O.
      scale[half] = sum == 0.0f ? 0.0f : rcp_approx_ftz(sum) * (kDynamicP ? 1.0f : 256.0f);
      int row = t.q_row + 64 * group + 16 * warp + lane / 4 + 8 * half;
      if (p.lse != 0 && lane % 4 == 0 && row < t.q_length) {
        const float reference = row_max[half] == -kInfinity ? 0.0f : row_max[half] * p.scale_log2;
        pointer<float>(p.lse)[int64_t(t.head) * p.rows_o + t.o_first + row] =
            (reference + lg2_approx_ftz(sum) - kPBias) * kLn2;
      }
    }
    // stmatrix x4: lane l gives the address of row l%8 of matrix l/8; matrices are (rows 0-7 | 8-15) x
    // (columns 0-7 | 8-15).
    int row = 64 * group + 16 * warp + lane % 8 + 8 * ((lane / 8) & 1);
#pragma unroll
    for (int step = 0; step < 4 * kPanels; ++step) {  // at D = 96 the store reads zeros that it then drops
      uint32_t r[4] = {};
#pragma unroll
      for (int j = 0; j < 4 && step < kD / 16; ++j) {
        // A select: O of a tile without keys was never written.
        float low = scale[j & 1] == 0.0f ? 0.0f : o[8 * step + 2 * j] * scale[j & 1];
        float high = scale[j & 1] == 0.0f ? 0.0f : o[8 * step + 2 * j + 1] * scale[j & 1];
        r[j] = cvt_rn_bf16x2_f32(high, low);
      }
      int chunk = (step % 4) * 2 + lane / 16;  // 16-byte chunk of the 128-byte panel row
      uint32_t address = buffer + (step / 4) * kQPanel + row * 128 + ((chunk ^ (row & 7)) << 4);
      stmatrix_x4(address, r[0], r[1], r[2], r[3]);
    }
    fence_proxy_async_shared_cta();      // stmatrix is a generic write, the TMA store reads through the async
                                         // proxy
    named_barrier_sync(8 + group, 128);  // all 64 rows are written
    if (warp == 0 && elect_one()) {
      RaggedRow at = ragged_row({t.o_first, t.q_length}, t.q_row + 64 * group);
#pragma unroll
      for (int panel = 0; panel < kPanels; ++panel)
        tma_store_5d(&p.o, buffer + panel * kQPanel + group * (64 * 128), 64 * panel, t.head, at.row,
                     at.shift, at.end);
      bulk_commit_group();
    }
  }

  // Hands the Q buffer of the tile before back.  Late enough that the O store has been read from it (no
  // stall), early enough that the next Q can be expanded under this tile.  Every warp arrives: a warp of a
  // warpgroup without rows waits for nobody, and must have read the tile's description.
  MXFA_DEVICE void release_last_q() {
    if (tile > 0 && elect_one()) {
      if (warp == 0) bulk_wait_group_read<0>();
      mbarrier_arrive(smem + kQEmpty + 8 * ((tile - 1) % kQStages));
    }
  }

  MXFA_DEVICE MxTile describe_tile() const { return MxTile::load(tile_address(smem, tile)); }
  MXFA_DEVICE MxTile wait_tile() const {
    mbarrier_wait(smem + kQFull + 8 * (tile % kQStages), tile / kQStages % 2);
    return describe_tile();
  }

  // A block this warpgroup has no use for: the slot still has to come by before it may be given back.
  MXFA_DEVICE void skip_kv() {
    wait_kv(kv);
    release_kv(kv);
    kv.advance();
  }

  // Rows without a key: O = 0, LSE = -inf.
  MXFA_DEVICE void no_keys() {
    release_last_q();
    row_max[0] = row_max[1] = -kInfinity;
    row_sum[0] = row_sum[1] = 0.0f;
  }

  MXFA_DEVICE void attend(const MxTile& t, uint32_t q) {
    int row = t.q_row + 64 * group;
    // Blocks after this warpgroup's last visible key, and everything when the sequence ends before its rows,
    // are not computed.
    int n_end =
        64 * group < t.rows && row < t.q_length ? max_of(end_block(p, t, row + 64), t.n_min) : t.n_min;
    int n = n_end - 1;
    // Without a right mask every warpgroup with work starts at the tile's last block.
    const bool from_end = !kRightMask || n == t.n_max - 1;
    // Slots before K(n): a K and a V a block; with overlap the V of the block above comes after it.
    int skipped = 2 * (t.n_max - n_end);
    if (kOverlap && n >= t.n_min) skipped = from_end ? 0 : skipped - 1;
    for (; skipped > 0; --skipped) skip_kv();
    if (n < t.n_min) {
      no_keys();
      return;
    }
    step<true, true>(t, q, n, false);
    if (kOverlap && !from_end) skip_kv();
    release_last_q();
    // Blocks [full_low, full_high) need no mask.
    int full_high = t.k_length / kTileN;
    if (kRightMask)
      full_high = min_of(full_high, max_of(row + t.k_length - t.q_length + p.window_right + 1, 0) / kTileN);
    int full_low =
        kLeftMask ? ceil_div(max_of(row + 63 + t.k_length - t.q_length - p.window_left, 0), kTileN) : 0;
    bool accumulate = false;
    --n;
    if (kRightMask)
      for (; n >= t.n_min && n >= full_high; --n) {
        step<true, false>(t, q, n, accumulate);
        accumulate = true;
      }
    for (; n >= max_of(t.n_min, full_low); --n) {
      step<false, false>(t, q, n, accumulate);
      accumulate = true;
    }
    if (kLeftMask)
      for (; n >= t.n_min; --n) {
        step<true, false>(t, q, n, accumulate);
        accumulate = true;
      }
    if constexpr (kOverlap) {  // the last P V has no Q K^T beside it
      wait_kv(kv);
      products_pv(slot(kv), accumulate);
      wgmma_wait<0>();
      wgmma_pin(o);
      release_kv(kv);
      kv.advance();
    }
  }

  MXFA_DEVICE void run() {
    for (MxTile t = wait_tile(); t.rows != 0; t = wait_tile()) {
      if (t.empty()) {
        no_keys();
      } else {
        attend(t, smem + kQOffset + tile % kQStages * kQBytes + group * (64 * 128));
      }
      const MxTile finished = describe_tile();
      if (64 * group < finished.rows) store(finished, smem + kQOffset + tile % kQStages * kQBytes);
      ++tile;
    }
    if (warp == 0 && elect_one()) bulk_wait_group<0>();  // shared memory must outlive the reads
  }
};

struct AttentionFwdMxSm90 : AttentionFwdMxSm90Tables {
  MXFA_DEVICE static void initialise(uint32_t smem) {
    for (int i = 0; i < kQStages; ++i) {
      mbarrier_init(smem + kQFull + 8 * i, kExpanders);
      mbarrier_init(smem + kQEmpty + 8 * i, kEmptyCount);
    }
    for (int i = 0; i < kStages; ++i) {
      mbarrier_init(smem + kKvFull + 8 * i, kExpanders);
      mbarrier_init(smem + kKvEmpty + 8 * i, kEmptyCount);
    }
    for (int i = 0; i < kStaging; ++i) {
      mbarrier_init(smem + kStagedFull + 8 * i, 1);
      mbarrier_init(smem + kStagedEmpty + 8 * i, kExpanders);
    }
    for (int i = 0; i < kTileStages; ++i) mbarrier_init(smem + kTileFull + 8 * i, 1);
    MxLoader::initialise(smem);
    fence_mbarrier_init();  // visible to the async proxy, which completes transactions on them
  }

  MXFA_DEVICE static void run(const AttentionForwardParams& p) {
    extern __shared__ __align__(1024) uint8_t dynamic_shared[];
    const uint32_t smem = smem_address(dynamic_shared);
    const int warp = warp_id();
    if (warp == 0 && elect_one()) initialise(smem);
    cta_sync();
    if (warp < 4) {
      setmaxnreg_dec<Config::producer_registers>();
      if (warp == 0 && elect_one()) {
        prefetch_tensor_map(&p.q);
        prefetch_tensor_map(&p.k);
        prefetch_tensor_map(&p.v);
        prefetch_tensor_map(&p.o);
      }
      MxExpander(smem, warp).run(p);
    } else {
      setmaxnreg_inc<Config::consumer_registers>();
      MxConsumer consumer{{}, p, smem, warp / 4 - 1, warp % 4, int(lane_id())};
      consumer.run();
    }
  }
};

}  // namespace mxfa

MXFA_PUBLISH_TABLES(attention_fwd_mx_sm90, mxfa::AttentionFwdMxSm90::tables());

// One CTA an SM (shared memory sees to that anyway): without the 1, ptxas drops setmaxnreg.
extern "C" __global__ void __launch_bounds__(mxfa::AttentionFwdMxSm90::kThreads, 1)
    attention_fwd_mx_sm90(const __grid_constant__ mxfa::AttentionForwardParams p) {
  mxfa::AttentionFwdMxSm90::run(p);
}
