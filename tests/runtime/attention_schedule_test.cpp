// Schedules of attention_fwd_sm100: who computes what, and how even the work is.
#include "host/attention_schedule.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

#include "runtime/sequences.hpp"
#include "support/catch.hpp"

using namespace mxfa;
using namespace mxfa::test;
using mxfa::test::Contains;

namespace {

struct Problem {
  Sequences q, k;
  ScheduleProblem problem;
  Problem(const std::vector<int32_t>& lengths_q, const std::vector<int32_t>& lengths_k, int32_t heads,
          int32_t max_ctas)
      : q(sequences_of(lengths_q)),
        k(sequences_of(lengths_k)),
        problem{.q = &q,
                .k = &k,
                .heads_q = heads,
                .heads_kv = heads,
                .key_bytes = 512,
                .broadcast_q = false,
                .window_left = -1,
                .window_right = -1,
                .max_ctas = max_ctas,
                .l2_bytes = 1 << 26} {}
};

using Key = std::tuple<int32_t, int32_t, int32_t>;

// Every tile once, and nothing behind the end of a CTA's list.
void check_complete(const Problem& p, const Schedule& schedule) {
  std::set<Key> expected, seen;
  for (int32_t b = 0; b < p.k.batch(); ++b)
    for (int32_t row = 0; row < p.q.length(p.problem.broadcast_q ? 0 : b); row += 2 * p.problem.stage_rows)
      for (int32_t head = 0; head < p.problem.heads_q; ++head) expected.insert({b, head, row});
  REQUIRE(schedule.tile_count == expected.size());
  if (schedule.scheduler == Scheduler::kClc) {
    // The chains of all CTAs, whoever computes them.
    for (uint32_t c = 0; c < schedule.grid; ++c)
      for (int32_t at = int32_t(c);; at = schedule.slots.at(at).following) {
        const ScheduledTile& tile = schedule.slots.at(at);
        CHECK(seen.insert({tile.batch, tile.head, tile.first_row}).second);
        if (tile.following == 0) break;
      }
    CHECK(schedule.slots.size() == expected.size());
    CHECK(seen == expected);
    return;
  }
  REQUIRE(schedule.slots.size() % std::max(schedule.grid, 1u) == 0);
  std::vector<bool> ended(schedule.grid, false);
  for (size_t i = 0; i < schedule.slots.size(); ++i) {
    const ScheduledTile& tile = schedule.slots[i];
    if (tile.batch < 0) {
      ended[i % schedule.grid] = true;
      continue;
    }
    CHECK_FALSE(ended[i % schedule.grid]);
    seen.insert({tile.batch, tile.head, tile.first_row});
  }
  CHECK(seen == expected);
}

double busiest(const Schedule& schedule) {
  return *std::max_element(schedule.work.begin(), schedule.work.end());
}

}  // namespace

TEST_CASE("sched-empty-tiles: every scheduler lists every tile once and none without rows", "[schedule]") {
  Problem p({0, 0, 1, 128, 129, 0, 513, 700}, {3, 0, 500, 1000, 0, 1, 2000, 300}, 4, 7);
  for (const Scheduler scheduler : kSchedulers) {
    INFO(scheduler_name(scheduler));
    check_complete(p, schedule_tiles(p.problem, scheduler));
  }
  p.problem.window_right = 0;
  check_complete(p, schedule_tiles(p.problem, Scheduler::kAutomatic));
  Problem broadcast({513}, {100, 0, 3000}, 2, 5);
  broadcast.problem.broadcast_q = true;
  for (const Scheduler scheduler : kSchedulers)
    check_complete(broadcast, schedule_tiles(broadcast.problem, scheduler));
}

TEST_CASE("sched-empty-tiles: four heads of these lengths are 36 stages of 128 rows", "[schedule]") {
  const std::vector<int32_t> lengths{0, 0, 1, 128, 129, 0, 513, 0};
  const Problem p(lengths, lengths, 4, 148);
  for (const Scheduler scheduler : kSchedulers) {
    INFO(scheduler_name(scheduler));
    int stages = 0;
    for (const ScheduledTile& tile : schedule_tiles(p.problem, scheduler).slots) {
      if (tile.batch < 0) continue;
      CHECK(lengths[tile.batch] > tile.first_row);
      stages += lengths[tile.batch] > tile.first_row + 128 ? 2 : 1;
    }
    CHECK(stages == 36);
  }
}

TEST_CASE("The automatic scheduler is static for equal tiles, zigzag for jagged ones, LPT under a mask",
          "[schedule]") {
  Problem equal({512, 512}, {1000, 1000}, 2, 3), jagged({512, 512}, {1000, 100}, 2, 3);
  CHECK(schedule_tiles(equal.problem, Scheduler::kAutomatic).scheduler == Scheduler::kStatic);
  CHECK(schedule_tiles(jagged.problem, Scheduler::kAutomatic).scheduler == Scheduler::kZigzag);
  equal.problem.window_right = 0;
  CHECK(schedule_tiles(equal.problem, Scheduler::kAutomatic).scheduler == Scheduler::kLpt);
}

TEST_CASE("Many tiles a CTA under a mask come by cluster launch control", "[schedule]") {
  Problem p(std::vector<int32_t>(10, 1024), std::vector<int32_t>(10, 1024), 2, 10);
  p.problem.window_right = 0;  // 80 tiles, 8 a CTA
  const Schedule schedule = schedule_tiles(p.problem, Scheduler::kAutomatic);
  CHECK(schedule.scheduler == Scheduler::kClc);
  check_complete(p, schedule);
  // Ten chains that hold three quarters of the work, and CTAs of one tile, each no heavier than any in a
  // chain.
  double own = 0, others = 0, lightest = 1e9, heaviest = 0;
  const auto cost = [&](int32_t at) {
    const ScheduledTile& tile = schedule.slots.at(at);
    return tile_cost(stage_blocks(p.problem, tile.batch, tile.first_row));
  };
  for (int32_t c = 0; c < 10; ++c)
    for (int32_t at = c;; at = schedule.slots[at].following) {
      own += cost(at), lightest = std::min(lightest, cost(at));
      if (schedule.slots[at].following == 0) break;
    }
  for (int32_t c = 10; c < int32_t(schedule.grid); ++c) {
    CHECK(schedule.slots[c].following == 0);
    others += cost(c), heaviest = std::max(heaviest, cost(c));
  }
  CHECK(own >= (1 - kDynamicShare) * (own + others));
  CHECK(own < (1 - kDynamicShare) * (own + others) + lightest + heaviest);
  CHECK(heaviest <= lightest);
  CHECK(schedule.work.size() == 10);
  CHECK(std::accumulate(schedule.work.begin(), schedule.work.end(), 0.0) == Approx(own + others));
}

TEST_CASE("With no more tiles than SMs every tile has a CTA of its own", "[schedule]") {
  const Problem p({256, 256, 256}, {256, 700, 100}, 1, 148);
  const Schedule schedule = schedule_tiles(p.problem, Scheduler::kClc);
  check_complete(p, schedule);
  CHECK(schedule.grid == 3);
}

TEST_CASE("Zigzag deals out forwards and backwards in turn", "[schedule]") {
  // Costs 6.5, 5.5, ... blocks: heaviest first, CTAs 0 1 2 2 1 0.
  const Problem p({256, 256, 256, 256, 256, 256}, {256, 768, 128, 512, 384, 640}, 1, 3);
  const Schedule schedule = schedule_tiles(p.problem, Scheduler::kZigzag);
  std::vector<int32_t> batches;
  for (const ScheduledTile& tile : schedule.slots) batches.push_back(tile.batch);
  CHECK(batches == std::vector<int32_t>{1, 5, 3, 2, 0, 4});
  CHECK(schedule.work == std::vector<double>{8.0, 8.0, 8.0});
}

TEST_CASE("LPT evens out a causal problem", "[schedule]") {
  Problem p({8192, 8192}, {8192, 8192}, 8, 148);
  p.problem.window_right = 0;
  const Schedule naive = schedule_tiles(p.problem, Scheduler::kStatic);
  const Schedule lpt = schedule_tiles(p.problem, Scheduler::kLpt);
  const double mean = std::accumulate(lpt.work.begin(), lpt.work.end(), 0.0) / lpt.grid;
  CHECK(std::accumulate(naive.work.begin(), naive.work.end(), 0.0) / naive.grid == Approx(mean));
  CHECK(busiest(lpt) <= 1.05 * mean);
  CHECK(busiest(lpt) < busiest(naive));
}

TEST_CASE("LPT takes heads in runs that share L2 where that costs no balance", "[schedule]") {
  // 32 heads of 4 MB of keys and values, an L2 of 64 MB: four runs.
  Problem p({8192}, {8192}, 32, 16);
  p.problem.window_right = 0;
  const auto heads_in_flight = [&] {
    const Schedule schedule = schedule_tiles(p.problem, Scheduler::kLpt);
    std::set<int32_t> heads;
    for (uint32_t slot = 0; slot < 8 * schedule.grid; ++slot) heads.insert(schedule.slots[slot].head);
    return heads.size();
  };
  CHECK(heads_in_flight() <= 9);
  p.problem.l2_bytes = 1 << 30;
  CHECK(heads_in_flight() == 32);
}

TEST_CASE("sched-one-giant: one long and many tiny sequences are balanced", "[schedule]") {
  std::vector<int32_t> lengths_k(257, 1);
  lengths_k[0] = 8192;
  Problem p(std::vector<int32_t>(257, 128), lengths_k, 1, 132);
  for (const Scheduler scheduler : {Scheduler::kAutomatic, Scheduler::kZigzag, Scheduler::kLpt}) {
    const Schedule schedule = schedule_tiles(p.problem, scheduler);
    INFO(scheduler_name(schedule.scheduler));
    check_complete(p, schedule);
    const double mean = std::accumulate(schedule.work.begin(), schedule.work.end(), 0.0) / schedule.grid;
    CHECK(busiest(schedule) <= mean + tile_cost(stage_blocks(p.problem, 0, 0)));
  }
}

TEST_CASE("Stages of a tile walk the blocks that their rows see", "[schedule]") {
  Problem p({300}, {300}, 1, 1);
  const auto blocks = [&](int32_t row) { return stage_blocks(p.problem, 0, row); };
  CHECK((blocks(0).count(0) == 3 && blocks(0).count(1) == 3));
  CHECK((blocks(256).count(0) == 3 && blocks(256).count(1) == 0));  // no rows in stage 1
  p.problem.window_right = 0;
  CHECK((blocks(0).end[0] == 1 && blocks(0).end[1] == 2));
  p.problem.window_left = 0;
  CHECK((blocks(0).first[1] == 1 && blocks(0).end[1] == 2));
  CHECK(tile_cost(blocks(0)) == 2 * kOneStageBlockCost + kScheduledTileCost);
}

TEST_CASE("Tiles of a pair of CTAs have 512 rows, stages of 256", "[schedule]") {
  Problem p({0, 1, 512, 513, 1300}, {130, 200, 0, 300, 70}, 3, 4);
  p.problem.stage_rows = 256;
  for (const Scheduler scheduler : kSchedulers) check_complete(p, schedule_tiles(p.problem, scheduler));
  const StageBlocks blocks = stage_blocks(p.problem, 4, 1024);  // 276 rows
  CHECK((blocks.count(0) == 1 && blocks.count(1) == 1));
  CHECK(stage_blocks(p.problem, 3, 512).count(1) == 0);
}

TEST_CASE("80,000 tiny sequences are scheduled, and a launch beyond 32 bits is refused", "[schedule]") {
  const Problem tiny(std::vector<int32_t>(80000, 3), std::vector<int32_t>(80000, 5), 2, 148);
  CHECK(schedule_tiles(tiny.problem, Scheduler::kAutomatic).tile_count == 160000);
  const Problem huge({1 << 30}, {1}, 1024, 148);
  CHECK_THROWS_WITH(schedule_tiles(huge.problem, Scheduler::kStatic), Contains("4194304 tiles of 256 rows"));
}

TEST_CASE("Without queries there is nothing to launch", "[schedule]") {
  const Problem p({0, 0}, {5, 5}, 2, 148);
  for (const Scheduler scheduler : kSchedulers) {
    const Schedule schedule = schedule_tiles(p.problem, scheduler);
    CHECK(schedule.grid == 0);
    CHECK(schedule.slots.empty());
  }
}
