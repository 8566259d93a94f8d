// The scale rule the kernels use, run on the host: against the exact vectors, and against its own definition.
#include "src/common/scale_factor.cuh"

#include <cmath>

#include "support/catch.hpp"
#include "support/vectors.hpp"

using namespace mxfa;
using mxfa::reference::hex;
using mxfa::reference::load_vectors;

namespace {
uint32_t ceil_byte(uint32_t amax) { return e4m3_scale_byte<ScaleRounding::kCeil>(amax); }
uint32_t floor_byte(uint32_t amax) { return e4m3_scale_byte<ScaleRounding::kFloor>(amax); }
}  // namespace

TEST_CASE("common/scale_factor: bytes and reciprocals of the test vectors", "[ptx]") {
  for (const auto& row : load_vectors("scale.json")) {
    const uint32_t amax = hex(row["amax_bits"]);
    if (amax > 0x7f800000) continue;  // a NaN never is a maximum
    // Two rows where the vectors hold another convention: infinity is byte 254 here (no scale may be NaN),
    // and one subnormal product of the hardware sequence differs from exact arithmetic by a byte.
    const uint32_t expected_floor = amax == 0x7f800000 ? 254 : row["e4m3"]["floor"].get<uint32_t>();
    const uint32_t expected_ceil = amax == 0x7f800000 ? 254 : row["e4m3"]["rceil_exact"].get<uint32_t>();
    INFO(row["amax_bits"]);
    CHECK(floor_byte(amax) == expected_floor);
    CHECK(ceil_byte(amax) == expected_ceil);
  }
}

TEST_CASE(
    "common/scale_factor: up is the smallest power of two that does not saturate, down the largest below",
    "[ptx]") {
  // Every exponent with mantissas on both sides of each threshold.
  for (uint32_t exponent = 0; exponent < 255; ++exponent) {
    for (uint32_t mantissa : {0u, 1u, 0x5fffffu, 0x600000u, 0x600001u, 0x7fffffu}) {
      const uint32_t bits = exponent << 23 | mantissa;
      const double amax = bits_float(bits);
      const int up = static_cast<int>(ceil_byte(bits)), down = static_cast<int>(floor_byte(bits));
      INFO(std::hex << bits);
      CHECK(amax <= std::ldexp(448.0, up - 127));
      if (up > 0) CHECK(amax > std::ldexp(448.0, up - 128));
      if (down > 0) CHECK(amax >= std::ldexp(256.0, down - 127));
      CHECK(amax < std::ldexp(512.0, down - 127));
    }
  }
}

TEST_CASE("common/scale_factor: the reciprocal is exact for every byte", "[ptx]") {
  for (uint32_t byte = 0; byte <= 254; ++byte) {
    CHECK(static_cast<double>(scale_reciprocal(byte)) == std::ldexp(1.0, 127 - static_cast<int>(byte)));
  }
}

TEST_CASE("common/scale_factor: the bytes of an atom", "[ptx]") {
  bool seen[kScaleAtomBytes] = {};
  for (uint32_t row = 0; row < kScaleAtomRows; ++row) {
    for (uint32_t block = 0; block < kScaleAtomBlocks; ++block) {
      const uint32_t byte = scale_atom_byte(row, block);
      REQUIRE(byte < kScaleAtomBytes);
      CHECK_FALSE(seen[byte]);
      seen[byte] = true;
    }
  }
  for (const auto& tensor : load_vectors("sf_layout.json")) {
    if (tensor["rows"] != 128 || tensor["k_blocks"] != 4) continue;
    for (const auto& point : tensor["points"]) {
      CHECK(scale_atom_byte(point[0].get<uint32_t>(), point[1].get<uint32_t>()) == point[2].get<uint32_t>());
    }
  }
}
