// What cuTensorMapEncodeTiled takes and refuses.  Expected answers are those of an H200 with the driver of
// CUDA 13.0, but for forms that the CPU driver lacks.
#include <functional>

#include "driver_table.hpp"
#include "support/catch.hpp"

using mxfa::test::Driver;

namespace {

struct Arguments {  // bf16, 128 rows of 64 elements in a 64x64 box
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  unsigned rank = 2;
  uint64_t address = 0x700000000000;
  cuuint64_t dims[5] = {64, 128, 4, 4, 4};
  cuuint64_t strides[4] = {128, 16384, 65536, 65536};
  cuuint32_t box[5] = {64, 64, 1, 1, 1};
  cuuint32_t element_strides[5] = {1, 1, 1, 1, 1};
  CUtensorMapInterleave interleave = CU_TENSOR_MAP_INTERLEAVE_NONE;
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
  CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_NONE;
  CUtensorMapFloatOOBfill fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
};

struct Row {
  const char* what;
  std::function<void(Arguments&)> change;
  CUresult expected;
};

constexpr CUresult kTaken = CUDA_SUCCESS, kRefused = CUDA_ERROR_INVALID_VALUE;

const Row kRows[] = {
    {"the plain case", [](Arguments&) {}, kTaken},
    {"rank 0", [](Arguments& a) { a.rank = 0; }, kRefused},
    {"rank 1", [](Arguments& a) { a.rank = 1; }, kTaken},
    {"rank 5", [](Arguments& a) { a.rank = 5; }, kTaken},
    {"rank 6", [](Arguments& a) { a.rank = 6; }, kRefused},
    {"a base that is not a multiple of 16", [](Arguments& a) { a.address += 8; }, kRefused},
    {"an empty dimension", [](Arguments& a) { a.dims[1] = 0; }, kRefused},
    {"2^32 elements", [](Arguments& a) { a.dims[1] = 1ull << 32; }, kTaken},
    {"more than 2^32 elements", [](Arguments& a) { a.dims[1] = (1ull << 32) + 1; }, kRefused},
    {"a stride that is not a multiple of 16", [](Arguments& a) { a.strides[0] = 136; }, kRefused},
    {"rows that overlap", [](Arguments& a) { a.strides[0] = 64; }, kTaken},
    {"stride 0", [](Arguments& a) { a.strides[0] = 0; }, kTaken},
    {"the largest stride", [](Arguments& a) { a.strides[0] = (1ull << 40) - 16; }, kTaken},
    {"stride 2^40", [](Arguments& a) { a.strides[0] = 1ull << 40; }, kRefused},
    {"an empty box", [](Arguments& a) { a.box[1] = 0; }, kRefused},
    {"box 256", [](Arguments& a) { a.box[1] = 256; }, kTaken},
    {"box 257", [](Arguments& a) { a.box[1] = 257; }, kRefused},
    {"a box wider than the swizzle", [](Arguments& a) { a.box[0] = 72; }, kRefused},
    {"an inner box of 126 bytes", [](Arguments& a) { a.box[0] = 63; }, kRefused},
    {"an inner box of 8 bytes",
     [](Arguments& a) {
       a.swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
       a.box[0] = 4;
     },
     kRefused},
    {"an inner box of 16 bytes",
     [](Arguments& a) {
       a.swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
       a.box[0] = 8;
     },
     kTaken},
    {"32 bytes in a 32-byte swizzle",
     [](Arguments& a) {
       a.swizzle = CU_TENSOR_MAP_SWIZZLE_32B;
       a.box[0] = 16;
     },
     kTaken},
    {"64 bytes in a 32-byte swizzle",
     [](Arguments& a) {
       a.swizzle = CU_TENSOR_MAP_SWIZZLE_32B;
       a.box[0] = 32;
     },
     kRefused},
    {"element stride 0", [](Arguments& a) { a.element_strides[1] = 0; }, kRefused},
    {"element stride 8", [](Arguments& a) { a.element_strides[1] = 8; }, kTaken},
    {"element stride 9", [](Arguments& a) { a.element_strides[1] = 9; }, kRefused},
    {"a swizzle that does not exist", [](Arguments& a) { a.swizzle = static_cast<CUtensorMapSwizzle>(99); },
     kRefused},
    {"a type that does not exist", [](Arguments& a) { a.type = static_cast<CUtensorMapDataType>(99); },
     kRefused},
    {"a promotion that does not exist",
     [](Arguments& a) { a.promotion = static_cast<CUtensorMapL2promotion>(9); }, kRefused},
    {"NaN fill of bf16", [](Arguments& a) { a.fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA; },
     kTaken},
    {"NaN fill of bytes",
     [](Arguments& a) {
       a.type = CU_TENSOR_MAP_DATA_TYPE_UINT8;
       a.fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA;
     },
     kRefused},
    {"a box of 233472 bytes, the shared memory of an SM",
     [](Arguments& a) {
       a.swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
       a.rank = 3;
       a.box[0] = 256;
       a.box[1] = 228;
       a.box[2] = 2;
     },
     kTaken},
    {"a box of 234496 bytes",
     [](Arguments& a) {
       a.swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
       a.rank = 3;
       a.box[0] = 256;
       a.box[1] = 229;
       a.box[2] = 2;
     },
     kRefused},
    {"a box larger than the tensor", [](Arguments& a) { a.dims[1] = 3; }, kTaken},
};

CUresult encode(Driver& cu, CUtensorMap* map, const Arguments& a) {
  return cu.cuTensorMapEncodeTiled(map, a.type, a.rank, reinterpret_cast<void*>(a.address), a.dims, a.strides,
                                   a.box, a.element_strides, a.interleave, a.swizzle, a.promotion, a.fill);
}

}  // namespace

TEST_CASE("tensor maps are checked as the driver of an H200 checks them", "[driver]") {
  Driver& cu = Driver::of("h200");
  for (const Row& row : kRows) {
    CAPTURE(row.what);
    Arguments arguments;
    row.change(arguments);
    alignas(64) CUtensorMap map;
    CHECK(encode(cu, &map, arguments) == row.expected);
  }
  CHECK(encode(cu, nullptr, {}) == kRefused);
}

TEST_CASE("a refused tensor map is left as it was",
          "[driver][emulator-only]") {  // a real driver may write it
  Driver& cu = Driver::of("b200");
  alignas(64) CUtensorMap map;
  for (auto& word : map.opaque) word = 0x1122334455667788;
  Arguments arguments;
  arguments.box[1] = 257;
  REQUIRE(encode(cu, &map, arguments) == kRefused);
  for (auto word : map.opaque) CHECK(word == 0x1122334455667788);
}

TEST_CASE("only an encoded tensor map can get a new address", "[driver][emulator-only]") {
  Driver& cu = Driver::of("b200");
  alignas(64) CUtensorMap map{};
  CHECK(cu.cuTensorMapReplaceAddress(&map, reinterpret_cast<void*>(0x1000)) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(encode(cu, &map, {}) == CUDA_SUCCESS);
  CHECK(cu.cuTensorMapReplaceAddress(&map, reinterpret_cast<void*>(0x1008)) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cu.cuTensorMapReplaceAddress(&map, reinterpret_cast<void*>(0x1000)) == CUDA_SUCCESS);
}

TEST_CASE("tensor map forms that the CPU driver lacks are refused by name", "[driver][emulator-only]") {
  Driver& cu = Driver::of("b200");
  alignas(64) CUtensorMap map{};
  Arguments arguments;
  arguments.rank = 3;
  arguments.swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
  arguments.interleave = CU_TENSOR_MAP_INTERLEAVE_16B;
  CHECK(encode(cu, &map, arguments) == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(mxfa::test::mentions(cu.last_report(), {"interleave"}));
}
