// What nvcc's host code registers before main: fatbins with the names of their kernels and variables.  A
// fatbin is loaded when something of it is first used, as by NVIDIA's runtime, so registering costs nothing
// and a program may register code that the device cannot run.
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "cudart/runtime.hpp"

namespace mxfa::emulator::cudart {
namespace {

struct Fatbin {
  void* wrapper = nullptr;
  CUlibrary library = nullptr;
  std::map<void**, std::string> managed;  // pointer in the host code -> name
};
struct Entry {
  Fatbin* fatbin = nullptr;
  std::string name;
  CUkernel kernel = nullptr;
};
struct Variable {
  Fatbin* fatbin = nullptr;
  std::string name;
};
struct Registry {
  std::recursive_mutex mutex;
  std::map<void*, std::unique_ptr<Fatbin>> fatbins;
  std::unordered_map<const void*, Entry> kernels;
  std::unordered_map<const void*, Variable> variables;
};

Registry& registry() {
  static Registry* const instance = new Registry;  // never destroyed: unregistering happens in atexit
  return *instance;
}

CUresult load(Fatbin& fatbin) {
  if (fatbin.library) return CUDA_SUCCESS;
  if (const CUresult code = make_ready()) return code;
  const CUresult code =
      cuLibraryLoadData(&fatbin.library, fatbin.wrapper, nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (code) return code;
  for (const auto& [pointer, name] : fatbin.managed) {
    CUdeviceptr address = 0;
    if (const CUresult found = cuLibraryGetGlobal(&address, nullptr, fatbin.library, name.c_str()))
      return found;
    *pointer = reinterpret_cast<void*>(address);
  }
  return CUDA_SUCCESS;
}

Fatbin* fatbin_of(void** handle) { return reinterpret_cast<Fatbin*>(handle); }

}  // namespace

CUresult find_kernel(const void* host, CUkernel* kernel) {
  Registry& state = registry();
  std::lock_guard lock(state.mutex);
  const auto found = state.kernels.find(host);
  if (found == state.kernels.end()) {
    // The calls that take the address of a __global__ function also take a cudaKernel_t or cudaFunction_t.
    *kernel = reinterpret_cast<CUkernel>(const_cast<void*>(host));
    const char* name = nullptr;
    const bool known =
        host && make_ready() == CUDA_SUCCESS && cuFuncGetName(&name, as_function(*kernel)) == 0;
    return known ? CUDA_SUCCESS : static_cast<CUresult>(cudaErrorInvalidDeviceFunction);
  }
  Entry& entry = found->second;
  if (!entry.kernel) {
    if (const CUresult code = load(*entry.fatbin)) return code;
    if (const CUresult code = cuLibraryGetKernel(&entry.kernel, entry.fatbin->library, entry.name.c_str())) {
      return code;
    }
  }
  *kernel = entry.kernel;
  return CUDA_SUCCESS;
}

CUresult find_variable(const void* host, CUdeviceptr* address, size_t* bytes) {
  Registry& state = registry();
  std::lock_guard lock(state.mutex);
  const auto found = state.variables.find(host);
  if (found == state.variables.end()) return static_cast<CUresult>(cudaErrorInvalidSymbol);
  if (const CUresult code = load(*found->second.fatbin)) return code;
  return cuLibraryGetGlobal(address, bytes, found->second.fatbin->library, found->second.name.c_str());
}

}  // namespace mxfa::emulator::cudart

using namespace mxfa::emulator::cudart;

void** __cudaRegisterFatBinary(void* wrapper) {
  Registry& state = registry();
  std::lock_guard lock(state.mutex);
  auto fatbin = std::make_unique<Fatbin>();
  fatbin->wrapper = wrapper;
  void* const handle = fatbin.get();
  state.fatbins[handle] = std::move(fatbin);
  return static_cast<void**>(handle);
}

void __cudaRegisterFatBinaryEnd(void**) {}

void __cudaUnregisterFatBinary(void** handle) {
  Registry& state = registry();
  std::lock_guard lock(state.mutex);
  const auto found = state.fatbins.find(handle);
  if (found == state.fatbins.end()) return;
  const auto of_it = [&](const auto& entry) { return entry.second.fatbin == found->second.get(); };
  std::erase_if(state.kernels, of_it);
  std::erase_if(state.variables, of_it);
  if (found->second->library) cuLibraryUnload(found->second->library);
  state.fatbins.erase(found);
}

void __cudaRegisterFunction(void** handle, const char* host, char*, const char* name, int, void*, void*,
                            void*, void*, int*) {
  std::lock_guard lock(registry().mutex);
  registry().kernels[host] = {fatbin_of(handle), name, nullptr};
}

void __cudaRegisterVar(void** handle, char* host, char*, const char* name, int, size_t, int, int) {
  std::lock_guard lock(registry().mutex);
  registry().variables[host] = {fatbin_of(handle), name};
}

// The host code reads a managed variable through a pointer, which __cudaInitModule has to set.
void __cudaRegisterManagedVar(void** handle, void** host, char*, const char* name, int, size_t, int, int) {
  std::lock_guard lock(registry().mutex);
  registry().variables[host] = {fatbin_of(handle), name};
  fatbin_of(handle)->managed[host] = name;
}

// Called before the first use of a managed variable.
char __cudaInitModule(void** handle) {
  std::lock_guard lock(registry().mutex);
  const CUresult code = load(*fatbin_of(handle));
  finish(code);
  return code == CUDA_SUCCESS;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  return finish(find_kernel(host, reinterpret_cast<CUkernel*>(kernel)));
}
