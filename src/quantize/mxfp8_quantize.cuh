// MXFP8 quantizer: BF16 [tokens, heads, D] -> E4M3 payload of the same shape and UE8M0 scales, one for 32
// elements along D, along the tokens of a sequence, or of a 32 x 32 square.  sm_90a and sm_100a, the same
// bytes on both.
//
// One CTA quantizes a tile of 128 tokens of one sequence and of heads that follow each other, so many that a
// token has a line of the payload.  Grid: scale_tiles * heads / heads_per_cta, heads fastest: the heads of a
// token are neighbours in memory.
// The payload stays packed; scales live in 512-byte atoms at the sequence's start padded to 128 rows, and
// both orientations of a tile use the slot head * scale_tiles + tile.  Every byte of an atom is written,
// padding as 0.
//
// The tile is cut into units of 32 tokens x 64 (or 32) channels, one warp each.  A lane holds 16-byte chunks
// (8 channels) of every 4th (or 8th) token, so a maximum along D crosses 4 lanes, a maximum along tokens
// crosses the lanes of one chunk column, and a square crosses both; the data itself never moves between
// lanes.  All loads of a thread are in flight before the first is used.  Maxima are taken on BF16 magnitudes:
// exact, two elements an instruction.
//
// Config:
//   head_dim       64, 96 or 128
//   layout         blocks: 0 along D, 1 along tokens, 2 square
//   floor          rounding of the scale: 0 up (never saturates), 1 down
//   threads        32 x warps; the warps divide the units of a tile
//   heads_per_cta  of one tile; divides the heads
//   ctas_per_sm    the occupancy that registers must leave room for
#pragma once
#include "ptx/barrier.cuh"
#include "ptx/convert.cuh"
#include "ptx/ld_st.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/sreg.cuh"
#include "src/common/jagged.cuh"
#include "src/common/math.cuh"
#include "src/common/scale_factor.cuh"
#include "src/common/tables.cuh"
#include "src/common/types.cuh"

namespace mxfa {

struct QuantizeParams {
  uint64_t input;      // bf16 [tokens, heads, D]
  int64_t row_stride;  // elements from one token to the next
  uint64_t payload;    // e4m3 [tokens, heads, D], packed
  uint64_t scales_d, scales_tokens;
  uint64_t offsets, scale_offsets;  // int32[batch + 1]
  int32_t batch, heads, scale_tiles;
};

struct Mxfp8Quantize {
  enum class Layout { kAlongD = 0, kAlongTokens = 1, kSquare = 2 };

  static constexpr int kHeadDim = Config::head_dim;
  static constexpr Layout kLayout = static_cast<Layout>(Config::layout);
  static constexpr ScaleRounding kRounding = Config::floor ? ScaleRounding::kFloor : ScaleRounding::kCeil;
  static constexpr int kThreads = Config::threads;
  static constexpr int kWarps = kThreads / 32;
  static_assert(kHeadDim == 64 || kHeadDim == 96 || kHeadDim == 128, "head_dim: 64, 96 or 128");
  static_assert(Config::layout >= 0 && Config::layout <= 2, "layout: 0 along D, 1 along tokens, 2 square");
  static_assert(kThreads % 32 == 0 && kThreads >= 64, "threads: whole warps; two of them write scales");

  static constexpr int kTileTokens = 128;
  static constexpr int kBlock = static_cast<int>(kScaleBlock);
  static constexpr int kChunk = 8;                                // channels in 16 bytes
  static constexpr int kUnitChunks = kHeadDim % 64 == 0 ? 8 : 4;  // chunks of one token in a unit
  static constexpr int kUnitsPerRow = kHeadDim / (kChunk * kUnitChunks);
  static constexpr int kTokenBlocks = kTileTokens / kBlock;
  static constexpr int kHeads = Config::heads_per_cta;
  static constexpr int kColumns = kHeads * kUnitsPerRow, kUnits = kTokenBlocks * kColumns;
  static constexpr int kUnitsPerWarp = kUnits / kWarps;
  static constexpr int kRowsPerLoad = 32 / kUnitChunks;  // tokens a warp reads in one instruction
  static constexpr int kLoads = kBlock / kRowsPerLoad;   // chunks a lane holds of a unit
  static_assert(kUnits % kWarps == 0, "threads / 32 must divide the number of 32-token units");

  static constexpr KernelTables kTables = {
      kTablesMagic,
      sizeof(QuantizeParams),
      kThreads,
      0,
      0,
      kTileTokens,
      1,
      1,
      0,
      0,
      {{"quantize", 0, kWarps, 65536 / (kThreads * Config::ctas_per_sm) / 8 * 8}},
      {{"scales (static)", 0, kScaleAtomBytes, kHeads, 16}},
      {},
      {}};

  // One unit as a lane sees it: chunk i is at token first_token + i * kRowsPerLoad of the tile.
  struct Unit {
    int token_block;  // 0..3
    int first_token;
    int row_chunk;  // of a token's channels of all heads of the CTA
    int head;       // among the CTA's
    int chunk;      // of that head: channels 8 * chunk ..
    ptx::U32x4 data[kLoads];
  };

  // Rows of the tile that belong to its sequence (0 for a tile behind the last sequence), and the first one's
  // token.
  struct Tile {
    int64_t token;
    int32_t rows;
  };

  MXFA_DEVICE static Tile find_tile(const QuantizeParams& params, int32_t tile) {
    const int32_t* starts = pointer<const int32_t>(params.scale_offsets);
    const int32_t scale_row = tile * kTileTokens;
    const int32_t scale_rows = ptx::ld_global_s32(starts + params.batch);
    const PaddedRow found =
        find_padded_row(starts, pointer<const int32_t>(params.offsets), params.batch, scale_row);
    if (scale_row >= scale_rows) return {0, 0};
    const int32_t row = scale_row - found.start;
    return {found.sequence.first + int64_t{row}, max_of(min_of(found.sequence.length - row, kTileTokens), 0)};
  }

  // Rows behind the sequence are not read: they count as zeros.
  MXFA_DEVICE static void load(Unit& unit, int index, const uint8_t* tile_data, int64_t row_bytes,
                               int32_t rows) {
    const int lane = static_cast<int>(ptx::lane_id());
    const int column = index % kColumns;
    unit.token_block = index / kColumns;
    unit.head = column / kUnitsPerRow;
    unit.first_token = unit.token_block * kBlock + lane / kUnitChunks;
    unit.row_chunk = column * kUnitChunks + lane % kUnitChunks;
    unit.chunk = column % kUnitsPerRow * kUnitChunks + lane % kUnitChunks;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int token = unit.first_token + i * kRowsPerLoad;
      unit.data[i] =
          ptx::ld_global_nc_v4_if(tile_data + token * row_bytes + unit.row_chunk * 16, token < rows);
    }
  }

  // max(maximum, |pair|) in each half.  Starting from 0, a NaN never enters a maximum.
  MXFA_DEVICE static uint32_t max_magnitude(uint32_t maximum, uint32_t pair) {
    return ptx::max_bf16x2(maximum, pair & 0x7fff7fffu);
  }

  // The maximum over the lanes that differ in the bits kFirst, 2 * kFirst, ... up to and without kEnd.
  template <int kFirst, int kEnd>
  MXFA_DEVICE static uint32_t max_across(uint32_t maximum) {
#pragma unroll
    for (int bit = kFirst; bit < kEnd; bit *= 2) {
      maximum = ptx::max_bf16x2(maximum, ptx::shfl_bfly(maximum, bit));
    }
    return maximum;
  }

  // Scale byte of a block from its maximum, a BF16 in the lower or upper half.
  MXFA_DEVICE static uint32_t byte_low(uint32_t maxima) { return e4m3_scale_byte<kRounding>(maxima << 16); }
  MXFA_DEVICE static uint32_t byte_high(uint32_t maxima) {
    return e4m3_scale_byte<kRounding>(maxima & 0x7fff0000u);
  }

  // Eight elements times their reciprocals, to E4M3.
  MXFA_DEVICE static void store_chunk(uint8_t* address, const ptx::U32x4& data,
                                      const float (&reciprocal)[8]) {
    const uint32_t words[4] = {data.x, data.y, data.z, data.w};
    float scaled[8];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scaled[2 * i] = bf16x2_low(words[i]) * reciprocal[2 * i];
      scaled[2 * i + 1] = bf16x2_high(words[i]) * reciprocal[2 * i + 1];
    }
    ptx::st_global_v2(address, ptx::cvt_rn_satfinite_e4m3x4_f32(scaled[3], scaled[2], scaled[1], scaled[0]),
                      ptx::cvt_rn_satfinite_e4m3x4_f32(scaled[7], scaled[6], scaled[5], scaled[4]));
  }

  MXFA_DEVICE static void store_unit_chunk(const Unit& unit, int i, const float (&reciprocal)[8],
                                           uint8_t* tile_payload, int64_t row_bytes, int32_t rows) {
    const int token = unit.first_token + i * kRowsPerLoad;
    // A branch, not a predicated store: ptxas delays loads within a block of instructions, and without
    // branches all of a unit is one.
    if (token < rows)
      store_chunk(tile_payload + token * row_bytes + unit.row_chunk * kChunk, unit.data[i], reciprocal);
  }

  // A block is one token's 4 chunks, in 4 neighbouring lanes.  Two tokens share each shuffle: one maximum a
  // half.
  MXFA_DEVICE static void quantize_along_d(const Unit& unit, uint32_t atom, uint8_t* tile_payload,
                                           int64_t row_bytes, int32_t rows) {
#pragma unroll
    for (int i = 0; i < kLoads; i += 2) {
      const uint32_t even = max_of_chunk(unit.data[i]), odd = max_of_chunk(unit.data[i + 1]);
      const uint32_t maxima =
          max_across<1, 4>(ptx::max_bf16x2((even & 0xffff) | odd << 16, even >> 16 | (odd & 0xffff0000u)));
      const uint32_t bytes[2] = {byte_low(maxima), byte_high(maxima)};
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int token = unit.first_token + (i + j) * kRowsPerLoad;
        if (unit.chunk % 4 == 0) ptx::st_shared_b8(atom + scale_atom_byte(token, unit.chunk / 4), bytes[j]);
        const float r = scale_reciprocal(bytes[j]);
        store_unit_chunk(unit, i + j, {r, r, r, r, r, r, r, r}, tile_payload, row_bytes, rows);
      }
    }
  }

  // A block is one channel of the 32 tokens: the lanes of one chunk column.  Each lane then knows all 8
  // channels of its chunk; lane row k < 4 stores the bytes of channels 2k and 2k+1 (4 lanes a bank, two
  // instructions a warp).
  MXFA_DEVICE static void quantize_along_tokens(const Unit& unit, uint32_t atom, uint8_t* tile_payload,
                                                int64_t row_bytes, int32_t rows) {
    uint32_t maxima[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      maxima[0] = max_magnitude(maxima[0], unit.data[i].x);
      maxima[1] = max_magnitude(maxima[1], unit.data[i].y);
      maxima[2] = max_magnitude(maxima[2], unit.data[i].z);
      maxima[3] = max_magnitude(maxima[3], unit.data[i].w);
    }
    const int lane_row = unit.first_token % kBlock;
    float reciprocal[8];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      maxima[k] = max_across<kUnitChunks, 32>(maxima[k]);
      const uint32_t low = byte_low(maxima[k]), high = byte_high(maxima[k]);
      reciprocal[2 * k] = scale_reciprocal(low);
      reciprocal[2 * k + 1] = scale_reciprocal(high);
      if (lane_row == k) {
        const int channel = unit.chunk * kChunk + 2 * k;
        ptx::st_shared_b8(atom + scale_atom_byte(channel, unit.token_block), low);
        ptx::st_shared_b8(atom + scale_atom_byte(channel + 1, unit.token_block), high);
      }
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) store_unit_chunk(unit, i, reciprocal, tile_payload, row_bytes, rows);
  }

  // A block is 32 tokens x 4 chunks.  The 4 x 4 scale bytes B[token block][channel block] of a tile determine
  // both atoms: each is one 16-byte vector repeated 32 times, the second from the transpose.
  MXFA_DEVICE static void quantize_square(const Unit& unit, uint32_t grid, uint8_t* tile_payload,
                                          int64_t row_bytes, int32_t rows) {
    uint32_t maximum = 0;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) maximum = ptx::max_bf16x2(maximum, max_of_chunk(unit.data[i]));
    maximum = ptx::max_bf16x2(maximum, maximum >> 16);
    maximum = max_across<kUnitChunks, 32>(max_across<1, 4>(maximum));
    const uint32_t byte = byte_low(maximum);
    if (unit.chunk % 4 == 0 && unit.first_token % kBlock == 0) {
      const int channel_block = unit.chunk / 4;
      ptx::st_shared_b8(grid + unit.token_block * 4 + channel_block, byte);
      ptx::st_shared_b8(grid + 16 + channel_block * 4 + unit.token_block, byte);
    }
    const float r = scale_reciprocal(byte);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      store_unit_chunk(unit, i, {r, r, r, r, r, r, r, r}, tile_payload, row_bytes, rows);
    }
  }

  MXFA_DEVICE static uint32_t max_of_chunk(const ptx::U32x4& data) {
    return max_magnitude(max_magnitude(max_magnitude(max_magnitude(0, data.x), data.y), data.z), data.w);
  }

  // Where the scales of head `head` of the CTA are collected: its atom, or both grids of the squares.
  static constexpr int kHeadScaleBytes = kLayout == Layout::kSquare ? 32 : static_cast<int>(kScaleAtomBytes);

  MXFA_DEVICE static void run(const QuantizeParams& params, uint32_t scales) {
    const int32_t groups = params.heads / kHeads;
    const int32_t tile = static_cast<int32_t>(blockIdx.x) / groups;
    const int32_t head = static_cast<int32_t>(blockIdx.x) % groups * kHeads;
    const Tile source = find_tile(params, tile);

    const int64_t input_row_bytes = params.row_stride * 2;
    const uint8_t* input =
        pointer<const uint8_t>(params.input) + source.token * input_row_bytes + head * (kHeadDim * 2);
    const int64_t payload_row_bytes = int64_t{params.heads} * kHeadDim;
    uint8_t* payload = pointer<uint8_t>(params.payload) + source.token * payload_row_bytes + head * kHeadDim;

    const int warp = static_cast<int>(ptx::warp_id());
    const int32_t rows = source.rows;
    Unit units[kUnitsPerWarp];
#pragma unroll
    for (int u = 0; u < kUnitsPerWarp; ++u) load(units[u], warp + u * kWarps, input, input_row_bytes, rows);
    // Bytes that no unit writes (head_dim below 128) are padding.  Done here, under the latency of the loads.
    for (uint32_t word = threadIdx.x; word < kHeads * kHeadScaleBytes / 4; word += kThreads)
      ptx::st_shared_b32(scales + word * 4, 0);
    ptx::cta_sync();
#pragma unroll
    for (int u = 0; u < kUnitsPerWarp; ++u) {
      const uint32_t of_head = scales + units[u].head * kHeadScaleBytes;
      if constexpr (kLayout == Layout::kAlongD) {
        quantize_along_d(units[u], of_head, payload, payload_row_bytes, rows);
      } else if constexpr (kLayout == Layout::kAlongTokens) {
        quantize_along_tokens(units[u], of_head, payload, payload_row_bytes, rows);
      } else {
        quantize_square(units[u], of_head, payload, payload_row_bytes, rows);
      }
    }
    ptx::cta_sync();

    const uint32_t lane = threadIdx.x % 32, group = lane * 16;
    constexpr int kAtoms = kLayout == Layout::kSquare ? 2 : 1;
#pragma unroll 1
    for (int atom = warp; atom < kAtoms * kHeads; atom += kWarps) {
      const uint64_t at =
          (static_cast<uint64_t>(head + atom / kAtoms) * params.scale_tiles + tile) * kScaleAtomBytes + group;
      if constexpr (kLayout == Layout::kSquare) {
        const bool tokens = atom % 2;
        ptx::U32x4 bytes = ptx::ld_shared_v4(scales + atom * 16);
        if (!tokens) {
          // Word q is row 32 q + lane: the rows of a square that the sequence does not have are padding.
          const int32_t row = static_cast<int32_t>(lane);
          bytes = {row < rows ? bytes.x : 0, row + 32 < rows ? bytes.y : 0, row + 64 < rows ? bytes.z : 0,
                   row + 96 < rows ? bytes.w : 0};
        }
        ptx::st_global_v4(pointer<uint8_t>(tokens ? params.scales_tokens : params.scales_d) + at, bytes);
      } else {
        ptx::st_global_v4(
            pointer<uint8_t>(kLayout == Layout::kAlongD ? params.scales_d : params.scales_tokens) + at,
            ptx::ld_shared_v4(scales + atom * kScaleAtomBytes + group));
      }
    }
  }
};

}  // namespace mxfa

MXFA_PUBLISH_TABLES(mxfp8_quantize, mxfa::Mxfp8Quantize::kTables);

extern "C" __global__ void __launch_bounds__(mxfa::Mxfp8Quantize::kThreads, Config::ctas_per_sm)
    mxfp8_quantize(const __grid_constant__ mxfa::QuantizeParams params) {
  __shared__ alignas(16) uint8_t scales[mxfa::Mxfp8Quantize::kHeads * mxfa::Mxfp8Quantize::kHeadScaleBytes];
  mxfa::Mxfp8Quantize::run(params, mxfa::smem_address(scales));
}
