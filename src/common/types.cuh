// Types that kernels share beyond the fixed-width names of ptx/types.cuh.
#pragma once
#include "ptx/types.cuh"

namespace mxfa {

// BF16 is carried as its bits and converted with ptx/convert.cuh or by shifting: it is the upper half of an
// FP32.
using bf16_bits = uint16_t;

inline constexpr uint32_t kWarpThreads = 32;
inline constexpr uint32_t kWarpgroupThreads = 128;

// A pointer that crossed from the host as an integer (the parameter structs hold no pointers, so that both
// sides agree on their layout without sharing a header).
template <class T>
MXFA_DEVICE T* pointer(uint64_t address) {
  return reinterpret_cast<T*>(address);
}

}  // namespace mxfa
