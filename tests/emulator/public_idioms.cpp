// What public kernels that run on hardware rely on, though the letter of the PTX ISA promises less.
#include "one_op.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;

namespace {

std::vector<uint32_t> run(const Kernel& kernel, size_t words, const char* schedule) {
  setenv("MXFA_EMU_SCHEDULE", schedule, 1);
  auto out = run_kernel(kernel, std::vector<uint32_t>{}, words);
  unsetenv("MXFA_EMU_SCHEDULE");
  return out;
}

}  // namespace

// Turns of two warpgroups: the first gives itself the first turn (bar.arrive), then waits for it (bar.sync).
// A barrier with a count counts threads, not different warps.
TEST_CASE("a warp may arrive at a named barrier and wait for the same phase", "[one_op]") {
  if (!can_run("sm_90")) return;
  const std::string body =
      "  .shared .align 8 .b32 box;\n  mov.u32 %r90, box;\n  mov.u32 %r1, 0;\n  setp.gt.u32 %p1, %warp, 0;\n"
      "  @%p1 bra second;\n  bar.arrive 1, 64;\n"
      "first:\n  bar.sync 1, 64;\n  add.u32 %r2, %r1, 10;\n  st.shared.u32 [%r90], %r2;\n"
      "  bar.arrive 2, 64;\n  add.u32 %r1, %r1, 1;\n  setp.lt.u32 %p2, %r1, 5;\n  @%p2 bra first;\n"
      "  bra done;\n"
      "second:\n  bar.sync 2, 64;\n  ld.shared.u32 %r3, [%r90];\n  mad.wide.u32 %w1, %r1, 4, %out;\n"
      "  st.global.u32 [%w1], %r3;\n  add.u32 %r1, %r1, 1;\n  setp.lt.u32 %p2, %r1, 5;\n"
      "  @%p2 bar.arrive 1, 64;\n  @%p2 bra second;\ndone:\n";
  for (const char* schedule : {"functional", "lazy", "random"})
    CHECK(run({body, "", "sm_90", 64}, 5, schedule) == std::vector<uint32_t>{10, 11, 12, 13, 14});
}

// The device keeps the shared memory of a CTA until its bulk stores have read it.
TEST_CASE("a CTA may end while its bulk stores read shared memory", "[one_op]") {
  if (!can_run("sm_90")) return;
  const std::string body =
      "  .shared .align 16 .b8 box[128];\n  mov.u32 %r90, box;\n  mad.lo.u32 %r1, %thread, 4, %r90;\n"
      "  mad.lo.u32 %r2, %cta, 100, %thread;\n  st.shared.u32 [%r1], %r2;\n"
      "  fence.proxy.async.shared::cta;\n  bar.sync 0;\n  setp.ne.u32 %p1, %thread, 0;\n  @%p1 bra done;\n"
      "  mad.wide.u32 %w1, %cta, 128, %out;\n"
      "  cp.async.bulk.global.shared::cta.bulk_group [%w1], [%r90], 128;\n  cp.async.bulk.commit_group;\n"
      "done:\n";
  std::vector<uint32_t> expected;
  for (uint32_t cta = 0; cta < 2; ++cta)
    for (uint32_t t = 0; t < 32; ++t) expected.push_back(100 * cta + t);
  for (const char* schedule : {"functional", "lazy", "random"})
    CHECK(run({body, "", "sm_90", 32, 2}, 64, schedule) == expected);
}

// CUTLASS's epilogues let all lanes of a warp issue one TMA store.
TEST_CASE("a TMA store that a whole warp issues is one store", "[one_op][emulator-only]") {
  if (!can_run("sm_90")) return;
  Driver& driver = driver_for("sm_90");
  const std::string body =
      "  .shared .align 128 .b8 box[128];\n  mov.u32 %r90, box;\n  mad.lo.u32 %r1, %thread, 4, %r90;\n"
      "  st.shared.u32 [%r1], %thread;\n  fence.proxy.async.shared::cta;\n  bar.sync 0;\n  mov.u32 %r2, 0;\n"
      "  mov.b64 %w1, map;\n  cvta.param.u64 %w1, %w1;\n"
      "  cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%w1, {%r2}], [%r90];\n"
      "  cp.async.bulk.commit_group;\n  cp.async.bulk.wait_group 0;\n";
  const Buffer target(driver, 128);
  CUtensorMap map;
  const cuuint64_t dims[] = {32}, strides[] = {0};
  const cuuint32_t box[] = {32}, steps[] = {1};
  REQUIRE(driver.cuTensorMapEncodeTiled(
              &map, CU_TENSOR_MAP_DATA_TYPE_INT32, 1, reinterpret_cast<void*>(target.address()), dims,
              strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
              CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS);
  uint64_t before[8], after[8];
  driver.counters(before);
  run_kernel({body, "", "sm_90"}, CUdeviceptr{0}, 1, &map);
  driver.counters(after);
  std::vector<uint32_t> expected(32);
  for (uint32_t t = 0; t < 32; ++t) expected[t] = t;
  CHECK(target.read<uint32_t>() == expected);
  CHECK(after[5] - before[5] == 128);  // bytes of TMA
}
