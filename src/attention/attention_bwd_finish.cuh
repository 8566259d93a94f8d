// The last of the backward kernels: dQ = softmax scale x accumulator, rounded to bf16.
#include "ptx/convert.cuh"
#include "ptx/ld_st.cuh"
#include "ptx/sreg.cuh"
#include "src/attention/attention_bwd_fragments.cuh"
#include "src/attention/attention_bwd_params.cuh"
#include "src/common/jagged.cuh"
#include "src/common/math.cuh"
#include "src/common/tables.cuh"

namespace mxfa {

template <int kD, bool kDqFp16>
struct AttentionBwdFinish {
  static constexpr int kRows = backward_rows(kD), kThreads = 2 * kRows;  // a warpgroup 64 rows

  static constexpr KernelTables kTables = {.magic = kTablesMagic,
                                           .params_bytes = sizeof(AttentionBackwardParams),
                                           .threads = kThreads,
                                           .tile_rows = kRows,
                                           .role_count = 1,
                                           .roles = {{"row", 0, kThreads / 32, 0}}};

  MXFA_DEVICE static void run(const AttentionBackwardParams& p) {
    __shared__ __align__(1024) uint8_t scratch[kThreads / 32 * 2048];
    int warp = warp_id(), lane = lane_id();
    int head = blockIdx.x % p.heads_q, index = blockIdx.x / p.heads_q;
    int batch = 0, m = index;
    if (!p.broadcast_q) {
      const S32x2 entry = ld_global_v2_s32(pointer<const int32_t>(p.q_tiles) + 2 * index);
      batch = entry.x, m = entry.y;
      if (batch < 0) return;  // a spare slot of attention_lengths
    }
    Sequence q = load_sequence(pointer<const int32_t>(p.offsets_q), batch);
    int row = kRows * m + 16 * warp;
    // A warp's 16 rows are two units; the second, or both, may be past the end and another sequence's.
    constexpr int kUnitBytes = dq_unit_bytes(kD, kDqFp16);
    const uint8_t* units =
        pointer<const uint8_t>(p.dq_accumulator) + 16 * lane +
        (int64_t(head) * p.dq_units + padded_start(q.first, batch, kDqUnit) + row / kDqUnit) * kUnitBytes;
    // All of the first copy is in flight before any of it is used.  Without a copy nothing was summed: zeros.
    const int rows = p.dq_replicas > 0 ? q.length - row : 0;
    constexpr int kLoads = kUnitBytes / 512;
    U32x4 v[2][kLoads];
    const auto load = [&] {
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int i = 0; i < kLoads; ++i)
          v[half][i] = ld_global_nc_v4_if(units + kUnitBytes * half + 512 * i, kDqUnit * half < rows);
    };
    float x[kD / 2];
    const auto add = [&](int half, int i, bool first) {
      const uint32_t words[4] = {v[half][i].x, v[half][i].y, v[half][i].z, v[half][i].w};
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        if constexpr (kDqFp16) {
          const int at = 16 * i + 4 * w + 2 * half;
          x[at] = (first ? 0.0f : x[at]) + cvt_f32_f16_low(words[w]);
          x[at + 1] = (first ? 0.0f : x[at + 1]) + cvt_f32_f16_high(words[w]);
        } else {
          const int at = 8 * i + 4 * (w / 2) + 2 * half + w % 2;
          x[at] = (first ? 0.0f : x[at]) + bits_float(words[w]);
        }
      }
    };
    load();
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < kLoads; ++i) add(half, i, true);
    for (int replica = 1; replica < p.dq_replicas; ++replica) {
      units += int64_t(p.heads_q) * p.dq_units * kUnitBytes;
      load();
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int i = 0; i < kLoads; ++i) add(half, i, false);
    }
    bf16_bits* out = pointer<bf16_bits>(p.dq) + (int64_t(q.first) + row) * p.stride_dq + head * kD;
    store_warp_rows<kD>(x, p.scale * p.dq_unscale, smem_address(scratch) + 2048 * warp, out, p.stride_dq,
                        q.length - row, lane);
  }
};

}  // namespace mxfa

using Finish = mxfa::AttentionBwdFinish<Config::head_dim, Config::dq_fp16>;

MXFA_PUBLISH_TABLES(attention_bwd_finish, Finish::kTables);

extern "C" __global__ void __launch_bounds__(Finish::kThreads)
    attention_bwd_finish(const __grid_constant__ mxfa::AttentionBackwardParams p) {
  Finish::run(p);
}
