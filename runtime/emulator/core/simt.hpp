// Divergence: fragments of a warp, and the tokens at which their lanes meet again.
#pragma once

#include "core/exec.hpp"

namespace mxfa::emulator::simt {

// The fragment of x splits: `taken` goes to `target`, the rest falls through; all meet at `join` (kNoPc:
// nowhere).  Continues with one side; the other becomes a new fragment, or waits at once if its place is
// `join`.
void diverge(Exec& x, uint32_t taken, uint32_t target, uint32_t join);

// Begins a region that all active lanes leave at `pc` (a call: its return address).
void open_region(Exec& x, uint32_t pc);

// The fragment has reached a meeting point.
Step arrive(Exec& x);

// Lanes leave the machine: they are no longer waited for anywhere.  May create fragments of lanes that waited
// for them only.
void exit_lanes(Exec& x, uint32_t lanes);

// At an .aligned instruction, under the split schedule: fragments that wait here join the current one once
// all live lanes have come.  Returns the lanes that execute the instruction now.
uint32_t gather(Exec& x);

// Lets the lanes that already wait at some token go on alone, when nothing else in the cluster can run. False
// if there is none.
bool break_one(Warp& warp);

// A new fragment of the warp; returns its index.
uint32_t add_fragment(Warp& warp, uint32_t pc, uint32_t mask, uint32_t token,
                      const std::vector<uint32_t>& calls);

}  // namespace mxfa::emulator::simt
