// Loading of images, shared by modules and libraries.
#pragma once

#include "driver_api/driver.hpp"

namespace mxfa::emulator::driver_api {

// The log buffers of cuModuleLoadDataEx.  A size option is read on entry and holds the bytes written on exit.
struct JitLogs {
  struct Buffer {
    char* text = nullptr;
    size_t bytes = 0;
    void** written = nullptr;
    void put(const std::string& message) const;
  };
  Buffer info, error;
};
JitLogs read_jit_options(unsigned count, CUjit_option* options, void** values);

// Throws Refusal; its text is in the error log too.
std::unique_ptr<LoadedModule> load_image(const void* image, Context* context, const JitLogs& logs);
std::unique_ptr<LoadedModule> load_file(const char* path, Context* context, const JitLogs& logs);
void forget_functions(LoadedModule& module);

// A function leaves its module for a program: lowered now if it has not been.
Function& hand_out(LoadedModule& module, const std::string& name, Function& function);
Function& find_function(LoadedModule& module, const char* name);
void find_global(LoadedModule& module, const char* name, CUdeviceptr* address, size_t* bytes);

}  // namespace mxfa::emulator::driver_api
