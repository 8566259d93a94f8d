// The tile lists of attention_fwd_sm90: complete, ordered, and no slower in the model than the plain cut.
#include "host/attention_tiles.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "host/error.hpp"
#include "host/shape_file.hpp"
#include "runtime/sequences.hpp"
#include "support/catch.hpp"

using namespace mxfa;
using namespace mxfa::test;
using mxfa::test::Contains;

namespace {

constexpr int64_t kL2Bytes = int64_t{50} << 20;

std::vector<int32_t> random_lengths(int count, int limit, uint64_t seed) {
  PortableRandom random(seed);
  std::vector<int32_t> lengths(count);
  for (int32_t& length : lengths) length = int32_t(random.next() % (limit + 1));
  return lengths;
}

// Blocks of keys that the rows of a tile see, by looking at every key.
int visible_blocks(const RowTileProblem& p, const RowTile& tile) {
  const int q_length = p.q->length(p.broadcast_q ? 0 : tile.batch), k_length = p.k->length(tile.batch);
  int first = INT32_MAX, last = -1;
  for (int row = tile.first_row; row < std::min(tile.first_row + tile.rows, q_length); ++row)
    for (int key = 0; key < k_length; ++key) {
      const int diagonal = row + k_length - q_length;
      if (p.window_right >= 0 && key > diagonal + p.window_right) continue;
      if (p.window_left >= 0 && key < diagonal - p.window_left) continue;
      first = std::min(first, key / p.tile_n), last = std::max(last, key / p.tile_n);
    }
  return last < 0 ? 0 : last - first + 1;
}

std::vector<double> costs_of(const RowTileProblem& p, const std::vector<RowTile>& tiles) {
  std::vector<double> costs;
  for (const RowTile& tile : tiles)
    costs.push_back(visible_blocks(p, tile) * kUnitCost[tile.rows / kUnitRows] + kTileCost);
  return costs;
}

void check_complete(const RowTileProblem& p, const std::vector<RowTile>& tiles) {
  std::map<std::pair<int, int>, std::vector<std::pair<int, int>>> runs;  // (batch, head) -> [first, end)
  for (const RowTile& tile : tiles) {
    REQUIRE(tile.rows % kUnitRows == 0);
    REQUIRE(tile.rows >= kUnitRows);
    REQUIRE(tile.rows <= p.max_units * kUnitRows);
    runs[{tile.batch, tile.head}].push_back({tile.first_row, tile.first_row + tile.rows});
  }
  for (int b = 0; b < p.k->batch(); ++b)
    for (int head = 0; head < p.heads; ++head) {
      const int length = p.q->length(p.broadcast_q ? 0 : b);
      auto& of_pair = runs[{b, head}];
      std::sort(of_pair.begin(), of_pair.end());
      int next = 0;
      for (const auto& [first, end] : of_pair) {
        REQUIRE(first == next);
        REQUIRE(first < length);  // no tile without a query
        next = end;
      }
      REQUIRE(next >= length);
      REQUIRE(next < length + kUnitRows);
    }
}

}  // namespace

TEST_CASE("Four units are two tiles of two with three warpgroups, never three and one", "[plan]") {
  using Parts = std::vector<int32_t>;
  for (const int blocks : {0, 1, 2, 20, 1000}) {
    INFO(blocks << " blocks");
    CHECK(split_units(1, 3, blocks) == Parts{1});
    CHECK(split_units(2, 3, blocks) == Parts{2});
    CHECK(split_units(3, 3, blocks) == Parts{3});
    CHECK(split_units(4, 3, blocks) == Parts{2, 2});
    CHECK(split_units(5, 3, blocks) == Parts{3, 2});
    CHECK(split_units(7, 3, blocks) == Parts{3, 2, 2});
    CHECK(split_units(16, 3, blocks) == Parts{3, 3, 3, 3, 2, 2});
    CHECK(split_units(4, 4, blocks) == Parts{4});
    CHECK(split_units(5, 4, blocks) == Parts{3, 2});
    CHECK(split_units(3, 1, blocks) == Parts{1, 1, 1});
  }
  for (const int max_units : {1, 2, 3, 4})
    for (int units = 1; units < 100; ++units) {
      const Parts parts = split_units(units, max_units, 5);
      CHECK(std::accumulate(parts.begin(), parts.end(), 0) == units);
      CHECK(*std::max_element(parts.begin(), parts.end()) <= max_units);
    }
}

TEST_CASE("Every row is in exactly one tile, heaviest tiles first", "[plan]") {
  const Sequences q = sequences_of({0, 1, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1000}),
                  k = sequences_of({300, 0, 64, 1, 700, 80, 81, 79, 256, 1000, 0, 257}),
                  one = sequences_of({257});
  for (const auto& [left, right] : {std::pair{-1, -1}, {-1, 0}, {100, -1}, {100, 20}})
    for (const int max_units : {3, 4})
      for (const bool broadcast : {false, true}) {
        INFO("window " << left << ", " << right << ", units " << max_units << ", broadcast " << broadcast);
        const RowTileProblem p{
            broadcast ? &one : &q, &k, 3, broadcast, left, right, 80, max_units, 132, 512, kL2Bytes};
        const RowTilePlan plan = plan_row_tiles(p);
        check_complete(p, plan.tiles);
        const std::vector<double> costs = costs_of(p, plan.tiles);
        for (size_t i = 1; i < costs.size(); ++i) {
          REQUIRE(costs[i] <= costs[i - 1] + 1);  // costs are compared as whole blocks
          if (std::llround(costs[i]) != std::llround(costs[i - 1])) continue;
          const RowTile &x = plan.tiles[i - 1], &y = plan.tiles[i];
          REQUIRE(std::tie(x.batch, x.head, x.first_row) < std::tie(y.batch, y.head, y.first_row));
        }
        CHECK(plan.makespan == Approx(greedy_makespan(costs, 132)));
        CHECK(plan.mean == Approx(std::accumulate(costs.begin(), costs.end(), 0.0) / 132));
      }
}

TEST_CASE("The chosen cut is no slower in the model than tiles of three units alone", "[plan]") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Sequences q = sequences_of(random_lengths(40, 1000, seed)),
                    k = sequences_of(random_lengths(40, 1500, seed + 100));
    const RowTileProblem p{&q, &k, 4, false, -1, seed % 2 ? 0 : -1, 80, 3, 132, 512, kL2Bytes};
    const RowTilePlan plan = plan_row_tiles(p);
    check_complete(p, plan.tiles);
    std::vector<double> plain;
    for (int b = 0; b < 40; ++b)
      for (int head = 0; head < 4; ++head) {
        RowTile tile{b, head, 0, 0};
        for (const int units : split_units((q.length(b) + 63) / 64, 3, (k.length(b) + 79) / 80)) {
          tile.rows = units * kUnitRows;
          plain.push_back(costs_of(p, {tile})[0]);
          tile.first_row += tile.rows;
        }
      }
    std::sort(plain.begin(), plain.end(), std::greater<>());
    INFO("seed " << seed << ": " << plan.makespan << " of " << plan.mean);
    // The list is ordered by whole blocks, this one exactly: a block at the end of an SM's work.
    CHECK(plan.makespan <= greedy_makespan(plain, 132) + 1);
    CHECK(plan.makespan >= plan.mean);
  }
}

TEST_CASE("Two-unit tiles are chosen where they fill the last round", "[plan]") {
  // 133 tiles of three units on 132 SMs take two rounds; cut smaller they take fewer blocks.
  const Sequences q = sequences_of(std::vector<int32_t>(133, 192)),
                  k = sequences_of(std::vector<int32_t>(133, 8000));
  const RowTilePlan plan = plan_row_tiles({&q, &k, 1, false, -1, -1, 80, 3, 132, 512, kL2Bytes});
  CHECK(plan.makespan < 2 * (100 + kTileCost));
  CHECK(plan.two_unit_share > 0);
}

TEST_CASE("The greedy makespan gives the next cost to the first free worker", "[plan]") {
  CHECK(greedy_makespan({}, 3) == 0);
  CHECK(greedy_makespan({5}, 3) == 5);
  CHECK(greedy_makespan({5, 4, 3, 3, 3}, 2) == 10);  // 5+3 | 4+3+3
  CHECK(greedy_makespan({1, 2, 3}, 1) == 6);
}

TEST_CASE("A list longer than the kernel can count is refused", "[plan]") {
  const Sequences q = sequences_of({1 << 30}), k = sequences_of({5});
  CHECK_THROWS_WITH(plan_row_tiles({&q, &k, 1024, false, -1, -1, 80, 3, 132, 512, kL2Bytes}),
                    Contains("16777216 runs of 64 rows times 1024 heads"));
}
