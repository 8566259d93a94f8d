// Asynchronous instructions: mbarriers, bulk copies, tensor copies with every swizzle, cp.async.
#include <algorithm>
#include <cmath>

#include "one_op.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;

namespace {

std::vector<uint32_t> ramp(size_t words, uint32_t first = 1) {
  std::vector<uint32_t> values(words);
  for (size_t i = 0; i < words; ++i) values[i] = first + static_cast<uint32_t>(i);
  return values;
}

// One thread waits for a parity; labels carry a name so that a body may wait more than once.
std::string wait(const std::string& barrier, int parity, const std::string& name) {
  return "wait_" + name + ":\n  mbarrier.try_wait.parity.shared::cta.b64 %p19, [" + barrier + "], " + std::to_string(parity) + ";\n  @!%p19 bra wait_" +
         name + ";\n";
}

const std::string kGate = "  .shared .align 8 .b64 gate;\n  mov.u32 %r80, gate;\n";
const std::string kFirst = "  setp.eq.u32 %p18, %thread, 0;\n";
const std::string kInit1 = kGate + kFirst + "  @%p18 mbarrier.init.shared::cta.b64 [%r80], 1;\n  fence.mbarrier_init.release.cluster;\n  bar.sync 0;\n";
const std::string kDynamic = ".extern .shared .align 1024 .b8 dynamic[];\n";

}  // namespace

// ---- mbarrier --------------------------------------------------------------------------------------------------
TEST_CASE("an mbarrier phase ends with its last arrival and the parity flips", "[one_op]") {
  // Two phases of three arrivals; the state before, after two, after three arrivals, and of the next phase.
  const std::string test = "  mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r80], 0;\n  mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r80], 1;\n"
                           "  selp.u32 %r1, 1, 0, %p1;\n  selp.u32 %r2, 1, 0, %p2;\n  st.global.v2.u32 [%out], {%r1, %r2};\n  add.u64 %out, %out, 8;\n";
  const std::string arrive = "  mbarrier.arrive.shared::cta.b64 %w1, [%r80];\n";
  const auto out = run_kernel({kGate + "  mbarrier.init.shared::cta.b64 [%r80], 3;\n" + test + arrive + arrive + test + arrive + test + arrive + arrive +
                               arrive + test, "", "sm_90", 1}, {}, 8);
  // Phase 0 is running: parity 1 (the phase before) counts as complete.
  CHECK(out == std::vector<uint32_t>{0, 1, 0, 1, 1, 0, 0, 1});
}

TEST_CASE("arrive returns the phase it counted in, and its pending count", "[one_op]") {
  const auto out = run_kernel({kGate + "  mbarrier.init.shared::cta.b64 [%r80], 3;\n  mbarrier.arrive.shared::cta.b64 %w1, [%r80];\n"
                               "  mbarrier.arrive.shared::cta.b64 %w2, [%r80], 2;\n  mbarrier.test_wait.shared::cta.b64 %p1, [%r80], %w1;\n"
                               "  mbarrier.arrive.shared::cta.b64 %w3, [%r80];\n  mbarrier.test_wait.shared::cta.b64 %p2, [%r80], %w3;\n"
                               "  mbarrier.pending_count.b64 %r1, %w1;\n  mbarrier.pending_count.b64 %r2, %w2;\n  selp.u32 %r3, 1, 0, %p1;\n"
                               "  selp.u32 %r4, 1, 0, %p2;\n  st.global.v4.u32 [%out], {%r1, %r2, %r3, %r4};", "", "sm_90", 1}, {}, 4);
  CHECK(out == std::vector<uint32_t>{3, 2, 1, 0});   // the counts before each arrival
}

TEST_CASE("every thread of a CTA arrives and every thread sees the phase end", "[one_op]") {
  const auto out = run_kernel({kGate + "  .shared .align 4 .b32 sum;\n" + kFirst +
                               "  @%p18 mbarrier.init.shared::cta.b64 [%r80], 96;\n  @%p18 st.shared.u32 [sum], 0;\n  bar.sync 0;\n"
                               "  red.shared.add.u32 [sum], %thread;\n  mbarrier.arrive.shared::cta.b64 _, [%r80];\n" + wait("%r80", 0, "all") +
                               "  ld.shared.u32 %r1, [sum];\n  mad.wide.u32 %w1, %thread, 4, %out;\n  st.global.u32 [%w1], %r1;", "", "sm_90", 96}, {}, 96);
  for (const uint32_t value : out) CHECK(value == 95 * 96 / 2);
}

TEST_CASE("arrive.drop lowers the count of later phases", "[one_op]") {
  const auto out = run_kernel({kGate + "  mbarrier.init.shared::cta.b64 [%r80], 2;\n  mbarrier.arrive_drop.shared::cta.b64 %w1, [%r80];\n"
                               "  mbarrier.arrive.shared::cta.b64 %w1, [%r80];\n  mbarrier.arrive.shared::cta.b64 %w1, [%r80];\n"   // ends phase 1 alone
                               "  mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r80], 1;\n  selp.u32 %r1, 1, 0, %p1;\n  st.global.u32 [%out], %r1;",
                               "", "sm_90", 1}, {}, 1);
  CHECK(out[0] == 1);
}

TEST_CASE("an mbarrier of another CTA of the cluster can be arrived at", "[one_op]") {
  const auto out = run_kernel({kGate + kFirst + "  @%p18 mbarrier.init.shared::cta.b64 [%r80], 2;\n  fence.mbarrier_init.release.cluster;\n"
                               "  barrier.cluster.arrive;\n  barrier.cluster.wait;\n  mov.u32 %r1, 0;\n  mapa.shared::cluster.u32 %r2, %r80, %r1;\n"
                               "  @%p18 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r2];\n  mov.u32 %r3, %cluster_ctarank;\n"
                               "  setp.ne.u32 %p2, %r3, 0;\n  @%p2 bra done;\n" + wait("%r80", 0, "both") + "  st.global.u32 [%out], 1;\ndone:\n"
                               "  barrier.cluster.arrive;\n  barrier.cluster.wait;", "", "sm_90", 32, 2, 2}, {}, 1);
  CHECK(out[0] == 1);
}

// ---- bulk copies -------------------------------------------------------------------------------------------------
TEST_CASE("cp.async.bulk brings bytes in and completes its mbarrier", "[one_op]") {
  const auto in = ramp(64);
  const auto out = run_kernel({kInit1 + "  .shared .align 16 .b8 box[256];\n  mov.u32 %r1, box;\n  @!%p18 bra ready;\n"
                               "  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r80], 256;\n"
                               "  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%in], 256, [%r80];\nready:\n" + wait("%r80", 0, "data") +
                               "  mad.lo.u32 %r2, %lane, 8, %r1;\n  ld.shared.v2.u32 {%r3, %r4}, [%r2];\n  mad.wide.u32 %w1, %lane, 8, %out;\n"
                               "  st.global.v2.u32 [%w1], {%r3, %r4};"}, in, 64);
  CHECK(out == in);
}

TEST_CASE("a phase with bytes ends only when the bytes have come", "[one_op]") {
  const auto out = run_kernel({kInit1 + "  .shared .align 16 .b8 box[32];\n  mov.u32 %r1, box;\n  @!%p18 bra done;\n"
                               "  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r80], 32;\n  mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r80], 0;\n"
                               "  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%in], 16, [%r80];\n"
                               "  nanosleep.u32 100000;\n  mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r80], 0;\n"
                               "  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+16], [%in+16], 16, [%r80];\n" + wait("%r80", 0, "rest") +
                               "  selp.u32 %r2, 1, 0, %p1;\n  selp.u32 %r3, 1, 0, %p2;\n  ld.shared.u32 %r4, [box+28];\n  st.global.u32 [%out], %r2;\n"
                               "  st.global.u32 [%out+4], %r3;\n  st.global.u32 [%out+8], %r4;\ndone:"}, ramp(8), 3);
  CHECK(out == std::vector<uint32_t>{0, 0, 8});
}

TEST_CASE("cp.async.bulk stores shared memory, and its source may be reused after wait_group.read", "[one_op]") {
  const auto out = run_kernel({kFirst + "  .shared .align 16 .b8 box[128];\n  mov.u32 %r1, box;\n  mad.lo.u32 %r2, %lane, 4, %r1;\n  add.u32 %r3, %lane, 7;\n"
                               "  st.shared.u32 [%r2], %r3;\n  fence.proxy.async.shared::cta;\n  bar.warp.sync 0xffffffff;\n  @!%p18 bra done;\n"
                               "  cp.async.bulk.global.shared::cta.bulk_group [%out], [%r1], 128;\n  cp.async.bulk.commit_group;\n"
                               "  cp.async.bulk.wait_group.read 0;\n  st.shared.u32 [%r1], 0;\n  cp.async.bulk.wait_group 0;\ndone:"}, {}, 32);
  for (uint32_t i = 0; i < 32; ++i) CHECK(out[i] == i + 7);
}

TEST_CASE("cp.reduce.async.bulk combines shared memory into global memory", "[one_op]") {
  struct Row { const char* form; uint32_t start, operand, expected; };
  for (const Row& row : {Row{"add.u32", 100, 7, 107}, {"add.s32", 100, 0xfffffff9, 93}, {"min.u32", 100, 7, 7}, {"max.s32", 100, 0xfffffff9, 100},
                         {"and.b32", 0xff0, 0x0ff, 0x0f0}, {"or.b32", 0xf00, 0x00f, 0xf0f}, {"xor.b32", 0xff0, 0x0ff, 0xf0f},
                         {"add.f32", 0x3f800000, 0x40000000, 0x40400000}, {"add.noftz.f16", 0x3c003c00, 0x40003c00, 0x42004000},
                         {"add.noftz.bf16", 0x3f803f80, 0x40003f80, 0x40404000}}) {
    CAPTURE(row.form);
    const auto out = run_kernel({kFirst + "  .shared .align 16 .b8 box[16];\n  mov.u32 %r1, box;\n  @!%p18 bra done;\n  ld.global.v2.u32 {%r2, %r3}, [%in];\n"
                                 "  st.global.v4.u32 [%out], {%r2, %r2, %r2, %r2};\n  st.shared.v4.u32 [%r1], {%r3, %r3, %r3, %r3};\n"
                                 "  fence.proxy.async;\n  cp.reduce.async.bulk.global.shared::cta.bulk_group." + std::string(row.form) +
                                 " [%out], [%r1], 16;\n  cp.async.bulk.commit_group;\n  cp.async.bulk.wait_group 0;\ndone:"},
                                {row.start, row.operand}, 4);
    for (const uint32_t value : out) CHECK(value == row.expected);
  }
}

TEST_CASE("a multicast bulk copy lands in every CTA of its mask", "[one_op]") {
  const auto out = run_kernel({kGate + kFirst + "  .shared .align 16 .b8 box[64];\n  mov.u32 %r1, box;\n  @%p18 mbarrier.init.shared::cta.b64 [%r80], 1;\n"
                               "  @%p18 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r80], 64;\n  fence.mbarrier_init.release.cluster;\n"
                               "  barrier.cluster.arrive;\n  barrier.cluster.wait;\n  mov.u32 %r2, %cluster_ctarank;\n  setp.eq.u32 %p1, %r2, 0;\n"
                               "  and.pred %p1, %p1, %p18;\n  mov.u16 %h1, 3;\n"
                               "  @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r1], [%in], 64, [%r80], %h1;\n" +
                               wait("%r80", 0, "data") + "  and.b32 %r5, %lane, 15;\n  mad.lo.u32 %r3, %r5, 4, %r1;\n  ld.shared.u32 %r4, [%r3];\n"
                               "  mad.lo.u32 %r6, %cta, 16, %r5;\n  mad.wide.u32 %w1, %r6, 4, %out;\n  st.global.u32 [%w1], %r4;\n"
                               "  barrier.cluster.arrive;\n  barrier.cluster.wait;", "", "sm_90", 32, 2, 2}, ramp(16), 32);
  for (uint32_t i = 0; i < 32; ++i) CHECK(out[i] == 1 + i % 16);
}

TEST_CASE("st.async writes a neighbour and completes its mbarrier", "[one_op]") {
  const auto out = run_kernel({kGate + kFirst + "  .shared .align 16 .b8 box[16];\n  mov.u32 %r1, box;\n  @%p18 mbarrier.init.shared::cta.b64 [%r80], 1;\n"
                               "  @%p18 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r80], 16;\n  fence.mbarrier_init.release.cluster;\n"
                               "  barrier.cluster.arrive;\n  barrier.cluster.wait;\n  mov.u32 %r2, %cluster_ctarank;\n  xor.b32 %r3, %r2, 1;\n"
                               "  mapa.shared::cluster.u32 %r4, %r1, %r3;\n  mapa.shared::cluster.u32 %r5, %r80, %r3;\n  add.u32 %r6, %r2, 50;\n"
                               "  @%p18 st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.u32 [%r4], {%r6, %r6, %r6, %r2}, [%r5];\n" +
                               wait("%r80", 0, "data") + "  ld.shared.v4.u32 {%r7, %r8, %r9, %r10}, [%r1];\n  mad.wide.u32 %w1, %cta, 16, %out;\n"
                               "  st.global.v4.u32 [%w1], {%r7, %r8, %r9, %r10};\n  barrier.cluster.arrive;\n  barrier.cluster.wait;", "", "sm_90", 32, 2, 2},
                              {}, 8);
  CHECK(out == std::vector<uint32_t>{51, 51, 51, 1, 50, 50, 50, 0});
}

TEST_CASE("cp.async copies 4, 8 and 16 bytes and fills the rest with zeros", "[one_op]") {
  const auto out = run_kernel({kFirst + "  .shared .align 16 .b8 box[64];\n  mov.u32 %r1, box;\n  @!%p18 bra done;\n  mov.u32 %r2, 0xffffffff;\n"
                               "  st.shared.v4.u32 [%r1], {%r2, %r2, %r2, %r2};\n  st.shared.v4.u32 [%r1+16], {%r2, %r2, %r2, %r2};\n"
                               "  st.shared.v4.u32 [%r1+32], {%r2, %r2, %r2, %r2};\n  cp.async.ca.shared.global [%r1], [%in], 4;\n"
                               "  cp.async.ca.shared.global [%r1+8], [%in+8], 8;\n  cp.async.commit_group;\n  cp.async.cg.shared.global [%r1+16], [%in+16], 16;\n"
                               "  mov.u32 %r3, 8;\n  cp.async.cg.shared.global [%r1+32], [%in+32], 16, %r3;\n  cp.async.commit_group;\n  cp.async.wait_group 1;\n"
                               "  cp.async.wait_all;\n  ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r1];\n  st.global.v4.u32 [%out], {%r4, %r5, %r6, %r7};\n"
                               "  ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r1+16];\n  st.global.v4.u32 [%out+16], {%r4, %r5, %r6, %r7};\n"
                               "  ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r1+32];\n  st.global.v4.u32 [%out+32], {%r4, %r5, %r6, %r7};\ndone:"}, ramp(12), 12);
  CHECK(out == std::vector<uint32_t>{1, 0xffffffff, 3, 4, 5, 6, 7, 8, 9, 10, 0, 0});
}

TEST_CASE("cp.async can arrive at an mbarrier", "[one_op]") {
  const auto out = run_kernel({kGate + kFirst + "  .shared .align 16 .b8 box[128];\n  mov.u32 %r1, box;\n  @%p18 mbarrier.init.shared::cta.b64 [%r80], 32;\n  bar.sync 0;\n"
                               "  mad.lo.u32 %r2, %lane, 4, %r1;\n  mad.wide.u32 %w1, %lane, 4, %in;\n  cp.async.ca.shared.global [%r2], [%w1], 4;\n"
                               "  cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r80];\n" + wait("%r80", 0, "data") +
                               "  sub.u32 %r3, 31, %lane;\n  mad.lo.u32 %r4, %r3, 4, %r1;\n  ld.shared.u32 %r5, [%r4];\n  mad.wide.u32 %w2, %lane, 4, %out;\n"
                               "  st.global.u32 [%w2], %r5;"}, ramp(32), 32);
  for (uint32_t i = 0; i < 32; ++i) CHECK(out[i] == 32 - i);
}

// ---- tensor copies --------------------------------------------------------------------------------------------------
namespace {

struct Tensor {
  uint64_t columns = 40, rows = 20, pitch = 40;      // elements of 2 bytes
  uint32_t box_columns = 8, box_rows = 16;
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
};

CUtensorMap encode(Driver& cu, const Tensor& t, CUdeviceptr address) {
  alignas(64) CUtensorMap map;
  const cuuint64_t dims[2] = {t.columns, t.rows}, strides[1] = {t.pitch * 2};
  const cuuint32_t box[2] = {t.box_columns, t.box_rows}, ones[2] = {1, 1};
  REQUIRE(cu.cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 2, reinterpret_cast<void*>(address), dims, strides, box, ones,
                                    CU_TENSOR_MAP_INTERLEAVE_NONE, t.swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS);
  return map;
}

// Where byte `offset` of a box lies: 16-byte pieces are exchanged within rows of 128 bytes, by the number of the row (PTX ISA, "swizzling modes").
uint32_t swizzled(uint32_t offset, CUtensorMapSwizzle mode) {
  const uint32_t row = offset >> 7;
  switch (mode) {
    case CU_TENSOR_MAP_SWIZZLE_32B: return offset ^ (row & 1) << 4;
    case CU_TENSOR_MAP_SWIZZLE_64B: return offset ^ (row & 3) << 4;
    case CU_TENSOR_MAP_SWIZZLE_128B: return offset ^ (row & 7) << 4;
    default: return offset;
  }
}

uint16_t half(const std::vector<uint32_t>& words, size_t index) { return static_cast<uint16_t>(words[index / 2] >> (index % 2 * 16)); }

std::string pass_map(const std::string& reg) { return "  mov.b64 " + reg + ", map;\n  cvta.param.u64 " + reg + ", " + reg + ";\n"; }

}  // namespace

TEST_CASE("a tensor load places each element where its swizzle says, zeros outside the tensor", "[one_op]") {
  for (const auto& [swizzle, box_columns] : {std::pair(CU_TENSOR_MAP_SWIZZLE_NONE, 8u), std::pair(CU_TENSOR_MAP_SWIZZLE_NONE, 24u),
                                             std::pair(CU_TENSOR_MAP_SWIZZLE_32B, 16u), std::pair(CU_TENSOR_MAP_SWIZZLE_64B, 32u),
                                             std::pair(CU_TENSOR_MAP_SWIZZLE_128B, 64u)}) {
    for (const auto& [x, y] : {std::pair(0, 0), std::pair(3, 2), std::pair(-5, -3), std::pair(30, 15)}) {
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
      const auto out = run_kernel({kInit1 + pass_map("%w1") + "  mov.u32 %r1, dynamic;\n  @!%p18 bra ready;\n  mov.u32 %r2, " + std::to_string(x) + ";\n  mov.u32 %r3, " +
                                   std::to_string(y) + ";\n  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r80], " + std::to_string(bytes) +
                                   ";\n  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%w1, {%r2, %r3}], [%r80];\nready:\n" +
                                   wait("%r80", 0, "data") + "  mov.u32 %r4, %lane;\ncopy:\n  mad.lo.u32 %r5, %r4, 4, %r1;\n  ld.shared.u32 %r6, [%r5];\n"
                                   "  mad.wide.u32 %w2, %r4, 4, %out;\n  st.global.u32 [%w2], %r6;\n  add.u32 %r4, %r4, 32;\n  setp.lt.u32 %p1, %r4, " +
                                   std::to_string(bytes / 4) + ";\n  @%p1 bra copy;", kDynamic, "sm_90", 32, 1, 1, 8192},
                                  0, bytes / 4, &map);
      int wrong = 0;
      for (uint32_t row = 0; row < t.box_rows; ++row) {
        for (uint32_t column = 0; column < t.box_columns; ++column) {
          const int64_t global_row = y + static_cast<int>(row), global_column = x + static_cast<int>(column);
          const bool inside = global_row >= 0 && global_row < static_cast<int64_t>(t.rows) && global_column >= 0 && global_column < static_cast<int64_t>(t.columns);
          const uint16_t expected = inside ? elements[global_row * t.pitch + global_column] : 0;
          wrong += half(out, swizzled((row * t.box_columns + column) * 2, swizzle) / 2) != expected;
        }
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("a tensor store reads its swizzled box and writes only inside the tensor; a reduction adds", "[one_op]") {
  for (const bool add : {false, true}) {
    for (const auto& [swizzle, box_columns] : {std::pair(CU_TENSOR_MAP_SWIZZLE_NONE, 24u), std::pair(CU_TENSOR_MAP_SWIZZLE_32B, 16u),
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
        REQUIRE(cu.cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, reinterpret_cast<void*>(global.address()), dims, strides, box, ones,
                                          CU_TENSOR_MAP_INTERLEAVE_NONE, t.swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                          CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS);
      }
      const uint32_t bytes = t.box_columns * t.box_rows * 2;
      std::vector<uint16_t> box_elements(bytes / 2);
      for (size_t i = 0; i < box_elements.size(); ++i) box_elements[i] = add ? 0x4000 : static_cast<uint16_t>(i + 1);   // 2.0
      Buffer source(cu, box_elements);
      const int x = 20, y = -2;
      run_kernel({kFirst + pass_map("%w1") + "  mov.u32 %r1, dynamic;\n  mov.u32 %r4, %lane;\nfill:\n  mad.wide.u32 %w2, %r4, 4, %in;\n  ld.global.u32 %r6, [%w2];\n"
                  "  mad.lo.u32 %r5, %r4, 4, %r1;\n  st.shared.u32 [%r5], %r6;\n  add.u32 %r4, %r4, 32;\n  setp.lt.u32 %p1, %r4, " + std::to_string(bytes / 4) +
                  ";\n  @%p1 bra fill;\n  fence.proxy.async.shared::cta;\n  bar.warp.sync 0xffffffff;\n  @!%p18 bra done;\n  mov.u32 %r2, " + std::to_string(x) +
                  ";\n  mov.u32 %r3, " + std::to_string(y) + ";\n  " +
                  (add ? "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group" : "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group") +
                  " [%w1, {%r2, %r3}], [%r1];\n  cp.async.bulk.commit_group;\n  cp.async.bulk.wait_group 0;\ndone:", kDynamic, "sm_90", 32, 1, 1, 8192},
                 source.address(), 1, &map);
      const auto after = global.read<uint16_t>();
      int wrong = 0;
      for (int64_t row = 0; row < static_cast<int64_t>(t.rows) + 8; ++row) {
        for (int64_t column = 0; column < static_cast<int64_t>(t.pitch); ++column) {
          const int64_t box_row = row - y, box_column = column - x;
          const bool written = row < static_cast<int64_t>(t.rows) && column < static_cast<int64_t>(t.columns) && box_row >= 0 && box_row < t.box_rows &&
                               box_column >= 0 && box_column < t.box_columns;
          uint16_t expected = before[row * t.pitch + column];
          if (written) {
            expected = add ? 0x4200 : box_elements[swizzled(static_cast<uint32_t>(box_row * t.box_columns + box_column) * 2, swizzle) / 2];   // 1 + 2
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
  REQUIRE(cu.cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_UINT32, 3, reinterpret_cast<void*>(global.address()), dims, strides, box, element_strides,
                                    CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS);
  // A box of 4 with stride 2 holds 2 rows.
  const uint32_t words = 4 * 2 * 2;
  const auto out = run_kernel({kInit1 + pass_map("%w1") + "  mov.u32 %r1, dynamic;\n  @!%p18 bra ready;\n  mov.u32 %r2, 4;\n  mov.u32 %r3, 1;\n  mov.u32 %r4, 2;\n"
                               "  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r80], 64;\n"
                               "  cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%w1, {%r2, %r3, %r4}], [%r80];\nready:\n" +
                               wait("%r80", 0, "data") + "  setp.lt.u32 %p1, %lane, 16;\n  mad.lo.u32 %r5, %lane, 4, %r1;\n  @%p1 ld.shared.u32 %r6, [%r5];\n"
                               "  mad.wide.u32 %w2, %lane, 4, %out;\n  @%p1 st.global.u32 [%w2], %r6;", kDynamic, "sm_90", 32, 1, 1, 1024}, 0, words, &map);
  for (uint32_t z = 0; z < 2; ++z) {
    for (uint32_t y = 0; y < 2; ++y) {
      for (uint32_t x = 0; x < 4; ++x) CHECK(out[(z * 2 + y) * 4 + x] == elements[(2 + z) * 48 + (1 + 2 * y) * 8 + 4 + x]);
    }
  }
}
