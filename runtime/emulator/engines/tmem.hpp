// Checks on tensor-memory addresses that several instructions share.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engines/engines.hpp"

namespace mxfa::emulator {

inline uint32_t tmem_lane(uint32_t address) { return address >> 16; }
inline uint32_t tmem_column(uint32_t address) { return address & 0xffff; }

// The CTAs that an instruction concerns: its own, or with cta_group::2 both of its pair, the even one first.
struct CtaGroup {
  std::array<Cta*, 2> cta{};
  size_t count = 0;
  uint64_t queue = 0;  // of their tensor pipe
  std::span<Cta* const> ctas() const { return {cta.data(), count}; }
};
CtaGroup cta_group_of(Cta& cta, int group, const char* what);

// A Fault unless every column of [first, first + count) exists and is allocated.  `what` starts the sentence.
// warp: that executes the instruction, null once it is under way.
void require_columns(const Cta& cta, int64_t first, int64_t count, const std::string& what,
                     const Warp* warp = nullptr);

}  // namespace mxfa::emulator
