// Launches: kernel<<<...>>>(...) is a pushed configuration, then nvcc's stub pops it and launches.
#include <vector>

#include "cudart/runtime.hpp"

using namespace mxfa::emulator::cudart;

namespace {

struct Configuration {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};
thread_local std::vector<Configuration> configurations;

// The runtime has an error of its own for a shape that no device has.
bool possible(dim3 grid, dim3 block) {
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  return grid.x && grid.y && grid.z && threads && grid.x <= 0x7fffffffu && grid.y <= 65535 &&
         grid.z <= 65535 && block.x <= 1024 && block.y <= 1024 && block.z <= 64 && threads <= 1024;
}

CUresult launch(CUkernel kernel, dim3 grid, dim3 block, void** arguments, size_t shared, cudaStream_t stream,
                CUlaunchAttribute* attributes, unsigned count) {
  if (!possible(grid, block)) return static_cast<CUresult>(cudaErrorInvalidConfiguration);
  if (shared > UINT32_MAX) return CUDA_ERROR_INVALID_VALUE;
  CUlaunchConfig config{};
  config.gridDimX = grid.x;
  config.gridDimY = grid.y;
  config.gridDimZ = grid.z;
  config.blockDimX = block.x;
  config.blockDimY = block.y;
  config.blockDimZ = block.z;
  config.sharedMemBytes = static_cast<unsigned>(shared);
  config.hStream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  return cuLaunchKernelEx(&config, as_function(kernel), arguments, nullptr);
}

CUresult launch_host(const void* host, dim3 grid, dim3 block, void** arguments, size_t shared,
                     cudaStream_t stream, CUlaunchAttribute* attributes, unsigned count) {
  CUkernel kernel = nullptr;
  if (const CUresult code = find_kernel(host, &kernel)) return code;
  return launch(kernel, grid, block, arguments, shared, stream, attributes, count);
}

}  // namespace

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st* stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  if (configurations.empty()) return finish(cudaErrorMissingConfiguration);
  const Configuration& top = configurations.back();
  *grid = top.grid;
  *block = top.block;
  *shared = top.shared;
  *static_cast<cudaStream_t*>(stream) = top.stream;
  configurations.pop_back();
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                               cudaStream_t stream) {
  return call([&] {
    // The handle is null where __cudaGetKernel failed; it has said why.
    if (!kernel) return static_cast<CUresult>(cudaErrorInvalidDeviceFunction);
    return launch(reinterpret_cast<CUkernel>(kernel), grid, block, arguments, shared, stream, nullptr, 0);
  });
}
MXFA_PER_THREAD(__cudaLaunchKernel_ptsz, __cudaLaunchKernel)

cudaError_t cudaLaunchKernel(const void* host, dim3 grid, dim3 block, void** arguments, size_t shared,
                             cudaStream_t stream) {
  return call([&] { return launch_host(host, grid, block, arguments, shared, stream, nullptr, 0); });
}
MXFA_PER_THREAD(cudaLaunchKernel_ptsz, cudaLaunchKernel)

cudaError_t cudaLaunchCooperativeKernel(const void* host, dim3 grid, dim3 block, void** arguments,
                                        size_t shared, cudaStream_t stream) {
  return call([&] {
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attribute.value.cooperative = 1;
    return launch_host(host, grid, block, arguments, shared, stream, &attribute, 1);
  });
}
MXFA_PER_THREAD(cudaLaunchCooperativeKernel_ptsz, cudaLaunchCooperativeKernel)

// The attributes of both interfaces have the same numbers and layout.
static_assert(sizeof(cudaLaunchAttribute) == sizeof(CUlaunchAttribute));
static_assert(static_cast<int>(cudaLaunchAttributeClusterDimension) == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* host, void** arguments) {
  return call([&] {
    if (!config) return CUDA_ERROR_INVALID_VALUE;
    return launch_host(host, config->gridDim, config->blockDim, arguments, config->dynamicSmemBytes,
                       config->stream, reinterpret_cast<CUlaunchAttribute*>(config->attrs), config->numAttrs);
  });
}
MXFA_PER_THREAD(cudaLaunchKernelExC_ptsz, cudaLaunchKernelExC)
