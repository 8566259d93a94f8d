#include "machine.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <stdexcept>

namespace mxfa::silicon {
namespace {

const char* kHeader = ".version 8.8\n.target sm_90a\n.address_size 64\n";

int bytes_of(const std::string& type) {
  if (type.ends_with("16")) return 2;
  if (type.ends_with("32")) return 4;
  if (type.ends_with("64")) return 8;
  throw std::runtime_error("no register type: " + type);
}

std::string text_of(const Kernel& kernel) {
  std::string text = kHeader + kernel.declarations + "\n.visible .entry body(.param .u64 in, .param .u64 out";
  for (size_t i = 0; i < kernel.maps.size(); ++i) text += fmt::format(", .param .align 64 .b8 map{}[128]", i);
  text += ")\n";
  if (!kernel.cluster.empty()) text += ".explicitcluster .reqnctapercluster " + kernel.cluster + "\n";
  text += fmt::format(".maxntid {}\n", kernel.threads);
  text +=
      "{\n  .reg .pred %p<32>;\n  .reg .b16 %h<32>;\n  .reg .b32 %r<200>, %thread, %lane, %warp, %cta;\n"
      "  .reg .f32 %f<64>;\n  .reg .b64 %w<64>, %in, %out;\n  ld.param.u64 %in, [in];\n"
      "  ld.param.u64 %out, [out];\n  mov.u32 %thread, %tid.x;\n  mov.u32 %lane, %laneid;\n"
      "  shr.u32 %warp, %thread, 5;\n  mov.u32 %cta, %ctaid.x;\n";
  return text + kernel.body + "\n  ret;\n}\n";
}

// Operand k of case i is the 8-byte word k * n + i of the inputs, result k likewise.
std::string text_of(const Form& form) {
  std::string text = kHeader;
  text +=
      ".visible .entry body(.param .u64 in, .param .u64 out, .param .u64 slots, .param .u32 count)\n.maxntid "
      "128\n{\n"
      "  .shared .align 16 .b8 shared_slots[2048];\n"
      "  .reg .pred %leave, %q<4>;\n  .reg .b16 %h<4>;\n"
      "  .reg .b32 %i, %n, %block, %width, %shared, %t<8>;\n"
      "  .reg .b64 %in, %out, %slot, %offset, %step, %w<4>;\n";
  for (size_t k = 0; k < form.inputs.size(); ++k)
    text += fmt::format("  .reg .{} %a{};\n", form.inputs[k], k);
  for (size_t k = 0; k < form.results.size(); ++k)
    text += fmt::format("  .reg .{} %d{};\n", form.results[k], k);
  text +=
      "  ld.param.u64 %in, [in];\n  ld.param.u64 %out, [out];\n  ld.param.u64 %slot, [slots];\n"
      "  ld.param.u32 %n, [count];\n  mov.u32 %block, %ctaid.x;\n  mov.u32 %width, %ntid.x;\n"
      "  mov.u32 %i, %tid.x;\n  mov.u32 %shared, shared_slots;\n  mad.lo.u32 %shared, %i, 16, %shared;\n"
      "  mad.lo.u32 %i, %block, %width, %i;\n  setp.ge.u32 %leave, %i, %n;\n  @%leave bra finish;\n"
      "  mul.wide.u32 %offset, %i, 16;\n  add.u64 %slot, %slot, %offset;\n"
      "  mul.wide.u32 %offset, %i, 8;\n  mul.wide.u32 %step, %n, 8;\n"
      "  add.u64 %in, %in, %offset;\n  add.u64 %out, %out, %offset;\n";
  for (size_t k = 0; k < form.inputs.size(); ++k)
    text += fmt::format("  ld.global.{} %a{}, [%in];\n  add.u64 %in, %in, %step;\n", form.inputs[k], k);
  text += "  " + form.text + "\n";
  for (size_t k = 0; k < form.results.size(); ++k)
    text += fmt::format("  st.global.{} [%out], %d{};\n  add.u64 %out, %out, %step;\n", form.results[k], k);
  return text + "finish:\n  ret;\n}\n";
}

}  // namespace

Machine::Machine(const std::string& library) {
  setenv("MXFA_EMU_DEVICE", "h200", 1);
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) throw std::runtime_error(dlerror());
#define X(name)                                                  \
  name = reinterpret_cast<decltype(name)>(dlsym(handle, #name)); \
  if (!name) throw std::runtime_error(library + " has no " #name);
  MXFA_SILICON_FUNCTIONS(X)
#undef X
  last_report_ = reinterpret_cast<decltype(last_report_)>(dlsym(handle, "mxfaEmulatorLastReport"));
  check(cuInit(0), "cuInit");
  check(cuDevicePrimaryCtxRetain(&context_, 0), "cuDevicePrimaryCtxRetain");
  check(cuCtxSetCurrent(context_), "cuCtxSetCurrent");
}

std::string Machine::description() const {
  char name[256] = "";
  int major = 0, minor = 0, version = 0, processors = 0;
  cuDeviceGetName(name, sizeof name, 0);
  cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0);
  cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0);
  cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0);
  cuDriverGetVersion(&version);
  return fmt::format("{}, compute capability {}.{}, {} SMs, CUDA driver API {}.{}", name, major, minor,
                     processors, version / 1000, version % 1000 / 10);
}

void Machine::check(CUresult code, const char* what) const {
  if (code == CUDA_SUCCESS) return;
  const char* name = nullptr;
  cuGetErrorName(code, &name);
  std::string text = fmt::format("{}: {}", what, name ? name : "?");
  if (last_report_ && last_report_()) text += fmt::format("\n{}", last_report_());
  throw std::runtime_error(text);
}

CUfunction Machine::load(const std::string& ptx, const char* name) {
  CUfunction function = nullptr;
  if (module_ && ptx == loaded_) {
    check(cuModuleGetFunction(&function, module_, name), "cuModuleGetFunction");
    return function;
  }
  if (!dump_folder.empty()) std::ofstream(fmt::format("{}/{:04}.ptx", dump_folder, dumped_++)) << ptx;
  char log[4096] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
  if (module_) cuModuleUnload(module_);
  module_ = nullptr;
  const CUresult code = cuModuleLoadDataEx(&module_, ptx.c_str(), 2, options, values);
  if (code != CUDA_SUCCESS) check(code, fmt::format("cuModuleLoadDataEx: {}", log).c_str());
  loaded_ = ptx;
  check(cuModuleGetFunction(&function, module_, name), "cuModuleGetFunction");
  return function;
}

CUdeviceptr Machine::allocate(const void* data, size_t bytes) {
  CUdeviceptr address = 0;
  check(cuMemAlloc_v2(&address, bytes + 16), "cuMemAlloc");
  allocations_.push_back(address);
  if (data)
    check(cuMemcpyHtoD_v2(address, data, bytes), "cuMemcpyHtoD");
  else
    check(cuMemsetD8_v2(address, 0xff, bytes), "cuMemsetD8");
  return address;
}

void Machine::read(CUdeviceptr from, void* to, size_t bytes) {
  check(cuMemcpyDtoH_v2(to, from, bytes), "cuMemcpyDtoH");
}

void Machine::release() {
  for (const CUdeviceptr address : allocations_) cuMemFree_v2(address);
  allocations_.clear();
}

Words Machine::run(const Kernel& kernel, const Words& in, size_t out_words) {
  CUfunction function = load(text_of(kernel), "body");
  CUdeviceptr in_address = allocate(in.empty() ? nullptr : in.data(), in.size() * 4 + 16 * in.empty());
  CUdeviceptr out_address = allocate(nullptr, out_words * 4);
  std::vector<CUtensorMap> maps = kernel.maps;
  std::vector<void*> parameters = {&in_address, &out_address};
  for (CUtensorMap& map : maps) parameters.push_back(&map);
  if (kernel.dynamic_shared)
    check(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                             static_cast<int>(kernel.dynamic_shared)),
          "cuFuncSetAttribute");
  check(cuLaunchKernel(function, kernel.ctas, kernel.ctas_y, kernel.ctas_z, kernel.threads, 1, 1,
                       kernel.dynamic_shared, nullptr, parameters.data(), nullptr),
        "cuLaunchKernel");
  check(cuCtxSynchronize(), "kernel");
  Words out(out_words);
  read(out_address, out.data(), out_words * 4);
  return out;
}

Words Machine::form(const Form& form, const std::vector<std::vector<uint64_t>>& columns) {
  const size_t n = columns.at(0).size();
  std::vector<uint64_t> in;
  for (const auto& column : columns) in.insert(in.end(), column.begin(), column.end());
  CUfunction function = load(text_of(form), "body");
  CUdeviceptr in_address = allocate(in.data(), in.size() * 8);
  CUdeviceptr out_address = allocate(nullptr, form.results.size() * n * 8), slots = allocate(nullptr, n * 16);
  uint32_t count = static_cast<uint32_t>(n);
  void* parameters[] = {&in_address, &out_address, &slots, &count};
  check(cuLaunchKernel(function, (count + 127) / 128, 1, 1, 128, 1, 1, 0, nullptr, parameters, nullptr),
        "cuLaunchKernel");
  check(cuCtxSynchronize(), "kernel");
  std::vector<uint64_t> out(form.results.size() * n);
  read(out_address, out.data(), out.size() * 8);
  Words words;
  for (size_t i = 0; i < n; ++i)
    for (size_t k = 0; k < form.results.size(); ++k) {
      const uint64_t value = out[k * n + i];
      const int bytes = bytes_of(form.results[k]);
      words.push_back(static_cast<uint32_t>(bytes == 2 ? value & 0xffff : value));
      if (bytes == 8) words.push_back(static_cast<uint32_t>(value >> 32));
    }
  return words;
}

CUtensorMap Machine::tensor_map(CUtensorMapDataType type, const std::vector<cuuint64_t>& sizes,
                                const std::vector<cuuint64_t>& strides, const std::vector<cuuint32_t>& box,
                                const std::vector<cuuint32_t>& element_strides, CUtensorMapSwizzle swizzle,
                                bool fill_nan, CUdeviceptr address) {
  alignas(64) CUtensorMap map;
  const cuuint64_t none = 0;  // a tensor of one dimension has no strides, but the driver wants an address
  check(cuTensorMapEncodeTiled(
            &map, type, static_cast<cuuint32_t>(sizes.size()), reinterpret_cast<void*>(address), sizes.data(),
            strides.empty() ? &none : strides.data(), box.data(), element_strides.data(),
            CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
            fill_nan ? CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA : CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        "cuTensorMapEncodeTiled");
  return map;
}

}  // namespace mxfa::silicon
