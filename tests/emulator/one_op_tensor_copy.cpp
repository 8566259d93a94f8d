// Tensor copies (TMA) with every swizzle, in both directions.
#include "one_op_async.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;

// --------------------------------------------------------------------------------------------------
namespace {

struct Tensor {
  uint64_t columns = 40, rows = 20, pitch = 40;  // elements of 2 bytes
  uint32_t box_columns = 8, box_rows = 16;
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
};

CUtensorMap encode(Driver& cu, const Tensor& t, CUdeviceptr address) {
  alignas(64) CUtensorMap map;
  const cuuint64_t dims[2] = {t.columns, t.rows}, strides[1] = {t.pitch * 2};
  const cuuint32_t box[2] = {t.box_columns, t.box_rows}, ones[2] = {1, 1};
  REQUIRE(cu.cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 2, reinterpret_cast<void*>(address),
                                    dims, strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, t.swizzle,
                                    CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS);
  return map;
}

// Where byte `offset` of a box lies: 16-byte pieces are exchanged within rows of 128 bytes, by the number of
// the row (PTX ISA, "swizzling modes").
uint32_t swizzled(uint32_t offset, CUtensorMapSwizzle mode) {
  const uint32_t row = offset >> 7;
  switch (mode) {
    case CU_TENSOR_MAP_SWIZZLE_32B:
      return offset ^ (row & 1) << 4;
    case CU_TENSOR_MAP_SWIZZLE_64B:
      return offset ^ (row & 3) << 4;
    case CU_TENSOR_MAP_SWIZZLE_128B:
      return offset ^ (row & 7) << 4;
    default:
      return offset;
  }
}

uint16_t half(const std::vector<uint32_t>& words, size_t index) {
  return static_cast<uint16_t>(words[index / 2] >> (index % 2 * 16));
}

std::string pass_map(const std::string& reg) {
  return "  mov.b64 " + reg + ", map;\n  cvta.param.u64 " + reg + ", " + reg + ";\n";
}

}  // namespace

TEST_CASE("a tensor load places each element where its swizzle says, zeros outside the tensor", "[one_op]") {
  for (const auto& [swizzle, box_columns] :
       {std::pair(CU_TENSOR_MAP_SWIZZLE_NONE, 8u), std::pair(CU_TENSOR_MAP_SWIZZLE_NONE, 24u),
        std::pair(CU_TENSOR_MAP_SWIZZLE_32B, 16u), std::pair(CU_TENSOR_MAP_SWIZZLE_64B, 32u),
        std::pair(CU_TENSOR_MAP_SWIZZLE_128B, 64u)}) {
    for (const auto& [x, y] : {std::pair(0, 0), std::pair(8, 2), std::pair(-8, -3), std::pair(32, 15)}) {
      CAPTURE(swizzle, box_columns, x, y);
      Tensor t;
      t.swizzle = swizzle;
      t.box_columns = box_columns;
      Driver& cu = driver_for("sm_90");
      std::vector<uint16_t> elements(t.pitch * t.rows);
      for (size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<uint16_t>(i + 1);
      Buffer global(cu, elements);
      const CUtensorMap map = encode(cu, t, global.address());
      const uint32_t bytes = t.box_columns * t.box_rows * 2;
      const auto out = run_kernel(
          {kInit1 + pass_map("%w1") + "  mov.u32 %r1, dynamic;\n  @!%p18 bra ready;\n  mov.u32 %r2, " +
               std::to_string(x) + ";\n  mov.u32 %r3, " + std::to_string(y) +
               ";\n  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r80], " + std::to_string(bytes) +
               ";\n  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], "
               "[%w1, {%r2, %r3}], [%r80];\nready:\n" +
               wait("%r80", 0, "data") +
               "  mov.u32 %r4, %lane;\ncopy:\n  mad.lo.u32 %r5, %r4, 4, %r1;\n  ld.shared.u32 %r6, [%r5];\n"
               "  mad.wide.u32 %w2, %r4, 4, %out;\n  st.global.u32 [%w2], %r6;\n  add.u32 %r4, %r4, 32;\n  "
               "setp.lt.u32 %p1, %r4, " +
               std::to_string(bytes / 4) + ";\n  @%p1 bra copy;",
           kDynamic, "sm_90", 32, 1, 1, 8192},
          0, bytes / 4, &map);
      int wrong = 0;
      for (uint32_t row = 0; row < t.box_rows; ++row) {
        for (uint32_t column = 0; column < t.box_columns; ++column) {
          const int64_t global_row = y + static_cast<int>(row), global_column = x + static_cast<int>(column);
          const bool inside = global_row >= 0 && global_row < static_cast<int64_t>(t.rows) &&
                              global_column >= 0 && global_column < static_cast<int64_t>(t.columns);
          const uint16_t expected = inside ? elements[global_row * t.pitch + global_column] : 0;
          wrong += half(out, swizzled((row * t.box_columns + column) * 2, swizzle) / 2) != expected;
        }
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("a tensor store reads its swizzled box and writes only inside the tensor; a reduction adds",
          "[one_op]") {
  for (const bool add : {false, true}) {
    for (const auto& [swizzle, box_columns] :
         {std::pair(CU_TENSOR_MAP_SWIZZLE_NONE, 24u), std::pair(CU_TENSOR_MAP_SWIZZLE_32B, 16u),
          std::pair(CU_TENSOR_MAP_SWIZZLE_64B, 32u), std::pair(CU_TENSOR_MAP_SWIZZLE_128B, 64u)}) {
      if (add && swizzle != CU_TENSOR_MAP_SWIZZLE_128B) continue;
      CAPTURE(add, swizzle);
      Tensor t;
      t.swizzle = swizzle;
      t.box_columns = box_columns;
      Driver& cu = driver_for("sm_90");
      // For the sum the elements are f16: 1.0 in memory, small integers in the box.
      std::vector<uint16_t> before(t.pitch * (t.rows + 8), add ? 0x3c00 : 0x7777);
      Buffer global(cu, before);
      CUtensorMap map = encode(cu, t, global.address());
      if (add) {
        const cuuint64_t dims[2] = {t.columns, t.rows}, strides[1] = {t.pitch * 2};
        const cuuint32_t box[2] = {t.box_columns, t.box_rows}, ones[2] = {1, 1};
        REQUIRE(cu.cuTensorMapEncodeTiled(
                    &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, reinterpret_cast<void*>(global.address()), dims,
                    strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, t.swizzle,
                    CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS);
      }
      const uint32_t bytes = t.box_columns * t.box_rows * 2;
      std::vector<uint16_t> box_elements(bytes / 2);
      for (size_t i = 0; i < box_elements.size(); ++i)
        box_elements[i] = add ? 0x4000 : static_cast<uint16_t>(i + 1);  // 2.0
      Buffer source(cu, box_elements);
      const int x = 24, y = 10;  // PTX allows no negative start on the way to global memory
      run_kernel({kFirst + pass_map("%w1") +
                      "  mov.u32 %r1, dynamic;\n  mov.u32 %r4, %lane;\nfill:\n  mad.wide.u32 %w2, %r4, 4, "
                      "%in;\n  ld.global.u32 %r6, [%w2];\n"
                      "  mad.lo.u32 %r5, %r4, 4, %r1;\n  st.shared.u32 [%r5], %r6;\n  add.u32 %r4, %r4, "
                      "32;\n  setp.lt.u32 %p1, %r4, " +
                      std::to_string(bytes / 4) +
                      ";\n  @%p1 bra fill;\n  fence.proxy.async.shared::cta;\n  bar.warp.sync 0xffffffff;\n  "
                      "@!%p18 bra done;\n  mov.u32 %r2, " +
                      std::to_string(x) + ";\n  mov.u32 %r3, " + std::to_string(y) + ";\n  " +
                      (add ? "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group"
                           : "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group") +
                      " [%w1, {%r2, %r3}], [%r1];\n  cp.async.bulk.commit_group;\n  cp.async.bulk.wait_group "
                      "0;\ndone:",
                  kDynamic, "sm_90", 32, 1, 1, 8192},
                 source.address(), 1, &map);
      const auto after = global.read<uint16_t>();
      int wrong = 0;
      for (int64_t row = 0; row < static_cast<int64_t>(t.rows) + 8; ++row) {
        for (int64_t column = 0; column < static_cast<int64_t>(t.pitch); ++column) {
          const int64_t box_row = row - y, box_column = column - x;
          const bool written = row < static_cast<int64_t>(t.rows) &&
                               column < static_cast<int64_t>(t.columns) && box_row >= 0 &&
                               box_row < t.box_rows && box_column >= 0 && box_column < t.box_columns;
          uint16_t expected = before[row * t.pitch + column];
          if (written) {
            expected =
                add ? 0x4200
                    : box_elements[swizzled(static_cast<uint32_t>(box_row * t.box_columns + box_column) * 2,
                                            swizzle) /
                                   2];  // 1 + 2
          }
          wrong += after[row * t.pitch + column] != expected;
        }
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("a tensor load of three dimensions with element strides", "[one_op]") {
  Driver& cu = driver_for("sm_90");
  // 8 x 6 x 4 words, every second row.
  const auto elements = ramp(8 * 6 * 4);
  Buffer global(cu, elements);
  alignas(64) CUtensorMap map;
  const cuuint64_t dims[3] = {8, 6, 4}, strides[2] = {32, 192};
  const cuuint32_t box[3] = {4, 4, 2}, element_strides[3] = {1, 2, 1};
  REQUIRE(cu.cuTensorMapEncodeTiled(
              &map, CU_TENSOR_MAP_DATA_TYPE_UINT32, 3, reinterpret_cast<void*>(global.address()), dims,
              strides, box, element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
              CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS);
  // A box of 4 with stride 2 holds 2 rows.
  const uint32_t words = 4 * 2 * 2;
  const auto out =
      run_kernel({kInit1 + pass_map("%w1") +
                      "  mov.u32 %r1, dynamic;\n  @!%p18 bra ready;\n  mov.u32 %r2, 4;\n  mov.u32 %r3, 1;\n  "
                      "mov.u32 %r4, 2;\n"
                      "  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r80], 64;\n"
                      "  cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], "
                      "[%w1, {%r2, %r3, %r4}], [%r80];\nready:\n" +
                      wait("%r80", 0, "data") +
                      "  setp.lt.u32 %p1, %lane, 16;\n  mad.lo.u32 %r5, %lane, 4, %r1;\n  @%p1 ld.shared.u32 "
                      "%r6, [%r5];\n"
                      "  mad.wide.u32 %w2, %lane, 4, %out;\n  @%p1 st.global.u32 [%w2], %r6;",
                  kDynamic, "sm_90", 32, 1, 1, 1024},
                 0, words, &map);
  for (uint32_t z = 0; z < 2; ++z) {
    for (uint32_t y = 0; y < 2; ++y) {
      for (uint32_t x = 0; x < 4; ++x)
        CHECK(out[(z * 2 + y) * 4 + x] == elements[(2 + z) * 48 + (1 + 2 * y) * 8 + 4 + x]);
    }
  }
}
