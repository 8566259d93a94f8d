// cuFunc* and cuOccupancy*.
#include "driver_api/function.hpp"

namespace mxfa::emulator::driver_api {
namespace {

int device_attribute(CUdevice_attribute attribute) {
  return static_cast<int>(driver().device.model.attributes[attribute]);
}

int round_up(int value, int unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

int function_attribute(const Function& function, CUfunction_attribute attribute) {
  const KernelInfo& kernel = *function.kernel;
  const DeviceModel& model = driver().device.model;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return static_cast<int>(kernel.max_threads);
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      return static_cast<int>(kernel.static_shared);
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
      return 0;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      return static_cast<int>(kernel.local_bytes);
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      return static_cast<int>(kernel.registers);
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      return model.major * 10 + model.minor;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
      return 0;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      return function.max_dynamic_shared;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return function.carveout;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
      return kernel.required_cluster.x != 0;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
      return static_cast<int>(kernel.required_cluster.x);
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
      return static_cast<int>(kernel.required_cluster.y);
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      return static_cast<int>(kernel.required_cluster.z);
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      return function.non_portable_cluster;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return CU_CLUSTER_SCHEDULING_POLICY_DEFAULT;
    default:
      refuse(CUDA_ERROR_INVALID_VALUE, "function attribute {} is not one of CUDA 13.0",
             static_cast<int>(attribute));
  }
}

void set_function_attribute(Function& function, CUfunction_attribute attribute, int value) {
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: {
      const int limit =
          static_cast<int>(driver().device.model.shared_per_block_optin - function.kernel->static_shared);
      if (value < 0 || value > limit) {
        refuse(CUDA_ERROR_INVALID_VALUE,
               "MAX_DYNAMIC_SHARED_SIZE_BYTES {} for {}: 0 to {} is allowed ({} less {} static)", value,
               function.kernel->name, limit, driver().device.model.shared_per_block_optin,
               function.kernel->static_shared);
      }
      function.max_dynamic_shared = value;
      return;
    }
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      if (value < -1 || value > 100) {
        refuse(CUDA_ERROR_INVALID_VALUE, "PREFERRED_SHARED_MEMORY_CARVEOUT {}: -1 to 100 is allowed", value);
      }
      function.carveout = value;
      return;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      function.non_portable_cluster = value != 0;
      return;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return;  // a hint
    default:
      refuse(CUDA_ERROR_INVALID_VALUE, "function attribute {} cannot be set", static_cast<int>(attribute));
  }
}

void parameter_info(const Function& function, size_t index, size_t* offset, size_t* size) {
  const auto& parameters = function.kernel->parameters;
  if (index >= parameters.size())
    refuse(CUDA_ERROR_INVALID_VALUE);  // how programs find the number of parameters
  require(offset, "paramOffset");
  *offset = parameters[index].offset;
  if (size) *size = parameters[index].size;
}

// What occupancy is computed for: a MAX_DYNAMIC_SHARED_SIZE_BYTES below 48 KiB limits launches, but not this
// question (seen on an H200).
static int occupancy_shared_limit(const Function& function) {
  const int plain = device_attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  return std::max(function.max_dynamic_shared, plain - static_cast<int>(function.kernel->static_shared));
}

// The allocation units (32 threads, 128 bytes of shared memory plus the reserved part, 256 registers a warp
// over 4 sub-cores) give the numbers that cuOccupancyMaxActiveBlocksPerMultiprocessor of an H200 gives.
int blocks_per_sm(const Function& function, int threads, size_t dynamic_shared) {
  const DeviceModel& model = driver().device.model;
  const KernelInfo& kernel = *function.kernel;
  if (threads > static_cast<int>(kernel.max_threads) ||
      dynamic_shared > static_cast<size_t>(occupancy_shared_limit(function)))
    return 0;
  const int warps = (threads + 31) / 32;
  const int shared = round_up(static_cast<int>(kernel.static_shared + dynamic_shared), 128) +
                     static_cast<int>(model.shared_reserved);
  int blocks = std::min(device_attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) / (warps * 32),
                        device_attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR));
  blocks = std::min(blocks, static_cast<int>(model.shared_per_sm) / shared);
  if (kernel.registers) {
    const int warp_registers = round_up(static_cast<int>(kernel.registers) * 32, 256);
    const int resident_warps = static_cast<int>(model.registers_per_sm) / 4 / warp_registers * 4;
    blocks = std::min(blocks, resident_warps / warps);
  }
  return blocks;
}

}  // namespace mxfa::emulator::driver_api

using namespace mxfa::emulator;
using namespace mxfa::emulator::driver_api;

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  return api(__func__, [&] {
    require_context();
    require(value, "pi");
    *value = function_attribute(require_function(function), attribute);
  });
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  return api(__func__, [&] {
    require_context();
    set_function_attribute(require_function(function), attribute, value);
  });
}

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache) {
  return api(__func__, [&] {  // a hint
    require_context();
    require_function(function);
  });
}

CUresult cuFuncGetModule(CUmodule* out, CUfunction function) {
  return api(__func__, [&] {
    require_context();
    require(out, "hmod");
    *out = reinterpret_cast<CUmodule>(require_function(function).module);
  });
}

CUresult cuFuncGetName(const char** name, CUfunction function) {
  return api(__func__, [&] {
    require_context();
    require(name, "name");
    *name = require_function(function).kernel->name.c_str();
  });
}

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t* offset, size_t* size) {
  return api(__func__, [&] {
    require_context();
    parameter_info(require_function(function), index, offset, size);
  });
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
  return api(__func__, [&] {
    require_context();
    require(state, "state");
    require_function(function);
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
  });
}

CUresult cuFuncLoad(CUfunction function) {
  return api(__func__, [&] {
    require_context();
    require_function(function);
  });
}

// ---- occupancy -------------------------------------------------------------------------------------------
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int threads,
                                                     size_t dynamic_shared) {
  return api(__func__, [&] {
    require_context();
    require(blocks, "numBlocks");
    if (threads <= 0) refuse(CUDA_ERROR_INVALID_VALUE, "blockSize {} is not positive", threads);
    *blocks = blocks_per_sm(require_function(function), threads, dynamic_shared);
  });
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function, int threads,
                                                              size_t dynamic_shared, unsigned flags) {
  return api(__func__, [&] {
    require_context();
    require(blocks, "numBlocks");
    if (flags & ~CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
      refuse(CUDA_ERROR_INVALID_VALUE, "flags {:#x} has unknown bits", flags);
    if (threads <= 0) refuse(CUDA_ERROR_INVALID_VALUE, "blockSize {} is not positive", threads);
    *blocks = blocks_per_sm(require_function(function), threads, dynamic_shared);
  });
}

CUresult cuOccupancyMaxPotentialClusterSize(int* size, CUfunction handle, const CUlaunchConfig* config) {
  return api(__func__, [&] {
    require_context();
    require(size, "clusterSize");
    require(config, "config");
    const Function& function = require_function(handle);
    const DeviceModel& model = driver().device.model;
    *size = function.non_portable_cluster ? model.max_cluster_non_portable : model.max_cluster;
  });
}

// The model's clusters at one CTA an SM, times the CTAs an SM holds: exact for large CTAs, which is what
// clusters are made of.
CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction handle, const CUlaunchConfig* config) {
  return api(__func__, [&] {
    require_context();
    require(clusters, "numClusters");
    require(config, "config");
    const Function& function = require_function(handle);
    Dim3 cluster = function.kernel->required_cluster.x ? function.kernel->required_cluster : Dim3{1, 1, 1};
    if (config->numAttrs) require(config->attrs, "config->attrs");
    for (unsigned i = 0; i < config->numAttrs; ++i) {
      if (config->attrs[i].id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
      const auto& value = config->attrs[i].value.clusterDim;
      cluster = {value.x, value.y, value.z};
    }
    const auto& table = driver().device.active_clusters;
    const uint64_t size = static_cast<uint64_t>(cluster.x) * cluster.y * cluster.z;
    const auto found = table.lower_bound(
        static_cast<int>(std::min<uint64_t>(size, INT32_MAX)));  // a size between two: the larger
    if (size == 0 || found == table.end()) {
      refuse(CUDA_ERROR_INVALID_CLUSTER_SIZE, "a cluster of {} CTAs; 1 to {} are possible", size,
             table.rbegin()->first);
    }
    const int threads = static_cast<int>(config->blockDimX * config->blockDimY * config->blockDimZ);
    if (threads <= 0) refuse(CUDA_ERROR_INVALID_VALUE, "the block of the configuration is empty");
    *clusters = found->second * blocks_per_sm(function, threads, config->sharedMemBytes);
  });
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, CUfunction handle, int blocks, int threads) {
  return api(__func__, [&] {
    require_context();
    require(bytes, "dynamicSmemSize");
    const Function& function = require_function(handle);
    if (blocks <= 0 || threads <= 0)
      refuse(CUDA_ERROR_INVALID_VALUE, "{} blocks of {} threads", blocks, threads);
    const DeviceModel& model = driver().device.model;
    const int64_t share = static_cast<int64_t>(model.shared_per_sm) / blocks / 128 * 128;
    *bytes =
        std::max<int64_t>(0, std::min<int64_t>(share - model.shared_reserved, model.shared_per_block_optin) -
                                 function.kernel->static_shared);
  });
}
