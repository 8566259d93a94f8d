#include "host/context.hpp"

#include <unistd.h>

mxfa_context::~mxfa_context() {
  // A forked child has the handles but not the driver behind them.
  if (!primary || pid != getpid()) return;
  CUcontext popped = nullptr;
  if (driver.cuCtxPushCurrent_v2(primary) == CUDA_SUCCESS) {
    for (auto& [key, kernel] : kernels) mxfa::unload_kernel(driver, *kernel);
    driver.cuCtxPopCurrent_v2(&popped);
  }
  driver.cuDevicePrimaryCtxRelease_v2(driver.device);
}

void mxfa_context::open(mxfa::Driver loaded, std::shared_ptr<mxfa::Cache> kernel_cache) {
  pid = getpid();
  driver = std::move(loaded);
  cache = std::move(kernel_cache);
  nvrtc = std::make_unique<mxfa::Nvrtc>();
  driver.check(driver.cuDevicePrimaryCtxRetain(&primary, driver.device), "cuDevicePrimaryCtxRetain");
}

mxfa::Kernel& mxfa_context::kernel(const mxfa::KernelConfig& config, uint32_t params_bytes) {
  mxfa::BuiltKernel built = mxfa::build_kernel(*nvrtc, *cache, config, sources, verbose);
  if (const auto found = kernels.find(built.key); found != kernels.end()) return *found->second;
  const std::string key = built.key;
  auto loaded =
      mxfa::load_kernel(driver, config, std::move(built), params_bytes, "NVRTC " + nvrtc->version());
  return *(kernels[key] = std::move(loaded));
}

void mxfa_context::require_usable() const {
  if (pid != 0 && pid != getpid())
    mxfa::device_error(
        "this context was made in process {} and is used in its forked child {}; the CUDA driver does not "
        "survive fork(). Start a fresh process (spawn, exec), or fork before mxfa_create",
        pid, getpid());
  if (!primary) mxfa::device_error("this context was not created; destroy it");
  if (!broken.empty())
    mxfa::device_error("an earlier call failed and the context cannot be used any more: {}", broken);
}
