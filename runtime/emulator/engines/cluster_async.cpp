// Asynchronous writes to shared memory of the cluster that single threads issue (st.async, red.async), and
// cluster launch control (PTX ISA 9.7.13.17-18).  Both announce their bytes on an mbarrier beside the data.
#include <cuda.h>
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <string_view>

#include "engines/bulk.hpp"
#include "engines/engines.hpp"
#include "memory/memory.hpp"

namespace mxfa::emulator {
namespace {

[[noreturn]] void refuse(const std::string& text, int code = CUDA_ERROR_ILLEGAL_INSTRUCTION) {
  throw Fault(code, text);
}

// The response is opaque to PTX; ours says what it is in its first word: a tag, and in bit 0 whether a
// cluster was granted.  Then x, y and z of the first CTA of that cluster.
constexpr uint32_t kResponseTag = 0x4c434c00;
constexpr uint32_t kResponseBytes = 16;

// MXFA_EMU_CLC: whether a request is refused although clusters are left, as on a GPU that others use too.
// ordered: never; random: one in four, which randomised schedules do by themselves; one: of every cluster but
// one, chosen by the seed; refuse: always.
bool refuse_early(const Cluster& cluster) {
  Grid& grid = *cluster.grid;
  const char* text = std::getenv("MXFA_EMU_CLC");
  const std::string_view mode = text && *text ? text : grid.schedule.randomised() ? "random" : "ordered";
  if (mode == "ordered") return false;
  if (mode == "random") return grid.random() % 4 == 0;
  if (mode == "refuse") return true;
  if (mode != "one")
    refuse(fmt::format("MXFA_EMU_CLC={}: ordered, random, one and refuse exist", mode),
           CUDA_ERROR_INVALID_VALUE);
  if (grid.only_granted == UINT64_MAX) grid.only_granted = grid.random() % grid.clusters;
  const uint64_t columns = grid.size.x / grid.cluster.x, rows = grid.size.y / grid.cluster.y;
  return cluster.id.x + columns * (cluster.id.y + rows * cluster.id.z) != grid.only_granted;
}

LaunchResponse next_response(const Cluster& cluster) {
  Grid& grid = *cluster.grid;
  LaunchResponse r{kResponseTag, 0, 0, 0};
  if (grid.next_cluster >= grid.clusters || refuse_early(cluster)) return r;
  const uint64_t index = grid.cluster_at(grid.next_cluster++), columns = grid.size.x / grid.cluster.x,
                 rows = grid.size.y / grid.cluster.y;
  r[0] |= 1;
  r[1] = static_cast<uint32_t>(index % columns) * grid.cluster.x;
  r[2] = static_cast<uint32_t>(index / columns % rows) * grid.cluster.y;
  r[3] = static_cast<uint32_t>(index / columns / rows) * grid.cluster.z;
  return r;
}

}  // namespace

void shared_async(Warp& warp, int lane, const char* name, uint32_t address, uint32_t bytes, uint32_t mbarrier,
                  bool poison, std::function<void(uint8_t*)> apply) {
  Cluster& cluster = *warp.cta->cluster;
  if (shared_rank(address) != shared_rank(mbarrier))
    refuse(
        fmt::format("{}: data ({:#x}) and mbarrier ({:#x}) lie in different CTAs", name, address, mbarrier),
        CUDA_ERROR_ILLEGAL_ADDRESS);
  uint8_t* target = shared_pointer(cluster, address, bytes, true);
  if (poison && !cluster.events.immediate()) std::memset(target, 0xff, bytes);
  const std::string what =
      fmt::format("{} of {} bytes to shared {:#x} by {}", name, bytes, address, issuer(warp, lane));
  const uint64_t ticket = announce(warp, {0, AsyncKind::StoreAsync, lane, mbarrier}, [&] {
    return Touches{shared_bytes(address, bytes, poison ? AccessKind::Write : AccessKind::Atomic)};
  });
  cluster.events.submit(0, what, [&cluster, what, target, bytes, mbarrier, apply = std::move(apply), ticket] {
    apply(target);
    report_performed(cluster, ticket);
    mbarrier_complete_tx(cluster, mbarrier, bytes, what, ticket);
  });
}

void launch_try_cancel(Warp& warp, int lane, uint32_t response, uint32_t mbarrier, bool multicast) {
  Cluster& cluster = *warp.cta->cluster;
  if (cluster.launch_refused)
    refuse("clusterlaunchcontrol.try_cancel after a refusal was seen: that is undefined (PTX ISA 9.7.13.17)");
  std::vector<Cta*> targets{warp.cta};
  if (multicast) {
    targets.clear();
    for (const auto& cta : cluster.ctas) {
      if (cta->live_warps == 0)
        refuse(fmt::format(
            "clusterlaunchcontrol.try_cancel to all CTAs of a cluster of which rank {} has exited",
            cta->rank));
      targets.push_back(cta.get());
    }
  }
  for (const uint32_t address : {response, mbarrier})
    if (shared_rank(address) != warp.cta->rank)
      refuse(
          fmt::format("clusterlaunchcontrol.try_cancel: {:#x} is not shared memory of the own CTA (rank {})",
                      address, warp.cta->rank),
          CUDA_ERROR_ILLEGAL_ADDRESS);
  for (const Cta* cta : targets) {
    uint8_t* target =
        shared_pointer(cluster, shared_address(*cta, shared_offset(response)), kResponseBytes, true);
    if (!cluster.events.immediate()) std::memset(target, 0xff, kResponseBytes);
  }
  const std::string what = fmt::format("clusterlaunchcontrol.try_cancel by {}", issuer(warp, lane));
  // One operation for each CTA: every response counts on the mbarrier beside it.
  std::vector<uint64_t> tickets;
  for (const Cta* cta : targets)
    tickets.push_back(announce(
        warp, {0, AsyncKind::LaunchResponse, lane, shared_address(*cta, shared_offset(mbarrier))}, [&] {
          return Touches{
              shared_bytes(shared_address(*cta, shared_offset(response)), kResponseBytes, AccessKind::Write)};
        }));
  cluster.events.submit(0, what, [&cluster, targets, tickets, response, mbarrier, what] {
    const LaunchResponse r = next_response(cluster);
    for (size_t k = 0; k < targets.size(); ++k) {
      const Cta* cta = targets[k];
      std::memcpy(
          shared_pointer(cluster, shared_address(*cta, shared_offset(response)), kResponseBytes, true),
          r.data(), kResponseBytes);
      report_performed(cluster, tickets[k]);
      mbarrier_complete_tx(cluster, shared_address(*cta, shared_offset(mbarrier)), kResponseBytes, what,
                           tickets[k]);
    }
  });
}

bool launch_is_canceled(Cluster& cluster, const LaunchResponse& response) {
  if ((response[0] & ~1u) != kResponseTag)
    refuse(fmt::format(
        "clusterlaunchcontrol.query_cancel of {:#010x} {:#010x} {:#010x} {:#010x}: not a response of "
        "try_cancel (read before its mbarrier completed?)",
        response[0], response[1], response[2], response[3]));
  const bool granted = response[0] & 1;
  if (!granted) cluster.launch_refused = true;
  return granted;
}

}  // namespace mxfa::emulator
