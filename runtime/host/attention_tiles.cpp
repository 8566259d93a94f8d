#include "host/attention_tiles.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "host/attention_l2_groups.hpp"

namespace mxfa {
namespace {

struct CostedTile {
  RowTile tile;
  double cost;
  int32_t pair;  // (sequence, head), in the order of the list
};

// Of L2, for the keys and values of a group of pairs (measured, docs/hopper.md); rounds of tiles that even
// out the end of the launch.
constexpr double kL2Share = 0.1;
constexpr int64_t kLastRounds = 3;

int32_t blocks_of(int64_t keys, int32_t tile_n) { return int32_t((keys + tile_n - 1) / tile_n); }

double cost_of(int32_t units, int32_t blocks) { return blocks * kUnitCost[units] + kTileCost; }

// The list with `two_unit_share` of the (sequence, head) pairs cut into tiles of two units, heaviest first.
std::vector<CostedTile> list_row_tiles(const RowTileProblem& p, double two_unit_share) {
  std::vector<CostedTile> tiles;
  std::vector<PairWork> work;
  for (int32_t b = 0; b < p.k->batch(); ++b) {
    const int32_t q_length = p.q->length(p.broadcast_q ? 0 : b), k_length = p.k->length(b);
    const int32_t units = units_of(q_length);
    if (units == 0) continue;
    const int32_t blocks = blocks_of(k_length, p.tile_n);
    const std::vector<int32_t> widest = split_units(units, p.max_units, blocks);
    const std::vector<int32_t> pairs = split_units(units, std::min(p.max_units, 2), blocks);
    for (int32_t head = 0; head < p.heads; ++head) {
      // Multiples of the golden ratio spread the chosen pairs evenly over the batch.
      const double place = std::fmod((double(b) * p.heads + head) * 0.6180339887498949, 1.0);
      int32_t row = 0;
      PairWork pair{p.row_bytes * k_length, 0, 0};
      for (const int32_t part : place < two_unit_share ? pairs : widest) {
        const int32_t rows = part * kUnitRows;
        const int32_t visible = visible_blocks(p, q_length, k_length, row, int64_t{row} + rows);
        tiles.push_back({{b, head, row, rows}, cost_of(part, visible), int32_t(work.size())});
        pair.heaviest = std::max(pair.heaviest, tiles.back().cost);
        ++pair.tiles;
        row += rows;
      }
      work.push_back(pair);
    }
  }
  // Without a mask the tiles of a pair cost the same and are neighbours anyway; one list then has the narrow
  // tiles, which even out the end, at its end.
  const bool masked = p.window_left >= 0 || p.window_right >= 0;
  const std::vector<int32_t> groups =
      masked ? group_pairs(work, int64_t(double(p.l2_bytes) * kL2Share), kLastRounds * p.multiprocessors)
             : std::vector<int32_t>(work.size(), 0);
  // Costs within half a block are equal: neighbours then share keys and values in L2.
  std::sort(tiles.begin(), tiles.end(), [&](const CostedTile& x, const CostedTile& y) {
    const auto key = [&](const CostedTile& t) {
      return std::array<int64_t, 5>{groups[t.pair], -std::llround(t.cost), t.tile.batch, t.tile.head,
                                    t.tile.first_row};
    };
    return key(x) < key(y);
  });
  return tiles;
}

// At most this many tiles; the kernel adds the grid to the number of the last one.
void check_count(const RowTileProblem& p) {
  int64_t units = 0;
  for (int32_t b = 0; b < p.k->batch(); ++b) units += units_of(p.q->length(p.broadcast_q ? 0 : b));
  const int64_t limit = INT32_MAX - int64_t{p.multiprocessors};
  // As if every tile had one unit: the cut never makes more.
  if (units > limit / p.heads)
    invalid("offsets_q: {} runs of {} rows times {} heads; the limit of a launch is {} tiles", units,
            kUnitRows, p.heads, limit);
}

}  // namespace

int32_t visible_blocks(const RowTileProblem& p, int64_t q_length, int64_t k_length, int64_t first_row,
                       int64_t end_row) {
  int64_t end = k_length;
  if (p.window_right >= 0)
    end = std::min(end,
                   std::max<int64_t>(std::min(end_row, q_length) + k_length - q_length + p.window_right, 0));
  int64_t begin = 0;
  if (p.window_left >= 0) begin = std::max<int64_t>(first_row + k_length - q_length - p.window_left, 0);
  return int32_t(std::max<int64_t>(blocks_of(end, p.tile_n) - begin / p.tile_n, 0));
}

std::vector<int32_t> split_units(int32_t units, int32_t max_units, int32_t blocks) {
  // Wide tiles first; the last few units are cut in the best way there is.  Without keys a tile still costs.
  std::vector<int32_t> parts;
  for (; units > 3 * max_units; units -= max_units) parts.push_back(max_units);
  const int32_t counted = std::max(blocks, 1);
  std::vector<double> best(units + 1, 0.0);
  std::vector<int32_t> first(units + 1, 0);
  for (int32_t n = 1; n <= units; ++n)
    for (int32_t part = 1; part <= std::min(n, max_units); ++part) {
      const double cost = cost_of(part, counted) + best[n - part];
      if (part == 1 || cost < best[n]) best[n] = cost, first[n] = part;
    }
  const auto last = parts.size();
  for (int32_t n = units; n > 0; n -= first[n]) parts.push_back(first[n]);
  std::sort(parts.begin() + last, parts.end(), std::greater<>());
  return parts;
}

double greedy_makespan(const std::vector<double>& costs, int32_t workers) {
  std::vector<double> busy_until(std::max(workers, 1), 0.0);  // a min-heap
  for (const double cost : costs) {
    std::pop_heap(busy_until.begin(), busy_until.end(), std::greater<>());
    busy_until.back() += cost;
    std::push_heap(busy_until.begin(), busy_until.end(), std::greater<>());
  }
  return *std::max_element(busy_until.begin(), busy_until.end());
}

RowTilePlan plan_row_tiles(const RowTileProblem& problem) {
  check_count(problem);
  RowTilePlan best;
  const auto attempt = [&](double two_unit_share) {
    const std::vector<CostedTile> tiles = list_row_tiles(problem, two_unit_share);
    std::vector<double> costs(tiles.size());
    std::transform(tiles.begin(), tiles.end(), costs.begin(), [](const CostedTile& t) { return t.cost; });
    const double makespan = greedy_makespan(costs, problem.multiprocessors);
    if (!best.tiles.empty() && makespan >= best.makespan) return;
    best.tiles.resize(tiles.size());
    std::transform(tiles.begin(), tiles.end(), best.tiles.begin(),
                   [](const CostedTile& t) { return t.tile; });
    best.makespan = makespan;
    best.mean = std::accumulate(costs.begin(), costs.end(), 0.0) / problem.multiprocessors;
    best.two_unit_share = two_unit_share;
  };
  attempt(0);
  // Tiles of two units cost more a row, but fill the last round better.  With hundreds of tiles an SM there
  // is nothing to fill.  The coefficients of two units were measured against tiles of three.
  constexpr size_t kEnoughTiles = 256;
  if (problem.max_units == 3 && best.tiles.size() <= kEnoughTiles * problem.multiprocessors)
    for (const double share : {0.1, 0.2, 0.35, 0.5, 0.75, 1.0}) attempt(share);
  return best;
}

}  // namespace mxfa
