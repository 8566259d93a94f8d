// MXFA_EMU_CHECK at the driver: off, on, strict; errors fail the launch after it has run, advice does not.
#include <cstdlib>

#include "driver_table.hpp"
#include "hazard_harness.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;

namespace {

struct CheckMode {
  explicit CheckMode(const char* mode) {
    setenv("MXFA_EMU_CHECK", mode, 1);
    setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
  }
  ~CheckMode() {
    unsetenv("MXFA_EMU_CHECK");
    unsetenv("CUDA_LAUNCH_BLOCKING");
  }
};

// Two warps.  Warp 0 loads a box of 8 x 4 words with TMA, waits for it and stores the first word; `early`:
// warp 1 reads the box without a wait.  `again`: when warp 1 has read it, the box is loaded once more.
std::string kernel(bool early, bool again) {
  const auto load = [](const char* parity, const char* label) {
    return std::string(
               "  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 128;\n"
               "  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], "
               "[%w1, {%r3, %r3}], [%r2];\n") +
           label + ":\n  mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], " + parity + ";\n  @!%p1 bra " +
           label + ";\n";
  };
  return ptx_header("sm_90") +
         ptx_kernel(
             "k", ".param .align 64 .b8 map[128], .param .u64 out",
             "  .reg .b64 %w<4>;\n  .reg .b32 %r<10>;\n  .reg .pred %p<4>;\n"
             "  .shared .align 128 .b8 box[128];\n  .shared .align 8 .b64 full;\n"
             "  ld.param.u64 %w2, [out];\n  mov.b64 %w1, map;\n  cvta.param.u64 %w1, %w1;\n"
             "  mov.u32 %r1, box;\n  mov.u32 %r2, full;\n  mov.u32 %r3, 0;\n  mov.u32 %r4, %tid.x;\n"
             "  setp.ne.u32 %p2, %r4, 0;\n  @%p2 bra begin;\n  mbarrier.init.shared::cta.b64 [%r2], 1;\n"
             "  fence.mbarrier_init.release.cluster;\nbegin:\n  bar.sync 0;\n  @%p2 bra other;\n" +
                 load("0", "first") + "  ld.shared.u32 %r5, [%r1];\n  st.global.u32 [%w2], %r5;\nother:\n" +
                 (early ? "" : "  bar.sync 0;\n") + "  ld.shared.u32 %r6, [%r1];\n  bar.sync 0;\n" +
                 (again ? "  @%p2 bra done;\n" + load("1", "second") + "done:\n" : ""));
}

struct Outcome {
  CUresult code;
  uint32_t word = 0;
};
Outcome run(Driver& cu, const std::string& text) {
  std::vector<uint32_t> source(64, 11);
  Buffer in(cu, source), out(cu, 4);
  PtxModule module(cu, text);
  alignas(64) CUtensorMap map;
  const cuuint64_t dims[2] = {8, 8}, strides[1] = {32};
  const cuuint32_t box[2] = {8, 4}, ones[2] = {1, 1};
  REQUIRE(cu.cuTensorMapEncodeTiled(
              &map, CU_TENSOR_MAP_DATA_TYPE_UINT32, 2, reinterpret_cast<void*>(in.address()), dims, strides,
              box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
              CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS);
  CUdeviceptr address = out.address();
  void* parameters[] = {&map, &address};
  Outcome o;
  o.code = cu.cuLaunchKernel(module.function("k"), 1, 1, 1, 64, 1, 1, 0, nullptr, parameters, nullptr);
  if (o.code == CUDA_SUCCESS) o.word = out.read<uint32_t>()[0];
  return o;
}

}  // namespace

TEST_CASE("a race fails the launch with a report that names both accesses and the remedy",
          "[hazard][driver][emulator-only]") {
  Driver& cu = Driver::of("h200");
  for (const char* schedule : {"functional", "lazy", "random"}) {
    CAPTURE(schedule);
    setenv("MXFA_EMU_SCHEDULE", schedule, 1);
    {
      const CheckMode on("on");
      CHECK(run(cu, kernel(true, false)).code == CUDA_ERROR_LAUNCH_FAILED);
    }
    CHECK(
        mentions(cu.last_report(), {"CUDA_ERROR_LAUNCH_FAILED", "race-", "shared memory of cta 0", "(box)",
                                    "by a TMA load, cta 0 warp 0 lane 0", "cta 0 warp 1",
                                    "cp.async.bulk.tensor.2d", "ld.shared.u32 %r6", "missing:", "remedy:"}));
    cu.ready();
    const CheckMode on("on");
    CHECK(run(cu, kernel(false, false)).code == CUDA_SUCCESS);
  }
  unsetenv("MXFA_EMU_SCHEDULE");
}

TEST_CASE("without checks a kernel runs as it always did", "[hazard][driver][emulator-only]") {
  Driver& cu = Driver::of("h200");
  for (const char* mode : {"off", ""}) {
    const CheckMode off(mode);
    const Outcome o = run(cu, kernel(true, false));
    CHECK(o.code == CUDA_SUCCESS);
    CHECK(o.word == 11);
  }
}

TEST_CASE("what only the strict mode asks for is advice otherwise", "[hazard][driver][emulator-only]") {
  Driver& cu = Driver::of("h200");
  {
    const CheckMode on("on");
    CHECK(run(cu, kernel(false, true)).code == CUDA_SUCCESS);
    CHECK(mentions(cu.last_report(),
                   {"advice missing-proxy-fence-after-read", "fence.proxy.async.shared::cta"}));
  }
  {
    const CheckMode strict("strict");
    CHECK(run(cu, kernel(false, true)).code == CUDA_ERROR_LAUNCH_FAILED);
    CHECK(mentions(cu.last_report(), {"error missing-proxy-fence-after-read"}));
  }
  cu.ready();
}

TEST_CASE("an unknown mode of the checks is refused", "[hazard][driver][emulator-only]") {
  Driver& cu = Driver::of("h200");
  const CheckMode mode("sometimes");
  CHECK(run(cu, kernel(false, false)).code == CUDA_ERROR_INVALID_VALUE);
  CHECK(mentions(cu.last_report(), {"MXFA_EMU_CHECK", "sometimes", "off, on, strict"}));
}

TEST_CASE("memory of cuMemAlloc is read once a copy, a fill or a launch has written it",
          "[hazard][driver][emulator-only]") {
  Driver& cu = Driver::of("h200");
  // Words 0 and 1 of `from`, 4 bytes each, to `to`.
  const std::string text =
      ptx_header("sm_90") +
      ptx_kernel("k", ".param .u64 from, .param .u64 to",
                 "  .reg .b64 %w<4>;\n  .reg .b32 %r<4>;\n  ld.param.u64 %w1, [from];\n"
                 "  ld.param.u64 %w2, [to];\n  ld.global.u32 %r1, [%w1];\n  st.global.u32 [%w2], %r1;\n"
                 "  ld.global.u32 %r1, [%w1+4];\n  st.global.u32 [%w2+4], %r1;\n");
  const auto launch = [&](const PtxModule& module, CUdeviceptr from, CUdeviceptr to) {
    void* parameters[] = {&from, &to};
    return cu.cuLaunchKernel(module.function("k"), 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr);
  };
  const uint32_t words[2] = {1, 2};
  struct Fresh {  // a Buffer is filled
    Driver& cu;
    CUdeviceptr address = 0;
    explicit Fresh(Driver& driver) : cu(driver) { REQUIRE(cu.cuMemAlloc_v2(&address, 8) == CUDA_SUCCESS); }
    ~Fresh() { cu.cuMemFree_v2(address); }
  };
  {
    const CheckMode on("on");
    const Fresh from(cu), to(cu);
    const PtxModule module(cu, text);
    REQUIRE(cu.cuMemcpyHtoD_v2(from.address, words, 7) == CUDA_SUCCESS);
    CHECK(launch(module, from.address, to.address) == CUDA_ERROR_LAUNCH_FAILED);
    CHECK(mentions(cu.last_report(), {"error uninitialised-global-read", "is at byte 7 of allocation",
                                      "ld.global.u32 %r1, [%w1+4]", "remedy:"}));
  }
  cu.ready();
  const CheckMode on("on");
  const PtxModule module(cu, text);
  const Fresh from(cu), middle(cu), to(cu), other(cu);
  REQUIRE(cu.cuMemcpyHtoD_v2(from.address, words, 4) == CUDA_SUCCESS);
  REQUIRE(cu.cuMemsetD8_v2(from.address + 4, 0, 4) == CUDA_SUCCESS);
  CHECK(launch(module, from.address, middle.address) == CUDA_SUCCESS);
  CHECK(launch(module, middle.address, to.address) == CUDA_SUCCESS);
  uint32_t got[2] = {};
  REQUIRE(cu.cuMemcpyDtoH_v2(got, to.address, 8) == CUDA_SUCCESS);
  CHECK(got[0] == 1);
  CHECK(got[1] == 0);
  // Nobody has seen what a launch without checks writes: nothing is said from then on.
  setenv("MXFA_EMU_CHECK", "off", 1);
  CHECK(launch(module, from.address, other.address) == CUDA_SUCCESS);
  setenv("MXFA_EMU_CHECK", "on", 1);
  CHECK(launch(module, other.address, to.address) == CUDA_SUCCESS);
}

TEST_CASE("a report says what its warps are about, by the functions of the source", "[hazard]") {
  const auto at = [](int line, int name, int caller) {
    return "  .loc 1 " + std::to_string(line) + " 1, function_name $L__info_string" + std::to_string(name) +
           ", inlined_at 1 " + std::to_string(caller) + " 1\n";
  };
  const auto string = [](int number, const std::string& text) {
    std::string line = "$L__info_string" + std::to_string(number) + ":\n.b8 ";
    for (const char c : text) line += std::to_string(static_cast<int>(c)) + ", ";
    return line + "0\n";
  };
  // run() calls produce() or consume(), and those put() or get().
  const mxfa::test::HazardKernel k{
      {at(50, 0, 90) + at(20, 1, 50) + at(5, 3, 20) + mxfa::test::kStoreTile + at(52, 0, 90),
       at(51, 0, 90) + at(30, 2, 51) + at(7, 4, 30) + mxfa::test::kLoadTile}};
  const std::string text = mxfa::test::hazard_text(k) + ".file 1 \"k.cu\"\n.section .debug_str {\n" +
                           string(0, "_ZN2ns3runEv") + string(1, "_ZN2ns7produceEv") +
                           string(2, "_ZN2ns5Reads7consumeEv") + string(3, "_Z3putv") + string(4, "_Z3getv") +
                           "}\n";
  const auto result = mxfa::test::check_text(text, k, {});
  INFO(result.report);
  CHECK(mentions(result.report, {"write, cta 0 warp 0 lane 0 in produce, k.cu:5 in put, inlined at k.cu:20",
                                 "read, cta 0 warp 1 lane 0 in Reads::consume, k.cu:7 in get"}));
}
