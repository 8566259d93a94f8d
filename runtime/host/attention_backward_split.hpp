// The split pair of the Hopper backward, attention_bwd_dq_sm90 and attention_bwd_sm90 without dQ: its tiles
// of query rows, and when it is taken instead of the one kernel (docs/hopper.md).
#pragma once

#include <vector>

#include "host/attention_tiles.hpp"

namespace mxfa {

// Values of kernel.method.
enum class BackwardMethod : int32_t { kAutomatic = 0, kOneKernel = 1, kSplit = 2 };

struct DqTilePlan {
  // Heaviest first within groups of (sequence, head) pairs whose keys and values fit in L2.  With broadcast_q
  // RowTile::batch is a run.
  std::vector<RowTile> tiles;
  // With broadcast_q: sequences runs[i] .. runs[i + 1] - 1 are run i.  A tile walks them all and leaves one
  // partial sum of dQ.
  std::vector<int32_t> runs;
  double makespan = 0;  // of the SMs, in blocks of keys of a full tile
  int32_t run_count() const { return runs.empty() ? 0 : int32_t(runs.size()) - 1; }
};

// Every row of every sequence that has queries exactly once, with broadcast_q once for each run.  max_units
// of the problem: warpgroups of the kernel.
DqTilePlan plan_dq_tiles(const RowTileProblem& problem, int32_t head_dim);

// What the two ways are estimated to take, in SM clocks.
struct BackwardCosts {
  double one_kernel = 0, split = 0;
};
struct BackwardWork {
  int32_t head_dim;
  bool deterministic, right_mask;
  int32_t key_rows;          // query rows of a step of the one kernel
  double key_steps;          // makespan of the one kernel's list (attention_backward_tiles.hpp)
  double key_steps_without;  // of the list without dQ
  double dq_blocks;          // makespan of DqTilePlan ...
  int32_t dq_rows, dq_keys;  // ... in blocks of these
  double row_heads;          // query rows times heads, for the FP32 accumulators
  int32_t multiprocessors;
};
BackwardCosts estimate_backward(const BackwardWork& work);

}  // namespace mxfa
