// The quantiser against vectors made with exact rational arithmetic, and the special cases of the contract.
#include "reference/quantize.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/formats.hpp"
#include "support/catch.hpp"
#include "support/vectors.hpp"

using namespace mxfa::reference;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Block {
  uint8_t scale;
  std::vector<uint8_t> payload;
  double value(size_t i) const { return e4m3_to_double(payload[i]) * ue8m0_to_double(scale); }
};
Block quantized(const std::vector<float>& x, ScalingMode mode = ScalingMode::kRceil) {
  Block block{0, std::vector<uint8_t>(x.size())};
  block.scale = quantize_block(x, mode, block.payload);
  return block;
}
std::vector<float> first_and_rest(float first, float rest) {
  std::vector<float> x(32, rest);
  x[0] = first;
  return x;
}

}  // namespace

TEST_CASE("Scale bytes agree with the vectors", "[quantize]") {
  for (const auto& row : load_vectors("scale.json")) {
    const float amax = float_of(row["amax_bits"]);
    INFO("amax bits " << row["amax_bits"]);
    if (std::isnan(amax)) continue;  // cannot happen: amax ignores NaN
    // The two-instruction hardware path rounds amax/448 first; the definition differs from it in one value.
    const bool product_underflows = hex(row["amax_bits"]) == 0x04600001;
    CHECK(scale_byte(amax, ScalingMode::kRceil) ==
          row["e4m3"][product_underflows ? "rceil_exact" : "rceil_hw_satfinite"]);
    // Infinity is 254 in both modes here; the vectors note 255 for FLOOR.
    CHECK(scale_byte(amax, ScalingMode::kFloor) ==
          (std::isinf(amax) ? 254 : row["e4m3"]["floor"].get<int>()));
  }
}

TEST_CASE("RCEIL equals the integer form for every exponent and the mantissas around its step",
          "[quantize]") {
  for (uint32_t e = 0; e < 255; ++e)
    for (uint32_t m : {0u, 1u, 0x5fffffu, 0x600000u, 0x600001u, 0x7fffffu}) {
      if (e == 0 && m == 0) continue;
      const int byte = std::clamp(static_cast<int>(e) - 8 + (m > 0x600000), 0, 254);
      CHECK(scale_byte(std::bit_cast<float>(e << 23 | m), ScalingMode::kRceil) == byte);
    }
}

TEST_CASE("Whole blocks agree with the vectors", "[quantize]") {
  for (const auto& row : load_vectors("block.json")["blocks"]) {
    if (row["fmt"] != "e4m3") continue;
    std::vector<float> x;
    for (const auto& bits : row["x_bits"]) x.push_back(float_of(bits));
    const Block block = quantized(x, row["mode"] == "rceil" ? ScalingMode::kRceil : ScalingMode::kFloor);
    INFO(row["case"] << " " << row["mode"]);
    CHECK(block.scale == row["scale"]);
    for (size_t i = 0; i < x.size(); ++i) CHECK(block.payload[i] == hex(row["codes"][i]));
  }
}

TEST_CASE("A 32x32 tile agrees with the vectors in all three layouts", "[quantize]") {
  const auto tile = load_vectors("block.json")["square32"];
  std::vector<uint16_t> x;
  for (const auto& bits : tile["x_bits_bf16hi"]) x.push_back(static_cast<uint16_t>(hex(bits)));
  const JaggedShape shape{{0, 32}, 1, 32};
  const JaggedScaleLayout atoms(shape.offsets, 1);

  const auto square = quantize_bf16(x, shape, BlockLayout::kSquare, ScalingMode::kRceil);
  CHECK(square.payload == hex_bytes(tile["square"]["codes"]));
  const auto rows = quantize_bf16(x, shape, BlockLayout::kAlongD, ScalingMode::kRceil);
  CHECK(rows.payload == hex_bytes(tile["row_1x32"]["codes"]));
  const auto columns = quantize_bf16(x, shape, BlockLayout::kAlongTokens, ScalingMode::kRceil);
  const auto codes = hex_bytes(tile["col_32x1"]["codes_colmajor"]);
  for (int i = 0; i < 32; ++i) {
    CHECK(square.scales_d[atoms.along_d(0, 0, i, 0)] == tile["square"]["scale"]);
    CHECK(square.scales_tokens[atoms.along_tokens(0, 0, 0, i)] == tile["square"]["scale"]);
    CHECK(rows.scales_d[atoms.along_d(0, 0, i, 0)] == tile["row_1x32"]["scales"][i]);
    CHECK(columns.scales_tokens[atoms.along_tokens(0, 0, 0, i)] == tile["col_32x1"]["scales"][i]);
    for (int j = 0; j < 32; ++j) CHECK(columns.payload[i * 32 + j] == codes[j * 32 + i]);
  }
}

TEST_CASE("mxq-zero-block: an all-zero block", "[quantize]") {
  const Block block = quantized(std::vector<float>(32, 0.0f));
  CHECK(block.scale == 0);
  CHECK(block.payload == std::vector<uint8_t>(32, 0));
}

TEST_CASE("mxq-mixed-subnormal: one normal value with 31 subnormals", "[quantize]") {
  const Block block = quantized(first_and_rest(0x1p-120f, 0x1p-131f));
  CHECK(block.scale == 0);
  CHECK(block.payload[0] == 0x70);
  CHECK(block.payload[1] == 0x18);
  CHECK(block.value(0) == 0x1p-120);
  CHECK(block.value(31) == 0x1p-131);
}

TEST_CASE("mxq-decode-code-255: scale 0xFF decodes to NaN in every element", "[quantize]") {
  const JaggedShape shape{{0, 1}, 1, 32};
  const std::vector<uint8_t> payload(32, 0x38), scales(512, 0xff);
  for (double value : dequantize(payload, scales, Orientation::kAlongD, shape)) CHECK(std::isnan(value));
}

TEST_CASE("mxq-inf: infinities saturate under the largest finite scale", "[quantize]") {
  std::vector<float> x(32, 1.0f);
  x[0] = kInf;
  x[1] = -kInf;
  const Block block = quantized(x);
  CHECK(block.scale == 0xfe);
  CHECK(block.payload[0] == 0x7e);
  CHECK(block.payload[1] == 0xfe);
  CHECK(std::count(block.payload.begin() + 2, block.payload.end(), 0) == 30);
  CHECK(std::isinf(static_cast<float>(block.value(0))));
}

TEST_CASE("mxq-rceil-957: RCEIL keeps the maximum, FLOOR clips it", "[quantize]") {
  const Block rceil = quantized(first_and_rest(957.0f, 0.0f));
  CHECK(rceil.scale == 0x81);
  CHECK(rceil.payload[0] == 0x77);
  CHECK(rceil.value(0) == 960.0);
  const Block floor = quantized(first_and_rest(957.0f, 0.0f), ScalingMode::kFloor);
  CHECK(floor.scale == 0x80);
  CHECK(floor.payload[0] == 0x7e);
  CHECK(floor.value(0) == 896.0);
}

TEST_CASE("mxq-exact-448: the largest element needs no larger scale", "[quantize]") {
  const Block block = quantized(first_and_rest(448.0f, 1.0f));
  CHECK(block.scale == 0x7f);
  CHECK(block.payload[0] == 0x7e);
  CHECK(std::count(block.payload.begin() + 1, block.payload.end(), 0x38) == 31);
}

TEST_CASE("A NaN element becomes NaN and leaves its block alone", "[quantize]") {
  const Block clean = quantized(first_and_rest(5.0f, 1.0f));
  std::vector<float> x = first_and_rest(5.0f, 1.0f);
  x[7] = std::nanf("");
  const Block block = quantized(x);
  CHECK(block.scale == clean.scale);
  CHECK(block.payload[7] == kE4m3Nan);
  for (size_t i : {0u, 6u, 8u, 31u}) CHECK(block.payload[i] == clean.payload[i]);
}

TEST_CASE("mxq-seq-axis-boundary: blocks along tokens never cross a sequence", "[quantize]") {
  const JaggedShape shape{{0, 17, 64}, 1, 128};
  std::vector<float> x(shape.elements(), 10000.0f);
  std::fill_n(x.begin(), 17 * 128, 1.0f);
  const auto tensor = quantize(x, shape, BlockLayout::kAlongTokens, ScalingMode::kRceil);
  const JaggedScaleLayout atoms(shape.offsets, 1);
  for (int d = 0; d < 128; ++d) {
    CHECK(tensor.scales_tokens[atoms.along_tokens(0, 0, 0, d)] == 0x77);
    CHECK(tensor.scales_tokens[atoms.along_tokens(0, 1, 0, d)] == 0x84);
    CHECK(tensor.scales_tokens[atoms.along_tokens(0, 1, 1, d)] == 0x84);
  }
  // Every other byte is padding.
  CHECK(std::count(tensor.scales_tokens.begin(), tensor.scales_tokens.end(), 0) == 2 * 512 - 3 * 128);
}

TEST_CASE("mxq-rowwise-colwise-square: a square block equals the square block of the transpose",
          "[quantize]") {
  const JaggedShape shape{{0, 32}, 1, 32};
  std::vector<float> x(1024), transposed(1024);
  for (int i = 0; i < 32; ++i)
    for (int j = 0; j < 32; ++j)
      transposed[j * 32 + i] = x[i * 32 + j] = std::ldexp(static_cast<float>(i + 1), j % 5);
  const auto a = quantize(x, shape, BlockLayout::kSquare, ScalingMode::kRceil);
  const auto b = quantize(transposed, shape, BlockLayout::kSquare, ScalingMode::kRceil);
  const JaggedScaleLayout atoms(shape.offsets, 1);
  for (int i = 0; i < 32; ++i) {
    CHECK(a.scales_d[atoms.along_d(0, 0, i, 0)] == 0x80);
    CHECK(a.scales_tokens[atoms.along_tokens(0, 0, 0, i)] == 0x80);
    for (int j = 0; j < 32; ++j) CHECK(a.payload[i * 32 + j] == b.payload[j * 32 + i]);
  }
  CHECK(dequantize(a.payload, a.scales_d, Orientation::kAlongD, shape) ==
        dequantize(a.payload, a.scales_tokens, Orientation::kAlongTokens, shape));
}
