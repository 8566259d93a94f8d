// MXFP8 to BF16: out = payload * 2^(scale - 127), for the operands of one attention.  Hopper's tensor cores
// know no block scales, but E4M3 has 4 significant bits: its product with a power of two is a BF16 number
// while the scale byte is 3 to 246 (448 * 2^119 is the largest that stays below 2^128; 2^-9 * 2^-124 is
// BF16's smallest).  Beyond, it overflows to infinity or is rounded to a multiple of 2^-133.  A NaN payload
// and the scale byte 255 become NaN.
//
// One CTA expands a tile of 128 tokens of one sequence and of heads that follow each other; each head has an
// atom of scales.  Grid: the CTAs of the jobs, one job after the other; in a job scale_tiles * heads /
// heads_per_cta, heads fastest: the heads of a token are neighbours in memory.  A thread takes 8 channels of
// every kRowsPerPass-th token, so that a warp reads lines of 128 bytes and writes of 256 in a row; all its
// loads are in flight before the first is used.  Rows past the end of the sequence are not written.
//
// Config:
//   head_dim       64, 96 or 128
//   heads_per_cta  of one tile; divides the heads of every operand
//   ctas_per_sm    the occupancy that registers must leave room for
#pragma once
#include "ptx/barrier.cuh"
#include "ptx/convert.cuh"
#include "ptx/ld_st.cuh"
#include "ptx/sreg.cuh"
#include "src/common/jagged.cuh"
#include "src/common/math.cuh"
#include "src/common/scale_factor.cuh"
#include "src/common/tables.cuh"
#include "src/common/types.cuh"

namespace mxfa {

// Twins of ExpandJob and ExpandParams in runtime/host/kernel_abi.hpp, which says what each field means.
struct ExpandJob {
  uint64_t payload;
  int64_t row_stride;
  uint64_t scales, output;
  uint64_t offsets, scale_offsets;
  int32_t batch, heads, scale_tiles;
  int32_t along_tokens;
};
inline constexpr int kExpandJobs = 4;
struct ExpandParams {
  ExpandJob jobs[kExpandJobs];
};

struct Mxfp8Expand {
  static constexpr int kHeadDim = Config::head_dim;
  static constexpr int kTileTokens = 128;
  static constexpr int kChunk = 8;  // channels of a thread: 8 bytes of E4M3, 16 of BF16
  static constexpr int kHeads = Config::heads_per_cta;
  static constexpr int kHeadChunks = kHeadDim / kChunk, kChunks = kHeads * kHeadChunks;
  static constexpr int kRowsPerPass = 16;
  static constexpr int kPasses = kTileTokens / kRowsPerPass;
  static constexpr int kThreads = kRowsPerPass * kChunks;
  static constexpr int kTokenBlocks = kTileTokens / static_cast<int>(kScaleBlock);
  // Scales along the tokens: a BF16 factor for each block of tokens and channel.
  static constexpr int kFactorBytes = kTokenBlocks * kHeads * kHeadDim * 2;
  static_assert(kHeadDim == 64 || kHeadDim == 96 || kHeadDim == 128, "head_dim: 64, 96 or 128");

  static constexpr KernelTables kTables = {
      kTablesMagic,
      sizeof(ExpandParams),
      kThreads,
      0,
      0,
      kTileTokens,
      1,
      2,
      0,
      0,
      {{"expand", 0, kThreads / 32, 65536 / (kThreads * Config::ctas_per_sm) / 8 * 8}},
      {{"scales (static)", 0, kScaleAtomBytes, kHeads, 16},
       {"factors (static)", kHeads* kScaleAtomBytes, kFactorBytes, 1, 16}},
      {},
      {}};

  // 2^(B - 127) as BF16.  B = 0: subnormal; 255: NaN.
  MXFA_DEVICE static uint32_t factor(uint32_t byte) { return byte << 7 | (byte - 1 >= 254u ? 0x40u : 0u); }

  // Eight elements times their factors, a pair each.
  MXFA_DEVICE static ptx::U32x4 expand(uint32_t x, uint32_t y, ptx::U32x4 factors) {
    uint32_t a, b, c, d;
    ptx::cvt_rn_f16x2_e4m3x4(x, b, a);
    ptx::cvt_rn_f16x2_e4m3x4(y, d, c);
    return {ptx::mul_rn_bf16x2(ptx::truncate_bf16x2_f16x2(a), factors.x),
            ptx::mul_rn_bf16x2(ptx::truncate_bf16x2_f16x2(b), factors.y),
            ptx::mul_rn_bf16x2(ptx::truncate_bf16x2_f16x2(c), factors.z),
            ptx::mul_rn_bf16x2(ptx::truncate_bf16x2_f16x2(d), factors.w)};
  }

  template <bool kAlongTokens>
  MXFA_DEVICE static void store(const ptx::U32x2 (&data)[kPasses], int32_t row, int32_t chunk, int32_t rows,
                                uint32_t scales, uint32_t factors, uint8_t* out, int64_t row_bytes) {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int32_t at = row + pass * kRowsPerPass;
      ptx::U32x4 f;
      if constexpr (kAlongTokens) {
        f = ptx::ld_shared_v4(factors + (at / int32_t(kScaleBlock) * kHeads * kHeadDim + chunk * kChunk) * 2);
      } else {
        const uint32_t byte =
            ptx::ld_shared_u8(scales + chunk / kHeadChunks * kScaleAtomBytes +
                              scale_atom_byte(at, chunk % kHeadChunks * kChunk / int32_t(kScaleBlock)));
        f.x = f.y = f.z = f.w = factor(byte) * 0x10001u;
      }
      ptx::st_global_v4_if(out + pass * kRowsPerPass * row_bytes, expand(data[pass].x, data[pass].y, f),
                           at < rows);
    }
  }

  MXFA_DEVICE static void run(const ExpandParams& params, uint32_t scales, uint32_t factors) {
    int32_t cta = static_cast<int32_t>(blockIdx.x), index = 0;
    while (cta >= params.jobs[index].scale_tiles * (params.jobs[index].heads / kHeads)) {
      cta -= params.jobs[index].scale_tiles * (params.jobs[index].heads / kHeads);
      ++index;
    }
    const ExpandJob& job = params.jobs[index];
    const int32_t groups = job.heads / kHeads, tile = cta / groups, head = cta % groups * kHeads;
    const int32_t* starts = pointer<const int32_t>(job.scale_offsets);
    // S / 128 of these lengths; where they lie in device memory, job.scale_tiles is the most that it can be.
    const int32_t scale_tiles = ptx::ld_global_s32(starts + job.batch) / kTileTokens;
    const PaddedRow found =
        find_padded_row(starts, pointer<const int32_t>(job.offsets), job.batch, tile * kTileTokens);
    if (tile >= scale_tiles) return;
    const int32_t first = tile * kTileTokens - found.start;
    const int32_t rows = min_of(found.sequence.length - first, kTileTokens);
    const int64_t token = found.sequence.first + int64_t{first};

    const int32_t thread = static_cast<int32_t>(threadIdx.x);
    const int32_t row = thread / kChunks, chunk = thread % kChunks;  // of the rows of all heads of the CTA
    const uint8_t* in = pointer<const uint8_t>(job.payload) + (token + row) * job.row_stride +
                        head * kHeadDim + chunk * kChunk;
    ptx::U32x2 data[kPasses];
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass)
      data[pass] = ptx::ld_global_nc_v2_if(in + pass * kRowsPerPass * job.row_stride,
                                           row + pass * kRowsPerPass < rows);
    if (thread < 32 * kHeads) {
      const uint8_t* atom = pointer<const uint8_t>(job.scales) +
                            (int64_t{head + thread / 32} * scale_tiles + tile) * int64_t{kScaleAtomBytes};
      ptx::st_shared_v4(scales + thread * 16, ptx::ld_global_nc_v4(atom + thread % 32 * 16));
    }
    ptx::cta_sync();
    if (job.along_tokens) {
      constexpr int kChannels = kHeads * kHeadDim;
#pragma unroll 1
      for (int32_t i = thread; i < kTokenBlocks * kChannels / 2; i += kThreads) {
        const uint32_t block = i / (kChannels / 2), channel = i % (kChannels / 2) * 2;
        const uint32_t atom = scales + channel / kHeadDim * kScaleAtomBytes, row = channel % kHeadDim;
        const uint32_t low = ptx::ld_shared_u8(atom + scale_atom_byte(row, block)),
                       high = ptx::ld_shared_u8(atom + scale_atom_byte(row + 1, block));
        ptx::st_shared_b32(factors + 4 * i, factor(low) | factor(high) << 16);
      }
      ptx::cta_sync();
    }
    const int64_t row_bytes = int64_t{job.heads} * kHeadDim * 2;
    uint8_t* out =
        pointer<uint8_t>(job.output) + (token + row) * row_bytes + (head * kHeadDim + chunk * kChunk) * 2;
    // A second copy of the loop, not a choice in each round: straight code keeps all rounds in flight.
    if (job.along_tokens)
      store<true>(data, row, chunk, rows, scales, factors, out, row_bytes);
    else
      store<false>(data, row, chunk, rows, scales, factors, out, row_bytes);
  }
};

}  // namespace mxfa

MXFA_PUBLISH_TABLES(mxfp8_expand, mxfa::Mxfp8Expand::kTables);

extern "C" __global__ void __launch_bounds__(mxfa::Mxfp8Expand::kThreads, Config::ctas_per_sm)
    mxfp8_expand(const __grid_constant__ mxfa::ExpandParams params) {
  __shared__ alignas(16) uint8_t scales[mxfa::Mxfp8Expand::kHeads * mxfa::kScaleAtomBytes];
  __shared__ alignas(16) uint8_t factors[mxfa::Mxfp8Expand::kFactorBytes];
  mxfa::Mxfp8Expand::run(params, mxfa::smem_address(scales), mxfa::smem_address(factors));
}
