// Kernel configurations: configs/kernels/<kernel>.json + what the operation asks for + the caller's overrides
// -> the fields of the constexpr struct Config that the kernel's source reads.
//
// {"kernel", "source", "archs": [...], "choices": [{"when": {fact: value}, "set": {field: value}}], "limits":
// {field: [min, max, step]}, "plan": {field: value}, "names": {field: [name of 0, name of 1, ...]}}. The
// first choice whose "when" agrees with every fact (head_dim, mxfp8, ..., arch) is taken; a field with limits
// may be overridden, by name where it has names. Fields of "plan" (optional, like "names") are for the plan
// only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "host/embedded.hpp"

namespace mxfa {

struct ConfigField {
  std::string name;
  int64_t value = 0;
  bool boolean = false;  // C++ type bool, else int
  // kChoiceOnly: a fact that chooses a configuration and is no field of it, so that it makes no second
  // kernel.  kPlanOnly: a field that the kernel does not see, likewise.
  enum class Use { kField, kChoiceOnly, kPlanOnly } use = Use::kField;
};

struct KernelConfig {
  std::string kernel, source, arch;
  std::vector<ConfigField> fields;  // the operation's facts first, then the choice's fields
  std::string overrides;            // compact JSON of what the caller changed, "" if nothing

  int64_t at(const std::string& field)
      const;  // throws when there is no such field: an error in the configuration file
  void set(const std::string& field, int64_t value);  // likewise
  // The generated translation unit: a comment with the resolved fields, struct Config, and the kernel's
  // #include.
  std::string translation_unit() const;
};

// The integer that the caller's overrides give a field, else `otherwise`; whether it is one that the kernel
// takes is for resolve_kernel_config to say.
int64_t override_or(const char* overrides, const std::string& field, int64_t otherwise);

// Throws mxfa::Error: no choice fits (facts are named), unknown or out-of-range override (with the nearest
// field name), no kernel for arch.
KernelConfig resolve_kernel_config(const MxfaEmbedded* configs, const std::string& kernel,
                                   const std::string& arch, const std::vector<ConfigField>& facts,
                                   const char* overrides);

}  // namespace mxfa
