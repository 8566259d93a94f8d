// The order of a tile list, for L2: tiles of one (sequence, head) pair share operands, and those that run at
// the same time should find them there.  A list that is ordered by cost alone runs one tile of every pair
// first, under a causal mask of all of them at once.
#pragma once

#include <cstdint>
#include <vector>

namespace mxfa {

// One (sequence, head) pair.
struct PairWork {
  int64_t bytes = 0;    // that its tiles share
  double heaviest = 0;  // cost of its heaviest tile
  int64_t tiles = 0;
};

// The group of every pair: groups are numbered in the order in which they run, heaviest tile first, and hold
// as many pairs as fit in `budget` bytes together.  The last one holds the smallest pairs and at least
// `last_tiles` tiles, whatever their bytes: ordered heaviest first, they even out the end of the launch.
std::vector<int32_t> group_pairs(const std::vector<PairWork>& pairs, int64_t budget, int64_t last_tiles);

}  // namespace mxfa
