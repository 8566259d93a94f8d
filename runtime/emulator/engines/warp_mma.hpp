// mma.sync (PTX ISA 9.7.14.5): D = A B + C of one warp, 16 x 8 with K of 16 or 32 bytes.
#pragma once

#include <span>

#include "core/warp.hpp"
#include "engines/matrix_descriptor.hpp"

namespace mxfa::emulator {

struct WarpMma {
  Format a = Format::BF16, b = Format::BF16;
  bool f16_result = false, saturate = false;
  bool as_f16 = false;  // 8-bit floats as two products of f16
};
// Fragments as engines/fragment.hpp has them: a of 4 (or 2) registers, b of 2 (or 1).
void warp_mma(Warp& warp, const WarpMma& mma, std::span<Row* const> d, std::span<const Row* const> a,
              std::span<const Row* const> b, std::span<const Row* const> c);

}  // namespace mxfa::emulator
