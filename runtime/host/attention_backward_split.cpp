#include "host/attention_backward_split.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "host/attention_l2_groups.hpp"

namespace mxfa {
namespace {

// In blocks of keys of a full tile.  Predicted, not measured: a warpgroup alone has nothing to hide its
// arithmetic behind; a tile costs its first loads, scores without products of dQ beside them, and its store;
// a sequence of a run the scores and the last dQ.
constexpr double kOneUnitCost = 0.65, kDqTileCost = 1.0, kRunSequenceCost = 0.5;
// Of L2, for the keys and values of a group of pairs, and rounds of tiles that even out the end: as in the
// forward, which walks keys in the same way.
constexpr double kL2Share = 0.1;
constexpr int64_t kLastRounds = 3;
// A partial sum is written and read, FP32, at the bandwidth of memory: bytes a clock and SM of an H200.
constexpr double kMemoryBytesAClock = 19;

struct CostedTile {
  RowTile tile;
  double cost;
  int32_t pair;  // (sequence or run, head)
};

double unit_cost(int32_t units, int32_t max_units) {
  return units == max_units ? 1.0
                            : kOneUnitCost + (1.0 - kOneUnitCost) * (units - 1) / std::max(max_units - 1, 1);
}

DqTilePlan ordered(std::vector<CostedTile> tiles, const std::vector<int32_t>& groups, int32_t workers) {
  std::stable_sort(tiles.begin(), tiles.end(), [&](const CostedTile& x, const CostedTile& y) {
    if (groups[x.pair] != groups[y.pair]) return groups[x.pair] < groups[y.pair];
    return std::llround(x.cost) > std::llround(y.cost);
  });
  DqTilePlan plan;
  std::vector<double> costs;
  for (const CostedTile& t : tiles) plan.tiles.push_back(t.tile), costs.push_back(t.cost);
  plan.makespan = greedy_makespan(costs, workers);
  return plan;
}

DqTilePlan list_sequences(const RowTileProblem& p) {
  std::vector<CostedTile> tiles;
  std::vector<PairWork> pairs;
  const int32_t tile_rows = p.max_units * kUnitRows;
  for (int32_t b = 0; b < p.k->batch(); ++b) {
    const int32_t q_length = p.q->length(b), k_length = p.k->length(b);
    for (int32_t head = 0; q_length > 0 && head < p.heads; ++head) {
      PairWork pair{p.row_bytes * k_length, 0, 0};
      for (int64_t row = 0; row < q_length; row += tile_rows) {
        const int32_t units =
            int32_t(std::min<int64_t>((q_length - row + kUnitRows - 1) / kUnitRows, p.max_units));
        const int32_t blocks = visible_blocks(p, q_length, k_length, row, row + units * kUnitRows);
        tiles.push_back({{b, head, int32_t(row), units * kUnitRows},
                         blocks * unit_cost(units, p.max_units) + kDqTileCost,
                         int32_t(pairs.size())});
        pair.heaviest = std::max(pair.heaviest, tiles.back().cost);
        ++pair.tiles;
      }
      pairs.push_back(pair);
    }
  }
  return ordered(std::move(tiles),
                 group_pairs(pairs, int64_t(double(p.l2_bytes) * kL2Share), kLastRounds * p.multiprocessors),
                 p.multiprocessors);
}

// Broadcast Q, the batch in `count` runs of about equal work.
DqTilePlan list_runs(const RowTileProblem& p, int32_t head_dim, int32_t count) {
  const int32_t q_length = p.q->length(0), batch = p.k->batch(), tile_rows = p.max_units * kUnitRows;
  std::vector<double> until(batch + 1, 0.0);  // work of the sequences before
  for (int32_t b = 0; b < batch; ++b) {
    const int32_t blocks = visible_blocks(p, q_length, p.k->length(b), 0, q_length);
    until[b + 1] = until[b] + blocks + kRunSequenceCost;
  }
  std::vector<int32_t> runs{0};
  for (int32_t run = 1; run < count; ++run) {
    const double share = until[batch] * run / count;
    const auto at = int32_t(std::lower_bound(until.begin(), until.end(), share) - until.begin());
    runs.push_back(std::clamp(at, runs.back() + 1, batch - (count - run)));
  }
  runs.push_back(batch);
  const double partial = 2.0 * 4 * head_dim * tile_rows / kMemoryBytesAClock /
                         (6.0 * tile_rows * p.tile_n * head_dim / 4096);  // three products of a block
  std::vector<CostedTile> tiles;
  for (int32_t run = 0; run < count; ++run)
    for (int32_t head = 0; head < p.heads; ++head)
      for (int64_t row = 0; row < q_length; row += tile_rows) {
        const int32_t units =
            int32_t(std::min<int64_t>((q_length - row + kUnitRows - 1) / kUnitRows, p.max_units));
        double blocks = 0;
        for (int32_t b = runs[run]; b < runs[run + 1]; ++b)
          blocks += visible_blocks(p, q_length, p.k->length(b), row, row + units * kUnitRows) *
                        unit_cost(units, p.max_units) +
                    kRunSequenceCost;
        tiles.push_back({{run, head, int32_t(row), units * kUnitRows}, blocks + kDqTileCost + partial, 0});
      }
  DqTilePlan plan = ordered(std::move(tiles), {0}, p.multiprocessors);
  plan.runs = std::move(runs);
  return plan;
}

// SM clocks of a step of the one kernel (its tile of query rows by 128 keys; with turns), of the same without
// dQ, and of 128 x 128 of the dQ kernel: the times of the kernels on an H200 for 2 x 8192 tokens, 16 heads,
// without a mask (docs/hopper.md), by the steps of the busiest SM, at 1.637 GHz.  The steps of 80 rows, and
// at head_dim 64 those of the one kernel and those without dQ, follow from the ratio of whole backwards
// measured in one run.
struct Coefficients {
  double step, step_with_turns, step_without_dq, dq_block;
};
Coefficients coefficients_of(int32_t head_dim, int32_t key_rows) {
  if (head_dim == 64) return {3270, 4820, 2170, 2370};
  if (head_dim == 96) return {key_rows == 80 ? 3300.0 : 2740.0, 4070, 1950, 2750};
  return {key_rows == 80 ? 3680.0 : 3140.0, 4790, 2630, 3120};
}
// Tiles under a causal mask start apart and wait longer for their turns: measured, 1.8 (D = 128) and 1.5 (64)
// times as long as without a mask.
constexpr double kTurnsUnderMask = 1.5;
// Zeroing and reading back the one kernel's accumulators, FP32: measured, 95 us for 268 MB, all SMs together.
constexpr double kAccumulatorBytesAClock = 13;

}  // namespace

DqTilePlan plan_dq_tiles(const RowTileProblem& p, int32_t head_dim) {
  if (!p.broadcast_q) return list_sequences(p);
  const int32_t q_length = p.q->length(0), tile_rows = p.max_units * kUnitRows;
  const int64_t tiles = int64_t{p.heads} * ((int64_t{q_length} + tile_rows - 1) / tile_rows);
  DqTilePlan best;
  if (tiles == 0 || p.k->batch() == 0) return best;
  // One round of tiles to eight: more even, but every run leaves a partial sum.
  int32_t last = 0;
  for (int32_t rounds = 1; rounds <= 8; ++rounds) {
    const auto count =
        int32_t(std::clamp<int64_t>(int64_t{rounds} * p.multiprocessors / tiles, 1, p.k->batch()));
    if (count == last) continue;
    last = count;
    DqTilePlan plan = list_runs(p, head_dim, count);
    if (best.tiles.empty() || plan.makespan < best.makespan) best = std::move(plan);
  }
  return best;
}

BackwardCosts estimate_backward(const BackwardWork& work) {
  const Coefficients c = coefficients_of(work.head_dim, work.key_rows);
  const double accumulators =
      work.row_heads * work.head_dim * 8 / kAccumulatorBytesAClock / work.multiprocessors;
  const double turns = work.right_mask ? kTurnsUnderMask : 1.0;
  const double block = double(work.dq_rows) * work.dq_keys / (128.0 * 128.0);
  return {work.key_steps * (work.deterministic ? c.step_with_turns * turns : c.step) + accumulators,
          work.key_steps_without * c.step_without_dq + work.dq_blocks * block * c.dq_block};
}

}  // namespace mxfa
