// Types and function qualifiers that every device header shares.  NVRTC compiles the kernels without any
// header of the toolkit or of the C library, so the fixed-width names are declared here; the declarations
// repeat what <stdint.h> says on 64-bit Linux and therefore agree with it where a host test includes both.
#pragma once

using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long;
using uint64_t = unsigned long;

#if defined(__CUDACC__)
#define MXFA_DEVICE __device__ __forceinline__
#define MXFA_CONSTEXPR __host__ __device__ constexpr
#else  // host tests include the headers that hold arithmetic only (descriptors, scale factors)
#define MXFA_DEVICE inline
#define MXFA_CONSTEXPR constexpr
#endif

namespace mxfa {

// A CUtensorMap as the tensor-map proxy reads it: opaque, 64-byte aligned (PTX ISA, "Tensor-map").
struct alignas(64) TensorMap {
  unsigned char opaque[128];
};

#if defined(__CUDACC__)
// The 32-bit shared-window address that every wrapper takes for shared memory.
MXFA_DEVICE uint32_t smem_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
#endif

}  // namespace mxfa
