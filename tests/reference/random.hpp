// Test data that any language can reproduce: xorshift64*, Box-Muller, and distributions that make layout
// mistakes visible.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace mxfa::reference {

class Random {
 public:
  explicit Random(uint64_t seed);  // state = seed * 0x9E3779B97F4A7C15 + 1
  uint64_t next();
  double uniform();  // [0, 1), 53 bits
  double normal();   // sqrt(-2 ln(1-u1)) cos(2 pi u2): two uniforms a number
 private:
  uint64_t state_;
};

// Jagged lengths, one draw each.
struct LengthDistribution {
  enum class Kind { kConstant, kUniform, kLognormal } kind = Kind::kConstant;
  int64_t lo = 0, hi = 0;        // uniform: inclusive; constant: lo
  double median = 0, sigma = 0;  // lognormal: trunc(median * exp(sigma z))
  int64_t min = 1, max = int64_t{1} << 30;
};
std::vector<int32_t> random_lengths(const LengthDistribution& distribution, int count, uint64_t seed);

// kNormal: std * z.  kHeavyTailed: std * z * exp(0.8 w), z and w independent normals.  kConstant: std.
// kPowerOfTwo: std * z * 2^e where e depends on the head, the row and the block of 32 channels.
enum class DataDistribution { kNormal, kHeavyTailed, kPowerOfTwo, kConstant };
// "normal", "heavy_tailed", "power_of_two", "constant", as in shape files.
std::optional<DataDistribution> data_distribution(std::string_view name);

// With kPowerOfTwo the exponents of a channel block cancel between Q and K, so that scores stay moderate
// while a swapped or misplaced scale is wrong by a power of two; those of V depend on the block of 32 tokens
// and on the channel.
// kOutputGradient is like V.
enum class Operand { kQ, kK, kV, kOutputGradient };

// BF16 [tokens, heads, head_dim].  Different operands of one seed are independent.
std::vector<uint16_t> random_tensor(DataDistribution distribution, double std, uint64_t seed, Operand operand,
                                    int64_t tokens, int heads, int head_dim);

}  // namespace mxfa::reference
