// Which tiles a CTA of attention_fwd_sm100, or a pair of attention_fwd_sm100_pair, computes, and which blocks
// of keys each of them walks.
#pragma once
#include "ptx/fence.cuh"
#include "ptx/launch_control.cuh"
#include "ptx/ld_st.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/sreg.cuh"
#include "src/attention/attention_fwd_sm100_context.cuh"
#include "src/common/jagged.cuh"
#include "src/common/math.cuh"

namespace mxfa::attention_fwd_sm100 {

// Blocks of 128 keys, [first, end).
struct BlockRange {
  int32_t first, end;
  MXFA_DEVICE bool empty() const { return first >= end; }
  MXFA_DEVICE bool contains(int32_t block) const { return first <= block && block < end; }
};

// An entry of the plan's list, int32[4] {batch, head, first query, following}, with its sequences.  With
// packed heads `head` is that of the keys, and a stage's 128 rows are kStageTokens queries of every query
// head of it.  Of each stage of a pair, 256 rows, its first CTA has the first 128, so a stage that the
// sequence does not reach is missing in both, and rows past the end of one that it does are zeros to the
// loads and nothing to the stores.
//
// Query i of a sequence sees the keys from i + (len_k - len_q) - window_left to i + (len_k - len_q) +
// window_right.  Each stage walks the blocks with a key that one of its rows sees, from the last to the
// first; stage 1 may begin before stage 0 and end before it.  A stage without such a block takes no part in
// the tile until its zeros are written, one without rows none at all.
struct Tile {
  const AttentionForwardParams& p;
  int32_t batch, head;
  int32_t row;        // first query of the tile in its sequence
  int32_t following;  // launch control: the entry that this CTA takes after this one, 0: none without a grant
  Sequence q, k;

  MXFA_DEVICE explicit Tile(const AttentionForwardParams& params) : p(params) {}
  MXFA_DEVICE bool valid() const { return batch >= 0; }

  MXFA_DEVICE int32_t batch_q() const { return p.broadcast_q != 0 ? 0 : batch; }
  // Where the sequence's rows of O and LSE begin.
  MXFA_DEVICE int32_t first_o() const { return p.broadcast_q != 0 ? batch * q.length : q.first; }
  MXFA_DEVICE static uint32_t cta_rank() { return kCtas == 1 ? 0 : ptx::cluster_cta_rank(); }
  // First query of a stage; of one of its rows; the head of that.
  MXFA_DEVICE int32_t stage_row(uint32_t stage) const {
    return row + int32_t((stage * kCtas + cta_rank()) * kStageTokens);
  }
  MXFA_DEVICE int32_t query(uint32_t stage, uint32_t tile_row) const {
    return stage_row(stage) + int32_t(tile_row / kPackedHeads);
  }
  MXFA_DEVICE int32_t head_q(uint32_t tile_row) const {
    return head * int32_t(kPackedHeads) + int32_t(tile_row % kPackedHeads);
  }
  MXFA_DEVICE int32_t head_kv() const { return kPackedHeads > 1 ? head : head / (p.heads_q / p.heads_kv); }
  MXFA_DEVICE bool has_rows(uint32_t stage) const {
    return row + int32_t(stage * kCtas * kStageTokens) < q.length;
  }
  // Key that query 0 sees on the diagonal.
  MXFA_DEVICE int32_t diagonal() const { return k.length - q.length; }

  MXFA_DEVICE BlockRange blocks(uint32_t stage) const {
    if (!has_rows(stage)) return {0, 0};
    const int32_t begin = stage_row(stage);
    int32_t keys = k.length;
    if constexpr (kRightMask)
      keys = min_of(keys, min_of(begin + int32_t(kStageTokens), q.length) + diagonal() + p.window_right);
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
      inner.first = max_of(inner.first, ceil_div(max_of(begin + int32_t(kStageTokens) - 1 - p.window_left, 0),
                                                 int32_t(kTile)));
    return inner;
  }

  MXFA_DEVICE void load(int32_t entry) {
    const ptx::U32x4 words = ptx::ld_global_nc_v4(pointer<int32_t>(p.tiles) + 4 * int64_t(entry));
    batch = int32_t(words.x);
    if (batch < 0) return;
    head = int32_t(words.y);
    row = int32_t(words.z);
    following = int32_t(words.w);
    q = load_sequence(pointer<int32_t>(p.offsets_q), batch_q());
    k = load_sequence(pointer<int32_t>(p.offsets_k), batch);
  }
};

// What a block is to a stage: one that it walks, the first of its walk, the last.
inline constexpr uint32_t kActive = 1, kFirst = 4, kLast = 16;  // << stage

// The blocks of a tile: what either stage walks.  Both ranges move to later keys from stage 0 to stage 1, and
// no block between them is left out, because neighbouring rows see neighbouring keys.
struct TileBlocks {
  BlockRange stage[kStages];

  MXFA_DEVICE explicit TileBlocks(const Tile& tile) : stage{tile.blocks(0), tile.blocks(1)} {}
  MXFA_DEVICE int32_t first() const { return stage[0].empty() ? stage[1].first : stage[0].first; }
  MXFA_DEVICE int32_t end() const { return stage[1].empty() ? stage[0].end : stage[1].end; }

  // What a block is to both stages.
  MXFA_DEVICE uint32_t parts(int32_t block) const {
    uint32_t parts = 0;
#pragma unroll
    for (uint32_t i = 0; i < kStages; ++i) {
      if (!stage[i].contains(block)) continue;
      parts |= kActive << i;
      if (block == stage[i].end - 1) parts |= kFirst << i;
      if (block == stage[i].first) parts |= kLast << i;
    }
    return parts;
  }
};

enum class Walker { kThread, kWarp };

// The tiles of this CTA, as a role walks them; every role sees the same ones in the same order.
//
// Without launch control: entries blockIdx.x, + gridDim.x, ... (a pair: of pairs); a batch of -1 fills the
// list up where this CTA has fewer tiles than others.  With it: entry blockIdx.x, those that follow it by
// their last word, and then, grant by grant, entry x of a CTA x that will not start any more, with those that
// follow it.
template <Walker kWalker>
struct Tiles : Tile {
  const Context& c;
  uint32_t at;  // the entry; launch control: grants that have been asked for

  MXFA_DEVICE explicit Tiles(const Context& context) : Tile(context.p), c(context) {
    at = kLaunchControl ? 0 : blockIdx.x / kCtas;
    load(int32_t(blockIdx.x / kCtas));
  }

  MXFA_DEVICE void next() {
    if constexpr (kLaunchControl) {
      if (following != 0) {
        load(following);
      } else {
        take_grant();
      }
    } else {
      at += gridDim.x / kCtas;
      batch = -1;
      if (at < uint32_t(p.tile_count)) load(int32_t(at));
    }
  }

  // A refusal ends the walk: the hardware starts the CTAs that are left, here or on another SM.
  MXFA_DEVICE void take_grant() {
    const uint32_t slot = at % kGrantSlots;
    ptx::mbarrier_wait(c.barrier<Barrier::kGrantFull>(slot), at / kGrantSlots % 2);
    ++at;
    const ptx::LaunchGrant grant = ptx::launch_query(c.address<Smem::kGrant>(slot));
    ptx::fence_proxy_async_shared_cta();  // our read, before the next answer comes into the slot
    if constexpr (kWalker == Walker::kWarp) {
      warp_arrive(c.barrier<Barrier::kGrantEmpty>(slot));
    } else {
      ptx::mbarrier_arrive(c.barrier<Barrier::kGrantEmpty>(slot));
    }
    batch = -1;
    if (grant.granted) load(int32_t(grant.cta_x));
  }
};

// ---- scheduler: one thread ----
//
// Asks for one more tile when the loads of the last one in hand begin: early enough that the answer is there
// when it is needed, late enough that nobody hoards work.  Never again after a refusal, which may be spurious
// (PTX ISA 9.7.13.17: undefined).
MXFA_DEVICE void schedule(const Context& c) {
  if constexpr (kLaunchControl) {
    for (uint32_t grants = 0;; ++grants) {
      const uint32_t slot = grants % kGrantSlots, phase = grants / kGrantSlots % 2;
      ptx::mbarrier_wait(c.barrier<Barrier::kLastTile>(0), grants % 2);
      ptx::mbarrier_wait(c.barrier<Barrier::kGrantEmpty>(slot), phase ^ 1);
      ptx::mbarrier_arrive_expect_tx(c.barrier<Barrier::kGrantFull>(slot), kGrantBytes);
      ptx::launch_try_cancel(c.address<Smem::kGrant>(slot), c.barrier<Barrier::kGrantFull>(slot));
      ptx::mbarrier_wait(c.barrier<Barrier::kGrantFull>(slot), phase);
      if (!ptx::launch_query(c.address<Smem::kGrant>(slot)).granted) return;
      ptx::fence_proxy_async_shared_cta();  // our read, before the next answer comes into the slot
    }
  }
}

}  // namespace mxfa::attention_fwd_sm100
