#include "host/tensor_map.hpp"

#include "support/catch.hpp"

using namespace mxfa;

namespace {

// What the copy engine does (CUDA Driver API, tensor map object): an element is out of bounds when a
// coordinate leaves its dimension; else its address is the base plus the sum of coordinate times stride,
// modulo 2^64.
struct Element {
  bool inside;
  uint64_t address;
};
Element locate(const TensorMapRequest& map, const int64_t (&at)[5], uint64_t element_bytes) {
  Element element{true, map.address + uint64_t(at[0]) * element_bytes};
  for (int i = 0; i < 5; ++i) element.inside &= at[i] >= 0 && uint64_t(at[i]) < map.dims[i];
  for (int i = 1; i < 5; ++i) element.address += uint64_t(at[i]) * map.strides[i - 1];
  return element;
}

}  // namespace

TEST_CASE("A ragged map reaches exactly the rows of the sequence it is told", "[tensor_map]") {
  const int32_t first = 384, length = 257, heads = 3, head_dim = 128;
  for (const bool bf16 : {true, false}) {
    const uint64_t element = bf16 ? 2 : 1, base = 0x7f0000001000;
    const int64_t stride = (heads * head_dim + 64) * element;
    const TensorMapRequest map = ragged_request({base, head_dim, heads, stride, bf16, 128});
    for (const int64_t row : {-1, 0, 1, 127, 255, 256, 257, 258, 511}) {
      // Coordinates as kernel_abi.hpp states them.
      const Element found = locate(map, {5, 2, (1 << 30) - length + row, 1 << 30, first + length}, element);
      CHECK(found.inside == (row < length));
      CHECK(found.address == base + uint64_t(first + row) * stride + 2 * head_dim * element + 5 * element);
    }
  }
}

TEST_CASE("A ragged map holds for the longest sequence and the last token", "[tensor_map]") {
  const TensorMapRequest map = ragged_request({0x1000, 64, 1, 128, true, 128});
  const int64_t length = 1 << 30, first = INT32_MAX - 1 - length;
  CHECK(locate(map, {0, 0, (1 << 30) - length, 1 << 30, first + length}, 2).inside);
  CHECK(locate(map, {0, 0, (1 << 30) - 1, 1 << 30, first + length}, 2).address ==
        0x1000 + uint64_t(first + length - 1) * 128);
  CHECK_FALSE(locate(map, {0, 0, 1 << 30, 1 << 30, first + length}, 2).inside);
}

TEST_CASE("Request fields obey the encoder's limits", "[tensor_map]") {
  for (const int32_t head_dim : {64, 128})
    for (const bool bf16 : {true, false})
      for (const int64_t row_stride : {int64_t{head_dim}, (int64_t{1} << 34) - 16}) {
        const TensorMapRequest map = ragged_request({0x1000, head_dim, 1, row_stride, bf16, 32});
        for (const auto dim : map.dims) CHECK((dim > 0 && dim <= (uint64_t{1} << 32)));
        for (const auto stride : map.strides)
          CHECK((stride % 16 == 0 && stride > 0 && stride < (uint64_t{1} << 40)));
        for (const auto box : map.box) CHECK((box > 0 && box <= 256));
        const uint64_t box_bytes = map.box[0] * (bf16 ? 2 : 1);
        CHECK(box_bytes == (head_dim * (bf16 ? 2 : 1) == 64 ? 64u : 128u));
        CHECK(map.swizzle == (box_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B));
        CHECK(map.box[2] == 32);
        CHECK(map.type == (bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_UINT8));
      }
}
