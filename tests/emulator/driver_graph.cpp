// Graphs of captured launches.
#include <memory>

#include "driver_table.hpp"
#include "support/catch.hpp"

using mxfa::test::Buffer;
using mxfa::test::Driver;
using mxfa::test::ptx_header;
using mxfa::test::ptx_kernel;
using mxfa::test::PtxModule;

namespace {

// *p += v
std::string module_text() {
  return ptx_header("sm_90") +
         ptx_kernel("add", ".param .u64 p, .param .u32 v",
                    "  .reg .b64 %rd<2>;\n  .reg .b32 %r<4>;\n  ld.param.u64 %rd1, [p];\n"
                    "  ld.param.u32 %r1, [v];\n  ld.global.u32 %r2, [%rd1];\n  add.u32 %r3, %r1, %r2;\n"
                    "  st.global.u32 [%rd1], %r3;");
}

}  // namespace

TEST_CASE("A captured launch runs when its graph does, with the parameters it had",
          "[driver][emulator-only]") {
  Driver& cu = Driver::of("h200");
  PtxModule module(cu, module_text());
  const auto begin =
      reinterpret_cast<decltype(&cuStreamBeginCapture_v2)>(cu.symbol("cuStreamBeginCapture_v2"));
  const auto end = reinterpret_cast<decltype(&cuStreamEndCapture)>(cu.symbol("cuStreamEndCapture"));
  const auto instantiate =
      reinterpret_cast<decltype(&cuGraphInstantiateWithFlags)>(cu.symbol("cuGraphInstantiateWithFlags"));
  const auto launch_graph = reinterpret_cast<decltype(&cuGraphLaunch)>(cu.symbol("cuGraphLaunch"));
  const auto destroy = reinterpret_cast<decltype(&cuGraphDestroy)>(cu.symbol("cuGraphDestroy"));
  const auto destroy_exec = reinterpret_cast<decltype(&cuGraphExecDestroy)>(cu.symbol("cuGraphExecDestroy"));
  CUstream stream = nullptr;
  REQUIRE(cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  CUdeviceptr sum = 0;
  REQUIRE(cu.cuMemAlloc_v2(&sum, 4) == CUDA_SUCCESS);
  REQUIRE(cu.cuMemsetD32_v2(sum, 0, 1) == CUDA_SUCCESS);
  const auto value = [&] {
    uint32_t read = 0;
    CHECK(cu.cuMemcpyDtoH_v2(&read, sum, 4) == CUDA_SUCCESS);
    return read;
  };
  const auto add = [&](uint32_t v) {
    void* parameters[] = {&sum, &v};
    return cu.cuLaunchKernel(module.function("add"), 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
  };
  CUgraph graph = nullptr;
  CHECK(begin(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(end(stream, &graph) == CUDA_ERROR_ILLEGAL_STATE);

  REQUIRE(begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  CHECK(begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_ERROR_ILLEGAL_STATE);
  CHECK(add(1) == CUDA_SUCCESS);
  CHECK(add(10) == CUDA_SUCCESS);
  REQUIRE(end(stream, &graph) == CUDA_SUCCESS);
  CHECK(value() == 0);
  CUgraphExec exec = nullptr;
  REQUIRE(instantiate(&exec, graph, 0) == CUDA_SUCCESS);
  CHECK(destroy(graph) == CUDA_SUCCESS);
  for (uint32_t i = 1; i <= 2; ++i) {
    CHECK(launch_graph(exec, stream) == CUDA_SUCCESS);
    CHECK(cu.cuStreamSynchronize(stream) == CUDA_SUCCESS);
    CHECK(value() == 11 * i);
  }
  CHECK(destroy_exec(exec) == CUDA_SUCCESS);

  // What waits or copies cannot be captured, and leaves no graph.
  REQUIRE(begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  CHECK(cu.cuStreamSynchronize(stream) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(end(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK(graph == nullptr);
  CHECK(add(1) == CUDA_SUCCESS);  // the stream is an ordinary one again
  CHECK(cu.cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CHECK(value() == 23);

  // A graph outlives the module of its kernel, and knows another one that takes its place.
  auto other = std::make_unique<PtxModule>(cu, module_text());
  REQUIRE(begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  uint32_t v = 1;
  void* parameters[] = {&sum, &v};
  CHECK(cu.cuLaunchKernel(other->function("add"), 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr) ==
        CUDA_SUCCESS);
  REQUIRE(end(stream, &graph) == CUDA_SUCCESS);
  REQUIRE(instantiate(&exec, graph, 0) == CUDA_SUCCESS);
  other.reset();
  other = std::make_unique<PtxModule>(cu, module_text());
  other->function("add");
  CHECK(launch_graph(exec, stream) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(destroy(graph) == CUDA_SUCCESS);
  CHECK(destroy_exec(exec) == CUDA_SUCCESS);
  CHECK(cu.cuMemFree_v2(sum) == CUDA_SUCCESS);
  CHECK(cu.cuStreamDestroy_v2(stream) == CUDA_SUCCESS);
}
