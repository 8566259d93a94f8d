// Turning the addresses of a warp into checked host pointers.
#pragma once

#include "core/exec.hpp"
#include "memory/memory.hpp"
#include "ptx/types.hpp"

namespace mxfa::emulator {

using ptx::Space;

struct Pointers {
  alignas(64) uint8_t* lane[kLanes];
};

// The address of one lane of a memory operand: src[k] plus imm.
inline uint64_t lane_address(const Exec& x, const MicroOp& op, int lane, int k = 0) {
  if (op.flags & kWideAddress) return lanes<uint64_t>(x.src(op.src[k]))[lane] + static_cast<uint64_t>(op.imm);
  return static_cast<uint32_t>(lanes<uint32_t>(x.src(op.src[k]))[lane] + static_cast<uint32_t>(op.imm));
}

// One address, checked for space, bounds and natural alignment.  Throws Fault.
uint8_t* pointer(Exec& x, Space space, uint32_t lane, uint64_t address, uint32_t bytes, bool write);

// All active lanes.
void resolve(Exec& x, const MicroOp& op, Space space, uint32_t bytes, bool write, Pointers& out);

// Tells the observers of an access by the lanes of `mask` at the addresses of src[k].  Only when x.observed.
void report_access(Exec& x, const MicroOp& op, Space space, uint32_t bytes, bool write, uint32_t mask,
                   int k = 0, bool copy_async = false);

// A 32-bit shared::cluster address from an operand that may hold a generic address.  Throws Fault if it is
// none.
uint32_t to_shared_address(const Exec& x, uint64_t address, bool generic);

}  // namespace mxfa::emulator
