// The products of attention_bwd_sm90 that belong to one query tile: a compute warpgroup's S^T, dP^T and its
// parts of dV and dK.  dQ, one step late: attention_bwd_sm90_dq.cuh.
#pragma once
#include "ptx/descriptor.cuh"
#include "ptx/fence.cuh"
#include "ptx/ld_st.cuh"
#include "ptx/matrix.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/wgmma.cuh"
#include "src/attention/attention_bwd_params.cuh"
#include "src/attention/attention_bwd_sm90_rows.cuh"
#include "src/common/pipeline.cuh"

namespace mxfa {

struct AttentionBwdSm90Products : AttentionBwdSm90Rows {
  // Of the rows of Q: what S^T and dP^T start with at D = 64, or what is loaded where they are used
  // (attention_bwd_statistics.cuh).
  enum RowNumber { kExponent, kDelta };

  // A of those products: ones where B has parts of the number.  All its groups of eight rows are one.
  MXFA_DEVICE static void write_ones(uint32_t smem) {
    const int number = threadIdx.x / 32, word = threadIdx.x % 4;  // a word: two columns of K
    if (number > kDelta) return;
    const auto one_at = [&](int part) {
      const int end = Statistics::kExponentParts;
      const bool own = number == kExponent ? part < end : part >= end && part < end + Statistics::kDeltaParts;
      return own ? 0x3f80u : 0u;
    };
    st_shared_b32(smem + kOnesOffset + number * kStatisticsStride + 4 * (threadIdx.x % 32),
                  one_at(2 * word) | one_at(2 * word + 1) << 16);
    fence_proxy_async_shared_cta();  // written by ordinary stores, read by wgmma through the async proxy
  }

  // Accumulator layout: ptx/wgmma.cuh.  Rows are keys, columns queries (S^T, dP^T) or channels (dK, dV).
  struct Products : LateDq {
    float dk[kD / 2], dv[kD / 2];
    uint32_t k_rows[kKeysInRegisters ? kD / 4 : 1];  // this warpgroup's K as operand of S^T

    MXFA_DEVICE uint32_t queries() const { return smem + kQOffset + ring.stage * kQStageBytes; }
    MXFA_DEVICE uint32_t d_out() const { return smem + kDOutOffset + ring.stage * kQStageBytes; }

    // The first product of S^T or dP^T: of the rows' numbers, which are MN-major, or of K and Q (V and dO).
    // kTied: `d` is read as well, with nothing of it added, so that it keeps its registers.
    template <bool kTied>
    MXFA_DEVICE void start_product(float (&d)[kTileM / 2], uint64_t a, uint64_t b) {
      if constexpr (kTied) {
        wgmma_bf16_ss<0, kStartsWithRows>(d, a, b, false);
      } else {
        wgmma_bf16_ss_first<0, kStartsWithRows>(d, a, b);
      }
    }
    // ... of the ones and the rows of a stage.
    template <bool kTied>
    MXFA_DEVICE void start_with_rows(float (&d)[kTileM / 2], RowNumber number,
                                     const PipelineState<kQStages>& at) {
      start_product<kTied>(d,
                           wgmma_descriptor(smem + hidden(at) + kOnesOffset + number * kStatisticsStride, 0,
                                            0, Swizzle::kNone),
                           wgmma_descriptor(smem + kStatisticsOffset + at.stage * kStatisticsStride, 0,
                                            kRowGroupBytes, Swizzle::kNone));
    }
    // S^T = K Q^T, dP^T = V dO^T: both operands K-major.  16 channels = 32 bytes, four steps a panel.
    template <bool kTied, RowNumber kNumber>
    MXFA_DEVICE void issue_scores(float (&d)[kTileM / 2], uint32_t keys, uint32_t queries,
                                  const PipelineState<kQStages>& at) {
      uint64_t a = wgmma_descriptor(keys + group * kBox, 16, 1024, Swizzle::k128B);
      uint64_t b = wgmma_descriptor(queries, 16, 1024, Swizzle::k128B);
      wgmma_fence();
      if constexpr (kStartsWithRows) {
        start_with_rows<kTied>(d, kNumber, at);
      } else {
        start_product<kTied>(d, a, b);
      }
#pragma unroll
      for (int step = !kStartsWithRows; step < kD / 16; ++step)
        wgmma_bf16_ss<0, 0>(d, descriptor_advance(a, (step / 4) * kKvPanel + (step % 4) * 32),
                            descriptor_advance(b, (step / 4) * kQPanel + (step % 4) * 32), true);
      wgmma_commit();
    }
    // ... with K from registers.
    template <bool kTied>
    MXFA_DEVICE void issue_s(float (&s)[kTileM / 2], uint32_t queries, const PipelineState<kQStages>& at) {
      uint64_t b = wgmma_descriptor(queries, 16, 1024, Swizzle::k128B);
      wgmma_fence();
      start_with_rows<kTied>(s, kExponent, at);
#pragma unroll
      for (int step = 0; step < kD / 16; ++step) {
        const uint32_t a[4] = {k_rows[4 * step], k_rows[4 * step + 1], k_rows[4 * step + 2],
                               k_rows[4 * step + 3]};
        wgmma_bf16_rs<0>(s, a, descriptor_advance(b, step * 32), true);
      }
      wgmma_commit();
    }
    // Matrices of ldmatrix: (keys 0-7 | 8-15) x (channels 0-7 | 8-15), in this order, are a step's fragment.
    MXFA_DEVICE void load_keys(uint32_t keys) {
      if constexpr (kKeysInRegisters) {
        const uint32_t row = 16 * warp + lane % 16;
#pragma unroll
        for (int step = 0; step < kD / 16; ++step) {
          uint32_t a[4];
          ldmatrix_x4(keys + group * kBox + row * 128 + (((2 * step + lane / 16) ^ (row & 7)) << 4), a);
#pragma unroll
          for (int i = 0; i < 4; ++i) k_rows[4 * step + i] = a[i];
        }
      }
    }
    // The descriptors of K and V are the same in every step of a tile.  `hidden` is 0, which ptxas does not
    // know: it would keep all of them in uniform registers and spill others to memory.
    MXFA_DEVICE static uint32_t hidden(const PipelineState<kQStages>& at) { return at.stage & 0x400; }
    template <bool kTied>
    MXFA_DEVICE void start_s(float (&s)[kTileM / 2], const PipelineState<kQStages>& at, uint32_t keys) {
      mbarrier_wait(smem + kQFull + 8 * at.stage, at.phase);
      if constexpr (kKeysInRegisters) {
        issue_s<kTied>(s, smem + kQOffset + at.stage * kQStageBytes, at);
      } else {
        issue_scores<kTied, kExponent>(s, keys + hidden(at), smem + kQOffset + at.stage * kQStageBytes, at);
      }
    }
    MXFA_DEVICE void start_dp(float (&dp)[kTileM / 2], const PipelineState<kQStages>& at) {
      mbarrier_wait(smem + kDOutFull + 8 * at.stage, at.phase);
      issue_scores<false, kDelta>(dp, keys() + hidden(at) + kVOffset,
                                  smem + kDOutOffset + at.stage * kQStageBytes, at);
    }
    // dV += P^T dO, dK += dS^T Q: B is queries x channels, N-major, panels of 64 channels.
    MXFA_DEVICE void issue_gradient(float (&d)[kD / 2], const uint32_t (&a)[kTileM / 4], uint32_t queries) {
      uint64_t b = wgmma_descriptor(queries, kQPanel, 1024, Swizzle::k128B);
#pragma unroll
      for (int step = 0; step < kTileM / 16; ++step) {
        const uint32_t fragment[4] = {a[4 * step], a[4 * step + 1], a[4 * step + 2], a[4 * step + 3]};
        wgmma_bf16_rs<1>(d, fragment, descriptor_advance(b, step * 2048), true);
      }
    }
    MXFA_DEVICE void start_dv(const uint32_t (&p_bf16)[kTileM / 4]) {
      wgmma_fence();
      issue_gradient(dv, p_bf16, d_out());
      wgmma_commit();
    }
  };
};

}  // namespace mxfa
