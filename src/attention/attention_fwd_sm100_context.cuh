// What every role of attention_fwd_sm100 shares: addresses by the names of the tables, and
// the walk over tiles.
#pragma once
#include "ptx/barrier.cuh"
#include "ptx/elect.cuh"
#include "ptx/ld_st.cuh"
#include "ptx/mbarrier.cuh"
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

// The tiles of this CTA: blockIdx.x, and every gridDim.x-th after it.  The host launches a CTA a tile; all
// phases carry over, so fewer CTAs that walk the list are a matter of the grid alone.
struct Tile {
  const AttentionForwardParams& p;
  int32_t index;
  int32_t batch, head;
  int32_t row;  // first query row of the tile in its sequence
  Sequence q, k;
  int32_t blocks;  // of keys; walked from the last to the first
  int32_t tail;    // keys in the last block, 1..128

  MXFA_DEVICE explicit Tile(const AttentionForwardParams& params) : p(params), index(blockIdx.x) { load(); }
  MXFA_DEVICE bool valid() const { return index < p.tile_count; }
  MXFA_DEVICE void next() {
    index += gridDim.x;
    load();
  }

  MXFA_DEVICE void load() {
    if (!valid()) return;
    const ptx::U32x4 entry = ptx::ld_global_nc_v4(pointer<int32_t>(p.tiles) + 4 * int64_t(index));
    batch = int32_t(entry.x);
    head = int32_t(entry.y);
    row = int32_t(entry.z) * int32_t(kStages * kTile);
    q = load_sequence(pointer<int32_t>(p.offsets_q), batch);
    k = load_sequence(pointer<int32_t>(p.offsets_k), batch);
    blocks = ceil_div(k.length, int32_t(kTile));
    tail = k.length - (blocks - 1) * int32_t(kTile);
  }
};

}  // namespace attention_fwd_sm100
}  // namespace mxfa
