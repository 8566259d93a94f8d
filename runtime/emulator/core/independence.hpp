// Whether the clusters of a kernel can run at the same time on several host threads.
#pragma once

#include "core/kernel.hpp"

namespace mxfa::emulator {

// True when no instruction of the kernel can tell in which order
// clusters run: no atomics or reductions outside shared memory, no access that is more than weak there, no
// fence that orders for other CTAs' sake, no cluster launch control, no clock, no calls (they may print).
// What is left communicates between clusters only by a data race, which has no defined result in any order.
bool clusters_are_independent(const Kernel& kernel);

// MXFA_EMU_THREADS, by default the number of hardware threads.
unsigned threads_for_clusters();

}  // namespace mxfa::emulator
