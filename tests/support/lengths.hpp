// Sequences by their lengths.
#pragma once

#include <cstdint>
#include <vector>

namespace mxfa::test {

inline std::vector<int32_t> offsets_of(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> offsets{0};
  for (const int32_t length : lengths) offsets.push_back(offsets.back() + length);
  return offsets;
}

}  // namespace mxfa::test
