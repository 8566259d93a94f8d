// tcgen05.mma, cp and commit (PTX ISA 9.7.16.9-10): issue, order and completion.  Everything a CTA issues to
// its tensor pipe runs in issue order, which is what every published kernel relies on; operands are read when
// an operation runs, not when it is issued.
#include <cuda.h>
#include <fmt/format.h>

#include <cstring>

#include "engines/bulk.hpp"
#include "engines/engines.hpp"
#include "engines/operand_tile.hpp"
#include "engines/tmem.hpp"
#include "engines/wgmma.hpp"
#include "memory/memory.hpp"

namespace mxfa::emulator {
namespace {

constexpr uint32_t kLaneCount = TensorMemory::kLanes;
constexpr uint32_t kScaleAddressMask =
    0x3fffffff;  // CUTLASS keeps a byte number in bits [30:32) of scale addresses; hardware ignores it

[[noreturn]] void refuse(const std::string& text, int code = CUDA_ERROR_ILLEGAL_INSTRUCTION) {
  throw Fault(code, "tcgen05." + text);
}

struct Issued {
  Instruction instruction;
  TensorMma mma;
  MatrixDescriptor a, b;
};

// Lane of row i relative to the tile: rows are spread over the four quarters for M = 64 (PTX ISA 9.7.16.10.5,
// layout F).
uint32_t row_lane(const Instruction& i, uint32_t base_lane, uint32_t row) {
  return i.m == 128 ? row : base_lane + 32 * (row / 16) + row % 16;
}

void fetch_a_from_tmem(const TensorMemory& tmem, const Issued& op, uint8_t* out) {
  const uint32_t bytes = static_cast<uint32_t>(format_bits(op.instruction.a)) / 8, per_word = 4 / bytes;
  const uint32_t column = tmem_column(op.mma.a_tmem), base = tmem_lane(op.mma.a_tmem);
  for (uint32_t c = 0; c < 8; ++c)
    for (uint32_t row = 0; row < static_cast<uint32_t>(op.instruction.m); ++row) {
      const uint32_t word = tmem.word(row_lane(op.instruction, base, row), column + c);
      for (uint32_t e = 0; e < per_word; ++e)  // little-endian inside a word
        std::memcpy(out + ((c * per_word + e) * Operands::kM + row) * bytes,
                    reinterpret_cast<const uint8_t*>(&word) + e * bytes, bytes);
    }
}

// Scale of tile row r: byte `byte` of lane r % 32, column r / 32, held alike by all four quarters (section
// "scale factor layout" of PTX ISA 9.7.16.10.7): hardware quarters read their own copy, so copies that differ
// are an error of the kernel.
template <class Nan>
void scales(const TensorMemory& tmem, uint32_t address, int rows, int byte, const char* operand,
            int32_t* exponent, Nan set_nan) {
  const uint32_t column = tmem_column(address & kScaleAddressMask);
  for (uint32_t r = 0; r < static_cast<uint32_t>(rows); ++r) {
    const uint32_t* words = &tmem.words[(column + r / 32) * kLaneCount + r % 32];
    const uint32_t scale = words[0] >> (8 * byte) & 255;
    for (uint32_t quarter = 1; quarter < 4; ++quarter)
      if ((words[32 * quarter] >> (8 * byte) & 255) != scale)
        refuse(
            fmt::format("mma: the scale of row {} of {} differs between lanes {} and {} of column {} "
                        "({:#04x}, {:#04x}): every quarter "
                        "needs a copy, as tcgen05.cp.32x128b.warpx4 makes",
                        r, operand, r % 32, r % 32 + 32 * quarter, column + r / 32, scale,
                        words[32 * quarter] >> (8 * byte) & 255));
    exponent[r] = static_cast<int32_t>(scale) - 127;  // UE8M0
    if (scale == 255) {
      exponent[r] = 0;
      set_nan(r);
    }
  }
}

void perform(Cta& cta, const Issued& op) {
  Cluster& cluster = *cta.cluster;
  TensorMemory& tmem = *cta.tensor_memory;
  const Instruction& i = op.instruction;
  TileWorkspace& w = tile_workspace();
  Operands& o = w.operands;
  o.m = i.m, o.n = i.n, o.k = i.k;
  const auto m = static_cast<uint32_t>(i.m), n = static_cast<uint32_t>(i.n);
  const int a_bits = format_bits(i.a), b_bits = format_bits(i.b);

  if (op.mma.a_in_tmem) {
    fetch_a_from_tmem(tmem, op, w.turned);
  } else {
    fetch_rows(cluster, cta.rank, op.a, a_bits, i.a_mn_major, 0, m, w.raw);
    turn_a(a_bits, w.raw, m, 0, w.turned);
  }
  decode_a(o, i.a, i.negate_a, w.turned);
  fetch_rows(cluster, cta.rank, op.b, b_bits, i.b_mn_major, 0, n, w.raw);
  decode_b(o, i.b, i.negate_b, w.raw);
  if (i.block_scaled) {
    scales(tmem, op.mma.scale_a, i.m, i.scale_a_byte, "A", o.a_scale,
           [&](uint32_t r) { o.a_nan[r / 16] = static_cast<uint16_t>(o.a_nan[r / 16] | 1 << r % 16); });
    scales(tmem, op.mma.scale_b, i.n, i.scale_b_byte, "B", o.b_scale, [&](uint32_t r) { o.b_nan[r] = 1; });
  }

  Accumulator d;
  d.d = &tmem.words[tmem_column(op.mma.d) * kLaneCount];
  d.accumulate = op.mma.accumulate;
  d.scale_exponent = op.mma.scale_input_d;
  d.f16 = i.f16_result;
  for (uint32_t group = 0; group < m / 16; ++group) {
    const uint32_t lane = row_lane(i, tmem_lane(op.mma.d), group * 16);
    d.lane[group] = static_cast<uint8_t>(lane);
    d.enabled[group] = 0xffff;
    if (op.mma.disable_lanes)
      d.enabled[group] = static_cast<uint16_t>(~((*op.mma.disable_lanes)[lane / 32] >> (lane % 32)));
  }
  if (i.kind == MmaKind::I8)
    integer_sums(o, d, i.saturate);
  else
    fused_sums(o, d, numerics_from_environment());
}

// Checked at issue, so that the report names the issuing instruction.
void check_tmem(const Cta& cta, const Issued& op) {
  const Instruction& i = op.instruction;
  const uint32_t lane = tmem_lane(op.mma.d);
  const bool lane_fits = i.m == 128 ? lane == 0 : lane == 0 || lane == 16;
  if (!lane_fits)
    refuse(fmt::format("mma: D at {:#010x}: its lane must be {} for M = {}", op.mma.d,
                       i.m == 128 ? "0" : "0 or 16", i.m));
  require_columns(cta, tmem_column(op.mma.d), i.n, "tcgen05.mma, D");
  if (op.mma.a_in_tmem) {
    if (tmem_lane(op.mma.a_tmem) != lane)
      refuse(fmt::format("mma: A at {:#010x}: its lane must be that of D ({})", op.mma.a_tmem, lane));
    require_columns(cta, tmem_column(op.mma.a_tmem), 8, "tcgen05.mma, A");
  }
  if (i.block_scaled) {
    const uint32_t a = op.mma.scale_a & kScaleAddressMask, b = op.mma.scale_b & kScaleAddressMask;
    if (tmem_lane(a) != 0 || tmem_lane(b) != 0)
      refuse(fmt::format("mma: scales at {:#010x} and {:#010x}: their lane must be 0", a, b));
    require_columns(cta, tmem_column(a), i.m / 32, "tcgen05.mma, scales of A");
    require_columns(cta, tmem_column(b), (i.n + 31) / 32, "tcgen05.mma, scales of B");
  }
}

struct CopyShape {
  uint32_t rows, columns;  // of 32 bits
  const char* name;
};
CopyShape copy_shape(TmemCopyShape shape) {
  switch (shape) {
    case TmemCopyShape::S128x256b:
      return {128, 8, "128x256b"};
    case TmemCopyShape::S128x128b:
      return {128, 4, "128x128b"};
    case TmemCopyShape::S4x256b:
      return {4, 8, "4x256b"};
    case TmemCopyShape::S64x128b_02_13:
      return {64, 4, "64x128b.warpx2::02_13"};
    case TmemCopyShape::S64x128b_01_23:
      return {64, 4, "64x128b.warpx2::01_23"};
    case TmemCopyShape::S32x128b:
      return {32, 4, "32x128b.warpx4"};
  }
  return {};
}

void copy_rows(Cta& cta, TmemCopyShape shape, uint32_t address, const MatrixDescriptor& source) {
  TensorMemory& tmem = *cta.tensor_memory;
  const CopyShape s = copy_shape(shape);
  const uint32_t column = tmem_column(address);
  for (uint32_t row = 0; row < s.rows; ++row) {
    uint32_t words[8] = {};
    for (uint32_t half = 0; half < s.columns / 4; ++half) {
      const uint32_t offset = element_offset(source, 8, false, row, half * 16);
      std::memcpy(words + 4 * half, shared_range(*cta.cluster, cta.rank << kRankShift | offset, 16, false),
                  16);
    }
    const auto put = [&](uint32_t lane) {
      for (uint32_t c = 0; c < s.columns; ++c) tmem.word(lane, column + c) = words[c];
    };
    switch (shape) {
      case TmemCopyShape::S128x256b:
      case TmemCopyShape::S128x128b:
        put(row);
        break;
      case TmemCopyShape::S4x256b:
        put(32 * row + tmem_lane(address));
        break;
      case TmemCopyShape::S64x128b_02_13:
        put(row), put(row + 64);
        break;
      case TmemCopyShape::S64x128b_01_23:
        put(row % 32 + row / 32 * 64), put(row % 32 + row / 32 * 64 + 32);
        break;
      case TmemCopyShape::S32x128b:
        for (uint32_t quarter = 0; quarter < 4; ++quarter) put(row + 32 * quarter);
        break;
    }
  }
}

}  // namespace

void tcgen05_mma(Warp& warp, int lane, const TensorMma& mma) {
  Cta& cta = *warp.cta;
  Issued op;
  op.mma = mma;
  op.instruction = decode_instruction(mma);
  const Instruction& i = op.instruction;
  if (!mma.a_in_tmem) op.a = decode_matrix(mma.a_descriptor, "A");
  op.b = decode_matrix(mma.b_descriptor, "B");
  if (i.kind == MmaKind::TF32 && ((i.a_mn_major && op.a.swizzle != Swizzle::B128Atom32) ||
                                  (i.b_mn_major && op.b.swizzle != Swizzle::B128Atom32)))
    refuse("mma.kind::tf32: MN-major operands need the 128-byte swizzle with 32-byte atoms (mode 1)");
  check_tmem(cta, op);
  Counters& counters = cta.cluster->grid->counters;
  ++counters.mma_instructions;
  counters.mma_macs += static_cast<uint64_t>(i.m) * static_cast<uint64_t>(i.n) * static_cast<uint64_t>(i.k);
  EventQueue& events = cta.cluster->events;
  const uint64_t queue = tensor_queue(cta.rank);
  if (events.immediate() && events.size(queue) == 0) return perform(cta, op);
  events.submit(
      queue,
      fmt::format("tcgen05.mma {}x{}x{} into {:#010x} by {}", i.m, i.n, i.k, mma.d, issuer(warp, lane)),
      [&cta, op] {
        check_tmem(cta, op);  // the columns may have been given back meanwhile
        perform(cta, op);
      });
}

void tcgen05_cp(Warp& warp, int lane, TmemCopyShape shape, uint32_t address, uint64_t descriptor,
                int cta_group) {
  Cta& cta = *warp.cta;
  const CopyShape s = copy_shape(shape);
  if (cta_group != 1)
    refuse(fmt::format("cp.cta_group::{} is not emulated", cta_group), CUDA_ERROR_NOT_SUPPORTED);
  const MatrixDescriptor source = decode_matrix(descriptor, "the source of tcgen05.cp");
  const uint32_t lane_limit = shape == TmemCopyShape::S4x256b ? 32 : 1;
  if (tmem_lane(address) >= lane_limit)
    refuse(fmt::format("cp.{}: lane {} of address {:#010x} must be {}", s.name, tmem_lane(address), address,
                       lane_limit == 1 ? "0" : "below 32"));
  require_columns(cta, tmem_column(address), s.columns, fmt::format("tcgen05.cp.{}", s.name));
  EventQueue& events = cta.cluster->events;
  const uint64_t queue = tensor_queue(cta.rank);
  if (events.immediate() && events.size(queue) == 0) return copy_rows(cta, shape, address, source);
  events.submit(queue, fmt::format("tcgen05.cp.{} into {:#010x} by {}", s.name, address, issuer(warp, lane)),
                [&cta, shape, address, source] { copy_rows(cta, shape, address, source); });
}

void tcgen05_commit(Warp& warp, int lane, uint32_t mbarrier, std::optional<uint16_t> multicast,
                    int cta_group) {
  Cta& cta = *warp.cta;
  Cluster& cluster = *cta.cluster;
  if (cta_group != 1)
    refuse(fmt::format("commit.cta_group::{} is not emulated", cta_group), CUDA_ERROR_NOT_SUPPORTED);
  const std::vector<uint32_t> barriers = destinations(warp, mbarrier, multicast);
  for (const uint32_t barrier : barriers)
    if (barrier % 8 != 0) throw_shared_fault(cluster, barrier, 8, true, false);
  const std::string what = fmt::format("tcgen05.commit by {}", issuer(warp, lane));
  cluster.events.submit(tensor_queue(cta.rank), what, [&cluster, barriers, what] {
    for (const uint32_t barrier : barriers) mbarrier_arrive_async(cluster, barrier, 1, what);
  });
}

std::vector<std::string> engines_at_exit(Cta& cta) {
  std::vector<std::string> findings;
  const size_t tensor = cta.cluster->events.size(tensor_queue(cta.rank));
  if (tensor != 0)
    findings.push_back(fmt::format(
        "{} tensor-core operations have not completed: wait for a tcgen05.commit before the end", tensor));
  wgmma_at_exit(cta, findings);
  for (const Warp& warp : cta.warps) {
    if (warp.pending_tmem_loads)
      findings.push_back(fmt::format("warp {}: tcgen05.ld without wait::ld", warp.index));
    if (warp.pending_tmem_stores)
      findings.push_back(fmt::format("warp {}: tcgen05.st without wait::st", warp.index));
    for (const auto& [lane, state] : warp.bulk) {
      size_t unread = state.current && state.current->pending_reads ? 1 : 0;
      for (const auto& group : state.committed) unread += group->pending_reads != 0;
      if (unread)
        findings.push_back(fmt::format(
            "warp {} lane {}: {} bulk groups still read shared memory: wait_group.read 0 is missing",
            warp.index, lane, unread));
    }
  }
  if (cta.tensor_memory) {
    uint32_t held = 0;
    for (const uint32_t owner : cta.tensor_memory->owner) held += owner != 0 ? 32 : 0;
    if (held)
      findings.push_back(
          fmt::format("{} tensor-memory columns are still allocated: tcgen05.dealloc is missing", held));
  }
  return findings;
}

}  // namespace mxfa::emulator
