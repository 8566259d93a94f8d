// A kernel in a configuration that an operation asks for, compiled by the real NVRTC or found in the cache of
// the test runs.
#pragma once

#include <filesystem>

#include "host/jit.hpp"

namespace mxfa::test {

// Throws mxfa::Error.
inline std::shared_ptr<const Artefact> compile_shipped(const Nvrtc& nvrtc, const KernelConfig& config) {
  static Cache cache(
      {{std::filesystem::path(MXFA_EMULATOR_LIBRARY).parent_path() / "test_kernel_cache", "tests", true}});
  return build_kernel(nvrtc, cache, config, mxfa_embedded_device_sources, false).artefact;
}

}  // namespace mxfa::test
