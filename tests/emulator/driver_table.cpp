#include "driver_table.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <stdexcept>

#include "support/catch.hpp"

namespace mxfa::test {
namespace {

const char* real_driver() { return std::getenv("MXFA_TEST_DRIVER"); }

// A driver reads MXFA_EMU_DEVICE once, so every model needs a library of its own; another file is another
// library.
void* open_copy() {
  static std::atomic<int> count = 0;
  const auto path = std::filesystem::temp_directory_path() /
                    ("mxfa_emulator_" + std::to_string(getpid()) + "_" + std::to_string(count++) + ".so");
  std::filesystem::copy_file(MXFA_EMULATOR_LIBRARY, path, std::filesystem::copy_options::overwrite_existing);
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  std::filesystem::remove(path);
  if (!handle) throw std::runtime_error(dlerror());
  return handle;
}

}  // namespace

void* open_fresh_copy() { return open_copy(); }

bool Driver::is_real() { return real_driver() != nullptr; }
bool Driver::has(const std::string& model) { return !is_real() || model == "h200"; }

Driver& Driver::of(const std::string& model) {
  static std::map<std::string, std::unique_ptr<Driver>> drivers;
  auto& driver = drivers[model];
  if (!driver) driver.reset(new Driver(model));
  driver->ready();
  return *driver;
}

Driver::Driver(const std::string& model) {
  handle_ = is_real() ? dlopen(real_driver(), RTLD_NOW | RTLD_LOCAL) : open_copy();
  if (!handle_) throw std::runtime_error(dlerror());
#define X(name)                                           \
  name = reinterpret_cast<decltype(name)>(symbol(#name)); \
  if (!name) throw std::runtime_error(#name " is not exported");
  MXFA_DRIVER_FUNCTIONS(X)
#undef X
  last_report = reinterpret_cast<decltype(last_report)>(symbol("mxfaEmulatorLastReport"));
  counters = reinterpret_cast<decltype(counters)>(symbol("mxfaEmulatorCounters"));
  setenv("MXFA_EMU_DEVICE", model.c_str(), 1);
  if (const CUresult code = cuInit(0)) throw std::runtime_error("cuInit: " + error(code));
}

void* Driver::symbol(const char* name) const { return dlsym(handle_, name); }

void Driver::ready() {
  if (context_) {
    cuCtxSetCurrent(context_);
    if (cuCtxSynchronize() == CUDA_SUCCESS) return;
    cuDevicePrimaryCtxReset_v2(0);
  }
  if (const CUresult code = cuDevicePrimaryCtxRetain(&context_, 0))
    throw std::runtime_error("retain: " + error(code));
  cuCtxSetCurrent(context_);
}

std::string Driver::error(CUresult code) const {
  const char* text = nullptr;
  cuGetErrorName(code, &text);
  return text ? text : std::to_string(code);
}

Buffer::Buffer(Driver& driver, size_t bytes) : driver_(driver), bytes_(bytes) {
  REQUIRE(driver.cuMemAlloc_v2(&address_, bytes) == CUDA_SUCCESS);
  REQUIRE(driver.cuMemsetD8_v2(address_, 0xff, bytes) == CUDA_SUCCESS);  // NaN in every float format
}

Buffer::Buffer(Driver& driver, const void* data, size_t bytes) : driver_(driver), bytes_(bytes) {
  REQUIRE(driver.cuMemAlloc_v2(&address_, bytes) == CUDA_SUCCESS);
  REQUIRE(driver.cuMemcpyHtoD_v2(address_, data, bytes) == CUDA_SUCCESS);
}

Buffer::~Buffer() { driver_.cuMemFree_v2(address_); }

void Buffer::copy_out(void* data) const {
  const CUresult code = driver_.cuMemcpyDtoH_v2(data, address_, bytes_);
  INFO(driver_.error(code));
  REQUIRE(code == CUDA_SUCCESS);
}

PtxModule::PtxModule(Driver& driver, const std::string& ptx) : driver_(driver) {
  char log[4096] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
  const CUresult code = driver.cuModuleLoadDataEx(&module_, ptx.c_str(), 2, options, values);
  INFO(ptx);
  INFO(log);
  REQUIRE(code == CUDA_SUCCESS);
}

PtxModule::~PtxModule() {
  if (module_) driver_.cuModuleUnload(module_);
}

CUfunction PtxModule::function(const char* name) const {
  CUfunction function = nullptr;
  REQUIRE(driver_.cuModuleGetFunction(&function, module_, name) == CUDA_SUCCESS);
  return function;
}

bool mentions(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts) {
    if (text.find(part) != std::string::npos) continue;
    WARN("\"" << part << "\" is missing in: " << text);
    return false;
  }
  return true;
}

std::string ptx_header(const std::string& target, const std::string& version) {
  return ".version " + version + "\n.target " + target + "\n.address_size 64\n";
}

std::string ptx_kernel(const std::string& name, const std::string& parameters, const std::string& body) {
  return ".visible .entry " + name + "(" + parameters + ")\n{\n" + body + "\n  ret;\n}\n";
}

}  // namespace mxfa::test
