// Arithmetic of mma.sync: one fused sum an element with F = 25, as tcgen05 (microsoft/MMA-Sim measured Hopper
// so, 8-bit floats included).  Rows of 16 bytes are filled up with zeros, which change no sum.
#include "engines/warp_mma.hpp"

#include "engines/fragment.hpp"
#include "engines/operand_tile.hpp"

namespace mxfa::emulator {

void warp_mma(Warp& warp, const WarpMma& mma, std::span<Row* const> d, std::span<const Row* const> a,
              std::span<const Row* const> b, std::span<const Row* const> c) {
  constexpr int kM = 16, kN = 8;
  TileWorkspace& w = tile_workspace();
  Operands& o = w.operands;
  o.m = kM, o.n = kN, o.k = 256 / format_bits(mma.a);
  gather_a(a, w.raw);
  turn_a(format_bits(mma.a), w.raw, kM, 0, w.turned);
  decode_a(o, mma.a, false, w.turned);
  gather_b(b, w.raw);
  decode_b(o, mma.b, false, w.raw);
  alignas(64) uint32_t words[kN * kM];
  gather_fragment(c, mma.f16_result, words, kM);
  Accumulator sum;
  sum.d = words;
  sum.pitch = kM;
  sum.enabled[0] = 0xffff;
  sum.accumulate = true;
  sum.f16 = mma.f16_result;
  if (mma.a == Format::S8 || mma.a == Format::U8)
    integer_sums(o, sum, mma.saturate);
  else
    fused_sums(o, sum, numerics_from_environment());
  scatter_fragment(words, kM, mma.f16_result, d);
  Counters& counters = warp.cta->cluster->grid->counters;
  ++counters.mma_instructions;
  counters.mma_macs +=
      static_cast<uint64_t>(kM * kN) * a.size() * 64 / static_cast<uint64_t>(format_bits(mma.a));
}

}  // namespace mxfa::emulator
