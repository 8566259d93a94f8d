// tcgen05.ld without tcgen05.wait::ld.  PTX asks for the wait before a loaded register is used, but a device
// keeps this order by itself, as for any load, and public kernels rely on it: they wait only before they give
// the tensor memory back.  So a use without the wait completes the loads of the warp.
#pragma once

#include <vector>

#include "ptx/cfg.hpp"

namespace mxfa::emulator::ptx {

// For each instruction, whether it touches a register that a tcgen05.ld may still have to write.  Empty if
// the function has no such instruction.
std::vector<bool> uses_of_pending_loads(const Function& function, const Cfg& cfg);

}  // namespace mxfa::emulator::ptx
