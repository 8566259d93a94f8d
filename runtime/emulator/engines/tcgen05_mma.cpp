// tcgen05.mma (PTX ISA 9.7.16.10): checks at issue, and one instruction's work in the one or two CTAs of its
// group. With cta_group::2 the descriptors and addresses of the issuing thread hold in both CTAs, each for
// its own memories: CTA c of the pair has rows c * M/2 on of A and D, and columns c * N/2 on of B; every CTA
// multiplies its rows with all columns.
#include <cuda.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "engines/bulk.hpp"
#include "engines/engines.hpp"
#include "engines/operand_tile.hpp"
#include "engines/tmem.hpp"

namespace mxfa::emulator {
namespace {

constexpr uint32_t kLaneCount = TensorMemory::kLanes;
constexpr uint32_t kScaleAddressMask =
    0x3fffffff;  // CUTLASS keeps a byte number in bits [30:32) of scale addresses; hardware ignores it

[[noreturn]] void refuse(const std::string& text) {
  throw Fault(CUDA_ERROR_ILLEGAL_INSTRUCTION, "tcgen05." + text);
}

struct Issued {
  Instruction instruction;
  TensorMma mma;
  MatrixDescriptor a, b;
};

// How one CTA's share of a tile lies in its tensor memory.
uint32_t rows_of(const Instruction& i) { return static_cast<uint32_t>(i.m / i.cta_group); }
// cta_group::2 with M = 128 has 64 rows a CTA, in both halves of the lanes: lanes 0-63 compute the first N /
// 2 columns, lanes 64-127 the others (PTX ISA 9.7.16.10.5, layout B).
// .ws spreads a tile of 64 or 32 rows in the same way over two or four parts (layouts E and G).
uint32_t parts_of(const Instruction& i) {
  if (i.weight_stationary) return 128 / static_cast<uint32_t>(i.m);
  return i.cta_group == 2 && i.m == 128 ? 2 : 1;
}

// Lane of row i relative to the tile: rows are spread over the four quarters for M = 64 (PTX ISA 9.7.16.10.5,
// layout F).
uint32_t row_lane(const Instruction& i, uint32_t base_lane, uint32_t row) {
  return i.m == 64 && !i.weight_stationary ? base_lane + 32 * (row / 16) + row % 16 : row;
}

void fetch_a_from_tmem(const TensorMemory& tmem, const Issued& op, uint32_t first_lane, uint8_t* out) {
  const Instruction& i = op.instruction;
  const uint32_t bytes = static_cast<uint32_t>(format_bits(i.a)) / 8, per_word = 4 / bytes;
  const uint32_t column = tmem_column(op.mma.a_tmem), base = tmem_lane(op.mma.a_tmem);
  for (uint32_t c = 0; c < 8; ++c)
    for (uint32_t row = 0; row < rows_of(i); ++row) {
      // Each part of the data path reads its own copy of the rows.
      uint32_t word = tmem.word(row_lane(i, base, row) + first_lane, column + c);
      // Elements of 4 and 6 bits have a byte each, bits [2:6) and [1:7).
      if (narrow_bits(i.a) == 4) word = word >> 2 & 0x0f0f0f0f;
      if (narrow_bits(i.a) == 6) word = word >> 1 & 0x3f3f3f3f;
      for (uint32_t e = 0; e < per_word; ++e)  // little-endian inside a word
        std::memcpy(out + ((c * per_word + e) * Operands::kM + row) * bytes,
                    reinterpret_cast<const uint8_t*>(&word) + e * bytes, bytes);
    }
}

// Scale of tile row r: byte `byte` of lane r % 32, column r / 32, held alike by the quarters [first, first +
// count) (section "scale factor layout" of PTX ISA 9.7.16.10.7): hardware quarters read their own copy, so
// copies that differ are an error of the kernel.
template <class Set>
void scales(const TensorMemory& tmem, uint32_t address, uint32_t rows, int byte, uint32_t first,
            uint32_t count, const char* operand, Set set) {
  const uint32_t column = tmem_column(address & kScaleAddressMask);
  for (uint32_t r = 0; r < rows; ++r) {
    const uint32_t lane = 32 * first + r % 32;
    const uint32_t* words = &tmem.words[(column + r / 32) * kLaneCount + lane];
    const uint32_t scale = words[0] >> (8 * byte) & 255;
    for (uint32_t quarter = 1; quarter < count; ++quarter)
      if ((words[32 * quarter] >> (8 * byte) & 255) != scale)
        refuse(
            fmt::format("mma: the scale of row {} of {} differs between lanes {} and {} of column {} "
                        "({:#04x}, {:#04x}): every quarter "
                        "needs a copy, as tcgen05.cp with .warpx4 or .warpx2 makes",
                        r, operand, lane, lane + 32 * quarter, column + r / 32, scale,
                        words[32 * quarter] >> (8 * byte) & 255));
    set(r, static_cast<uint8_t>(scale));
  }
}

// Columns of B [first, first + count) of the whole tile: every CTA of a pair holds half of them.
void fetch_b(Cluster& cluster, const CtaGroup& group, const Issued& op, uint32_t first, uint32_t count,
             uint8_t* raw) {
  const Instruction& i = op.instruction;
  const uint32_t share = static_cast<uint32_t>(i.n / i.cta_group);
  for (const Cta* cta : group.ctas()) {
    if (first < share && count > 0) {
      const uint32_t here = std::min(count, share - first);
      fetch_rows(cluster, cta->rank, op.b, format_bits(i.b), i.b_mn_major, first, here, raw);
      raw += here * 32;
      first += here;
      count -= here;
    }
    first -= std::min(first, share);
  }
}

// D of one part of one CTA: its lanes and the rows that are written.
Accumulator accumulator(TensorMemory& tmem, const Issued& op, uint32_t odd, uint32_t first_lane) {
  Accumulator d;
  d.d = &tmem.words[tmem_column(op.mma.d) * kLaneCount];
  d.accumulate = op.mma.accumulate;
  d.scale_exponent = op.mma.scale_input_d;
  d.f16 = op.instruction.f16_result;
  for (uint32_t group = 0; group < rows_of(op.instruction) / 16; ++group) {
    const uint32_t lane = row_lane(op.instruction, tmem_lane(op.mma.d), group * 16) + first_lane;
    d.lane[group] = static_cast<uint8_t>(lane);
    d.enabled[group] = 0xffff;
    if (op.mma.disable_lanes)
      d.enabled[group] =
          static_cast<uint16_t>(~((*op.mma.disable_lanes)[4 * odd + lane / 32] >> (lane % 32)));
  }
  return d;
}

// UE8M0 scales of a tile whose elements have one scale a row.
void fetch_scales(const TensorMemory& tmem, const Issued& op, uint32_t first, uint32_t quarters,
                  Operands& o) {
  const Instruction& i = op.instruction;
  const auto exponent = [](uint8_t scale) { return scale == 0xff ? 0 : static_cast<int32_t>(scale) - 127; };
  scales(tmem, op.mma.scale_a, static_cast<uint32_t>(o.m), i.scale_a_byte, first, quarters, "A",
         [&](uint32_t r, uint8_t scale) {
           o.a_scale[r] = exponent(scale);
           if (scale == 0xff) o.a_nan[r / 16] = static_cast<uint16_t>(o.a_nan[r / 16] | 1 << r % 16);
         });
  scales(tmem, op.mma.scale_b, static_cast<uint32_t>(o.n), i.scale_b_byte, first, quarters, "B",
         [&](uint32_t r, uint8_t scale) {
           o.b_scale[r] = exponent(scale);
           if (scale == 0xff) o.b_nan[r] = 1;
         });
}

// kind::mxf4 and mxf4nvf4, one part: operands stay packed.
void perform_packed(const TensorMemory& tmem, const Issued& op, const Accumulator& d, uint32_t first,
                    uint32_t quarters, uint32_t columns, const uint8_t* a, const uint8_t* b) {
  const Instruction& i = op.instruction;
  PackedOperands o;
  o.m = static_cast<int>(rows_of(i)), o.n = static_cast<int>(columns), o.blocks = i.scale_blocks;
  o.ue4m3 = i.scale_ue4m3;
  o.negate = i.negate_a != i.negate_b;
  o.a = a, o.b = b;
  for (int block = 0; block < o.blocks; ++block) {
    const auto at = static_cast<size_t>(block);
    scales(tmem, op.mma.scale_a, rows_of(i), i.scale_a_byte + block, first, quarters, "A",
           [&](uint32_t r, uint8_t scale) { o.a_scale[r][at] = scale; });
    scales(tmem, op.mma.scale_b, columns, i.scale_b_byte + block, first, quarters, "B",
           [&](uint32_t r, uint8_t scale) { o.b_scale[r][at] = scale; });
  }
  packed_sums(o, d);
}

// 32 bytes of K of every row of A, from tensor memory; only for elements that stay packed.
void fetch_packed_a(const TensorMemory& tmem, const Issued& op, uint32_t first_lane, uint8_t* raw) {
  for (uint32_t row = 0; row < rows_of(op.instruction); ++row)
    for (uint32_t c = 0; c < 8; ++c) {
      const uint32_t word = tmem.word(row_lane(op.instruction, tmem_lane(op.mma.a_tmem), row) + first_lane,
                                      tmem_column(op.mma.a_tmem) + c);
      std::memcpy(raw + row * 32 + 4 * c, &word, 4);
    }
}

// The rows of one CTA.
void perform(Cta& cta, const CtaGroup& cta_group, const Issued& op) {
  Cluster& cluster = *cta.cluster;
  TensorMemory& tmem = *cta.tensor_memory;
  const Instruction& i = op.instruction;
  TileWorkspace& w = tile_workspace();
  Operands& o = w.operands;
  const uint32_t rows = rows_of(i), parts = parts_of(i), columns = static_cast<uint32_t>(i.n) / parts;
  o.m = static_cast<int>(rows), o.n = static_cast<int>(columns), o.k = i.k;
  const uint32_t odd = cta.rank & static_cast<uint32_t>(i.cta_group - 1);
  for (uint32_t part = 0; part < parts; ++part) {
    const uint32_t first_lane = 128 / parts * part, quarter = 4 / parts * part, quarters = 4 / parts;
    const Accumulator d = accumulator(tmem, op, odd, first_lane);
    if (i.packed_4bit()) {
      if (op.mma.a_in_tmem)
        fetch_packed_a(tmem, op, first_lane, w.turned);
      else
        fetch_rows(cluster, cta.rank, op.a, 8, false, 0, rows, w.turned);
      fetch_b(cluster, cta_group, op, part * columns, columns, w.raw);
      perform_packed(tmem, op, d, quarter, quarters, columns, w.turned, w.raw);
      continue;
    }
    if (op.mma.a_in_tmem) {
      fetch_a_from_tmem(tmem, op, first_lane, w.turned);
    } else if (part == 0) {
      fetch_rows(cluster, cta.rank, op.a, format_bits(i.a), i.a_mn_major, 0, rows, w.raw);
      expand_narrow(i.a, rows, w.raw);
      turn_a(format_bits(i.a), w.raw, rows, 0, w.turned);
    }
    decode_a(o, i.a, i.negate_a, w.turned);
    fetch_b(cluster, cta_group, op, part * columns, columns, w.raw);
    expand_narrow(i.b, columns, w.raw);
    decode_b(o, i.b, i.negate_b, w.raw);
    if (i.block_scaled) fetch_scales(tmem, op, quarter, quarters, o);
    if (i.kind == MmaKind::I8)
      integer_sums(o, d, i.saturate);
    else
      fused_sums(o, d, numerics_from_environment());
  }
}

// Checked at issue, so that the report names the issuing instruction.
void check_tmem(const Cta& cta, const Issued& op, const Warp* warp = nullptr) {
  const Instruction& i = op.instruction;
  const uint32_t lane = tmem_lane(op.mma.d);
  const int64_t columns = i.n / static_cast<int>(parts_of(i));
  const bool spread = i.m == 64 && !i.weight_stationary, lane_fits = lane == 0 || (spread && lane == 16);
  if (!lane_fits)
    refuse(fmt::format("mma: D at {:#010x}: its lane must be {} for M = {}", op.mma.d,
                       spread ? "0 or 16" : "0", i.m));
  require_columns(cta, tmem_column(op.mma.d), columns, "tcgen05.mma, D", warp);
  if (op.mma.a_in_tmem) {
    if (tmem_lane(op.mma.a_tmem) != lane)
      refuse(fmt::format("mma: A at {:#010x}: its lane must be that of D ({})", op.mma.a_tmem, lane));
    require_columns(cta, tmem_column(op.mma.a_tmem), 8, "tcgen05.mma, A", warp);
  }
  if (i.block_scaled) {
    const uint32_t a = op.mma.scale_a & kScaleAddressMask, b = op.mma.scale_b & kScaleAddressMask;
    if (tmem_lane(a) != 0 || tmem_lane(b) != 0)
      refuse(fmt::format("mma: scales at {:#010x} and {:#010x}: their lane must be 0", a, b));
    require_columns(cta, tmem_column(a), rows_of(i) / 32, "tcgen05.mma, scales of A", warp);
    require_columns(cta, tmem_column(b), (columns + 31) / 32, "tcgen05.mma, scales of B", warp);
  }
}

// What the instruction reads and writes in every CTA of its group.
Touches touches_of(const CtaGroup& group, const Issued& op) {
  const Instruction& i = op.instruction;
  const uint32_t columns = static_cast<uint32_t>(i.n) / parts_of(i);
  const bool spread = i.m == 64 && !i.weight_stationary;
  Touches list;
  const auto cells = [&](const Cta& cta, AccessKind kind, uint32_t column, uint32_t count, uint32_t lane,
                         uint32_t lanes) {
    list.push_back({MemorySpace::Tensor, kind, cta.rank, column, count, static_cast<uint8_t>(lane),
                    static_cast<uint8_t>(lanes)});
  };
  const auto tile = [&](const Cta& cta, AccessKind kind, uint32_t address, uint32_t count) {
    const bool all = !spread && (kind == AccessKind::Read || !op.mma.disable_lanes);
    if (all) return cells(cta, kind, tmem_column(address), count, 0, kLaneCount);
    const uint32_t odd = cta.rank & static_cast<uint32_t>(i.cta_group - 1);
    for (uint32_t lane = spread ? tmem_lane(address) : 0; lane < kLaneCount; lane += spread ? 32 : 16) {
      const bool disabled = kind == AccessKind::Write && op.mma.disable_lanes &&
                            ((*op.mma.disable_lanes)[4 * odd + lane / 32] >> (lane % 32) & 0xffff) == 0xffff;
      if (!disabled) cells(cta, kind, tmem_column(address), count, lane, 16);
    }
  };
  for (const Cta* cta : group.ctas()) {
    if (op.mma.a_in_tmem)
      tile(*cta, AccessKind::Read, op.mma.a_tmem, 8);
    else
      add_rows(list, cta->rank, op.a, format_bits(i.a), i.a_mn_major, 0, rows_of(i));
    add_rows(list, cta->rank, op.b, format_bits(i.b), i.b_mn_major, 0,
             static_cast<uint32_t>(i.n / i.cta_group));
    if (i.block_scaled) {
      const uint32_t a = op.mma.scale_a & kScaleAddressMask, b = op.mma.scale_b & kScaleAddressMask;
      cells(*cta, AccessKind::Read, tmem_column(a), (rows_of(i) + 31) / 32, 0, kLaneCount);
      cells(*cta, AccessKind::Read, tmem_column(b), (columns + 31) / 32, 0, kLaneCount);
    }
    const size_t before = list.size();
    tile(*cta, AccessKind::Write, op.mma.d, columns);
    for (size_t k = before; k < list.size(); ++k) list[k].updates = op.mma.accumulate;
  }
  return list;
}

}  // namespace

void tcgen05_mma(Warp& warp, int lane, const TensorMma& mma) {
  const CtaGroup group = cta_group_of(*warp.cta, mma.cta_group, "mma");
  Issued op;
  op.mma = mma;
  op.instruction = decode_instruction(mma);
  const Instruction& i = op.instruction;
  if (!mma.a_in_tmem) op.a = decode_matrix(mma.a_descriptor, "A");
  op.b = decode_matrix(mma.b_descriptor, "B");
  if (i.kind == MmaKind::TF32 && ((i.a_mn_major && op.a.swizzle != Swizzle::B128Atom32) ||
                                  (i.b_mn_major && op.b.swizzle != Swizzle::B128Atom32)))
    refuse("mma.kind::tf32: MN-major operands need the 128-byte swizzle with 32-byte atoms (mode 1)");
  for (const Cta* cta : group.ctas()) check_tmem(*cta, op, &warp);
  Cluster& cluster = *warp.cta->cluster;
  Counters& counters = cluster.grid->counters;
  ++counters.mma_instructions;
  counters.mma_macs += static_cast<uint64_t>(i.m) * static_cast<uint64_t>(i.n) * static_cast<uint64_t>(i.k);
  // The columns may have been given back between issue and execution.
  const uint64_t ticket = announce(warp, {0, AsyncKind::Mma, lane, kNoBarrier, mma.cta_group},
                                   [&] { return touches_of(group, op); });
  const auto run = [group, op, ticket] {
    for (const Cta* cta : group.ctas()) check_tmem(*cta, op);
    for (Cta* cta : group.ctas()) perform(*cta, group, op);
    report_performed(*group.cta[0]->cluster, ticket);
  };
  if (cluster.events.tensor_at_issue()) return run();
  cluster.events.submit(
      group.queue,
      fmt::format("tcgen05.mma {}x{}x{} into {:#010x} by {}", i.m, i.n, i.k, mma.d, issuer(warp, lane)), run);
}

}  // namespace mxfa::emulator
