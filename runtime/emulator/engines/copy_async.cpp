// cp.async (PTX ISA 9.7.9.25.3).  Copies of a warp complete in the order of their issue, which is one of the
// orders that PTX allows; groups and mbarriers observe nothing finer.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "engines/bulk.hpp"
#include "engines/engines.hpp"

namespace mxfa::emulator {
namespace {

void perform(uint32_t bytes, const LaneCopy& c) {
  if (c.take) std::memcpy(c.to, c.from, c.take);
  std::memset(c.to + c.take, 0, bytes - c.take);
}

}  // namespace

void copy_async(Warp& warp, uint32_t bytes, std::span<const LaneCopy> copies) {
  Cluster& cluster = *warp.cta->cluster;
  if (cluster.events.immediate()) {
    for (const LaneCopy& c : copies) perform(bytes, c);
    return;
  }
  std::vector<std::shared_ptr<Warp::BulkGroup>> groups;
  for (const LaneCopy& c : copies) {
    std::memset(c.to, 0xff, bytes);
    auto& current = warp.copies[c.lane].current;
    if (!current) current = std::make_shared<Warp::BulkGroup>();
    ++current->pending_writes;
    groups.push_back(current);
  }
  cluster.events.submit(
      copy_queue(warp.cta->rank, warp.index),
      fmt::format("cp.async of {} bytes a lane by {}", bytes, issuer(warp, copies[0].lane)),
      [&cluster, bytes, mine = std::vector<LaneCopy>(copies.begin(), copies.end()), groups] {
        for (size_t k = 0; k < mine.size(); ++k) {
          perform(bytes, mine[k]);
          --groups[k]->pending_writes;
        }
        ++cluster.epoch;
      });
}

void copy_async_commit(Warp& warp, int lane) {
  if (warp.cta->cluster->events.immediate()) return;
  Warp::BulkState& state = warp.copies[lane];
  state.committed.push_back(state.current ? state.current : std::make_shared<Warp::BulkGroup>());
  state.current.reset();
}

bool copy_async_wait(Warp& warp, int lane, uint32_t outstanding, bool all) {
  const auto found = warp.copies.find(lane);
  if (found == warp.copies.end()) return true;
  Warp::BulkState& state = found->second;
  while (!state.committed.empty() && state.committed.front()->pending_writes == 0)
    state.committed.pop_front();
  if (all && state.current && state.current->pending_writes != 0) return false;
  return state.committed.size() <= outstanding;
}

void copy_async_arrive(Warp& warp, int lane, uint32_t mbarrier, bool noinc) {
  Cluster& cluster = *warp.cta->cluster;
  const std::string what = fmt::format("cp.async.mbarrier.arrive by {}", issuer(warp, lane));
  if (!noinc) mbarrier_add_pending(cluster, mbarrier, 1, what);
  cluster.events.submit(copy_queue(warp.cta->rank, warp.index), what, [&cluster, &warp, mbarrier] {
    mbarrier_arrive_copies(warp, mbarrier, 1);
    ++cluster.epoch;
  });
}

}  // namespace mxfa::emulator
