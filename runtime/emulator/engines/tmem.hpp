// Checks on tensor-memory addresses that several instructions share.
#pragma once

#include <cstdint>
#include <string>

#include "engines/engines.hpp"

namespace mxfa::emulator {

inline uint32_t tmem_lane(uint32_t address) { return address >> 16; }
inline uint32_t tmem_column(uint32_t address) { return address & 0xffff; }

// A Fault unless every column of [first, first + count) exists and is allocated.  `what` starts the sentence.
void require_columns(const Cta& cta, int64_t first, int64_t count, const std::string& what);

}  // namespace mxfa::emulator
