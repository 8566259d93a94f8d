// Marks writes, looks at reads.
#include "checks/initialised.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "core/kernel.hpp"
#include "memory/memory.hpp"

namespace mxfa::emulator {

void Initialised::cluster_begins(Cluster& cluster) {
  program_ = cluster.grid->kernel->program;
  Memory& memory = memories_[&cluster];
  memory = {};
  for (const auto& cta : cluster.ctas) memory.shared.emplace_back(cta->shared_size);
  if (cluster.ctas.front()->tensor_memory) memory.tensor.resize(cluster.ctas.size());
  last_ = nullptr;
}

void Initialised::cluster_ends(Cluster& cluster) {
  memories_.erase(&cluster);
  last_ = nullptr;
}

// Something may read what it does not use: published kernels copy and multiply whole tiles of which only a
// part counts, and load whole vectors of tensor memory.  What a thread loads from shared or global memory, it
// mostly wants.
void Initialised::report(Warp& warp, int lane, MemorySpace space, uint64_t where, const std::string& what,
                         bool harmful) {
  const char* rule = space == MemorySpace::Shared   ? "uninitialised-shared-read"
                     : space == MemorySpace::Tensor ? "uninitialised-tensor-read"
                                                    : "uninitialised-global-read";
  const Severity severity = harmful || mode_ == CheckMode::Strict ? Severity::Error : Severity::Advice;
  findings_.add(rule, severity, warp.pc, 0, [&] {
    Site site = Site::of(warp);
    if (lane >= 0) site.lane = static_cast<uint32_t>(lane);
    const auto rank = static_cast<uint32_t>(where >> kRankShift),
               offset = shared_offset(static_cast<uint32_t>(where));
    std::string place, since;
    switch (space) {
      case MemorySpace::Shared:
        place = fmt::format("shared memory of cta {}, offset {:#x}{}", rank, offset,
                            shared_name(*program_, *warp.cta->cluster->ctas[rank], offset));
        since = "the CTA began";
        break;
      case MemorySpace::Tensor:
        place = fmt::format("tensor memory of cta {}, column {}, lane {}", rank,
                            offset % TensorMemory::kColumns, offset / TensorMemory::kColumns);
        since = "its allocation";
        break;
      case MemorySpace::Global:
        place = "global memory, " + warp.cta->cluster->grid->arena->describe(where);
        since = "its allocation";
        break;
    }
    return fmt::format(
        "  {}\n{}\n  missing: nothing has written it since {}\n  remedy: write it before (zeros, if it only "
        "pads), or do not read it",
        place, describe_site(*program_, what, site), since);
  });
}

void Initialised::range(Warp& warp, const LaneAccess& a, Memory& memory, int lane, uint64_t begin,
                        uint64_t bytes) {
  const uint64_t rank = begin >> kRankShift, offset = shared_offset(static_cast<uint32_t>(begin));
  if (a.space == MemorySpace::Shared && rank < memory.shared.size() && memory.shared[rank].all(offset, bytes))
    return;  // nothing to say, nothing to mark
  const bool reads = a.kind != AccessKind::Write, writes = a.kind != AccessKind::Read;
  const char* what = a.copy_async ? "read by cp.async" : reads && writes ? "atomic access" : "read";
  if (a.space == MemorySpace::Global) {
    WrittenBytes& written = warp.cta->cluster->grid->arena->written;
    if (written.empty()) return;
    if (reads)
      if (const auto clear = written.first_unwritten(begin, bytes))
        report(warp, lane, a.space, *clear, what, true);
    if (writes) written.mark(begin, bytes);
    return;
  }
  if (rank >= memory.shared.size()) return;
  if (reads)
    if (const auto clear = memory.shared[rank].first_clear(offset, bytes))
      report(warp, lane, a.space, rank << kRankShift | *clear, what, true);
  if (writes) memory.shared[rank].mark(offset, bytes);
}

void Initialised::access(Warp& warp, const LaneAccess& a) {
  Memory& memory = of(*warp.cta->cluster);
  // Lanes that follow each other in memory are one range.
  uint64_t begin = 0, end = 0;
  int first = 0;
  for (uint32_t m = a.mask; m; m &= m - 1) {
    const int lane = std::countr_zero(m);
    const uint64_t address = a.address[lane];
    if (address != end || end == begin) {
      if (end != begin) range(warp, a, memory, first, begin, end - begin);
      begin = address;
      first = lane;
    }
    end = address + a.bytes;
  }
  if (end != begin) range(warp, a, memory, first, begin, end - begin);
}

void Initialised::tensor(Warp& warp, const AsyncWork& work, const Touch& t) {
  Memory& memory = of(*warp.cta->cluster);
  if (t.rank >= memory.tensor.size()) return;
  auto& quarters = memory.tensor[t.rank];
  const bool reads = t.kind != AccessKind::Write || t.updates;
  for (uint32_t quarter = t.lane / 32u; quarter < 4 && quarter * 32 < uint32_t{t.lane} + t.lanes; ++quarter) {
    const uint32_t low = std::max<uint32_t>(t.lane, quarter * 32) - quarter * 32,
                   high = std::min<uint32_t>(t.lane + t.lanes - quarter * 32, 32);
    const uint32_t mask = (high >= 32 ? ~0u : (1u << high) - 1) & ~((1u << low) - 1);
    for (uint64_t column = t.begin; column < t.begin + t.count && column < TensorMemory::kColumns; ++column) {
      uint32_t& written = quarters[quarter][column];
      if (const uint32_t clear = mask & ~written; reads && clear) [[unlikely]] {
        const uint32_t at = quarter * 32 + static_cast<uint32_t>(std::countr_zero(clear));
        report(warp, work.lane, MemorySpace::Tensor,
               uint64_t{t.rank} << kRankShift | (uint64_t{at} * TensorMemory::kColumns + column),
               work.kind == AsyncKind::TmemLoad ? "tcgen05.ld"
               : t.updates                      ? "tcgen05.mma that adds to it"
                                                : "tcgen05.mma",
               work.kind != AsyncKind::TmemLoad);
      }
      if (t.kind != AccessKind::Read) written |= mask;
    }
  }
}

void Initialised::issue(Warp& warp, const AsyncWork& work, std::span<const Touch> touches) {
  // Reads come before writes: what an operation writes, it does not read.
  for (const Touch& t : touches) {
    const bool reads = t.kind != AccessKind::Write;
    if (t.space == MemorySpace::Tensor) {
      tensor(warp, work, t);
    } else if (reads && t.space == MemorySpace::Global) {
      const auto clear = warp.cta->cluster->grid->arena->written.first_unwritten(t.begin, t.count);
      if (clear)
        report(warp, work.lane, t.space, *clear,
               t.kind == AccessKind::Atomic ? "reduction by an asynchronous copy"
                                            : "read by an asynchronous copy",
               t.kind == AccessKind::Atomic);
    } else if (reads && t.space == MemorySpace::Shared) {
      Memory& memory = of(*warp.cta->cluster);
      if (t.rank >= memory.shared.size()) continue;
      if (const auto clear = memory.shared[t.rank].first_clear(t.begin, t.count))
        report(warp, work.lane, t.space, uint64_t{t.rank} << kRankShift | *clear,
               work.kind == AsyncKind::Wgmma || work.kind == AsyncKind::Mma ? "operand of the tensor core"
               : t.kind == AccessKind::Atomic ? "reduction by an asynchronous copy"
                                              : "read by an asynchronous copy",
               t.kind == AccessKind::Atomic);
    }
  }
  for (const Touch& t : touches) {
    if (t.kind == AccessKind::Read) continue;
    if (t.space == MemorySpace::Global) {
      warp.cta->cluster->grid->arena->written.mark(t.begin, t.count);
    } else if (t.space == MemorySpace::Shared) {
      Memory& memory = of(*warp.cta->cluster);
      if (t.rank < memory.shared.size()) memory.shared[t.rank].mark(t.begin, t.count);
    }
  }
}

void Initialised::mbarrier_init(Warp& warp, uint32_t mbarrier, uint32_t) {
  Memory& memory = of(*warp.cta->cluster);
  const uint32_t rank = shared_rank(mbarrier);
  if (rank < memory.shared.size()) memory.shared[rank].mark(shared_offset(mbarrier), 8);
}

void Initialised::tmem_alloc(Warp& warp, uint32_t rank, uint32_t column, uint32_t columns, int,
                             uint32_t destination) {
  Memory& memory = of(*warp.cta->cluster);
  if (shared_rank(destination) < memory.shared.size())
    memory.shared[shared_rank(destination)].mark(shared_offset(destination), 4);
  if (rank >= memory.tensor.size()) return;
  for (auto& quarter : memory.tensor[rank])
    for (uint32_t c = column; c < column + columns; ++c) quarter[c] = 0;
}

}  // namespace mxfa::emulator
