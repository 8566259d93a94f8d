// BF16 attention backward for Hopper (sm_90a) over jagged sequences: from dO, O's statistics and Q, K, V to
// dK, dV (bf16, written here) and unscaled dQ (FP32, added into the workspace; attention_bwd_finish.cuh).
//   P = 2^(scale log2(e) Q K^T - LSE log2(e)),  dS = P o (dO V^T - delta),
//   dV = P^T dO,  dK = scale dS^T Q,  dQ = scale dS K.
//
// A CTA owns 128 keys, 64 a compute warpgroup, and walks the query tiles (64 or 80 rows; 128 at D = 64) of
// every query head of the group.  Everything is transposed (keys are the rows of S^T and dP^T), so that P^T
// and dS^T leave their accumulators as register operands of dV and dK and only dS goes through shared memory.
//
// Registers decide the schedule.  dK and dV are 128 a thread at D = 128, S^T and dP^T 64 more; ptxas places
// accumulators from R24 on and keeps two back, so 192 of them (208 with 80 rows) need a budget above 218
// (234): two compute warpgroups of 240 beside a producer of 24 (pool of 384 x 168).  P^T and dS^T, rounded,
// take the registers of dP^T, the warpgroup's half of dQ those of S^T.  One step of a warpgroup:
//     wait for S^T | P | wait for dP^T | dS, dS to shared memory | issue dV(i), dQ(i-1), dK(i) | wait for dQ,
//     add or stage it | issue S^T(i+1) | wait for dK | issue dP^T(i+1) | hand what is staged to the copy
//     engine
// The exponentials run beside the own dP^T, the rest of the arithmetic beside the other warpgroup's
// products: the two fall into turns; at D = 64, where exponentials weigh more, they are made to, and what
// P and dS need of a row comes out of the tensor core with S^T and dP^T (attention_bwd_statistics.cuh).
// That dQ is one step late is what lets them: it needs the dS of both, and neither waits for the other's.
// The copy engine gets its share of dQ last: the fence before it waits for the stores, and by then S^T and
// dP^T are on their way.
//
// What bounds it (docs/hopper.md): shared memory.  A step of 64 x 128 at D = 128 reads 256 KB of operands and
// writes 48 KB, 2430 clocks at 128 bytes beside 2560 of MMA.  Staging dQ for bulk reductions adds 64 KB;
// reductions from registers add nothing there but hold up the warps that issue them (a quarter of a step).
// Config::direct_chunks divides dQ between the two.
//
// Hand-overs are mbarriers: K|V, Q|dO rings filled by the producer, a dS ring between the compute
// warpgroups.  A warpgroup without a visible pair in a step takes part in the hand-overs and in dQ.
// The warps beside the loader prepare query rows, and finish them (attention_bwd_sm90_rows.cuh).
// CTAs are persistent and take tiles from a list that the plan orders.  Neighbours start their walk a few
// query tiles apart: they must not add to the same rows at the same time, nor a head fall out of L2 between.
#include "ptx/atomic.cuh"
#include "ptx/barrier.cuh"
#include "ptx/bulk.cuh"
#include "ptx/convert.cuh"
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
#include "src/attention/attention_bwd_fragments.cuh"
#include "src/attention/attention_bwd_mx.cuh"
#include "src/attention/attention_bwd_params.cuh"
#include "src/attention/attention_bwd_sm90_dq.cuh"
#include "src/attention/attention_bwd_sm90_products.cuh"
#include "src/common/jagged.cuh"
#include "src/common/math.cuh"
#include "src/common/pipeline.cuh"

namespace mxfa {

struct AttentionBwdSm90 : AttentionBwdSm90Products {
  static constexpr float kMinusInfinity = -bits_float(0x7f800000);

  // ---- producer: one thread ---------------------------------------------------------------------------
  // Boxes of 64 rows (a step of 80 rows: one of 80), `boxes` of them, of all panels.
  MXFA_DEVICE static void load_rows(const TensorMap& map, uint32_t destination, uint32_t panel_bytes,
                                    int boxes, uint32_t bar, int head, Sequence sequence, int first) {
    for (int box = 0; box < boxes; ++box) {
      RaggedRow row = ragged_row(sequence, first + 64 * box);
#pragma unroll
      for (int panel = 0; panel < kPanels; ++panel)
        tma_load_5d(destination + panel * panel_bytes + box * kBox, &map, bar, 64 * panel, head, row.row,
                    row.shift, row.end);
    }
  }

  MXFA_DEVICE static void produce(const AttentionBackwardParams& p, uint32_t smem) {
    PipelineState<kKvStages> kv = PipelineState<kKvStages>::producer();
    PipelineState<kQStages> ring = PipelineState<kQStages>::producer();
    int ratio = p.heads_q / p.heads_kv;
    auto publish = [&](const Tile& t) {
      mbarrier_wait(smem + kKvEmpty + 8 * kv.stage, kv.phase);
      uint32_t info = smem + kTileOffset + kv.stage * kTileBytes;
      st_shared_v4(info, {uint32_t(t.head), uint32_t(t.key_row), uint32_t(t.q_length), uint32_t(t.k_length)});
      st_shared_v4(info + 16,
                   {uint32_t(t.m_begin), uint32_t(t.m_end), uint32_t(t.m_start), uint32_t(t.keys)});
      st_shared_v4(info + 32, {uint32_t(t.k_first), uint32_t(t.dq_unit), kv.phase ^ 1, uint32_t(t.turn)});
    };
    // The first tile of every CTA is its own; the others go to whoever comes first, in the plan's order. With
    // turns all do, so that whoever a tile waits for has been taken by a CTA that runs.
    int32_t* counters = pointer<int32_t>(p.counters);
    const int given = kDeterministic ? 0 : gridDim.x;
    for (int index = kDeterministic ? atom_add_acq_rel_gpu_s32(counters, 1) : int(blockIdx.x);
         index < p.tile_count; index = given + atom_add_acq_rel_gpu_s32(counters, 1)) {
      TileSource source = read_tile(p, index);
      const Tile& t = source.tile;
      if (t.keys == 0) break;  // the end of a list that attention_lengths wrote
      publish(t);
      int count = (t.m_end - t.m_begin) * ratio;
      for (int which = 0; which < 2; ++which) {
        uint32_t full = smem + (which == 0 ? kKFull : kVFull) + 8 * kv.stage;
        // The arrival on K's barrier releases the tile's description as well.
        mbarrier_arrive_expect_tx(full, count == 0 ? 0 : kKvBytes);
        if (count != 0)
          load_rows(which == 0 ? p.k : p.v,
                    smem + (which == 0 ? kKOffset : kVOffset) + kv.stage * kKvStageBytes, kKvPanel, kCompute,
                    full, t.head, source.k, t.key_row);
      }
      kv.advance();
      if (kPrepares && source.wait && p.progress != 0) wait_prepared(p, t);
      int head = t.head * ratio, m = t.m_start;
      for (int i = 0; i < count; ++i) {
        mbarrier_wait(smem + kQEmpty + 8 * ring.stage, ring.phase);
        uint32_t stage = smem + ring.stage * kQStageBytes;
        uint32_t q_full = smem + kQFull + 8 * ring.stage, d_out_full = smem + kDOutFull + 8 * ring.stage;
        mbarrier_arrive_expect_tx(q_full, kQBytes + kStatisticsBytes);
        load_rows(p.q, stage + kQOffset, kQPanel, kQBoxes, q_full, head, source.q, kTileM * m);
        bulk_load(smem + kStatisticsOffset + ring.stage * kStatisticsStride,
                  Statistics::of_tile(p, int64_t(head) * p.stat_tiles + source.stat_tile + m),
                  kStatisticsBytes, q_full);
        mbarrier_arrive_expect_tx(d_out_full, kQBytes);
        load_rows(p.d_out, stage + kDOutOffset, kQPanel, kQBoxes, d_out_full, head, source.d_out, kTileM * m);
        ring.advance();
        next(t, m);
        if (m == t.m_start) ++head;
      }
    }
    publish(Tile{});
    mbarrier_arrive(smem + kKFull + 8 * kv.stage);
    // The last CTA leaves the counters as it found them, but where they are still looked at: then the next
    // launch's prepare does.
    if (p.progress == 0 && atom_add_acq_rel_gpu_s32(counters + 1, 1) == int(gridDim.x) - 1) {
      counters[0] = 0;
      counters[1] = 0;
    }
  }

  // ---- compute: one warpgroup, 64 keys ----------------------------------------------------------------
  // Accumulator layout: ptx/wgmma.cuh.  Rows are keys, columns queries (S^T, dP^T) or channels (dK, dV); in
  // dQ rows are queries and columns channels.
  struct Compute : Products {
    uint32_t maxima = 0;  // the set of maxima that comes next (SquareBlocks)
    // The tile, what this warpgroup's keys see of it, the query tile that comes next and its head's first
    // unit in the accumulators, and how many steps are left.
    Tile tile;
    Visible seen;
    int m, unit, left;

    // Columns 16 s .. 16 s + 15 of an accumulator are exactly the A fragment of step s.
    MXFA_DEVICE static void convert(uint32_t (&to)[kTileM / 4], const float (&from)[kTileM / 2]) {
#pragma unroll
      for (int i = 0; i < kTileM / 4; ++i) to[i] = cvt_rn_bf16x2_f32(from[2 * i + 1], from[2 * i]);
    }

    // Scores of pairs that do not see each other become -inf (a select: NaN cannot pass).
    MXFA_DEVICE void mask(float (&s)[kTileM / 2], const Visible& seen, int m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        int key = 16 * warp + lane / 4 + 8 * half, column = 2 * (lane % 4);
        int begin = 0, end = (key < seen.keys ? kTileM : 0) - column;  // rows of the tile that see the key
        if (kRightMask) begin = seen.begin + key - kTileM * m - column;
        if (kLeftMask) end = min_of(end, seen.end + key + 1 - kTileM * m - column);
#pragma unroll
        for (int i = 0; i < kTileM / 4; ++i) {
          int c = 8 * (i >> 1) + (i & 1);
          bool keep = c < end && (!kRightMask || c >= begin);
          float& x = s[4 * (i >> 1) + 2 * half + (i & 1)];
          x = keep ? x : kMinusInfinity;
        }
      }
    }

    MXFA_DEVICE void acquire_ds() { mbarrier_wait(smem + kDsEmpty + 8 * ds.stage, ds.phase ^ 1); }
    MXFA_DEVICE void publish_ds() {
      warp_sync();
      if (lane == 0) mbarrier_arrive(smem + kDsFull + 8 * ds.stage);
    }
    MXFA_DEVICE void store_ds(const uint32_t (&ds_bf16)[kTileM / 4]) {
      // stmatrix x4: lane l gives the address of row l%8 of matrix l/8; matrices are (keys 0-7 | 8-15) x
      // (queries 0-7 | 8-15).
      int row = 16 * warp + lane % 8 + 8 * ((lane / 8) & 1), half = lane / 16;
      // 64 queries wide, 128-byte swizzle: an exclusive or, and so is the way from one step of 16 queries to
      // the next.  80 queries: 16 wide, 32-byte swizzle, one step behind the other.
      uint32_t address = ds_box(ds.stage, group) + (kDqTransposed ? row * 32 + ((half ^ (row / 4 % 2)) << 4)
                                                                  : row * 128 + ((half ^ (row & 7)) << 4));
#pragma unroll
      for (int step = 0; step < kTileM / 16; ++step)
        stmatrix_x4(
            kDqTransposed ? address + step * kDsStep : (address ^ ((step % 4) << 5)) + (step / 4) * kBox,
            ds_bf16[4 * step], ds_bf16[4 * step + 1], ds_bf16[4 * step + 2], ds_bf16[4 * step + 3]);
      fence_proxy_async_shared_cta();  // written by ordinary stores, read by wgmma through the async proxy
    }

    // The stage's numbers of the two columns of a chunk that this thread has.
    MXFA_DEVICE F32x2 row_numbers(RowNumber number, int chunk) const {
      return ld_shared_v2_f32(smem + kStatisticsOffset + ring.stage * kStatisticsStride +
                              number * 4 * kTileM + 32 * chunk + 8 * (lane % 4));
    }
    // At D = 64 one warpgroup after the other does the arithmetic of a step: both at once would take twice as
    // long for their exponentials, and leave the tensor core without work (docs/hopper.md).  In skipped steps
    // as well: whoever has the baton owes it to the other.  What is passed last nobody takes.
    static constexpr bool kAlternate = kStartsWithRows;
    static constexpr int kBaton = 5;  // and 6: a named barrier a warpgroup; SquareBlocks has 1 to 4
    MXFA_DEVICE void take_baton() {
      if constexpr (kAlternate) named_barrier_sync(kBaton + group, 128 * kCompute);
    }
    MXFA_DEVICE void pass_baton() {
      if constexpr (kAlternate) named_barrier_arrive(kBaton + (group ^ 1), 128 * kCompute);
    }
    // P^T of scores.
    MXFA_DEVICE void exponentials(float (&s)[kTileM / 2]) {
      if constexpr (kStartsWithRows) {
#pragma unroll
        for (int i = 0; i < kTileM / 2; ++i) s[i] = ex2_approx_ftz(s[i] * p.scale_log2);
      } else {
#pragma unroll
        for (int j = 0; j < kTileM / 8; ++j) {
          const F32x2 x = row_numbers(kExponent, j);
          s[4 * j] = ex2_approx_ftz(fma_rn_ftz_f32(s[4 * j], p.scale_log2, x.x));
          s[4 * j + 1] = ex2_approx_ftz(fma_rn_ftz_f32(s[4 * j + 1], p.scale_log2, x.y));
          s[4 * j + 2] = ex2_approx_ftz(fma_rn_ftz_f32(s[4 * j + 2], p.scale_log2, x.x));
          s[4 * j + 3] = ex2_approx_ftz(fma_rn_ftz_f32(s[4 * j + 3], p.scale_log2, x.y));
        }
      }
    }
    // dS^T of dP^T and P^T.
    MXFA_DEVICE void multiply_ds(float (&dp)[kTileM / 2], const float (&s)[kTileM / 2]) {
      if constexpr (kStartsWithRows) {
#pragma unroll
        for (int i = 0; i < kTileM / 2; ++i) dp[i] *= s[i];
      } else {
#pragma unroll
        for (int j = 0; j < kTileM / 8; ++j) {
          const F32x2 delta = row_numbers(kDelta, j);
          dp[4 * j] = s[4 * j] * (dp[4 * j] - delta.x);
          dp[4 * j + 1] = s[4 * j + 1] * (dp[4 * j + 1] - delta.y);
          dp[4 * j + 2] = s[4 * j + 2] * (dp[4 * j + 2] - delta.x);
          dp[4 * j + 3] = s[4 * j + 3] * (dp[4 * j + 3] - delta.y);
        }
      }
    }

    // One query tile, S^T and dP^T in flight, in this order.  Leaves in flight: dV, the late dQ, and dK.
    MXFA_DEVICE void step(float (&s)[kTileM / 2], float (&dp)[kTileM / 2], float (&acc)[kDqColumns / 2],
                          const Visible& seen, int m) {
      wgmma_wait<1>();
      wgmma_pin(s);
      if (!seen.all(m)) mask(s, seen, m);
      take_baton();
      exponentials(s);
      // dP^T has been started, so its dO is here: what counts is the branch, past which ptxas does not move
      // the exponentials; it would move them behind the products they run beside.
      mbarrier_wait(smem + kDOutFull + 8 * ring.stage, ring.phase);
      wgmma_wait<0>();
      wgmma_pin(dp);
      multiply_ds(dp, s);
      pass_baton();
      uint32_t p_bf16[kTileM / 4], ds_bf16[kTileM / 4];
      if constexpr (kMxfp8) {
        round_mx<kTileM, kSquareDs>(p_bf16, ds_bf16, s, dp, smem + kMaximaOffset + maxima, 4 * group + warp,
                                    lane);
        maxima ^= SquareBlocks<kTileM>::kSetBytes;
      } else {
        convert(p_bf16, s);
        convert(ds_bf16, dp);
      }
      if constexpr (kWithDq) {
        if constexpr (kDvBeforeDs) start_dv(p_bf16);
        acquire_ds();
        store_ds(ds_bf16);
        publish_ds();
        if constexpr (!kDvBeforeDs) start_dv(p_bf16);
        issue_dq(acc);
        wgmma_fence();
      } else {
        wgmma_fence();
        issue_gradient(dv, p_bf16, d_out());
      }
      issue_gradient(dk, ds_bf16, queries());
      wgmma_commit();
    }

    // No pair of this warpgroup sees each other: its dS is zero, its share of dQ is due all the same.
    MXFA_DEVICE void skip() {
      mbarrier_wait(smem + kQFull + 8 * ring.stage, ring.phase);
      mbarrier_wait(smem + kDOutFull + 8 * ring.stage, ring.phase);
      if (lane == 0) mbarrier_arrive(smem + kQEmpty + 8 * ring.stage);
      take_baton();
      pass_baton();
      if constexpr (!kWithDq) return;
      acquire_ds();
      const uint32_t zero[kTileM / 4] = {};
      store_ds(zero);
      publish_ds();
      finish_dq();
    }
    // dQ of the late step alone.
    MXFA_DEVICE void finish_dq() {
      float acc[kDqColumns / 2];
      issue_dq(acc);
      wgmma_wait<0>();
      wgmma_pin(acc);
      if (add_dq(acc)) flush_dq();
    }

    template <int kOwn>
    MXFA_DEVICE static auto& dq_registers(float (&s)[kTileM / 2], float (&own)[kOwn]) {
      if constexpr (kDqTransposed) {
        return s;
      } else {
        return own;
      }
    }

    // The step is over but for its dQ.
    MXFA_DEVICE void advance() {
      const Tile& t = tile;
      if (kDeterministic) note_turn(t, m);
      if constexpr (kWithDq) {
        late = true;
        late_ds = ds_box(ds.stage, 0);
        late_keys = keys();
        late_release = -1;
        late_rows = t.q_length - kTileM * m - (kSplitRows ? 64 * group : 0);
        late_unit = unit + m * (kTileM / kDqUnit) + (kSplitRows ? group * (64 / kDqUnit) : 0);
      }
      ring.advance();
      if constexpr (kWithDq) ds.advance();
      next(t, m);
      if (m == t.m_start) unit += p.dq_units;
    }

    // Steps from query tile m on, as long as this warpgroup sees them: each starts the one behind it, and the
    // last of a tile the first of the next (kTilesOverlap).
    MXFA_DEVICE void walk_seen() {
      float s[kTileM / 2], dp[kTileM / 2];
      start_s<false>(s, ring, keys());
      start_dp(dp, ring);
      for (;;) {
        for (;;) {
          float own[kDqColumns / 2];
          auto& acc = dq_registers(s, own);
          step(s, dp, acc, seen, m);
          uint32_t empty = smem + kQEmpty + 8 * ring.stage;
          bool staged = false;
          wgmma_wait<1>();  // dV and dQ; without dQ nothing yet
          if constexpr (kWithDq) {
            wgmma_pin(acc);
            staged = add_dq(acc);
          }
          int m_next = m;
          next(tile, m_next);
          PipelineState<kQStages> at = ring;
          at.advance();
          bool more = --left != 0 && seen.any(m_next);
          if (!more) {  // (no wgmma may stand in a branch that joins again)
            wgmma_wait<0>();
            if (lane == 0) mbarrier_arrive(empty);
            if (staged) flush_dq();
            advance();
            break;
          }
          start_s<kScoresTied>(s, at, keys());  // in the registers dQ had
          wgmma_wait<1>();                      // dK: the next dP^T takes the registers of P^T and dS^T
          if (lane == 0) mbarrier_arrive(empty);
          start_dp(dp, at);
          if (staged) flush_dq();
          advance();
        }
        if (!kTilesOverlap || left != 0 || !next_is_seen()) return;
        // S^T of the next tile runs while dK and dV of this one are stored.  (Without an arm of its own, in
        // the loop above, ptxas serialises every wgmma; with dP^T in flight as well it spills.)
        const uint32_t next_keys = smem + kKOffset + (kv.stage ^ 1) * kKvStageBytes;
        load_keys(next_keys);
        start_s<false>(s, ring, next_keys);
        end_tile<true>();
        begin(load_tile(smem, kv.stage));
        start_dp(dp, ring);
      }
    }

    MXFA_DEVICE void walk() {
      while (left > 0) {
        if (seen.any(m)) {
          walk_seen();
        } else {
          skip();
          advance();
          --left;
        }
      }
    }

    // A tile whose K has arrived comes next.
    MXFA_DEVICE void begin(const Tile& t) {
#pragma unroll
      for (int i = 0; i < kD / 2; ++i) dk[i] = dv[i] = 0.0f;
      mbarrier_wait(smem + kVFull + 8 * kv.stage, kv.phase);
      int ratio = p.heads_q / p.heads_kv;
      tile = t;
      unit = t.head * ratio * p.dq_units + t.dq_unit;  // of m = 0
      m = t.m_start, left = (t.m_end - t.m_begin) * ratio;
      seen = visible(p, t, group);
    }

    // Whether this warpgroup sees the first step of the next tile, for which it waits.
    MXFA_DEVICE bool next_is_seen() {
      const uint32_t stage = kv.stage ^ 1;
      const uint32_t phase = uniform(ld_shared_b32(smem + kTileOffset + kv.stage * kTileBytes + 40));
      mbarrier_wait(smem + kKFull + 8 * stage, phase ^ (stage ^ 1));
      const Tile t = load_tile(smem, stage);
      return t.keys != 0 && t.m_begin < t.m_end && visible(p, t, group).any(t.m_start);
    }

    // The tile has no more steps (kHadSome: it had some), and its products but the last dQ are complete.
    template <bool kHadSome>
    MXFA_DEVICE void end_tile() {
      wgmma_pin(dv);
      wgmma_pin(dk);
      const Tile t = load_tile(smem, kv.stage);  // read again: registers are scarce in the walk
      kv.phase = t.phase;
      warp_sync();
      if constexpr (!kWithDq) {
        if (lane == 0) mbarrier_arrive(smem + kKvEmpty + 8 * kv.stage);
      } else if (kHadSome || t.m_begin < t.m_end) {
        // K and V go back with the last dQ, under the next tile's first step; with one stage there is no
        // next tile before that, and without steps the tile before may still be waiting for one.
        late_release = kv.stage;
        if (kKvStages == 1) finish_dq();
      } else {
        if (late) finish_dq();
        if (lane == 0) mbarrier_arrive(smem + kKvEmpty + 8 * kv.stage);
      }
      store(t);
      if constexpr (kFinishes) report(t);
      kv.advance();
    }

    // This warp has added all of its dQ of the tile: with one K|V stage the last of it has been flushed.
    MXFA_DEVICE void report(const Tile& t) {
      static_assert(!kFinishes || (kKvStages == 1 && kDirectChunks == 0),
                    "whose dQ is not late, and added by bulk copies");
      if (p.progress == 0 || !elect_one()) return;
      bulk_wait_group<0>();
      red_add_release_gpu_s32(Progress(p).added(t.pair()), 1);
    }

    MXFA_DEVICE void store(const Tile& t) {
      int first = t.key_row + 64 * group + 16 * warp;
      int rows = min_of(t.key_row + t.keys, t.k_length) - first;
      // This warp's rows of the dS box that comes next are free once both have read the last step that used
      // it.
      if constexpr (kWithDq) acquire_ds();
      const int lane = opaque(this->lane);  // addresses must not live in registers during the walk
      constexpr int kFourRows = kDqTransposed ? kDsStep : 512;  // 16 keys of four steps, or all of their rows
      uint32_t scratch = ds_box(ds.stage, group) + (kDqTransposed ? 512 : 2048) * warp;
      int64_t row = int64_t(t.k_first) + first;
      store_warp_rows<kD, false, kFourRows>(dv, kDvScale, scratch,
                                            pointer<bf16_bits>(p.dv) + row * p.stride_dv + t.head * kD,
                                            p.stride_dv, rows, lane);
      store_warp_rows<kD, false, kFourRows>(dk, p.scale, scratch,
                                            pointer<bf16_bits>(p.dk) + row * p.stride_dk + t.head * kD,
                                            p.stride_dk, rows, lane);
    }

    MXFA_DEVICE void run() {
      late = false;
      late_release = late_unit = late_rows = 0;
      if (group == 1) pass_baton();  // group 0 begins
      if (kDeterministic && lane == 0) st_shared_b32(turn_slot() + 4, uint32_t(-1));
      for (Tile t = wait_tile(smem, kv); t.keys != 0; t = wait_tile(smem, kv)) {
        begin(t);
        load_keys(keys());
        if (!late) late_ds = late_keys = keys();  // for issue_dq
        walk();
        end_tile<false>();
      }
      if (kWithDq && late) finish_dq();
      if constexpr (kDeterministic) {
        warp_sync();  // the additions of the last turn, of all lanes
        end_turn();
      }
      // Shared memory must outlive the reads.
      if (kStagedChunks != 0 && elect_one()) bulk_wait_group_read<0>();
    }
  };

  MXFA_DEVICE static void run(const AttentionBackwardParams& p) {
    // A swizzle pattern repeats every 1024 bytes.  The declaration aligns (PTX ISA, .align): D = 64 has no
    // room for slack.
    extern __shared__ __align__(1024) uint8_t raw[];
    uint32_t smem = smem_address(raw);
    int warp = warp_id();
    if constexpr (kStartsWithRows) write_ones(smem);
    if (warp == 0 && elect_one()) {
      // One arrival a warp: each waits for its own quarter of a wgmma, and reads its own registers' share.
      for (int i = 0; i < kKvStages; ++i) {
        mbarrier_init(smem + kKFull + 8 * i, 1);
        mbarrier_init(smem + kVFull + 8 * i, 1);
        mbarrier_init(smem + kKvEmpty + 8 * i, 4 * kCompute);
      }
      for (int i = 0; i < kQStages; ++i) {
        mbarrier_init(smem + kQFull + 8 * i, 1);
        mbarrier_init(smem + kDOutFull + 8 * i, 1);
        mbarrier_init(smem + kQEmpty + 8 * i, 4 * kCompute);
      }
      for (int i = 0; kWithDq && i < kDsStages; ++i) {
        mbarrier_init(smem + kDsFull + 8 * i, 4 * kCompute);
        mbarrier_init(smem + kDsEmpty + 8 * i, 4 * kCompute);
      }
      fence_mbarrier_init();  // visible to the async proxy, which completes transactions on them
    }
    cta_sync();
    if (warp < 4) {
      setmaxnreg_dec<Config::producer_registers>();
      // In arms of one branch: whatever stands behind the loader's makes ptxas spill in the compute warps.
      if (warp == 0) {
        if (elect_one()) {
          prefetch_tensor_map(&p.q);
          prefetch_tensor_map(&p.k);
          prefetch_tensor_map(&p.v);
          prefetch_tensor_map(&p.d_out);
          produce(p, smem);
        }
      } else if constexpr (kPrepares) {
        run_rows(p);
      }
    } else {
      setmaxnreg_inc<Config::compute_registers>();
      Compute compute{{p, smem, uniform(warp / 4 - 1), uniform(warp % 4), int(lane_id())}};
      compute.run();
    }
  }
};

}  // namespace mxfa

MXFA_PUBLISH_TABLES(attention_bwd_sm90, mxfa::AttentionBwdSm90::tables());

extern "C" __global__ void __launch_bounds__(mxfa::AttentionBwdSm90::kThreads, 1)
    attention_bwd_sm90(const __grid_constant__ mxfa::AttentionBackwardParams p) {
  mxfa::AttentionBwdSm90::run(p);
}
