// How a warp writes an accumulator fragment (ptx/wgmma.cuh) as rows of bf16.
#pragma once
#include "ptx/barrier.cuh"
#include "ptx/convert.cuh"
#include "ptx/ld_st.cuh"
#include "ptx/matrix.cuh"
#include "src/common/math.cuh"
#include "src/common/types.cuh"

namespace mxfa {

using namespace ptx;

// Writes a warp's 16 rows of a 64 x D accumulator (ptx/wgmma.cuh) times `scale` to global memory.  Whole
// 128-byte lines leave: a fragment holds 4 bytes of each of 8 rows an instruction, rows come out of `scratch`
// 8 lanes x 16 bytes wide.  `scratch`: shared memory of this warp alone, 512 bytes every kFourRows, four
// times.  kTransposed: each 8 x 8 of the fragment has its rows and columns exchanged.
template <int kD, bool kTransposed = false, int kFourRows = 512>
MXFA_DEVICE void store_warp_rows(const float (&x)[kD / 2], float scale, uint32_t scratch,
                                 bf16_bits* first_row, int64_t stride, int rows, int lane) {
  const auto at = [&](int row) { return scratch + row / 4 * kFourRows + row % 4 * 128; };
#pragma unroll
  for (int panel = 0; panel < (kD + 63) / 64; ++panel) {
    const int steps = min_of(kD - 64 * panel, 64) / 16;
    int row = lane % 8 + 8 * ((lane / 8) & 1);  // stmatrix x4: rows 0-7 | 8-15 by columns 0-7 | 8-15
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      uint32_t r[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        int i = 32 * panel + 8 * step + 2 * j;
        r[j] = cvt_rn_bf16x2_f32(x[i + 1] * scale, x[i] * scale);
      }
      int chunk = 2 * step + lane / 16;
      const uint32_t address = at(row) + ((chunk ^ (row & 7)) << 4);
      if constexpr (kTransposed) {
        stmatrix_x4_trans(address, r[0], r[1], r[2], r[3]);
      } else {
        stmatrix_x4(address, r[0], r[1], r[2], r[3]);
      }
    }
    warp_sync();
    int chunk = lane % 8;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      int out = lane / 8 + 4 * i;
      U32x4 value = ld_shared_v4(at(out) + ((chunk ^ (out & 7)) << 4));
      if (out < rows && chunk < 2 * steps)
        st_global_v4(first_row + out * stride + 64 * panel + 8 * chunk, value);
    }
    warp_sync();  // the rows are read before the next panel overwrites them
  }
}

}  // namespace mxfa
