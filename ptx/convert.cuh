// Register arithmetic that C++ cannot spell: conversions, approximations, packed FP32.  Callers: any thread.
// In every x2 conversion the first source becomes the upper half (PTX ISA 9.7.9.21, "cvt"); the parameters
// keep that order.
#pragma once
#include "ptx/types.cuh"

namespace mxfa::ptx {

// cvt.rn.bf16x2.f32; sm_80.
MXFA_DEVICE uint32_t cvt_rn_bf16x2_f32(float hi, float lo) {
  uint32_t d;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo));
  return d;
}

// cvt.rn.f16x2.f32 -- beyond 65504 to infinity; sm_80.
MXFA_DEVICE uint32_t cvt_rn_f16x2_f32(float hi, float lo) {
  uint32_t d;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo));
  return d;
}

// cvt.f32.f16 of the low and of the high half -- exact; sm_53.
MXFA_DEVICE float cvt_f32_f16_low(uint32_t pair) {
  float x;
  asm("{ .reg .b16 lo, hi; mov.b32 {lo, hi}, %1; cvt.f32.f16 %0, lo; }" : "=f"(x) : "r"(pair));
  return x;
}
MXFA_DEVICE float cvt_f32_f16_high(uint32_t pair) {
  float x;
  asm("{ .reg .b16 lo, hi; mov.b32 {lo, hi}, %1; cvt.f32.f16 %0, hi; }" : "=f"(x) : "r"(pair));
  return x;
}

// cvt.rn.satfinite.e4m3x2.f32 -- to nearest even, beyond 448 (and infinity) to 448, NaN to 0x7f; sm_89.
MXFA_DEVICE uint16_t cvt_rn_satfinite_e4m3x2_f32(float hi, float lo) {
  uint16_t d;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(d) : "f"(hi), "f"(lo));
  return d;
}

// Two of them: byte 0 from x0 ... byte 3 from x3.
MXFA_DEVICE uint32_t cvt_rn_satfinite_e4m3x4_f32(float x3, float x2, float x1, float x0) {
  uint32_t d;
  asm("{ .reg .b16 lo, hi; cvt.rn.satfinite.e4m3x2.f32 hi, %1, %2; cvt.rn.satfinite.e4m3x2.f32 lo, %3, %4; "
      "mov.b32 %0, {lo, hi}; }"
      : "=r"(d)
      : "f"(x3), "f"(x2), "f"(x1), "f"(x0));
  return d;
}

// cvt.rn.f16x2.e4m3x2 -- exact; sm_89.
MXFA_DEVICE uint32_t cvt_rn_f16x2_e4m3x2(uint16_t value) {
  uint32_t d;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(d) : "h"(value));
  return d;
}

// Two of them: elements 0 and 1 to `lo`, 2 and 3 to `hi`.
MXFA_DEVICE void cvt_rn_f16x2_e4m3x4(uint32_t value, uint32_t& hi, uint32_t& lo) {
  asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.rn.f16x2.e4m3x2 %0, h; cvt.rn.f16x2.e4m3x2 %1, l; }"
      : "=r"(hi), "=r"(lo)
      : "r"(value));
}

// The upper halves of both FP16 elements as FP32: their BF16 where they have at most 8 significant bits, as
// E4M3 values do.  NaN stays NaN.
MXFA_DEVICE uint32_t truncate_bf16x2_f16x2(uint32_t value) {
  uint32_t d;
  asm("{ .reg .b16 l, h; .reg .b32 a, b; mov.b32 {l, h}, %1; cvt.f32.f16 a, l; cvt.f32.f16 b, h; "
      "prmt.b32 %0, a, b, 0x7632; }"
      : "=r"(d)
      : "r"(value));
  return d;
}

// mul.rn.bf16x2 -- keeps subnormals.  PTX 7.8, sm_90.
MXFA_DEVICE uint32_t mul_rn_bf16x2(uint32_t a, uint32_t b) {
  uint32_t d;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

// ex2.approx.ftz.f32 -- 2^x, at most 2 ulp off; 2^-inf is +0.  sm_20.
MXFA_DEVICE float ex2_approx_ftz(float x) {
  float d;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(d) : "f"(x));
  return d;
}

// lg2.approx.ftz.f32 -- log2 x; of +0 it is -inf.  sm_20.
MXFA_DEVICE float lg2_approx_ftz(float x) {
  float d;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(d) : "f"(x));
  return d;
}

// rcp.approx.ftz.f32 -- 1/x, at most 1 ulp off.  sm_20.
MXFA_DEVICE float rcp_approx_ftz(float x) {
  float d;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(d) : "f"(x));
  return d;
}

// max.f32 -- ignores a NaN when the other operand is a number.
MXFA_DEVICE float max_f32(float a, float b) {
  float d;
  asm("max.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b));
  return d;
}

// max.NaN.f32 -- NaN when either is; sm_80.
MXFA_DEVICE float max_nan_f32(float a, float b) {
  float d;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b));
  return d;
}

// max.bf16x2 -- per half; ignores a NaN when the other operand is a number, keeps subnormals.  PTX 7.0,
// sm_80.
MXFA_DEVICE uint32_t max_bf16x2(uint32_t a, uint32_t b) {
  uint32_t d;
  asm("max.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

// max.NaN.f32 with three sources -- NaN when any of them is; PTX 8.8, sm_100.
MXFA_DEVICE float max3_nan_f32(float a, float b, float c) {
  float d;
  asm("max.NaN.f32 %0, %1, %2, %3;" : "=f"(d) : "f"(a), "f"(b), "f"(c));
  return d;
}

// fma.rn.ftz.f32 -- one rounding, whatever the compiler's contraction setting is.
MXFA_DEVICE float fma_rn_ftz_f32(float a, float b, float c) {
  float d;
  asm("fma.rn.ftz.f32 %0, %1, %2, %3;" : "=f"(d) : "f"(a), "f"(b), "f"(c));
  return d;
}

// Pairs of FP32 in a 64-bit register; element 0 is the low half.
MXFA_DEVICE uint64_t pack_f32x2(float lo, float hi) {
  uint64_t d;
  asm("mov.b64 %0, {%1, %2};" : "=l"(d) : "f"(lo), "f"(hi));
  return d;
}

MXFA_DEVICE void unpack_f32x2(uint64_t pair, float& lo, float& hi) {
  asm("mov.b64 {%0, %1}, %2;" : "=f"(lo), "=f"(hi) : "l"(pair));
}

// add / mul / fma on both halves.  PTX ISA 9.7.3; PTX 8.6, sm_100.
MXFA_DEVICE uint64_t add_rn_ftz_f32x2(uint64_t a, uint64_t b) {
  uint64_t d;
  asm("add.rn.ftz.f32x2 %0, %1, %2;" : "=l"(d) : "l"(a), "l"(b));
  return d;
}

MXFA_DEVICE uint64_t mul_rn_ftz_f32x2(uint64_t a, uint64_t b) {
  uint64_t d;
  asm("mul.rn.ftz.f32x2 %0, %1, %2;" : "=l"(d) : "l"(a), "l"(b));
  return d;
}

MXFA_DEVICE uint64_t fma_rn_ftz_f32x2(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t d;
  asm("fma.rn.ftz.f32x2 %0, %1, %2, %3;" : "=l"(d) : "l"(a), "l"(b), "l"(c));
  return d;
}

// add.rm.ftz.f32x2 -- both halves toward minus infinity.
MXFA_DEVICE uint64_t add_rm_ftz_f32x2(uint64_t a, uint64_t b) {
  uint64_t d;
  asm("add.rm.ftz.f32x2 %0, %1, %2;" : "=l"(d) : "l"(a), "l"(b));
  return d;
}

}  // namespace mxfa::ptx
