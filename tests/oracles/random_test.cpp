// The data generator reproduces the lengths of the benchmark shapes, and its distributions are what they say.
#include "reference/random.hpp"

#include <cmath>
#include <numeric>
#include <set>

#include "reference/formats.hpp"
#include "reference/quantize.hpp"
#include "support/catch.hpp"
#include "support/vectors.hpp"

using namespace mxfa::reference;

namespace {

std::optional<LengthDistribution> length_distribution(const nlohmann::json& json) {
  using Kind = LengthDistribution::Kind;
  if (json["kind"] == "const") return LengthDistribution{Kind::kConstant, json["n"], json["n"]};
  if (json["kind"] == "uniform") return LengthDistribution{Kind::kUniform, json["lo"], json["hi"]};
  if (json["kind"] == "lognormal")
    return LengthDistribution{Kind::kLognormal, 0,           0,          json["median"],
                              json["sigma"],    json["min"], json["max"]};
  return std::nullopt;  // bimodal: drawn from two uniforms, not a distribution of ours; see the next test
}

}  // namespace

TEST_CASE("Random lengths agree with the benchmark shapes", "[random]") {
  int checked = 0;
  for (const auto& shape : load_vectors("shapes.json")) {
    const auto distribution = length_distribution(shape["kv_dist"]);
    if (!distribution) continue;
    INFO(shape["name"]);
    const auto lengths = random_lengths(*distribution, shape["batch"], shape["seed_kv"]);
    CHECK(std::vector<int32_t>(lengths.begin(), lengths.begin() + 8) ==
          shape["first8_kv"].get<std::vector<int32_t>>());
    CHECK(std::accumulate(lengths.begin(), lengths.end(), int64_t{0}) == shape["total_kv"].get<int64_t>());
    ++checked;
  }
  CHECK(checked == 7);
}

TEST_CASE("Two draws a length give the bimodal benchmark shape", "[random]") {
  for (const auto& shape : load_vectors("shapes.json")) {
    const auto& d = shape["kv_dist"];
    if (d["kind"] != "bimodal") continue;
    Random random(shape["seed_kv"]);
    std::vector<int32_t> lengths;
    // The first draw picks the mode, the second the value.
    for (int b = 0; b < shape["batch"].get<int>(); ++b) {
      const bool small = random.uniform() < d["p_a"].get<double>();
      const int32_t lo = d[small ? "a_lo" : "b_lo"], hi = d[small ? "a_hi" : "b_hi"];
      lengths.push_back(lo + int32_t(std::floor(random.uniform() * (hi - lo + 1))));
    }
    CHECK(std::vector<int32_t>(lengths.begin(), lengths.begin() + 8) ==
          shape["first8_kv"].get<std::vector<int32_t>>());
    CHECK(std::accumulate(lengths.begin(), lengths.end(), int64_t{0}) == shape["total_kv"].get<int64_t>());
  }
}

TEST_CASE("Normal data has the moments of a normal distribution", "[random]") {
  const auto x = bf16_to_double(random_tensor(DataDistribution::kNormal, 2.0, 1, Operand::kQ, 500, 2, 64));
  double sum = 0, squares = 0;
  for (double value : x) sum += value, squares += value * value;
  const double n = static_cast<double>(x.size());
  // Standard errors with 64,000 numbers: 0.008 of the mean, 0.023 of the variance; five of them allowed.
  CHECK(sum / n == Approx(0).margin(0.04));
  CHECK(squares / n == Approx(4.0).margin(0.12));
}

TEST_CASE("Operands of one seed and seeds of one operand are different", "[random]") {
  const auto tensor = [](uint64_t seed, Operand operand) {
    return random_tensor(DataDistribution::kNormal, 1.0, seed, operand, 4, 1, 64);
  };
  CHECK(tensor(0, Operand::kQ) == tensor(0, Operand::kQ));
  CHECK(tensor(0, Operand::kQ) != tensor(0, Operand::kK));
  CHECK(tensor(0, Operand::kQ) != tensor(1, Operand::kQ));
}

// Gaussian data gives nearly every block the same scale byte, which hides a misplaced scale.
TEST_CASE("power_of_two data spreads scale bytes over neighbouring blocks", "[random]") {
  const JaggedShape shape{{0, 128}, 2, 128};
  const auto x = random_tensor(DataDistribution::kPowerOfTwo, 1.0, 7, Operand::kQ, 128, 2, 128);
  const auto tensor = quantize_bf16(x, shape, BlockLayout::kAlongD, ScalingMode::kRceil);
  const JaggedScaleLayout atoms(shape.offsets, 2);
  for (int head = 0; head < 2; ++head)
    for (int token = 0; token < 128; token += 17) {
      std::set<int> bytes;
      for (int block = 0; block < 4; ++block)
        bytes.insert(tensor.scales_d[atoms.along_d(head, 0, token, block)]);
      CHECK(bytes.size() >= 3);
    }
}

TEST_CASE("Distribution names are those of shape files", "[random]") {
  CHECK(data_distribution("heavy_tailed") == DataDistribution::kHeavyTailed);
  CHECK(data_distribution("Normal") == std::nullopt);
}
