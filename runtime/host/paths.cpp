#include "host/paths.hpp"

#include <dlfcn.h>

#include <filesystem>

namespace mxfa {

std::string own_directory() {
  Dl_info info{};
  if (!dladdr(reinterpret_cast<const void*>(&own_directory), &info) || !info.dli_fname) return {};
  std::error_code ignored;
  // For code linked into a program dli_fname is argv[0], which need not be a path; /proc/self/exe is.
  std::filesystem::path file = std::filesystem::canonical(info.dli_fname, ignored);
  if (ignored) file = std::filesystem::read_symlink("/proc/self/exe", ignored);
  return file.parent_path().string();
}

void* open_first(const std::vector<std::string>& candidates, std::string* name, std::string* why) {
  for (const std::string& candidate : candidates) {
    // A name without a slash goes through the loader's search path.
    const bool is_path = candidate.find('/') != std::string::npos;
    std::error_code ignored;
    const bool missing = is_path && !std::filesystem::exists(candidate, ignored);
    // RTLD_LOCAL: a CUDA driver and its emulator export the same names and may both be in one process.
    if (void* handle = missing ? nullptr : dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      *name = candidate;
      return handle;
    }
    if (!why->empty()) *why += "; ";
    *why += missing ? candidate + ": no such file" : std::string(dlerror());
  }
  return nullptr;
}

}  // namespace mxfa
