// 8x8 matrices of 16-bit elements between registers and shared memory.  PTX ISA 9.7.14.5, "stmatrix";
// PTX 7.8, sm_90. Callers: a whole warp.  Lane l gives the address of row l%8 of matrix l/8; of matrix j a
// thread holds elements (l/4, 2*(l%4)) and the one beside it, in register j.
#pragma once
#include "ptx/types.cuh"

namespace mxfa::ptx {

// stmatrix.sync.aligned.m8n8.x4.shared.b16
MXFA_DEVICE void stmatrix_x4(uint32_t address, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
               :
               : "r"(address), "r"(r0), "r"(r1), "r"(r2), "r"(r3)
               : "memory");
}

}  // namespace mxfa::ptx
