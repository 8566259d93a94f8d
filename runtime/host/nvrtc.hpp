// NVRTC, loaded by name.  Source text in, PTX + cubin + log out; nothing is read from or written to disk.
#pragma once

#include <nvrtc.h>

#include <string>
#include <vector>

#include "host/embedded.hpp"

namespace mxfa {

struct NvrtcResult {
  std::string ptx, cubin, log;
};

class Nvrtc {
 public:
  // MXFA_NVRTC, the loader's path, the toolkit's usual places, .deps/cuda of the project.  Throws mxfa::Error
  // with what was tried.
  Nvrtc();

  // `name` appears in line information and messages; `headers` is what #include can reach, by name, ended by
  // {nullptr, nullptr}. Throws mxfa::Error with the compiler's log and the options.
  NvrtcResult compile(const std::string& name, const std::string& source, const MxfaEmbedded* headers,
                      const std::vector<std::string>& options) const;

  // Throws when this NVRTC is too old for `arch`.
  void require_arch(const std::string& arch) const;

  const std::string& library() const { return library_; }
  std::string version() const;  // "13.0"
  const std::string& build_id() const {
    return build_id_;
  }  // tells two builds of one version apart: hex, or ""

 private:
  std::string library_, build_id_;
  int major_ = 0, minor_ = 0;
// clang-format off
#define MXFA_NVRTC_FUNCTIONS(X)                                                                           \
  X(nvrtcVersion) X(nvrtcGetErrorString) X(nvrtcGetNumSupportedArchs) X(nvrtcGetSupportedArchs)           \
  X(nvrtcCreateProgram) X(nvrtcDestroyProgram) X(nvrtcCompileProgram)                                     \
  X(nvrtcGetPTXSize) X(nvrtcGetPTX) X(nvrtcGetCUBINSize) X(nvrtcGetCUBIN)                                 \
  X(nvrtcGetProgramLogSize) X(nvrtcGetProgramLog)
// clang-format on
#define MXFA_NVRTC_MEMBER(name) decltype(&::name) name = nullptr;
  MXFA_NVRTC_FUNCTIONS(MXFA_NVRTC_MEMBER)
#undef MXFA_NVRTC_MEMBER
};

}  // namespace mxfa
