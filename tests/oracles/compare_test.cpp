// The measures of distance find what they are for: one bad element, one bad tile, a wrong sign of zero.
#include "reference/compare.hpp"

#include <cmath>
#include <limits>

#include "reference/formats.hpp"
#include "reference/random.hpp"
#include "support/catch.hpp"

using namespace mxfa::reference;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Example {
  AttentionProblem problem;
  AttentionResult result;
};
Example example() {
  AttentionProblem p;
  p.batch = 2;
  p.heads_q = p.heads_kv = 2;
  p.head_dim = 64;
  p.offsets_q = {0, 3, 203};
  p.offsets_k = {0, 0, 40};
  p.scale = 0.125;
  const auto tensor = [&](Operand operand, int64_t rows) {
    return bf16_to_double(random_tensor(DataDistribution::kNormal, 1.0, 3, operand, rows, 2, 64));
  };
  return {p, attention_forward(p, tensor(Operand::kQ, 203), tensor(Operand::kK, 40), tensor(Operand::kV, 40),
                               kernel_numerics(false))};
}
std::vector<double> stored(const AttentionResult& result) {
  return bf16_to_double(bf16_from_double(result.o));
}

}  // namespace

TEST_CASE("Deviation of known vectors", "[compare]") {
  const std::vector<double> want{3, 4}, got{3, 4.5};
  const Deviation d = deviation(got, want);
  CHECK(d.max_abs == 0.5);
  CHECK(d.relative_l2 == Approx(0.1));
  CHECK(d.sqnr_db == Approx(20));
  CHECK(d.cosine == Approx((9 + 18) / (5 * std::sqrt(9 + 20.25))));
  CHECK(deviation(want, want).sqnr_db == kInfinity);
  CHECK(deviation(std::vector<double>{std::nan(""), 4}, want).not_finite == 1);
  CHECK(deviation(std::vector<double>{std::nan(""), 4}, want).max_abs == kInfinity);
  CHECK(deviation(std::vector<double>{0, -kInfinity}, std::vector<double>{0, -kInfinity}).max_abs == 0);
  CHECK(deviation(std::vector<double>{0, -1e30}, std::vector<double>{0, -kInfinity}).max_abs == kInfinity);
}

TEST_CASE("The worst tile is found by sequence, head and first row", "[compare]") {
  const Example e = example();
  std::vector<double> got = e.result.o;
  got[((3 + 150) * 2 + 1) * 64 + 7] += 100;  // sequence 1, head 1, row 150
  const AttentionDeviation d = attention_deviation(e.problem, got, e.result.o);
  CHECK(d.worst_tile.sequence == 1);
  CHECK(d.worst_tile.head == 1);
  CHECK(d.worst_tile.row == 128);
  CHECK(d.worst_sqnr_db < 0);
  CHECK(d.overall.sqnr_db > d.worst_sqnr_db);
}

TEST_CASE("The rounding of the stored format is inside the bound, two steps are not", "[compare]") {
  const Example e = example();
  std::vector<double> got = stored(e.result);
  CHECK_FALSE(first_outside_bound(e.problem, got, e.result));
  const size_t index = ((3 + 10) * 2 + 0) * 64 + 9;
  got[index] *= 1 + 0x1p-6;
  const auto mismatch = first_outside_bound(e.problem, got, e.result);
  REQUIRE(mismatch);
  CHECK(to_string(mismatch->place) == "sequence 1, head 0, row 10, channel 9");
  got[index] = std::nan("");
  CHECK(first_outside_bound(e.problem, got, e.result));
}

TEST_CASE("A row that sees no key must be +0 and -infinity exactly", "[compare]") {
  const Example e = example();
  std::vector<double> got = stored(e.result);
  got[5] = -0.0;
  CHECK(first_outside_bound(e.problem, got, e.result));
  std::vector<float> lse(e.result.lse.begin(), e.result.lse.end());
  CHECK_FALSE(first_lse_outside_bound(e.problem, lse, e.result));
  CHECK_FALSE(first_lse_outside_tolerance(e.problem, lse, e.result.lse));
  lse[0] = -1e30f;
  CHECK(first_lse_outside_bound(e.problem, lse, e.result));
  CHECK(first_lse_outside_tolerance(e.problem, lse, e.result.lse));
  lse[0] = -std::numeric_limits<float>::infinity();
  lse[203 + 50] += 0.01f;  // head 1
  REQUIRE(first_lse_outside_bound(e.problem, lse, e.result));
  CHECK(first_lse_outside_bound(e.problem, lse, e.result)->place.row == 47);
}
