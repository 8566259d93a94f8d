// Arithmetic of mma.sync: one fused sum an element with F = 25, as tcgen05.  Rows of 16 bytes are filled up
// with zeros, which change no sum.  Hopper has no such instruction for 8-bit floats: they are widened to f16
// and multiplied from zero in two instructions, elements 0 and 1 of every four along K before 2 and 3; C is
// added at the end, rounded to nearest (an H200's answers; tests/silicon).
#include "engines/warp_mma.hpp"

#include <cstring>

#include "engines/fragment.hpp"
#include "engines/operand_tile.hpp"
#include "engines/small_floats.hpp"

namespace mxfa::emulator {
namespace {

uint16_t f16_of(Format format, uint8_t raw) {
  if (format == Format::E5M2) return static_cast<uint16_t>(raw << 8);  // its upper half
  const uint32_t sign = (raw & 0x80u) << 8, magnitude = raw & 0x7f;
  if (magnitude == 0x7f) return 0x7fff;
  if (magnitude < 8)
    return static_cast<uint16_t>(sign | float_to_f16(static_cast<float>(magnitude) * 0x1p-9f));
  return static_cast<uint16_t>(sign | ((magnitude << 7) + (8u << 10)));  // the bias is 15, not 7
}

// The elements of one of the two products, widened.
void widen(Format format, const uint8_t* raw, int rows, int half, uint8_t* wide) {
  for (int row = 0; row < rows; ++row)
    for (int k = 0; k < 16; ++k) {
      const uint16_t value = f16_of(format, raw[row * 32 + k / 2 * 4 + half * 2 + k % 2]);
      std::memcpy(wide + row * 32 + 2 * k, &value, 2);
    }
}

}  // namespace

void warp_mma(Warp& warp, const WarpMma& mma, std::span<Row* const> d, std::span<const Row* const> a,
              std::span<const Row* const> b, std::span<const Row* const> c) {
  constexpr int kM = 16, kN = 8;
  TileWorkspace& w = tile_workspace();
  Operands& o = w.operands;
  o.m = kM, o.n = kN, o.k = 256 / format_bits(mma.a);
  alignas(64) uint8_t raw_a[kM * 32], raw_b[kN * 32];
  gather_a(a, raw_a);
  gather_b(b, raw_b);
  alignas(64) uint32_t words[kN * kM];
  gather_fragment(c, mma.f16_result, words, kM);
  Accumulator sum;
  sum.d = words;
  sum.pitch = kM;
  sum.enabled[0] = 0xffff;
  sum.accumulate = true;
  sum.f16 = mma.f16_result;
  const auto multiply = [&](Format format_a, Format format_b, const uint8_t* rows_a, const uint8_t* rows_b) {
    turn_a(format_bits(format_a), rows_a, kM, 0, w.turned);
    decode_a(o, format_a, false, w.turned);
    decode_b(o, format_b, false, rows_b);
    if (format_a == Format::S8 || format_a == Format::U8)
      integer_sums(o, sum, mma.saturate);
    else
      fused_sums(o, sum, numerics_from_environment());
  };
  if (mma.as_f16) {
    alignas(64) uint32_t before[kN * kM];
    std::memcpy(before, words, sizeof(words));
    sum.accumulate = false;
    o.k = 16;
    for (int half = 0; half < 2; ++half) {
      alignas(64) uint8_t wide_a[kM * 32], wide_b[kN * 32];
      widen(mma.a, raw_a, kM, half, wide_a);
      widen(mma.b, raw_b, kN, half, wide_b);
      multiply(Format::F16, Format::F16, wide_a, wide_b);
      sum.accumulate = true;
    }
    for (int i = 0; i < kN * kM; ++i) {
      const float total = std::bit_cast<float>(words[i]) + std::bit_cast<float>(before[i]);
      words[i] = total == total ? std::bit_cast<uint32_t>(total) : kCanonicalNan;
    }
  } else {
    multiply(mma.a, mma.b, raw_a, raw_b);
  }
  scatter_fragment(words, kM, mma.f16_result, d);
  Counters& counters = warp.cta->cluster->grid->counters;
  ++counters.mma_instructions;
  counters.mma_macs +=
      static_cast<uint64_t>(kM * kN) * a.size() * 64 / static_cast<uint64_t>(format_bits(mma.a));
}

}  // namespace mxfa::emulator
