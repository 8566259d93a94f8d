// The CUDA Driver API as a table of functions, loaded by name from one library chosen at start: the GPU's
// libcuda.so.1 or the CPU driver libmxfa_emulator.so.  No code above this table asks which one it got; the
// only difference is the image a module is loaded from.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "mxfa/mxfa.hpp"

namespace mxfa {

// Versions are spelled out: these are the names looked up in the library.  cuda.h types each of them.
// clang-format off
#define MXFA_DRIVER_FUNCTIONS(X)                                                                         \
  X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuGetErrorString)                                  \
  X(cuDeviceGetCount) X(cuDeviceGet) X(cuDeviceGetName) X(cuDeviceGetAttribute) X(cuDeviceTotalMem_v2)   \
  X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease_v2)                                            \
  X(cuCtxPushCurrent_v2) X(cuCtxPopCurrent_v2) X(cuCtxSynchronize)                                       \
  X(cuModuleLoadDataEx) X(cuModuleUnload) X(cuModuleGetFunction) X(cuModuleGetGlobal_v2)                 \
  X(cuFuncSetAttribute) X(cuFuncGetAttribute) X(cuLaunchKernelEx) X(cuTensorMapEncodeTiled)              \
  X(cuMemAlloc_v2) X(cuMemFree_v2) X(cuMemsetD8_v2) X(cuMemsetD8Async)                                   \
  X(cuMemcpyHtoD_v2) X(cuMemcpyDtoH_v2) X(cuMemcpyHtoDAsync_v2) X(cuMemcpyDtoHAsync_v2)                  \
  X(cuStreamCreate) X(cuStreamSynchronize) X(cuStreamDestroy_v2)                                         \
  X(cuEventCreate) X(cuEventRecord) X(cuEventSynchronize) X(cuEventElapsedTime) X(cuEventDestroy_v2)
// clang-format on

// A driver call that failed, and how.
class DriverError : public Error {
 public:
  DriverError(CUresult result, const std::string& what) : Error(MXFA_ERROR_DEVICE, what), result_(result) {}
  CUresult result() const { return result_; }

 private:
  CUresult result_;
};

// True: with this code a driver refuses a launch or a copy before any of it runs.  False: it may report work
// that ran, of this call or of an earlier asynchronous one, and what the device did is unknown.
bool refused_before_running(CUresult result);

struct Driver {
// cuda.h renames some functions to a newer version with a macro; the member then has the newer name, the
// symbol the one written above.
#define MXFA_DRIVER_MEMBER(name) decltype(&::name) name = nullptr;
  MXFA_DRIVER_FUNCTIONS(MXFA_DRIVER_MEMBER)
#undef MXFA_DRIVER_MEMBER

  // A driver that explains itself: text of the last failure, totals since start.  nullptr on a GPU's driver.
  const char* (*mxfaEmulatorLastReport)() = nullptr;
  int (*mxfaEmulatorCounters)(uint64_t out[8]) = nullptr;

  std::string library;     // the name it was loaded by
  bool loads_ptx = false;  // image kind: PTX, else cubin
  CUdevice device = 0;     // the device chosen
  std::string arch;        // of that device: "sm_100a"
  std::string device_name;
  int compute_major = 0, compute_minor = 0;

  // Throws DriverError: "<what>: CUDA_ERROR_X (its description)", followed by the driver's
  // own report if it has one.
  void check(CUresult result, std::string_view what) const;
  std::string describe(CUresult result) const;
  int attribute(CUdevice_attribute attribute) const;
  // Totals since start as JSON: launches, warp_instructions, ...; "" where the driver keeps none.
  std::string counters() const;
  std::string version() const;  // "13.0": the CUDA version the driver is for
};

// The one decision about architectures: "sm_90a" for 9.0, "sm_100a" for 10.0, "sm_103a" for 10.3, "" for
// everything else.  An exact list, because 12.0 is a later number without these instructions.
std::string arch_of(int major, int minor);
// The sentence that refuses a device of another capability.
std::string refuse_device(const std::string& name, int major, int minor);

struct DeviceChoice {
  enum class Kind { kAuto, kGpu, kEmulator } kind = Kind::kAuto;
  std::string model;  // kEmulator: "b200", "gb300", "h200", or "" for its default
  int ordinal = -1;   // among the driver's devices; -1: the first that we have kernels for
};
// "auto", "gpu", "emulator", "emulator:<model>", all but auto with ":<ordinal>" behind if wanted.  Null or
// empty: MXFA_DEVICE, then auto.
DeviceChoice parse_device(const char* option);

// Loads the library, initialises it and finds a device.  Throws mxfa::Error.
Driver load_driver(const DeviceChoice& choice);

// Throws in a forked child of a process that had initialised a driver: neither kind survives fork().
void refuse_after_fork();

}  // namespace mxfa
