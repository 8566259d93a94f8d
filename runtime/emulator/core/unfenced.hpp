// What a wgmma knows of the registers that it shares with other instructions.
#pragma once

#include <cstdint>
#include <optional>

namespace mxfa::emulator {

// In MicroOp::imm of a wgmma: an access to one of its registers that no wgmma.fence separates from it.
struct UnfencedAccess {
  int64_t position = -1;  // in the PTX text; -1: there is no fence before the first wgmma
  bool stale = false;     // no fence since the last commit_group, or none at all
  int64_t code() const { return (position + 2) * 2 + stale; }
  static std::optional<UnfencedAccess> of(int64_t code) {
    return code ? std::optional(UnfencedAccess{code / 2 - 2, code % 2 != 0}) : std::nullopt;
  }
};

}  // namespace mxfa::emulator
