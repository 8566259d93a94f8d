// A program that finds the whole driver the way cuda-python does: dlopen of libcuda.so.1, one dlsym, and
// cuGetProcAddress for everything else, also for functions of versions that this driver does not know.
#include <cuda.h>
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <vector>

#include "support/catch.hpp"

namespace {

class ByName {
 public:
  ByName() {
    setenv("MXFA_EMU_DEVICE", "b200", 1);
    const auto library = std::filesystem::path(MXFA_CUDART_LIBRARY).parent_path() / "libcuda.so.1";
    void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    INFO(library);
    REQUIRE(handle);
    get_ = reinterpret_cast<Get>(dlsym(handle, "cuGetProcAddress_v2"));
    REQUIRE(get_);
  }
  template <class... Arguments>
  CUresult operator()(const char* name, int version, Arguments... arguments) const {
    void* function = nullptr;
    CUdriverProcAddressQueryResult status{};
    INFO(name);
    REQUIRE(get_(name, &function, version, CU_GET_PROC_ADDRESS_DEFAULT, &status) == CUDA_SUCCESS);
    REQUIRE(function);
    return reinterpret_cast<CUresult (*)(Arguments...)>(function)(arguments...);
  }
  CUresult ask(const char* name, int version, void** function) const {
    CUdriverProcAddressQueryResult status{};
    return get_(name, function, version, CU_GET_PROC_ADDRESS_DEFAULT, &status);
  }

 private:
  using Get = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
  Get get_ = nullptr;
};

// Loads an 8x8 box of floats with TMA and writes it to `out`, each element plus `add`.
const char kPtx[] = R"(
.version 8.8
.target sm_100a
.address_size 64
.visible .entry copy(.param .align 64 .b8 map[128], .param .u64 out, .param .f32 add)
{
  .reg .b64 %w<4>;
  .reg .b32 %r<6>;
  .reg .f32 %f<3>;
  .reg .pred %p<3>;
  .shared .align 128 .b8 box[256];
  .shared .align 8 .b64 bar;
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, bar;
  mov.u32 %r3, box;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra wait;
  mbarrier.init.shared.b64 [%r2], 1;
  fence.mbarrier_init.release.cluster;
  mov.b64 %w1, map;
  cvta.param.u64 %w1, %w1;
  mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 256;
  mov.u32 %r4, 0;
  cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
    [%r3], [%w1, {%r4, %r4}], [%r2];
wait:
  bar.sync 0;
again:
  mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0;
  @!%p2 bra again;
  shl.b32 %r5, %r1, 2;
  add.u32 %r3, %r3, %r5;
  ld.shared.f32 %f1, [%r3];
  ld.param.f32 %f2, [add];
  add.f32 %f1, %f1, %f2;
  ld.param.u64 %w2, [out];
  mul.wide.u32 %w3, %r1, 4;
  add.u64 %w2, %w2, %w3;
  st.global.f32 [%w2], %f1;
  ret;
}
)";

}  // namespace

TEST_CASE("a program that finds every function by cuGetProcAddress runs", "[driver][emulator-only]") {
  const ByName cu;
  void* function = &function;
  CHECK(cu.ask("cuMemAlloc", 13990, &function) == CUDA_ERROR_INVALID_VALUE);  // newer than the driver
  CHECK(cu.ask("cuCoredumpRegisterStartCallback", 13000, &function) == CUDA_SUCCESS);
  CHECK(function == nullptr);  // not in CUDA 13.0

  REQUIRE(cu("cuInit", 2000, 0u) == CUDA_SUCCESS);
  CUdevice device = -1;
  REQUIRE(cu("cuDeviceGet", 2000, &device, 0) == CUDA_SUCCESS);
  CUcontext context = nullptr;
  REQUIRE(cu("cuDevicePrimaryCtxRetain", 7000, &context, device) == CUDA_SUCCESS);
  REQUIRE(cu("cuCtxSetCurrent", 4000, context) == CUDA_SUCCESS);
  CUmodule module = nullptr;
  REQUIRE(cu("cuModuleLoadData", 2000, &module, static_cast<const void*>(kPtx)) == CUDA_SUCCESS);
  CUfunction kernel = nullptr;
  REQUIRE(cu("cuModuleGetFunction", 2000, &kernel, module, "copy") == CUDA_SUCCESS);

  std::vector<float> values(64);
  std::iota(values.begin(), values.end(), 1.0f);
  CUdeviceptr in = 0, out = 0;
  REQUIRE(cu("cuMemAlloc", 3020, &in, size_t{256}) == CUDA_SUCCESS);
  REQUIRE(cu("cuMemAlloc", 3020, &out, size_t{256}) == CUDA_SUCCESS);
  CUstream stream = nullptr;
  REQUIRE(cu("cuStreamCreate", 2000, &stream, 0u) == CUDA_SUCCESS);
  CUevent start = nullptr, end = nullptr;
  REQUIRE(cu("cuEventCreate", 2000, &start, 0u) == CUDA_SUCCESS);
  REQUIRE(cu("cuEventCreate", 2000, &end, 0u) == CUDA_SUCCESS);
  REQUIRE(cu("cuMemcpyHtoDAsync", 3020, in, static_cast<const void*>(values.data()), size_t{256}, stream) ==
          CUDA_SUCCESS);

  CUtensorMap map;
  const cuuint64_t dims[] = {8, 8}, strides[] = {32};
  const cuuint32_t box[] = {8, 8}, steps[] = {1, 1};
  REQUIRE(cu("cuTensorMapEncodeTiled", 12000, &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, cuuint32_t{2},
             reinterpret_cast<void*>(in), dims + 0, strides + 0, box + 0, steps + 0,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS);
  float add = 0.5f;
  void* arguments[] = {&map, &out, &add};
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 64;
  config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  REQUIRE(cu("cuEventRecord", 2000, start, stream) == CUDA_SUCCESS);
  REQUIRE(cu("cuLaunchKernelEx", 11060, static_cast<const CUlaunchConfig*>(&config), kernel, arguments + 0,
             static_cast<void**>(nullptr)) == CUDA_SUCCESS);
  REQUIRE(cu("cuEventRecord", 2000, end, stream) == CUDA_SUCCESS);
  REQUIRE(cu("cuStreamSynchronize", 2000, stream) == CUDA_SUCCESS);
  float milliseconds = -1;
  CHECK(cu("cuEventElapsedTime", 12080, &milliseconds, start, end) == CUDA_SUCCESS);
  CHECK(milliseconds >= 0);

  std::vector<float> result(64);
  REQUIRE(cu("cuMemcpyDtoH", 3020, static_cast<void*>(result.data()), out, size_t{256}) == CUDA_SUCCESS);
  for (float& value : values) value += 0.5f;
  CHECK(result == values);
  CHECK(cu("cuModuleUnload", 2000, module) == CUDA_SUCCESS);
  CHECK(cu("cuMemFree", 3020, in) == CUDA_SUCCESS);
  CHECK(cu("cuMemFree", 3020, out) == CUDA_SUCCESS);
  CHECK(cu("cuDevicePrimaryCtxRelease", 11000, device) == CUDA_SUCCESS);
}
