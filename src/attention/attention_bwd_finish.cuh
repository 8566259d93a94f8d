// The last of the backward kernels: dQ = softmax scale x accumulator, rounded to bf16.
#include "ptx/convert.cuh"
#include "ptx/ld_st.cuh"
#include "ptx/sreg.cuh"
#include "src/attention/attention_bwd_fragments.cuh"
#include "src/attention/attention_bwd_params.cuh"
#include "src/attention/attention_bwd_rows.cuh"
#include "src/common/jagged.cuh"
#include "src/common/math.cuh"
#include "src/common/tables.cuh"

namespace mxfa {

template <int kD, int kRows, bool kDqFp16>
struct AttentionBwdFinish {
  static constexpr int kThreads = 2 * kRows;  // a warp 16 rows
  static constexpr bool kTransposed = dq_is_transposed(kRows);

  static constexpr KernelTables kTables = {.magic = kTablesMagic,
                                           .params_bytes = sizeof(AttentionBackwardParams),
                                           .threads = kThreads,
                                           .tile_rows = kRows,
                                           .role_count = 1,
                                           .roles = {{"row", 0, kThreads / 32, 0}}};

  template <int kWords>
  MXFA_DEVICE static U32x4 load(const uint8_t* address, bool predicate) {
    if constexpr (kWords == 4) {
      return ld_global_nc_v4_if(address, predicate);
    } else {
      const U32x2 v = ld_global_nc_v2_if(address, predicate);
      return {v.x, v.y, 0, 0};
    }
  }

  MXFA_DEVICE static void run(const AttentionBackwardParams& p) {
    __shared__ __align__(1024) uint8_t scratch[kThreads / 32 * 2048];
    int warp = warp_id(), lane = lane_id();
    if constexpr (!kFinishesRows<kRows>) {
      const auto t = tile_of(p, blockIdx.x);
      if (t.batch >= 0) finish(p, t, warp, lane, smem_address(scratch));  // else a spare slot
    } else {
      // A smaller grid walks: most tiles have been finished by the main kernel.
      const int end = p.broadcast_q ? gridDim.x : p.row_tiles;
      for (int index = blockIdx.x; index < end; index += gridDim.x) {
        const bool left = p.progress == 0 || p.broadcast_q ||
                          index / p.row_warps >= ld_global_s32(Progress(p).finished(index % p.row_warps));
        if (!left) continue;
        const auto t = tile_of(p, index);
        if (t.batch >= 0) finish(p, t, warp, lane, smem_address(scratch));
      }
    }
  }

  MXFA_DEVICE static RowTile<kRows> tile_of(const AttentionBackwardParams& p, int index) {
    if (!p.broadcast_q) return RowTile<kRows>::read(p, index);
    return {0, index % p.heads_q, index / p.heads_q, load_sequence(pointer<const int32_t>(p.offsets_q), 0)};
  }

  MXFA_DEVICE static void finish(const AttentionBackwardParams& p, const RowTile<kRows>& t, int warp,
                                 int lane, uint32_t scratch) {
    const auto& [batch, head, m, q] = t;
    int row = kRows * m + 16 * warp;
    // A warp's 16 rows are two units; the second, or both, may be past the end and another sequence's.
    constexpr int kUnitBytes = dq_unit_bytes(kD, kDqFp16);
    // 16 bytes a lane; FP16 transposed: 8, its 16 channels of a unit.
    constexpr int kLoadBytes = kTransposed && kDqFp16 ? 256 : 512;
    constexpr int kLoads = kUnitBytes / kLoadBytes, kWords = kLoadBytes / 128;
    // Bytes from one of the warp's units to the next, and from one load of a unit to the next.
    const int tile_units = min_of(ceil_div(q.length - kRows * m, kDqUnit), kRows / kDqUnit);
    const int unit_step = kTransposed ? kLoadBytes : kUnitBytes,
              load_step = kTransposed ? kLoadBytes * tile_units : kLoadBytes;
    const uint8_t* units =
        pointer<const uint8_t>(p.dq_accumulator) +
        (int64_t(head) * p.dq_units + padded_start(q.first, batch, kDqUnit) + kRows * m / kDqUnit) *
            kUnitBytes +
        2 * warp * unit_step + 4 * kWords * lane;
    // At head_dim 64 both units of a copy are in flight at once.  Wider ones are faster one after the other.
    constexpr int kUnitsAtOnce = kD == 64 ? 2 : 1;
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
            v[u][i] = load<kWords>(units + unit_step * (first + u) + load_step * i,
                                   u == 0 || row + kDqUnit * (first + u) < q.length);
#pragma unroll
        for (int u = 0; u < kUnitsAtOnce; ++u)
#pragma unroll
          for (int i = 0; i < kLoads; ++i) {
            const int unit = first + u;
            const uint32_t words[4] = {v[u][i].x, v[u][i].y, v[u][i].z, v[u][i].w};
#pragma unroll
            for (int w = 0; w < kWords; ++w) {
              if constexpr (kDqFp16) {
                x[4 * (kWords * i + w) + 2 * unit] += cvt_f32_f16_low(words[w]);
                x[4 * (kWords * i + w) + 2 * unit + 1] += cvt_f32_f16_high(words[w]);
              } else {
                x[8 * i + 4 * (w / 2) + 2 * unit + w % 2] += bits_float(words[w]);
              }
            }
          }
      }
      units += int64_t(p.heads_q) * p.dq_units * kUnitBytes;
    }
    bf16_bits* out = pointer<bf16_bits>(p.dq) + (int64_t(q.first) + row) * p.stride_dq + head * kD;
    store_warp_rows<kD, kTransposed>(x, p.scale * p.dq_unscale, scratch + 2048 * warp, out, p.stride_dq,
                                     q.length - row, lane);
  }
};

}  // namespace mxfa

using Finish = mxfa::AttentionBwdFinish<Config::head_dim, Config::tile_m, Config::dq_fp16>;

MXFA_PUBLISH_TABLES(attention_bwd_finish, Finish::kTables);

extern "C" __global__ void __launch_bounds__(Finish::kThreads)
    attention_bwd_finish(const __grid_constant__ mxfa::AttentionBackwardParams p) {
  Finish::run(p);
}
