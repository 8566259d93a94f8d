// The last of the backward kernels: dQ = softmax scale x accumulator, rounded to bf16; and how a warp writes
// an accumulator fragment as rows of bf16, which the main kernel does with dK and dV.
#pragma once
#include "ptx/barrier.cuh"
#include "ptx/convert.cuh"
#include "ptx/matrix.cuh"
#include "ptx/sreg.cuh"
#include "src/attention/attention_bwd_prepare.cuh"

namespace mxfa {

// Writes a warp's 16 rows of a 64 x D accumulator (ptx/wgmma.cuh) times `scale` to global memory.  `scratch`:
// 2048 bytes of shared memory of this warp alone.  Whole 128-byte lines leave: a fragment holds 4 bytes of
// each of 8 rows an instruction, rows come out of `scratch` 8 lanes x 16 bytes wide.
template <int kD>
MXFA_DEVICE void store_warp_rows(const float (&x)[kD / 2], float scale, uint32_t scratch,
                                 bf16_bits* first_row, int64_t stride, int rows, int lane) {
#pragma unroll
  for (int panel = 0; panel < (kD + 63) / 64; ++panel) {
    constexpr int kRow = 128;
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
      stmatrix_x4(scratch + row * kRow + ((chunk ^ (row & 7)) << 4), r[0], r[1], r[2], r[3]);
    }
    warp_sync();
    int chunk = lane % 8;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      int out = lane / 8 + 4 * i;
      U32x4 value = ld_shared_v4(scratch + out * kRow + ((chunk ^ (out & 7)) << 4));
      if (out < rows && chunk < 2 * steps)
        st_global_v4(first_row + out * stride + 64 * panel + 8 * chunk, value);
    }
    warp_sync();  // the rows are read before the next panel overwrites them
  }
}

template <int kD>
struct AttentionBwdFinish {
  static constexpr int kRows = backward_rows(kD), kThreads = 2 * kRows;  // a warpgroup 64 rows
  static constexpr int kTileFloats = kRows * kD;

  MXFA_DEVICE static void run(const AttentionBackwardParams& p) {
    __shared__ __align__(1024) uint8_t scratch[kThreads / 32 * 2048];
    int warp = warp_id(), lane = lane_id();
    int head = blockIdx.x % p.heads_q, index = blockIdx.x / p.heads_q;
    int batch = 0, m = index;
    if (!p.broadcast_q) {
      const int32_t* entry = pointer<const int32_t>(p.q_tiles) + 2 * index;
      batch = ld_global_s32(entry);
      m = ld_global_s32(entry + 1);
    }
    Sequence q = load_sequence(pointer<const int32_t>(p.offsets_q), batch);
    int row = kRows * m + 16 * warp;
    const float* tile = pointer<const float>(p.dq_accumulator) +
                        (int64_t(head) * p.dq_tiles + padded_tile<kD>(q.first, batch) + m) * kTileFloats +
                        warp / 4 * (64 * kD);
    float x[kD / 2];
#pragma unroll
    for (int i = 0; i < kD / 2; ++i) x[i] = 0.0f;
    for (int replica = 0; replica < p.dq_replicas; ++replica) {
#pragma unroll
      for (int c = 0; c < kD / 8; ++c) {
        U32x4 v = ld_global_nc_v4(tile + dq_offset<kD>(c / 8, warp % 4, lane) + 128 * (c % 8));
        x[4 * c] += bits_float(v.x);
        x[4 * c + 1] += bits_float(v.y);
        x[4 * c + 2] += bits_float(v.z);
        x[4 * c + 3] += bits_float(v.w);
      }
      tile += int64_t(p.heads_q) * p.dq_tiles * kTileFloats;
    }
    bf16_bits* out = pointer<bf16_bits>(p.dq) + (int64_t(q.first) + row) * p.stride_dq + head * kD;
    store_warp_rows<kD>(x, p.scale, smem_address(scratch) + 2048 * warp, out, p.stride_dq, q.length - row,
                        lane);
  }
};

}  // namespace mxfa

extern "C" __global__ void __launch_bounds__(mxfa::AttentionBwdFinish<Config::head_dim>::kThreads)
    attention_bwd_finish(const __grid_constant__ mxfa::AttentionBackwardParams p) {
  mxfa::AttentionBwdFinish<Config::head_dim>::run(p);
}
