// BF16 attention backward for Hopper (sm_90a) over jagged sequences: from dO, O's statistics and Q, K, V to
// dK, dV (bf16, written here) and unscaled dQ (FP32, added into the workspace; attention_bwd_finish.cuh).
//   P = 2^(scale log2(e) Q K^T - LSE log2(e)),  dS = P o (dO V^T - delta),
//   dV = P^T dO,  dK = scale dS^T Q,  dQ = scale dS K.
//
// A CTA owns 64 keys a compute warpgroup and walks the query tiles of 64 rows, of every query head of the
// group.  Everything is transposed (keys are the rows of S^T and dP^T), so that P^T and dS^T leave their
// accumulators as register operands of dV and dK and only dS goes through shared memory.
//
// Why a warpgroup of its own computes dQ.  Registers: dK and dV of 64 keys are 128 a thread at D = 128, S^T
// and dP^T of 64 queries 64 more; with the few that addresses take this fits 216.  The dQ of 64 rows would be
// another 32-64, and computing it inside would tie the compute warpgroups together at every step, since dQ
// needs the dS of all of them.  Apart, the three of them run at their own pace, one's exponentials under the
// others' GEMMs, and the additions of dQ to global memory stall nobody but the warpgroup that does little
// else.  Pool of 512 x 128 registers: 2 x 216 + 56 + 24.
//
// Why the additions go straight from registers (kBulkReduce off): shared memory bandwidth.  A step of 64
// queries x 128 keys at D = 128 reads 256 KB of operands and writes 48 KB, 2430 clocks at 128 bytes, under
// 2560 clocks of MMA; staging dQ for a bulk copy would add 64 KB.  The bytes on the way to L2 are the same.
//
// Hand-overs, all mbarriers: K|V, Q|dO rings filled by the producer; dS ring from each compute warpgroup to
// the dQ one.  A warpgroup without a visible pair in a step takes part in the hand-overs and computes
// nothing. CTAs are persistent and take tiles from a list that the plan orders.  Each starts its walk over
// the query tiles at another one, so that CTAs of one head do not add to the same rows at the same time.
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
#include "src/attention/attention_bwd_finish.cuh"
#include "src/attention/attention_bwd_prepare.cuh"
#include "src/common/jagged.cuh"
#include "src/common/math.cuh"
#include "src/common/pipeline.cuh"

namespace mxfa {

template <class Config>
struct AttentionBwdSm90 {
  static constexpr int kD = Config::head_dim;
  static constexpr int kCompute = Config::compute_warpgroups;
  static constexpr int kKvStages = Config::kv_stages;
  static constexpr int kQStages = Config::q_stages, kDsStages = kQStages;  // both rings turn a stage a step
  static constexpr bool kRightMask = Config::right_mask;                   // causal or a right window
  static constexpr bool kLeftMask = Config::left_mask;                     // a left window
  static constexpr bool kBulkReduce = Config::bulk_reduce;
  static constexpr int kTileM = kBackwardRows, kTileN = 64 * kCompute;
  static constexpr int kThreads = 128 * (kCompute + 2);  // producer, dQ, compute ...
  // A row of 64 bf16 is 128 bytes = one swizzle span; D = 96 takes two panels, the second half empty (TMA
  // fills it with zeros).  A run of 64 rows of a panel is one TMA box.
  static constexpr int kPanels = (kD + 63) / 64;
  static constexpr int kBox = 64 * 128;
  static constexpr int kKvPanel = kCompute * kBox, kQPanel = kBox;
  static constexpr int kKvBytes = kPanels * kKvPanel, kQBytes = kPanels * kQPanel;
  static constexpr int kStatisticsBytes = 512;
  // dQ is computed in units of 64 rows x kUnitN channels.
  static constexpr int kUnitN = kD == 96 ? 96 : 64, kUnits = kD / kUnitN, kUnitRegisters = kUnitN / 2;
  static constexpr int kUnitBytes = kTileM * kUnitN * 4;
  static constexpr int kStages = kBulkReduce ? 2 : 0;  // staging buffers of a unit

  static constexpr int kKOffset = 0, kVOffset = kKvBytes, kKvStageBytes = 2 * kKvBytes;
  static constexpr int kQOffset = kKvStages * kKvStageBytes, kDOutOffset = kQOffset + kQBytes;
  static constexpr int kQStageBytes = 2 * kQBytes;
  static constexpr int kDsOffset = kQOffset + kQStages * kQStageBytes;  // [stage][compute warpgroup], a box
  static constexpr int kStagingOffset = kDsOffset + kDsStages * kCompute * kBox;
  static constexpr int kStatisticsOffset = kStagingOffset + kStages * kUnitBytes;
  static constexpr int kTileOffset = kStatisticsOffset + kQStages * kStatisticsBytes, kTileBytes = 48;
  static constexpr int kKFull = kTileOffset + kKvStages * kTileBytes, kVFull = kKFull + 8 * kKvStages;
  static constexpr int kKvEmpty = kVFull + 8 * kKvStages;
  static constexpr int kQFull = kKvEmpty + 8 * kKvStages, kDOutFull = kQFull + 8 * kQStages;
  static constexpr int kQEmpty = kDOutFull + 8 * kQStages;
  static constexpr int kDsFull = kQEmpty + 8 * kQStages, kDsEmpty = kDsFull + 8 * kDsStages * kCompute;
  static constexpr int kSharedBytes = kDsEmpty + 8 * kDsStages * kCompute;
  // 1024 bytes of slack align the base: nothing promises where dynamic shared memory starts.
  static constexpr int kAllocatedBytes = kSharedBytes + 1024;
  static_assert(kAllocatedBytes <= 232448, "227 KB a CTA");
  static_assert(kD == 64 || kD == 96 || kD == 128, "head_dim");
  // setmaxnreg trades registers of the CTA's own pool: what the launch gave out, rounded down to 8 a thread.
  // Asking for more blocks for ever.
  static constexpr int kPool = 65536 / kThreads / 8 * 8 * kThreads;
  static_assert(128 * (kCompute * Config::compute_registers + Config::dq_registers +
                       Config::producer_registers) <=
                    kPool,
                "register budget");
  static constexpr float kMinusInfinity = -__builtin_huge_valf();
  static constexpr uint32_t kDqBarrier = 1;  // named barrier of the dQ warpgroup

  // What the warpgroups must know of a tile.  The producer works it out and leaves it beside K.
  struct Tile {
    int32_t head, key_row;  // key/value head; first key of the tile in its sequence
    int32_t q_length, k_length;
    int32_t m_begin, m_end;    // query tiles with a row that sees a key: [m_begin, m_end)
    int32_t m_start;           // the first to be walked; after m_end comes m_begin
    int32_t keys;              // 64 x warpgroups with keys; 0: no more tiles
    int32_t k_first, dq_tile;  // first row of the sequence in dK; its first tile in the accumulators
  };
  struct TileSource {  // and what only the producer needs
    Tile tile;
    Sequence q, k, d_out;
    int32_t stat_tile;
  };

  MXFA_DEVICE static TileSource read_tile(const AttentionBackwardParams& p, int index) {
    U32x4 entry = ld_global_nc_v4(pointer<const U32x4>(p.tiles) + index);
    int32_t batch = entry.x;
    TileSource s;
    s.q = load_sequence(pointer<const int32_t>(p.offsets_q), p.broadcast_q ? 0 : batch);
    s.k = load_sequence(pointer<const int32_t>(p.offsets_k), batch);
    s.d_out = {p.broadcast_q ? batch * s.q.length : s.q.first, s.q.length};
    Tile& t = s.tile;
    t.dq_tile = p.broadcast_q ? 0 : padded_tile(s.q.first, batch);
    s.stat_tile = p.broadcast_q ? batch * ceil_div(s.q.length, kTileM) : t.dq_tile;
    t.head = entry.y;
    t.key_row = entry.z;
    t.keys = entry.w;
    t.q_length = s.q.length;
    t.k_length = s.k.length;
    t.k_first = s.k.first;
    // Bottom-right alignment: query i sees keys i + shift - left .. i + shift + right.
    int shift = t.k_length - t.q_length, begin = 0, end = t.q_length;
    if (kRightMask) begin = max_of(t.key_row - shift - p.window_right, 0);
    if (kLeftMask)
      end = min_of(end, max_of(min_of(t.key_row + t.keys, t.k_length) - shift + p.window_left, 0));
    t.m_begin = begin / kTileM;
    t.m_end = max_of(ceil_div(end, kTileM), t.m_begin);
    t.m_start = t.m_begin + (t.m_end > t.m_begin ? index % (t.m_end - t.m_begin) : 0);
    return s;
  }
  MXFA_DEVICE static void next(const Tile& t, int& m) {
    if (++m == t.m_end) m = t.m_begin;
  }
  // What the 64 keys of a warpgroup see, relative to the sequence's query rows: key i of the run sees rows
  // [begin + i, end + i], and there are `keys` of them (64 and more: none is past the end).
  struct Visible {
    int32_t keys, begin, end;

    // Whether a row of query tile m sees a key ...
    MXFA_DEVICE bool any(int m) const {
      return keys > 0 && (!kRightMask || begin < kTileM * (m + 1)) &&
             (!kLeftMask || end + min_of(keys, 64) > kTileM * m);
    }
    // ... and whether all rows see all 64.
    MXFA_DEVICE bool all(int m) const {
      return keys >= 64 && (!kRightMask || begin + 63 <= kTileM * m) &&
             (!kLeftMask || end >= kTileM * (m + 1) - 1);
    }
  };
  MXFA_DEVICE static Visible visible(const AttentionBackwardParams& p, const Tile& t, int group) {
    int key = t.key_row + 64 * group, diagonal = key - (t.k_length - t.q_length);
    return {64 * group < t.keys ? t.k_length - key : 0, diagonal - p.window_right, diagonal + p.window_left};
  }
  MXFA_DEVICE static Tile wait_tile(uint32_t smem, const PipelineState<kKvStages>& kv) {
    mbarrier_wait(smem + kKFull + 8 * kv.stage, kv.phase);
    uint32_t info = smem + kTileOffset + kv.stage * kTileBytes;
    U32x4 a = ld_shared_v4(info), b = ld_shared_v4(info + 16), c = ld_shared_v4(info + 32);
    // From lane 0, so that the compiler knows the walk to be uniform and keeps its state in uniform
    // registers.
    return {uniform(a.x), uniform(a.y), uniform(a.z), uniform(a.w), uniform(b.x),
            uniform(b.y), uniform(b.z), uniform(b.w), uniform(c.x), uniform(c.y)};
  }
  MXFA_DEVICE static int32_t uniform(uint32_t value) { return int32_t(shfl_idx(value, 0)); }

  // ---- producer: one thread ---------------------------------------------------------------------------
  MXFA_DEVICE static void load_rows(const TensorMap& map, uint32_t destination, uint32_t panel_bytes,
                                    uint32_t bar, int head, Sequence sequence, int first) {
    RaggedRow row = ragged_row(sequence, first);
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel)
      tma_load_5d(destination + panel * panel_bytes, &map, bar, 64 * panel, head, row.row, row.shift,
                  row.end);
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
      st_shared_v4(info + 32, {uint32_t(t.k_first), uint32_t(t.dq_tile), 0, 0});
    };
    // The first tile of every CTA is its own; the others go to whoever comes first, in the plan's order.
    int32_t* counters = pointer<int32_t>(p.counters);
    for (int index = blockIdx.x; index < p.tile_count;
         index = gridDim.x + atom_add_acq_rel_gpu_s32(counters, 1)) {
      TileSource source = read_tile(p, index);
      const Tile& t = source.tile;
      publish(t);
      // Runs of 64 keys beyond the end of the sequence are neither loaded nor multiplied.
      int count = (t.m_end - t.m_begin) * ratio;
      int runs = count == 0 ? 0 : ceil_div(min_of(t.keys, t.k_length - t.key_row), 64);
      for (int which = 0; which < 2; ++which) {
        uint32_t full = smem + (which == 0 ? kKFull : kVFull) + 8 * kv.stage;
        uint32_t destination = smem + (which == 0 ? kKOffset : kVOffset) + kv.stage * kKvStageBytes;
        // The arrival on K's barrier releases the tile's description as well.
        mbarrier_arrive_expect_tx(full, runs * kPanels * kBox);
        for (int run = 0; run < runs; ++run)
          load_rows(which == 0 ? p.k : p.v, destination + run * kBox, kKvPanel, full, t.head, source.k,
                    t.key_row + 64 * run);
      }
      kv.advance();
      const float* statistics = pointer<const float>(p.statistics);
      int head = t.head * ratio, m = t.m_start;
      for (int i = 0; i < count; ++i) {
        mbarrier_wait(smem + kQEmpty + 8 * ring.stage, ring.phase);
        uint32_t stage = smem + ring.stage * kQStageBytes;
        uint32_t q_full = smem + kQFull + 8 * ring.stage, d_out_full = smem + kDOutFull + 8 * ring.stage;
        mbarrier_arrive_expect_tx(q_full, kQBytes + kStatisticsBytes);
        load_rows(p.q, stage + kQOffset, kQPanel, q_full, head, source.q, kTileM * m);
        bulk_load(smem + kStatisticsOffset + ring.stage * kStatisticsBytes,
                  statistics + (int64_t(head) * p.stat_tiles + source.stat_tile + m) * (kStatisticsBytes / 4),
                  kStatisticsBytes, q_full);
        mbarrier_arrive_expect_tx(d_out_full, kQBytes);
        load_rows(p.d_out, stage + kDOutOffset, kQPanel, d_out_full, head, source.d_out, kTileM * m);
        ring.advance();
        next(t, m);
        if (m == t.m_start) ++head;
      }
    }
    publish(Tile{});
    mbarrier_arrive(smem + kKFull + 8 * kv.stage);
    // The last CTA leaves the counters as it found them.
    if (atom_add_acq_rel_gpu_s32(counters + 1, 1) == int(gridDim.x) - 1) {
      counters[0] = 0;
      counters[1] = 0;
    }
  }

  // ---- dQ: one warpgroup ----------------------------------------------------------------------------------
  struct QueryGradient {
    const AttentionBackwardParams& p;
    uint32_t smem;
    int warp, lane;
    PipelineState<kKvStages> kv;
    PipelineState<kDsStages> ring;
    uint32_t staging;  // the buffer the next unit leaves through
    float acc[kUnitRegisters];

    // dQ unit = sum over keys of dS^T (keys x queries: A is M-major) times K (keys x channels: B is N-major).
    MXFA_DEVICE void multiply(int unit, uint32_t mask) {
      uint32_t k = smem + kKOffset + kv.stage * kKvStageBytes + unit * (kUnitN / 64) * kKvPanel;
      uint32_t ds = smem + kDsOffset + ring.stage * kCompute * kBox;
      wgmma_pin(acc);
      wgmma_fence();
      bool accumulate = false;
#pragma unroll
      for (int group = 0; group < kCompute; ++group) {
        if (unit == 0) mbarrier_wait(smem + kDsFull + 8 * (ring.stage * kCompute + group), ring.phase);
        if (mask & 1 << group) {
          uint64_t a = wgmma_descriptor(ds + group * kBox, kBox, 1024, Swizzle::k128B);
          uint64_t b = wgmma_descriptor(k + group * kBox, kKvPanel, 1024, Swizzle::k128B);
#pragma unroll
          for (int step = 0; step < 4; ++step)  // 16 keys = 16 rows of 128 bytes
            wgmma_bf16_ss<1, 1>(acc, descriptor_advance(a, step * 2048), descriptor_advance(b, step * 2048),
                                accumulate || step != 0);
          accumulate = true;
        }
      }
      wgmma_commit();
      wgmma_wait<0>();
      wgmma_pin(acc);
    }

    MXFA_DEVICE void add(float* tile, bool valid) {
      int thread = 32 * warp + lane;
      if (!kBulkReduce) {
        if (!valid) return;  // both rows are past the end of the sequence
        tile += 4 * thread;
#pragma unroll
        for (int c = 0; c < kUnitN / 8; ++c)
          red_global_add_v4_f32(tile + 4 * 128 * c, acc[4 * c], acc[4 * c + 1], acc[4 * c + 2],
                                acc[4 * c + 3]);
        return;
      }
      if (warp == 0 && elect_one()) bulk_wait_group_read<kStages - 1>();
      named_barrier_sync(kDqBarrier, 128);  // the buffer has been read
#pragma unroll
      for (int c = 0; c < kUnitN / 8; ++c)
        st_shared_v4(staging + 16 * (128 * c + thread),
                     {float_bits(acc[4 * c]), float_bits(acc[4 * c + 1]), float_bits(acc[4 * c + 2]),
                      float_bits(acc[4 * c + 3])});
      fence_proxy_async_shared_cta();  // the bulk copy reads through the async proxy
      named_barrier_sync(kDqBarrier, 128);
      if (warp == 0 && elect_one()) {
        bulk_reduce_add_f32(tile, staging, kUnitBytes);
        bulk_commit_group();
      }
      staging ^= (smem + kStagingOffset) ^ (smem + kStagingOffset + kUnitBytes);
    }

    MXFA_DEVICE void walk(const Tile& t) {
      Visible seen[kCompute];
#pragma unroll
      for (int group = 0; group < kCompute; ++group) seen[group] = visible(p, t, group);
      int ratio = p.heads_q / p.heads_kv;
      int replica = blockIdx.x % p.dq_replicas;
      int tile = (replica * p.heads_q + t.head * ratio) * p.dq_tiles + t.dq_tile;  // of m = 0
      int m = t.m_start;
      for (int i = (t.m_end - t.m_begin) * ratio; i > 0; --i) {
        uint32_t mask = 0;
#pragma unroll
        for (int group = 0; group < kCompute; ++group) mask |= uint32_t(seen[group].any(m)) << group;
        float* out = pointer<float>(p.dq_accumulator) + int64_t(tile + m) * (kTileM * kD);
        bool valid = kTileM * m + 16 * warp + lane / 4 < t.q_length;
#pragma unroll
        for (int unit = 0; unit < kUnits; ++unit) {
          multiply(unit, mask);
          if (unit == kUnits - 1 && lane == 0) {
#pragma unroll
            for (int group = 0; group < kCompute; ++group)
              mbarrier_arrive(smem + kDsEmpty + 8 * (ring.stage * kCompute + group));
          }
          if (mask != 0) add(out + unit * (kTileM * kUnitN), valid);
        }
        ring.advance();
        next(t, m);
        if (m == t.m_start) tile += p.dq_tiles;
      }
    }

    MXFA_DEVICE void run() {
      staging = smem + kStagingOffset;
      for (Tile t = wait_tile(smem, kv); t.keys != 0; t = wait_tile(smem, kv)) {
        walk(t);
        if (lane == 0) mbarrier_arrive(smem + kKvEmpty + 8 * kv.stage);
        kv.advance();
      }
      // Shared memory must outlive the reads.
      if (kBulkReduce && warp == 0 && elect_one()) bulk_wait_group_read<0>();
    }
  };

  // ---- compute: one warpgroup, 64 keys
  // ---------------------------------------------------------------------- Accumulator layout: ptx/wgmma.cuh.
  // Rows are keys, columns queries (S^T, dP^T) or channels (dK, dV).
  struct Compute {
    const AttentionBackwardParams& p;
    uint32_t smem;
    int group, warp, lane;
    PipelineState<kKvStages> kv;
    PipelineState<kQStages> ring;
    float dk[kD / 2], dv[kD / 2];

    // S^T = K Q^T, dP^T = V dO^T: both operands K-major.  16 channels = 32 bytes, four steps a panel.
    MXFA_DEVICE void issue_scores(float (&d)[kTileM / 2], uint32_t keys, uint32_t queries) {
      uint64_t a = wgmma_descriptor(keys + group * kBox, 16, 1024, Swizzle::k128B);
      uint64_t b = wgmma_descriptor(queries, 16, 1024, Swizzle::k128B);
#pragma unroll
      for (int step = 0; step < kD / 16; ++step)
        wgmma_bf16_ss<0, 0>(d, descriptor_advance(a, (step / 4) * kKvPanel + (step % 4) * 32),
                            descriptor_advance(b, (step / 4) * kQPanel + (step % 4) * 32), step != 0);
      wgmma_commit();
    }
    // dV += P^T dO, dK += dS^T Q: B is queries x channels, N-major, panels of 64 channels.
    MXFA_DEVICE void issue_gradient(float (&d)[kD / 2], const uint32_t (&a)[kTileM / 4], uint32_t queries) {
      uint64_t b = wgmma_descriptor(queries, kQPanel, 1024, Swizzle::k128B);
#pragma unroll
      for (int step = 0; step < kTileM / 16; ++step) {
        const uint32_t fragment[4] = {a[4 * step], a[4 * step + 1], a[4 * step + 2], a[4 * step + 3]};
        wgmma_bf16_rs<1>(d, fragment, descriptor_advance(b, step * 2048), true);
      }
      wgmma_commit();
    }
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

    MXFA_DEVICE void step(const Visible& seen, int m) {
      uint32_t k = smem + kKOffset + kv.stage * kKvStageBytes, v = k + kVOffset;
      uint32_t q = smem + kQOffset + ring.stage * kQStageBytes, d_out = q + (kDOutOffset - kQOffset);
      uint32_t statistics =
          smem + kStatisticsOffset + ring.stage * kStatisticsBytes + 8 * (lane % 4);  // two columns a chunk
      uint32_t p_bf16[kTileM / 4], ds_bf16[kTileM / 4];
      mbarrier_wait(smem + kQFull + 8 * ring.stage, ring.phase);
      {
        float s[kTileM / 2];
        wgmma_fence();
        issue_scores(s, k, q);
        wgmma_wait<0>();
        wgmma_pin(s);
        if (!seen.all(m)) mask(s, seen, m);
#pragma unroll
        for (int j = 0; j < kTileM / 8; ++j) {
          F32x2 lse = ld_shared_v2_f32(statistics + 32 * j);
          s[4 * j] = ex2_approx_ftz(fma_rn_ftz_f32(s[4 * j], p.scale_log2, lse.x));
          s[4 * j + 1] = ex2_approx_ftz(fma_rn_ftz_f32(s[4 * j + 1], p.scale_log2, lse.y));
          s[4 * j + 2] = ex2_approx_ftz(fma_rn_ftz_f32(s[4 * j + 2], p.scale_log2, lse.x));
          s[4 * j + 3] = ex2_approx_ftz(fma_rn_ftz_f32(s[4 * j + 3], p.scale_log2, lse.y));
        }
        convert(p_bf16, s);
      }
      mbarrier_wait(smem + kDOutFull + 8 * ring.stage, ring.phase);
      {
        float dp[kTileM / 2];
        wgmma_fence();
        issue_scores(dp, v, d_out);
        acquire_ds();
        wgmma_wait<0>();
        wgmma_pin(dp);
#pragma unroll
        for (int j = 0; j < kTileM / 8; ++j) {
          F32x2 delta = ld_shared_v2_f32(statistics + 4 * kTileM + 32 * j);
          dp[4 * j] = bf16x2_low(p_bf16[2 * j]) * (dp[4 * j] - delta.x);
          dp[4 * j + 1] = bf16x2_high(p_bf16[2 * j]) * (dp[4 * j + 1] - delta.y);
          dp[4 * j + 2] = bf16x2_low(p_bf16[2 * j + 1]) * (dp[4 * j + 2] - delta.x);
          dp[4 * j + 3] = bf16x2_high(p_bf16[2 * j + 1]) * (dp[4 * j + 3] - delta.y);
        }
        convert(ds_bf16, dp);
      }
      wgmma_fence();
      issue_gradient(dv, p_bf16, d_out);
      publish_ds(ds_bf16);
      issue_gradient(dk, ds_bf16, q);
      wgmma_wait<0>();
      if (lane == 0) mbarrier_arrive(smem + kQEmpty + 8 * ring.stage);
      ring.advance();
    }

    MXFA_DEVICE uint32_t ds_box() const { return smem + kDsOffset + (ring.stage * kCompute + group) * kBox; }
    MXFA_DEVICE void acquire_ds() {
      mbarrier_wait(smem + kDsEmpty + 8 * (ring.stage * kCompute + group), ring.phase ^ 1);
    }
    MXFA_DEVICE void publish_ds(const uint32_t (&ds_bf16)[kTileM / 4]) {
      // stmatrix x4: lane l gives the address of row l%8 of matrix l/8; matrices are (keys 0-7 | 8-15) x
      // (queries 0-7 | 8-15).
      int row = 16 * warp + lane % 8 + 8 * ((lane / 8) & 1);
      uint32_t address = ds_box() + row * 128;
#pragma unroll
      for (int step = 0; step < kTileM / 16; ++step)
        stmatrix_x4(address + (((2 * step + lane / 16) ^ (row & 7)) << 4), ds_bf16[4 * step],
                    ds_bf16[4 * step + 1], ds_bf16[4 * step + 2], ds_bf16[4 * step + 3]);
      fence_proxy_async_shared_cta();  // written by ordinary stores, read by wgmma through the async proxy
      warp_sync();
      if (lane == 0) mbarrier_arrive(smem + kDsFull + 8 * (ring.stage * kCompute + group));
    }

    // No pair sees each other: the stage comes by, an empty hand-over keeps the dQ warpgroup in step.
    MXFA_DEVICE void skip() {
      mbarrier_wait(smem + kQFull + 8 * ring.stage, ring.phase);
      mbarrier_wait(smem + kDOutFull + 8 * ring.stage, ring.phase);
      if (lane == 0) mbarrier_arrive(smem + kQEmpty + 8 * ring.stage);
      acquire_ds();
      if (lane == 0) mbarrier_arrive(smem + kDsFull + 8 * (ring.stage * kCompute + group));
      ring.advance();
    }

    MXFA_DEVICE void store(const Tile& t) {
      int first = t.key_row + 64 * group + 16 * warp;
      int rows = min_of(t.key_row + t.keys, t.k_length) - first;
      // This warp's rows of the dS box that comes next are free once dQ has read the last step that used it.
      acquire_ds();
      uint32_t scratch = ds_box() + 2048 * warp;
      int64_t row = int64_t(t.k_first) + first;
      store_warp_rows<kD>(dv, 1.0f, scratch, pointer<bf16_bits>(p.dv) + row * p.stride_dv + t.head * kD,
                          p.stride_dv, rows, lane);
      store_warp_rows<kD>(dk, p.scale, scratch, pointer<bf16_bits>(p.dk) + row * p.stride_dk + t.head * kD,
                          p.stride_dk, rows, lane);
    }

    MXFA_DEVICE void walk(const Tile& t) {
      Visible seen = visible(p, t, group);
      int m = t.m_start;
      for (int i = (t.m_end - t.m_begin) * (p.heads_q / p.heads_kv); i > 0; --i) {
        if (seen.any(m)) {
          step(seen, m);
        } else {
          skip();
        }
        next(t, m);
      }
    }

    MXFA_DEVICE void run() {
      for (Tile t = wait_tile(smem, kv); t.keys != 0; t = wait_tile(smem, kv)) {
#pragma unroll
        for (int i = 0; i < kD / 2; ++i) dk[i] = dv[i] = 0.0f;
        mbarrier_wait(smem + kVFull + 8 * kv.stage, kv.phase);
        walk(t);
        wgmma_pin(dv);
        wgmma_pin(dk);
        t = wait_tile(smem, kv);  // read again: registers are scarce in the walk
        warp_sync();
        if (lane == 0) mbarrier_arrive(smem + kKvEmpty + 8 * kv.stage);
        store(t);
        kv.advance();
      }
    }
  };

  MXFA_DEVICE static void run(const AttentionBackwardParams& p) {
    extern __shared__ uint8_t raw[];
    uint32_t smem = (smem_address(raw) + 1023) & ~1023u;
    int warp = warp_id();
    if (warp == 0 && elect_one()) {
      // One arrival a warp: each waits for its own quarter of a wgmma, and reads its own registers' share.
      for (int i = 0; i < kKvStages; ++i) {
        mbarrier_init(smem + kKFull + 8 * i, 1);
        mbarrier_init(smem + kVFull + 8 * i, 1);
        mbarrier_init(smem + kKvEmpty + 8 * i, 4 * (kCompute + 1));
      }
      for (int i = 0; i < kQStages; ++i) {
        mbarrier_init(smem + kQFull + 8 * i, 1);
        mbarrier_init(smem + kDOutFull + 8 * i, 1);
        mbarrier_init(smem + kQEmpty + 8 * i, 4 * kCompute);
      }
      for (int i = 0; i < kDsStages * kCompute; ++i) {
        mbarrier_init(smem + kDsFull + 8 * i, 4);
        mbarrier_init(smem + kDsEmpty + 8 * i, 4);
      }
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
        produce(p, smem);
      }
    } else if (warp < 8) {
      setmaxnreg_dec<Config::dq_registers>();
      QueryGradient gradient{p, smem, warp % 4, int(lane_id())};
      gradient.run();
    } else {
      setmaxnreg_inc<Config::compute_registers>();
      Compute compute{p, smem, warp / 4 - 2, warp % 4, int(lane_id())};
      compute.run();
    }
  }
};

}  // namespace mxfa

extern "C" __global__ void __launch_bounds__(mxfa::AttentionBwdSm90<Config>::kThreads, 1)
    attention_bwd_sm90(const __grid_constant__ mxfa::AttentionBackwardParams p) {
  mxfa::AttentionBwdSm90<Config>::run(p);
}
