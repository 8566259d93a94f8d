// The cache of compiled kernels of all test programs of a build; none touches the user's.
#pragma once

#include <filesystem>
#include <string>

namespace mxfa::test {

inline std::string kernel_cache() {
  return std::filesystem::path(MXFA_EMULATOR_LIBRARY).parent_path() / "test_kernel_cache";
}

}  // namespace mxfa::test
