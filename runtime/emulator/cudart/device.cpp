// The device: there is one, and its properties are the driver's attributes.
#include "cudart/runtime.hpp"

using namespace mxfa::emulator::cudart;

namespace {

CUresult the_device(int device) {
  return static_cast<CUresult>(device ? cudaErrorInvalidDevice : cudaSuccess);
}

// The members of cudaDeviceProp that hold one attribute each.
struct Property {
  int cudaDeviceProp::*member;
  CUdevice_attribute attribute;
};
struct WideProperty {
  size_t cudaDeviceProp::*member;
  CUdevice_attribute attribute;
};
using P = cudaDeviceProp;
constexpr Property kProperties[] = {
    {&P::regsPerBlock, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK},
    {&P::warpSize, CU_DEVICE_ATTRIBUTE_WARP_SIZE},
    {&P::maxThreadsPerBlock, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK},
    {&P::major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
    {&P::minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR},
    {&P::multiProcessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
    {&P::integrated, CU_DEVICE_ATTRIBUTE_INTEGRATED},
    {&P::canMapHostMemory, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY},
    {&P::concurrentKernels, CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS},
    {&P::ECCEnabled, CU_DEVICE_ATTRIBUTE_ECC_ENABLED},
    {&P::pciBusID, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID},
    {&P::pciDeviceID, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID},
    {&P::pciDomainID, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID},
    {&P::tccDriver, CU_DEVICE_ATTRIBUTE_TCC_DRIVER},
    {&P::asyncEngineCount, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT},
    {&P::unifiedAddressing, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING},
    {&P::memoryBusWidth, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH},
    {&P::l2CacheSize, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE},
    {&P::persistingL2CacheMaxSize, CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE},
    {&P::maxThreadsPerMultiProcessor, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR},
    {&P::streamPrioritiesSupported, CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED},
    {&P::globalL1CacheSupported, CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED},
    {&P::localL1CacheSupported, CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED},
    {&P::regsPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR},
    {&P::managedMemory, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY},
    {&P::isMultiGpuBoard, CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD},
    {&P::multiGpuBoardGroupID, CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID},
    {&P::hostNativeAtomicSupported, CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED},
    {&P::pageableMemoryAccess, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS},
    {&P::concurrentManagedAccess, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS},
    {&P::computePreemptionSupported, CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED},
    {&P::canUseHostPointerForRegisteredMem, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM},
    {&P::cooperativeLaunch, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH},
    {&P::pageableMemoryAccessUsesHostPageTables,
     CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES},
    {&P::directManagedMemAccessFromHost, CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST},
    {&P::maxBlocksPerMultiProcessor, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR},
    {&P::accessPolicyMaxWindowSize, CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE},
    {&P::hostRegisterSupported, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED},
    {&P::sparseCudaArraySupported, CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED},
    {&P::memoryPoolsSupported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED},
    {&P::clusterLaunch, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH},
    {&P::unifiedFunctionPointers, CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS},
};
constexpr WideProperty kWideProperties[] = {
    {&P::sharedMemPerBlock, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK},
    {&P::memPitch, CU_DEVICE_ATTRIBUTE_MAX_PITCH},
    {&P::totalConstMem, CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY},
    {&P::textureAlignment, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT},
    {&P::texturePitchAlignment, CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT},
    {&P::surfaceAlignment, CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT},
    {&P::sharedMemPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR},
    {&P::sharedMemPerBlockOptin, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN},
    {&P::reservedSharedMemPerBlock, CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK},
};

CUresult attribute(int* value, int number) {
  return cuDeviceGetAttribute(value, static_cast<CUdevice_attribute>(number), 0);
}

CUresult driver_entry(const char* name, void** out, int version, unsigned long long flags,
                      cudaDriverEntryPointQueryResult* status) {
  CUdriverProcAddressQueryResult answer{};
  const CUresult code = cuGetProcAddress_v2(name, out, version, flags, &answer);
  // The three answers have the same numbers in both interfaces.
  if (status) *status = static_cast<cudaDriverEntryPointQueryResult>(answer);
  return code;
}

}  // namespace

// Variables of a program exist once, so it has one device whatever MXFA_EMU_DEVICES says.
cudaError_t cudaGetDeviceCount(int* count) {
  return call([&] {
    if (!count) return CUDA_ERROR_INVALID_VALUE;
    *count = 1;
    return CUDA_SUCCESS;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return call([&] {
    if (!device) return CUDA_ERROR_INVALID_VALUE;
    *device = 0;
    return CUDA_SUCCESS;
  });
}

cudaError_t cudaSetDevice(int device) {
  return call([&] { return the_device(device); });
}

cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
  return call([&] { return the_device(device); });
}

// How a thread waits, which an eager driver never does.
cudaError_t cudaSetDeviceFlags(unsigned flags) {
  return call([&] { return flags & ~unsigned{cudaDeviceMask} ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS; });
}

cudaError_t cudaGetDeviceFlags(unsigned* flags) {
  return call([&] { return cuCtxGetFlags(flags); });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr number, int device) {
  return call([&] {
    if (const CUresult code = the_device(device)) return code;
    return attribute(value, static_cast<int>(number));  // numbered alike in both interfaces
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int device) {
  return call([&] {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult code = the_device(device)) return code;
    *out = {};
    if (const CUresult code = cuDeviceGetName(out->name, sizeof out->name, 0)) return code;
    if (const CUresult code = cuDeviceGetUuid_v2(&out->uuid, 0)) return code;
    if (const CUresult code = cuDeviceTotalMem_v2(&out->totalGlobalMem, 0)) return code;
    for (const auto& [member, number] : kProperties) {
      if (const CUresult code = attribute(&(out->*member), number)) return code;
    }
    for (const auto& [member, number] : kWideProperties) {
      int value = 0;
      if (const CUresult code = attribute(&value, number)) return code;
      out->*member = static_cast<size_t>(value);
    }
    for (int i = 0; i < 3; ++i) {
      if (const CUresult code = attribute(&out->maxThreadsDim[i], CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i))
        return code;
      if (const CUresult code = attribute(&out->maxGridSize[i], CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i))
        return code;
    }
    return CUDA_SUCCESS;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return call([] { return cuCtxSynchronize(); });
}

cudaError_t cudaDeviceReset() {
  return call([] { return cuDevicePrimaryCtxReset_v2(0); });
}

cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
  return call([&] { return cuCtxGetLimit(value, static_cast<CUlimit>(limit)); });
}

cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t value) {
  return call([&] { return cuCtxSetLimit(static_cast<CUlimit>(limit), value); });
}

cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) {
  return call([] { return CUDA_SUCCESS; });  // a hint
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return call([&] { return cuCtxGetStreamPriorityRange(least, greatest); });
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  return call([&] { return cuDeviceGetPCIBusId(text, length, device); });
}

cudaError_t cudaDriverGetVersion(int* version) { return finish(cuDriverGetVersion(version)); }

cudaError_t cudaRuntimeGetVersion(int* version) {
  if (!version) return finish(cudaErrorInvalidValue);
  *version = CUDART_VERSION;
  return cudaSuccess;
}

// ---- functions of the driver by name ---------------------------------------------------------------------
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** out, unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* status) {
  return call([&] { return driver_entry(name, out, static_cast<int>(version), flags, status); });
}
MXFA_PER_THREAD(cudaGetDriverEntryPointByVersion_ptsz, cudaGetDriverEntryPointByVersion)

cudaError_t cudaGetDriverEntryPoint(const char* name, void** out, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* status) {
  return call([&] { return driver_entry(name, out, CUDART_VERSION, flags, status); });
}
MXFA_PER_THREAD(cudaGetDriverEntryPoint_ptsz, cudaGetDriverEntryPoint)
