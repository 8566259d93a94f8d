// The last error, names of errors, and the context that the runtime API makes by itself.
#include <cstdio>

#include "cudart/runtime.hpp"

namespace mxfa::emulator::cudart {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

struct ErrorName {
  cudaError_t code;
  const char* name;
};
constexpr ErrorName kErrorNames[] = {
#define NAME(code) {code, #code},
#include "cudart/error_names.def"
#undef NAME
};

}  // namespace

cudaError_t finish(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

cudaError_t refuse(cudaError_t error, const char* function, const char* text) {
  std::fprintf(stderr, "mxfa emulator: %s: %s (%s)\n", function, text, cudaGetErrorName(error));
  return finish(error);
}

CUresult make_ready() {
  if (const CUresult code = cuInit(0)) return code;
  CUcontext context = nullptr;
  if (cuCtxGetCurrent(&context) == CUDA_SUCCESS && context) return CUDA_SUCCESS;
  // Retained once for the process: a program of the runtime API never releases it.
  static CUcontext primary = nullptr;
  if (!primary) {
    if (const CUresult code = cuDevicePrimaryCtxRetain(&primary, 0)) return code;
  }
  return cuCtxSetCurrent(primary);
}

}  // namespace mxfa::emulator::cudart

using namespace mxfa::emulator::cudart;

cudaError_t cudaGetLastError() {
  const cudaError_t error = cudaPeekAtLastError();
  last_error = cudaSuccess;
  return error;
}

// A kernel that faulted has spoiled the context: the launch succeeded, and the next question tells.
cudaError_t cudaPeekAtLastError() {
  if (last_error == cudaSuccess && make_ready() == CUDA_SUCCESS) finish(cuCtxSynchronize());
  return last_error;
}

const char* cudaGetErrorName(cudaError_t error) {
  for (const ErrorName& entry : kErrorNames) {
    if (entry.code == error) return entry.name;
  }
  return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {  // errors of the runtime alone
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorInvalidSymbol:
      return "invalid device symbol";
    case cudaErrorInvalidDevicePointer:
      return "invalid device pointer";
    case cudaErrorInvalidMemcpyDirection:
      return "invalid copy direction for memcpy";
    case cudaErrorMissingConfiguration:
      return "__global__ function call is not configured";
    case cudaErrorInvalidDeviceFunction:
      return "invalid device function";
    case cudaErrorInvalidResourceHandle:
      return "invalid resource handle";
    default: {
      const char* text = nullptr;
      return cuGetErrorString(static_cast<CUresult>(error), &text) == CUDA_SUCCESS ? text
                                                                                   : cudaGetErrorName(error);
    }
  }
}
