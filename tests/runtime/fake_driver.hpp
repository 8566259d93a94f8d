// A driver table whose functions record what they are asked; device memory is host memory.  For what the
// runtime says to a driver; what a kernel computes is tested elsewhere.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "host/context.hpp"
#include "host/kernel_abi.hpp"
#include "host/tensor_map.hpp"

namespace mxfa::test {

struct FakeDriver {
  abi::KernelTables tables{};         // what the loaded module publishes
  abi::KernelTables expand_tables{};  // mxfp8_expand
  CUresult launch_result = CUDA_SUCCESS, load_result = CUDA_SUCCESS, copy_result = CUDA_SUCCESS;
  int shared_limit = 232448, multiprocessors = 4;
  int loads = 0, unloads = 0, launches = 0, context_depth = 0, retains = 0;
  std::string image;  // first bytes of the last image
  CUlaunchConfig launch{};
  std::vector<char> params;        // of the last launch
  CUlaunchConfig expand_launch{};  // of mxfp8_expand, which `launch` and `params` leave out
  abi::ExpandParams expand_params{};
  std::vector<TensorMapRequest> maps;  // of the last launch
  std::vector<CUstream> streams;       // of every copy and launch
};

FakeDriver& fake();  // one a process, as function pointers carry no state
Driver fake_driver(const char* arch = "sm_100a", bool loads_ptx = true);

// Kernels with real names and no work, and the configurations they need.
extern const MxfaEmbedded kFakeSources[], kFakeConfigs[];

// A context on the fake driver, with its state reset and a cache of its own in memory.
std::unique_ptr<mxfa_context> fake_context(const char* arch = "sm_100a");

// An address for the arguments of a launch; nothing lies there.
inline void* device(uint64_t address) { return reinterpret_cast<void*>(address); }

}  // namespace mxfa::test
