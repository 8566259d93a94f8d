// cuLibrary* and cuKernel*: a library is a module without a context.  PTX text is lowered when it is loaded
// (as with CUDA_MODULE_LOADING=EAGER), so that a bad image is refused at the call that names it; NVIDIA's
// driver refuses it when the first kernel is asked for.
#include "driver_api/function.hpp"
#include "driver_api/module.hpp"

using namespace mxfa::emulator::driver_api;

namespace {

LoadedModule& require_library(CUlibrary handle) {
  const auto found = driver().libraries.find(handle);
  if (found == driver().libraries.end())
    refuse(CUDA_ERROR_INVALID_HANDLE, "{} is not a loaded library", fmt::ptr(handle));
  return *found->second;
}

void publish(CUlibrary* out, std::unique_ptr<LoadedModule> library) {
  *out = reinterpret_cast<CUlibrary>(library.get());
  driver().libraries[library.get()] = std::move(library);
}

void check_library_options(unsigned count, CUlibraryOption* options) {
  if (count) require(options, "libraryOptions");
  for (unsigned i = 0; i < count; ++i) {
    if (options[i] != CU_LIBRARY_BINARY_IS_PRESERVED &&
        options[i] != CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE) {
      refuse(CUDA_ERROR_INVALID_VALUE, "libraryOptions[{}] is {}", i, static_cast<int>(options[i]));
    }
    if (options[i] == CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE) {
      refuse(CUDA_ERROR_NOT_SUPPORTED, "libraryOptions[{}]: unified function tables", i);
    }
  }
}

}  // namespace

CUresult cuLibraryLoadData(CUlibrary* out, const void* code, CUjit_option* options, void** values,
                           unsigned count, CUlibraryOption* library_options, void**, unsigned library_count) {
  return api(__func__, [&] {
    require_initialized();
    require(out, "library");
    check_library_options(library_count, library_options);
    publish(out, load_image(code, nullptr, read_jit_options(count, options, values)));
  });
}

CUresult cuLibraryLoadFromFile(CUlibrary* out, const char* path, CUjit_option* options, void** values,
                               unsigned count, CUlibraryOption* library_options, void**,
                               unsigned library_count) {
  return api(__func__, [&] {
    require_initialized();
    require(out, "library");
    check_library_options(library_count, library_options);
    publish(out, load_file(path, nullptr, read_jit_options(count, options, values)));
  });
}

CUresult cuLibraryUnload(CUlibrary handle) {
  return api(__func__, [&] {
    require_initialized();
    forget_functions(require_library(handle));
    driver().libraries.erase(handle);
    driver().pending.finish();  // it waits for the device
  });
}

CUresult cuLibraryGetKernel(CUkernel* out, CUlibrary library, const char* name) {
  return api(__func__, [&] {
    require_initialized();
    require(out, "pKernel");
    *out = reinterpret_cast<CUkernel>(&find_function(require_library(library), name));
  });
}

CUresult cuLibraryGetKernelCount(unsigned* count, CUlibrary library) {
  return api(__func__, [&] {
    require_initialized();
    require(count, "count");
    *count = static_cast<unsigned>(require_library(library).functions.size());
  });
}

CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned count, CUlibrary library) {
  return api(__func__, [&] {
    require_initialized();
    require(kernels, "kernels");
    unsigned index = 0;
    LoadedModule& loaded = require_library(library);
    for (const auto& [name, function] : loaded.functions) {
      if (index == count) break;
      kernels[index++] = reinterpret_cast<CUkernel>(&hand_out(loaded, name, *function));
    }
  });
}

CUresult cuLibraryGetModule(CUmodule* out, CUlibrary library) {
  return api(__func__, [&] {
    require_context();
    require(out, "pMod");
    *out = reinterpret_cast<CUmodule>(&require_library(library));
  });
}

CUresult cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary library, const char* name) {
  return api(__func__, [&] {
    require_context();
    find_global(require_library(library), name, address, bytes);
  });
}

// ---- kernels
// -------------------------------------------------------------------------------------------------
CUresult cuKernelGetFunction(CUfunction* out, CUkernel kernel) {
  return api(__func__, [&] {
    require_context();
    require(out, "pFunc");
    *out = reinterpret_cast<CUfunction>(&require_function(kernel));
  });
}

CUresult cuKernelGetLibrary(CUlibrary* out, CUkernel kernel) {
  return api(__func__, [&] {
    require_initialized();
    require(out, "pLib");
    *out = reinterpret_cast<CUlibrary>(require_function(kernel).module);
    require_library(*out);
  });
}

CUresult cuKernelGetName(const char** name, CUkernel kernel) {
  return api(__func__, [&] {
    require_initialized();
    require(name, "name");
    *name = require_function(kernel).kernel->name.c_str();
  });
}

CUresult cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device) {
  return api(__func__, [&] {
    require_device(device);
    require(value, "pi");
    *value = function_attribute(require_function(kernel), attribute);
  });
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device) {
  return api(__func__, [&] {
    require_device(device);
    set_function_attribute(require_function(kernel), attribute, value);
  });
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t* offset, size_t* size) {
  return api(__func__, [&] {
    require_initialized();
    parameter_info(require_function(kernel), index, offset, size);
  });
}
