#include "host/attention_backward_tiles.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "host/attention_l2_groups.hpp"
#include "host/attention_tiles.hpp"

namespace mxfa {
namespace {

// In steps of a tile of 128 keys.  A step of 64 keys has half the products, but waits as often as any; the
// start of a tile (the first K, V, Q and dO) and its end (dK, dV) take about two steps.
constexpr double kHalfStepCost = 0.7, kKeyTileCost = 2.0;

// Of L2, for the queries and dQ of a group of pairs (measured, docs/hopper.md; with turns a group must have
// tiles of several heads).  Rounds of tiles that even out the end of the launch.
constexpr double kL2Share = 0.1, kL2ShareWithTurns = 0.5;
constexpr int64_t kLastRounds = 3;

struct CostedTile {
  KeyTile tile;
  double cost;
  double weight = 0;  // by which it is ordered
  int32_t pair = 0;   // (sequence, head), in the order of the list
};

// Tiles that differ by less than this factor count as equal, so that they stay neighbours.
int64_t weight_class(double cost) { return std::llround(4 * std::log2(cost)); }

void check_count(const KeyTileProblem& p) {
  int64_t count = 0;
  for (int32_t b = 0; b < p.k->batch(); ++b) count += (int64_t{p.k->length(b)} + 127) / 128;
  // The kernel adds the grid to the number of the last tile.
  const int64_t limit = INT32_MAX - int64_t{p.multiprocessors};
  if (count > limit / p.heads_kv)
    invalid("offsets_k: {} tiles of 128 keys times {} heads; the limit of a launch is {}", count, p.heads_kv,
            limit);
}

void rank_tiles(const KeyTileProblem& p, std::vector<KeyTile>& tiles) {
  constexpr int32_t kMostRanks = INT32_MAX / 256;
  std::vector<int32_t> next(p.heads_kv, 0);
  for (KeyTile& tile : tiles) {
    // In the order of their keys, a tile's rank in its sequence is its number.
    const int32_t rank = p.broadcast_q ? next[tile.head_kv]++ : tile.first_key / 128;
    if (rank >= kMostRanks)
      invalid("deterministic: a head has more than {} tiles of 128 keys that add to one dQ", kMostRanks);
    tile.keys_and_mark += 256 * rank;
  }
}

}  // namespace

int32_t visible_query_tiles(const KeyTileProblem& p, const KeyTile& tile) {
  const int64_t q_length = p.q->length(p.broadcast_q ? 0 : tile.batch), k_length = p.k->length(tile.batch);
  const int64_t shift = k_length - q_length;
  int64_t begin = 0, end = q_length;
  if (p.window_right >= 0) begin = std::max<int64_t>(tile.first_key - shift - p.window_right, 0);
  if (p.window_left >= 0)
    end = std::min(end, std::max<int64_t>(std::min<int64_t>(int64_t{tile.first_key} + tile.keys(), k_length) -
                                              shift + p.window_left,
                                          0));
  const int64_t tiles = (end + p.tile_rows - 1) / p.tile_rows - begin / p.tile_rows;
  return int32_t(std::max<int64_t>(tiles, 0));
}

KeyTilePlan plan_key_tiles(const KeyTileProblem& p) {
  check_count(p);
  std::vector<CostedTile> tiles;
  std::vector<PairWork> pairs;
  const int32_t ratio = p.heads_q / p.heads_kv;
  for (int32_t b = 0; b < p.k->batch(); ++b) {
    const int32_t length = p.k->length(b);
    for (int32_t head = 0; head < p.heads_kv; ++head) {
      const size_t first = tiles.size();
      for (int64_t key = 0; key < length; key += 128) {
        const KeyTile tile{b, head, int32_t(key), length - key <= 64 ? 64 : 128};
        const double steps = double(visible_query_tiles(p, tile)) * ratio;
        tiles.push_back({tile, steps * (tile.keys() == 64 ? kHalfStepCost : 1.0) + kKeyTileCost});
        tiles.back().weight = tiles.back().cost;
        tiles.back().pair = int32_t(pairs.size());
      }
      if (tiles.size() == first) continue;
      // A later tile must not come first: it counts as no heavier than the ones before it.
      if (p.deterministic)
        for (size_t i = tiles.size(); i-- > first + 1;)
          tiles[i - 1].weight = std::max(tiles[i - 1].weight, tiles[i].weight);
      PairWork pair{p.row_bytes * ratio * p.q->length(p.broadcast_q ? 0 : b), 0,
                    int64_t(tiles.size() - first)};
      for (size_t i = first; i < tiles.size(); ++i) pair.heaviest = std::max(pair.heaviest, tiles[i].weight);
      pairs.push_back(pair);
    }
  }
  const std::vector<int32_t> groups =
      group_pairs(pairs, int64_t(double(p.l2_bytes) * (p.deterministic ? kL2ShareWithTurns : kL2Share)),
                  kLastRounds * p.multiprocessors);
  // Stable: equal tiles keep their neighbours.
  std::stable_sort(tiles.begin(), tiles.end(), [&](const CostedTile& x, const CostedTile& y) {
    if (groups[x.pair] != groups[y.pair]) return groups[x.pair] < groups[y.pair];
    const int64_t weight_x = weight_class(x.weight), weight_y = weight_class(y.weight);
    if (weight_x != weight_y || !p.deterministic) return weight_x > weight_y;
    return x.tile.first_key < y.tile.first_key;
  });
  KeyTilePlan plan;
  std::vector<double> costs;
  for (const CostedTile& t : tiles) plan.tiles.push_back(t.tile), costs.push_back(t.cost);
  if (p.deterministic) rank_tiles(p, plan.tiles);
  plan.makespan = greedy_makespan(costs, p.multiprocessors);
  plan.mean = std::accumulate(costs.begin(), costs.end(), 0.0) / p.multiprocessors;
  return plan;
}

QueryTilePlan plan_query_tiles(const QueryTileProblem& p, std::vector<KeyTile>& keys) {
  QueryTilePlan plan;
  const auto tiles_of = [&](int32_t b) {
    return (int64_t{p.q->length(p.broadcast_q ? 0 : b)} + p.rows - 1) / p.rows;
  };
  std::vector<int64_t> first(p.batch, -1);  // of a sequence, all heads counted
  const auto list = [&](int32_t b) {
    first[b] = int64_t(plan.tiles.size()) * p.heads_q;
    for (int64_t tile = 0; tile < tiles_of(b); ++tile) plan.tiles.push_back({b, int32_t(tile)});
  };
  std::vector<bool> has_keys(p.batch, false);
  for (const KeyTile& key : keys) has_keys[key.batch] = true;
  for (int32_t b = 0; b < p.batch; ++b)
    if (!has_keys[b]) list(b);
  plan.prepared_first = int64_t(plan.tiles.size()) * p.heads_q;
  for (const KeyTile& key : keys)
    if (first[key.batch] < 0) list(key.batch);
  const auto pair_end = [&](const KeyTile& key) {
    return first[key.batch] + (key.head_kv + 1) * (p.heads_q / p.heads_kv) * tiles_of(key.batch);
  };
  for (int64_t i = 0; i < std::min<int64_t>(p.first_tiles, keys.size()); ++i)
    plan.prepared_first = std::max(plan.prepared_first, pair_end(keys[i]));
  const int64_t all = int64_t(plan.tiles.size()) * p.heads_q;
  // prepare also resets what the main kernel counts: it must have something to do.
  if (plan.prepared_first == 0 || p.first_tiles >= int64_t(keys.size())) plan.prepared_first = all;
  for (KeyTile& key : keys)
    if (pair_end(key) > plan.prepared_first) key.keys_and_mark += 256;
  return plan;
}

bool are_short(std::initializer_list<int64_t> numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [](int64_t n) { return n >= 0 && n <= UINT32_MAX; });
}

std::vector<abi::BackwardRowTile> list_row_tiles(const RowListProblem& p) {
  std::vector<int32_t> additions(p.pairs, 0);
  for (const KeyTile& key : p.keys) additions[key.batch * p.heads_kv + key.head_kv] += p.compute_warps;
  std::vector<abi::BackwardRowTile> list;
  list.reserve(p.queries.size() * p.heads_q);
  for (size_t first = 0, count; first < p.queries.size(); first += count) {
    const int32_t b = p.queries[first].batch, of_q = p.broadcast_q ? 0 : b;
    const int32_t length = p.q.length(of_q), start = p.q.offsets[of_q];
    count = (length + p.rows - 1) / p.rows;
    const int32_t row = p.broadcast_q ? b * length : start,
                  statistics = p.broadcast_q ? b * int32_t(count) : start / p.rows + b,
                  unit = start / kDqUnitRows + of_q;
    for (int32_t head = 0; head < p.heads_q; ++head)
      for (int32_t m = 0; m < int32_t(count); ++m) {
        const int32_t pair = b * p.heads_kv + head / (p.heads_q / p.heads_kv);
        list.push_back({.row = row + p.rows * m,
                        .left = length - p.rows * m,
                        .statistics = head * p.stat_tiles + statistics + m,
                        .unit = head * p.dq_units + unit + p.rows / kDqUnitRows * m,
                        .head = head,
                        .pair = pair,
                        .additions = additions[pair]});
      }
  }
  return list;
}

bool walks_are_short(const mxfa_plan& plan) {
  constexpr int64_t kRows = 512, kTileKeys = 128;
  const bool broadcast = plan.attention.broadcast_q != 0;
  if (plan.k.capacity)
    return int64_t{plan.q.longest()} * (plan.attention.heads_q / plan.attention.heads_kv) < kRows;
  int64_t tiles = 0, rows = 0;
  for (int32_t b = 0; b < plan.k.batch(); ++b) {
    const int64_t of_sequence = (plan.k.length(b) + kTileKeys - 1) / kTileKeys;
    tiles += of_sequence;
    rows += of_sequence * plan.q.length(broadcast ? 0 : b);
  }
  return rows * (plan.attention.heads_q / plan.attention.heads_kv) < kRows * tiles;
}

}  // namespace mxfa
