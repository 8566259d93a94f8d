// Findings about allocations of tensor memory, setmaxnreg and what is still at work when a CTA ends.
#include "checks/resources.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "core/kernel.hpp"
#include "engines/tmem.hpp"

namespace mxfa::emulator {

void Resources::cluster_begins(Cluster& cluster) {
  program_ = cluster.grid->kernel->program;
  ctas_of(cluster).assign(cluster.ctas.size(), {});
}

void Resources::tmem_alloc(Warp& warp, uint32_t rank, uint32_t column, uint32_t columns, int, uint32_t) {
  ctas_of(*warp.cta->cluster)[rank].blocks[column] = {columns, Site::of(warp), {}, false};
}

void Resources::tmem_dealloc(Warp& warp, uint32_t rank, uint32_t column, uint32_t) {
  Block& block = ctas_of(*warp.cta->cluster)[rank].blocks[column];
  block.freed = true;
  block.dealloc = Site::of(warp);
}

void Resources::tmem_relinquish(Warp& warp) {
  CtaState& cta = ctas_of(*warp.cta->cluster)[warp.cta->rank];
  cta.relinquish = Site::of(warp);
  cta.relinquished = true;
}

// The newest allocation that holds, or held, the column.
const Resources::Block* Resources::block_at(const CtaState& cta, uint32_t column) const {
  auto it = cta.blocks.upper_bound(column);
  if (it == cta.blocks.begin()) return nullptr;
  --it;
  return column < it->first + it->second.columns ? &it->second : nullptr;
}

void Resources::misuse(Cluster& cluster, const Warp* warp, Misuse misuse, uint32_t where,
                       const std::string& who) {
  const Site site = warp ? Site::of(*warp) : Site{};
  const uint32_t rank = warp ? warp->cta->rank : 0;
  const CtaState& cta = ctas_of(cluster)[rank];
  const std::string second = warp ? describe_site(*program_, who, site) : "  " + who;
  const auto add = [&](const char* rule, Severity severity, const std::string& place, const Site* other,
                       const char* other_name, const std::string& missing, const std::string& remedy) {
    findings_.add(rule, severity, site.pc, other ? other->pc : 0, [&] {
      return fmt::format("  {}\n{}{}\n  missing: {}\n  remedy: {}", place,
                         other ? describe_site(*program_, other_name, *other) + "\n" : "", second, missing,
                         remedy);
    });
  };
  const uint32_t column = tmem_column(where);
  const Block* block = block_at(cta, column);
  const Severity letter = mode_ == CheckMode::Strict ? Severity::Error : Severity::Advice;
  const std::string columns = fmt::format("tensor memory of cta {}, column {}", rank, column);
  switch (misuse) {
    case Misuse::TmemNotAllocated:
      return add("tmem-not-allocated", Severity::Error, columns,
                 !block         ? nullptr
                 : block->freed ? &block->dealloc
                                : &block->alloc,
                 block && block->freed ? "tcgen05.dealloc" : "tcgen05.alloc",
                 block && block->freed ? "the columns have been given back"
                                       : "no allocation of this CTA covers all of the columns",
                 "use the address that tcgen05.alloc has written, within its columns and before "
                 "tcgen05.dealloc");
    case Misuse::TmemDealloc:
      return add(block && block->freed ? "tmem-double-free" : "tmem-wrong-free", Severity::Error, columns,
                 !block         ? nullptr
                 : block->freed ? &block->dealloc
                                : &block->alloc,
                 block && block->freed ? "first tcgen05.dealloc" : "tcgen05.alloc",
                 "no live allocation has this base and size",
                 "one tcgen05.dealloc for each tcgen05.alloc, with its address and number of columns");
    case Misuse::TmemOtherLanes:
    case Misuse::TmemLaneZero:  // DeepGEMM has it stand for the warp's own first lane, and devices take it so
      return add("tmem-other-lanes", misuse == Misuse::TmemLaneZero ? letter : Severity::Error,
                 fmt::format("tensor memory of cta {}, lane {}", rank, where >> 16), nullptr, "",
                 fmt::format("warp {} reaches lanes {} to {} only", site.warp, site.warp % 4 * 32,
                             site.warp % 4 * 32 + 31),
                 "give each warp the lanes of its number modulo 4");
    case Misuse::TmemAcross:
      return add(
          "tmem-across-allocations", letter, columns, block ? &block->alloc : nullptr, "tcgen05.alloc",
          "the columns begin in this allocation and end in another one: nothing promises that they are "
          "neighbours",
          "one allocation for columns that one instruction uses together");
    case Misuse::TmemAlloc:
      return add("tmem-alloc-order", Severity::Error, fmt::format("tensor memory of cta {}", rank),
                 cta.relinquished ? &cta.relinquish : nullptr, "tcgen05.relinquish_alloc_permit",
                 "the CTA may not allocate (again, or so much)",
                 "allocate everything before relinquish_alloc_permit, the largest first");
    case Misuse::TmemHeld: {
      const auto held_rank = where >> 16;
      const Block* held = block_at(ctas_of(cluster)[held_rank], column);
      if (!held) return;
      findings_.add("tmem-leaked", Severity::Error, held->alloc.pc, 0, [&] {
        return fmt::format(
            "  tensor memory of cta {}, columns {} to {}\n{}\n  missing: they are still allocated when the "
            "CTA "
            "ends\n  remedy: tcgen05.dealloc by one warp once everybody is done with them",
            held_rank, column, column + held->columns - 1,
            describe_site(*program_, "tcgen05.alloc", held->alloc));
      });
      return;
    }
    case Misuse::RegistersDirection:
      return add("setmaxnreg-direction", Severity::Error,
                 fmt::format("registers of cta {} warp {}", rank, site.warp), nullptr, "",
                 fmt::format("the warp has {} registers a thread, {} are asked for",
                             warp ? warp->registers_per_thread : 0, where),
                 "setmaxnreg.inc to more and .dec to fewer than the warp has (the launch gives what "
                 "__launch_bounds__ or .maxnreg allows)");
    case Misuse::RegistersIgnored:
      return add("setmaxnreg-ignored", Severity::Advice,
                 fmt::format("registers of cta {} warp {}", rank, site.warp), nullptr, "",
                 "ptxas drops the instruction: the number of registers at entry is not known",
                 "__launch_bounds__(threads, blocks) with both numbers, or .maxnreg");
    default:
      return;
  }
}

void Resources::registers_change(Warp& warp, uint32_t from, uint32_t to) {
  ctas_of(*warp.cta->cluster)[warp.cta->rank].registers[warp.index].push_back(
      {Site::of(warp), to, to <= from});
}

void Resources::issue(Warp& warp, const AsyncWork& work, std::span<const Touch>) {
  if (work.kind != AsyncKind::TensorStore && work.kind != AsyncKind::BulkStore) return;
  Unfinished& bulk = bulk_of(warp, work.lane);
  ++bulk.open;
  bulk.last = Site::of(warp);
  bulk.last.lane = static_cast<uint32_t>(work.lane);
}

void Resources::bulk_commit(Warp& warp, int lane) { bulk_of(warp, lane).commit(); }

void Resources::bulk_waited(Warp& warp, int lane, uint32_t outstanding, bool) {
  bulk_of(warp, lane).waited(outstanding);
}

void Resources::access(Warp& warp, const LaneAccess& access) {
  if (!access.copy_async || access.kind != AccessKind::Write) return;
  Unfinished& copies = copies_of(warp);
  ++copies.open;
  copies.last = Site::of(warp);
}

void Resources::copy_async_commit(Warp& warp) { copies_of(warp).commit(); }

void Resources::copy_async_waited(Warp& warp, uint32_t outstanding) { copies_of(warp).waited(outstanding); }

// Who waits for the mbarrier waits for them all.
void Resources::mbarrier_arrive_copies(Warp& warp, uint32_t, uint64_t) {
  Unfinished& copies = copies_of(warp);
  copies.open = copies.groups = 0;
}

// Nothing will return registers any more to those that wait for them.
void Resources::stuck(Cluster& cluster) {
  for (const auto& cta : cluster.ctas)
    for (const Warp& warp : cta->warps)
      for (const Fragment& f : warp.fragments) {
        if (!f.mask || f.wait.kind != Wait::Kind::Registers) continue;
        const Site site{f.pc, cta->rank, warp.index, static_cast<uint32_t>(std::countr_zero(f.mask))};
        findings_.add("setmaxnreg-pool", Severity::Error, f.pc, 0, [&] {
          std::string text = fmt::format("  registers of cta {}\n{}", cta->rank,
                                         describe_site(*program_, "setmaxnreg.inc", site));
          uint32_t held = 0, launched = 0;
          for (const Warp& w : cta->warps) {
            held += w.alive ? w.registers_per_thread * kLanes : 0;
            launched += cluster.grid->kernel->info.registers * kLanes;
          }
          return text +
                 fmt::format(
                     "\n  missing: {} registers; the pool has {}, the launch gave {}, the warps that "
                     "live hold {}\n  remedy: let setmaxnreg.dec of other warps free as many before, or "
                     "ask for fewer",
                     (f.wait.address - f.wait.parity) * kLanes, cta->register_pool, launched, held);
        });
      }
}

void Resources::cta_ends(Cta& cta) {
  Cluster& cluster = *cta.cluster;
  CtaState& state = ctas_of(cluster)[cta.rank];
  // setmaxnreg belongs to whole warpgroups (PTX ISA 9.7.19.5).
  for (uint32_t first = 0; first < cta.warps.size() && !state.registers.empty(); first += 4) {
    size_t most = 0;
    uint32_t who = first;
    for (uint32_t w = first; w < first + 4 && w < cta.warps.size(); ++w)
      if (state.registers[w].size() > most) most = state.registers[w].size(), who = w;
    for (uint32_t w = first; w < first + 4 && w < cta.warps.size(); ++w)
      for (size_t k = 0; k < most; ++k) {
        const Change& common = state.registers[who][k];
        if (k < state.registers[w].size() && state.registers[w][k].to == common.to) continue;
        // The idle warp of CUTLASS's attention gives back more than the other three.
        const bool unequal = k < state.registers[w].size() && common.gives && state.registers[w][k].gives;
        const char* rule = unequal ? "setmaxnreg-unequal" : "setmaxnreg-part-of-warpgroup";
        const Severity severity = unequal && mode_ != CheckMode::Strict ? Severity::Advice : Severity::Error;
        findings_.add(rule, severity, common.site.pc, 0, [&] {
          return fmt::format(
              "  registers of cta {}, warpgroup of warps {} to {}\n{}\n  missing: warp {} {}\n  remedy: the "
              "same setmaxnreg by all four warps",
              cta.rank, first, first + 3,
              describe_site(*program_, fmt::format("setmaxnreg to {}", common.to), common.site), w,
              k < state.registers[w].size() ? fmt::format("asks for {} there", state.registers[w][k].to)
                                            : "has not executed it");
        });
      }
  }
  // A device lets the copies finish: published kernels end like this.
  for (const auto& [who, bulk] : state.bulk) {
    if (bulk.open + bulk.groups == 0) continue;
    findings_.add("bulk-reads-at-exit", mode_ == CheckMode::Strict ? Severity::Error : Severity::Advice,
                  bulk.last.pc, 0, [&] {
                    return fmt::format(
                        "  shared memory of cta {}\n{}\n  missing: {}, and the CTA has ended\n  remedy: {}"
                        "cp.async.bulk.wait_group.read 0 before the thread exits",
                        cta.rank, describe_site(*program_, "last bulk store", bulk.last),
                        bulk.open ? "no commit_group covers it" : "it may still read its source",
                        bulk.open ? "cp.async.bulk.commit_group and " : "");
                  });
  }
  for (const auto& [who, copies] : state.copies) {
    if (copies.open + copies.groups == 0) continue;
    findings_.add("cp.async-at-exit", mode_ == CheckMode::Strict ? Severity::Error : Severity::Advice,
                  copies.last.pc, 0, [&] {
                    return fmt::format(
                        "  shared memory of cta {}\n{}\n  missing: {}, and the CTA has ended\n  remedy: "
                        "cp.async.wait_all before the thread exits, or no copy that nobody waits for",
                        cta.rank, describe_site(*program_, "last cp.async", copies.last),
                        copies.open ? "no commit_group covers it" : "it may still write its destination");
                  });
  }
  state.registers.clear();
  state.bulk.clear();
  state.copies.clear();
}

}  // namespace mxfa::emulator
