// libcudart.so.13 over the CPU driver: what nvcc's host code calls (crt/host_runtime.h), made by hand, and
// the documented calls.
#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>

#include "cudart/abi.hpp"
#include "driver_table.hpp"
#include "fatbin.hpp"
#include "support/catch.hpp"

using mxfa::test::fatbin;
using mxfa::test::FatbinEntry;
using mxfa::test::FatbinWrapper;
using mxfa::test::ptx_header;

namespace {

#define RUNTIME_FUNCTIONS(X)                                                                              \
  X(__cudaRegisterFatBinary)                                                                              \
  X(__cudaRegisterFatBinaryEnd)                                                                           \
  X(__cudaUnregisterFatBinary) X(__cudaRegisterFunction) X(__cudaRegisterVar) X(__cudaRegisterManagedVar) \
      X(__cudaInitModule) X(__cudaGetKernel) X(__cudaPushCallConfiguration) X(__cudaPopCallConfiguration) \
          X(__cudaLaunchKernel) X(cudaLaunchKernel) X(cudaMalloc) X(cudaFree) X(cudaMemcpy) X(cudaMemset) \
              X(cudaGraphCreate) X(cudaMemcpyToSymbol) X(cudaMemcpyFromSymbol) X(cudaGetSymbolSize)       \
                  X(cudaGetLastError) X(cudaPeekAtLastError) X(cudaGetErrorName) X(cudaGetErrorString)    \
                      X(cudaDeviceSynchronize) X(cudaGetDeviceProperties) X(cudaDeviceGetAttribute)       \
                          X(cudaGetDriverEntryPointByVersion) X(cudaPointerGetAttributes)                 \
                              X(cudaStreamCreateWithFlags) X(cudaStreamDestroy) X(cudaMemcpyAsync)        \
                                  X(cudaStreamSynchronize)

struct Runtime {
  static Runtime& get() {
    static Runtime runtime;
    return runtime;
  }
  void* symbol(const char* name) const { return dlsym(handle, name); }
  void* handle = nullptr;
#define X(name) decltype(&::name) name = nullptr;
  RUNTIME_FUNCTIONS(X)
#undef X

 private:
  Runtime() {
    setenv("MXFA_EMU_DEVICE", "b200", 1);
    handle = dlopen(MXFA_CUDART_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!handle) throw std::runtime_error(dlerror());
#define X(name)                                           \
  name = reinterpret_cast<decltype(name)>(symbol(#name)); \
  if (!name) throw std::runtime_error(#name " is not exported");
    RUNTIME_FUNCTIONS(X)
#undef X
  }
};

// add(int* p, int v): p[tid] += v + table[1], and each thread counts itself.
const char kPtx[] = R"(
.visible .global .align 4 .u32 table[4] = {1, 20, 3, 4};
.visible .global .align 4 .u32 counter = 5;
.visible .entry add(.param .u64 p, .param .u32 v)
{
  .reg .b64 %w<6>;
  .reg .b32 %r<8>;
  ld.param.u64 %w1, [p];
  ld.param.u32 %r1, [v];
  mov.u32 %r2, %tid.x;
  mad.wide.u32 %w2, %r2, 4, %w1;
  ld.global.u32 %r3, [%w2];
  ld.global.u32 %r4, [table + 4];
  add.u32 %r3, %r3, %r1;
  add.u32 %r3, %r3, %r4;
  st.global.u32 [%w2], %r3;
  mov.u64 %w3, counter;
  atom.global.add.u32 %r5, [%w3], 1;
  ret;
}
)";

// What nvcc writes for a source file with a kernel, a __device__ and a __managed__ variable: addresses of
// host objects stand for them.
struct Program {
  explicit Program(const std::string& image) : image_(image), cuda(Runtime::get()) {
    wrapper_.data = image_.data();
    handle = cuda.__cudaRegisterFatBinary(&wrapper_);
    cuda.__cudaRegisterFunction(handle, &kernel, &kernel, "add", -1, nullptr, nullptr, nullptr, nullptr,
                                nullptr);
    cuda.__cudaRegisterVar(handle, &table, &table, "table", 0, 16, 0, 0);
    cuda.__cudaRegisterManagedVar(handle, &counter, nullptr, "counter", 0, 4, 0, 0);
    cuda.__cudaRegisterFatBinaryEnd(handle);
    cuda.cudaGetLastError();
  }
  ~Program() { cuda.__cudaUnregisterFatBinary(handle); }
  // The body of a launch stub.
  cudaError_t launch(int* p, int v, dim3 grid, dim3 block, CUstream launch_stream = nullptr) {
    cuda.__cudaPushCallConfiguration(grid, block, 0, launch_stream);
    void* arguments[] = {&p, &v};
    cudaKernel_t function = nullptr;
    cuda.__cudaGetKernel(&function, &kernel);
    size_t shared = 77;
    cudaStream_t stream = nullptr;
    dim3 popped_grid, popped_block;
    REQUIRE(cuda.__cudaPopCallConfiguration(&popped_grid, &popped_block, &shared, &stream) == cudaSuccess);
    CHECK(shared == 0);
    return cuda.__cudaLaunchKernel(function, popped_grid, popped_block, arguments, shared, stream);
  }

 private:
  std::string image_;
  FatbinWrapper wrapper_;

 public:
  Runtime& cuda;
  char kernel = 0, table = 0;
  void* counter = nullptr;
  void** handle = nullptr;
};

std::string good_image() { return fatbin({{FatbinEntry::Ptx, 100, ptx_header("sm_100a", "8.8") + kPtx}}); }

}  // namespace

TEST_CASE("a registered kernel runs, with its variables", "[driver][cudart]") {
  Program program(good_image());
  Runtime& cuda = program.cuda;
  int* p = nullptr;
  REQUIRE(cuda.cudaMalloc(reinterpret_cast<void**>(&p), 32 * sizeof(int)) == cudaSuccess);
  REQUIRE(cuda.cudaMemset(p, 0, 32 * sizeof(int)) == cudaSuccess);
  REQUIRE(program.launch(p, 100, {1, 1, 1}, {32, 1, 1}) == cudaSuccess);
  int values[32] = {};
  REQUIRE(cuda.cudaMemcpy(values, p, sizeof values, cudaMemcpyDeviceToHost) == cudaSuccess);
  CHECK((values[0] == 120 && values[31] == 120));

  const int replaced = 1000;
  REQUIRE(cuda.cudaMemcpyToSymbol(&program.table, &replaced, 4, 4, cudaMemcpyHostToDevice) == cudaSuccess);
  int v = 1;
  void* arguments[] = {&p, &v};
  REQUIRE(cuda.cudaLaunchKernel(&program.kernel, {1, 1, 1}, {1, 1, 1}, arguments, 0, nullptr) == cudaSuccess);
  REQUIRE(cuda.cudaMemcpy(values, p, sizeof values, cudaMemcpyDefault) == cudaSuccess);
  CHECK((values[0] == 1121 && values[1] == 120));

  int table[4] = {};
  REQUIRE(cuda.cudaMemcpyFromSymbol(table, &program.table, 16, 0, cudaMemcpyDeviceToHost) == cudaSuccess);
  CHECK((table[0] == 1 && table[1] == 1000 && table[3] == 4));
  size_t bytes = 0;
  CHECK((cuda.cudaGetSymbolSize(&bytes, &program.table) == cudaSuccess && bytes == 16));
  CHECK(cuda.cudaMemcpyFromSymbol(table, &program.table, 16, 4, cudaMemcpyDeviceToHost) ==
        cudaErrorInvalidValue);
  CHECK(cuda.cudaMemcpyFromSymbol(table, &program.kernel, 4, 0, cudaMemcpyDeviceToHost) ==
        cudaErrorInvalidSymbol);

  // A managed variable is read by the host through the pointer that __cudaInitModule sets.
  CHECK(cuda.__cudaInitModule(program.handle));
  REQUIRE(program.counter);
  CHECK(*static_cast<int*>(program.counter) == 5 + 33);
  CHECK(cuda.cudaFree(p) == cudaSuccess);
}

TEST_CASE("an asynchronous copy is work of its stream", "[driver][cudart][hazard]") {
  Program program(good_image());
  Runtime& cuda = program.cuda;
  setenv("MXFA_EMU_CHECK", "on", 1);
  cudaStream_t stream = nullptr;
  REQUIRE(cuda.cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  int* p = nullptr;
  REQUIRE(cuda.cudaMalloc(reinterpret_cast<void**>(&p), 4) == cudaSuccess);
  const int one = 1;
  int sum = 0;
  CHECK(cuda.cudaMemcpyAsync(p, &one, 4, cudaMemcpyHostToDevice, stream) == cudaSuccess);
  CHECK(program.launch(p, 300, 1, 1, stream) == cudaSuccess);
  CHECK(cuda.cudaMemcpyAsync(&sum, p, 4, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
  CHECK(cuda.cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(sum == 321);
  unsetenv("MXFA_EMU_CHECK");
  CHECK(cuda.cudaFree(p) == cudaSuccess);
  CHECK(cuda.cudaStreamDestroy(stream) == cudaSuccess);
}

TEST_CASE("code that the device cannot run does no harm until it is used", "[driver][cudart]") {
  Program program(
      fatbin({{FatbinEntry::MachineCode, 100, std::string("\x7f") + "ELF" + std::string(60, 0)}}));
  Runtime& cuda = program.cuda;
  CHECK(cuda.cudaDeviceSynchronize() == cudaSuccess);
  CHECK(program.launch(nullptr, 0, {1, 1, 1}, {1, 1, 1}) == cudaErrorInvalidDeviceFunction);
  CHECK(cuda.cudaLaunchKernel(&program.kernel, {1, 1, 1}, {1, 1, 1}, nullptr, 0, nullptr) ==
        cudaErrorNoKernelImageForDevice);
}

TEST_CASE("the runtime remembers the last error", "[driver][cudart]") {
  Program program(good_image());
  Runtime& cuda = program.cuda;
  CHECK(cuda.cudaGetLastError() == cudaSuccess);
  CHECK(program.launch(nullptr, 0, {1, 1, 1}, {2048, 1, 1}) == cudaErrorInvalidConfiguration);
  CHECK(cuda.cudaPeekAtLastError() == cudaErrorInvalidConfiguration);
  CHECK(cuda.cudaGetLastError() == cudaErrorInvalidConfiguration);
  CHECK(cuda.cudaGetLastError() == cudaSuccess);
  const char unknown = 0;
  CHECK(cuda.cudaLaunchKernel(&unknown, {1, 1, 1}, {1, 1, 1}, nullptr, 0, nullptr) ==
        cudaErrorInvalidDeviceFunction);
  CHECK(cuda.cudaGetLastError() == cudaErrorInvalidDeviceFunction);
  CHECK(std::string(cuda.cudaGetErrorName(cudaErrorInvalidDeviceFunction)) ==
        "cudaErrorInvalidDeviceFunction");
  CHECK(std::string(cuda.cudaGetErrorString(cudaErrorMemoryAllocation)) == "out of memory");
}

TEST_CASE("the properties of the device are the attributes of the driver", "[driver][cudart]") {
  Runtime& cuda = Runtime::get();
  cudaDeviceProp properties;
  REQUIRE(cuda.cudaGetDeviceProperties(&properties, 0) == cudaSuccess);
  CHECK((properties.major == 10 && properties.minor == 0 && properties.warpSize == 32));
  CHECK(properties.multiProcessorCount == 148);
  CHECK((properties.maxThreadsDim[2] == 64 && properties.maxGridSize[1] == 65535));
  int optin = 0;
  REQUIRE(cuda.cudaDeviceGetAttribute(&optin, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0) == cudaSuccess);
  CHECK(properties.sharedMemPerBlockOptin == static_cast<size_t>(optin));
  CHECK(cuda.cudaGetDeviceProperties(&properties, 1) == cudaErrorInvalidDevice);
}

TEST_CASE("a driver function is found by name, and an unknown pointer is the host's", "[driver][cudart]") {
  Runtime& cuda = Runtime::get();
  void* function = nullptr;
  cudaDriverEntryPointQueryResult status{};
  REQUIRE(cuda.cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, 0, &status) ==
          cudaSuccess);
  CHECK((function && status == cudaDriverEntryPointSuccess));
  int on_stack = 0;
  cudaPointerAttributes attributes{};
  REQUIRE(cuda.cudaPointerGetAttributes(&attributes, &on_stack) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeUnregistered);
}

TEST_CASE("every function of the toolkit's runtime is exported; those without a body say so",
          "[driver][cudart]") {
  Runtime& cuda = Runtime::get();
  const char* const names[] = {
#define NAME(symbol) #symbol,
#include "cudart/api_names.def"
#undef NAME
  };
  CHECK(std::size(names) > 400);
  for (const char* name : names) {
    CAPTURE(name);
    CHECK(cuda.symbol(name));
  }
  cudaGraph_t graph = nullptr;
  CHECK(cuda.cudaGraphCreate(&graph, 0) == cudaErrorNotSupported);
}
