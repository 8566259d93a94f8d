// Attention forward for Hopper (sm_90a): O = softmax(scale * Q K^T + mask) V over jagged sequences.
// Q [tokens, heads_q, D], K and V [tokens, heads_kv, D] bf16; O bf16; LSE float [heads_q, rows of O], natural
// logarithm.
//
// Config::mxfp8: the operands are MXFP8 that mxfp8_expand has multiplied out to BF16, and P is rounded as
// attention_fwd_sm100 rounds it (attention_fwd_sm90_softmax.cuh).
//
// One producer warp loads tiles through TMA; every consumer warpgroup owns 64 query rows of the tile.  A
// consumer keeps S, P and O in registers and overlaps two ways: inside a warpgroup (Config::overlap) the
// tensor core runs P V of block n+1 under the softmax of block n, and between warpgroups one's softmax runs
// under the others' GEMMs.  Three warpgroups with a narrow key block keep the tensor core busier than two
// with a wide one, and need no barriers to take turns (measured; docs). CTAs are persistent and take tiles
// from a list that the plan has ordered for load balance.  A tile is 1 .. kConsumers runs of 64 rows. Blocks
// of keys are walked from the last to the first: the masked ones (tail, diagonal) are peeled off a
// branch-free bulk loop.
#include "ptx/atomic.cuh"
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
#include "src/attention/attention_fwd_sm90_softmax.cuh"
#include "src/attention/attention_fwd_sm90_tables.cuh"
#include "src/common/jagged.cuh"
#include "src/common/math.cuh"
#include "src/common/pipeline.cuh"
#include "src/common/types.cuh"

namespace mxfa {

using namespace ptx;

struct AttentionFwdSm90 : AttentionFwdSm90Tables {
  // What the consumers must know of a tile.  The loader works it out and leaves it beside the Q buffer, so
  // that no consumer spends registers or a trip to global memory on it.
  struct Tile {
    int32_t head, q_row;             // q_row: first row of the tile in its sequence
    int32_t q_length, o_first;       // rows of the sequence; its first row in O
    int32_t k_length, n_min, n_max;  // blocks of keys with a key that some row sees: [n_min, n_max)
    int32_t rows;  // query rows of the tile, a multiple of 64 up to kTileM; 0: no more tiles
  };
  struct TileSource {  // and what only the loader needs
    Tile tile;
    Sequence q, k;
  };

  MXFA_DEVICE static TileSource read_tile(const AttentionForwardParams& p, int index) {
    U32x4 entry = ld_global_nc_v4(pointer<const U32x4>(p.tiles) + index);
    int32_t batch = entry.x;
    TileSource s;
    s.tile.rows = batch < 0 ? 0 : entry.w;
    if (batch < 0) return s;
    s.q = load_sequence(pointer<const int32_t>(p.offsets_q), p.broadcast_q ? 0 : batch);
    s.k = load_sequence(pointer<const int32_t>(p.offsets_k), batch);
    Tile& t = s.tile;
    t.head = entry.y;
    t.q_row = entry.z;
    t.q_length = s.q.length;
    t.k_length = s.k.length;
    t.o_first = p.broadcast_q ? batch * s.q.length : s.q.first;
    t.n_min = kLeftMask ? first_block(p, t, t.q_row) : 0;
    t.n_max = end_block(p, t, t.q_row + t.rows);
    return s;
  }
  // One past the last block that a row before `row_end` sees.  Bottom-right alignment: query i sees keys up
  // to i + (k_length - q_length) + right.
  MXFA_DEVICE static int end_block(const AttentionForwardParams& p, const Tile& t, int row_end) {
    int end = t.k_length;
    if (kRightMask)
      end = min_of(end, max_of(min_of(row_end, t.q_length) + t.k_length - t.q_length + p.window_right, 0));
    return (end + kTileN - 1) / kTileN;
  }
  MXFA_DEVICE static int first_block(const AttentionForwardParams& p, const Tile& t, int row) {
    return max_of(row + t.k_length - t.q_length - p.window_left, 0) / kTileN;
  }

  // ---- producer: one thread ---------------------------------------------------------------------------
  MXFA_DEVICE static void produce(const AttentionForwardParams& p, uint32_t smem) {
    PipelineState<kQStages> q_state = PipelineState<kQStages>::producer();
    PipelineState<kStages> kv_state = PipelineState<kStages>::producer();
    int ratio = p.heads_q / p.heads_kv;
    auto load_kv = [&](const TensorMap& map, Sequence k, int head, int n) {
      uint32_t full = smem + kKvFull + 8 * kv_state.stage;
      mbarrier_wait(smem + kKvEmpty + 8 * kv_state.stage, kv_state.phase);
      mbarrier_arrive_expect_tx(full, kKvBytes);
      uint32_t destination = smem + kKvOffset + kv_state.stage * kKvBytes;
      RaggedRow row = ragged_row(k, n * kTileN);
#pragma unroll
      for (int panel = 0; panel < kPanels; ++panel)
        tma_load_5d(destination + panel * kKvPanel, &map, full, 64 * panel, head, row.row, row.shift,
                    row.end);
      kv_state.advance();
    };
    auto acquire_q = [&](const Tile& t) {
      mbarrier_wait(smem + kQEmpty + 8 * q_state.stage, q_state.phase);
      uint32_t info = smem + kTileOffset + q_state.stage * kTileBytes;
      st_shared_v4(info, {uint32_t(t.head), uint32_t(t.q_row), uint32_t(t.q_length), uint32_t(t.o_first)});
      st_shared_v4(info + 16, {uint32_t(t.k_length), uint32_t(t.n_min), uint32_t(t.n_max), uint32_t(t.rows)});
    };
    // The first tile of every CTA is its own; the others go to whoever comes first, in the plan's order
    // (heaviest first).
    int32_t* counters = pointer<int32_t>(p.counters);
    for (int index = blockIdx.x; index < p.tile_count;
         index = gridDim.x + atom_add_acq_rel_gpu_s32(counters, 1)) {
      TileSource source = read_tile(p, index);
      const Tile& t = source.tile;
      if (t.rows == 0) break;  // the end of a list that attention_lengths wrote
      int head_kv = t.head / ratio;
      acquire_q(t);
      uint32_t full = smem + kQFull + 8 * q_state.stage;
      bool empty = t.n_min >= t.n_max;
      // The arrival releases the tile's description as well as it announces the bytes of Q.
      mbarrier_arrive_expect_tx(full, empty ? 0 : kQBytes);
      if (!empty) {
        RaggedRow row = ragged_row(source.q, t.q_row);
#pragma unroll
        for (int panel = 0; panel < kPanels; ++panel)
          tma_load_5d(smem + kQOffset + q_state.stage * kQBytes + panel * kQPanel, &p.q, full, 64 * panel,
                      t.head, row.row, row.shift, row.end);
      }
      q_state.advance();  // an empty tile takes its turn too: its O leaves through the buffer
      if (empty) continue;
      if constexpr (kOverlap) {
        // The consumers' order: K(last), then K(n) with V(n+1), then V(first).
        load_kv(p.k, source.k, head_kv, t.n_max - 1);
        for (int n = t.n_max - 2; n >= t.n_min; --n) {
          load_kv(p.k, source.k, head_kv, n);
          load_kv(p.v, source.k, head_kv, n + 1);
        }
        load_kv(p.v, source.k, head_kv, t.n_min);
      } else {
        for (int n = t.n_max - 1; n >= t.n_min; --n) {
          load_kv(p.k, source.k, head_kv, n);
          load_kv(p.v, source.k, head_kv, n);
        }
      }
    }
    acquire_q(Tile{});
    mbarrier_arrive(smem + kQFull + 8 * q_state.stage);
    if (atom_add_acq_rel_gpu_s32(counters + 1, 1) ==
        int(gridDim.x) - 1) {  // the last CTA leaves the counters as it found them
      counters[0] = 0;
      counters[1] = 0;
    }
  }

  // ---- consumer: one warpgroup, 64 rows -------------------------------------------------------------------
  // Accumulator layout (PTX ISA, wgmma D fragment): register i of a thread is row 16 w + l/4 + 8 ((i>>1)&1),
  // column 8 (i>>2) + 2 (l%4) + (i&1).
  struct Consumer : SoftmaxSm90 {
    const AttentionForwardParams& p;
    uint32_t smem;
    int group, warp, lane;
    uint32_t tile;  // tiles before this one: stage and phase of the Q ring in one register
    PipelineState<kStages> kv_state;
    float o[kD / 2];

    MXFA_DEVICE uint32_t slot(const PipelineState<kStages>& state) const {
      return smem + kKvOffset + state.stage * kKvBytes;
    }
    MXFA_DEVICE void wait_kv(const PipelineState<kStages>& state) {
      mbarrier_wait(smem + kKvFull + 8 * state.stage, state.phase);
    }
    MXFA_DEVICE void release_kv(const PipelineState<kStages>& state) {
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
        if (!kOverlap && step == 0)
          wgmma_bf16_ss_first<0, 0>(s, da, db);
        else
          wgmma_bf16_ss<0, 0>(s, da, db, step != 0);
      }
      wgmma_commit();
    }
    MXFA_DEVICE void issue_pv(uint32_t v, bool accumulate) {
      uint64_t b =
          wgmma_descriptor(v, kKvPanel, 1024, Swizzle::k128B);  // panels of 64 channels, groups of 8 keys
#pragma unroll
      for (int step = 0; step < kTileN / 16; ++step) {
        const uint32_t a[4] = {probability[4 * step], probability[4 * step + 1], probability[4 * step + 2],
                               probability[4 * step + 3]};
        wgmma_bf16_rs<1>(o, a, descriptor_advance(b, step * 16 * 128), accumulate || step != 0);
      }
      wgmma_commit();
    }

    // Keeps the keys of block n that the row may see; everything else becomes -inf (a select: NaN cannot
    // pass).
    MXFA_DEVICE void mask(const Tile& t, int n) {
      const int shift = t.k_length - t.q_length;
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
          x = keep ? x : kMinusInfinity;
        }
      }
    }

    // S(n) once more, by this warp alone: the warp-level MMA has the accumulator layout of a wgmma, and the
    // other warps need not take part.
    MXFA_DEVICE void recompute_scores(uint32_t q, uint32_t k) {
#pragma unroll
      for (int i = 0; i < kTileN / 2; ++i) s[i] = 0.0f;
      // Lane l names row l%8 of matrix l/8.  A: rows 0-7 | 8-15, then the other 8 channels; B: 8 keys,
      // channels 0-7 | 8-15, then 8 more keys.
      const int q_row = 16 * warp + lane % 16, key = lane % 8 + 8 * (lane / 16);
      const uint32_t q_address = q + q_row * 128, k_address = k + key * 128;
      const int q_half = lane / 16, k_half = (lane / 8) % 2, row = lane % 8;
#pragma unroll 1  // a rare path: small, and without registers of its own
      for (int step = 0; step < kD / 16; ++step) {
        // 16-byte chunk of a 128-byte panel row; the swizzle is an exclusive or with the row
        const int chunk = 2 * (step % 4);
        uint32_t a[4], b[4];
        ldmatrix_x4(q_address + (step / 4) * kQPanel + (((chunk + q_half) ^ row) << 4), a);
        const uint32_t k_chunk = k_address + (step / 4) * kKvPanel + (((chunk + k_half) ^ row) << 4);
#pragma unroll
        for (int pair = 0; pair < kTileN / 16; ++pair) {
          ldmatrix_x4(k_chunk + pair * (16 * 128), b);
          float* d = s + 8 * pair;
          mma_m16n8k16_bf16(d[0], d[1], d[2], d[3], a, b[0], b[1]);
          mma_m16n8k16_bf16(d[4], d[5], d[6], d[7], a, b[2], b[3]);
        }
      }
    }

    MXFA_DEVICE void rescale() {
      // Warp-uniform skip: with the threshold almost every block keeps its reference point.
      if (!vote_any(alpha[0] != 1.0f || alpha[1] != 1.0f)) return;
#pragma unroll
      for (int i = 0; i < kD / 2; ++i) o[i] *= alpha[(i >> 1) & 1];
    }

    MXFA_DEVICE void products_pv(uint32_t v, bool accumulate) {
      wgmma_pin(o);
      wgmma_fence();
      issue_pv(v, accumulate);
    }
    MXFA_DEVICE void finish_pv(const PipelineState<kStages>& v_state) {
      wgmma_wait<0>();
      wgmma_pin(o);
      release_kv(v_state);
    }

    // One block.  kOverlap: S(n) and P V(n+1) on the tensor core, softmax of S(n) under P V and under the
    // other warpgroups' turns.  Else: S(n), its softmax, P V(n); the tensor core works for the other
    // warpgroups meanwhile.
    template <bool kMask>
    MXFA_DEVICE void step(const Tile& t, uint32_t q, int n, bool accumulate) {
      PipelineState<kStages> k_state = kv_state;
      PipelineState<kStages> v_state = kv_state;
      v_state.advance();
      wait_kv(k_state);
      wgmma_pin(s);
      wgmma_fence();
      issue_qk(q, slot(k_state));
      if constexpr (kOverlap) {
        wait_kv(v_state);
        products_pv(slot(v_state), accumulate);
        wgmma_wait<1>();
      } else {
        wgmma_wait<0>();
      }
      wgmma_pin(s);
      // MXFP8's threshold is a factor of 1.75: on normal data most blocks have a row that outgrows it.
      if (kMask || kMxfp8) {
        if (kMask) mask(t, n);
        softmax<false>(p.scale_log2);
      } else if (!softmax_without_maximum(p.scale_log2)) {
        recompute_scores(q, slot(k_state));
        softmax<false>(p.scale_log2);
      }
      release_kv(k_state);
      if constexpr (kOverlap) finish_pv(v_state);
      rescale();
      convert_p();
      if constexpr (!kOverlap) {
        wait_kv(v_state);
        products_pv(slot(v_state), accumulate);
        finish_pv(v_state);
      }
      kv_state = v_state;
      kv_state.advance();
    }

    MXFA_DEVICE void store(const Tile& t, uint32_t buffer) {
      // This warpgroup's rows of the Q buffer are free: its last Q K^T is complete.
      float scale[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float sum = row_sum[half];
        sum += shfl_bfly(sum, 1);
        sum += shfl_bfly(sum, 2);
        // 0: no visible key.  The sum is of 2^kPBias p, O of p times the scale 2^-kPBias of P.
        scale[half] = sum == 0.0f ? 0.0f : rcp_approx_ftz(sum) * kPUnscale;
        int row = t.q_row + 64 * group + 16 * warp + lane / 4 + 8 * half;
        if (p.lse != 0 && lane % 4 == 0 && row < t.q_length) {
          const float reference = row_max[half] == kMinusInfinity ? 0.0f : row_max[half] * p.scale_log2;
          const float value = (reference + lg2_approx_ftz(sum) - kPBias) * kLn2;
          pointer<float>(p.lse)[int64_t(t.head) * p.rows_o + t.o_first + row] = value;
        }
      }
      // stmatrix x4: lane l gives the address of row l%8 of matrix l/8; matrices are (rows 0-7 | 8-15) x
      // (columns 0-7 | 8-15).
      int row = 64 * group + 16 * warp + lane % 8 + 8 * ((lane / 8) & 1);
#pragma unroll
      for (int step = 0; step < kD / 16; ++step) {
        uint32_t r[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          // A select: O of a tile without keys was never written.
          float low = scale[j & 1] == 0.0f ? 0.0f : o[8 * step + 2 * j] * scale[j & 1];
          float high = scale[j & 1] == 0.0f ? 0.0f : o[8 * step + 2 * j + 1] * scale[j & 1];
          r[j] = cvt_rn_bf16x2_f32(high, low);
        }
        int chunk = (step % 4) * 2 + lane / 16;  // 16-byte chunk of the 128-byte panel row
        uint32_t address = buffer + (step / 4) * kQPanel + row * 128 + ((chunk ^ (row & 7)) << 4);
        stmatrix_x4(address, r[0], r[1], r[2], r[3]);
      }
      fence_proxy_async_shared_cta();  // stmatrix is a generic write, the TMA store reads through the async
                                       // proxy
      named_barrier_sync(8 + group, 128);  // all 64 rows are written
      if (warp == 0 && elect_one()) {
        RaggedRow row = ragged_row({t.o_first, t.q_length}, t.q_row + 64 * group);
#pragma unroll
        for (int panel = 0; panel < kPanels; ++panel)
          tma_store_5d(&p.o, buffer + panel * kQPanel + group * (64 * 128), 64 * panel, t.head, row.row,
                       row.shift, row.end);
        bulk_commit_group();
      }
    }

    // Hands the Q buffer of the tile before back to the loader.  Late enough that the O store has been read
    // from it (no stall), early enough that the loader can fetch the next Q and K under this tile.  Every
    // warp arrives: a warp of a warpgroup without rows waits for nobody, and must have read the tile's
    // description.
    MXFA_DEVICE void release_last_q() {
      if (tile > 0 && elect_one()) {
        if (warp == 0) bulk_wait_group_read<0>();
        mbarrier_arrive(smem + kQEmpty + 8 * ((tile - 1) % kQStages));
      }
    }

    MXFA_DEVICE uint32_t q_stage() const { return tile % kQStages; }
    MXFA_DEVICE Tile wait_tile() {
      mbarrier_wait(smem + kQFull + 8 * q_stage(), tile / kQStages % 2);
      return describe_tile();
    }
    // Read where it is needed: no register holds it in between.
    MXFA_DEVICE Tile describe_tile() const {
      uint32_t info = smem + kTileOffset + q_stage() * kTileBytes;
      U32x4 a = ld_shared_v4(info), b = ld_shared_v4(info + 16);
      // n_min is 0 without a left mask.  Said to the compiler only where it saves the register that would
      // spill (without masks); in the causal kernel the same constant makes ptxas spill eight.
      const int32_t n_min = kLeftMask || kRightMask ? int32_t(b.y) : 0;
      return {int32_t(a.x), int32_t(a.y), int32_t(a.z), int32_t(a.w),
              int32_t(b.x), n_min,        int32_t(b.z), int32_t(b.w)};
    }

    // A block this warpgroup has no use for: the slot still has to come by before it may be given back.
    MXFA_DEVICE void skip_kv() {
      wait_kv(kv_state);
      release_kv(kv_state);
      kv_state.advance();
    }

    // P V of the block that was converted last, alone.
    MXFA_DEVICE void finish_block(bool accumulate) {
      wait_kv(kv_state);
      products_pv(slot(kv_state), accumulate);
      finish_pv(kv_state);
      kv_state.advance();
    }

    // Rows without a key: O = 0, LSE = -inf.
    MXFA_DEVICE void no_keys() {
      release_last_q();
      row_max[0] = row_max[1] = kMinusInfinity;
      row_sum[0] = row_sum[1] = 0.0f;
    }

    MXFA_DEVICE void attend(const Tile& t, uint32_t q) {
      int row = t.q_row + 64 * group;
      // Blocks after this warpgroup's last visible key, and everything when the sequence ends before its
      // rows, are not computed.
      int n_end =
          64 * group < t.rows && row < t.q_length ? max_of(end_block(p, t, row + 64), t.n_min) : t.n_min;
      int n = n_end - 1;
      // Slots before K(n) in the loader's order: a K and a V a block; with overlap the V of a block comes
      // after the K of the next.  Without a right mask every warpgroup with work starts at the tile's last
      // block.
      const bool from_end = !kRightMask || n == t.n_max - 1;
      int skipped = 2 * (t.n_max - n_end);
      if (kOverlap && n >= t.n_min) skipped = from_end ? 0 : skipped - 1;
      for (; skipped > 0; --skipped) skip_kv();
      if (n < t.n_min) {
        no_keys();
        return;
      }
      wait_kv(kv_state);
      wgmma_pin(s);
      wgmma_fence();
      issue_qk(q, slot(kv_state));
      wgmma_wait<0>();
      wgmma_pin(s);
      release_kv(kv_state);
      kv_state.advance();
      if (kOverlap && !from_end) skip_kv();  // V of the block above
      mask(t, n);
      softmax<true>(p.scale_log2);
      convert_p();
      release_last_q();
      if constexpr (!kOverlap) finish_block(false);
      // Blocks [full_low, full_high) need no mask.
      int full_high = t.k_length / kTileN;
      if (kRightMask)
        full_high = min_of(full_high, max_of(row + t.k_length - t.q_length + p.window_right + 1, 0) / kTileN);
      int full_low =
          kLeftMask ? (max_of(row + 63 + t.k_length - t.q_length - p.window_left, 0) + kTileN - 1) / kTileN
                    : 0;
      bool accumulate = !kOverlap;
      --n;
      if (kRightMask)
        for (; n >= t.n_min && n >= full_high; --n) {
          step<true>(t, q, n, accumulate);
          accumulate = true;
        }
      for (; n >= max_of(t.n_min, full_low); --n) {
        step<false>(t, q, n, accumulate);
        accumulate = true;
      }
      if (kLeftMask)
        for (; n >= t.n_min; --n) {
          step<true>(t, q, n, accumulate);
          accumulate = true;
        }
      if constexpr (kOverlap) finish_block(accumulate);  // the last P V has no Q K^T beside it
    }

    MXFA_DEVICE void run() {
      for (Tile t = wait_tile(); t.rows != 0; t = wait_tile()) {
        uint32_t buffer = smem + kQOffset + q_stage() * kQBytes;
        if (t.n_min < t.n_max) {
          attend(t, buffer + group * (64 * 128));
        } else {
          no_keys();
        }
        const Tile finished = describe_tile();
        if (64 * group < finished.rows) store(finished, smem + kQOffset + q_stage() * kQBytes);
        ++tile;
      }
      if (warp == 0 && elect_one()) bulk_wait_group<0>();  // shared memory must outlive the reads
    }
  };

  MXFA_DEVICE static void run(const AttentionForwardParams& p) {
    extern __shared__ uint8_t raw[];
    uint32_t smem = (smem_address(raw) + 1023) & ~1023u;
    int warp = warp_id();
    if (warp == 0 && elect_one()) {
      init_ring(smem + kQFull, smem + kQEmpty, kQStages, kEmptyCount);
      init_ring(smem + kKvFull, smem + kKvEmpty, kStages, kEmptyCount);
      fence_mbarrier_init();  // visible to the async proxy, which completes transactions on them
    }
    cta_sync();
    if (warp < 4) {
      setmaxnreg_dec<Config::producer_registers>();
      if (warp == 0 && elect_one()) {
        prefetch_tensor_map(&p.q);
        prefetch_tensor_map(&p.k);
        prefetch_tensor_map(&p.v);
        prefetch_tensor_map(&p.o);
        produce(p, smem);
      }
    } else {
      setmaxnreg_inc<Config::consumer_registers>();
      Consumer consumer{{}, p, smem, warp / 4 - 1, warp % 4, int(lane_id())};
      consumer.run();
    }
  }
};

}  // namespace mxfa

MXFA_PUBLISH_TABLES(attention_fwd_sm90, mxfa::AttentionFwdSm90::tables());

// One CTA an SM (shared memory sees to that anyway): without the 1, ptxas drops setmaxnreg.
extern "C" __global__ void __launch_bounds__(mxfa::AttentionFwdSm90::kThreads, 1)
    attention_fwd_sm90(const __grid_constant__ mxfa::AttentionForwardParams p) {
  mxfa::AttentionFwdSm90::run(p);
}
