// Builders of the 64-bit shared-memory matrix descriptors and the 32-bit instruction descriptors.  Arithmetic
// only: usable in constant expressions and on the host.  PTX ISA 9.7.16.4 (tcgen05), 9.7.15.5.1.2.2 (wgmma).
#pragma once
#include "ptx/types.cuh"

namespace mxfa::ptx {

enum class Major : uint32_t { kK = 0, kMN = 1 };

// How 16-byte chunks of a row are permuted; the same pattern the TMA box was loaded with.  The value is the
// row width in bytes.
enum class Swizzle : uint32_t { kNone = 16, k32B = 32, k64B = 64, k128B = 128 };

// Bits [61,64) of either descriptor (wgmma reads [62,64); its codes 1,2,3 for 128,64,32 bytes are the same
// bits).
MXFA_CONSTEXPR uint64_t swizzle_bits(Swizzle swizzle) {
  return swizzle == Swizzle::k128B  ? uint64_t{2} << 61
         : swizzle == Swizzle::k64B ? uint64_t{4} << 61
         : swizzle == Swizzle::k32B ? uint64_t{6} << 61
                                    : 0;
}

// Address and offsets are stored as 14 bits of 16-byte units; the cluster rank in a shared address drops out.
MXFA_CONSTEXPR uint64_t descriptor_field(uint32_t bytes) { return (bytes & 0x3ffff) >> 4; }

// A wgmma descriptor: [0,14) start, [16,30) LBO, [32,46) SBO, [62,64) swizzle.
//   K-major:  SBO = bytes between groups of 8 rows; LBO is used without swizzle only (between 16-byte
//   columns). MN-major: swizzled: LBO = bytes between groups of one row width along MN, SBO = bytes between
//   groups of 8 along K.
MXFA_CONSTEXPR uint64_t wgmma_descriptor(uint32_t address, uint32_t lbo, uint32_t sbo, Swizzle swizzle) {
  return descriptor_field(address) | descriptor_field(lbo) << 16 | descriptor_field(sbo) << 32 |
         swizzle_bits(swizzle);
}

// The tcgen05 descriptor differs in bits [46,49) = 1 alone.
MXFA_CONSTEXPR uint64_t smem_descriptor(uint32_t address, uint32_t lbo, uint32_t sbo, Swizzle swizzle) {
  return wgmma_descriptor(address, lbo, sbo, swizzle) | uint64_t{1} << 46;
}

// A K-major tile whose rows are one swizzle width long and stored one after the other.
MXFA_CONSTEXPR uint64_t smem_descriptor_k_major(uint32_t address, Swizzle swizzle) {
  return smem_descriptor(address, 0, 8 * static_cast<uint32_t>(swizzle), swizzle);
}

// An MN-major tile made of panels one swizzle width wide along MN; `panel` = bytes from one panel to the
// next.
MXFA_CONSTEXPR uint64_t smem_descriptor_mn_major(uint32_t address, uint32_t panel, Swizzle swizzle) {
  return smem_descriptor(address, panel, 8 * static_cast<uint32_t>(swizzle), swizzle);
}

// A 512-byte atom of scale factors as tcgen05.cp.32x128b reads it: 32 rows of 16 bytes, groups of 8 rows 128
// bytes apart.
MXFA_CONSTEXPR uint64_t smem_descriptor_scale_atom(uint32_t address) {
  return smem_descriptor(address, 0, 128, Swizzle::kNone);
}

// Moves the start of a descriptor; K steps inside a tile change nothing else, and stay within the 14 bits of
// the field.
MXFA_CONSTEXPR uint64_t descriptor_advance(uint64_t descriptor, uint32_t bytes) {
  return descriptor + (bytes >> 4);
}

// Instruction descriptors, PTX ISA 9.7.16.4.2: FP32 accumulator, M and N of the instruction, majorness of A
// and B.
MXFA_CONSTEXPR uint32_t instruction_shape(uint32_t m, uint32_t n, Major a, Major b) {
  return static_cast<uint32_t>(a) << 15 | static_cast<uint32_t>(b) << 16 | (n >> 3) << 17 | (m >> 4) << 24;
}

// kind::f16 with BF16 operands: D format FP32 (1) in [4,6), A and B format BF16 (1) in [7,10) and [10,13).
MXFA_CONSTEXPR uint32_t instruction_descriptor_bf16(uint32_t m, uint32_t n, Major a, Major b) {
  return 1u << 4 | 1u << 7 | 1u << 10 | instruction_shape(m, n, a, b);
}

// kind::mxf8f6f4 with E4M3 operands (format 0) and UE8M0 scales (bit 23).  `sfa_id`, `sfb_id`: which byte of
// the scale word.
MXFA_CONSTEXPR uint32_t instruction_descriptor_mxf8(uint32_t m, uint32_t n, Major a, Major b, uint32_t sfa_id,
                                                    uint32_t sfb_id) {
  return sfb_id << 4 | 1u << 23 | sfa_id << 29 | instruction_shape(m, n, a, b);
}

}  // namespace mxfa::ptx
