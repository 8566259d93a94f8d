// The producer warpgroup of attention_fwd_mx_sm90: E4M3 and UE8M0 from global memory to BF16 tiles.
//
// A tile of work is a list of items: its query rows by units of 64, then K and V by blocks of 128 keys.  Lane
// 0 of warp 0 brings each item and its atom of scales into a staging slot, kStaging - 1 items ahead; all four
// warps multiply the elements with their scales and write them where the tensor core reads them.
//
// Exactness: E4M3 has 4 significant bits, so payload * 2^(B - 127) is a BF16 number for every payload while
// 3 <= B <= 246 (448 * 2^119 is the largest that stays below 2^128; 2^-9 * 2^-124 is BF16's smallest).
// Outside it overflows to infinity, or is rounded to a multiple of 2^-133, where attention_fwd_sm100 has the
// range of FP32 for the product of a query's and a key's scale.
#pragma once
#include "ptx/atomic.cuh"
#include "ptx/barrier.cuh"
#include "ptx/bulk.cuh"
#include "ptx/convert.cuh"
#include "ptx/elect.cuh"
#include "ptx/fence.cuh"
#include "ptx/ld_st.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/sreg.cuh"
#include "ptx/tma.cuh"
#include "src/attention/attention_fwd_mx_sm90_tables.cuh"
#include "src/common/jagged.cuh"
#include "src/common/math.cuh"
#include "src/common/pipeline.cuh"
#include "src/common/scale_factor.cuh"

namespace mxfa {

// What the roles must know of a tile: written once by the loads, read from shared memory where it is needed,
// so that it takes no registers in between.
struct MxTile {
  int32_t head, q_row;             // q_row: first row of the tile in its sequence
  int32_t q_length, o_first;       // rows of the sequence; its first row in O
  int32_t k_length, n_min, n_max;  // blocks of keys with a key that some row sees: [n_min, n_max)
  int32_t rows;                    // query rows of the tile, a multiple of 64; 0: no more tiles

  MXFA_DEVICE bool empty() const { return n_min >= n_max; }
  MXFA_DEVICE int32_t units() const { return rows / 64; }
  // Q by units, then K and V by blocks.  An empty tile counts as one item, so that the loads cannot run ahead
  // by more tiles than items.
  MXFA_DEVICE int32_t items() const { return empty() ? 1 : units() + 2 * (n_max - n_min); }

  MXFA_DEVICE static MxTile load(uint32_t address) {
    const ptx::U32x4 a = ptx::ld_shared_v4(address), b = ptx::ld_shared_v4(address + 16);
    return {int32_t(a.x), int32_t(a.y), int32_t(a.z), int32_t(a.w),
            int32_t(b.x), int32_t(b.y), int32_t(b.z), int32_t(b.w)};
  }
  MXFA_DEVICE void store(uint32_t address) const {
    ptx::st_shared_v4(address, {uint32_t(head), uint32_t(q_row), uint32_t(q_length), uint32_t(o_first)});
    ptx::st_shared_v4(address + 16, {uint32_t(k_length), uint32_t(n_min), uint32_t(n_max), uint32_t(rows)});
  }
};
// What the loads alone must know: behind it.
struct MxTileSource {
  int32_t q_first, k_first, head_kv;
  int32_t q_atom, k_atom;  // first atom of scales of the (head, sequence)

  MXFA_DEVICE static MxTileSource load(uint32_t address) {
    const ptx::U32x4 a = ptx::ld_shared_v4(address + 32);
    return {int32_t(a.x), int32_t(a.y), int32_t(a.z), int32_t(a.w),
            int32_t(ptx::ld_shared_b32(address + 48))};
  }
  MXFA_DEVICE void store(uint32_t address) const {
    ptx::st_shared_v4(address + 32,
                      {uint32_t(q_first), uint32_t(k_first), uint32_t(head_kv), uint32_t(q_atom)});
    ptx::st_shared_b32(address + 48, uint32_t(k_atom));
  }
};

struct MxWalk : AttentionFwdMxSm90Tables {
  MXFA_DEVICE static uint32_t tile_address(uint32_t smem, uint32_t tile) {
    return smem + kTileOffset + tile % kTileStages * kTileBytes;
  }
  // One past the last block that a row before `row_end` sees.  Bottom-right alignment: query i sees keys up
  // to i + (k_length - q_length) + right.
  MXFA_DEVICE static int end_block(const AttentionForwardParams& p, const MxTile& t, int row_end) {
    int end = t.k_length;
    if (kRightMask)
      end = min_of(end, max_of(min_of(row_end, t.q_length) + t.k_length - t.q_length + p.window_right, 0));
    return ceil_div(end, kTileN);
  }
  MXFA_DEVICE static int first_block(const AttentionForwardParams& p, const MxTile& t, int row) {
    return max_of(row + t.k_length - t.q_length - p.window_left, 0) / kTileN;
  }

  // K or V, and of which block, is number `j` after the units of Q.  With overlap the consumers' order is
  // K(last), then K(n) with V(n+1), then V(first); without it K(n), V(n).
  struct KvItem {
    bool is_v;
    int32_t block;
  };
  MXFA_DEVICE static KvItem kv_item(int32_t n_min, int32_t n_max, int32_t j) {
    const int32_t last = n_max - 1;
    if constexpr (!kOverlap) return {(j & 1) != 0, last - j / 2};
    if (j == 2 * (n_max - n_min) - 1) return {true, n_min};
    return {j != 0 && (j & 1) == 0, j == 0 ? last : (j & 1) != 0 ? last - (j + 1) / 2 : n_max - j / 2};
  }
};

// ---- loads: one lane of warp 0 ----
struct MxLoader : MxWalk {
  const AttentionForwardParams& p;
  uint32_t smem;
  // Between items these rest in shared memory: the warp has no registers for them.
  uint32_t tile;        // tiles begun
  int32_t item, items;  // next of the latest tile; its items, 0 when there are no more tiles
  PipelineState<kStaging> staged;

  MXFA_DEVICE static void initialise(uint32_t smem) {
    ptx::st_shared_v4(smem + kLoaderOffset, {0, 0, 0, PipelineState<kStaging>::producer().phase << 16});
  }
  MXFA_DEVICE MxLoader(const AttentionForwardParams& params, uint32_t shared) : p(params), smem(shared) {
    const ptx::U32x4 v = ptx::ld_shared_v4(smem + kLoaderOffset);
    tile = v.x;
    item = int32_t(v.y);
    items = int32_t(v.z);
    staged = {v.w & 0xffff, v.w >> 16};
  }
  MXFA_DEVICE void rest() const {
    ptx::st_shared_v4(smem + kLoaderOffset,
                      {tile, uint32_t(item), uint32_t(items), staged.stage | staged.phase << 16});
  }

  // The first tile of every CTA is its own; the others go to whoever comes first, in the plan's order
  // (heaviest first).
  MXFA_DEVICE void describe_next_tile() const {
    int32_t* counters = pointer<int32_t>(p.counters);
    const int32_t index =
        tile == 0 ? int32_t(blockIdx.x) : int32_t(gridDim.x) + ptx::atom_add_acq_rel_gpu_s32(counters, 1);
    const uint32_t to = tile_address(smem, tile);
    if (index < p.tile_count) {
      read_tile(index, to);
    } else {
      MxTile{}.store(to);
      if (ptx::atom_add_acq_rel_gpu_s32(counters + 1, 1) == int32_t(gridDim.x) - 1) {
        counters[0] = 0;  // the last CTA leaves the counters as it found them
        counters[1] = 0;
      }
    }
    ptx::mbarrier_arrive(smem + kTileFull + 8 * (tile % kTileStages));
  }
  MXFA_DEVICE void read_tile(int32_t index, uint32_t to) const {
    const ptx::U32x4 entry = ptx::ld_global_nc_v4(pointer<const int32_t>(p.tiles) + 4 * int64_t(index));
    const int32_t batch = entry.x, batch_q = p.broadcast_q ? 0 : batch;
    const Sequence q = load_sequence(pointer<const int32_t>(p.offsets_q), batch_q);
    const Sequence k = load_sequence(pointer<const int32_t>(p.offsets_k), batch);
    // With the lengths, not behind them: one trip to memory.
    const auto atom = [](uint64_t starts, int32_t sequence) {
      return ptx::ld_global_s32(pointer<const int32_t>(starts) + sequence) / int32_t(kScaleAtomRows);
    };
    const int32_t atom_q = atom(p.scale_offsets_q, batch_q), atom_k = atom(p.scale_offsets_k, batch);
    MxTile t{};
    t.head = entry.y;
    t.q_row = entry.z;
    t.rows = entry.w;
    t.q_length = q.length;
    t.k_length = k.length;
    t.o_first = p.broadcast_q ? batch * q.length : q.first;
    t.n_min = kLeftMask ? first_block(p, t, t.q_row) : 0;
    t.n_max = end_block(p, t, t.q_row + t.rows);
    t.store(to);
    const int32_t head_kv = t.head / (p.heads_q / p.heads_kv);
    MxTileSource{q.first, k.first, head_kv, t.head * p.scale_tiles_q + atom_q,
                 head_kv * p.scale_tiles_k + atom_k}
        .store(to);
  }

  // The next item, if there is one.
  MXFA_DEVICE void next() {
    if (tile != 0 && items == 0) return;
    MxTile t{};
    if (item == items) {
      describe_next_tile();
      t = MxTile::load(tile_address(smem, tile));
      item = 0;
      items = t.rows == 0 ? 0 : t.items();
      ++tile;
    } else {
      t = MxTile::load(tile_address(smem, tile - 1));
    }
    if (items != 0) load(t, item++);
    rest();
  }
  MXFA_DEVICE void load(const MxTile& t, int32_t number) {
    if (t.empty()) return;
    const MxTileSource source = MxTileSource::load(tile_address(smem, tile - 1));
    ptx::mbarrier_wait(smem + kStagedEmpty + 8 * staged.stage, staged.phase);
    if (number < t.units()) {
      const int32_t row = t.q_row + kUnit * number;
      copy(&p.q, p.scales_q, t.head, ragged_row({source.q_first, t.q_length}, row),
           source.q_atom + row / int32_t(kScaleAtomRows), kUnitBytes);
    } else {
      const KvItem kv = kv_item(t.n_min, t.n_max, number - t.units());
      copy(kv.is_v ? &p.v : &p.k, kv.is_v ? p.scales_v : p.scales_k, source.head_kv,
           ragged_row({source.k_first, t.k_length}, kv.block * kTileN), source.k_atom + kv.block,
           kStagedBytes);
    }
    staged.advance();
  }
  // Rows past the end of the sequence arrive as zeros, never a neighbour's NaN.
  MXFA_DEVICE void copy(const TensorMap* map, uint64_t scales, int32_t head, RaggedRow row, int32_t atom,
                        uint32_t bytes) const {
    const uint32_t full = smem + kStagedFull + 8 * staged.stage;
    ptx::mbarrier_arrive_expect_tx(full, bytes + kAtom);
    ptx::tma_load_5d(smem + kStagedOffset + staged.stage * kStagedBytes, map, full, 0, head, row.row,
                     row.shift, row.end);
    ptx::bulk_load(smem + kScaleOffset + staged.stage * kAtom,
                   pointer<const uint8_t>(scales) + int64_t(atom) * kAtom, kAtom, full);
  }
};

// A PipelineState in one register.
template <uint32_t kCount>
struct PackedState {
  uint32_t bits;  // 2 * stage + phase

  MXFA_DEVICE uint32_t stage() const { return bits >> 1; }
  MXFA_DEVICE uint32_t phase() const { return bits & 1; }
  MXFA_DEVICE void advance() {
    bits += 2;
    if (stage() == kCount) bits ^= 2 * kCount | 1;
  }
};

// ---- expansion: four warps ----
struct MxExpander : MxWalk {
  uint32_t smem;
  uint32_t warp;
  PackedState<kStaging> staged{PipelineState<kStaging>::consumer().phase};
  PackedState<kStages> kv{PipelineState<kStages>::producer().phase};

  MXFA_DEVICE MxExpander(uint32_t shared, uint32_t warp_number) : smem(shared), warp(warp_number) {}

  // Worked out where it is needed: addresses that follow from it would be kept for the whole kernel, in
  // registers that the warpgroup does not have.
  MXFA_DEVICE static uint32_t lane_now() { return uint32_t(ptx::opaque(int32_t(ptx::lane_id()))); }

  // 2^(B - 127) as BF16.  B = 0: subnormal; 255: NaN.
  MXFA_DEVICE static uint32_t factor(uint32_t byte) { return byte << 7 | (byte - 1 >= 254u ? 0x40u : 0u); }
  // Eight elements times their factors, a pair each.
  MXFA_DEVICE static void expand(uint32_t x, uint32_t y, ptx::U32x4 factors, uint32_t out) {
    uint32_t a, b, c, d;
    ptx::cvt_rn_f16x2_e4m3x4(x, b, a);
    ptx::cvt_rn_f16x2_e4m3x4(y, d, c);
    ptx::st_shared_v4(out, {ptx::mul_rn_bf16x2(ptx::truncate_bf16x2_f16x2(a), factors.x),
                            ptx::mul_rn_bf16x2(ptx::truncate_bf16x2_f16x2(b), factors.y),
                            ptx::mul_rn_bf16x2(ptx::truncate_bf16x2_f16x2(c), factors.z),
                            ptx::mul_rn_bf16x2(ptx::truncate_bf16x2_f16x2(d), factors.w)});
  }

  // Where chunk 0 of a row of the staged tile lies; chunk c is at this ^ (c << 4).
  MXFA_DEVICE uint32_t staged_row(uint32_t row) const {
    return smem + kStagedOffset + staged.stage() * kStagedBytes + row * kStagedRow +
           ((kStagedRow == 64 ? row / 2 % 4 : row % 8) << 4);
  }
  // The same of a row of a BF16 panel.
  MXFA_DEVICE static uint32_t panel_row(uint32_t base, uint32_t row) {
    return base + row * 128 + (row % 8 << 4);
  }

  // Scales along the channels.  A lane owns a row (of Q: every second chunk of a row); eight lanes then meet
  // eight different 16-byte columns of shared memory, reading and writing.  `out_row`, `atom_row`: of row 0
  // of the staged tile in the BF16 tile and in the atom.
  template <int kRows, int kPanel>
  MXFA_DEVICE void expand_rows(uint32_t out, uint32_t out_row, uint32_t atom_row) const {
    constexpr uint32_t kWarpRows = kRows / kExpanders, kLanesOfRow = 32 / kWarpRows;
    const uint32_t lane = lane_now();
    const uint32_t row = warp * kWarpRows + lane % kWarpRows, part = lane / kWarpRows;
    const uint32_t in = staged_row(row) ^ part << 4;
    const uint32_t to = panel_row(out, out_row + row) ^ part << 5;
    const uint32_t scales =
        ptx::ld_shared_b32(smem + kScaleOffset + staged.stage() * kAtom + scale_atom_byte(atom_row + row, 0));
    ptx::U32x4 next = ptx::ld_shared_v4(in);
#pragma unroll
    for (uint32_t c = 0; c < kChunks; c += kLanesOfRow) {
      const ptx::U32x4 v = next;
      // Ahead of the stores: the reads are on their way while this chunk is worked on.
      if (c + kLanesOfRow < kChunks) next = ptx::ld_shared_v4(in ^ (c + kLanesOfRow) << 4);
      const uint32_t f = factor(scales >> c / 2 * 8 & 255) * 0x10001u;
      const uint32_t chunk = (to ^ c % 4 << 5) + c / 4 * kPanel;
      expand(v.x, v.y, {f, f, f, f}, chunk);
      expand(v.z, v.w, {f, f, f, f}, chunk ^ 16);
    }
  }

  // Scales along the tokens: a warp owns 32 keys, which share a scale in each channel.  Lanes work out the
  // factors of a pair of channels each and exchange them through shared memory.  Then four lanes take the
  // chunks of a panel, by halves, and eight such quads the rows of a group of eight, paired so that the lanes
  // that are served together meet different columns.  Keys past the end of the sequence become zeros: a scale
  // of theirs may be NaN.
  MXFA_DEVICE void expand_v(uint32_t out, int32_t keys) const {
    const uint32_t lane = lane_now();
    const uint32_t table = smem + kFactorOffset + warp * kFactorBytes;
    const uint32_t scales = smem + kScaleOffset + staged.stage() * kAtom;
#pragma unroll
    for (uint32_t panel = 0; panel < kPanels; ++panel) {
      const uint32_t channel = panel * 64 + 2 * lane;
      const uint32_t low = ptx::ld_shared_u8(scales + scale_atom_byte(channel, warp)),
                     high = ptx::ld_shared_u8(scales + scale_atom_byte(channel + 1, warp));
      const bool none = int32_t(32 * warp) >= keys;
      ptx::st_shared_b32(table + panel * 128 + 4 * lane, none ? 0 : factor(low) | factor(high) << 16);
    }
    ptx::warp_sync();
    const uint32_t chunk = lane % 4, row = warp * 32 + (lane / 8 ^ 5 * (lane / 4 % 2)), odd = lane / 8 % 2;
    const uint32_t in = staged_row(row) ^ chunk << 4 ^ odd << 3;
    const uint32_t to = panel_row(out, row) ^ chunk << 5 ^ odd << 4;
#pragma unroll
    for (uint32_t panel = 0; panel < kPanels; ++panel) {
      if (panel * 4 + chunk >= kChunks) break;  // D = 96
#pragma unroll
      for (uint32_t half = 0; half < 2; ++half) {
        const ptx::U32x4 factors = ptx::ld_shared_v4((table + panel * 128 + chunk * 32) ^ (half ^ odd) << 4);
        const uint32_t from = in ^ panel << 6 ^ half << 3, at = (to ^ half << 4) + panel * kKvPanel;
        ptx::U32x2 next = ptx::ld_shared_v2(from);
#pragma unroll
        for (uint32_t group = 0; group < 4; ++group) {
          const ptx::U32x2 v = next;
          if (group < 3) next = ptx::ld_shared_v2(from + (group + 1) * 8 * kStagedRow);
          expand(v.x, v.y, factors, at + group * 8 * 128);
        }
      }
    }
  }

  MXFA_DEVICE static void arrive(uint32_t barrier) {  // for the warp
    ptx::warp_sync();
    if (ptx::elect_one()) ptx::mbarrier_arrive(barrier);
  }

  MXFA_DEVICE void load_next(const AttentionForwardParams& p) const {
    if (warp == 0 && ptx::elect_one()) MxLoader(p, smem).next();
    ptx::warp_sync();
  }

  // A field of a tile's description, by its number.  Through a shuffle the compiler knows it to be the same
  // in all lanes.
  MXFA_DEVICE int32_t field(uint32_t tile, uint32_t number) const {
    const uint32_t address = tile_address(smem, uint32_t(ptx::opaque(int32_t(tile)))) + 4 * number;
    return int32_t(ptx::shfl_idx(ptx::ld_shared_b32(address), 0));
  }
  static constexpr uint32_t kQRow = 1, kKLength = 4, kNMin = 5, kNMax = 6, kRows = 7;

  MXFA_DEVICE void expand_q(uint32_t tile, int32_t unit) const {
    const uint32_t stage = uint32_t(ptx::opaque(int32_t(tile))) % kQStages;
    expand_rows<kUnit, kQPanel>(smem + kQOffset + stage * kQBytes, kUnit * unit,
                                uint32_t(field(tile, kQRow) + kUnit * unit) % kScaleAtomRows);
  }
  MXFA_DEVICE void expand_kv(uint32_t tile, int32_t j) const {
    const KvItem item = kv_item(field(tile, kNMin), field(tile, kNMax), j);
    const uint32_t out = smem + kKvOffset + kv.stage() * kKvBytes;
    if (item.is_v) {
      expand_v(out, field(tile, kKLength) - item.block * kTileN);
    } else {
      expand_rows<kTileN, kKvPanel>(out, 0, 0);
    }
  }

  MXFA_DEVICE void run(const AttentionForwardParams& p) {
#pragma unroll 1
    for (int i = 1; i < kStaging; ++i) load_next(p);
    for (uint32_t tile = 0;; ++tile) {
      // Of a tile without rows or keys only the loads must be kept going.
      load_next(p);
      ptx::mbarrier_wait(smem + kTileFull + 8 * (tile % kTileStages), tile / kTileStages % 2);
      ptx::mbarrier_wait(smem + kQEmpty + 8 * (tile % kQStages), tile / kQStages % 2 ^ 1);
      // Number of the item after the units of Q: negative for those.
      int32_t j = -field(tile, kRows) / kUnit;
      const auto end = [&] { return 2 * (field(tile, kNMax) - field(tile, kNMin)); };
      const bool last = j == 0;
      if (end() > 0) {
        for (;;) {
          const bool is_q = j < 0;
          if (!is_q) ptx::mbarrier_wait(smem + kKvEmpty + 8 * kv.stage(), kv.phase());
          ptx::mbarrier_wait(smem + kStagedFull + 8 * staged.stage(), staged.phase());
          if (is_q) {
            expand_q(tile, j + field(tile, kRows) / kUnit);
          } else {
            expand_kv(tile, j);
          }
          // For both sides: the stores of all lanes are generic and the tensor core reads them through the
          // async proxy; the next item arrives through it after their reads.
          ptx::fence_proxy_async_shared_cta();
          arrive(smem + kStagedEmpty + 8 * staged.stage());
          staged.advance();
          if (!is_q) {
            arrive(smem + kKvFull + 8 * kv.stage());
            kv.advance();
          } else if (j == -1) {
            arrive(smem + kQFull + 8 * (tile % kQStages));
          }
          if (++j >= end()) break;
          load_next(p);
        }
      } else {
        arrive(smem + kQFull + 8 * (tile % kQStages));
        if (last) return;
      }
    }
  }
};

}  // namespace mxfa
