// What every role of attention_fwd_sm100 and attention_fwd_sm100_pair shares: addresses by the names of the
// tables, and the walk over tiles.
#pragma once
#include "ptx/barrier.cuh"
#include "ptx/elect.cuh"
#include "ptx/fence.cuh"
#include "ptx/ld_st.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/sreg.cuh"
#include "src/attention/attention_forward_params.cuh"
#include "src/attention/attention_fwd_sm100_tables.cuh"
#include "src/common/jagged.cuh"

namespace mxfa {

namespace attention_fwd_sm100 {

struct Context {
  const AttentionForwardParams& p;
  uint32_t warp;    // of the CTA; known to be uniform
  uint32_t shared;  // base of dynamic shared memory

  template <Smem kRow>
  MXFA_DEVICE static uint32_t offset(uint32_t stage = 0) {
    constexpr SmemRow row = kTables.smem[index_of(kRow)];
    return row.offset + stage * row.bytes;
  }
  template <Smem kRow>
  MXFA_DEVICE uint32_t address(uint32_t stage = 0) const {
    return shared + offset<kRow>(stage);
  }
  template <Barrier kRow>
  MXFA_DEVICE uint32_t barrier(uint32_t stage) const {
    constexpr uint32_t offset = kTables.barriers[index_of(kRow)].offset;
    return shared + offset + 8 * stage;
  }
  // The column of stage 0 or 1.  The CTA owns all 512 columns, so the base is column 0: a constant, which
  // saves the roles many registers; the kernel checks it once.
  template <Tmem kRow0, Tmem kRow1>
  MXFA_DEVICE static uint32_t column(uint32_t stage) {
    constexpr uint32_t column0 = kTables.tmem[index_of(kRow0)].column,
                       column1 = kTables.tmem[index_of(kRow1)].column;
    return stage == 0 ? column0 : column1;
  }

  // Softmax and correction: this thread's row of the query tile, and its TMEM lanes in the form an address
  // takes (bits 16 to 31).
  MXFA_DEVICE uint32_t row() const { return threadIdx.x % kWarpgroupThreads; }
  MXFA_DEVICE uint32_t warp_in_group() const { return warp % 4; }
  MXFA_DEVICE uint32_t quadrant_lanes() const { return warp_in_group() * 32 << 16; }
  template <Smem kRow>
  MXFA_DEVICE uint32_t row_address(uint32_t stage) const {
    return address<kRow>(stage) + 4 * row();
  }
};

// One arrival for the warp: the lanes' earlier work happens before bar.warp.sync, and that before the elected
// lane's arrive (release).
MXFA_DEVICE void warp_arrive(uint32_t barrier) {
  ptx::warp_sync();
  if (ptx::elect_one()) ptx::mbarrier_arrive(barrier);
}

// The same on a barrier that the mma thread waits for: in a pair that of the first CTA, with a release of
// shared memory alone, because one of everything would wait for the whole GPU.
template <Barrier kRow>
MXFA_DEVICE void warp_arrive_at_mma(const Context& c, uint32_t stage) {
  const uint32_t barrier = c.barrier<kRow>(stage);
  if constexpr (kCtas == 1) {
    warp_arrive(barrier);
  } else {
    ptx::warp_sync();
    if (ptx::elect_one()) {
      ptx::fence_release_shared_cta();
      ptx::mbarrier_arrive_cluster_relaxed(ptx::mapa(barrier, 0));
    }
  }
}

// Parities of barriers with one slot a stage.  A consumer's first wait blocks, a producer's passes
// (PipelineState).
struct StagePhases {
  uint32_t bits;
  MXFA_DEVICE static StagePhases consumer() { return {0}; }
  MXFA_DEVICE static StagePhases producer() { return {(1u << kStages) - 1}; }
  MXFA_DEVICE uint32_t operator[](uint32_t stage) const { return bits >> stage & 1; }
  MXFA_DEVICE void advance(uint32_t stage) { bits ^= 1u << stage; }
};

// Blocks of 128 keys, [first, end).
struct BlockRange {
  int32_t first, end;
  MXFA_DEVICE bool empty() const { return first >= end; }
  MXFA_DEVICE bool contains(int32_t block) const { return first <= block && block < end; }
};

// The tiles of this CTA: entries blockIdx.x, + gridDim.x, ... of the plan's list, int32[4] {batch, head,
// first query row, 0}.  A batch of -1 fills the list up where this CTA has fewer tiles than others.  A pair
// walks one list: of each stage of 256 rows its first CTA has the first 128, so a stage that the sequence
// does not reach is missing in both, and rows past the end of one that it does are zeros to the loads and
// nothing to the stores.
//
// Query i of a sequence sees the keys from i + (len_k - len_q) - window_left to i + (len_k - len_q) +
// window_right.  Each stage walks the blocks with a key that one of its rows sees, from the last to the
// first; stage 1 may begin before stage 0 and end before it.  A stage without such a block takes no part in
// the tile until its zeros are written, one without rows none at all.
struct Tile {
  const AttentionForwardParams& p;
  int32_t index;
  int32_t batch, head;
  int32_t row;  // first query row of the tile in its sequence
  Sequence q, k;

  MXFA_DEVICE explicit Tile(const AttentionForwardParams& params) : p(params), index(blockIdx.x / kCtas) {
    load();
  }
  MXFA_DEVICE bool valid() const { return batch >= 0; }
  MXFA_DEVICE void next() {
    index += gridDim.x / kCtas;
    load();
  }

  MXFA_DEVICE int32_t batch_q() const { return p.broadcast_q != 0 ? 0 : batch; }
  // Where the sequence's rows of O and LSE begin.
  MXFA_DEVICE int32_t first_o() const { return p.broadcast_q != 0 ? batch * q.length : q.first; }
  MXFA_DEVICE static uint32_t cta_rank() { return kCtas == 1 ? 0 : ptx::cluster_cta_rank(); }
  MXFA_DEVICE int32_t stage_row(uint32_t stage) const {
    return row + int32_t((stage * kCtas + cta_rank()) * kTile);
  }
  MXFA_DEVICE bool has_rows(uint32_t stage) const { return row + int32_t(stage * kCtas * kTile) < q.length; }
  // Key that query 0 sees on the diagonal.
  MXFA_DEVICE int32_t diagonal() const { return k.length - q.length; }

  MXFA_DEVICE BlockRange blocks(uint32_t stage) const {
    if (!has_rows(stage)) return {0, 0};
    const int32_t begin = stage_row(stage);
    int32_t keys = k.length;
    if constexpr (kRightMask)
      keys = min_of(keys, min_of(begin + int32_t(kTile), q.length) + diagonal() + p.window_right);
    int32_t first = 0;
    if constexpr (kLeftMask) first = max_of(begin + diagonal() - p.window_left, 0) / int32_t(kTile);
    const int32_t end = ceil_div(max_of(keys, 0), int32_t(kTile));
    return first < end ? BlockRange{first, end} : BlockRange{0, 0};
  }
  // Of the blocks() of a stage those that need no mask, because every row sees all of their keys; the first
  // block of the walk, which may hold the end of the sequence, is masked without asking.
  MXFA_DEVICE BlockRange unmasked(uint32_t stage, BlockRange blocks) const {
    BlockRange inner = blocks;
    const int32_t begin = stage_row(stage) + diagonal();
    if constexpr (kRightMask)
      inner.end = min_of(inner.end, max_of(begin + p.window_right + 1, 0) / int32_t(kTile));
    if constexpr (kLeftMask)
      inner.first = max_of(inner.first,
                           ceil_div(max_of(begin + int32_t(kTile) - 1 - p.window_left, 0), int32_t(kTile)));
    return inner;
  }

  MXFA_DEVICE void load() {
    batch = -1;
    if (index >= p.tile_count) return;
    const ptx::U32x4 entry = ptx::ld_global_nc_v4(pointer<int32_t>(p.tiles) + 4 * int64_t(index));
    batch = int32_t(entry.x);
    if (batch < 0) return;
    head = int32_t(entry.y);
    row = int32_t(entry.z);
    q = load_sequence(pointer<int32_t>(p.offsets_q), batch_q());
    k = load_sequence(pointer<int32_t>(p.offsets_k), batch);
  }
};

// The blocks of a tile: what either stage walks.  Both ranges move to later keys from stage 0 to stage 1, and
// no block between them is left out, because neighbouring rows see neighbouring keys.
struct TileBlocks {
  BlockRange stage[kStages];

  MXFA_DEVICE explicit TileBlocks(const Tile& tile) : stage{tile.blocks(0), tile.blocks(1)} {}
  MXFA_DEVICE int32_t first() const { return stage[0].empty() ? stage[1].first : stage[0].first; }
  MXFA_DEVICE int32_t end() const { return stage[1].empty() ? stage[0].end : stage[1].end; }
};

}  // namespace attention_fwd_sm100
}  // namespace mxfa
