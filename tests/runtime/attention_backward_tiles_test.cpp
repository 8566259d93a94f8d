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
  const auto listed = [](const Sequences& q, int32_t batch, bool broadcast) {
    std::vector<KeyTile> no_keys;
    const QueryTilePlan plan = plan_query_tiles({&q, batch, 1, 1, broadcast, 64, 0}, no_keys);
    CHECK(plan.prepared_first == int64_t(plan.tiles.size()));  // nobody else will prepare them
    std::vector<int> count(batch);
    for (const QueryTile& t : plan.tiles) ++count[t.batch];
    return count;
  };
  CHECK(listed(sequences_of({65, 0, 64}), 3, false) == std::vector<int>{2, 0, 1});
  CHECK(listed(sequences_of({130}), 3, true) == std::vector<int>{3, 3, 3});
}

TEST_CASE("query tiles stand in the order in which tiles of keys need them, and only late ones wait",
          "[tiles][backward]") {
  // Four query heads on two: a sequence's two pairs take half of its tiles each.
  const Sequences q = sequences_of({100, 64, 10, 200});
  const auto keys_of = [] {
    return std::vector<KeyTile>{{3, 0, 0, 128}, {3, 1, 0, 64}, {0, 0, 0, 128}, {3, 0, 128, 64},
                                {0, 1, 0, 64},  {1, 0, 0, 64}, {1, 1, 0, 64}};
  };
  struct Expected {
    int64_t first_tiles, prepared_first;
    std::vector<bool> waits;
  };
  // Sequence 2 has no keys: its tile comes first and is always prepared.  3 follows with 4 tiles, 0 with 2.
  for (const Expected& e : {Expected{1, 4 + 8, {false, true, true, false, true, true, true}},
                            Expected{2, 4 + 16, {false, false, true, false, true, true, true}},
                            Expected{3, 4 + 16 + 4, {false, false, false, false, true, true, true}},
                            Expected{7, 4 * 8, std::vector<bool>(7, false)},
                            Expected{INT64_MAX, 4 * 8, std::vector<bool>(7, false)}}) {
    CAPTURE(e.first_tiles);
    std::vector<KeyTile> keys = keys_of();
    const QueryTilePlan plan = plan_query_tiles({&q, 4, 4, 2, false, 64, e.first_tiles}, keys);
    std::vector<int> order;
    for (const QueryTile& t : plan.tiles) order.push_back(10 * t.batch + t.tile);
    CHECK(order == std::vector<int>{20, 30, 31, 32, 33, 0, 1, 10});
    CHECK(plan.prepared_first == e.prepared_first);
    std::vector<bool> waits;
    for (const KeyTile& key : keys) waits.push_back(key.waits());
    CHECK(waits == e.waits);
  }
}

TEST_CASE("numbers from which the main kernel works out addresses of rows have 32 bits",
          "[tiles][backward]") {
  CHECK(are_short({0, 128, UINT32_MAX}));
  CHECK_FALSE(are_short({128, int64_t{UINT32_MAX} + 1}));
  CHECK_FALSE(are_short({-1}));
}
