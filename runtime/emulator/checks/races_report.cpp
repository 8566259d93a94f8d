// How a race reads: what, where, both accesses, what is missing, what to do.
#include <fmt/format.h>

#include <bit>

#include "checks/races.hpp"
#include "core/kernel.hpp"
#include "memory/memory.hpp"

namespace mxfa::emulator {
namespace {

const char* name_of(AsyncKind kind) {
  switch (kind) {
    case AsyncKind::TensorLoad:
      return "TMA load";
    case AsyncKind::TensorStore:
      return "TMA store";
    case AsyncKind::BulkLoad:
      return "bulk load";
    case AsyncKind::BulkStore:
      return "bulk store";
    case AsyncKind::SharedCopy:
      return "bulk copy between shared memories";
    case AsyncKind::StoreAsync:
      return "st.async or red.async";
    case AsyncKind::LaunchResponse:
      return "response of clusterlaunchcontrol";
    case AsyncKind::Mma:
      return "tcgen05.mma";
    case AsyncKind::TmemCopy:
      return "tcgen05.cp";
    case AsyncKind::TmemLoad:
      return "tcgen05.ld";
    case AsyncKind::TmemStore:
      return "tcgen05.st";
    case AsyncKind::Wgmma:
      return "wgmma";
  }
  return "";
}

// ld [a], then atom.cas [a]: the guess that a compare-and-swap loop starts with need not be right, so that it
// does no harm to read it while others swap (CUDA Programming Guide, atomic functions).
bool starts_swap_loop(const Program& program, const Record& weak, const Record& strong) {
  const std::string load = program.ptx_line(weak.pc), swap = program.ptx_line(strong.pc);
  const auto address = [](const std::string& line) {
    const size_t from = line.find('['), to = line.find(']', from);
    return from == std::string::npos || to == std::string::npos ? "" : line.substr(from, to - from);
  };
  return !(weak.flags & (kStrong | kWrites)) && (strong.flags & kStrong) && load.starts_with("ld.") &&
         swap.find(".cas.") != std::string::npos && !address(load).empty() && address(load) == address(swap);
}

}  // namespace

std::string Races::barrier_name(const ClusterState& s, uint32_t component) const {
  const Component& c = s.components[component];
  if (c.kind != Component::Kind::Barrier) return "its mbarrier";
  const uint32_t rank = shared_rank(c.address), offset = shared_offset(c.address);
  return fmt::format("the mbarrier at {:#x}{}", offset,
                     shared_name(*program_, *s.cluster->ctas[rank], offset));
}

std::string Races::place(const Access& now, uint64_t where) const {
  if (now.space == MemorySpace::Global) return "global memory, " + grid_->arena->describe(where);
  const auto rank = static_cast<uint32_t>(where >> kRankShift),
             offset = shared_offset(static_cast<uint32_t>(where));
  if (now.space == MemorySpace::Tensor)
    return fmt::format(
        "tensor memory of cta {}, column {}, lanes from {}", rank, offset % TensorMemory::kColumns,
        offset / TensorMemory::kColumns * 32 + static_cast<uint32_t>(std::countr_zero(now.record.mask)));
  return fmt::format("shared memory of cta {}, offset {:#x}{}", rank, offset,
                     shared_name(*program_, *now.state->cluster->ctas[rank], offset));
}

// "  write: TMA load by cta 0 warp 3 lane 0, file.cuh:34 ...".
std::string Races::describe(const Record& r, const ClusterState& s, MemorySpace) const {
  const auto first = static_cast<uint32_t>(std::countr_zero(r.mask & 0xffff));
  uint32_t warp = r.component;
  std::string name = r.flags & kStrong ? "atomic access" : r.flags & kWrites ? "write" : "read";
  if (r.flags & kWork) {
    const Work& work = works_[r.value];
    warp = work.warp;
    name = work.allocation ? "tcgen05.alloc" : name + " by a " + name_of(work.kind);
  } else if (r.flags & kCopyAsync && r.cluster == s.number) {
    warp = s.components[r.component].warp;
    name += " by cp.async";
  }
  if (r.cluster != s.number) name += fmt::format(" in the {}th cluster that started", r.cluster);
  return describe_site(*program_, name,
                       {r.pc, warp / s.warps_per_cta, warp % s.warps_per_cta, lane_at(r, first)});
}

// The missing edge, and the instruction that would make it.
std::string Races::remedy(Problem why, const Record& old, const Access& now) const {
  const ClusterState& s = *now.state;
  const bool own = old.cluster == s.number;
  // The release with which the other warp handed its access on, if it did.
  const auto release_after = [&](const Record& r) -> std::string {
    if (!own || (r.flags & (kWork | kCopyAsync))) return "";
    const std::vector<uint32_t>& pcs = s.warps[r.component].release_pc;
    for (size_t e = r.value - 1; e < pcs.size(); ++e)
      if (pcs[e] != kNoPc)
        return fmt::format(" before PTX line {} ({})", program_->ptx_line_number(pcs[e]),
                           program_->ptx_line(pcs[e]));
    return "";
  };
  const char* space = now.space == MemorySpace::Global ? "global" : "shared::cta";
  switch (why) {
    case Problem::Fence:
    case Problem::FenceAfterCopy:
      return fmt::format(
          "missing: the generic {} is ordered, but no proxy fence makes it visible to the async proxy\n"
          "  remedy: fence.proxy.async.{} by the thread that wrote, after the write and{}",
          old.flags & kCopyAsync ? "cp.async write" : "write", space,
          release_after(old).empty() ? " before it hands the data on" : release_after(old));
    case Problem::FenceAfterRead:
      return fmt::format(
          "missing: the generic read is ordered, but no proxy fence stands between it and the write of the "
          "async "
          "proxy\n  remedy: fence.proxy.async.{} after the read and{}",
          space,
          release_after(old).empty() ? " before the reader hands the buffer back" : release_after(old));
    case Problem::ThreadSyncFence:
      return "missing: the wait orders the two, but not tensor memory: tcgen05.fence::before_thread_sync and "
             "::after_thread_sync are not both there\n  remedy: before_thread_sync by the first thread ahead "
             "of its "
             "arrive (tcgen05.commit implies it), after_thread_sync by the second one after its wait";
    case Problem::WarpSync:
    case Problem::WarpSyncInSum:
      return fmt::format(
          "missing: the lanes of a warp follow each other only where it is synchronised: no bar.warp.sync "
          "between the {} and what another lane of its warp did then\n  remedy: bar.warp.sync (__syncwarp) "
          "by the warp{}",
          old.flags & kWork ? "completion of the first" : "first access",
          release_after(old).empty() ? " between the two" : ", after it and" + release_after(old));
    case Problem::InitFence:
      if (before(old, now))
        return "missing: nothing makes the init visible to the async proxy, which counts bytes or arrives "
               "there\n  remedy: fence.mbarrier_init.release.cluster by the thread that initialises, "
               "after it and before the barrier";
      return "missing: a relaxed cluster barrier comes after the init, but hands nothing on\n  remedy: "
             "fence.mbarrier_init.release.cluster between the init and the arrival at the cluster barrier";
    default:
      break;
  }
  if (!own)
    return "missing: nothing orders the two CTAs\n  remedy: a release at gpu scope after the first access "
           "and an "
           "acquire before the second one (or keep them apart by kernels)";
  if (old.flags & kWork) {
    const Work& work = works_[old.value];
    switch (work.kind) {
      case AsyncKind::TensorLoad:
      case AsyncKind::BulkLoad:
      case AsyncKind::SharedCopy:
      case AsyncKind::StoreAsync:
      case AsyncKind::LaunchResponse:
        return fmt::format(
            "missing: nothing orders the access after the completion of the copy\n  remedy: wait for the "
            "phase of {} "
            "that counts its bytes, in this thread or in one that hands on from there",
            barrier_name(s, old.component));
      case AsyncKind::TensorStore:
      case AsyncKind::BulkStore: {
        const bool source = s.components[old.component].queue == Queue::BulkRead;
        return fmt::format(
            "missing: the bulk copy may still {}\n  remedy: cp.async.bulk.commit_group and "
            "cp.async.bulk.wait_group{} by the thread that issued it, then a barrier or arrive towards this "
            "access",
            source ? "read its source" : "write its destination", source ? ".read" : "");
      }
      case AsyncKind::Mma:
      case AsyncKind::TmemCopy:
        return fmt::format(
            "missing: the {} may still be at work\n  remedy: tcgen05.commit after it by the same thread, and "
            "a wait "
            "for that phase of the mbarrier before this access",
            name_of(work.kind));
      case AsyncKind::TmemLoad:
        return "missing: the tcgen05.ld may still be reading\n  remedy: tcgen05.wait::ld by that warp before "
               "it "
               "arrives or goes on";
      case AsyncKind::TmemStore:
        return "missing: the tcgen05.st may still be writing\n  remedy: tcgen05.wait::st by that warp before "
               "it "
               "arrives or goes on";
      case AsyncKind::Wgmma:
        return "missing: the wgmma may still be reading\n  remedy: wgmma.wait_group that covers it before "
               "its "
               "warps hand the buffer back";
    }
  }
  if (old.flags & kCopyAsync)
    return "missing: the cp.async may still be at work\n  remedy: cp.async.wait_group or "
           "cp.async.mbarrier.arrive, then a barrier";
  return "missing: no barrier, mbarrier or release and acquire orders the two\n  remedy: hand on with an "
         "arrive (or "
         "bar.sync) after the first access and a wait before the second one";
}

void Races::report(Problem why, const Record& old, const Access& now, uint64_t where) {
  const bool old_writes = old.flags & kWrites, writes = now.record.flags & kWrites;
  const bool strict = mode_ == CheckMode::Strict;
  const char* rule = nullptr;
  Severity severity = Severity::Error;
  switch (why) {
    case Problem::Fence:
      rule = "missing-proxy-fence";
      break;
    case Problem::FenceAfterRead:
      rule = "missing-proxy-fence-after-read";
      if (!strict) severity = Severity::Advice;
      break;
    case Problem::FenceAfterCopy:
      rule = "missing-proxy-fence-after-cp.async";
      if (!strict) severity = Severity::Advice;
      break;
    case Problem::ThreadSyncFence:
      rule = "missing-thread-sync-fence";
      if (!strict) severity = Severity::Advice;
      break;
    case Problem::TmemWait:
      rule = "missing-tmem-wait";
      if (!strict) severity = Severity::Advice;
      break;
    case Problem::WarpSync:
      rule = "missing-warp-sync";
      if (!strict) severity = Severity::Advice;
      break;
    case Problem::WarpSyncInSum:
      rule = kWarpSyncInSum;
      if (!strict) severity = Severity::Advice;
      break;
    case Problem::InitFence:
      rule = "missing-mbarrier-init-fence";
      if (!strict) severity = Severity::Advice;
      break;
    default:
      rule = now.name               ? "race-with-init-or-dealloc"
             : old_writes && writes ? "race-write-after-write"
             : old_writes           ? "race-read-after-write"
                                    : "race-write-after-read";
      if (starts_swap_loop(*program_, old, now.record) || starts_swap_loop(*program_, now.record, old)) {
        rule = "race-with-compare-and-swap";
        if (!strict) severity = Severity::Advice;
      }
  }
  const uint32_t common = old.mask & now.record.mask;
  const uint64_t first = now.space == MemorySpace::Tensor || common == 0
                             ? where
                             : where / 16 * 16 + static_cast<uint64_t>(std::countr_zero(common));
  findings_.add(rule, severity, now.record.pc, old.pc, [&] {
    Record shown = now.record;
    return fmt::format("  {}\n{}\n{}{}\n  {}", place(now, first), describe(old, *now.state, now.space),
                       describe(shown, *now.state, now.space), now.name ? fmt::format(" ({})", now.name) : "",
                       remedy(why, old, now));
  });
}

}  // namespace mxfa::emulator
