// cuModule*.
#include "driver_api/module.hpp"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "driver_api/image.hpp"

namespace mxfa::emulator::driver_api {

void JitLogs::Buffer::put(const std::string& message) const {
  if (!text || bytes == 0) {
    if (written) *written = nullptr;
    return;
  }
  const size_t count = std::min(bytes - 1, message.size());
  std::memcpy(text, message.data(), count);
  text[count] = 0;
  if (written) *written = reinterpret_cast<void*>(count ? count + 1 : 0);
}

JitLogs read_jit_options(unsigned count, CUjit_option* options, void** values) {
  JitLogs logs;
  if (count) {
    require(options, "options");
    require(values, "optionValues");
  }
  for (unsigned i = 0; i < count; ++i) {
    switch (options[i]) {
      case CU_JIT_INFO_LOG_BUFFER:
        logs.info.text = static_cast<char*>(values[i]);
        break;
      case CU_JIT_ERROR_LOG_BUFFER:
        logs.error.text = static_cast<char*>(values[i]);
        break;
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        logs.info.bytes = static_cast<unsigned>(reinterpret_cast<uintptr_t>(values[i]));
        logs.info.written = &values[i];
        break;
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        logs.error.bytes = static_cast<unsigned>(reinterpret_cast<uintptr_t>(values[i]));
        logs.error.written = &values[i];
        break;
      default:  // the others steer code generation, and no code is generated
        if (static_cast<unsigned>(options[i]) >= CU_JIT_NUM_OPTIONS) {
          refuse(CUDA_ERROR_INVALID_VALUE, "options[{}] is {}, no CUjit_option of CUDA 13.0", i,
                 static_cast<int>(options[i]));
        }
    }
  }
  return logs;
}

namespace {

// MXFA_EMU_MUTATE = [KERNEL:]NUMBER loads every module (of that kernel) without one synchronisation, =
// [KERNEL:]list loads it whole; both keep the list of sites.
struct MutationRequest {
  std::string kernel;
  Mutation mutation;
};
std::optional<MutationRequest> mutation_from_environment() {
  const char* value = std::getenv("MXFA_EMU_MUTATE");
  if (!value || !*value) return std::nullopt;
  MutationRequest request;
  std::string site = value;
  if (const size_t colon = site.rfind(':'); colon != site.npos) {
    request.kernel = site.substr(0, colon);
    site.erase(0, colon + 1);
  }
  if (site == "list") return request;
  char* end = nullptr;
  request.mutation.site = std::strtoull(site.c_str(), &end, 10);
  if (site.empty() || *end || site[0] == '-')
    refuse(CUDA_ERROR_INVALID_VALUE, "MXFA_EMU_MUTATE={}: need [KERNEL:]NUMBER or [KERNEL:]list", value);
  return request;
}

void keep_sites(const Module& module, const MutationRequest& request) {
  nlohmann::ordered_json sites = nlohmann::ordered_json::array();
  for (const SyncSite& site : module.sync_sites())
    sites.push_back({{"function", site.function},
                     {"kind", site.kind},
                     {"ptx", site.ptx},
                     {"line", site.line},
                     {"cuda", site.cuda}});
  for (const std::string& kernel : module.kernel_names()) {
    driver().sync_sites[kernel] = sites.dump();
    if (!request.mutation.site) continue;
    const size_t number = *request.mutation.site, count = module.sync_sites().size();
    if (number < count) {
      const SyncSite& site = module.sync_sites()[number];
      std::fprintf(stderr, "mxfa emulator: %s is loaded without synchronisation %zu of %zu: %s%s%s\n",
                   kernel.c_str(), number, count, site.ptx.c_str(), site.cuda.empty() ? "" : " at ",
                   site.cuda.c_str());
    } else if (!request.kernel.empty()) {
      refuse(CUDA_ERROR_INVALID_VALUE, "MXFA_EMU_MUTATE: {} has {} synchronisations, numbered from 0", kernel,
             count);
    }
  }
}

// The kernels of PTX text are lowered at once, so that a bad text is refused where it is loaded.  Those of a
// fatbin are lowered when they are asked for: nvcc puts all that a source file instantiates into one.
std::unique_ptr<LoadedModule> load_ptx(const std::string& ptx, Context* context, Module::Lowering lowering) {
  Driver& state = driver();
  auto module = std::make_unique<LoadedModule>();
  module->context = context;
  std::optional<MutationRequest> request = mutation_from_environment();
  // Which kernels a module has is known when it is loaded; the text names them too.
  if (request && !request->kernel.empty() && ptx.find(".entry " + request->kernel + "(") == ptx.npos)
    request.reset();
  try {
    module->code =
        Module::load(ptx, state.device.model, *state.arena, request ? &request->mutation : nullptr, lowering);
  } catch (const PtxError& error) {
    refuse(CUDA_ERROR_INVALID_PTX, "{}", error.what());
  }
  if (request) keep_sites(*module->code, *request);
  for (const std::string& name : module->code->kernel_names()) {
    auto function = std::make_unique<Function>();
    function->module = module.get();
    state.functions.insert(function.get());
    module->functions[name] = std::move(function);
  }
  if (lowering == Module::Lowering::AtOnce)
    for (auto& [name, function] : module->functions) hand_out(*module, name, *function);
  return module;
}

}  // namespace

std::unique_ptr<LoadedModule> load_image(const void* image, Context* context, const JitLogs& logs) {
  require(image, "image");
  try {
    const auto lowering = is_fatbin_image(image) ? Module::Lowering::OnFirstUse : Module::Lowering::AtOnce;
    auto module = load_ptx(ptx_of_image(image, driver().device.model), context, lowering);
    logs.info.put("");
    logs.error.put("");
    return module;
  } catch (const Refusal& refusal) {
    logs.error.put(refusal.text);
    throw;
  }
}

std::unique_ptr<LoadedModule> load_file(const char* path, Context* context, const JitLogs& logs) {
  require(path, "the file name");
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse(CUDA_ERROR_FILE_NOT_FOUND, "{} cannot be opened", path);
  if (std::filesystem::is_directory(path)) refuse(CUDA_ERROR_FILE_NOT_FOUND, "{} is a folder", path);
  std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  bytes.push_back(0);
  return load_image(bytes.data(), context, logs);
}

void forget_functions(LoadedModule& module) {
  for (auto& [name, function] : module.functions) driver().functions.erase(function.get());
}

Function& hand_out(LoadedModule& module, const std::string& name, Function& function) {
  if (function.kernel) return function;
  const DeviceModel& model = driver().device.model;
  try {
    function.kernel = module.code->find_kernel(name);
  } catch (const PtxError& error) {
    refuse(CUDA_ERROR_INVALID_PTX, "{}", error.what());
  }
  const int plain = static_cast<int>(model.attributes[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK]);
  function.max_dynamic_shared = std::max(0, plain - static_cast<int>(function.kernel->static_shared));
  return function;
}

Function& find_function(LoadedModule& module, const char* name) {
  require(name, "name");
  const auto found = module.functions.find(std::string_view(name));
  if (found != module.functions.end()) return hand_out(module, found->first, *found->second);
  std::string names;
  for (const auto& [known, function] : module.functions) names += (names.empty() ? "" : ", ") + known;
  refuse(CUDA_ERROR_NOT_FOUND, "there is no kernel \"{}\"; the module has {}", name,
         names.empty() ? "none" : names);
}

void find_global(LoadedModule& module, const char* name, CUdeviceptr* address, size_t* bytes) {
  require(name, "name");
  if (!address && !bytes) refuse(CUDA_ERROR_INVALID_VALUE, "both dptr and bytes are null");
  uint64_t at = 0, size = 0;
  if (!module.code->find_global(name, &at, &size)) {
    refuse(CUDA_ERROR_NOT_FOUND, "there is no .global or .const variable \"{}\" in the module", name);
  }
  if (address) *address = at;
  if (bytes) *bytes = size;
}

}  // namespace mxfa::emulator::driver_api

using namespace mxfa::emulator::driver_api;

namespace {

void publish(CUmodule* out, std::unique_ptr<LoadedModule> module) {
  *out = reinterpret_cast<CUmodule>(module.get());
  driver().modules[module.get()] = std::move(module);
}

}  // namespace

CUresult cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned count, CUjit_option* options,
                            void** values) {
  return api(__func__, [&] {
    Context& context = require_context();
    require(out, "module");
    publish(out, load_image(image, &context, read_jit_options(count, options, values)));
  });
}

CUresult cuModuleLoadData(CUmodule* out, const void* image) {
  return api(__func__, [&] {
    Context& context = require_context();
    require(out, "module");
    publish(out, load_image(image, &context, {}));
  });
}

CUresult cuModuleLoadFatBinary(CUmodule* out, const void* image) {
  return api(__func__, [&] {
    Context& context = require_context();
    require(out, "module");
    publish(out, load_image(image, &context, {}));
  });
}

CUresult cuModuleLoad(CUmodule* out, const char* path) {
  return api(__func__, [&] {
    Context& context = require_context();
    require(out, "module");
    publish(out, load_file(path, &context, {}));
  });
}

CUresult cuModuleUnload(CUmodule handle) {
  return api(__func__, [&] {
    require_context();
    const auto found = driver().modules.find(handle);
    if (found == driver().modules.end())
      refuse(CUDA_ERROR_INVALID_HANDLE, "{} is not a loaded module", fmt::ptr(handle));
    forget_functions(*found->second);
    driver().modules.erase(found);
    driver().pending.finish();  // it waits for the device
  });
}

CUresult cuModuleGetFunction(CUfunction* out, CUmodule module, const char* name) {
  return api(__func__, [&] {
    require_context();
    require(out, "hfunc");
    *out = reinterpret_cast<CUfunction>(&find_function(require_module(module), name));
  });
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule module, const char* name) {
  return api(__func__, [&] {
    require_context();
    find_global(require_module(module), name, address, bytes);
  });
}

CUresult cuModuleGetFunctionCount(unsigned* count, CUmodule module) {
  return api(__func__, [&] {
    require_context();
    require(count, "count");
    *count = static_cast<unsigned>(require_module(module).functions.size());
  });
}

CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned count, CUmodule module) {
  return api(__func__, [&] {
    require_context();
    require(functions, "functions");
    unsigned index = 0;
    LoadedModule& loaded = require_module(module);
    for (const auto& [name, function] : loaded.functions) {
      if (index == count) break;
      functions[index++] = reinterpret_cast<CUfunction>(&hand_out(loaded, name, *function));
    }
  });
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  return api(__func__, [&] {
    require_initialized();
    require(mode, "mode");
    *mode = CU_MODULE_EAGER_LOADING;
  });
}
