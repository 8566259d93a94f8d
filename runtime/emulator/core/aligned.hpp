// The promise of .aligned instructions.
#pragma once

#include "core/exec.hpp"

namespace mxfa::emulator {

// Throws a Fault that names both places unless every live lane of the warp executes the current
// micro-operation.
void require_whole_warp(Exec& x);

}  // namespace mxfa::emulator
