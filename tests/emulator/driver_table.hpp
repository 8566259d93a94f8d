// The driver ABI as the tests use it: a library opened by name, and the few functions they call.
// Tests run on the CPU driver of this build; with MXFA_TEST_DRIVER=libcuda.so.1 they run on a real device,
// and those whose model it is not are skipped.  That is how the answers tested here were checked against
// hardware.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace mxfa::test {

#define MXFA_DRIVER_FUNCTIONS(X)                                                                             \
  X(cuInit)                                                                                                  \
  X(cuDriverGetVersion)                                                                                      \
  X(cuGetErrorName) X(cuGetErrorString) X(cuDeviceGet) X(cuDeviceGetCount) X(cuDeviceGetName) X(             \
      cuDeviceTotalMem_v2) X(cuDeviceGetAttribute) X(cuDevicePrimaryCtxRetain)                               \
      X(cuDevicePrimaryCtxRelease_v2) X(cuDevicePrimaryCtxReset_v2) X(cuCtxSetCurrent) X(cuCtxGetCurrent) X( \
          cuCtxGetDevice) X(cuCtxSynchronize) X(cuCtxPushCurrent_v2) X(cuCtxPopCurrent_v2) X(cuCtxCreate_v4) \
          X(cuCtxDestroy_v2) X(cuModuleLoadData) X(cuModuleLoadDataEx) X(cuModuleUnload)                     \
              X(cuModuleGetFunction) X(cuModuleGetGlobal_v2) X(cuLibraryLoadData) X(cuLibraryUnload) X(      \
                  cuLibraryGetKernel) X(cuLibraryGetKernelCount) X(cuLibraryEnumerateKernels)                \
                  X(cuKernelGetFunction) X(cuKernelGetParamInfo) X(cuFuncGetAttribute) X(cuFuncSetAttribute) \
                      X(cuLaunchKernel) X(cuLaunchKernelEx) X(cuMemAlloc_v2) X(cuMemFree_v2)                 \
                          X(cuMemGetInfo_v2) X(cuMemGetAddressRange_v2) X(cuPointerGetAttribute)             \
                              X(cuMemcpyHtoD_v2) X(cuMemcpyDtoH_v2) X(cuMemcpyDtoD_v2)                       \
                                  X(cuMemcpyHtoDAsync_v2) X(cuMemcpyDtoHAsync_v2) X(cuMemsetD8_v2)           \
                                      X(cuMemsetD16_v2) X(cuMemsetD32_v2) X(cuMemsetD32Async)                \
                                          X(cuStreamCreate) X(cuStreamDestroy_v2) X(cuStreamSynchronize)     \
                                              X(cuStreamWaitEvent) X(cuEventCreate) X(cuEventRecord)         \
                                                  X(cuEventSynchronize) X(cuEventQuery)                      \
                                                      X(cuEventElapsedTime_v2) X(cuEventDestroy_v2)          \
                                                          X(cuOccupancyMaxActiveClusters)                    \
                                                              X(cuOccupancyMaxActiveBlocksPerMultiprocessor) \
                                                                  X(cuGetProcAddress_v2) X(cuGetExportTable) \
                                                                      X(cuTensorMapEncodeTiled)              \
                                                                          X(cuTensorMapReplaceAddress)

// One loaded driver with its primary context current.  A model has one process-wide instance, since a driver
// keeps its device for life.
class Driver {
 public:
  // "h200", "b200", "gb300".  The CPU driver of another model is another copy of the library.
  static Driver& of(const std::string& model);
  // False when the tests run on a real device that is not this model: the test returns at once.
  static bool has(const std::string& model);
  static bool is_real();

#define X(name) decltype(&::name) name = nullptr;
  MXFA_DRIVER_FUNCTIONS(X)
#undef X
  const char* (*last_report)() = nullptr;  // null on a real device
  int (*counters)(uint64_t out[8]) = nullptr;

  void* symbol(const char* name) const;
  // Makes the primary context current; a context that a fault has spoiled is reset first.
  void ready();
  std::string error(CUresult code) const;  // "CUDA_ERROR_..."

 private:
  explicit Driver(const std::string& model);
  void* handle_ = nullptr;
  CUcontext context_ = nullptr;
};

// Opens a further copy of the CPU driver, not initialised: for tests of what happens before or in cuInit.
void* open_fresh_copy();

// Device memory that frees itself.
class Buffer {
 public:
  Buffer(Driver& driver, size_t bytes);
  Buffer(Driver& driver, const void* data, size_t bytes);
  template <class T>
  Buffer(Driver& driver, const std::vector<T>& data) : Buffer(driver, data.data(), data.size() * sizeof(T)) {}
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  CUdeviceptr address() const { return address_; }
  template <class T>
  std::vector<T> read() const {
    std::vector<T> data(bytes_ / sizeof(T));
    copy_out(data.data());
    return data;
  }

 private:
  void copy_out(void* data) const;
  Driver& driver_;
  CUdeviceptr address_ = 0;
  size_t bytes_ = 0;
};

// A module that unloads itself.
class PtxModule {
 public:
  PtxModule(Driver& driver, const std::string& ptx);
  ~PtxModule();
  PtxModule(const PtxModule&) = delete;
  PtxModule& operator=(const PtxModule&) = delete;
  CUfunction function(const char* name) const;
  CUmodule handle() const { return module_; }

 private:
  Driver& driver_;
  CUmodule module_ = nullptr;
};

// Whether a report names all of these.
bool mentions(const std::string& text, std::initializer_list<const char*> parts);

// PTX around a body: the header for a target and one kernel with these parameters.
std::string ptx_header(const std::string& target, const std::string& version = "8.6");
std::string ptx_kernel(const std::string& name, const std::string& parameters, const std::string& body);

}  // namespace mxfa::test
