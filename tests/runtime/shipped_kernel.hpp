// A kernel in a configuration that an operation asks for, compiled by the real NVRTC or found in the cache of
// the test runs.
#pragma once

#include <cstdlib>
#include <cstring>
#include <vector>

#include "host/jit.hpp"
#include "host/kernel_abi.hpp"
#include "host/kernel_config.hpp"
#include "support/kernel_cache.hpp"

namespace mxfa::test {

// Throws mxfa::Error.
inline std::shared_ptr<const Artefact> compile_shipped(const Nvrtc& nvrtc, const KernelConfig& config) {
  static Cache cache({{kernel_cache(), "tests", true}});
  return build_kernel(nvrtc, cache, config, mxfa_embedded_device_sources, false).artefact;
}

// A kernel of the forward on Blackwell.
struct BlackwellForward {
  const char* arch;
  int head_dim;
  bool mxfp8 = false, dynamic_p = false, pair = false, right_mask = false, left_mask = false,
       launch_control = false;
  int packed_heads = 1;

  const char* kernel() const { return pair ? "attention_fwd_sm100_pair" : "attention_fwd_sm100"; }
  std::vector<ConfigField> facts() const {
    return {{"ctas_per_tile", pair ? 2 : 1}, {"head_dim", head_dim},
            {"mxfp8", mxfp8, true},          {"right_mask", right_mask, true},
            {"left_mask", left_mask, true},  {"dynamic_p", dynamic_p, true},
            {"packed_heads", packed_heads},  {"launch_control", launch_control, true}};
  }
  KernelConfig config() const {
    return resolve_kernel_config(mxfa_embedded_kernel_configs, kernel(), arch, facts(), nullptr);
  }
};

// Every architecture, format and head_dim, without a mask.
inline std::vector<BlackwellForward> blackwell_forwards() {
  std::vector<BlackwellForward> all;
  for (const char* arch : {"sm_100a", "sm_103a"}) {
    for (const int head_dim : {64, 96, 128}) all.push_back({arch, head_dim});
    all.push_back({.arch = arch, .head_dim = 128, .pair = true});
    for (const bool dynamic_p : {false, true})
      for (const int head_dim : {64, 96, 128}) all.push_back({arch, head_dim, true, dynamic_p});
  }
  return all;
}

// The kernel's tables, from the bytes of the variable that publishes them; magic 0 where there is none.
inline abi::KernelTables tables_of(const std::string& ptx, const std::string& kernel) {
  abi::KernelTables tables{};
  std::vector<char> bytes;
  const size_t at = ptx.find(kernel + "_tables[");
  const char* text = at == ptx.npos ? "" : ptx.c_str() + ptx.find('{', at);
  while (*text == '{' || *text == ',') {
    char* end = nullptr;
    bytes.push_back(char(std::strtol(text + 1, &end, 10)));
    text = end;
  }
  bytes.resize(sizeof tables);  // zeros at the end may be left out
  std::memcpy(&tables, bytes.data(), sizeof tables);
  return tables;
}

}  // namespace mxfa::test
