// PTX text to a Module.  Accepts what NVRTC and nvcc emit and what inline assembly adds: nested scopes of
// registers and labels, registers without a percent sign, several statements on a line, initialised data,
// debug sections.  Throws PtxError, never crashes.
#pragma once

#include "ptx/ast.hpp"

namespace mxfa::emulator::ptx {

std::unique_ptr<Module> parse(const Source& source);

}  // namespace mxfa::emulator::ptx
