// A device under comparison: the real driver (libcuda.so.1) or the CPU driver as an H200, both through the
// same functions of the driver ABI.  PTX text in, words out; nothing here knows which of the two it talks to.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>
#include <vector>

namespace mxfa::silicon {

using Words = std::vector<uint32_t>;

#define MXFA_SILICON_FUNCTIONS(X) \
  X(cuInit)                       \
  X(cuDriverGetVersion)           \
  X(cuGetErrorName)               \
  X(cuDeviceGet)                  \
  X(cuDeviceGetName)              \
  X(cuDeviceGetAttribute)         \
  X(cuDevicePrimaryCtxRetain)     \
  X(cuCtxSetCurrent)              \
  X(cuCtxSynchronize)             \
  X(cuModuleLoadDataEx)           \
  X(cuModuleUnload)               \
  X(cuModuleGetFunction)          \
  X(cuFuncSetAttribute)           \
  X(cuLaunchKernel)               \
  X(cuMemAlloc_v2)                \
  X(cuMemFree_v2) X(cuMemcpyHtoD_v2) X(cuMemcpyDtoH_v2) X(cuMemsetD8_v2) X(cuTensorMapEncodeTiled)

// A kernel written out.  Its body finds %in and %out (global addresses, 64 bit), %thread, %lane, %warp, %cta
// (32 bit), and has %r<200> (b32), %f<64> (f32), %w<64> (b64), %h<32> (b16) and %p<32> (predicates) to use.
// `out` comes filled with 0xff.
struct Kernel {
  std::string body;
  unsigned threads = 32, ctas = 1;
  std::string declarations = {};  // before the kernel: module variables
  std::string cluster = {};       // "2, 1, 1": CTAs of a cluster
  unsigned dynamic_shared = 0;
  std::vector<CUtensorMap> maps = {};  // parameters map0, map1, ...
  unsigned ctas_y = 1, ctas_z = 1;
};

// One instruction a thread: PTX with inputs %a0 %a1 ..., results %d0 %d1 ..., scratch %t0-7 (b32), %w0-3
// (b64), %q0-3 (pred), %h0-3 (b16), and 16 bytes of its own at %slot (global, 64 bit) and %shared (shared, 32
// bit).
struct Form {
  std::string text;
  std::vector<std::string> inputs, results;  // register types: b16, b32, b64, f32 ...
};

class Machine {
 public:
  // `library` is a file name for dlopen.  The CPU driver shows an H200.
  explicit Machine(const std::string& library);

  Words run(const Kernel& kernel, const Words& in, size_t out_words);
  // columns[k][i] is operand k of case i.  Results in the order of cases, then of results; a 64-bit result is
  // two words.
  Words form(const Form& form, const std::vector<std::vector<uint64_t>>& columns);

  CUdeviceptr allocate(const void* data, size_t bytes);
  void read(CUdeviceptr from, void* to, size_t bytes);
  CUtensorMap tensor_map(CUtensorMapDataType type, const std::vector<cuuint64_t>& sizes,
                         const std::vector<cuuint64_t>& strides, const std::vector<cuuint32_t>& box,
                         const std::vector<cuuint32_t>& element_strides, CUtensorMapSwizzle swizzle,
                         bool fill_nan, CUdeviceptr address);
  void release();  // what allocate gave

  std::string description() const;
  // Where set, every PTX text is also written there, for an assembler to judge.
  std::string dump_folder;

 private:
  void check(CUresult code, const char* what) const;
  CUfunction load(const std::string& ptx, const char* name);

#define X(name) decltype(&::name) name = nullptr;
  MXFA_SILICON_FUNCTIONS(X)
#undef X
  const char* (*last_report_)() = nullptr;  // the CPU driver's
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  std::string loaded_;  // its text
  std::vector<CUdeviceptr> allocations_;
  int dumped_ = 0;
};

}  // namespace mxfa::silicon
