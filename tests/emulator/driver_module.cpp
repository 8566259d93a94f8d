// Images: what is taken, what is refused, and what the program is told.
#include <cstring>

#include "driver_table.hpp"
#include "support/catch.hpp"

using mxfa::test::Driver;
using mxfa::test::mentions;
using mxfa::test::ptx_header;
using mxfa::test::ptx_kernel;
using mxfa::test::PtxModule;

namespace {

const std::string kVariables =
    ".visible .global .align 4 .u32 table[4] = {1, 2, 3, 4};\n.visible .const .align 8 .u64 wide = 77;\n";

std::string plain_module(const std::string& target = "sm_90") {
  return ptx_header(target) + kVariables + ptx_kernel("first", "", "") +
         ptx_kernel("second", ".param .u64 p, .param .u32 v", "");
}

CUresult load(Driver& cu, const std::string& image) {
  CUmodule module = nullptr;
  const CUresult code = cu.cuModuleLoadData(&module, image.c_str());
  if (module) cu.cuModuleUnload(module);
  return code;
}

}  // namespace

TEST_CASE("a module has its kernels and variables and nothing else", "[driver]") {
  Driver& cu = Driver::of("h200");
  PtxModule module(cu, plain_module());
  CUfunction function = nullptr;
  CHECK(cu.cuModuleGetFunction(&function, module.handle(), "second") == CUDA_SUCCESS);
  CHECK(cu.cuModuleGetFunction(&function, module.handle(), "third") == CUDA_ERROR_NOT_FOUND);
  CHECK(cu.cuModuleGetFunction(&function, module.handle(), "table") == CUDA_ERROR_NOT_FOUND);
  CHECK(cu.cuModuleGetFunction(&function, module.handle(), nullptr) == CUDA_ERROR_INVALID_VALUE);

  CUdeviceptr address = 0;
  size_t bytes = 0;
  REQUIRE(cu.cuModuleGetGlobal_v2(&address, &bytes, module.handle(), "table") == CUDA_SUCCESS);
  CHECK(bytes == 16);
  uint32_t values[4] = {};
  REQUIRE(cu.cuMemcpyDtoH_v2(values, address, 16) == CUDA_SUCCESS);
  CHECK((values[0] == 1 && values[3] == 4));
  REQUIRE(cu.cuModuleGetGlobal_v2(&address, &bytes, module.handle(), "wide") == CUDA_SUCCESS);
  uint64_t wide = 0;
  REQUIRE(cu.cuMemcpyDtoH_v2(&wide, address, 8) == CUDA_SUCCESS);
  CHECK(wide == 77);
  CHECK(cu.cuModuleGetGlobal_v2(&address, &bytes, module.handle(), "chair") == CUDA_ERROR_NOT_FOUND);
  CHECK(cu.cuModuleGetGlobal_v2(nullptr, nullptr, module.handle(), "table") == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("an unloaded module is gone", "[driver]") {
  Driver& cu = Driver::of("h200");
  CUmodule module = nullptr;
  REQUIRE(cu.cuModuleLoadData(&module, plain_module().c_str()) == CUDA_SUCCESS);
  CHECK(cu.cuModuleUnload(module) == CUDA_SUCCESS);
  CHECK(cu.cuModuleUnload(module) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cu.cuModuleUnload(nullptr) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("what is no image is refused", "[driver]") {
  Driver& cu = Driver::of("h200");
  CHECK(load(cu, "hello world") == CUDA_ERROR_INVALID_IMAGE);
  CHECK(load(cu, "") == CUDA_ERROR_INVALID_IMAGE);
  CUmodule module = nullptr;
  CHECK(cu.cuModuleLoadData(&module, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(load(cu, ".version 8.0\n.address_size 64\n" + ptx_kernel("k", "", "")) ==
        CUDA_ERROR_INVALID_PTX);  // no .target
  CHECK(load(cu, ptx_header("sm_90", "99.0") + ptx_kernel("k", "", "")) ==
        CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
}

TEST_CASE("machine code is refused with the way out", "[driver][emulator-only]") {
  Driver& cu = Driver::of("b200");
  std::string elf(
      "\x7f"
      "ELF",
      64);
  CUmodule module = nullptr;
  CHECK(cu.cuModuleLoadData(&module, elf.c_str()) == CUDA_ERROR_NO_BINARY_FOR_GPU);
  CHECK(mentions(cu.last_report(), {"cubin", "compute_100a"}));
}

TEST_CASE("PTX runs where its target says", "[driver]") {
  struct Row {
    const char* model;
    const char* target;
    bool runs;
  };
  const Row rows[] = {{"h200", "sm_80", true},    {"h200", "sm_90", true},     {"h200", "sm_90a", true},
                      {"h200", "sm_100", false},  {"h200", "sm_100a", false},  {"b200", "sm_90", true},
                      {"b200", "sm_90a", false},  {"b200", "sm_100", true},    {"b200", "sm_100a", true},
                      {"b200", "sm_100f", true},  {"b200", "sm_103", false},   {"b200", "sm_103a", false},
                      {"gb300", "sm_103a", true}, {"gb300", "sm_100a", false}, {"gb300", "sm_100f", true},
                      {"gb300", "sm_103f", true}, {"b200", "sm_120", false}};
  for (const Row& row : rows) {
    if (!Driver::has(row.model)) continue;
    CAPTURE(row.model, row.target);
    Driver& cu = Driver::of(row.model);
    CHECK(load(cu, ptx_header(row.target, "8.8") + ptx_kernel("k", "", "")) ==
          (row.runs ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX));
    if (!row.runs && cu.last_report)
      CHECK(mentions(cu.last_report(), {"line 2, column 9: ", row.target, "compute capability"}));
  }
}

TEST_CASE("emu-unknown-instruction: an invented opcode is refused with its line in the error log",
          "[driver]") {
  Driver& cu = Driver::of("h200");
  const std::string ptx =
      ptx_header("sm_90") + ptx_kernel("k", "", "  .reg .b32 %r<2>;\n  frob.u32 %r1, %r1;");
  char log[1024];
  std::memset(log, 'x', sizeof log);
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
  CUmodule module = nullptr;
  CHECK(cu.cuModuleLoadDataEx(&module, ptx.c_str(), 2, options, values) == CUDA_ERROR_INVALID_PTX);
  const auto written = reinterpret_cast<size_t>(values[1]);
  REQUIRE(written > 0);
  REQUIRE(written < sizeof log);
  CHECK(mentions(log, {"line 7", "frob"}));
}

TEST_CASE("a folder or a missing file is no module", "[driver]") {
  Driver& cu = Driver::of("h200");
  const auto load_file = reinterpret_cast<decltype(&cuModuleLoad)>(cu.symbol("cuModuleLoad"));
  CUmodule module = nullptr;
  for (const char* path : {"/nonexistent", "/"}) CHECK(load_file(&module, path) == CUDA_ERROR_FILE_NOT_FOUND);
}

TEST_CASE("an error log that is too small is cut and terminated", "[driver]") {
  Driver& cu = Driver::of("h200");
  const std::string ptx = ptx_header("sm_90") + ptx_kernel("k", "", "  frob.u32 %r1, %r1;");
  char log[16];
  std::memset(log, 'x', sizeof log);
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(size_t{8})};
  CUmodule module = nullptr;
  CHECK(cu.cuModuleLoadDataEx(&module, ptx.c_str(), 2, options, values) == CUDA_ERROR_INVALID_PTX);
  CHECK(std::memchr(log, 0, 8));
  CHECK(log[8] == 'x');
}

TEST_CASE("a library lists its kernels and their parameters", "[driver]") {
  Driver& cu = Driver::of("h200");
  CUlibrary library = nullptr;
  REQUIRE(cu.cuLibraryLoadData(&library, plain_module().c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0) ==
          CUDA_SUCCESS);
  unsigned count = 0;
  CHECK(cu.cuLibraryGetKernelCount(&count, library) == CUDA_SUCCESS);
  CHECK(count == 2);
  CUkernel kernels[2] = {}, kernel = nullptr;
  CHECK(cu.cuLibraryEnumerateKernels(kernels, 2, library) == CUDA_SUCCESS);
  CHECK((kernels[0] && kernels[1] && kernels[0] != kernels[1]));
  CHECK(cu.cuLibraryGetKernel(&kernel, library, "third") == CUDA_ERROR_NOT_FOUND);
  REQUIRE(cu.cuLibraryGetKernel(&kernel, library, "second") == CUDA_SUCCESS);
  size_t offset = 0, bytes = 0;
  CHECK(cu.cuKernelGetParamInfo(kernel, 1, &offset, &bytes) == CUDA_SUCCESS);
  CHECK((offset == 8 && bytes == 4));
  CHECK(cu.cuKernelGetParamInfo(kernel, 2, &offset, &bytes) == CUDA_ERROR_INVALID_VALUE);
  CUfunction function = nullptr;
  CHECK(cu.cuKernelGetFunction(&function, kernel) == CUDA_SUCCESS);
  CHECK(cu.cuLibraryUnload(library) == CUDA_SUCCESS);
  CHECK(cu.cuLibraryUnload(nullptr) == CUDA_ERROR_INVALID_HANDLE);
}
