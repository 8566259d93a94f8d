#include "runtime/fake_driver.hpp"

#include <cstring>

namespace mxfa::test {

FakeDriver& fake() {
  static FakeDriver state;
  return state;
}

// A function is known by the tables it publishes.
abi::KernelTables& tables_of(const char* name) {
  return std::strncmp(name, "mxfp8_expand", 12) == 0 ? fake().expand_tables : fake().tables;
}

Driver fake_driver(const char* arch, bool loads_ptx) {
  Driver d;
  d.library = "fake";
  d.arch = arch;
  d.device_name = "fake device";
  d.compute_major = 10;
  d.loads_ptx = loads_ptx;
  d.cuGetErrorName = [](CUresult code, const char** name) {
    *name = code == CUDA_ERROR_INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE" : "CUDA_ERROR_OTHER";
    return CUDA_SUCCESS;
  };
  d.cuGetErrorString = [](CUresult, const char** text) { return *text = "a description", CUDA_SUCCESS; };
  d.cuDriverGetVersion = [](int* version) { return *version = 12040, CUDA_SUCCESS; };
  d.cuDeviceGetAttribute = [](int* value, CUdevice_attribute attribute, CUdevice) {
    *value = attribute == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN ? fake().shared_limit
             : attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT            ? fake().multiprocessors
                                                                                : 0;
    return CUDA_SUCCESS;
  };
  d.cuDevicePrimaryCtxRetain = [](CUcontext* context, CUdevice) {
    ++fake().retains;
    *context = reinterpret_cast<CUcontext>(&fake());
    return CUDA_SUCCESS;
  };
  d.cuDevicePrimaryCtxRelease_v2 = [](CUdevice) { return --fake().retains, CUDA_SUCCESS; };
  d.cuCtxPushCurrent_v2 = [](CUcontext) { return ++fake().context_depth, CUDA_SUCCESS; };
  d.cuCtxPopCurrent_v2 = [](CUcontext*) { return --fake().context_depth, CUDA_SUCCESS; };
  d.cuModuleLoadDataEx = [](CUmodule* module, const void* image, unsigned, CUjit_option*, void**) {
    if (fake().load_result != CUDA_SUCCESS) return fake().load_result;
    ++fake().loads;
    fake().image.assign(static_cast<const char*>(image), 4);
    *module = reinterpret_cast<CUmodule>(&fake());
    return CUDA_SUCCESS;
  };
  d.cuModuleUnload = [](CUmodule) { return ++fake().unloads, CUDA_SUCCESS; };
  d.cuModuleGetFunction = [](CUfunction* function, CUmodule, const char* name) {
    *function = reinterpret_cast<CUfunction>(&tables_of(name));
    return CUDA_SUCCESS;
  };
  d.cuModuleGetGlobal_v2 = [](CUdeviceptr* address, size_t* bytes, CUmodule, const char* name) {
    *address = reinterpret_cast<CUdeviceptr>(&tables_of(name));
    *bytes = sizeof(abi::KernelTables);
    return CUDA_SUCCESS;
  };
  d.cuFuncSetAttribute = [](CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; };
  d.cuMemcpyDtoH_v2 = [](void* to, CUdeviceptr from, size_t bytes) {
    std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
    return CUDA_SUCCESS;
  };
  d.cuMemcpyHtoDAsync_v2 = [](CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
    fake().streams.push_back(stream);
    if (fake().copy_result == CUDA_SUCCESS) std::memcpy(reinterpret_cast<void*>(to), from, bytes);
    return fake().copy_result;
  };
  d.cuTensorMapEncodeTiled = [](CUtensorMap*, CUtensorMapDataType type, cuuint32_t, void* address,
                                const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
    TensorMapRequest request{type, reinterpret_cast<uint64_t>(address), {}, {}, {}, swizzle};
    std::copy_n(dims, 5, request.dims), std::copy_n(strides, 4, request.strides),
        std::copy_n(box, 5, request.box);
    fake().maps.push_back(request);
    return CUDA_SUCCESS;
  };
  d.cuLaunchKernelEx = [](const CUlaunchConfig* config, CUfunction function, void** params, void**) {
    if (fake().launch_result != CUDA_SUCCESS) return fake().launch_result;
    ++fake().launches;
    fake().streams.push_back(config->hStream);
    const char* bytes = static_cast<const char*>(params[0]);
    if (reinterpret_cast<abi::KernelTables*>(function) == &fake().expand_tables) {
      fake().expand_launch = *config;
      std::memcpy(&fake().expand_params, bytes, sizeof fake().expand_params);
      return CUDA_SUCCESS;
    }
    fake().launch = *config;
    fake().params.assign(bytes, bytes + fake().tables.params_bytes);
    return CUDA_SUCCESS;
  };
  return d;
}

#define FAKE_KERNEL(name) "extern \"C\" __global__ void __launch_bounds__(64, 1) " name "(int) {}\n"
const MxfaEmbedded kFakeSources[] = {{"src/attention.cuh", FAKE_KERNEL("attention_fwd_sm100")},
                                     {"src/attention_sm90.cuh", FAKE_KERNEL("attention_fwd_sm90")},
                                     {"src/expand.cuh", FAKE_KERNEL("mxfp8_expand")},
                                     {"src/quantize.cuh", FAKE_KERNEL("mxfp8_quantize")},
                                     {nullptr, nullptr}};

const MxfaEmbedded kFakeConfigs[] = {
    {"configs/kernels/attention_fwd_sm100.json",
     R"({"kernel": "attention_fwd_sm100", "source": "src/attention.cuh", "archs": ["sm_100a", "sm_103a"],
         "choices": [{"when": {}, "set": {"kv_stages": 3, "o_box_rows": 32, "scheduler": 0, "max_ctas": 0,
                                           "pack_heads": 0}}],
         "limits": {"kv_stages": [2, 8, 1]}})"},
    {"configs/kernels/attention_fwd_sm90.json",
     R"({"kernel": "attention_fwd_sm90", "source": "src/attention_sm90.cuh", "archs": ["sm_90a"],
         "choices": [{"when": {"mxfp8": true}, "set": {"tile_n": 128}},
                     {"when": {"two_unit_tiles": true}, "set": {"tile_n": 96}},
                     {"when": {}, "set": {"tile_n": 80}}], "plan": {"max_ctas": 0},
         "limits": {"tile_n": [64, 256, 16], "max_ctas": [0, 65535, 1]}})"},
    {"configs/kernels/mxfp8_expand.json",
     R"({"kernel": "mxfp8_expand", "source": "src/expand.cuh", "archs": ["sm_90a"],
         "choices": [{"when": {"even_heads": true}, "set": {"heads_per_cta": 2}},
                     {"when": {}, "set": {"heads_per_cta": 1}}], "limits": {}})"},
    {"configs/kernels/mxfp8_quantize.json",
     R"({"kernel": "mxfp8_quantize", "source": "src/quantize.cuh", "archs": ["sm_90a", "sm_100a"],
         "choices": [{"when": {"even_heads": true}, "set": {"heads_per_cta": 2}},
                     {"when": {}, "set": {"heads_per_cta": 1}}], "limits": {"heads_per_cta": [1, 8, 1]}})"},
    {nullptr, nullptr}};

std::unique_ptr<mxfa_context> fake_context(const char* arch) {
  static const auto cache = std::make_shared<Cache>(std::vector<CacheDirectory>{});
  fake() = FakeDriver{};
  fake().tables.magic = abi::kTablesMagic;
  fake().tables.params_bytes = sizeof(abi::AttentionForwardParams);
  fake().tables.threads = 512;
  fake().tables.shared_bytes = 200000;
  fake().tables.tile_rows = 256;
  fake().expand_tables = fake().tables;
  fake().expand_tables.params_bytes = sizeof(abi::ExpandParams);
  auto context = std::make_unique<mxfa_context>();
  context->open(fake_driver(arch), cache);
  context->sources = kFakeSources;
  context->configs = kFakeConfigs;
  return context;
}

}  // namespace mxfa::test
