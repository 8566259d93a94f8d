// Schedules of attention_fwd_sm100: which CTA computes which tile of 256 query rows (packed: 256 / h queries
// of h heads), and in which order.  CTAs are persistent, one an SM; each takes entries blockIdx.x, + grid,
// ... of the list, so the plan decides everything, but for what cluster launch control hands out at run time.
// For attention_fwd_sm100_pair a CTA here is a pair, with tiles of 512 rows.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "host/plan.hpp"

namespace mxfa {

// Values of kernel.scheduler.
enum class Scheduler : int32_t {
  kAutomatic = 0,  // kStatic when all tiles cost the same; with a mask kLpt, or kClc for many tiles a CTA;
                   // else kZigzag
  kStatic = 1,     // tiles dealt out in the order sequence, head, rows
  kZigzag = 2,     // heaviest first, dealt out forwards and backwards in turn
  kLpt = 3,        // longest processing time: heaviest first, each to the CTA with the least work
  kClc = 4         // kLpt for the heavier tiles; the rest one by one to whoever is free
};
inline constexpr std::array<Scheduler, 4> kSchedulers = {Scheduler::kStatic, Scheduler::kZigzag,
                                                         Scheduler::kLpt, Scheduler::kClc};
const char* scheduler_name(Scheduler scheduler);

struct ScheduleProblem {
  const Sequences* q;  // one sequence with broadcast_q
  const Sequences* k;
  int32_t heads_q, heads_kv;
  int64_t key_bytes;  // of a key and its value, one head
  bool broadcast_q;
  int32_t window_left, window_right;  // as the kernel takes them; -1 unbounded
  int32_t max_ctas;                   // one an SM, or fewer; pairs of them count once
  int64_t l2_bytes;
  int32_t stage_rows = 128;  // of a tile's two stages; 256 where a pair of CTAs shares one
  int32_t packed_heads = 1;  // query heads of a group that share a tile; 1, or heads_q / heads_kv
};

// Blocks of 128 keys that the two stages of a tile walk; the kernel's Tile::blocks.
struct StageBlocks {
  int64_t first[2], end[2];  // empty: both 0
  int64_t count(int stage) const { return end[stage] - first[stage]; }
};
StageBlocks stage_blocks(const ScheduleProblem& problem, int32_t batch, int32_t first_row);

// Estimated time of a tile, in blocks of keys that both stages share.  Estimates, not measured: a block of
// one stage has nothing to hide its softmax behind, and a tile costs its start and end.
inline constexpr double kOneStageBlockCost = 0.75, kScheduledTileCost = 0.5;
double tile_cost(const StageBlocks& blocks);

// int32[4] of the kernel's tile list; batch -1: nothing, and nothing after it for this CTA.  following
// (kClc): the entry that the same CTA takes next, 0: none.
struct ScheduledTile {
  int32_t batch, head, first_row, following;
};
static_assert(sizeof(ScheduledTile) == 16);

struct Schedule {
  Scheduler scheduler;
  uint32_t grid = 0, tile_count = 0;  // CTAs; tiles of the problem
  // A multiple of grid, and slot i belongs to CTA i % grid.  kClc: slot c < grid is the first of CTA c, the
  // others follow one; CTAs from the number of SMs on have a single tile and wait to be taken over.
  std::vector<ScheduledTile> slots;
  std::vector<double> work;  // of each SM, by tile_cost; kClc: if each tile takes as long as it says
};

// kClc: what is left to run time, as a share of the work, and the tiles a CTA from which on the plan takes it
// for a masked problem by itself.  Estimates: enough to even out SMs that differ by a quarter.
inline constexpr double kDynamicShare = 0.25;
inline constexpr int32_t kDynamicTiles = 8;

// Work of all tiles together, by tile_cost.
double total_cost(const ScheduleProblem& problem);

// Every 2 stages of rows of every sequence that has queries exactly once.  Throws mxfa::Error where the list
// would be too long for the kernel's 32-bit numbers.
Schedule schedule_tiles(const ScheduleProblem& problem, Scheduler scheduler);

}  // namespace mxfa
