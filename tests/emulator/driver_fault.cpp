// Kernels that go wrong: what is reported, and that the error sticks to the context.
#include <cstdio>
#include <cstdlib>

#include "driver_table.hpp"
#include "support/catch.hpp"

using mxfa::test::Driver;
using mxfa::test::mentions;
using mxfa::test::ptx_header;
using mxfa::test::ptx_kernel;
using mxfa::test::PtxModule;

namespace {

// A module that is never unloaded: after a fault nothing of the context works, and the reset takes it.
CUfunction spoil(Driver& cu, const std::string& body) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  const std::string ptx =
      ptx_header("sm_90") + ptx_kernel("culprit", ".param .u64 p",
                                       "  .reg .b64 %rd<4>;\n  .reg .b32 %r<4>;\n"
                                       "  .reg .pred %q<2>;\n  ld.param.u64 %rd1, [p];\n" +
                                           body);
  INFO(ptx);
  REQUIRE(cu.cuModuleLoadData(&module, ptx.c_str()) == CUDA_SUCCESS);
  REQUIRE(cu.cuModuleGetFunction(&function, module, "culprit") == CUDA_SUCCESS);
  return function;
}

CUresult run(Driver& cu, const std::string& body, CUdeviceptr argument, unsigned threads = 32) {
  CUfunction function = spoil(cu, body);
  void* parameters[] = {&argument};
  // As on hardware the launch succeeds and the next call knows.
  REQUIRE(cu.cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, 0, nullptr, parameters, nullptr) ==
          CUDA_SUCCESS);
  return cu.cuCtxSynchronize();
}

}  // namespace

TEST_CASE("a store outside every allocation is an illegal address with its place",
          "[driver][emulator-only]") {
  Driver& cu = Driver::of("b200");
  CUdeviceptr address = 0;
  REQUIRE(cu.cuMemAlloc_v2(&address, 64) == CUDA_SUCCESS);
  CHECK(run(cu,
            "  mov.u32 %r1, %tid.x;\n  mul.wide.u32 %rd2, %r1, 4;\n  add.s64 %rd3, %rd1, %rd2;\n  "
            "st.global.u32 [%rd3], %r1;",
            address) == CUDA_ERROR_ILLEGAL_ADDRESS);
  char end[32];
  std::snprintf(end, sizeof end, "%#llx", static_cast<unsigned long long>(address + 64));
  CHECK(mentions(cu.last_report(), {"ILLEGAL_ADDRESS", "culprit", "st.global.u32", "lane 16", end}));
  cu.ready();
}

TEST_CASE("an error sticks until the context is reset", "[driver][emulator-only]") {
  Driver& cu = Driver::of("b200");
  REQUIRE(run(cu, "  st.global.u32 [%rd1], 0;", 0x10000) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CUdeviceptr memory = 0;
  CUmodule module = nullptr;
  CUstream stream = nullptr;
  CUcontext context = nullptr;
  int value = 0;
  CHECK(cu.cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(cu.cuMemAlloc_v2(&memory, 16) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(cu.cuMemFree_v2(0) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(cu.cuStreamCreate(&stream, 0) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(cu.cuModuleLoadData(&module, (ptx_header("sm_90") + ptx_kernel("k", "", "")).c_str()) ==
        CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(cu.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0) ==
        CUDA_SUCCESS);  // not of the context
  CHECK(cu.cuCtxGetCurrent(&context) == CUDA_SUCCESS);
  REQUIRE(cu.cuDevicePrimaryCtxReset_v2(0) == CUDA_SUCCESS);
  CHECK(cu.cuMemAlloc_v2(&memory, 16) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
  cu.ready();
  CHECK(cu.cuCtxSynchronize() == CUDA_SUCCESS);
}

TEST_CASE("a misaligned load is a misaligned address", "[driver][emulator-only]") {
  Driver& cu = Driver::of("b200");
  CUdeviceptr address = 0;
  REQUIRE(cu.cuMemAlloc_v2(&address, 64) == CUDA_SUCCESS);
  CHECK(run(cu, "  ld.global.u32 %r1, [%rd1+2];\n  st.global.u32 [%rd1], %r1;", address) ==
        CUDA_ERROR_MISALIGNED_ADDRESS);
  cu.ready();
}

TEST_CASE("shared memory ends where it ends", "[driver][emulator-only]") {
  Driver& cu = Driver::of("b200");
  CHECK(run(cu, "  mov.u32 %r1, 1000000;\n  st.shared.u32 [%r1], %r1;", 0) == CUDA_ERROR_ILLEGAL_ADDRESS);
  cu.ready();
}

TEST_CASE("trap stops the kernel", "[driver][emulator-only]") {
  Driver& cu = Driver::of("b200");
  CHECK(run(cu, "  trap;", 0) != CUDA_SUCCESS);
  CHECK(mentions(cu.last_report(), {"trap"}));
  cu.ready();
}

TEST_CASE("a wait that nobody can end is reported, not waited for", "[driver][emulator-only]") {
  Driver& cu = Driver::of("b200");
  const std::string body =
      "  .shared .align 8 .b64 gate;\n  mov.u32 %r1, gate;\n  mbarrier.init.shared::cta.b64 [%r1], 1;\n"
      "again:\n  mbarrier.try_wait.parity.shared::cta.b64 %q1, [%r1], 0;\n  @%q1 bra done;\n  bra "
      "again;\ndone:";
  CHECK(run(cu, body, 0, 1) == CUDA_ERROR_LAUNCH_TIMEOUT);
  CHECK(mentions(cu.last_report(), {"culprit", "mbarrier"}));
  cu.ready();
}

TEST_CASE("a barrier that some threads never reach is reported", "[driver][emulator-only]") {
  Driver& cu = Driver::of("b200");
  const std::string body =
      "  mov.u32 %r1, %tid.x;\n  setp.ge.u32 %q1, %r1, 32;\n  @%q1 bra skip;\n  bar.sync 3, 96;\nskip:";
  CHECK(run(cu, body, 0, 64) != CUDA_SUCCESS);
  CHECK(mentions(cu.last_report(), {"culprit", "96"}));
  cu.ready();
}

TEST_CASE("CUDA_LAUNCH_BLOCKING=1 makes the launch itself answer", "[driver][emulator-only]") {
  Driver& cu = Driver::of("b200");
  CUfunction function = spoil(cu, "  st.global.u32 [%rd1], 0;");
  CUdeviceptr nowhere = 0x10000;
  void* parameters[] = {&nowhere};
  setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
  CHECK(cu.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr) ==
        CUDA_ERROR_ILLEGAL_ADDRESS);
  unsetenv("CUDA_LAUNCH_BLOCKING");
  cu.ready();
}

TEST_CASE("an instruction the CPU driver lacks is refused by name and place when it is reached",
          "[driver][emulator-only]") {
  Driver& cu = Driver::of("h200");
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  const std::string ptx = ptx_header("sm_90") +
                          ptx_kernel("culprit", "", "  .reg .b32 %r<3>;\n  vadd.s32.s32.s32 %r1, %r2, %r2;");
  REQUIRE(cu.cuModuleLoadData(&module, ptx.c_str()) == CUDA_SUCCESS);
  REQUIRE(cu.cuModuleGetFunction(&function, module, "culprit") == CUDA_SUCCESS);
  REQUIRE(cu.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr) == CUDA_SUCCESS);
  CHECK(cu.cuCtxSynchronize() == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(mentions(cu.last_report(), {"vadd.s32.s32.s32", "culprit", "PTX line 7, column 3: vadd"}));
  cu.ready();
}

TEST_CASE("a tensor copy that starts between multiples of 16 bytes is an illegal instruction",
          "[driver][emulator-only]") {
  Driver& cu = Driver::of("h200");
  CUdeviceptr memory = 0;
  REQUIRE(cu.cuMemAlloc_v2(&memory, 4096) == CUDA_SUCCESS);
  alignas(64) CUtensorMap map;
  const cuuint64_t dims[2] = {40, 20}, strides[1] = {80};
  const cuuint32_t box[2] = {8, 16}, ones[2] = {1, 1};
  REQUIRE(cu.cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 2, reinterpret_cast<void*>(memory),
                                    dims, strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                    CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS);
  const std::string ptx =
      ptx_header("sm_90") +
      ptx_kernel("culprit", ".param .align 64 .b8 map[128]",
                 "  .reg .b64 %w<2>;\n  .reg .b32 %r<4>;\n  .shared .align 128 .b8 data[256];\n  .shared "
                 ".align 8 .b64 gate;\n"
                 "  mov.b64 %w1, map;\n  cvta.param.u64 %w1, %w1;\n  mov.u32 %r1, data;\n  mov.u32 %r2, "
                 "gate;\n  mov.u32 %r3, 3;\n"
                 "  mbarrier.init.shared::cta.b64 [%r2], 1;\n"
                 "  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%w1, "
                 "{%r3, %r3}], "
                 "[%r2];");
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  REQUIRE(cu.cuModuleLoadData(&module, ptx.c_str()) == CUDA_SUCCESS);
  REQUIRE(cu.cuModuleGetFunction(&function, module, "culprit") == CUDA_SUCCESS);
  void* parameters[] = {&map};
  REQUIRE(cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr) == CUDA_SUCCESS);
  CHECK(cu.cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_INSTRUCTION);
  CHECK(mentions(cu.last_report(), {"coordinate 0", "16 bytes", "culprit"}));
  cu.ready();
}

TEST_CASE("a report ends with the environment that runs the launch again", "[driver][emulator-only]") {
  Driver& cu = Driver::of("b200");
  setenv("MXFA_EMU_SCHEDULE", "pct", 1);
  setenv("MXFA_EMU_SEED", "9", 1);
  CHECK(run(cu, "  trap;", 0) == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(mentions(cu.last_report(), {"replay with MXFA_EMU_SCHEDULE=pct:3 MXFA_EMU_SEED=9"}));
  cu.ready();
  setenv("MXFA_EMU_SCHEDULE", "lazy", 1);
  CHECK(run(cu, "  trap;", 0) == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(mentions(cu.last_report(), {"replay with MXFA_EMU_SCHEDULE=lazy"}));
  CHECK(std::string(cu.last_report()).find("MXFA_EMU_SEED") == std::string::npos);
  cu.ready();
  unsetenv("MXFA_EMU_SCHEDULE");
  unsetenv("MXFA_EMU_SEED");
}
