// Loads and stores whose state space, width or cache behaviour matters.  PTX ISA 9.7.9 "ld", "ld.global.nc",
// "st", "red". Callers: any thread.  Addresses are aligned to the access size.
#pragma once
#include "ptx/types.cuh"

namespace mxfa::ptx {

struct alignas(16) U32x4 {
  uint32_t x, y, z, w;
};

// ld.shared / st.shared, 32 bits.
MXFA_DEVICE uint32_t ld_shared_b32(uint32_t address) {
  uint32_t value;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

MXFA_DEVICE float ld_shared_f32(uint32_t address) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
  return value;
}

// ld.shared.v2, two FP32.
struct F32x2 {
  float x, y;
};

MXFA_DEVICE F32x2 ld_shared_v2_f32(uint32_t address) {
  F32x2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address) : "memory");
  return v;
}

MXFA_DEVICE void st_shared_b32(uint32_t address, uint32_t value) {
  asm volatile("st.shared.b32 [%0], %1;" : : "r"(address), "r"(value) : "memory");
}

MXFA_DEVICE void st_shared_f32(uint32_t address, float value) {
  asm volatile("st.shared.f32 [%0], %1;" : : "r"(address), "f"(value) : "memory");
}

MXFA_DEVICE void st_shared_b8(uint32_t address, uint32_t value) {
  asm volatile("st.shared.b8 [%0], %1;" : : "r"(address), "r"(value) : "memory");
}

// ld.shared.u8, zero-extended.
MXFA_DEVICE uint32_t ld_shared_u8(uint32_t address) {
  uint32_t value;
  asm volatile("ld.shared.u8 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

// ld.shared.v4 / st.shared.v4, 16 bytes.
MXFA_DEVICE U32x4 ld_shared_v4(uint32_t address) {
  U32x4 v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

MXFA_DEVICE void st_shared_v4(uint32_t address, U32x4 v) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};"
               :
               : "r"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}

// st.shared.v2, 8 bytes.
MXFA_DEVICE void st_shared_v2(uint32_t address, uint32_t x, uint32_t y) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" : : "r"(address), "r"(x), "r"(y) : "memory");
}

// prefetch.global.L2 -- asks for the line at `address`.  PTX ISA "prefetch"; sm_20.
MXFA_DEVICE void prefetch_l2(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" : : "l"(address));
}

// ld.global, 32 bits.
MXFA_DEVICE int32_t ld_global_s32(const int32_t* address) {
  int32_t value;
  asm volatile("ld.global.b32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}

// ld.global.v2, two integers of 8 aligned bytes.
struct S32x2 {
  int32_t x, y;
};

MXFA_DEVICE S32x2 ld_global_v2_s32(const int32_t* address) {
  S32x2 v;
  asm volatile("ld.global.v2.b32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(address) : "memory");
  return v;
}

// ld.global.nc.L1::no_allocate.v4 -- data that nobody writes during the kernel and that is read once.
MXFA_DEVICE U32x4 ld_global_nc_v4(const void* address) {
  U32x4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address)
               : "memory");
  return v;
}

// The same under a predicate: zeros, and no access, where it is false.
MXFA_DEVICE U32x4 ld_global_nc_v4_if(const void* address, bool predicate) {
  U32x4 v{0, 0, 0, 0};
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %5, 0; "
      "@p ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4]; }"
      : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
      : "l"(address), "r"(static_cast<uint32_t>(predicate))
      : "memory");
  return v;
}

struct alignas(8) U32x2 {
  uint32_t x, y;
};

// ld.global.nc.L1::no_allocate.v2 under a predicate: zeros, and no access, where it is false.
MXFA_DEVICE U32x2 ld_global_nc_v2_if(const void* address, bool predicate) {
  U32x2 v{0, 0};
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %3, 0; @p ld.global.nc.L1::no_allocate.v2.b32 {%0, %1}, [%2]; }"
      : "+r"(v.x), "+r"(v.y)
      : "l"(address), "r"(static_cast<uint32_t>(predicate))
      : "memory");
  return v;
}

// st.global.v4 / v2, 32 bits.
MXFA_DEVICE void st_global_v4(void* address, U32x4 v) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}

MXFA_DEVICE void st_global_v2(void* address, uint32_t x, uint32_t y) {
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" : : "l"(address), "r"(x), "r"(y) : "memory");
}

// Under a predicate: no access where it is false.
MXFA_DEVICE void st_global_v4_if(void* address, U32x4 v, bool predicate) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %5, 0; @p st.global.v4.b32 [%0], {%1, %2, %3, %4}; }"
               :
               : "l"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(static_cast<uint32_t>(predicate))
               : "memory");
}

// The low 16 bits of `value`.
MXFA_DEVICE void st_global_b16(void* address, uint32_t value) {
  asm volatile("{ .reg .b16 lo, hi; mov.b32 {lo, hi}, %1; st.global.b16 [%0], lo; }"
               :
               : "l"(address), "r"(value)
               : "memory");
}

MXFA_DEVICE void st_global_b32(void* address, uint32_t value) {
  asm volatile("st.global.b32 [%0], %1;" : : "l"(address), "r"(value) : "memory");
}

MXFA_DEVICE void st_global_f32(float* address, float value) {
  asm volatile("st.global.f32 [%0], %1;" : : "l"(address), "f"(value) : "memory");
}

// red.global.add.v4.f32 -- four elements of 16 aligned bytes, each one relaxed addition at GPU scope;
// subnormals flushed. PTX 8.1, sm_90.
MXFA_DEVICE void red_global_add_v4_f32(float* address, float x, float y, float z, float w) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(address), "f"(x), "f"(y), "f"(z), "f"(w)
               : "memory");
}

// red.relaxed.gpu.global.add.noftz.v4.f16x2 -- eight halves, 16-byte aligned, each one atomic; PTX 8.1,
// sm_90.
MXFA_DEVICE void red_global_add_v4_f16x2(void* address, const U32x4& x) {
  asm volatile("red.relaxed.gpu.global.add.noftz.v4.f16x2 [%0], {%1, %2, %3, %4};"
               :
               : "l"(address), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
               : "memory");
}

}  // namespace mxfa::ptx
