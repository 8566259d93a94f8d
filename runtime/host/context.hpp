// mxfa_context: one driver table, one compiler, one device's primary context, and the kernels loaded into it.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "host/cache.hpp"
#include "host/driver.hpp"
#include "host/embedded.hpp"
#include "host/error.hpp"
#include "host/jit.hpp"
#include "host/module.hpp"
#include "host/nvrtc.hpp"

struct mxfa_context {
  mxfa::Driver driver;
  std::unique_ptr<mxfa::Nvrtc> nvrtc;
  std::shared_ptr<mxfa::Cache> cache;
  const MxfaEmbedded* sources = mxfa_embedded_device_sources;
  const MxfaEmbedded* configs = mxfa_embedded_kernel_configs;
  CUcontext primary = nullptr;  // null: creation failed, `error` says why
  pid_t pid = 0;
  bool verbose = false;
  std::string error;   // of the last failed call
  std::string broken;  // first failure of a launch or copy; the device state is unknown from then on and
                       // every call repeats it
  std::map<std::string, std::unique_ptr<mxfa::Kernel>> kernels;  // by key

  mxfa_context() = default;
  mxfa_context(const mxfa_context&) = delete;
  mxfa_context& operator=(const mxfa_context&) = delete;
  ~mxfa_context();

  // Takes the primary context of driver.device.
  void open(mxfa::Driver driver, std::shared_ptr<mxfa::Cache> cache);
  // Builds and loads, or finds the kernel loaded before.  The context must be current.
  mxfa::Kernel& kernel(const mxfa::KernelConfig& config, uint32_t params_bytes);
  // Throws if this context cannot be used: not created, broken, or in a forked child.
  void require_usable() const;
};

namespace mxfa {

// Makes the context current for a scope and restores what the calling thread had.
class CurrentContext {
 public:
  explicit CurrentContext(const mxfa_context& context) : driver_(context.driver) {
    driver_.check(driver_.cuCtxPushCurrent_v2(context.primary), "cuCtxPushCurrent");
  }
  ~CurrentContext() {
    CUcontext popped = nullptr;
    driver_.cuCtxPopCurrent_v2(&popped);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const Driver& driver_;
};

// Work handed to the device: its first failure is kept, because what the device did is unknown after it.  A
// refusal is not: nothing ran, and the caller can repair the argument and go on.
template <class Function>
void device_work(mxfa_context& context, Function&& function) {
  try {
    function();
  } catch (const DriverError& failure) {
    if (!refused_before_running(failure.result())) context.broken = failure.what();
    throw;
  }
}

// Runs an entry point: exceptions become a status and context.error.
template <class Function>
mxfa_status entry_point(mxfa_context* context, Function&& function) noexcept {
  if (!context) return MXFA_ERROR_INVALID;
  try {
    context->error.clear();
    context->require_usable();
    function();
    return MXFA_OK;
  } catch (const Error& failure) {
    context->error = failure.what();
    return failure.status();
  } catch (const std::exception& failure) {
    context->error = failure.what();
    return MXFA_ERROR_DEVICE;
  }
}

// A caller's struct: its first member is its size.  Members that an older caller does not know keep their
// default; a newer caller may only set members that we know.
template <class Struct>
Struct read_struct(const Struct* given, Struct defaults, const char* name) {
  if (!given) invalid("{} is null", name);
  const uint32_t size = given->size;
  if (size < 2 * sizeof(uint32_t))
    invalid("{}.size is {}; set it to sizeof({}) = {}", name, size, name, sizeof(Struct));
  if (size > sizeof(Struct)) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(given);
    for (uint32_t at = sizeof(Struct); at < size; ++at)
      if (bytes[at] != 0)
        invalid(
            "{}.size is {} and byte {} is set, but this library ({}) knows only {} bytes; use the library of "
            "your header",
            name, size, at, product_version(), sizeof(Struct));
  }
  std::memcpy(static_cast<void*>(&defaults), given, std::min<size_t>(size, sizeof(Struct)));
  defaults.size = sizeof(Struct);
  return defaults;
}

}  // namespace mxfa
