// The promise of .aligned instructions.
#pragma once

#include "core/exec.hpp"

namespace mxfa::emulator {

// Returns when every live lane of the warp executes the current micro-operation.  Otherwise the fragment
// waits, because lanes on another path may be about to exit; when nothing in the cluster can run any more
// (Exec::strict) it is a Fault that names all places.  To be called before the handler changes anything.
void require_whole_warp(Exec& x);

// Thrown by require_whole_warp to make the fragment wait.
struct PartialWarp {};

}  // namespace mxfa::emulator
