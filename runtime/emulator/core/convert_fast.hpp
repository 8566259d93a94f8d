// Vectorised conversions, where there is one.
#pragma once

#include "core/handlers.hpp"

namespace mxfa::emulator {

// Null where the general conversion has to do it.
Handler fast_conversion(const handlers::Conversion& c);
// The fast conversions read and write rows of the types' own widths.
bool fast_conversion_fits(const handlers::Conversion& c, uint32_t source_bits, uint32_t destination_bits);

}  // namespace mxfa::emulator
