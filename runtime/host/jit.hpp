// Configuration -> generated translation unit -> NVRTC -> PTX + cubin + ptxas report, through the cache.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "host/cache.hpp"
#include "host/embedded.hpp"
#include "host/kernel_config.hpp"
#include "host/nvrtc.hpp"

namespace mxfa {

const char* product_version();  // "0.1.0"

struct BuiltKernel {
  std::shared_ptr<const Artefact> artefact;
  std::string key;      // SHA-256 in hex of everything that changes the code
  std::string state;    // where it came from: "cold" (compiled now), "warm" (disk), "memory"
  double build_ms = 0;  // compile time when cold, else look-up time
};

// The compiler's options for an architecture; they are part of the key.
std::vector<std::string> compile_options(const std::string& arch);

// Key: product version, entry format, source, name and text of every header, options, architecture, NVRTC
// version and build.  No paths of this machine, no times, no device number.
std::string kernel_key(const KernelConfig& config, const MxfaEmbedded* headers,
                       const std::string& compiler_version, const std::string& compiler_build);

// Compiles without looking at any cache.  Throws mxfa::Error with the compiler's log and the options.
Artefact compile_kernel(const Nvrtc& nvrtc, const KernelConfig& config, const MxfaEmbedded* headers);

// Looks up, compiles if need be (one line on stderr for each compile; with `verbose` one for each look-up
// too) and keeps the result.
BuiltKernel build_kernel(const Nvrtc& nvrtc, Cache& cache, const KernelConfig& config,
                         const MxfaEmbedded* headers, bool verbose);

}  // namespace mxfa
