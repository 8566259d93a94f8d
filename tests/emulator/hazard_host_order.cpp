// Memsets and copies that the device may not have done when a kernel of another stream runs.  Beside every
// program that forgets to wait stands one that does not.
#include <cstdlib>
#include <functional>

#include "driver_table.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;

namespace {

constexpr size_t kBytes = 64;

// *to = *from
std::string module_text() {
  return ptx_header("sm_90") +
         ptx_kernel("k", ".param .u64 from, .param .u64 to",
                    "  .reg .b64 %w<4>;\n  .reg .b32 %r<4>;\n  ld.param.u64 %w1, [from];\n"
                    "  ld.param.u64 %w2, [to];\n  ld.global.u32 %r1, [%w1];\n  st.global.u32 [%w2], %r1;\n");
}

// Two buffers, which nothing is pending for, and a stream of each kind.
struct Scene {
  Driver& cu;
  PtxModule module;
  Buffer from, to;
  CUstream waiting = nullptr, independent = nullptr, other = nullptr;
  CUevent event = nullptr, second = nullptr;

  explicit Scene(Driver& driver) : cu(driver), module(cu, module_text()), from(cu, kBytes), to(cu, kBytes) {
    setenv("MXFA_EMU_CHECK", "on", 1);
    setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
    REQUIRE(cu.cuStreamCreate(&waiting, CU_STREAM_DEFAULT) == CUDA_SUCCESS);
    REQUIRE(cu.cuStreamCreate(&independent, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    REQUIRE(cu.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    REQUIRE(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
    REQUIRE(cu.cuEventCreate(&second, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
    REQUIRE(cu.cuCtxSynchronize() == CUDA_SUCCESS);
  }
  ~Scene() {
    unsetenv("MXFA_EMU_CHECK");
    unsetenv("CUDA_LAUNCH_BLOCKING");
    cu.cuEventDestroy_v2(event);
    cu.cuEventDestroy_v2(second);
    for (CUstream stream : {waiting, independent, other}) cu.cuStreamDestroy_v2(stream);
  }
  template <class Function>
  Function* named(const char* name) const {
    return reinterpret_cast<Function*>(cu.symbol(name));
  }
  CUresult launch(CUstream stream) const {
    CUdeviceptr source = from.address(), destination = to.address();
    void* parameters[] = {&source, &destination};
    return cu.cuLaunchKernel(module.function("k"), 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
  }
};

using Program = std::function<CUresult(Scene&)>;

CUresult run(const Program& program) {
  Driver& cu = Driver::of("h200");
  CUresult code;
  {
    Scene scene(cu);
    code = program(scene);
  }
  cu.ready();
  return code;
}

void clear(Scene& s) { REQUIRE(s.cu.cuMemsetD8_v2(s.from.address(), 0, kBytes) == CUDA_SUCCESS); }

// After a memset on the default stream; the kernel runs on a stream that does not wait for it by itself.
CUresult after_memset(const std::function<void(Scene&)>& between) {
  return run([&](Scene& s) {
    clear(s);
    between(s);
    return s.launch(s.independent);
  });
}

}  // namespace

TEST_CASE("A kernel that reads what the default stream may still fill is an error",
          "[hazard][driver][emulator-only]") {
  CHECK(after_memset([](Scene&) {}) == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(mentions(Driver::of("h200").last_report(),
                 {"error race-with-memset-or-copy", "is at byte 0 of allocation",
                  "write by cuMemsetD8 on the default stream, 64 bytes from", "  read, cta 0 warp 0 lane 0",
                  "ld.global.u32 %r1", "missing: the kernel runs on stream", "(CU_STREAM_NON_BLOCKING)",
                  "remedy: before the launch, cuStreamSynchronize"}));
}

TEST_CASE("A kernel that waits for the default stream reads what is filled",
          "[hazard][driver][emulator-only]") {
  CHECK(run([](Scene& s) { return clear(s), s.launch(nullptr); }) == CUDA_SUCCESS);
  CHECK(run([](Scene& s) { return clear(s), s.launch(s.waiting); }) == CUDA_SUCCESS);
  CHECK(after_memset([](Scene& s) { s.cu.cuStreamSynchronize(nullptr); }) == CUDA_SUCCESS);
  CHECK(after_memset([](Scene& s) { s.cu.cuCtxSynchronize(); }) == CUDA_SUCCESS);
  CHECK(after_memset([](Scene& s) { s.to.read<uint32_t>(); }) == CUDA_SUCCESS);
  CHECK(after_memset([](Scene& s) { s.named<decltype(cuStreamQuery)>("cuStreamQuery")(nullptr); }) ==
        CUDA_SUCCESS);
  CHECK(after_memset([](Scene& s) {
          s.cu.cuEventRecord(s.event, nullptr);
          s.cu.cuStreamWaitEvent(s.independent, s.event, 0);
        }) == CUDA_SUCCESS);
  CHECK(after_memset([](Scene& s) {
          s.cu.cuEventRecord(s.event, nullptr);
          s.cu.cuEventSynchronize(s.event);
        }) == CUDA_SUCCESS);
  // Through a blocking stream and a third one.
  CHECK(after_memset([](Scene& s) {
          s.cu.cuEventRecord(s.event, s.waiting);
          s.cu.cuStreamWaitEvent(s.other, s.event, 0);
          s.cu.cuEventRecord(s.second, s.other);
          s.cu.cuStreamWaitEvent(s.independent, s.second, 0);
        }) == CUDA_SUCCESS);
}

TEST_CASE("A wait for something else orders nothing", "[hazard][driver][emulator-only]") {
  CHECK(after_memset([](Scene& s) { s.cu.cuStreamSynchronize(s.independent); }) == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(run([](Scene& s) {
          s.cu.cuEventRecord(s.event, nullptr);
          clear(s);
          s.cu.cuStreamWaitEvent(s.independent, s.event, 0);
          return s.launch(s.independent);
        }) == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(after_memset([](Scene& s) {
          s.cu.cuEventRecord(s.event, s.other);
          s.cu.cuEventSynchronize(s.event);
        }) == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(after_memset([](Scene& s) {
          s.cu.cuEventRecord(s.event, nullptr);
          s.cu.cuEventRecord(s.event, s.other);  // it stands for this one now
          s.cu.cuStreamWaitEvent(s.independent, s.event, 0);
        }) == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(after_memset([](Scene& s) {
          CUdeviceptr more = 0;
          REQUIRE(s.cu.cuMemAlloc_v2(&more, 64) == CUDA_SUCCESS);
        }) == CUDA_ERROR_LAUNCH_FAILED);
}

TEST_CASE("A fill or copy that may come after the kernel's write is an error",
          "[hazard][driver][emulator-only]") {
  const auto filled = [](Scene& s) { s.cu.cuMemsetD32_v2(s.to.address(), 7, kBytes / 4); };
  CHECK(run([&](Scene& s) { return filled(s), s.launch(s.independent); }) == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(mentions(Driver::of("h200").last_report(), {"write by cuMemsetD32", "  write, cta 0", "st.global"}));
  CHECK(run([&](Scene& s) { return filled(s), s.launch(s.waiting); }) == CUDA_SUCCESS);
}

TEST_CASE("A copy from pageable memory may return before the device has it, one from pinned memory not",
          "[hazard][driver][emulator-only]") {
  const std::vector<uint32_t> words(kBytes / 4, 3);
  CHECK(run([&](Scene& s) {
          s.cu.cuMemcpyHtoD_v2(s.from.address(), words.data(), kBytes);
          return s.launch(s.independent);
        }) == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(mentions(Driver::of("h200").last_report(), {"write by cuMemcpyHtoD on the default stream"}));
  CHECK(run([&](Scene& s) {
          void* pinned = nullptr;
          REQUIRE(s.named<decltype(cuMemAllocHost_v2)>("cuMemAllocHost_v2")(&pinned, kBytes) == CUDA_SUCCESS);
          s.cu.cuMemcpyHtoD_v2(s.from.address(), pinned, kBytes);
          const CUresult code = s.launch(s.independent);
          s.named<decltype(cuMemFreeHost)>("cuMemFreeHost")(pinned);
          return code;
        }) == CUDA_SUCCESS);
}

TEST_CASE("A copy inside the device pends on both sides", "[hazard][driver][emulator-only]") {
  const auto copied = [](Scene& s, CUdeviceptr to, CUdeviceptr from, CUstream stream) {
    s.cu.cuMemcpyDtoD_v2(to, from, kBytes);
    return s.launch(stream);
  };
  CHECK(run([&](Scene& s) {
          const Buffer more(s.cu, kBytes);
          s.cu.cuCtxSynchronize();
          return copied(s, s.from.address(), more.address(), s.independent);
        }) == CUDA_ERROR_LAUNCH_FAILED);
  const auto from_target = [&](CUstream Scene::*stream) {
    return run([&](Scene& s) {
      const Buffer more(s.cu, kBytes);
      s.cu.cuCtxSynchronize();
      return copied(s, more.address(), s.to.address(), s.*stream);
    });
  };
  CHECK(from_target(&Scene::independent) == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(mentions(Driver::of("h200").last_report(), {"read by cuMemcpyDtoD on the default", "st.global"}));
  CHECK(from_target(&Scene::waiting) == CUDA_SUCCESS);
  // Two reads do no harm.
  CHECK(run([&](Scene& s) {
          const Buffer more(s.cu, kBytes);
          s.cu.cuCtxSynchronize();
          return copied(s, more.address(), s.from.address(), s.independent);
        }) == CUDA_SUCCESS);
}

TEST_CASE("Blocking streams wait for the default one, not for each other",
          "[hazard][driver][emulator-only]") {
  const auto after_async = [](const std::function<CUstream(Scene&)>& stream_of_kernel) {
    return run([&](Scene& s) {
      s.cu.cuMemsetD32Async(s.from.address(), 1, kBytes / 4, s.waiting);
      return s.launch(stream_of_kernel(s));
    });
  };
  const auto another = [](Scene& s) {
    CUstream stream = nullptr;
    REQUIRE(s.cu.cuStreamCreate(&stream, CU_STREAM_DEFAULT) == CUDA_SUCCESS);
    return stream;
  };
  CHECK(after_async(another) == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(after_async([](Scene& s) { return s.waiting; }) == CUDA_SUCCESS);
  CHECK(after_async([](Scene&) { return CUstream{}; }) == CUDA_SUCCESS);
  // The default stream between the two.
  CHECK(after_async([&](Scene& s) {
          s.cu.cuMemsetD8_v2(s.to.address() + 32, 0, 8);
          return another(s);
        }) == CUDA_SUCCESS);
}

TEST_CASE("Bytes that the kernel leaves alone and memory that was freed do not pend",
          "[hazard][driver][emulator-only]") {
  CHECK(run([](Scene& s) {
          s.cu.cuMemsetD8_v2(s.from.address() + 4, 0, kBytes - 4);
          return s.launch(s.independent);
        }) == CUDA_SUCCESS);
  CHECK(after_memset([](Scene& s) {
          CUdeviceptr more = 0;
          REQUIRE(s.cu.cuMemAlloc_v2(&more, 64) == CUDA_SUCCESS);
          REQUIRE(s.cu.cuMemFree_v2(more) == CUDA_SUCCESS);  // waits for the device
        }) == CUDA_SUCCESS);
}

TEST_CASE("A graph waits for what its stream waits for", "[hazard][driver][emulator-only]") {
  const auto graph_on = [](CUstream Scene::*stream) {
    return run([&](Scene& s) {
      CUgraph graph = nullptr;
      CUgraphExec exec = nullptr;
      s.named<decltype(cuStreamBeginCapture_v2)>("cuStreamBeginCapture_v2")(s.other,
                                                                            CU_STREAM_CAPTURE_MODE_GLOBAL);
      REQUIRE(s.launch(s.other) == CUDA_SUCCESS);
      s.named<decltype(cuStreamEndCapture)>("cuStreamEndCapture")(s.other, &graph);
      s.named<decltype(cuGraphInstantiateWithFlags)>("cuGraphInstantiateWithFlags")(&exec, graph, 0);
      clear(s);
      const CUresult code = s.named<decltype(cuGraphLaunch)>("cuGraphLaunch")(exec, s.*stream);
      s.named<decltype(cuGraphExecDestroy)>("cuGraphExecDestroy")(exec);
      s.named<decltype(cuGraphDestroy)>("cuGraphDestroy")(graph);
      return code;
    });
  };
  CHECK(graph_on(&Scene::independent) == CUDA_ERROR_LAUNCH_FAILED);
  CHECK(graph_on(&Scene::waiting) == CUDA_SUCCESS);
}
