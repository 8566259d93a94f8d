// A compiled kernel inside a driver context: module, function, the tables its source publishes; and the
// launch.
#pragma once

#include <memory>
#include <string>

#include "host/driver.hpp"
#include "host/jit.hpp"
#include "host/kernel_abi.hpp"

namespace mxfa {

struct Kernel {
  KernelConfig config;
  BuiltKernel built;
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  abi::KernelTables tables{};
  double load_ms = 0;
};

// Loads into the current context and checks that host and kernel mean the same parameters.  `compiler` is
// named when the driver refuses the image.  Throws mxfa::Error.
std::unique_ptr<Kernel> load_kernel(const Driver& driver, const KernelConfig& config, BuiltKernel built,
                                    uint32_t params_bytes, const std::string& compiler);
void unload_kernel(const Driver& driver, Kernel& kernel);

// grid.x CTAs; everything else comes from the tables.  Throws with grid, block and shared memory in the
// message.
void launch_kernel(const Driver& driver, const Kernel& kernel, uint32_t grid, const void* params,
                   CUstream stream);

}  // namespace mxfa
