// Which query tiles a tile of keys of attention_bwd_sm90 walks, in which order, and what its keys see of
// them.
#pragma once
#include "ptx/ld_st.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shuffle.cuh"
#include "src/attention/attention_bwd_sm90_tables.cuh"
#include "src/common/jagged.cuh"
#include "src/common/math.cuh"
#include "src/common/pipeline.cuh"

namespace mxfa {

using namespace ptx;

struct AttentionBwdSm90Walk : AttentionBwdSm90Tables {
  // What the warpgroups must know of a tile.  The producer works it out and leaves it beside K.
  struct Tile {
    int32_t head, key_row;  // key/value head; first key of the tile in its sequence
    int32_t q_length, k_length;
    int32_t m_begin, m_end;    // query tiles with a row that sees a key: [m_begin, m_end)
    int32_t m_start;           // the first to be walked; after m_end comes m_begin
    int32_t keys;              // 64 x warpgroups with keys; 0: no more tiles
    int32_t k_first, dq_unit;  // first row of the sequence in dK; its first unit in the accumulators
    int32_t phase;             // of its K|V stage, for the consumers
    // Tiles that add to the same rows of dQ before this one; without `deterministic` its pair.
    int32_t turn;
    MXFA_DEVICE int pair() const { return turn; }
  };
  struct TileSource {  // and what only the producer needs
    Tile tile;
    Sequence q, k, d_out;
    int32_t stat_tile;
    bool wait;  // the main kernel prepares the rows
  };

  MXFA_DEVICE static TileSource read_tile(const AttentionBackwardParams& p, int index) {
    U32x4 entry = ld_global_nc_v4(pointer<const U32x4>(p.tiles) + index);
    int32_t batch = entry.x;
    TileSource s;
    s.tile.keys = batch < 0 ? 0 : entry.w % 256;
    if (batch < 0) return s;
    s.wait = !kDeterministic && int(entry.w) >= 256;
    s.q = load_sequence(pointer<const int32_t>(p.offsets_q), p.broadcast_q ? 0 : batch);
    s.k = load_sequence(pointer<const int32_t>(p.offsets_k), batch);
    s.d_out = {p.broadcast_q ? batch * s.q.length : s.q.first, s.q.length};
    Tile& t = s.tile;
    int rank = kDeterministic ? int(entry.w) / 256 : 0,
        replica = kDeterministic ? rank % p.dq_replicas : blockIdx.x % p.dq_replicas;
    t.turn = kDeterministic ? rank / p.dq_replicas : batch * p.heads_kv + int(entry.y);
    t.dq_unit =
        (p.broadcast_q ? 0 : padded_start(s.q.first, batch, kDqUnit)) + replica * p.heads_q * p.dq_units;
    s.stat_tile =
        p.broadcast_q ? batch * ceil_div(s.q.length, kTileM) : padded_start(s.q.first, batch, kTileM);
    t.head = entry.y;
    t.key_row = entry.z;
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
    // With turns every tile of a broadcast Q walks all of it: which tiles see a row has no closed form.
    if (kDeterministic && p.broadcast_q) t.m_begin = 0, t.m_end = ceil_div(t.q_length, kTileM);
    t.m_start = t.m_begin + index % max_of(min_of(t.m_end - t.m_begin, kRotation), 1);
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
    // Uniform, and so that the compiler keeps these three and not what they are made of.
    return {uniform(64 * group < t.keys ? t.k_length - key : 0), uniform(diagonal - p.window_right),
            uniform(diagonal + p.window_left)};
  }
  MXFA_DEVICE static Tile wait_tile(uint32_t smem, const PipelineState<kKvStages>& kv) {
    mbarrier_wait(smem + kKFull + 8 * kv.stage, kv.phase);
    return load_tile(smem, kv.stage);
  }
  MXFA_DEVICE static Tile load_tile(uint32_t smem, uint32_t stage) {
    uint32_t info = smem + kTileOffset + stage * kTileBytes;
    U32x4 a = ld_shared_v4(info), b = ld_shared_v4(info + 16), c = ld_shared_v4(info + 32);
    // From lane 0, so that the compiler knows the walk to be uniform and keeps its state in uniform
    // registers.
    return {uniform(a.x), uniform(a.y), uniform(a.z), uniform(a.w), uniform(b.x), uniform(b.y),
            uniform(b.z), uniform(b.w), uniform(c.x), uniform(c.y), uniform(c.z), uniform(c.w)};
  }
  MXFA_DEVICE static int32_t uniform(uint32_t value) { return int32_t(shfl_idx(value, 0)); }
};

}  // namespace mxfa
