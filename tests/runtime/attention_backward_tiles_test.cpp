// Tiles of the Hopper backward: every key once, the steps that the kernel walks, heaviest first.
#include "host/attention_backward_tiles.hpp"

#include <map>
#include <set>

#include "runtime/sequences.hpp"
#include "support/catch.hpp"

using namespace mxfa;
using namespace mxfa::test;

namespace {

struct Lengths {
  Sequences q, k;
};

KeyTileProblem problem_of(const Lengths& lengths, int32_t window_left = -1, int32_t window_right = -1) {
  return {.q = &lengths.q,
          .k = &lengths.k,
          .heads_q = 6,
          .heads_kv = 3,
          .broadcast_q = false,
          .window_left = window_left,
          .window_right = window_right,
          .tile_rows = 64,
          .multiprocessors = 4,
          .deterministic = false,
          .row_bytes = 1024,
          .l2_bytes = int64_t{50} << 20};
}

}  // namespace

TEST_CASE("key tiles cover every key of every head once, seen or not", "[tiles][backward]") {
  const Lengths lengths{sequences_of({100, 0, 7, 300}), sequences_of({129, 64, 0, 500})};
  for (const int32_t right : {-1, 0}) {
    const KeyTilePlan plan = plan_key_tiles(problem_of(lengths, -1, right));
    std::map<std::pair<int32_t, int32_t>, std::set<int32_t>> runs;  // of 64 keys
    for (const KeyTile& tile : plan.tiles) {
      CHECK((tile.keys() == 64 || tile.keys() == 128));
      CHECK(tile.first_key % 128 == 0);
      for (int32_t key = tile.first_key; key < tile.first_key + tile.keys(); key += 64)
        CHECK(runs[{tile.batch, tile.head_kv}].insert(key).second);
    }
    CHECK(runs.size() == 9);
    for (const auto& [place, keys] : runs)
      CHECK(int32_t(keys.size()) == (lengths.k.length(place.first) + 63) / 64);
  }
}

TEST_CASE("the steps of a key tile are the query tiles with a row that sees one of its keys",
          "[tiles][backward]") {
  const Lengths lengths{sequences_of({200, 90, 300}), sequences_of({130, 300, 300})};
  for (const int32_t left : {-1, 0, 40})
    for (const int32_t right : {-1, 0, 33}) {
      const KeyTileProblem problem = problem_of(lengths, left, right);
      for (const KeyTile& tile : plan_key_tiles(problem).tiles) {
        INFO("left " << left << ", right " << right << ", sequence " << tile.batch << ", key "
                     << tile.first_key);
        const int32_t q = lengths.q.length(tile.batch), k = lengths.k.length(tile.batch);
        std::set<int32_t> seen;
        for (int32_t row = 0; row < q; ++row)
          for (int32_t key = tile.first_key; key < std::min(tile.first_key + tile.keys(), k); ++key)
            if ((left < 0 || key >= row + k - q - left) && (right < 0 || key <= row + k - q + right))
              seen.insert(row / 64);
        // The kernel walks a range; without a visible pair it may still have one tile where limits cross.
        CHECK(visible_query_tiles(problem, tile) >= int32_t(seen.size()));
        if (!seen.empty()) CHECK(visible_query_tiles(problem, tile) == *seen.rbegin() - *seen.begin() + 1);
      }
    }
}

TEST_CASE("heavy key tiles come first, equal ones keep their neighbours", "[tiles][backward]") {
  const Lengths lengths{sequences_of({64, 4096, 64, 4096}), sequences_of({256, 256, 256, 256})};
  const KeyTilePlan plan = plan_key_tiles(problem_of(lengths));
  REQUIRE(plan.tiles.size() == 4 * 3 * 2);
  for (size_t i = 0; i < 12; ++i) CHECK(plan.tiles[i].batch % 2 == 1);
  for (size_t i = 1; i < 12; ++i) CHECK(plan.tiles[i].batch >= plan.tiles[i - 1].batch);
  CHECK(plan.makespan >= plan.mean);
}

TEST_CASE("deterministic: tiles that add to the same dQ come in the order of their ranks, 0, 1, 2, ...",
          "[tiles][backward]") {
  const Lengths lengths{sequences_of({200, 900, 300}), sequences_of({130, 1000, 300})};
  const Lengths shared{sequences_of({200}), sequences_of({130, 1000, 300})};
  for (const bool broadcast : {false, true})
    for (const int32_t left : {-1, 0, 300})
      for (const int32_t right : {-1, 0, 300}) {
        KeyTileProblem problem = problem_of(broadcast ? shared : lengths, left, right);
        problem.deterministic = true;
        problem.broadcast_q = broadcast;
        std::map<std::pair<int32_t, int32_t>, int32_t> next;
        for (const KeyTile& tile : plan_key_tiles(problem).tiles) {
          CHECK(tile.rank() == next[{broadcast ? 0 : tile.batch, tile.head_kv}]++);
          if (!broadcast) CHECK(tile.first_key == 128 * tile.rank());
        }
      }
}

TEST_CASE("query tiles are listed for each sequence, with broadcast queries for the whole batch",
          "[tiles][backward]") {
  const auto count = [](const std::vector<QueryTile>& tiles, int32_t batch) {
    return std::count_if(tiles.begin(), tiles.end(), [&](const QueryTile& t) { return t.batch == batch; });
  };
  const auto own = list_query_tiles(sequences_of({65, 0, 64}), 3, false, 64);
  CHECK(count(own, 0) == 2);
  CHECK(count(own, 1) == 0);
  CHECK(count(own, 2) == 1);
  const auto shared = list_query_tiles(sequences_of({130}), 3, true, 64);
  for (int32_t b = 0; b < 3; ++b) CHECK(count(shared, b) == 3);
}
