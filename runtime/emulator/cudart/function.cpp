// Kernels by the address of their host function: handles, attributes, occupancy.
#include "cudart/runtime.hpp"

using namespace mxfa::emulator::cudart;

namespace {

template <class Body>
cudaError_t with_kernel(const void* host, Body&& body) {
  return call([&] {
    CUkernel kernel = nullptr;
    if (const CUresult code = find_kernel(host, &kernel)) return code;
    return body(as_function(kernel));
  });
}

CUlaunchConfig driver_config(const cudaLaunchConfig_t& config) {
  CUlaunchConfig out{};
  out.gridDimX = config.gridDim.x;
  out.gridDimY = config.gridDim.y;
  out.gridDimZ = config.gridDim.z;
  out.blockDimX = config.blockDim.x;
  out.blockDimY = config.blockDim.y;
  out.blockDimZ = config.blockDim.z;
  out.sharedMemBytes = static_cast<unsigned>(config.dynamicSmemBytes);
  out.hStream = config.stream;
  out.attrs = reinterpret_cast<CUlaunchAttribute*>(config.attrs);
  out.numAttrs = config.numAttrs;
  return out;
}

}  // namespace

cudaError_t cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  return with_kernel(host, [&](CUfunction function) {
    if (!kernel) return CUDA_ERROR_INVALID_VALUE;
    *kernel = reinterpret_cast<cudaKernel_t>(function);
    return CUDA_SUCCESS;
  });
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t* out, const void* host) {
  return with_kernel(host, [&](CUfunction function) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = function;
    return CUDA_SUCCESS;
  });
}

cudaError_t cudaFuncGetName(const char** name, const void* host) {
  return with_kernel(host, [&](CUfunction function) { return cuFuncGetName(name, function); });
}

cudaError_t cudaFuncGetParamInfo(const void* host, size_t index, size_t* offset, size_t* size) {
  return with_kernel(host,
                     [&](CUfunction function) { return cuFuncGetParamInfo(function, index, offset, size); });
}

// The numbers of cudaFuncAttribute are those of CUfunction_attribute.
static_assert(static_cast<int>(cudaFuncAttributeMaxDynamicSharedMemorySize) ==
              CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
cudaError_t cudaFuncSetAttribute(const void* host, cudaFuncAttribute attribute, int value) {
  return with_kernel(host, [&](CUfunction function) {
    return cuFuncSetAttribute(function, static_cast<CUfunction_attribute>(attribute), value);
  });
}

cudaError_t cudaFuncSetCacheConfig(const void* host, cudaFuncCache) {
  return with_kernel(host, [](CUfunction) { return CUDA_SUCCESS; });  // a hint
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void* host) {
  return with_kernel(host, [&](CUfunction function) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = {};
    CUresult failure = CUDA_SUCCESS;
    const auto get = [&](CUfunction_attribute attribute) {
      int value = 0;
      if (const CUresult code = cuFuncGetAttribute(&value, attribute, function)) failure = code;
      return value;
    };
    out->sharedSizeBytes = get(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
    out->constSizeBytes = get(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES);
    out->localSizeBytes = get(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
    out->maxThreadsPerBlock = get(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    out->numRegs = get(CU_FUNC_ATTRIBUTE_NUM_REGS);
    out->ptxVersion = get(CU_FUNC_ATTRIBUTE_PTX_VERSION);
    out->binaryVersion = get(CU_FUNC_ATTRIBUTE_BINARY_VERSION);
    out->cacheModeCA = get(CU_FUNC_ATTRIBUTE_CACHE_MODE_CA);
    out->maxDynamicSharedSizeBytes = get(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
    out->preferredShmemCarveout = get(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);
    out->clusterDimMustBeSet = get(CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET);
    out->requiredClusterWidth = get(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH);
    out->requiredClusterHeight = get(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT);
    out->requiredClusterDepth = get(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH);
    out->clusterSchedulingPolicyPreference = get(CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE);
    out->nonPortableClusterSizeAllowed = get(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
    return failure;
  });
}

// ---- occupancy -------------------------------------------------------------------------------------------
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* host, int threads,
                                                          size_t shared) {
  return with_kernel(host, [&](CUfunction function) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared);
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* host, int threads,
                                                                   size_t shared, unsigned flags) {
  return with_kernel(host, [&](CUfunction function) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared, flags);
  });
}

cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, const void* host, int blocks,
                                                      int threads) {
  return with_kernel(host, [&](CUfunction function) {
    return cuOccupancyAvailableDynamicSMemPerBlock(bytes, function, blocks, threads);
  });
}

cudaError_t cudaOccupancyMaxPotentialClusterSize(int* size, const void* host,
                                                 const cudaLaunchConfig_t* config) {
  return with_kernel(host, [&](CUfunction function) {
    if (!config) return CUDA_ERROR_INVALID_VALUE;
    const CUlaunchConfig same = driver_config(*config);
    return cuOccupancyMaxPotentialClusterSize(size, function, &same);
  });
}

cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void* host,
                                           const cudaLaunchConfig_t* config) {
  return with_kernel(host, [&](CUfunction function) {
    if (!config) return CUDA_ERROR_INVALID_VALUE;
    const CUlaunchConfig same = driver_config(*config);
    return cuOccupancyMaxActiveClusters(clusters, function, &same);
  });
}
