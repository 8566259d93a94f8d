// Sequence lengths drawn from a distribution, the same on every machine for the same seed.
// docs/shape-files.md gives the formulas.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "host/json_text.hpp"

namespace mxfa {

// `value` is the object {"distribution": ...} at `key`.  A parameter that the distribution does not use is
// refused.  Throws InputError.
std::vector<int32_t> read_length_distribution(const JsonValue& value, const std::string& key,
                                              const std::string& source);

}  // namespace mxfa
