// Text of faults and hangs: where, who waits for what, what could still happen.
#pragma once

#include <string>
#include <vector>

#include "core/kernel.hpp"
#include "core/warp.hpp"

namespace mxfa::emulator {

// "kernel k, CTA (0, 0, 0) rank 0, warp 3, lanes 0x0000ffff\n  PTX line 12, column 3: add.s32 ...\n
//  CUDA file.cuh:34"
std::string describe_place(const Grid& grid, const Warp& warp, uint32_t pc, uint32_t mask);
// Also keeps the same as JSON (docs/debugging.md): last_deadlock(), empty since forget_deadlock().
std::string deadlock_report(const Grid& grid, Cluster& cluster, const std::string& kind);
void forget_deadlock();
const std::string& last_deadlock();
// Names of the functions that an instruction was inlined from, the outermost first; empty without -lineinfo.
std::vector<std::string> inlined_functions(const Program& program, uint32_t pc);
// What the thread that executes an instruction is about, in the words of the source: the outermost inlined
// function that is not around the whole kernel, and that calls others.  Empty if there is none.
std::string role_of(const Program& program, uint32_t pc);

}  // namespace mxfa::emulator
