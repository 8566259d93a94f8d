// Copies from shared memory to tensor memory.  PTX ISA 9.7.16.9, "tcgen05.cp"; PTX 8.6, sm_100a.
// Callers: one thread; asynchronous, ordered before later MMAs of the same thread.  Reads shared memory
// through the async proxy.
#pragma once
#include "ptx/types.cuh"

namespace mxfa::ptx {

// tcgen05.cp.32x128b.warpx4 -- 32 rows of 16 bytes to 4 columns; row r goes to lanes r, r+32, r+64, r+96. One
// 512-byte atom of scale factors.
template <int kCtaGroup = 1>
MXFA_DEVICE void tcgen05_cp_32x128b_warpx4(uint32_t dst, uint64_t descriptor) {
  asm volatile("tcgen05.cp.cta_group::%2.32x128b.warpx4 [%0], %1;"
               :
               : "r"(dst), "l"(descriptor), "n"(kCtaGroup)
               : "memory");
}

}  // namespace mxfa::ptx
