// mxfp8_quantize against the reference, byte for byte.  Runs on every architecture that has the kernel:
// [any_arch].
#include <bit>
#include <cmath>

#include "kernels/quantize_run.hpp"
#include "reference/formats.hpp"
#include "reference/random.hpp"
#include "support/catch.hpp"
#include "support/lengths.hpp"
#include "support/vectors.hpp"

using namespace mxfa::test;
using namespace mxfa::reference;

namespace {

std::vector<uint16_t> bf16(const std::vector<double>& values) {
  return bf16_from_double(std::span<const double>(values));
}
// One row of 64 channels: the case's block, then a block of zeros.
std::vector<uint16_t> row_of(std::vector<double> block) {
  block.resize(64, 0.0);
  return bf16(block);
}
std::vector<double> first_and_rest(double first, double rest) {
  std::vector<double> x(32, rest);
  x[0] = first;
  return x;
}
const JaggedShape kOneRow{{0, 1}, 1, 64};

constexpr BlockLayout kLayouts[] = {BlockLayout::kAlongD, BlockLayout::kAlongTokens, BlockLayout::kSquare};
constexpr ScalingMode kModes[] = {ScalingMode::kRceil, ScalingMode::kFloor};

}  // namespace

TEST_CASE("Quantised bytes equal the reference for every layout, mode and head dim", "[quantize][any_arch]") {
  // With head_dim 64 a CTA has two heads where their number is even.
  const std::pair<int, int> cases[] = {{64, 3}, {64, 4}, {96, 3}, {128, 3}};
  for (const auto& [head_dim, heads] : cases) {
    const JaggedShape shape{offsets_of({0, 1, 31, 32, 33, 0, 127, 128, 129, 0}), heads, head_dim};
    const auto x =
        random_tensor(DataDistribution::kPowerOfTwo, 1.0, 5, Operand::kQ, shape.tokens(), heads, head_dim);
    for (const BlockLayout layout : kLayouts)
      for (const ScalingMode mode : kModes) check_quantize(x, shape, {layout, mode});
  }
}

TEST_CASE("Every tile of a batch of 1100 sequences, half of them empty, finds its own",
          "[quantize][any_arch]") {
  std::vector<int32_t> lengths(1100, 0);
  for (size_t b = 1; b < lengths.size(); b += 2) lengths[b] = b % 5 == 0 ? 129 : 1;
  const JaggedShape shape{offsets_of(lengths), 1, 64};
  const auto x = random_tensor(DataDistribution::kNormal, 1.0, 3, Operand::kQ, shape.tokens(), 1, 64);
  check_quantize(x, shape, {BlockLayout::kAlongD, ScalingMode::kRceil});
}

TEST_CASE("Quantised bytes equal the reference on heavy tails and on every BF16 magnitude",
          "[quantize][any_arch]") {
  const JaggedShape shape{{0, 130}, 2, 128};
  const auto heavy = random_tensor(DataDistribution::kHeavyTailed, 1.0, 9, Operand::kV, 130, 2, 128);
  // 33,280 of the 65,536 BF16 codes, in an order that puts every exponent, zero, infinity and NaN next to
  // others.
  std::vector<uint16_t> codes(shape.elements());
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint16_t>(i * 40503u);
  for (const BlockLayout layout : kLayouts)
    for (const ScalingMode mode : kModes) {
      check_quantize(heavy, shape, {layout, mode});
      check_quantize(codes, shape, {layout, mode});
    }
}

TEST_CASE("Row padding and rows past the last offset are not read", "[quantize][any_arch]") {
  const JaggedShape shape{offsets_of({33, 5, 0, 130}), 2, 64};
  const auto x = random_tensor(DataDistribution::kNormal, 1.0, 2, Operand::kK, shape.tokens(), 2, 64);
  for (const BlockLayout layout : kLayouts)
    check_quantize(x, shape, {layout, ScalingMode::kRceil, /*row_padding=*/24, /*tail_rows=*/40});
}

TEST_CASE("A tensor without tokens is a success without a launch", "[quantize][any_arch]") {
  const JaggedShape shape{{0, 0, 0}, 2, 64};
  CHECK(run_quantize({}, shape, {}).payload.empty());
}

TEST_CASE("The 32x32 tile of the vectors, in all three layouts", "[quantize][any_arch]") {
  const auto tile = load_vectors("block.json")["square32"];
  // Head dim 64: the tile twice.
  std::vector<uint16_t> x(32 * 64);
  for (int i = 0; i < 32; ++i)
    for (int j = 0; j < 64; ++j)
      x[i * 64 + j] = static_cast<uint16_t>(hex(tile["x_bits_bf16hi"][i * 32 + j % 32]));
  const JaggedShape shape{{0, 32}, 1, 64};
  const JaggedScaleLayout atoms(shape.offsets, 1);
  const auto square = run_quantize(x, shape, {BlockLayout::kSquare});
  const auto rows = run_quantize(x, shape, {BlockLayout::kAlongD});
  const auto columns = run_quantize(x, shape, {BlockLayout::kAlongTokens});
  const auto square_codes = hex_bytes(tile["square"]["codes"]);
  const auto row_codes = hex_bytes(tile["row_1x32"]["codes"]);
  const auto column_codes = hex_bytes(tile["col_32x1"]["codes_colmajor"]);
  for (int i = 0; i < 32; ++i) {
    CHECK(square.scales_d[atoms.along_d(0, 0, i, 1)] == tile["square"]["scale"]);
    CHECK(square.scales_tokens[atoms.along_tokens(0, 0, 0, 32 + i)] == tile["square"]["scale"]);
    CHECK(rows.scales_d[atoms.along_d(0, 0, i, 1)] == tile["row_1x32"]["scales"][i]);
    CHECK(columns.scales_tokens[atoms.along_tokens(0, 0, 0, 32 + i)] == tile["col_32x1"]["scales"][i]);
    for (int j = 0; j < 32; ++j) {
      REQUIRE(square.payload[i * 64 + 32 + j] == square_codes[i * 32 + j]);
      REQUIRE(rows.payload[i * 64 + 32 + j] == row_codes[i * 32 + j]);
      REQUIRE(columns.payload[i * 64 + 32 + j] == column_codes[j * 32 + i]);
    }
  }
}

TEST_CASE("BF16 blocks of the vectors", "[quantize][any_arch]") {
  int blocks = 0;
  for (const auto& row : load_vectors("block.json")["blocks"]) {
    if (row["fmt"] != "e4m3" || row["case"] != "normal_bf16") continue;  // the other inputs are not BF16
    std::vector<uint16_t> x;
    for (const auto& bits : row["x_bits"]) x.push_back(static_cast<uint16_t>(hex(bits) >> 16));
    x.resize(64, 0);
    const ScalingMode mode = row["mode"] == "rceil" ? ScalingMode::kRceil : ScalingMode::kFloor;
    const auto result = run_quantize(x, kOneRow, {BlockLayout::kAlongD, mode});
    CHECK(result.scales_d[0] == row["scale"]);
    for (int i = 0; i < 32; ++i) CHECK(result.payload[i] == hex(row["codes"][i]));
    ++blocks;
  }
  CHECK(blocks == 2);
}

TEST_CASE("mxq-zero-block on the device", "[quantize][any_arch]") {
  const auto result = run_quantize(row_of({}), kOneRow, {});
  CHECK(result.scales_d == std::vector<uint8_t>(512, 0));
  CHECK(result.payload == std::vector<uint8_t>(64, 0));
}

TEST_CASE("mxq-mixed-subnormal on the device: BF16 subnormals are not flushed", "[quantize][any_arch]") {
  const auto result = run_quantize(row_of(first_and_rest(0x1p-120, 0x1p-131)), kOneRow, {});
  CHECK(result.scales_d[0] == 0);
  CHECK(result.payload[0] == 0x70);
  for (int i = 1; i < 32; ++i) CHECK(result.payload[i] == 0x18);
}

TEST_CASE("mxq-inf on the device: infinities saturate under the largest finite scale",
          "[quantize][any_arch]") {
  auto x = first_and_rest(INFINITY, 1.0);
  x[1] = -INFINITY;
  const auto result = run_quantize(row_of(x), kOneRow, {});
  CHECK(result.scales_d[0] == 0xfe);
  CHECK(result.payload[0] == 0x7e);
  CHECK(result.payload[1] == 0xfe);
  for (int i = 2; i < 32; ++i) CHECK(result.payload[i] == 0);
}

TEST_CASE("mxq-rceil-957 on the device, with the nearest BF16", "[quantize][any_arch]") {
  // 957 is not a BF16 number; 956 has the same bytes: 956/4 = 239 -> 240 and 956/2 = 478 -> 448.
  const auto rceil = run_quantize(row_of(first_and_rest(956.0, 0.0)), kOneRow, {});
  CHECK(rceil.scales_d[0] == 0x81);
  CHECK(rceil.payload[0] == 0x77);
  const auto floor =
      run_quantize(row_of(first_and_rest(956.0, 0.0)), kOneRow, {BlockLayout::kAlongD, ScalingMode::kFloor});
  CHECK(floor.scales_d[0] == 0x80);
  CHECK(floor.payload[0] == 0x7e);
}

TEST_CASE("mxq-exact-448 on the device", "[quantize][any_arch]") {
  const auto result = run_quantize(row_of(first_and_rest(448.0, 1.0)), kOneRow, {});
  CHECK(result.scales_d[0] == 0x7f);
  CHECK(result.payload[0] == 0x7e);
  for (int i = 1; i < 32; ++i) CHECK(result.payload[i] == 0x38);
}

TEST_CASE("A NaN element becomes NaN and leaves its block alone, on the device", "[quantize][any_arch]") {
  auto x = first_and_rest(5.0, 1.0);
  const auto clean = run_quantize(row_of(x), kOneRow, {});
  x[7] = std::nan("");
  const auto result = run_quantize(row_of(x), kOneRow, {});
  CHECK(result.scales_d == clean.scales_d);
  CHECK((result.payload[7] & 0x7f) == kE4m3Nan);
  for (int i = 0; i < 32; ++i)
    if (i != 7) CHECK(result.payload[i] == clean.payload[i]);
}

TEST_CASE("mxq-seq-axis-boundary on the device: blocks along tokens never cross a sequence",
          "[quantize][any_arch]") {
  const JaggedShape shape{offsets_of({17, 47}), 1, 128};
  std::vector<double> x(shape.elements(), 10000.0);
  std::fill_n(x.begin(), 17 * 128, 1.0);
  const auto result = run_quantize(bf16(x), shape, {BlockLayout::kAlongTokens});
  const JaggedScaleLayout atoms(shape.offsets, 1);
  for (int d = 0; d < 128; ++d) {
    CHECK(result.scales_tokens[atoms.along_tokens(0, 0, 0, d)] == 0x77);
    CHECK(result.scales_tokens[atoms.along_tokens(0, 1, 0, d)] == 0x84);
    CHECK(result.scales_tokens[atoms.along_tokens(0, 1, 1, d)] == 0x84);
  }
}

TEST_CASE("mxq-rowwise-colwise-square on the device", "[quantize][any_arch]") {
  const JaggedShape shape{{0, 32}, 1, 64};
  std::vector<double> x(32 * 64), transposed(32 * 64);
  for (int i = 0; i < 32; ++i)
    for (int j = 0; j < 32; ++j) x[i * 64 + j] = transposed[j * 64 + i] = std::ldexp(i + 1.0, j % 5);
  const auto a = run_quantize(bf16(x), shape, {BlockLayout::kSquare});
  const auto b = run_quantize(bf16(transposed), shape, {BlockLayout::kSquare});
  const JaggedScaleLayout atoms(shape.offsets, 1);
  for (int i = 0; i < 32; ++i) {
    CHECK(a.scales_d[atoms.along_d(0, 0, i, 0)] == 0x80);
    CHECK(a.scales_tokens[atoms.along_tokens(0, 0, 0, i)] == 0x80);
    for (int j = 0; j < 32; ++j) CHECK(a.payload[i * 64 + j] == b.payload[j * 64 + i]);
  }
}
