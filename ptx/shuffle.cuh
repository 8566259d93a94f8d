// Warp shuffles and votes over the full warp.  PTX ISA "shfl.sync", "vote.sync"; sm_70 and later.
// Callers: all 32 lanes, converged.
#pragma once
#include "ptx/types.cuh"

namespace mxfa::ptx {

// shfl.sync.idx.b32 -- the value of lane `source`.
MXFA_DEVICE uint32_t shfl_idx(uint32_t value, uint32_t source) {
  uint32_t result;
  asm volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, 0xffffffff;"
               : "=r"(result)
               : "r"(value), "r"(source)
               : "memory");
  return result;
}

// shfl.sync.bfly.b32 -- the value of lane `lane ^ mask`.
MXFA_DEVICE uint32_t shfl_bfly(uint32_t value, uint32_t mask) {
  uint32_t result;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;"
               : "=r"(result)
               : "r"(value), "r"(mask)
               : "memory");
  return result;
}

MXFA_DEVICE float shfl_bfly(float value, uint32_t mask) {
  float result;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;"
               : "=f"(result)
               : "f"(value), "r"(mask)
               : "memory");
  return result;
}

// vote.sync.any.pred -- true when the predicate holds in any lane.
MXFA_DEVICE bool vote_any(bool predicate) {
  uint32_t result;
  asm volatile(
      "{ .reg .pred p, q; setp.ne.b32 p, %1, 0; vote.sync.any.pred q, p, 0xffffffff; selp.b32 %0, 1, 0, q; }"
      : "=r"(result)
      : "r"(static_cast<uint32_t>(predicate))
      : "memory");
  return result != 0;
}

// vote.sync.all.pred -- true when the predicate holds in every lane.
MXFA_DEVICE bool vote_all(bool predicate) {
  uint32_t result;
  asm volatile(
      "{ .reg .pred p, q; setp.ne.b32 p, %1, 0; vote.sync.all.pred q, p, 0xffffffff; selp.b32 %0, 1, 0, q; }"
      : "=r"(result)
      : "r"(static_cast<uint32_t>(predicate))
      : "memory");
  return result != 0;
}

// vote.sync.ballot.b32 -- bit i is lane i's predicate.
MXFA_DEVICE uint32_t vote_ballot(bool predicate) {
  uint32_t result;
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %1, 0; vote.sync.ballot.b32 %0, p, 0xffffffff; }"
               : "=r"(result)
               : "r"(static_cast<uint32_t>(predicate))
               : "memory");
  return result;
}

}  // namespace mxfa::ptx
