// Text of faults and hangs: where, who waits for what, what could still happen.
#pragma once

#include <string>

#include "core/kernel.hpp"
#include "core/warp.hpp"

namespace mxfa::emulator {

// "kernel k, CTA (0, 0, 0) rank 0, warp 3, lanes 0x0000ffff\n  PTX line 12: add.s32 ...\n  CUDA file.cuh:34"
std::string describe_place(const Grid& grid, const Warp& warp, uint32_t pc, uint32_t mask);
std::string deadlock_report(const Grid& grid, Cluster& cluster, const std::string& kind);

}  // namespace mxfa::emulator
