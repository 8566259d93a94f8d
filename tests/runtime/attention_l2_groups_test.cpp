// Groups of (sequence, head) pairs that share L2: order, budget and the last group.
#include "host/attention_l2_groups.hpp"

#include "host/attention_backward_tiles.hpp"
#include "host/attention_tiles.hpp"
#include "host/shape_file.hpp"
#include "support/catch.hpp"

using namespace mxfa;

namespace {

using Groups = std::vector<int32_t>;

PairWork pair_of(int64_t bytes, double heaviest, int64_t tiles = 1) { return {bytes, heaviest, tiles}; }

// Most bytes of different (sequence, head) pairs among `ctas` neighbours of a list.
template <class Tile, class HeadOf>
int64_t most_shared_bytes(const std::vector<Tile>& tiles, size_t end, size_t ctas, int64_t bytes,
                          HeadOf head_of) {
  int64_t most = 0;
  for (size_t i = 0; i + ctas <= end; ++i) {
    std::vector<std::pair<int32_t, int32_t>> pairs;
    for (size_t j = i; j < i + ctas; ++j) pairs.push_back({tiles[j].batch, head_of(tiles[j])});
    std::sort(pairs.begin(), pairs.end());
    pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
    most = std::max(most, int64_t(pairs.size()) * bytes);
  }
  return most;
}

}  // namespace

TEST_CASE("pairs are grouped heaviest first, as many as fit in the budget", "[tiles][l2]") {
  CHECK(group_pairs({pair_of(4, 1), pair_of(6, 3), pair_of(4, 2), pair_of(5, 4)}, 10, 0) ==
        Groups{2, 1, 1, 0});
  CHECK(group_pairs({pair_of(100, 2), pair_of(100, 1)}, 10, 0) == Groups{0, 1});  // one that never fits
  CHECK(group_pairs({}, 10, 3).empty());
}

TEST_CASE("the last group has tiles enough to even out the end, of the lightest pairs", "[tiles][l2]") {
  CHECK(group_pairs({pair_of(6, 4), pair_of(6, 3), pair_of(6, 2), pair_of(6, 1)}, 6, 2) ==
        Groups{0, 1, 2, 2});
  CHECK(group_pairs({pair_of(6, 2, 5), pair_of(6, 1, 5)}, 6, 100) == Groups{0, 0});
}

TEST_CASE("under a causal mask neighbours in a list share few pairs until the last group", "[tiles][l2]") {
  const std::vector<int32_t> offsets = offsets_of({8192, 8192});
  const Sequences s = read_sequences("offsets", 2, offsets.data());
  constexpr int64_t kL2 = int64_t{50} << 20, kBackwardRow = 128 * 8, kForwardRow = 128 * 4;
  const KeyTilePlan backward = plan_key_tiles({.q = &s,
                                               .k = &s,
                                               .heads_q = 16,
                                               .heads_kv = 16,
                                               .broadcast_q = false,
                                               .window_left = -1,
                                               .window_right = 0,
                                               .tile_rows = 64,
                                               .multiprocessors = 132,
                                               .deterministic = false,
                                               .row_bytes = kBackwardRow,
                                               .l2_bytes = kL2});
  // 64 tiles a pair: 132 CTAs meet at most four, of 32.
  CHECK(most_shared_bytes(backward.tiles, backward.tiles.size() - 4 * 132, 132, 8192 * kBackwardRow,
                          [](const KeyTile& t) { return t.head_kv; }) <= kL2);
  const RowTilePlan forward = plan_row_tiles({&s, &s, 16, false, -1, 0, 80, 3, 132, kForwardRow, kL2});
  CHECK(most_shared_bytes(forward.tiles, forward.tiles.size() - 4 * 132, 132, 8192 * kForwardRow,
                          [](const RowTile& t) { return t.head; }) <= kL2);
}
