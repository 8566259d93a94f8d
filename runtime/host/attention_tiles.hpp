// Tiles of attention_fwd_sm90: which CTA computes which query rows, for the shortest time on all SMs.
//
// A sequence is cut into runs of up to tile_rows/64 units of 64 query rows.  CTAs take tiles in the order of
// the list, the first free CTA the next tile, so the list is ordered heaviest first (under a mask within
// groups that share keys and values in L2, attention_l2_groups.hpp), and the end of the launch is as even as
// the model below can make it.
#pragma once

#include <vector>

#include "host/plan.hpp"

namespace mxfa {

// int32[4] of the kernel's tile list.
struct RowTile {
  int32_t batch, head;
  int32_t first_row, rows;  // rows a multiple of 64; the last tile of a sequence may reach past its end
};
static_assert(sizeof(RowTile) == 16);
inline constexpr int32_t kUnitRows = 64;  // query rows of a warpgroup
inline int32_t units_of(int32_t q_length) { return int32_t((int64_t{q_length} + kUnitRows - 1) / kUnitRows); }

// The cost model, in units of one block of keys under a tile of three warpgroups.  Measured on an H200 (BF16,
// D = 64 and 128, two to twenty blocks a tile); only ratios matter.
inline constexpr double kUnitCost[5] = {0, 0.78, 0.75, 1.0, 1.3};  // of a block, by units of the tile
inline constexpr double kTileCost = 1.5;                           // of a tile, for its start and its end

struct RowTileProblem {
  const Sequences* q;  // one sequence with broadcast_q
  const Sequences* k;
  int32_t heads;
  bool broadcast_q;
  int32_t window_left, window_right;  // as the kernel takes them; -1 unbounded
  int32_t tile_n;                     // keys of a block
  int32_t max_units;                  // warpgroups, 1 to 4
  int32_t multiprocessors;
  int64_t row_bytes;  // of K and V, of one key and query head
  int64_t l2_bytes;
};

struct RowTilePlan {
  std::vector<RowTile> tiles;
  double makespan = 0, mean = 0;  // of the SMs, in the model's units
  double two_unit_share = 0;      // of (sequence, head) pairs that were cut into tiles of two units
};

// Every unit of every sequence that has queries exactly once, keys or not: the kernel writes the zeros of a
// sequence without keys.  Throws mxfa::Error where the list would be too long for the kernel's 32-bit
// numbers.
RowTilePlan plan_row_tiles(const RowTileProblem& problem);

// Blocks of keys that some row from first_row up to end_row sees; the kernel walks exactly these.
int32_t visible_blocks(const RowTileProblem& problem, int64_t q_length, int64_t k_length, int64_t first_row,
                       int64_t end_row);

// Units of the tiles of a sequence of `units`, each at most max_units, with the smallest cost for `blocks`
// blocks of keys a tile.  Non-increasing.
std::vector<int32_t> split_units(int32_t units, int32_t max_units, int32_t blocks);

// Time of the busiest of `workers` when the first free one takes the next cost.
double greedy_makespan(const std::vector<double>& costs, int32_t workers);

}  // namespace mxfa
