// The counters of an mbarrier, for reports.
#pragma once

#include <cstdint>
#include <optional>

#include "core/warp.hpp"

namespace mxfa::emulator {

struct MbarrierState {
  uint32_t expected = 0, pending = 0;  // arrivals of the current phase
  int64_t pending_bytes = 0;           // announced and not there yet
  int64_t expected_bytes = 0;          // announced in the current phase
  uint64_t phase = 0;                  // phases completed since init
};
std::optional<MbarrierState> mbarrier_state(Cluster& cluster, uint32_t address);  // none: not initialised

}  // namespace mxfa::emulator
