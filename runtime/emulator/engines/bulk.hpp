// What tma.cpp and bulk.cpp share: completion of copies, and who issued them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engines/engines.hpp"

namespace mxfa::emulator {

// "cta 0 warp 3 lane 0 pc 812".
std::string issuer(const Warp& warp, int lane);

// Shared addresses (with rank) that a load with this destination writes: its own CTA or every CTA of the
// multicast mask.
std::vector<uint32_t> destinations(Warp& warp, uint32_t shared, const std::optional<uint16_t>& multicast);

// What observers are told of a copy.  touches() is called only when somebody observes.
using Touches = std::vector<Touch>;
template <class F>
uint64_t announce(Warp& warp, AsyncWork work, F touches) {
  Grid& grid = *warp.cta->cluster->grid;
  work.ticket = new_ticket(grid);
  if (work.ticket) {
    const Touches list = touches();
    observe(grid, [&](Observer& o) { o.issue(warp, work, list); });
  }
  return work.ticket;
}
inline void report_performed(Cluster& cluster, uint64_t ticket) {
  observe(*cluster.grid, [&](Observer& o) { o.performed(cluster, ticket); });
}
inline Touch shared_bytes(uint32_t address, uint64_t bytes, AccessKind kind) {
  return {MemorySpace::Shared, kind, shared_rank(address), shared_offset(address),
          static_cast<uint32_t>(bytes)};
}
inline Touch global_bytes(uint64_t address, uint64_t bytes, AccessKind kind) {
  return {MemorySpace::Global, kind, 0, address, static_cast<uint32_t>(bytes)};
}

// A load into one CTA: poisons `destination` at issue unless the schedule is functional; `data` and the
// complete_tx happen when the event fires.
void submit_load(Warp& warp, const std::string& what, uint32_t destination, uint32_t bytes, uint32_t mbarrier,
                 std::function<void()> data, uint64_t ticket);

// A store joins the lane's open bulk group.  `read` copies the source into the buffer, `write` carries the
// buffer to its destination; both are separate events, because wait_group.read promises only the first.
using Buffer = std::vector<uint8_t>;
void submit_store(Warp& warp, int lane, const std::string& what, std::function<void(Buffer&)> read,
                  std::function<void(const Buffer&)> write, uint64_t ticket);

}  // namespace mxfa::emulator
