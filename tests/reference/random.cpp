// Generators and distributions of the test data.
#include "reference/random.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "reference/formats.hpp"

namespace mxfa::reference {
namespace {

// Powers of two that tell places apart: neighbours along every axis differ, and no exponent leaves [-6, 6],
// where E4M3 still has all its bits next to the largest element of a mixed block.
int power_of_two_exponent(Operand operand, int64_t token, int head, int channel) {
  if (operand == Operand::kV || operand == Operand::kOutputGradient)
    return static_cast<int>((token / 32 * 5 + head * 3) % 7) - 3 + (channel * 3 + channel / 32) % 5 - 2;
  const int block = (channel / 32 * 5 + head * 3) % 7 - 3;
  const int row = static_cast<int>((token * 5 + token / 32 * 3) % 4) - 2;
  return operand == Operand::kQ ? block + row : row - block;
}

}  // namespace

Random::Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {
  if (state_ == 0) state_ = 1;  // the one state xorshift never leaves
}

uint64_t Random::next() {
  state_ ^= state_ >> 12;
  state_ ^= state_ << 25;
  state_ ^= state_ >> 27;
  return state_ * 0x2545F4914F6CDD1Du;
}

double Random::uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

double Random::normal() {
  const double u1 = uniform(), u2 = uniform();
  return std::sqrt(-2 * std::log(1 - u1)) * std::cos(2 * std::numbers::pi * u2);
}

std::vector<int32_t> random_lengths(const LengthDistribution& distribution, int count, uint64_t seed) {
  Random random(seed);
  std::vector<int32_t> lengths(count);
  for (int32_t& length : lengths) {
    int64_t n = distribution.lo;
    if (distribution.kind == LengthDistribution::Kind::kUniform)
      n +=
          static_cast<int64_t>(random.uniform() * static_cast<double>(distribution.hi - distribution.lo + 1));
    else if (distribution.kind == LengthDistribution::Kind::kLognormal)
      n = static_cast<int64_t>(distribution.median * std::exp(distribution.sigma * random.normal()));
    length = static_cast<int32_t>(std::clamp(n, distribution.min, distribution.max));
  }
  return lengths;
}

std::optional<DataDistribution> data_distribution(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, DataDistribution>, 4> kNames{
      {{"normal", DataDistribution::kNormal},
       {"heavy_tailed", DataDistribution::kHeavyTailed},
       {"power_of_two", DataDistribution::kPowerOfTwo},
       {"constant", DataDistribution::kConstant}}};
  for (const auto& [known, distribution] : kNames)
    if (known == name) return distribution;
  return std::nullopt;
}

std::vector<uint16_t> random_tensor(DataDistribution distribution, double std, uint64_t seed, Operand operand,
                                    int64_t tokens, int heads, int head_dim) {
  Random random(seed * 3 + static_cast<uint64_t>(operand));
  std::vector<uint16_t> tensor(static_cast<size_t>(tokens) * heads * head_dim);
  size_t i = 0;
  for (int64_t t = 0; t < tokens; ++t)
    for (int h = 0; h < heads; ++h)
      for (int d = 0; d < head_dim; ++d, ++i) {
        double x = std;
        if (distribution != DataDistribution::kConstant) x *= random.normal();
        if (distribution == DataDistribution::kHeavyTailed) x *= std::exp(0.8 * random.normal());
        if (distribution == DataDistribution::kPowerOfTwo)
          x = std::ldexp(x, power_of_two_exponent(operand, t, h, d));
        tensor[i] = bf16_from_double(x);
      }
  return tensor;
}

}  // namespace mxfa::reference
