// Launches: parameters, limits, clusters, attributes, the schedule.
#include <cstdlib>

#include "driver_table.hpp"
#include "support/catch.hpp"

using mxfa::test::Buffer;
using mxfa::test::Driver;
using mxfa::test::mentions;
using mxfa::test::ptx_header;
using mxfa::test::ptx_kernel;
using mxfa::test::PtxModule;

namespace {

const char* const kStore =
    "  .reg .b64 %rd<2>;\n  .reg .b32 %r<2>;\n"
    "  ld.param.u64 %rd1, [p];\n  ld.param.u32 %r1, [v];\n  st.global.u32 [%rd1], %r1;";

std::string module_text() {
  return ptx_header("sm_90") + ptx_kernel("store", ".param .u64 p, .param .u32 v", kStore) +
         ptx_kernel("nothing", "", "") + ".visible .entry small() .maxntid 64, 1, 1\n{\n  ret;\n}\n" +
         ".visible .entry exact() .reqntid 64, 1, 1\n{\n  ret;\n}\n" +
         ".visible .entry pairs() .explicitcluster .reqnctapercluster 2, 1, 1\n{\n  ret;\n}\n" +
         ptx_kernel("fixed", "",
                    "  .reg .b32 %r<2>;\n  .shared .align 16 .b8 s[1024];\n  mov.u32 %r1, s;\n  "
                    "st.shared.u32 [%r1], %r1;");
}

struct Grid {
  unsigned x = 1, y = 1, z = 1;
};

class Launcher {
 public:
  explicit Launcher(const char* model = "h200") : cu(Driver::of(model)), module(cu, module_text()) {}

  CUresult plain(const char* name, Grid grid, Grid block, unsigned shared = 0, void** parameters = nullptr,
                 void** extra = nullptr) {
    return cu.cuLaunchKernel(module.function(name), grid.x, grid.y, grid.z, block.x, block.y, block.z, shared,
                             nullptr, parameters, extra);
  }
  CUresult with(const char* name, unsigned grid, std::vector<CUlaunchAttribute> attributes) {
    CUlaunchConfig config{};
    config.gridDimX = grid;
    config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.blockDimX = 32;
    config.attrs = attributes.data();
    config.numAttrs = static_cast<unsigned>(attributes.size());
    return cu.cuLaunchKernelEx(&config, module.function(name), nullptr, nullptr);
  }
  CUresult set(const char* name, CUfunction_attribute attribute, int value) {
    return cu.cuFuncSetAttribute(module.function(name), attribute, value);
  }
  int get(const char* name, CUfunction_attribute attribute) {
    int value = -1;
    REQUIRE(cu.cuFuncGetAttribute(&value, attribute, module.function(name)) == CUDA_SUCCESS);
    return value;
  }

  Driver& cu;
  PtxModule module;
};

CUlaunchAttribute cluster_of(unsigned x) {
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim.x = x;
  attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
  return attribute;
}

CUlaunchAttribute attribute_of(CUlaunchAttributeID id) {
  CUlaunchAttribute attribute{};
  attribute.id = id;
  return attribute;
}

}  // namespace

TEST_CASE("parameters arrive through kernelParams and through a buffer", "[driver]") {
  Launcher launch;
  Buffer memory(launch.cu, 4);
  CUdeviceptr address = memory.address();
  uint32_t value = 41;
  void* parameters[] = {&address, &value};
  REQUIRE(launch.plain("store", {}, {}, 0, parameters) == CUDA_SUCCESS);
  CHECK(memory.read<uint32_t>()[0] == 41);

  struct {
    CUdeviceptr address;
    uint32_t value;
  } packed = {address, 42};
  size_t bytes = 12;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  REQUIRE(launch.plain("store", {}, {}, 0, nullptr, extra) == CUDA_SUCCESS);
  CHECK(memory.read<uint32_t>()[0] == 42);

  bytes = 16;  // one parameter too many
  CHECK(launch.plain("store", {}, {}, 0, nullptr, extra) == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  bytes = 12;
  CHECK(launch.plain("store", {}, {}, 0, parameters, extra) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch.plain("store", {}, {}, 0) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a grid or block outside the device's limits is refused", "[driver]") {
  Launcher launch;
  CHECK(launch.plain("nothing", {1, 65535, 1}, {32, 1, 1}) == CUDA_SUCCESS);
  for (Grid grid : {Grid{0, 1, 1}, {1, 65536, 1}, {1, 1, 65536}, {1u << 31, 1, 1}}) {
    CAPTURE(grid.x, grid.y, grid.z);
    CHECK(launch.plain("nothing", grid, {32, 1, 1}) == CUDA_ERROR_INVALID_VALUE);
  }
  for (Grid block : {Grid{0, 1, 1}, {1025, 1, 1}, {32, 33, 1}, {1, 1, 65}}) {
    CAPTURE(block.x, block.y, block.z);
    CHECK(launch.plain("nothing", {}, block) == CUDA_ERROR_INVALID_VALUE);
  }
  CHECK(launch.cu.cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr) ==
        CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("a block larger than .maxntid is refused", "[driver]") {
  Launcher launch;
  CHECK(launch.plain("small", {}, {64, 1, 1}) == CUDA_SUCCESS);
  CHECK(launch.plain("small", {}, {65, 1, 1}) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch.get("small", CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) == 64);
}

TEST_CASE("a block other than .reqntid is refused", "[driver]") {
  Launcher launch;
  CHECK(launch.plain("exact", {}, {64, 1, 1}) == CUDA_SUCCESS);
  CHECK(launch.plain("exact", {}, {32, 1, 1}) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch.plain("exact", {}, {32, 2, 1}) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("more than 48 KiB of shared memory wants the attribute", "[driver]") {
  Launcher launch;
  constexpr auto kMaxDynamic = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  CHECK(launch.plain("nothing", {}, {32, 1, 1}, 49152) == CUDA_SUCCESS);
  CHECK(launch.plain("nothing", {}, {32, 1, 1}, 49153) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch.set("nothing", kMaxDynamic, 232449) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch.set("nothing", kMaxDynamic, -1) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(launch.set("nothing", kMaxDynamic, 232448) == CUDA_SUCCESS);
  CHECK(launch.plain("nothing", {}, {32, 1, 1}, 232448) == CUDA_SUCCESS);
  CHECK(launch.get("nothing", kMaxDynamic) == 232448);
}

TEST_CASE("static shared memory counts", "[driver]") {
  Launcher launch;
  constexpr auto kMaxDynamic = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  CHECK(launch.get("fixed", CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES) == 1024);
  CHECK(launch.plain("fixed", {}, {32, 1, 1}, 49152 - 1024) == CUDA_SUCCESS);
  CHECK(launch.plain("fixed", {}, {32, 1, 1}, 49152 - 1023) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch.set("fixed", kMaxDynamic, 232448) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch.set("fixed", kMaxDynamic, 232448 - 1024) == CUDA_SUCCESS);
}

TEST_CASE("function attributes that cannot be set are refused", "[driver]") {
  Launcher launch;
  CHECK(launch.set("nothing", CU_FUNC_ATTRIBUTE_NUM_REGS, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch.set("nothing", CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 101) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(launch.set("nothing", CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50) == CUDA_SUCCESS);
}

TEST_CASE("a kernel with .reqnctapercluster takes that cluster and no other", "[driver]") {
  Launcher launch;
  CHECK(launch.plain("pairs", {2, 1, 1}, {32, 1, 1}) == CUDA_SUCCESS);
  CHECK(launch.plain("pairs", {3, 1, 1}, {32, 1, 1}) == CUDA_ERROR_INVALID_CLUSTER_SIZE);
  CHECK(launch.with("pairs", 2, {}) == CUDA_SUCCESS);
  CHECK(launch.with("pairs", 2, {cluster_of(2)}) == CUDA_SUCCESS);
  CHECK(launch.with("pairs", 4, {cluster_of(4)}) == CUDA_ERROR_INVALID_CLUSTER_SIZE);
  CHECK(launch.get("pairs", CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH) == 2);
}

TEST_CASE("the cluster attribute must divide the grid and stay within 8, or 16 when allowed", "[driver]") {
  Launcher launch;
  CHECK(launch.with("nothing", 3, {cluster_of(2)}) == CUDA_ERROR_INVALID_CLUSTER_SIZE);
  CHECK(launch.with("nothing", 2, {cluster_of(0)}) == CUDA_ERROR_INVALID_CLUSTER_SIZE);
  CHECK(launch.with("nothing", 8, {cluster_of(8)}) == CUDA_SUCCESS);
  CHECK(launch.with("nothing", 16, {cluster_of(16)}) == CUDA_ERROR_INVALID_CLUSTER_SIZE);
  REQUIRE(launch.set("nothing", CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1) == CUDA_SUCCESS);
  CHECK(launch.with("nothing", 16, {cluster_of(16)}) == CUDA_SUCCESS);
  CHECK(launch.with("nothing", 32, {cluster_of(32)}) == CUDA_ERROR_INVALID_CLUSTER_SIZE);
}

TEST_CASE("rt-cluster-16: a cluster of 16 without the opt-in is refused with 16, 8 and the attribute",
          "[driver][emulator-only]") {
  Launcher launch("b200");
  CHECK(launch.with("nothing", 16, {cluster_of(16)}) == CUDA_ERROR_INVALID_CLUSTER_SIZE);
  CHECK(
      mentions(launch.cu.last_report(), {"16 CTAs", "8 are possible", "NON_PORTABLE_CLUSTER_SIZE_ALLOWED"}));
}

TEST_CASE("hints are taken and unsupported launch attributes are refused by name",
          "[driver][emulator-only]") {
  Launcher launch("b200");
  for (auto id : {CU_LAUNCH_ATTRIBUTE_IGNORE, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                  CU_LAUNCH_ATTRIBUTE_PRIORITY, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN}) {
    CAPTURE(id);
    CHECK(launch.with("nothing", 1, {attribute_of(id)}) == CUDA_SUCCESS);
  }
  CHECK(launch.with("nothing", 1, {attribute_of(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT)}) ==
        CUDA_ERROR_NOT_SUPPORTED);
  CHECK(mentions(launch.cu.last_report(), {"PROGRAMMATIC_EVENT"}));
  CHECK(launch.with("nothing", 1, {attribute_of(CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)}) ==
        CUDA_ERROR_NOT_SUPPORTED);
  for (int none : {-1, 99}) {
    CHECK(launch.with("nothing", 1, {attribute_of(static_cast<CUlaunchAttributeID>(none))}) ==
          CUDA_ERROR_INVALID_VALUE);
    CHECK(mentions(launch.cu.last_report(), {"no launch attribute"}));
  }
}

TEST_CASE("MXFA_EMU_LIMIT ends a launch that would go on for ever", "[driver][emulator-only]") {
  Driver& cu = Driver::of("b200");
  PtxModule module(cu,
                   ptx_header("sm_100") + ptx_kernel("k", "", "again:\n  bar.warp.sync -1;\n  bra again;"));
  const auto launch = [&](const char* limit) {
    setenv("MXFA_EMU_LIMIT", limit, 1);
    const CUresult code =
        cu.cuLaunchKernel(module.function("k"), 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr);
    unsetenv("MXFA_EMU_LIMIT");
    return code;
  };
  CHECK(launch("0") == CUDA_ERROR_INVALID_VALUE);
  CHECK(launch("many") == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(launch("1e4") == CUDA_SUCCESS);
  CHECK(cu.cuCtxSynchronize() == CUDA_ERROR_LAUNCH_TIMEOUT);
  CHECK(mentions(cu.last_report(), {"endless", "the limit is 10000", "bar.warp.sync"}));
}

TEST_CASE("occupancy follows threads and shared memory", "[driver]") {
  Launcher launch;
  const auto blocks = [&](const char* name, int threads, size_t shared) {
    int count = -1;
    REQUIRE(launch.cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&count, launch.module.function(name),
                                                                  threads, shared) == CUDA_SUCCESS);
    return count;
  };
  CHECK(blocks("nothing", 32, 0) == 32);
  CHECK(blocks("nothing", 96, 0) == 21);
  CHECK(blocks("nothing", 1000, 0) == 2);
  CHECK(blocks("nothing", 2000, 0) == 0);
  CHECK(blocks("nothing", 128, 49152) == 4);
  CHECK(blocks("nothing", 128, 49153) == 0);  // needs the attribute
  launch.set("fixed", CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 231424);
  CHECK(blocks("fixed", 128, 40000) == 5);
  CHECK(blocks("fixed", 128, 100000) == 2);
  int count = 0;
  CHECK(launch.cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&count, launch.module.function("nothing"), 0,
                                                              0) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("clusters that fit on the device at one CTA an SM", "[driver]") {
  Launcher launch;
  launch.set("nothing", CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 200000);
  const auto clusters = [&](unsigned size) {
    CUlaunchAttribute attribute = cluster_of(size);
    CUlaunchConfig config{};
    config.gridDimX = size * 8;
    config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.blockDimX = 128;
    config.sharedMemBytes = 200000;
    config.attrs = &attribute;
    config.numAttrs = 1;
    int count = -1;
    REQUIRE(launch.cu.cuOccupancyMaxActiveClusters(&count, launch.module.function("nothing"), &config) ==
            CUDA_SUCCESS);
    return count;
  };
  CHECK(clusters(1) == 132);
  CHECK(clusters(2) == 66);
  if (!Driver::is_real()) CHECK(clusters(4) == 30);  // depends on which SMs of the chip are switched off
}

TEST_CASE("the schedule is read at every launch and a bad one is refused", "[driver][emulator-only]") {
  Launcher launch("b200");
  for (const char* kind : {"functional", "lazy", "eager", "random", "pct", "pct:2", "split"}) {
    setenv("MXFA_EMU_SCHEDULE", kind, 1);
    setenv("MXFA_EMU_SEED", "12345", 1);
    CHECK(launch.plain("nothing", {}, {32, 1, 1}) == CUDA_SUCCESS);
  }
  setenv("MXFA_EMU_SEED", "12x", 1);
  CHECK(launch.plain("nothing", {}, {32, 1, 1}) == CUDA_ERROR_INVALID_VALUE);
  CHECK(mentions(launch.cu.last_report(), {"MXFA_EMU_SEED", "12x"}));
  unsetenv("MXFA_EMU_SEED");
  for (const char* kind : {"greedy", "pct:", "pct:0", "pct:2x", "lazy:2"}) {
    setenv("MXFA_EMU_SCHEDULE", kind, 1);
    CHECK(launch.plain("nothing", {}, {32, 1, 1}) == CUDA_ERROR_INVALID_VALUE);
    CHECK(mentions(launch.cu.last_report(),
                   {"MXFA_EMU_SCHEDULE", kind, "functional", "lazy", "eager", "random", "pct", "split"}));
  }
  unsetenv("MXFA_EMU_SCHEDULE");
}

TEST_CASE("launches and instructions are counted", "[driver][emulator-only]") {
  Launcher launch("b200");
  uint64_t before[8] = {}, after[8] = {};
  REQUIRE(launch.cu.counters(before) == CUDA_SUCCESS);
  REQUIRE(launch.plain("nothing", {3, 1, 1}, {64, 1, 1}) == CUDA_SUCCESS);
  REQUIRE(launch.cu.counters(after) == CUDA_SUCCESS);
  CHECK(after[0] == before[0] + 1);
  CHECK(after[1] == before[1] + 3 * 2);  // one ret for each of 2 warps of 3 CTAs
  CHECK(after[2] == before[2] + 3 * 64);
}
