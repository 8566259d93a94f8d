// The comparison of bytes a kernel wrote with the bytes it had to write.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

namespace mxfa::tools {

// "" or a sentence about `what`; got holds at least as many bytes as want.
inline std::string byte_difference(const std::vector<uint8_t>& got, const std::vector<uint8_t>& want,
                                   const std::string& what, const std::string& reference) {
  size_t wrong = 0, first = 0;
  for (size_t i = want.size(); i-- > 0;) {
    if (got[i] == want[i]) continue;
    ++wrong;
    first = i;
  }
  if (wrong == 0) return "";
  return fmt::format("{}: {} of {} bytes differ from {}; first at byte {}: got 0x{:02x}, want 0x{:02x}", what,
                     wrong, want.size(), reference, first, got[first], want[first]);
}

}  // namespace mxfa::tools
