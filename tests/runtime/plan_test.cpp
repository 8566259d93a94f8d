#include "host/plan.hpp"

#include "runtime/sequences.hpp"
#include "support/catch.hpp"
#include "support/vectors.hpp"

using namespace mxfa;
using Catch::Matchers::Equals;
using mxfa::test::Contains;

namespace {

Sequences read(const std::vector<int32_t>& offsets) {
  return read_sequences("offsets_k", int32_t(offsets.size()) - 1, offsets.data());
}

}  // namespace

TEST_CASE("Malformed offsets are refused with the value and its position", "[plan]") {
  CHECK_THROWS_WITH(read({0, 10, 6, 20}),
                    Equals("offsets_k: index 2 is 6, after 10; offsets must not decrease"));
  CHECK_THROWS_WITH(read({1, 2}), Equals("offsets_k: index 0 is 1; offsets begin with 0"));
  CHECK_THROWS_WITH(read({0, -1}), Contains("index 1 is -1, after 0"));
  CHECK_THROWS_WITH(read_sequences("offsets_q", 2, nullptr),
                    Contains("offsets_q is null") && Contains("batch + 1 = 3"));
  CHECK_THROWS_WITH(read_sequences("offsets_q", -1, nullptr), Contains("batch is -1"));
  CHECK_THROWS_WITH(read({0, 5, (1 << 30) + 6}),
                    Contains("sequence 1 has 1073741825 tokens; the limit is 1073741824"));
  CHECK_THROWS_WITH(read({0, 1 << 30, INT32_MAX}),
                    Contains("2147483647 rows") || Contains("the total is 2147483647"));
  // 2^24 sequences of one token take 2^31 rows when each is padded to 128.
  std::vector<int32_t> many((1 << 24) + 1);
  for (size_t i = 0; i < many.size(); ++i) many[i] = int32_t(i);
  CHECK_THROWS_WITH(read(many), Contains("each padded to 128"));
}

TEST_CASE("Empty sequences and an empty batch are legal", "[plan]") {
  CHECK(read({0, 0, 0, 5, 5}).total() == 5);
  CHECK(read({0, 0, 0, 5, 5}).scale_rows() == 128);
  CHECK(read_sequences("offsets_q", 0, nullptr).total() == 0);
}

TEST_CASE("The caller's array is copied", "[plan]") {
  std::vector<int32_t> offsets = {0, 7};
  const Sequences sequences = read(offsets);
  offsets[1] = 1000;
  CHECK(sequences.total() == 7);
}

TEST_CASE("Scale offsets, sizes and addresses agree with the zero-gather vectors", "[plan]") {
  const auto vectors = reference::load_vectors("jagged.json");
  for (const auto& entry : vectors["offsets"]) {
    const Sequences sequences = mxfa::test::sequences_of(entry["lengths"].get<std::vector<int32_t>>());
    CHECK(sequences.offsets == entry["cu_seqlens"].get<std::vector<int32_t>>());
    CHECK(sequences.scale_offsets == entry["cu_seqlens_sf"].get<std::vector<int32_t>>());
    CHECK(sequences.total() == entry["total_tokens"]);
    CHECK(sequences.scale_rows() == entry["padded_tokens"]);
    CHECK(mxfa_scale_rows(sequences.batch(), sequences.offsets.data()) == entry["padded_tokens"]);
    const int32_t heads = entry["heads"];
    CHECK(uint64_t(heads) * sequences.scale_rows() * 4 == entry["sf_bytes_per_orientation"]);
    // The tile of 128 tokens that the header promises for a point holds both of its scale bytes.
    for (const auto& point : entry["points_[h,b,t,d,packed_row,hdim_off,seq_off]"]) {
      const int64_t h = point[0], b = point[1], t = point[2], d = point[3];
      CHECK(sequences.offsets[b] + t == point[4]);
      const int64_t atom = h * (sequences.scale_rows() / 128) + sequences.scale_offsets[b] / 128 + t / 128;
      const int64_t token = t % 128;
      CHECK(atom * 512 + token % 32 * 16 + token / 32 * 4 + d / 32 == point[5]);
      CHECK(atom * 512 + d % 32 * 16 + d / 32 * 4 + token / 32 == point[6]);
    }
  }
}

TEST_CASE("Pieces of the workspace are 256-byte aligned", "[plan]") {
  WorkspaceImage image;
  CHECK(image.add(std::vector<int32_t>{1, 2, 3}) == 0);
  CHECK(image.add(std::vector<int32_t>(64, 7)) == 256);
  CHECK(image.add(std::vector<int32_t>(65, 7)) == 512);
  CHECK(image.bytes().size() == 1024);
  CHECK(image.bytes()[8] == 3);
}

TEST_CASE("Invalid offsets give -1 scale rows", "[plan]") {
  const int32_t bad[] = {0, 5, 3};
  CHECK(mxfa_scale_rows(2, bad) == -1);
}
