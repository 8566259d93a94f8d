// Scale addresses: the published tiling, jagged starts, both orientations.
#include "reference/scale_layout.hpp"

#include <set>

#include "reference/quantize.hpp"
#include "support/catch.hpp"
#include "support/vectors.hpp"

using namespace mxfa::reference;

TEST_CASE("128x4 tiling agrees with the layout vectors", "[scale_layout]") {
  for (const auto& matrix : load_vectors("sf_layout.json")) {
    const int64_t columns = matrix["k_blocks"];
    CHECK(scale_bytes(matrix["rows"], columns) == matrix["bytes"].get<int64_t>());
    for (const auto& point : matrix["points"])
      CHECK(scale_offset(point[0], point[1], columns) == point[2].get<int64_t>());
  }
}

TEST_CASE("128x4 tiling agrees with the instruction-set vectors", "[scale_layout]") {
  const auto vectors = load_vectors("blackwell_isa.json");
  for (const auto& point : vectors["sf_gmem"]) {
    const int64_t columns = point["K"].get<int64_t>() / 32;
    CHECK(scale_offset(point["m"], point["k"].get<int64_t>() / 32, columns) ==
          point["offset"].get<int64_t>());
  }
  for (const auto& point : vectors["sf_atom"])
    CHECK(scale_offset(point["m"], point["kblock"], kAtomColumns) == point["byte_in_512B"].get<int64_t>());
}

TEST_CASE("sf-index-probes: byte positions in the 128x4 scale tile", "[scale_layout]") {
  CHECK(scale_offset(0, 0, 4) == 0);
  CHECK(scale_offset(32, 0, 4) == 4);
  CHECK(scale_offset(127, 3, 4) == 511);
  CHECK(scale_offset(0, 4, 8) == 512);
  CHECK(scale_offset(99, 5, 6) == 573);
}

TEST_CASE("sf-roundtrip-rows-100: 100 rows x 6 columns take 1024 bytes, each scale its own",
          "[scale_layout]") {
  CHECK(scale_bytes(100, 6) == 1024);
  std::vector<uint8_t> packed(1024, 0);
  for (int row = 0; row < 100; ++row)
    for (int column = 0; column < 6; ++column)
      packed.at(scale_offset(row, column, 6)) = static_cast<uint8_t>(row * 7 + column);
  for (int row = 0; row < 100; ++row)
    for (int column = 0; column < 6; ++column)
      CHECK(packed[scale_offset(row, column, 6)] == static_cast<uint8_t>(row * 7 + column));
}

TEST_CASE("mxq-zero-length-offsets: scale starts of empty sequences", "[scale_layout]") {
  CHECK(scale_starts(std::vector<int32_t>{0, 0, 5, 5, 135, 135}) ==
        std::vector<int32_t>{0, 0, 128, 128, 384, 384});
}

TEST_CASE("Jagged scale addresses agree with the vectors in both orientations", "[scale_layout]") {
  for (const auto& jagged : load_vectors("jagged.json")["offsets"]) {
    const auto offsets = jagged["cu_seqlens"].get<std::vector<int32_t>>();
    const JaggedScaleLayout layout(offsets, jagged["heads"]);
    CHECK(scale_starts(offsets) == jagged["cu_seqlens_sf"].get<std::vector<int32_t>>());
    CHECK(layout.rows() == jagged["padded_tokens"].get<int64_t>());
    CHECK(layout.bytes() == jagged["sf_bytes_per_orientation"].get<int64_t>());
    for (const auto& p : jagged["points_[h,b,t,d,packed_row,hdim_off,seq_off]"]) {
      const int head = p[0], sequence = p[1], token = p[2], channel = p[3];
      CHECK(offsets[sequence] + token == p[4].get<int>());
      CHECK(layout.along_d(head, sequence, token, channel / 32) == p[5].get<int64_t>());
      CHECK(layout.along_tokens(head, sequence, token / 32, channel) == p[6].get<int64_t>());
    }
  }
}

TEST_CASE("No two scales of a jagged tensor share a byte, and a tile's atoms share their number",
          "[scale_layout]") {
  const std::vector<int32_t> offsets{0, 1, 1, 130, 386};
  const JaggedScaleLayout layout(offsets, 3);
  std::set<int64_t> along_d, along_tokens;
  size_t count_d = 0, count_tokens = 0;
  for (int head = 0; head < 3; ++head)
    for (int b = 0; b < 4; ++b)
      for (int t = 0; t < offsets[b + 1] - offsets[b]; ++t) {
        for (int block = 0; block < 4; ++block, ++count_d) along_d.insert(layout.along_d(head, b, t, block));
        if (t % 32 == 0)
          for (int d = 0; d < 128; ++d, ++count_tokens)
            along_tokens.insert(layout.along_tokens(head, b, t / 32, d));
        CHECK(layout.along_d(head, b, t, 0) / kAtomBytes ==
              layout.along_tokens(head, b, t / 32, 0) / kAtomBytes);
      }
  CHECK(along_d.size() == count_d);
  CHECK(along_tokens.size() == count_tokens);
  CHECK(*along_d.rbegin() < layout.bytes());
  CHECK(*along_tokens.rbegin() < layout.bytes());
}

TEST_CASE("Filling the padding of a scale tensor leaves every scale in place", "[scale_layout]") {
  const JaggedShape shape{{0, 33, 33, 162}, 2, 96};
  std::vector<float> x(shape.elements(), 3.0f);
  for (const auto orientation : {Orientation::kAlongD, Orientation::kAlongTokens}) {
    const bool along_d = orientation == Orientation::kAlongD;
    const QuantizedTensor tensor =
        quantize(x, shape, along_d ? BlockLayout::kAlongD : BlockLayout::kAlongTokens, ScalingMode::kRceil);
    std::vector<uint8_t> scales = along_d ? tensor.scales_d : tensor.scales_tokens;
    fill_scale_padding(scales, orientation, shape, 0xff);
    CHECK(dequantize(tensor.payload, scales, orientation, shape) == dequantize(tensor));
    // One scale for every token and 32 channels; or every channel and 32 tokens, the last block short.
    const int64_t live = along_d ? 162 * 2 * 3 : (2 + 5) * 2 * 96;
    CHECK(std::count(scales.begin(), scales.end(), 0xff) == static_cast<int64_t>(scales.size()) - live);
  }
}
