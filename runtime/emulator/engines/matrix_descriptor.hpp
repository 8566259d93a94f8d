// The descriptors of tensor-core instructions: 32-bit instruction descriptors of tcgen05.mma (PTX
// ISA 9.7.16.4.2) and 64-bit shared-memory matrix descriptors of tcgen05 (9.7.16.4.1) and wgmma (9.7.15.5.1),
// and where a matrix descriptor puts the elements of a tile.
#pragma once

#include <cstdint>

#include "engines/engines.hpp"
#include "memory/swizzle.hpp"

namespace mxfa::emulator {

enum class Format : uint8_t { F16, BF16, TF32, E4M3, E5M2, U8, S8, E2M3, E3M2, E2M1 };
// Of an element as the arithmetic reads it: those of 4 and 6 bits have been given a byte each.
inline int format_bits(Format f) { return f == Format::TF32 ? 32 : f <= Format::BF16 ? 16 : 8; }
// Bits that an element of less than a byte really has, else 8.
inline int narrow_bits(Format f) { return f == Format::E2M1 ? 4 : f >= Format::E2M3 ? 6 : 8; }

struct Instruction {
  MmaKind kind = MmaKind::F16;
  int cta_group = 1;
  int m = 0, n = 0, k = 0;
  Format a = Format::F16, b = Format::F16;
  bool f16_result = false;  // D is f16, otherwise f32 (s32 for i8)
  bool saturate = false;    // i8
  bool negate_a = false, negate_b = false;
  bool a_mn_major = false, b_mn_major = false;
  bool block_scaled = false;
  int scale_a_byte = 0, scale_b_byte = 0;  // which byte of the 32-bit scale word
  int scale_blocks = 1;                    // along K; their scales are consecutive bytes
  bool scale_ue4m3 = false;                // else UE8M0
  bool weight_stationary = false;
  bool packed_4bit() const { return kind == MmaKind::MXF4 || kind == MmaKind::MXF4NVF4; }
};
// Checks every field against the kind; a Fault names the first that does not fit.
Instruction decode_instruction(const TensorMma& mma);

struct MatrixDescriptor {
  uint32_t start = 0, leading = 0, stride = 0;  // bytes
  Swizzle swizzle = Swizzle::None;
  uint32_t base = 0;  // bytes that the pattern starts below the address (base offset of wgmma)
};
// `what` ("A", "B", "the source of tcgen05.cp") is for messages.
MatrixDescriptor decode_matrix(uint64_t descriptor, const char* what);
// The same for wgmma (PTX ISA 9.7.15.5.1.2.2): bits [46:49) are 0, the swizzle is in bits 62-63.
MatrixDescriptor decode_wgmma_matrix(uint64_t descriptor, const char* what);

// Byte offset in the CTA's shared memory of element (mn, k): mn = row of A or column of D for B.
uint32_t element_offset(const MatrixDescriptor& d, int bits, bool mn_major, uint32_t mn, uint32_t k);

}  // namespace mxfa::emulator
