// tcgen05.cp and commit (PTX ISA 9.7.16.9-10), and what must not be left when a CTA ends.  Everything that a
// CTA, or a pair of CTAs, issues to its tensor pipe runs in issue order, which is what every published kernel
// relies on; operands are read when an operation runs, not when it is issued.
#include <cuda.h>
#include <fmt/format.h>

#include <cstring>

#include "engines/bulk.hpp"
#include "engines/engines.hpp"
#include "engines/matrix_descriptor.hpp"
#include "engines/operand_tile.hpp"
#include "engines/tmem.hpp"
#include "engines/wgmma.hpp"
#include "memory/memory.hpp"

namespace mxfa::emulator {
namespace {

[[noreturn]] void refuse(const std::string& text, int code = CUDA_ERROR_ILLEGAL_INSTRUCTION) {
  throw Fault(code, "tcgen05." + text);
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

// 16 elements become bytes with 4 bits at [2:6) or 6 bits at [1:7), as tcgen05.mma reads them from tensor
// memory (CUTLASS; the PTX ISA shows it as a figure).
void expand(TmemCopyExpansion expansion, uint8_t* chunk) {
  if (expansion == TmemCopyExpansion::None) return;
  const bool four = expansion == TmemCopyExpansion::B4x16P64;
  expand_sixteen(four ? 4 : 6, chunk);
  for (int k = 0; k < 16; ++k) chunk[k] = static_cast<uint8_t>(chunk[k] << (four ? 2 : 1));
}

void copy_rows(Cta& cta, TmemCopyShape shape, TmemCopyExpansion expansion, uint32_t address,
               const MatrixDescriptor& source) {
  TensorMemory& tmem = *cta.tensor_memory;
  const CopyShape s = copy_shape(shape);
  const uint32_t column = tmem_column(address);
  for (uint32_t row = 0; row < s.rows; ++row) {
    uint32_t words[8] = {};
    for (uint32_t half = 0; half < s.columns / 4; ++half) {
      const uint32_t offset = element_offset(source, 8, false, row, half * 16);
      std::memcpy(words + 4 * half, shared_range(*cta.cluster, cta.rank << kRankShift | offset, 16, false),
                  16);
      expand(expansion, reinterpret_cast<uint8_t*>(words + 4 * half));
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

Touches touches_of(const CtaGroup& group, TmemCopyShape shape, uint32_t address,
                   const MatrixDescriptor& source) {
  const CopyShape s = copy_shape(shape);
  const uint32_t column = tmem_column(address);
  Touches list;
  for (const Cta* cta : group.ctas()) {
    for (uint32_t row = 0; row < s.rows; ++row)
      for (uint32_t half = 0; half < s.columns / 4; ++half)
        list.push_back({MemorySpace::Shared, AccessKind::Read, cta->rank,
                        element_offset(source, 8, false, row, half * 16), 16});
    const bool four_rows = shape == TmemCopyShape::S4x256b;
    for (uint32_t part = 0; part < (four_rows ? 4 : 1); ++part)
      list.push_back({MemorySpace::Tensor, AccessKind::Write, cta->rank, column, s.columns,
                      static_cast<uint8_t>(four_rows ? 32 * part + tmem_lane(address) : 0),
                      static_cast<uint8_t>(four_rows ? 1 : 128)});
  }
  return list;
}

}  // namespace

void tcgen05_cp(Warp& warp, int lane, TmemCopyShape shape, uint32_t address, uint64_t descriptor,
                int cta_group, TmemCopyExpansion expansion) {
  const CtaGroup group = cta_group_of(*warp.cta, cta_group, "cp");
  const CopyShape s = copy_shape(shape);
  const MatrixDescriptor source = decode_matrix(descriptor, "the source of tcgen05.cp");
  const uint32_t lane_limit = shape == TmemCopyShape::S4x256b ? 32 : 1;
  if (tmem_lane(address) >= lane_limit)
    refuse(fmt::format("cp.{}: lane {} of address {:#010x} must be {}", s.name, tmem_lane(address), address,
                       lane_limit == 1 ? "0" : "below 32"));
  for (Cta* cta : group.ctas())
    require_columns(*cta, tmem_column(address), s.columns, fmt::format("tcgen05.cp.{}", s.name), &warp);
  // Both CTAs of a pair copy, each from its own shared memory to its own tensor memory.
  const uint64_t ticket = announce(warp, {0, AsyncKind::TmemCopy, lane, kNoBarrier, cta_group},
                                   [&] { return touches_of(group, shape, address, source); });
  const auto copy = [group, shape, expansion, address, source, name = s.name, columns = s.columns, ticket] {
    for (Cta* cta : group.ctas()) {
      require_columns(*cta, tmem_column(address), columns, fmt::format("tcgen05.cp.{}", name));
      copy_rows(*cta, shape, expansion, address, source);
    }
    report_performed(*group.cta[0]->cluster, ticket);
  };
  EventQueue& events = warp.cta->cluster->events;
  if (events.tensor_at_issue()) return copy();
  events.submit(group.queue,
                fmt::format("tcgen05.cp.{} into {:#010x} by {}", s.name, address, issuer(warp, lane)), copy);
}

void tcgen05_commit(Warp& warp, int lane, uint32_t mbarrier, std::optional<uint16_t> multicast,
                    int cta_group) {
  Cluster& cluster = *warp.cta->cluster;
  const CtaGroup group = cta_group_of(*warp.cta, cta_group, "commit");
  const std::vector<uint32_t> barriers = destinations(warp, mbarrier, multicast);
  for (const uint32_t barrier : barriers)
    if (barrier % 8 != 0) throw_shared_fault(cluster, barrier, 8, true, false);
  const std::string what = fmt::format("tcgen05.commit by {}", issuer(warp, lane));
  const uint64_t ticket = new_ticket(*cluster.grid);
  observe(*cluster.grid, [&](Observer& o) { o.tensor_commit(warp, ticket, lane, cta_group, barriers); });
  cluster.events.submit(group.queue, what, [&cluster, barriers, what, ticket] {
    for (const uint32_t barrier : barriers) mbarrier_arrive_async(cluster, barrier, 1, what, ticket);
  });
}

std::vector<std::string> engines_at_exit(Cta& cta) {
  std::vector<std::string> findings;
  const size_t tensor =
      cta.cluster->events.size(tensor_queue(cta.rank)) + cta.cluster->events.size(pair_queue(cta.rank));
  if (tensor != 0)
    findings.push_back(fmt::format(
        "{} tensor-core operations have not completed: wait for a tcgen05.commit before the end", tensor));
  wgmma_at_exit(cta, findings);
  for (const Warp& warp : cta.warps) {
    if (warp.pending_tmem_loads)
      findings.push_back(fmt::format("warp {}: tcgen05.ld without wait::ld", warp.index));
  }
  if (cta.tensor_memory) {
    uint32_t held = 0, last = 0;
    for (uint32_t group = 0; group < cta.tensor_memory->owner.size(); ++group) {
      const uint32_t owner = cta.tensor_memory->owner[group];
      held += owner != 0 ? 32 : 0;
      if (owner != 0 && owner != last)
        observe(*cta.cluster->grid, [&](Observer& o) {
          o.misuse(*cta.cluster, nullptr, Misuse::TmemHeld, cta.rank << 16 | group * 32, "");
        });
      last = owner;
    }
    if (held)
      findings.push_back(
          fmt::format("{} tensor-memory columns are still allocated: tcgen05.dealloc is missing", held));
  }
  return findings;
}

}  // namespace mxfa::emulator
