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
    // At head_dim 64 both units of a copy are in flight at once.  Wider ones are faster one after the other.
    constexpr int kUnitsAtOnce = kD == 64 ? 2 : 1, kLoads = kUnitBytes / 512;
    float x[kD / 2];
#pragma unroll
    for (int i = 0; i < kD / 2; ++i) x[i] = 0.0f;
#pragma unroll 1
    for (int replica = 0; replica < p.dq_replicas; ++replica) {
#pragma unroll
      for (int first = 0; first < 2; first += kUnitsAtOnce) {
        if (row + kDqUnit * first >= q.length) continue;
        U32x4 v[kUnitsAtOnce][kLoads];
#pragma unroll
        for (int u = 0; u < kUnitsAtOnce; ++u)
#pragma unroll
          for (int i = 0; i < kLoads; ++i)
            v[u][i] = ld_global_nc_v4_if(units + kUnitBytes * (first + u) + 512 * i,
                                         u == 0 || row + kDqUnit * (first + u) < q.length);
#pragma unroll
        for (int u = 0; u < kUnitsAtOnce; ++u)
#pragma unroll
          for (int i = 0; i < kLoads; ++i) {
            const int unit = first + u;
            const uint32_t words[4] = {v[u][i].x, v[u][i].y, v[u][i].z, v[u][i].w};
#pragma unroll
            for (int w = 0; w < 4; ++w) {
              if constexpr (kDqFp16) {
                x[16 * i + 4 * w + 2 * unit] += cvt_f32_f16_low(words[w]);
                x[16 * i + 4 * w + 2 * unit + 1] += cvt_f32_f16_high(words[w]);
              } else {
                x[8 * i + 4 * (w / 2) + 2 * unit + w % 2] += bits_float(words[w]);
              }
            }
          }
      }
      units += int64_t(p.heads_q) * p.dq_units * kUnitBytes;
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
