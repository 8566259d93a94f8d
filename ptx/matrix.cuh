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

// ... .trans: each matrix is stored transposed; the address is still that of a row of what is stored.
MXFA_DEVICE void stmatrix_x4_trans(uint32_t address, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
               :
               : "r"(address), "r"(r0), "r"(r1), "r"(r2), "r"(r3)
               : "memory");
}

// ldmatrix.sync.aligned.m8n8.x4.shared.b16
MXFA_DEVICE void ldmatrix_x4(uint32_t address, uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// movmatrix.sync.aligned.m8n8.trans.b16 -- the transpose of an 8x8 matrix.
MXFA_DEVICE uint32_t movmatrix_trans(uint32_t a) {
  uint32_t d;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(a));
  return d;
}

// mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32, D += A B (PTX ISA 9.7.14.5, "mma"; PTX 7.0, sm_80). D:
// element i of a thread is row lane/4 + 8*(i/2), column 2*(lane%4) + i%2: the eight columns of a wgmma
// accumulator have the same form.
MXFA_DEVICE void mma_m16n8k16_bf16(float& d0, float& d1, float& d2, float& d3, const uint32_t (&a)[4],
                                   uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace mxfa::ptx
