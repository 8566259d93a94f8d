// BF16 attention backward for Hopper (sm_90a), the half of the split pair that computes dQ; the other half is
// attention_bwd_sm90.cuh without dQ.  From dO, O's statistics and Q, K, V:
//   P = 2^(scale log2(e) Q K^T - LSE log2(e)),  dS = P o (dO V^T - delta),  dQ = scale dS K.
//
// A tile is 64 query rows a consumer warpgroup.  Q and dO stay in shared memory, dQ in registers, blocks of
// keys go by; nothing is added in memory, so dQ has the same bits in every run.  With a broadcast Q a tile
// walks the keys of a run of sequences, of which each has its own dO, LSE and delta, and leaves an FP32
// partial sum for attention_bwd_finish to add in the order of the runs.
//
// Queries are the rows of S and dP: a thread has two of them, whose LSE and delta it keeps, and dS goes from
// its accumulators to the operand registers of dQ.  One block of a warpgroup, S and dP in flight:
//     wait for S | P | wait for dP | dS | issue dQ | issue S of the next block | wait for dQ | issue its dP
// S is issued before dQ is waited for, so the tensor core has work in between, and dP after it: dS, rounded,
// lies where dP was.  128 keys, not 64: S and dP read (64 + keys) * 2 D bytes of shared memory for
// 64 * keys * 2 D FLOP, and at 64 keys that alone is what shared memory gives (docs/hopper.md).
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
#include "src/attention/attention_bwd_dq_sm90_tables.cuh"
#include "src/attention/attention_bwd_statistics.cuh"
#include "src/common/jagged.cuh"
#include "src/common/math.cuh"
#include "src/common/pipeline.cuh"
#include "src/common/types.cuh"

namespace mxfa {

using namespace ptx;

struct AttentionBwdDqSm90 : AttentionBwdDqSm90Tables {
  // The part of a tile that belongs to one sequence: what the consumers must know of it.  The loader works it
  // out and leaves it in shared memory.
  struct Segment {
    int32_t head, q_row, rows;  // first row of the tile in its sequence; rows of the tile, 0: no more tiles
    int32_t q_length, q_first;  // of the sequence; its first row in dQ
    int32_t k_length, n_min, n_max;  // blocks of keys with a key that some row sees: [n_min, n_max)
    int32_t stat_tile;               // first of the sequence
    int32_t run;                     // of sequences; without a broadcast Q not used
    int32_t last;                    // of its tile
  };

  // ---- what a row sees: query i sees keys i + (k_length - q_length) - left .. + right -----------------
  // One past the last block that a row before `row_end` sees.
  MXFA_DEVICE static int end_block(const AttentionBackwardDqParams& p, const Segment& t, int row_end) {
    int end = t.k_length;
    if (kRightMask)
      end = min_of(end, max_of(min_of(row_end, t.q_length) + t.k_length - t.q_length + p.window_right, 0));
    return ceil_div(end, kTileN);
  }
  MXFA_DEVICE static int first_block(const AttentionBackwardDqParams& p, const Segment& t, int row) {
    return max_of(row + t.k_length - t.q_length - p.window_left, 0) / kTileN;
  }

  // ---- producer: one thread ---------------------------------------------------------------------------
  // Block n of K or V, into the next slot of its ring, whose places in shared memory are given.
  struct Ring {
    uint32_t full, empty, data;
  };
  template <uint32_t kStages>
  MXFA_DEVICE static void load_keys(const TensorMap& map, PipelineState<kStages>& state, const Ring& ring,
                                    Sequence k, int head, int n) {
    uint32_t full = ring.full + 8 * state.stage;
    mbarrier_wait(ring.empty + 8 * state.stage, state.phase);
    mbarrier_arrive_expect_tx(full, kKvBytes);
    RaggedRow row = ragged_row(k, n * kTileN);
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel)
      tma_load_5d(ring.data + state.stage * kKvBytes + panel * kKvPanel, &map, full, 64 * panel, head,
                  row.row, row.shift, row.end);
    state.advance();
  }
  MXFA_DEVICE static void produce(const AttentionBackwardDqParams& p, uint32_t smem) {
    const Ring k_ring{smem + kKFull, smem + kKEmpty, smem + kKOffset},
        v_ring{smem + kVFull, smem + kVEmpty, smem + kVOffset};
    PipelineState<kSegmentStages> segment = PipelineState<kSegmentStages>::producer();
    PipelineState<kQStages> q_state = PipelineState<kQStages>::producer();
    PipelineState<1> d_out_state = PipelineState<1>::producer();
    PipelineState<kKStages> k_state = PipelineState<kKStages>::producer();
    PipelineState<kVStages> v_state = PipelineState<kVStages>::producer();
    const int ratio = p.heads_q / p.heads_kv;
    const bool broadcast = p.runs != 0;
    auto publish = [&](const Segment& t) {
      mbarrier_wait(smem + kSegmentEmpty + 8 * segment.stage, segment.phase);
      uint32_t info = smem + kSegmentOffset + segment.stage * kSegmentBytes;
      st_shared_v4(info, {uint32_t(t.head), uint32_t(t.q_row), uint32_t(t.rows), uint32_t(t.q_length)});
      st_shared_v4(info + 16,
                   {uint32_t(t.q_first), uint32_t(t.k_length), uint32_t(t.n_min), uint32_t(t.n_max)});
      st_shared_v4(info + 32, {uint32_t(t.stat_tile), uint32_t(t.run), uint32_t(t.last), 0});
      mbarrier_arrive(smem + kSegmentFull + 8 * segment.stage);
      segment.advance();
    };
    // 64 rows of all panels for each warpgroup.
    auto load_rows = [&](const TensorMap& map, uint32_t destination, uint32_t full, Sequence sequence,
                         const Segment& t) {
      mbarrier_arrive_expect_tx(full, kQBytes);
#pragma unroll 1
      for (int box = 0; box < kConsumers; ++box) {
        RaggedRow row = ragged_row(sequence, t.q_row + 64 * box);
#pragma unroll
        for (int panel = 0; panel < kPanels; ++panel)
          tma_load_5d(destination + panel * kQPanel + box * kBox, &map, full, 64 * panel, t.head, row.row,
                      row.shift, row.end);
      }
    };
    // The first tile of every CTA is its own; the others go to whoever comes first, in the plan's order.
    int32_t* counters = pointer<int32_t>(p.counters);
    for (int index = blockIdx.x; index < p.tile_count;
         index = gridDim.x + atom_add_acq_rel_gpu_s32(counters, 1)) {
      const U32x4 entry = ld_global_nc_v4(pointer<const U32x4>(p.tiles) + index);
      Segment t;
      t.head = entry.y;
      t.q_row = entry.z;
      t.rows = entry.w;
      t.run = entry.x;
      int batch = entry.x, batch_end = batch + 1;
      if (broadcast) {
        batch_end = ld_global_s32(pointer<const int32_t>(p.runs) + batch + 1);
        batch = ld_global_s32(pointer<const int32_t>(p.runs) + batch);
      }
      const Sequence q = load_sequence(pointer<const int32_t>(p.offsets_q), broadcast ? 0 : batch);
      t.q_length = q.length;
      t.q_first = q.first;
      const int head_kv = t.head / ratio;
      bool first = true;
      for (; batch < batch_end; ++batch) {
        const Sequence k = load_sequence(pointer<const int32_t>(p.offsets_k), batch);
        t.k_length = k.length;
        t.n_min = kLeftMask ? first_block(p, t, t.q_row) : 0;
        t.n_max = end_block(p, t, t.q_row + t.rows);
        const bool empty = t.n_min >= t.n_max;
        t.last = batch + 1 == batch_end;
        if (empty && !t.last) continue;
        const Sequence d_out = {broadcast ? batch * q.length : q.first, q.length};
        t.stat_tile =
            broadcast ? batch * ceil_div(q.length, kStatRows) : padded_start(q.first, batch, kStatRows);
        publish(t);
        if (first) {
          mbarrier_wait(smem + kQEmpty + 8 * q_state.stage, q_state.phase);
          load_rows(p.q, smem + kQOffset + q_state.stage * kQBytes, smem + kQFull + 8 * q_state.stage, q, t);
          q_state.advance();
          first = false;
        }
        for (int n = t.n_min; n < t.n_max; ++n) {
          load_keys(p.k, k_state, k_ring, k, head_kv, n);
          if (n == t.n_min) {  // behind K: the last dP of the segment before may still read dO
            mbarrier_wait(smem + kDOutEmpty, d_out_state.phase);
            load_rows(p.d_out, smem + kDOutOffset, smem + kDOutFull, d_out, t);
            d_out_state.advance();
          }
          load_keys(p.v, v_state, v_ring, k, head_kv, n);
        }
      }
    }
    publish(Segment{});
    // The last CTA leaves the counters as it found them.
    if (atom_add_acq_rel_gpu_s32(counters + 1, 1) == int(gridDim.x) - 1) {
      counters[0] = 0;
      counters[1] = 0;
    }
  }

  // ---- consumer: one warpgroup, 64 query rows ---------------------------------------------------------
  // Accumulator layout: ptx/wgmma.cuh.  Rows are queries, columns keys (S, dP) or channels (dQ).
  struct Consumer {
    const AttentionBackwardDqParams& p;
    uint32_t smem;
    int group, warp, lane;
    PipelineState<kSegmentStages> segment;
    PipelineState<kQStages> q_state;
    PipelineState<1> d_out_state;
    PipelineState<kKStages> k_state;
    PipelineState<kVStages> v_state;
    bool dq_in_flight;  // dQ of the tile before is on its way out of its Q buffer
    float dq[kD / 2];

    MXFA_DEVICE static int32_t uniform(uint32_t value) { return int32_t(shfl_idx(value, 0)); }
    MXFA_DEVICE uint32_t queries() const { return smem + kQOffset + q_state.stage * kQBytes + group * kBox; }
    MXFA_DEVICE uint32_t keys() const { return smem + kKOffset + k_state.stage * kKvBytes; }
    MXFA_DEVICE void arrive(uint32_t empty) {
      if (lane == 0) mbarrier_arrive(smem + empty);
    }
    MXFA_DEVICE void wait_k() { mbarrier_wait(smem + kKFull + 8 * k_state.stage, k_state.phase); }
    MXFA_DEVICE void wait_v() { mbarrier_wait(smem + kVFull + 8 * v_state.stage, v_state.phase); }
    MXFA_DEVICE void release_v() {
      arrive(kVEmpty + 8 * v_state.stage);
      v_state.advance();
    }

    // S = Q K^T, dP = dO V^T: both operands K-major.  16 channels = 32 bytes, four steps a panel.
    MXFA_DEVICE void issue_scores(float (&d)[kTileN / 2], uint32_t queries, uint32_t keys) {
      uint64_t a = wgmma_descriptor(queries, 16, 1024, Swizzle::k128B);
      uint64_t b = wgmma_descriptor(keys, 16, 1024, Swizzle::k128B);
      wgmma_fence();
      wgmma_bf16_ss_first<0, 0>(d, a, b);
#pragma unroll
      for (int step = 1; step < kD / 16; ++step)
        wgmma_bf16_ss<0, 0>(d, descriptor_advance(a, (step / 4) * kQPanel + (step % 4) * 32),
                            descriptor_advance(b, (step / 4) * kKvPanel + (step % 4) * 32), true);
      wgmma_commit();
    }
    MXFA_DEVICE void start_s(float (&s)[kTileN / 2]) {
      wait_k();
      issue_scores(s, queries(), keys());
    }
    MXFA_DEVICE void start_dp(float (&dp)[kTileN / 2]) {
      wait_v();
      issue_scores(dp, smem + kDOutOffset + group * kBox, smem + kVOffset + v_state.stage * kKvBytes);
    }
    // dQ += dS K: B is keys x channels, N-major, panels of 64 channels.
    MXFA_DEVICE void issue_dq(const uint32_t (&ds)[kTileN / 4]) {
      uint64_t b = wgmma_descriptor(keys(), kKvPanel, 1024, Swizzle::k128B);
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < kTileN / 16; ++step) {
        const uint32_t a[4] = {ds[4 * step], ds[4 * step + 1], ds[4 * step + 2], ds[4 * step + 3]};
        wgmma_bf16_rs<1>(dq, a, descriptor_advance(b, step * 16 * 128), true);
      }
      wgmma_commit();
    }

    // Keeps the scores of keys of block n that the row may see; everything else becomes -inf (a select: NaN
    // cannot pass).
    MXFA_DEVICE void mask(float (&s)[kTileN / 2], const Segment& t, int n) {
      const int shift = t.k_length - t.q_length, column = 2 * (lane % 4);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        int row = t.q_row + 64 * group + 16 * warp + lane / 4 + 8 * half;
        int end = t.k_length - n * kTileN, begin = 0;
        if (kRightMask) end = min_of(end, row + shift + p.window_right + 1 - n * kTileN);
        if (kLeftMask) begin = row + shift - p.window_left - n * kTileN;
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

    // Blocks that this warpgroup has no use for: their slots still have to come by before they may be given
    // back.
    MXFA_DEVICE void skip_blocks(int count) {
      for (; count > 0; --count) {
        wait_k();
        arrive(kKEmpty + 8 * k_state.stage);
        k_state.advance();
        wait_v();
        release_v();
      }
    }

    // Hands the Q buffer of the tile before back to the loader, when its dQ has been read from it.
    MXFA_DEVICE void release_last_q() {
      if (!dq_in_flight) return;
      if (warp == 0 && elect_one()) bulk_wait_group_read<0>();
      warp_sync();  // the lane that waits need not be the one that arrives
      arrive(kQEmpty + 8 * (q_state.stage ^ (kQStages - 1)));
      dq_in_flight = false;
    }

    MXFA_DEVICE void attend(const Segment& t) {
      const int row = t.q_row + 64 * group;
      const bool rows = 64 * group < t.rows && row < t.q_length;
      const int end = rows ? min_of(end_block(p, t, row + 64), t.n_max) : t.n_min;
      const int begin =
          kLeftMask && rows ? min_of(max_of(first_block(p, t, row), t.n_min), t.n_max) : t.n_min;
      if (begin >= end) {
        skip_blocks(1);  // K comes before dO
        mbarrier_wait(smem + kDOutFull, d_out_state.phase);
        arrive(kDOutEmpty);
        d_out_state.advance();
        skip_blocks(t.n_max - t.n_min - 1);
        return;
      }
      // Blocks [full_begin, full_end) need no mask.
      int full_end = t.k_length / kTileN, full_begin = 0;
      const int shift = t.k_length - t.q_length;
      if (kRightMask) full_end = min_of(full_end, max_of(row + shift + p.window_right + 1, 0) / kTileN);
      if (kLeftMask) full_begin = ceil_div(max_of(row + 63 + shift - p.window_left, 0), kTileN);

      skip_blocks(begin - t.n_min);
      float s[kTileN / 2], dp[kTileN / 2];
      start_s(s);
      mbarrier_wait(smem + kDOutFull, d_out_state.phase);
      start_dp(dp);
      // Of this thread's rows, lane/4 and 8 further on.
      float lse[2], delta[2];
      {
        const int first = row + 16 * warp + lane / 4;
        using Statistics = RowStatistics<kD, kStatRows>;
        const uint8_t* statistics =
            pointer<const uint8_t>(p.statistics) +
            (int64_t(t.head) * p.stat_tiles + t.stat_tile + row / kStatRows) * Statistics::kBytes;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          lse[half] = Statistics::exponent(statistics, (first + 8 * half) % kStatRows, p.scale_log2);
          delta[half] = Statistics::delta(statistics, (first + 8 * half) % kStatRows);
        }
      }
      for (int n = begin;; ++n) {
        wgmma_wait<1>();  // S
        wgmma_pin(s);
        if (n < full_begin || n >= full_end) mask(s, t, n);
#pragma unroll
        for (int i = 0; i < kTileN / 2; ++i)
          s[i] = ex2_approx_ftz(fma_rn_ftz_f32(s[i], p.scale_log2, lse[(i >> 1) & 1]));
        // A wait that is long over.  Without a branch here ptxas puts all exponentials behind the wait for
        // dP, under which they belong.  At D = 64 it costs 7 % (measured).
        if (kD > 64) wait_k();
        wgmma_wait<0>();  // dP
        wgmma_pin(dp);
        const bool more = n + 1 < end;
        release_v();
        if (!more) arrive(kDOutEmpty);
        uint32_t ds[kTileN / 4];
#pragma unroll
        for (int i = 0; i < kTileN / 4; ++i) {
          // Columns 16 s .. 16 s + 15 of an accumulator are exactly the A fragment of step s.
          float low = s[2 * i] * (dp[2 * i] - delta[i & 1]),
                high = s[2 * i + 1] * (dp[2 * i + 1] - delta[i & 1]);
          ds[i] = cvt_rn_bf16x2_f32(high, low);
        }
        issue_dq(ds);
        const uint32_t k_empty = kKEmpty + 8 * k_state.stage;
        k_state.advance();
        if (!more) {
          wgmma_wait<0>();
          arrive(k_empty);
          break;
        }
        start_s(s);
        wgmma_wait<1>();  // dQ: the next dP takes the registers of its operand
        arrive(k_empty);
        start_dp(dp);
      }
      d_out_state.advance();
      skip_blocks(t.n_max - end);
    }

    // dQ as bf16, through the Q buffer.
    MXFA_DEVICE void store(const Segment& t) {
      const int lane = opaque(this->lane);  // addresses must not live in registers during the walk
      // stmatrix x4: lane l gives the address of row l%8 of matrix l/8; matrices are (rows 0-7 | 8-15) x
      // (columns 0-7 | 8-15).
      int row = 16 * warp + lane % 8 + 8 * ((lane / 8) & 1);
#pragma unroll
      for (int step = 0; step < kD / 16; ++step) {
        uint32_t r[4];
#pragma unroll
        for (int j = 0; j < 4; ++j)
          r[j] = cvt_rn_bf16x2_f32(dq[8 * step + 2 * j + 1] * p.scale, dq[8 * step + 2 * j] * p.scale);
        int chunk = (step % 4) * 2 + lane / 16;  // 16-byte chunk of the 128-byte panel row
        stmatrix_x4(queries() + (step / 4) * kQPanel + row * 128 + ((chunk ^ (row & 7)) << 4), r[0], r[1],
                    r[2], r[3]);
      }
      fence_proxy_async_shared_cta();  // ordinary stores, which the TMA store reads through the async proxy
      named_barrier_sync(8 + group, 128);  // all 64 rows are written
      if (warp == 0 && elect_one()) {
        RaggedRow to = ragged_row({t.q_first, t.q_length}, t.q_row + 64 * group);
#pragma unroll
        for (int panel = 0; panel < kPanels; ++panel)
          tma_store_5d(&p.dq, queries() + panel * kQPanel, 64 * panel, t.head, to.row, to.shift, to.end);
        bulk_commit_group();
      }
    }
    // The partial sum of a run of sequences, as attention_bwd_finish reads it.
    MXFA_DEVICE void store_partial(const Segment& t) {
      const int lane = opaque(this->lane);
      constexpr int kUnitBytes = dq_unit_bytes(kD, false);
      const int row = t.q_row + 64 * group + 16 * warp;
      uint8_t* out = pointer<uint8_t>(p.dq_accumulator) + 16 * lane +
                     ((int64_t(t.run) * p.heads_q + t.head) * p.dq_units + row / kDqUnit) * kUnitBytes;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (row + kDqUnit * half >= t.q_length) continue;
#pragma unroll
        for (int i = 0; i < kUnitBytes / 512; ++i) {
          const float* x = dq + 8 * i + 2 * half;
          st_global_v4(out + half * kUnitBytes + 512 * i,
                       {float_bits(x[0]), float_bits(x[1]), float_bits(x[4]), float_bits(x[5])});
        }
      }
    }

    MXFA_DEVICE Segment wait_segment() {
      mbarrier_wait(smem + kSegmentFull + 8 * segment.stage, segment.phase);
      return describe_segment();
    }
    // From lane 0, so that the compiler knows the walk to be uniform and keeps its state in uniform
    // registers.
    MXFA_DEVICE Segment describe_segment() const {
      uint32_t info = smem + kSegmentOffset + segment.stage * kSegmentBytes;
      U32x4 a = ld_shared_v4(info), b = ld_shared_v4(info + 16), c = ld_shared_v4(info + 32);
      Segment t;
      t.head = uniform(a.x), t.q_row = uniform(a.y), t.rows = uniform(a.z), t.q_length = uniform(a.w);
      t.q_first = uniform(b.x), t.k_length = uniform(b.y), t.n_min = uniform(b.z), t.n_max = uniform(b.w);
      t.stat_tile = uniform(c.x), t.run = uniform(c.y), t.last = uniform(c.z);
      return t;
    }

    MXFA_DEVICE void run() {
      dq_in_flight = false;
      for (Segment t = wait_segment(); t.rows != 0; t = wait_segment()) {
#pragma unroll
        for (int i = 0; i < kD / 2; ++i) dq[i] = 0.0f;
        mbarrier_wait(smem + kQFull + 8 * q_state.stage, q_state.phase);
        if (kQStages == 2) release_last_q();
        for (;;) {
          if (t.n_min < t.n_max) attend(t);
          t = describe_segment();  // read again: registers are scarce in the walk
          warp_sync();
          arrive(kSegmentEmpty + 8 * segment.stage);
          segment.advance();
          if (t.last) break;
          t = wait_segment();
        }
        wgmma_pin(dq);
        if (64 * group < t.rows) {
          if (p.runs != 0) {
            store_partial(t);
          } else {
            store(t);
          }
        }
        dq_in_flight = true;
        q_state.advance();
        if (kQStages == 1) release_last_q();
      }
      if (warp == 0 && elect_one()) bulk_wait_group<0>();  // shared memory must outlive the reads
    }
  };

  MXFA_DEVICE static void run(const AttentionBackwardDqParams& p) {
    extern __shared__ uint8_t raw[];
    uint32_t smem = (smem_address(raw) + 1023) & ~1023u;
    int warp = warp_id();
    if (warp == 0 && elect_one()) {
      init_ring(smem + kSegmentFull, smem + kSegmentEmpty, kSegmentStages, kEmptyCount);
      init_ring(smem + kQFull, smem + kQEmpty, kQStages, kEmptyCount);
      init_ring(smem + kDOutFull, smem + kDOutEmpty, 1, kEmptyCount);
      init_ring(smem + kKFull, smem + kKEmpty, kKStages, kEmptyCount);
      init_ring(smem + kVFull, smem + kVEmpty, kVStages, kEmptyCount);
      fence_mbarrier_init();  // visible to the async proxy, which completes transactions on them
    }
    cta_sync();
    if (warp < 4) {
      setmaxnreg_dec<Config::producer_registers>();
      if (warp == 0 && elect_one()) {
        prefetch_tensor_map(&p.q);
        prefetch_tensor_map(&p.k);
        prefetch_tensor_map(&p.v);
        prefetch_tensor_map(&p.d_out);
        prefetch_tensor_map(&p.dq);
        produce(p, smem);
      }
    } else {
      setmaxnreg_inc<Config::consumer_registers>();
      Consumer consumer{p, smem, Consumer::uniform(warp / 4 - 1), Consumer::uniform(warp % 4),
                        int(lane_id())};
      consumer.run();
    }
  }
};

}  // namespace mxfa

MXFA_PUBLISH_TABLES(attention_bwd_dq_sm90, mxfa::AttentionBwdDqSm90::tables());

// One CTA an SM (shared memory sees to that anyway): without the 1, ptxas drops setmaxnreg.
extern "C" __global__ void __launch_bounds__(mxfa::AttentionBwdDqSm90::kThreads, 1)
    attention_bwd_dq_sm90(const __grid_constant__ mxfa::AttentionBackwardDqParams p) {
  mxfa::AttentionBwdDqSm90::run(p);
}
