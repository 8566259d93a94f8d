// Encoding and decoding of BF16, E4M3 and UE8M0 against tables made with exact rational arithmetic.
#include "reference/formats.hpp"

#include <bit>
#include <cmath>

#include "support/catch.hpp"
#include "support/vectors.hpp"

using namespace mxfa::reference;

TEST_CASE("E4M3 encoding agrees with the conversion vectors", "[formats]") {
  for (const auto& row : load_vectors("convert.json")) {
    INFO("x bits " << row["x_bits"]);
    CHECK(e4m3_from_double(float_of(row["x_bits"])) == hex(row["e4m3"]));
  }
}

TEST_CASE("E4M3 encoding agrees with the instruction-set vectors", "[formats]") {
  for (const auto& row : load_vectors("blackwell_isa.json")["cvt_reference"]["f32"]) {
    INFO("x bits " << row["in"]);
    const float x = float_of(row["in"]);
    // The vectors keep the sign of a NaN, which is not specified.
    const int mask = std::isnan(x) ? 0x7f : 0xff;
    CHECK((e4m3_from_double(x) & mask) == (row["e4m3_rn_satfinite"].get<int>() & mask));
  }
}

TEST_CASE("E4M3 and UE8M0 codes decode to their values", "[formats]") {
  const auto tables = load_vectors("decode.json");
  for (int code = 0; code < 256; ++code) {
    INFO("code " << code);
    const auto same = [](const nlohmann::json& want, double got) {
      return want.is_string() ? std::isnan(got) : want.get<double>() == got;
    };
    CHECK(same(tables["e4m3"][code], e4m3_to_double(static_cast<uint8_t>(code))));
    CHECK(same(tables["e8m0"][code], ue8m0_to_double(static_cast<uint8_t>(code))));
  }
}

TEST_CASE("Every finite E4M3 code survives decoding and encoding", "[formats]") {
  for (int code = 0; code < 256; ++code)
    if ((code & 0x7f) != 0x7f) CHECK(e4m3_from_double(e4m3_to_double(static_cast<uint8_t>(code))) == code);
}

TEST_CASE("BF16 is the upper half of FP32, rounded to nearest even", "[formats]") {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const auto bits = static_cast<uint16_t>(code);
    const auto value = std::bit_cast<float>(code << 16);
    if (std::isnan(value)) {
      REQUIRE(std::isnan(bf16_to_double(bits)));
      continue;
    }
    REQUIRE(bf16_to_double(bits) == value);
    REQUIRE(bf16_from_double(value) == bits);
    if (!std::isfinite(value)) continue;
    // Halfway to the next code: the even one of the two; the largest finite one goes to infinity.
    const double halfway = std::bit_cast<float>(code << 16 | 0x8000u);
    REQUIRE(bf16_from_double(halfway) == bits + (bits & 1));
    REQUIRE(bf16_from_double(std::bit_cast<float>(code << 16 | 0x8001u)) == bits + 1);
    REQUIRE(bf16_from_double(std::bit_cast<float>(code << 16 | 0x7fffu)) == bits);
  }
  CHECK(bf16_from_double(1e300) == 0x7f80);
  CHECK(bf16_from_double(std::nan("")) == kBf16Nan);
}
