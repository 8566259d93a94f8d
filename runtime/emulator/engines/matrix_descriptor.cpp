// Decoding and validation of the descriptors of tcgen05.mma, tcgen05.cp and wgmma.
#include "engines/matrix_descriptor.hpp"

#include <cuda.h>
#include <fmt/format.h>

namespace mxfa::emulator {
namespace {

const char* name(MmaKind kind) {
  static constexpr const char* kNames[] = {"f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4"};
  return kNames[static_cast<int>(kind)];
}

uint32_t bits(uint64_t word, int low, int count) {
  return static_cast<uint32_t>(word >> low) & ((1u << count) - 1);
}

struct Decoder {
  MmaKind kind;
  uint32_t word;

  [[noreturn]] void refuse(const std::string& text, int code = CUDA_ERROR_ILLEGAL_INSTRUCTION) const {
    throw Fault(code, fmt::format("tcgen05.mma.kind::{}, instruction descriptor {:#010x}: {}", name(kind),
                                  word, text));
  }
  void zero(int low, int count, const char* what) const {
    if (bits(word, low, count) != 0)
      refuse(fmt::format("bits [{}:{}) ({}) are {:#x}, must be 0", low, low + count, what,
                         bits(word, low, count)));
  }
  Format format(int low, const char* operand) const {
    const uint32_t code = bits(word, low, 3);
    switch (kind) {
      case MmaKind::F16:
        if (code <= 1) return code == 0 ? Format::F16 : Format::BF16;
        break;
      case MmaKind::TF32:
        if (code == 2) return Format::TF32;
        break;
      case MmaKind::I8:
        if (code <= 1) return code == 0 ? Format::U8 : Format::S8;
        break;
      default:
        if (code <= 1) return code == 0 ? Format::E4M3 : Format::E5M2;
        if (code == 3) return Format::E2M3;
        if (code == 4) return Format::E3M2;
        if (code == 5) return Format::E2M1;
    }
    refuse(fmt::format("format code {} of {} does not exist for this kind", code, operand));
  }
};

bool legal_n(MmaKind kind, int cta_group, int n) {
  if (cta_group == 2) {
    const int step = kind == MmaKind::I8 ? 32 : 16;
    return n >= step && n <= 256 && n % step == 0;
  }
  if (kind == MmaKind::I8)
    return n == 8 || n == 24 || (n >= 16 && n <= 256 && n % 16 == 0);  // PTX ISA table of .kind::i8
  return n >= 8 && n <= 256 && n % 8 == 0;
}

// The bytes of a scale word that an instruction uses (PTX ISA 9.7.16.10.7): one, two from an even byte, or
// all four.
void decode_scales(const Decoder& d, const TensorMma& mma, Instruction& i) {
  const bool ue8m0 = bits(d.word, 23, 1);
  const int vector = mma.scale_vector ? mma.scale_vector : mma.kind == MmaKind::MXF8F6F4 ? 1 : 2;
  const bool exists = mma.kind == MmaKind::MXF8F6F4 ? vector == 1
                      : mma.kind == MmaKind::MXF4   ? vector == 2
                                                    : vector == 2 || vector == 4;
  if (!exists) d.refuse(fmt::format("scale_vec::{}X does not exist for this kind", vector));
  if (!ue8m0 && !(mma.kind == MmaKind::MXF4NVF4 && vector == 4))
    d.refuse("bit 23 must be 1: scales are UE8M0");
  for (const int id : {i.scale_a_byte, i.scale_b_byte})
    if (id % vector != 0)
      d.refuse(
          fmt::format("scale id {}: with scale_vec::{}X it is {}", id, vector, vector == 2 ? "0 or 2" : "0"));
  i.scale_blocks = vector;
  i.scale_ue4m3 = !ue8m0;
}

}  // namespace

Instruction decode_instruction(const TensorMma& mma) {
  const Decoder d{mma.kind, mma.instruction};
  if (bits(d.word, 2, 1)) d.refuse("sparse A (bit 2) is not emulated", CUDA_ERROR_NOT_SUPPORTED);
  d.zero(0, 2, "sparsity selector");

  Instruction i;
  i.kind = mma.kind;
  i.cta_group = mma.cta_group;
  i.weight_stationary = mma.weight_stationary;
  i.block_scaled = mma.kind >= MmaKind::MXF8F6F4;
  if (i.packed_4bit()) {
    if (bits(d.word, 7, 3) != 1 || bits(d.word, 10, 3) != 1)
      d.refuse(fmt::format("format codes {} of A and {} of B: 1 (E2M1) is needed", bits(d.word, 7, 3),
                           bits(d.word, 10, 3)));
    i.a = i.b = Format::E2M1;
    i.k = 64;
  } else {
    i.a = d.format(7, "A");
    i.b = d.format(10, "B");
    i.k = 256 / format_bits(i.a);  // an instruction consumes 32 bytes of K
  }
  i.negate_a = bits(d.word, 13, 1);
  i.negate_b = bits(d.word, 14, 1);
  i.a_mn_major = bits(d.word, 15, 1);
  i.b_mn_major = bits(d.word, 16, 1);
  i.n = static_cast<int>(bits(d.word, 17, 6)) * 8;
  i.m = static_cast<int>(bits(d.word, 24, 5)) * 16;
  d.zero(6, 1, "reserved");

  if (i.block_scaled) {
    d.zero(3, 1, "reserved");
    d.zero(31, 1, "reserved");
    i.scale_b_byte = static_cast<int>(bits(d.word, 4, 2));
    i.scale_a_byte = static_cast<int>(bits(d.word, 29, 2));
    decode_scales(d, mma, i);
  } else {
    d.zero(23, 1, "reserved");
    d.zero(29, 1, "reserved");
    d.zero(30, 2,
           mma.weight_stationary ? "shift of the zero-column mask, which there is not" : "used by .ws only");
    const uint32_t result = bits(d.word, 4, 2);
    if (mma.kind == MmaKind::I8) {
      i.saturate = bits(d.word, 3, 1);
      if (result != 2) d.refuse(fmt::format("D format code {}: 2 (s32) is needed", result));
      if (i.negate_a || i.negate_b) d.refuse("negation does not exist for i8");
    } else {
      d.zero(3, 1, "saturate, i8 only");
      if (result > 1) d.refuse(fmt::format("D format code {}: 1 (f32) is needed", result));
      i.f16_result = result == 0;
      if (i.f16_result && (mma.kind != MmaKind::F16 || i.a != Format::F16 || i.b != Format::F16))
        d.refuse("D of format f16 (code 0) needs f16 inputs");
    }
  }
  const bool pair = mma.cta_group == 2;
  if (mma.weight_stationary) {
    if (i.m != 32 && i.m != 64 && i.m != 128) d.refuse(fmt::format("M is {}: 32, 64 or 128 with .ws", i.m));
    if (i.n != 64 && i.n != 128 && i.n != 256) d.refuse(fmt::format("N is {}: 64, 128 or 256 with .ws", i.n));
  } else if (pair ? i.m != 128 && i.m != 256 : i.m != 128 && (i.m != 64 || i.block_scaled))
    d.refuse(fmt::format("M is {}: {} with cta_group::{}", i.m,
                         pair             ? "128 or 256"
                         : i.block_scaled ? "128 is needed"
                                          : "64 or 128",
                         mma.cta_group));
  if (!mma.weight_stationary && !legal_n(mma.kind, mma.cta_group, i.n))
    d.refuse(fmt::format("N is {}: not a size of this kind", i.n));
  if ((i.a_mn_major && narrow_bits(i.a) < 8) || (i.b_mn_major && narrow_bits(i.b) < 8))
    d.refuse("elements of 4 and 6 bits are always K-major (bits 15 and 16 must be 0)");
  if (i.b_mn_major && format_bits(i.b) == 8 && i.n % (16 * mma.cta_group) != 0)
    d.refuse(fmt::format("N is {}: a multiple of {} for MN-major 8-bit B", i.n, 16 * mma.cta_group));
  if (mma.a_in_tmem && i.a_mn_major) d.refuse("A in tensor memory is always K-major (bit 15 must be 0)");
  if (mma.scale_input_d != 0) {
    if (mma.kind != MmaKind::F16 && mma.kind != MmaKind::TF32)
      d.refuse("scale-input-d exists for f16 and tf32 only");
    if (mma.scale_input_d < 0 || mma.scale_input_d > 15)
      d.refuse(fmt::format("scale-input-d is {}: 0 to 15", mma.scale_input_d));
  }
  if (mma.disable_lanes && i.block_scaled) d.refuse("disable-output-lane does not exist with .block_scale");
  return i;
}

namespace {

// What both descriptors share; `refuse` throws with the descriptor in front.
template <class Refuse>
MatrixDescriptor decode_fields(uint64_t descriptor, uint32_t mode, bool wgmma, Refuse refuse) {
  const uint32_t base = bits(descriptor, 49, 3);
  if (base != 0 && !(wgmma && mode == 2))
    refuse(fmt::format("base offset {} is not emulated: align the tile to the repeat of its swizzle",
                       bits(descriptor, 49, 3)),
           CUDA_ERROR_NOT_SUPPORTED);
  if (bits(descriptor, 53, 8) != 0 || bits(descriptor, 14, 2) != 0 || bits(descriptor, 30, 2) != 0)
    refuse("a reserved bit is set ([14:16), [30:32) and [53:61) must be 0)", CUDA_ERROR_ILLEGAL_INSTRUCTION);
  MatrixDescriptor d;
  if (!swizzle_of_descriptor(mode, &d.swizzle))
    refuse(fmt::format("swizzle mode {} does not exist", mode), CUDA_ERROR_ILLEGAL_INSTRUCTION);
  d.start = bits(descriptor, 0, 14) * 16;
  d.leading = bits(descriptor, 16, 14) * 16;
  d.stride = bits(descriptor, 32, 14) * 16;
  d.base = base * 128;
  // The swizzle of wgmma is an XOR of address bits wherever a tile starts, less the base offset: an H200's
  // answers (tests/silicon).  For tcgen05 nobody has looked: there the start moves along K within a 128-byte
  // line or by whole repeats.
  if (wgmma) return d;
  const uint32_t phase = d.start & (swizzle_repeat(d.swizzle) - 1) & ~127u;
  if (d.swizzle != Swizzle::None && phase != 0)
    refuse(fmt::format("the tile at {:#x} starts {} bytes into its swizzle pattern: align it to {} bytes",
                       d.start, phase, swizzle_repeat(d.swizzle)),
           CUDA_ERROR_ILLEGAL_INSTRUCTION);
  return d;
}

auto refusal(uint64_t descriptor, const char* what) {
  return [=](const std::string& text, int code) {
    throw Fault(code, fmt::format("shared-memory descriptor {:#018x} of {}: {}", descriptor, what, text));
  };
}

}  // namespace

MatrixDescriptor decode_matrix(uint64_t descriptor, const char* what) {
  const auto refuse = refusal(descriptor, what);
  if (bits(descriptor, 46, 3) != 1)
    refuse(fmt::format("bits [46:49) are {}, must be 0b001", bits(descriptor, 46, 3)),
           CUDA_ERROR_ILLEGAL_INSTRUCTION);
  if (bits(descriptor, 52, 1) != 0)
    refuse("bit 52 (absolute leading dimension) exists on sm_103 only", CUDA_ERROR_ILLEGAL_INSTRUCTION);
  return decode_fields(descriptor, bits(descriptor, 61, 3), false, refuse);
}

MatrixDescriptor decode_wgmma_matrix(uint64_t descriptor, const char* what) {
  const auto refuse = refusal(descriptor, what);
  if (bits(descriptor, 46, 3) != 0 || bits(descriptor, 52, 1) != 0 || bits(descriptor, 61, 1) != 0)
    refuse("bits [46:49), 52 and 61 belong to tcgen05 descriptors, they must be 0 for wgmma",
           CUDA_ERROR_ILLEGAL_INSTRUCTION);
  return decode_fields(descriptor, bits(descriptor, 61, 3), true, refuse);
}

uint32_t element_offset(const MatrixDescriptor& d, int bits, bool mn_major, uint32_t mn, uint32_t k) {
  const uint32_t bytes = static_cast<uint32_t>(bits) / 8, span = swizzle_span(d.swizzle);
  uint32_t offset;
  if (!mn_major) {
    const uint32_t kb = k * bytes;
    // Swizzled: 32 bytes of K never leave a row, the leading offset is not used.
    offset = d.swizzle == Swizzle::None ? mn % 8 * 16 + mn / 8 * d.stride + kb % 16 + kb / 16 * d.leading
                                        : mn % 8 * span + mn / 8 * d.stride + kb;
  } else {
    const uint32_t mb = mn * bytes;
    if (d.swizzle == Swizzle::None)
      offset = mb % 16 + mb / 16 * d.stride + k % 8 * 16 + k / 8 * d.leading;
    else if (d.swizzle == Swizzle::B128Atom32)
      offset = mb % 128 + mb / 128 * d.leading + k % 4 * 128 + k / 4 * d.stride;
    else
      offset = mb % span + mb / span * d.leading + k % 8 * span + k / 8 * d.stride;
  }
  return swizzle(d.swizzle, d.start + offset - d.base) + d.base;
}

}  // namespace mxfa::emulator
