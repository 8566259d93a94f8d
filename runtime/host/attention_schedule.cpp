#include "host/attention_schedule.hpp"

#include <algorithm>
#include <queue>

namespace mxfa {
namespace {

constexpr int32_t kBlockKeys = 128;

// Queries that a stage, and a tile of two, takes of a sequence; heads that tiles are made for.
int32_t stage_queries(const ScheduleProblem& p) { return p.stage_rows / p.packed_heads; }
int32_t tile_queries(const ScheduleProblem& p) { return 2 * stage_queries(p); }
int32_t tile_heads(const ScheduleProblem& p) { return p.heads_q / p.packed_heads; }

struct CostedTile {
  ScheduledTile tile;
  double cost;
  int32_t section = 0;  // tiles of a section share keys and values that fit in L2 together
};

int32_t q_length(const ScheduleProblem& p, int32_t batch) { return p.q->length(p.broadcast_q ? 0 : batch); }

// In the order sequence, head, rows: neighbours share keys and values.
std::vector<CostedTile> list_tiles(const ScheduleProblem& p) {
  int64_t count = 0;
  const int32_t rows = tile_queries(p), heads = tile_heads(p);
  for (int32_t b = 0; b < p.k->batch(); ++b) count += (int64_t{q_length(p, b)} + rows - 1) / rows;
  const int64_t limit = INT32_MAX - int64_t{p.max_ctas};
  if (count > limit / heads)
    invalid("offsets_q: {} tiles of {} rows times {} heads; the limit of a launch is {}", count, rows, heads,
            limit);
  std::vector<CostedTile> tiles;
  tiles.reserve(size_t(count * heads));
  std::vector<double> costs;
  for (int32_t b = 0; b < p.k->batch(); ++b) {
    costs.clear();
    for (int64_t row = 0; row < q_length(p, b); row += rows)
      costs.push_back(tile_cost(stage_blocks(p, b, int32_t(row))));
    for (int32_t head = 0; head < heads; ++head)
      for (size_t i = 0; i < costs.size(); ++i) tiles.push_back({{b, head, int32_t(i) * rows, 0}, costs[i]});
  }
  return tiles;
}

void sort_heaviest_first(std::vector<CostedTile>& tiles) {
  // Stable: equal tiles keep their neighbours.
  std::stable_sort(tiles.begin(), tiles.end(),
                   [](const CostedTile& x, const CostedTile& y) { return x.cost > y.cost; });
}

// Cuts the list, which is in the order sequence, head, into `sections` runs of heads with about the same
// number of bytes of keys and values, and puts the runs with the heaviest tile first: the last ones then have
// the small tiles that even out the end.
void sort_by_section(const ScheduleProblem& p, int64_t sections, int64_t bytes,
                     std::vector<CostedTile>& tiles) {
  const int32_t group = tile_heads(p) / p.heads_kv;
  std::vector<double> heaviest(size_t(sections), 0.0);
  int64_t before = 0, next = 0;
  int32_t batch = -1, head_kv = -1;
  for (CostedTile& t : tiles) {
    if (t.tile.batch != batch || t.tile.head / group != head_kv) {
      batch = t.tile.batch, head_kv = t.tile.head / group;
      before = next, next += p.key_bytes * p.k->length(batch);
    }
    t.section = int32_t(std::min(
        int64_t(double(before) / double(std::max<int64_t>(bytes, 1)) * double(sections)), sections - 1));
    heaviest[t.section] = std::max(heaviest[t.section], t.cost);
  }
  std::stable_sort(tiles.begin(), tiles.end(), [&](const CostedTile& x, const CostedTile& y) {
    if (heaviest[x.section] != heaviest[y.section]) return heaviest[x.section] > heaviest[y.section];
    if (x.section != y.section) return x.section < y.section;
    return x.cost > y.cost;
  });
}

// The CTA of each tile of the list, and the work of the busiest one.
struct Deal {
  std::vector<uint32_t> cta;
  double busiest = 0;
};

// Each to the CTA with the least work so far.
Deal deal_greedily(const std::vector<CostedTile>& tiles, uint32_t grid) {
  using Load = std::pair<double, uint32_t>;
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  for (uint32_t c = 0; c < grid; ++c) loads.push({0.0, c});
  Deal deal;
  deal.cta.reserve(tiles.size());
  for (const CostedTile& tile : tiles) {
    const auto [load, c] = loads.top();
    loads.pop();
    deal.cta.push_back(c);
    deal.busiest = std::max(deal.busiest, load + tile.cost);
    loads.push({load + tile.cost, c});
  }
  return deal;
}

// Heaviest first within sections whose keys and values fill half of L2, and as many of them as cost no more
// than kSectionLoss of the balance of a single one.
std::vector<uint32_t> deal_lpt(const ScheduleProblem& p, uint32_t grid, std::vector<CostedTile>& tiles) {
  constexpr double kSectionLoss = 0.02;
  int64_t bytes = 0;
  for (int32_t b = 0; b < p.k->batch(); ++b)
    if (q_length(p, b) > 0) bytes += p.key_bytes * p.k->length(b) * p.heads_kv;
  const int64_t section_bytes = std::max<int64_t>(p.l2_bytes / 2, 1);
  const int64_t pairs = std::max<int64_t>(int64_t{p.k->batch()} * p.heads_kv, 1);
  std::vector<CostedTile> single = tiles;
  sort_heaviest_first(single);
  const Deal best = deal_greedily(single, grid);
  for (int64_t sections = std::min((bytes + section_bytes - 1) / section_bytes, pairs); sections > 1;
       sections /= 2) {
    std::vector<CostedTile> cut = tiles;
    sort_by_section(p, sections, bytes, cut);
    const Deal deal = deal_greedily(cut, grid);
    if (deal.busiest > best.busiest * (1 + kSectionLoss)) continue;
    tiles = std::move(cut);
    return deal.cta;
  }
  tiles = std::move(single);
  return best.cta;
}

// The heavier tiles each to the CTA with the least work, linked into one chain a CTA; every other is a chain
// of its own, which whoever is free takes over.
void chain_tiles(const std::vector<CostedTile>& tiles, uint32_t ctas, Schedule& schedule) {
  double total = 0;
  for (const CostedTile& tile : tiles) total += tile.cost;
  size_t own = 0;
  for (double before = 0; own < tiles.size() && (own < ctas || before < (1 - kDynamicShare) * total); ++own)
    before += tiles[own].cost;
  const std::vector<CostedTile> heavier(tiles.begin(), tiles.begin() + ptrdiff_t(own));
  const Deal deal = deal_greedily(heavier, ctas);
  schedule.grid = uint32_t(ctas + (tiles.size() - own));
  std::vector<uint32_t> last(ctas, UINT32_MAX);
  std::vector<ScheduledTile> firsts(ctas), others;
  for (size_t i = 0; i < own; ++i) {
    const uint32_t c = deal.cta[i];
    schedule.work[c] += tiles[i].cost;
    if (last[c] == UINT32_MAX) {
      firsts[c] = tiles[i].tile, last[c] = c;
      continue;
    }
    const uint32_t entry = schedule.grid + uint32_t(others.size());
    (last[c] < ctas ? firsts[c] : others[last[c] - schedule.grid]).following = int32_t(entry);
    others.push_back(tiles[i].tile), last[c] = entry;
  }
  schedule.slots = std::move(firsts);
  for (size_t i = own; i < tiles.size(); ++i) {
    schedule.slots.push_back(tiles[i].tile);
    *std::min_element(schedule.work.begin(), schedule.work.end()) += tiles[i].cost;
  }
  schedule.slots.insert(schedule.slots.end(), others.begin(), others.end());
}

// Round by round; with zigzag every second one backwards.
std::vector<uint32_t> deal_in_rounds(size_t count, uint32_t grid, bool zigzag) {
  std::vector<uint32_t> cta(count);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t place = uint32_t(i % grid);
    cta[i] = zigzag && i / grid % 2 == 1 ? grid - 1 - place : place;
  }
  return cta;
}

}  // namespace

const char* scheduler_name(Scheduler scheduler) {
  switch (scheduler) {
    case Scheduler::kAutomatic:
      return "automatic";
    case Scheduler::kStatic:
      return "static";
    case Scheduler::kZigzag:
      return "zigzag";
    case Scheduler::kLpt:
      return "lpt";
    case Scheduler::kClc:
      return "clc";
  }
  return "unknown";
}

StageBlocks stage_blocks(const ScheduleProblem& p, int32_t batch, int32_t first_row) {
  StageBlocks blocks{};
  const int64_t q = q_length(p, batch), k = p.k->length(batch), diagonal = k - q;
  for (int stage = 0; stage < 2; ++stage) {
    const int64_t begin = int64_t{first_row} + stage * stage_queries(p);
    if (begin >= q) continue;
    int64_t keys = k;
    if (p.window_right >= 0)
      keys = std::min(keys, std::min(begin + stage_queries(p), q) + diagonal + p.window_right);
    const int64_t first =
        p.window_left >= 0 ? std::max<int64_t>(begin + diagonal - p.window_left, 0) / kBlockKeys : 0;
    const int64_t end = (std::max<int64_t>(keys, 0) + kBlockKeys - 1) / kBlockKeys;
    if (first < end) blocks.first[stage] = first, blocks.end[stage] = end;
  }
  return blocks;
}

double tile_cost(const StageBlocks& blocks) {
  const int64_t both = std::max<int64_t>(
      std::min(blocks.end[0], blocks.end[1]) - std::max(blocks.first[0], blocks.first[1]), 0);
  const int64_t one = blocks.count(0) + blocks.count(1) - 2 * both;
  return double(both) + kOneStageBlockCost * double(one) + kScheduledTileCost;
}

double total_cost(const ScheduleProblem& p) {
  double total = 0;
  for (int32_t b = 0; b < p.k->batch(); ++b)
    for (int64_t row = 0; row < q_length(p, b); row += tile_queries(p))
      total += tile_cost(stage_blocks(p, b, int32_t(row)));
  return total * tile_heads(p);
}

Schedule schedule_tiles(const ScheduleProblem& problem, Scheduler scheduler) {
  std::vector<CostedTile> tiles = list_tiles(problem);
  if (scheduler == Scheduler::kAutomatic) {
    const bool masked = problem.window_left >= 0 || problem.window_right >= 0;
    const bool uniform = std::all_of(tiles.begin(), tiles.end(),
                                     [&](const CostedTile& t) { return t.cost == tiles.front().cost; });
    const bool many = tiles.size() >= size_t(kDynamicTiles) * size_t(problem.max_ctas);
    scheduler = uniform   ? Scheduler::kStatic
                : !masked ? Scheduler::kZigzag
                : many    ? Scheduler::kClc
                          : Scheduler::kLpt;
  }
  Schedule schedule;
  schedule.scheduler = scheduler;
  schedule.tile_count = uint32_t(tiles.size());
  schedule.grid = uint32_t(std::min<size_t>(tiles.size(), size_t(problem.max_ctas)));
  if (tiles.empty()) return schedule;
  schedule.work.assign(schedule.grid, 0.0);
  if (scheduler == Scheduler::kZigzag) sort_heaviest_first(tiles);
  const std::vector<uint32_t> cta =
      scheduler == Scheduler::kLpt || scheduler == Scheduler::kClc
          ? deal_lpt(problem, schedule.grid, tiles)
          : deal_in_rounds(tiles.size(), schedule.grid, scheduler == Scheduler::kZigzag);
  if (scheduler == Scheduler::kClc) {
    chain_tiles(tiles, schedule.grid, schedule);
    return schedule;
  }

  std::vector<uint32_t> rounds(schedule.grid, 0);
  for (uint32_t c : cta) ++rounds[c];
  const uint64_t slots = uint64_t{*std::max_element(rounds.begin(), rounds.end())} * schedule.grid;
  if (slots > uint64_t(INT32_MAX - problem.max_ctas))
    invalid("offsets_q: the {} tile list has {} entries; the limit of a launch is {}",
            scheduler_name(scheduler), slots, INT32_MAX - problem.max_ctas);
  schedule.slots.assign(slots, {-1, 0, 0, 0});
  std::fill(rounds.begin(), rounds.end(), 0);
  for (size_t i = 0; i < tiles.size(); ++i) {
    const uint32_t c = cta[i];
    schedule.slots[size_t{rounds[c]++} * schedule.grid + c] = tiles[i].tile;
    schedule.work[c] += tiles[i].cost;
  }
  return schedule;
}

}  // namespace mxfa
