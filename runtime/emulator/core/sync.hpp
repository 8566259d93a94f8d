// What barriers need to know of exits.
#pragma once

#include "core/warp.hpp"

namespace mxfa::emulator {

// Lanes of the CTA have exited: barriers that wait for all live threads may be complete now.
void barriers_after_exit(Cta& cta);

}  // namespace mxfa::emulator
