// What a program learns of the device, and what happens before it may ask.
#include <dlfcn.h>

#include <cstring>

#include "driver_table.hpp"
#include "support/catch.hpp"

using mxfa::test::Driver;
using mxfa::test::open_fresh_copy;

namespace {

int attribute(Driver& cu, CUdevice_attribute which) {
  int value = -1;
  REQUIRE(cu.cuDeviceGetAttribute(&value, which, 0) == CUDA_SUCCESS);
  return value;
}

template <class Function>
Function function_of(void* library, const char* name) {
  auto* pointer = reinterpret_cast<Function>(dlsym(library, name));
  REQUIRE(pointer);
  return pointer;
}

}  // namespace

TEST_CASE("a model answers its own compute capability, SM count and shared memory", "[driver]") {
  struct Expected {
    const char* model;
    int major, minor, sms;
  };
  for (const Expected& expected :
       {Expected{"h200", 9, 0, 132}, {"b200", 10, 0, 148}, {"gb300", 10, 3, 152}}) {
    if (!Driver::has(expected.model)) continue;
    CAPTURE(expected.model);
    Driver& cu = Driver::of(expected.model);
    CHECK(attribute(cu, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) == expected.major);
    CHECK(attribute(cu, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) == expected.minor);
    CHECK(attribute(cu, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) == expected.sms);
    CHECK(attribute(cu, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) == 232448);
    CHECK(attribute(cu, CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK) == 1024);
  }
}

TEST_CASE("every attribute of CUDA 13.0 has a value and no other number has one", "[driver]") {
  Driver& cu = Driver::of("h200");
  int value = 0;
  for (int number = -1; number < 160; ++number) {
    CAPTURE(number);
    const CUresult code = cu.cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(number), 0);
    // CU_DEVICE_ATTRIBUTE_MAX is the first number that is none.
    const bool known = number >= 1 && number < CU_DEVICE_ATTRIBUTE_MAX;
    CHECK(code == (known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE));
  }
}

TEST_CASE("the only device is 0", "[driver]") {
  Driver& cu = Driver::of("h200");
  CUdevice device = 7;
  int count = 0;
  CHECK(cu.cuDeviceGetCount(&count) == CUDA_SUCCESS);
  CHECK(count >= 1);
  CHECK(cu.cuDeviceGet(&device, 0) == CUDA_SUCCESS);
  CHECK(device == 0);
  CHECK(cu.cuDeviceGet(&device, 77) == CUDA_ERROR_INVALID_DEVICE);
  CHECK(cu.cuDeviceGet(&device, -1) == CUDA_ERROR_INVALID_DEVICE);
  CHECK(cu.cuDeviceGet(nullptr, 0) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a device name is cut to the caller's buffer", "[driver]") {
  Driver& cu = Driver::of("h200");
  char name[8];
  std::memset(name, 'x', sizeof name);
  REQUIRE(cu.cuDeviceGetName(name, 7, 0) == CUDA_SUCCESS);
  CHECK(std::string(name) == "NVIDIA");
  CHECK(name[7] == 'x');
}

TEST_CASE("every CUresult has its name and sentence", "[driver]") {
  Driver& cu = Driver::of("h200");
  const char* text = nullptr;
  CHECK(cu.cuGetErrorName(CUDA_ERROR_INVALID_PTX, &text) == CUDA_SUCCESS);
  CHECK(std::string(text) == "CUDA_ERROR_INVALID_PTX");
  CHECK(cu.cuGetErrorString(CUDA_ERROR_ILLEGAL_ADDRESS, &text) == CUDA_SUCCESS);
  CHECK(std::string(text) == "an illegal memory access was encountered");
  CHECK(cu.cuGetErrorName(static_cast<CUresult>(998), &text) == CUDA_ERROR_INVALID_VALUE);
  CHECK(text == nullptr);
}

TEST_CASE("nothing but the version answers before cuInit", "[driver][emulator-only]") {
  void* library = mxfa::test::open_fresh_copy();
  int value = 0;
  CUdeviceptr pointer = 0;
  CHECK(function_of<decltype(&cuDeviceGetCount)>(library, "cuDeviceGetCount")(&value) ==
        CUDA_ERROR_NOT_INITIALIZED);
  CHECK(function_of<decltype(&cuMemAlloc)>(library, "cuMemAlloc_v2")(&pointer, 16) ==
        CUDA_ERROR_NOT_INITIALIZED);
  CHECK(function_of<decltype(&cuDriverGetVersion)>(library, "cuDriverGetVersion")(&value) == CUDA_SUCCESS);
  CHECK(value == 13000);
  CHECK(function_of<decltype(&cuInit)>(library, "cuInit")(1) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("an unknown MXFA_EMU_DEVICE is refused with the models there are", "[driver][emulator-only]") {
  void* library = mxfa::test::open_fresh_copy();
  setenv("MXFA_EMU_DEVICE", "b201", 1);
  CHECK(function_of<decltype(&cuInit)>(library, "cuInit")(0) == CUDA_ERROR_INVALID_VALUE);
  const std::string report = function_of<const char* (*)()>(library, "mxfaEmulatorLastReport")();
  CHECK(mxfa::test::mentions(report, {"MXFA_EMU_DEVICE=b201", "b200", "h200"}));
  unsetenv("MXFA_EMU_DEVICE");
}

TEST_CASE("cuGetProcAddress chooses the newest form that the asked version knew", "[driver]") {
  Driver& cu = Driver::of("h200");
  CUdriverProcAddressQueryResult status;
  void* pointer = nullptr;
  REQUIRE(cu.cuGetProcAddress_v2("cuMemAlloc", &pointer, 13000, CU_GET_PROC_ADDRESS_DEFAULT, &status) ==
          CUDA_SUCCESS);
  CHECK(status == CU_GET_PROC_ADDRESS_SUCCESS);
  CUdeviceptr memory = 0;
  REQUIRE(reinterpret_cast<decltype(&cuMemAlloc)>(pointer)(&memory, 64) == CUDA_SUCCESS);
  CHECK(cu.cuMemFree_v2(memory) == CUDA_SUCCESS);

  CHECK(cu.cuGetProcAddress_v2("cuLaunchKernelEx", &pointer, 11000, 0, &status) ==
        CUDA_SUCCESS);  // came with 11.6
  CHECK(status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  CHECK(pointer == nullptr);
  CHECK(cu.cuGetProcAddress_v2("cuNoSuchFunction", &pointer, 13000, 0, &status) ==
        CUDA_SUCCESS);  // the status says no
  CHECK(status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  CHECK(pointer == nullptr);
  CHECK(cu.cuGetProcAddress_v2("cuMemAlloc", &pointer, 99000, 0, &status) ==
        CUDA_ERROR_INVALID_VALUE);  // no such CUDA yet
}

TEST_CASE("cuGetProcAddress gives what the linker gives", "[driver][emulator-only]") {
  Driver& cu = Driver::of("b200");
  CUdriverProcAddressQueryResult status;
  void* pointer = nullptr;
  REQUIRE(cu.cuGetProcAddress_v2("cuMemcpyHtoD", &pointer, 13000,
                                 CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status) == CUDA_SUCCESS);
  CHECK(pointer == cu.symbol("cuMemcpyHtoD_v2_ptds"));
  REQUIRE(cu.cuGetProcAddress_v2("cuCtxCreate", &pointer, 12000, 0, &status) == CUDA_SUCCESS);
  CHECK(pointer == cu.symbol("cuCtxCreate_v3"));
}

TEST_CASE("a function the CPU driver lacks is exported and answers NOT_SUPPORTED",
          "[driver][emulator-only]") {
  Driver& cu = Driver::of("b200");
  for (const char* name : {"cuGraphCreate", "cuStreamBeginCaptureToGraph", "cuTexRefCreate",
                           "cuMemPoolCreate", "cuArrayCreate"}) {
    CAPTURE(name);
    auto* function = reinterpret_cast<CUresult (*)()>(cu.symbol(name));
    REQUIRE(function);
    CHECK(function() == CUDA_ERROR_NOT_SUPPORTED);
  }
  CHECK(cu.symbol("cuNoSuchFunction") == nullptr);
}

TEST_CASE("private export tables are not there", "[driver][emulator-only]") {
  const void* table = &table;
  CUuuid id{};
  CHECK(Driver::of("b200").cuGetExportTable(&table, &id) == CUDA_ERROR_NOT_FOUND);
  CHECK(table == nullptr);
}

TEST_CASE("calls without a context are refused", "[driver]") {
  Driver& cu = Driver::of("h200");
  CUcontext current = nullptr;
  REQUIRE(cu.cuCtxGetCurrent(&current) == CUDA_SUCCESS);
  REQUIRE(cu.cuCtxSetCurrent(nullptr) == CUDA_SUCCESS);
  CUdeviceptr memory = 0;
  CUdevice device = 0;
  CHECK(cu.cuMemAlloc_v2(&memory, 16) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(cu.cuCtxSynchronize() == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(cu.cuCtxGetDevice(&device) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(cu.cuCtxPopCurrent_v2(&current) == CUDA_ERROR_INVALID_CONTEXT);
  cu.ready();
}

TEST_CASE("a created context is current until it is destroyed, and its memory goes with it", "[driver]") {
  Driver& cu = Driver::of("h200");
  CUcontext before = nullptr, created = nullptr, now = nullptr;
  cu.cuCtxGetCurrent(&before);
  REQUIRE(cu.cuCtxCreate_v4(&created, nullptr, 0, 0) == CUDA_SUCCESS);
  cu.cuCtxGetCurrent(&now);
  CHECK(now == created);
  CUdeviceptr memory = 0;
  REQUIRE(cu.cuMemAlloc_v2(&memory, 4096) == CUDA_SUCCESS);
  REQUIRE(cu.cuCtxDestroy_v2(created) == CUDA_SUCCESS);
  cu.cuCtxGetCurrent(&now);
  CHECK(now == before);
  CHECK(cu.cuMemFree_v2(memory) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cu.cuCtxCreate_v4(&created, nullptr, 0xffff00, 0) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("MXFA_EMU_DEVICES: devices with a context each, whose modules stay with them",
          "[driver][emulator-only]") {
  void* library = open_fresh_copy();
  const auto call = [&](const char* name, auto... arguments) {
    return function_of<CUresult (*)(decltype(arguments)...)>(library, name)(arguments...);
  };
  setenv("MXFA_EMU_DEVICES", "many", 1);
  CHECK(call("cuInit", 0u) == CUDA_ERROR_INVALID_VALUE);
  setenv("MXFA_EMU_DEVICES", "2", 1);
  REQUIRE(call("cuInit", 0u) == CUDA_SUCCESS);
  unsetenv("MXFA_EMU_DEVICES");
  int count = 0;
  CHECK(call("cuDeviceGetCount", &count) == CUDA_SUCCESS);
  CHECK(count == 2);
  CUdevice device = -1;
  CHECK(call("cuDeviceGet", &device, 2) == CUDA_ERROR_INVALID_DEVICE);
  REQUIRE(call("cuDeviceGet", &device, 1) == CUDA_SUCCESS);
  CUcontext contexts[2];
  for (int k = 0; k < 2; ++k) REQUIRE(call("cuDevicePrimaryCtxRetain", &contexts[k], k) == CUDA_SUCCESS);
  CHECK(contexts[0] != contexts[1]);
  REQUIRE(call("cuCtxSetCurrent", contexts[1]) == CUDA_SUCCESS);
  CHECK(call("cuCtxGetDevice", &device) == CUDA_SUCCESS);
  CHECK(device == 1);
  CUstream stream = nullptr;
  CUdeviceptr memory = 0;
  REQUIRE(call("cuStreamCreate", &stream, 0u) == CUDA_SUCCESS);
  REQUIRE(call("cuMemAlloc_v2", &memory, size_t{16}) == CUDA_SUCCESS);
  for (CUstream s : {stream, CUstream{}}) {
    device = -1;
    CHECK(call("cuStreamGetDevice", s, &device) == CUDA_SUCCESS);
    CHECK(device == 1);
  }
  int ordinal = -1;
  CHECK(call("cuPointerGetAttribute", static_cast<void*>(&ordinal), CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
             memory) == CUDA_SUCCESS);
  CHECK(ordinal == 1);
  const char* text =
      ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry nothing()\n{\n  ret;\n}\n";
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  REQUIRE(call("cuModuleLoadData", &module, static_cast<const void*>(text)) == CUDA_SUCCESS);
  REQUIRE(call("cuModuleGetFunction", &function, module, "nothing") == CUDA_SUCCESS);
  const auto launch = [&] {
    return call("cuLaunchKernel", function, 1u, 1u, 1u, 32u, 1u, 1u, 0u, CUstream{},
                static_cast<void**>(nullptr), static_cast<void**>(nullptr));
  };
  CHECK(launch() == CUDA_SUCCESS);
  REQUIRE(call("cuCtxSetCurrent", contexts[0]) == CUDA_SUCCESS);
  CHECK(launch() == CUDA_ERROR_INVALID_HANDLE);
}
