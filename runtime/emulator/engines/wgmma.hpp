// Hopper's warpgroup MMA (PTX ISA 9.7.15): wgmma.mma_async, fence, commit_group, wait_group.
//
// An instruction is performed once for its four warps, not before the last of them has issued it.  From issue
// to the wait_group that covers it the accumulator lives here and not in registers: the registers are
// poisoned at issue (by every schedule) and written by the wait, so a missing or too weak wait shows.
// Registers of A are read when the instruction is performed.  Register allocation keeps the rows of D and A
// until the wait (ptx/lower_wgmma.cpp).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/warp.hpp"
#include "engines/matrix_descriptor.hpp"

namespace mxfa::emulator {

struct Wgmma {  // the static part of an instruction, then the operands
  Format a = Format::BF16, b = Format::BF16;
  int n = 0;
  bool f16_result = false, saturate = false;
  bool negate_a = false, negate_b = false, a_mn_major = false, b_mn_major = false;
  bool a_in_registers = false;
  bool accumulate = false;
  uint64_t a_descriptor = 0, b_descriptor = 0;
  bool operator==(const Wgmma&) const = default;
};
// Registers of D: n/2, or n/4 for f16 results.  a: four registers if a_in_registers, else empty.
void wgmma_issue(Warp& warp, const Wgmma& wgmma, std::span<Row* const> d, std::span<const Row* const> a);
void wgmma_commit(Warp& warp);
bool wgmma_wait(Warp& warp, uint32_t outstanding);  // blocks
// What a blocked wait lacks, for reports.
std::string wgmma_describe(const Warp& warp);
// Sentences on instructions that were not completed when the CTA ended.
void wgmma_at_exit(const Cta& cta, std::vector<std::string>& findings);

}  // namespace mxfa::emulator
