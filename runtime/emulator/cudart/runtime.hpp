// libcudart.so.13 over the CPU driver, for programs built with `nvcc -cudart shared`.  It holds what the
// runtime API adds to the driver API: a context made on first use, the last error of each thread, and the
// kernels and variables that nvcc's host code registers.  Everything else is a call of the driver.
#pragma once

#include "cudart/abi.hpp"

namespace mxfa::emulator::cudart {

// The calling thread has a context afterwards: its own, or else the primary one.
CUresult make_ready();

// Remembers a failure for cudaGetLastError and returns it.
cudaError_t finish(cudaError_t error);
// Most numbers of CUresult and cudaError_t are the same.
inline cudaError_t finish(CUresult code) { return finish(static_cast<cudaError_t>(code)); }
// The same, after a sentence on stderr.
cudaError_t refuse(cudaError_t error, const char* function, const char* text);

// An entry point: a context, then the calls of the driver.
template <class Body>
cudaError_t call(Body&& body) {
  if (const CUresult code = make_ready()) return finish(code);
  return finish(body());
}

// ---- what nvcc's host code has registered (registration.cpp)
// The kernel behind the address of its host function; a CUkernel is one already.
CUresult find_kernel(const void* host, CUkernel* kernel);
inline CUfunction as_function(CUkernel kernel) { return reinterpret_cast<CUfunction>(kernel); }
CUresult find_variable(const void* host, CUdeviceptr* address, size_t* bytes);

inline CUdeviceptr device(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

// A function type without the default arguments of the header.
template <class F>
struct WithoutDefaults;
template <class Result, class... Arguments>
struct WithoutDefaults<Result(Arguments...)> {
  using type = Result(Arguments...);
};

}  // namespace mxfa::emulator::cudart

// The form of a function for programs built with --default-stream per-thread.
#define MXFA_PER_THREAD(symbol, target)                             \
  extern "C" __attribute__((alias(#target), visibility("default"))) \
  mxfa::emulator::cudart::WithoutDefaults<decltype(target)>::type symbol;
