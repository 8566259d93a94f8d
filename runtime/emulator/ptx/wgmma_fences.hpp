// wgmma.mma_async and the registers it reads or writes (PTX ISA 9.7.15.7.1): a wgmma.fence stands between any
// other access to them and the wgmma, and before the first wgmma.  Wgmmas order their accumulators among
// themselves.
#pragma once

#include <cstdint>
#include <vector>

#include "ptx/cfg.hpp"

namespace mxfa::emulator::ptx {

// For each instruction, 0, or for a wgmma with an unfenced register on some path (UnfencedAccess) its code.
// Empty if there is none.
std::vector<int64_t> unfenced_wgmmas(const Function& function, const Cfg& cfg);

}  // namespace mxfa::emulator::ptx
