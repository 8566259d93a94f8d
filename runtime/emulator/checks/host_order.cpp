#include "checks/host_order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "core/kernel.hpp"
#include "memory/memory.hpp"

namespace mxfa::emulator {

void HostOrder::cluster_begins(Cluster& cluster) { program_ = cluster.grid->kernel->program; }

void HostOrder::range(Warp& warp, int lane, AccessKind kind, bool async, uint64_t begin, uint64_t bytes) {
  for (const HostOperation& o : operations_.list) {
    if (begin >= o.begin + o.bytes || o.begin >= begin + bytes) continue;
    if (!o.writes && kind == AccessKind::Read) continue;
    findings_.add("race-with-memset-or-copy", Severity::Error, warp.pc, 0, [&] {
      Site site = Site::of(warp);
      if (lane >= 0) site.lane = static_cast<uint32_t>(lane);
      const std::string what = fmt::format("{}{}",
                                           kind == AccessKind::Read    ? "read"
                                           : kind == AccessKind::Write ? "write"
                                                                       : "atomic access",
                                           async ? " by an asynchronous copy" : "");
      return fmt::format(
          "  global memory, {}\n  {} by {} on {}, {} bytes from {:#x}\n{}\n"
          "  missing: the kernel runs on {}, which does not wait for it, and the host does not know that it "
          "is done\n"
          "  remedy: before the launch, cuStreamSynchronize of the first stream, or cuStreamWaitEvent on an "
          "event recorded there; or both on one stream{}",
          warp.cta->cluster->grid->arena->describe(std::max(begin, o.begin)), o.writes ? "write" : "read",
          o.function, o.stream, o.bytes, o.begin, describe_site(*program_, what, site), operations_.stream,
          operations_.non_blocking ? "; one made without CU_STREAM_NON_BLOCKING waits for the default stream"
                                   : "");
    });
    return;
  }
}

void HostOrder::access(Warp& warp, const LaneAccess& a) {
  if (a.space != MemorySpace::Global) return;
  for (uint32_t m = a.mask; m; m &= m - 1) {
    const int lane = std::countr_zero(m);
    range(warp, lane, a.kind, false, a.address[lane], a.bytes);
  }
}

void HostOrder::issue(Warp& warp, const AsyncWork& work, std::span<const Touch> touches) {
  for (const Touch& t : touches)
    if (t.space == MemorySpace::Global) range(warp, work.lane, t.kind, true, t.begin, t.count);
}

}  // namespace mxfa::emulator
