// Tiles of the split pair's dQ kernel: every query row once, with a broadcast Q once for each run of
// sequences.
#include "host/attention_backward_split.hpp"

#include <map>
#include <set>

#include "runtime/sequences.hpp"
#include "support/catch.hpp"

using namespace mxfa;
using namespace mxfa::test;

namespace {

RowTileProblem problem_of(const Sequences& q, const Sequences& k, bool broadcast, int32_t window_right = -1) {
  return {.q = &q,
          .k = &k,
          .heads = 3,
          .broadcast_q = broadcast,
          .window_left = -1,
          .window_right = window_right,
          .tile_n = 128,
          .max_units = 2,
          .multiprocessors = 132,
          .row_bytes = 512,
          .l2_bytes = int64_t{50} << 20};
}

// Units of 64 rows of each (sequence or run, head), none twice.
std::map<std::pair<int32_t, int32_t>, std::set<int32_t>> units_of(const std::vector<RowTile>& tiles) {
  std::map<std::pair<int32_t, int32_t>, std::set<int32_t>> units;
  for (const RowTile& tile : tiles) {
    CHECK((tile.rows == 64 || tile.rows == 128));
    for (int32_t row = tile.first_row; row < tile.first_row + tile.rows; row += 64)
      CHECK(units[{tile.batch, tile.head}].insert(row).second);
  }
  return units;
}

}  // namespace

TEST_CASE("dQ tiles cover every row of every sequence with queries, keys or not",
          "[tiles][backward][split]") {
  const Sequences q = sequences_of({100, 0, 7, 300}), k = sequences_of({129, 64, 0, 500});
  for (const int32_t right : {-1, 0}) {
    const DqTilePlan plan = plan_dq_tiles(problem_of(q, k, false, right), 128);
    CHECK(plan.runs.empty());
    const auto units = units_of(plan.tiles);
    CHECK(units.size() == 9);
    for (const auto& [place, rows] : units) {
      CHECK(int32_t(rows.size()) == (q.length(place.first) + 63) / 64);
      CHECK(*rows.rbegin() < q.length(place.first));
    }
  }
}

TEST_CASE("a broadcast Q is cut into runs that cover the batch in order", "[tiles][backward][split]") {
  std::vector<int32_t> lengths;
  for (int b = 0; b < 300; ++b) lengths.push_back(b % 7 == 0 ? 0 : (b * 131) % 1000);
  const Sequences q = sequences_of({200});
  for (const size_t batch : {size_t{1}, size_t{3}, size_t{300}}) {
    const Sequences k = sequences_of({lengths.begin(), lengths.begin() + batch});
    const DqTilePlan plan = plan_dq_tiles(problem_of(q, k, true), 128);
    REQUIRE(plan.run_count() >= 1);
    CHECK(plan.runs.front() == 0);
    CHECK(plan.runs.back() == int32_t(batch));
    for (int32_t run = 0; run < plan.run_count(); ++run) CHECK(plan.runs[run] < plan.runs[run + 1]);
    const auto units = units_of(plan.tiles);
    CHECK(int32_t(units.size()) == 3 * plan.run_count());
    for (const auto& [place, rows] : units) CHECK(rows.size() == 4);
    CHECK(plan.tiles.size() == size_t(3 * 2 * plan.run_count()));
  }
  // Enough work for all SMs: 6 tiles a run.
  CHECK(6 * plan_dq_tiles(problem_of(q, sequences_of(lengths), true), 128).run_count() >= 132 - 5);
}

TEST_CASE("without queries or without a batch there are no tiles of dQ", "[tiles][backward][split]") {
  const Sequences none = sequences_of({}), empty = sequences_of({0}), some = sequences_of({70});
  CHECK(plan_dq_tiles(problem_of(none, none, false), 128).tiles.empty());
  CHECK(plan_dq_tiles(problem_of(some, none, true), 128).tiles.empty());
  CHECK(plan_dq_tiles(problem_of(empty, some, true), 128).tiles.empty());
}

TEST_CASE("turns and accumulators of dQ are costs of the one kernel alone", "[backward][split]") {
  BackwardWork work{.head_dim = 128,
                    .deterministic = false,
                    .right_mask = false,
                    .key_steps = 100,
                    .key_steps_without = 100,
                    .dq_blocks = 100,
                    .dq_rows = 128,
                    .dq_keys = 128,
                    .row_heads = 1000,
                    .multiprocessors = 132};
  const BackwardCosts plain = estimate_backward(work);
  work.deterministic = true;
  const BackwardCosts with_turns = estimate_backward(work);
  CHECK(with_turns.one_kernel > plain.one_kernel);
  CHECK(with_turns.split == plain.split);
  work.row_heads = 1e6;
  CHECK(estimate_backward(work).one_kernel > with_turns.one_kernel);
  CHECK(estimate_backward(work).split == with_turns.split);
}
