// What the race checks know of one cluster: clocks of its warps, barriers and queues, shadows of its
// memories.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <unordered_map>

#include "checks/clock.hpp"
#include "checks/shadow.hpp"
#include "core/observer.hpp"

namespace mxfa::emulator {

// Queues of a thread or warp, or of a warpgroup; each is a component.
enum class Queue : uint8_t { Tensor, TmemLoad, TmemStore, TmemAlloc, BulkRead, Bulk, CopyAsync, Wgmma };

struct Component {
  enum class Kind : uint8_t { Warp, Barrier, Queue } kind = Kind::Warp;
  Queue queue = Queue::Tensor;
  uint32_t warp = 0;     // rank * warps of a CTA + index: itself, or the owner of the queue
  uint32_t address = 0;  // of the mbarrier
};

// Lanes of a warp that know the same.  They split where some of them wait, fence or acquire alone, and join
// at warp-synchronising instructions.
struct LaneGroup {
  uint32_t mask = ~0u;
  Knowledge known;
  // Work in tensor memory that fence::before_thread_sync has made publishable, and that
  // fence::after_thread_sync has taken in; known.tensor_fenced is what came with acquires.
  Clock before, after;
  // Of `before`, what some of the lanes may hand on without the others: fenced by themselves, or when the
  // lanes were synchronised last.
  Clock alone;
  std::optional<Knowledge> fence_release, fence_acquire;
};

struct WarpState {
  std::vector<LaneGroup> groups{1};
  // Number of the stretch between releases or synchronisations of the lanes; accesses carry it.  What every
  // lane knows of the others' is known.order of the warp itself.
  uint32_t epoch = 1;
  bool accessed = false;  // in this epoch
  // Beyond what it knows: what warps had done before a cluster barrier at which they arrived relaxed.  That
  // orders no memory, but the work is over.
  Clock over;
  std::vector<uint32_t> release_pc;  // of the release that ended each epoch, from epoch 1
  uint32_t copies_committed = 0;
  std::deque<uint32_t> copy_groups;  // last copy of each committed cp.async group
};

struct QueueState {
  uint16_t component = 0;
  uint32_t issued = 0;  // bulk groups: committed
};

// The two phases of an mbarrier that anyone can still ask about.
struct BarrierState {
  uint16_t component = 0;
  uint32_t base = 0, highest = 0;  // values of its component
  uint32_t init_pc = 0, init_warp = 0;
  bool init_unfenced = false;  // no fence.mbarrier_init or proxy fence by the warp since its init
  uint64_t phase[2] = {~uint64_t{0}, ~uint64_t{0}};
  Knowledge released[2];
  // Who has passed a wait when `passed` phases were complete.  What completes the next one must know of it:
  // otherwise it may complete before such a wait, which then sees a parity that means another phase.
  struct Wait {
    uint32_t warp, epoch, pc;
    uint8_t lane;
  };
  uint64_t passed[2] = {~uint64_t{0}, ~uint64_t{0}};
  std::vector<Wait> waits[2];
  Clock issuers;                          // what had been reached when copies that it counts were issued
  std::map<uint32_t, uint64_t> observed;  // by warp: phases that it has seen complete
  uint32_t value(uint64_t p) const { return base + static_cast<uint32_t>(p) + 1; }
  Knowledge& at(uint64_t p) {
    if (phase[p & 1] != p) {
      phase[p & 1] = p;
      released[p & 1] = {};
    }
    return released[p & 1];
  }
};

// Uses of a named barrier or of the cluster barrier, newest last.
struct Generations {
  std::deque<std::pair<uint64_t, Knowledge>> list;
  Knowledge& at(uint64_t generation) {
    for (auto& [number, knowledge] : list)
      if (number == generation) return knowledge;
    if (list.size() >= 8) list.pop_front();
    return list.emplace_back(generation, Knowledge{}).second;
  }
};

// An asynchronous operation, by ticket.
struct Work {
  bool allocation = false;  // tcgen05.alloc
  bool pending = false;     // counted by an mbarrier and not landed yet
  uint32_t value = 0;       // of its component
  uint32_t epoch = 0;       // of the issuing warp at the issue
  uint32_t pc = 0;
  uint16_t warp = 0;
  AsyncKind kind = AsyncKind::Mma;
  uint8_t lane = 0;
};

struct ClusterState {
  Cluster* cluster = nullptr;
  uint32_t number = 0, warps_per_cta = 0;
  std::vector<WarpState> warps;
  std::vector<Component> components;  // the warps come first
  std::unordered_map<uint64_t, QueueState> queues;
  std::unordered_map<uint32_t, BarrierState> barriers;  // by shared::cluster address
  std::unordered_map<uint32_t, Generations> named;      // rank * 16 + number
  uint32_t unfenced_inits = 0;
  Generations cluster_barrier, cluster_over;      // what is released there; what is over there
  std::vector<std::vector<Cell>> shared, tensor;  // of each CTA
  Overflow overflow;
  struct Commit {
    Knowledge knowledge;
    size_t arrivals = 0;  // still to come
  };
  std::unordered_map<uint64_t, Commit> commits;  // tcgen05.commit, by ticket
  struct Meet {
    Clock order, fenced;
    uint32_t warps = 0;
  };
  std::unordered_map<uint64_t, Meet> meets;  // what all warps of a wgmma knew at its issue

  uint32_t index(const Warp& warp) const { return warp.cta->rank * warps_per_cta + warp.index; }
  WarpState& of(const Warp& warp) { return warps[index(warp)]; }
  LaneGroup& group_of(uint32_t warp, uint32_t lane) {
    std::vector<LaneGroup>& groups = warps[warp].groups;
    for (size_t k = 0; k + 1 < groups.size(); ++k)
      if (groups[k].mask >> lane & 1) return groups[k];
    return groups.back();
  }
  // learn(group) for the groups of these lanes, which become groups of their own where others do not learn
  // the same.
  template <class F>
  void learn(const Warp& warp, uint32_t lanes, F learn) {
    std::vector<LaneGroup>& groups = of(warp).groups;
    if (groups.size() == 1 && !(warp.alive & ~lanes)) return learn(groups.front());
    for (size_t k = 0, count = groups.size(); k < count; ++k) {
      const uint32_t part = groups[k].mask & lanes;
      if (!part) continue;
      if (groups[k].mask & warp.alive & ~lanes) {
        groups[k].mask &= ~part;
        groups.push_back(groups[k]);
        groups.back().mask = part;
        learn(groups.back());
      } else {
        learn(groups[k]);
      }
    }
  }
  uint32_t epoch(uint32_t warp) const { return warps[warp].epoch; }
  QueueState& queue(uint32_t warp, int lane, Queue kind) {
    const uint64_t key =
        uint64_t{warp} << 16 | static_cast<uint64_t>(lane & 255) << 8 | static_cast<uint8_t>(kind);
    const auto [place, fresh] = queues.try_emplace(key);
    if (fresh) {
      place->second.component = static_cast<uint16_t>(components.size());
      components.push_back({Component::Kind::Queue, kind, warp, 0});
    }
    return place->second;
  }
  BarrierState& barrier(uint32_t address) {
    const auto [place, fresh] = barriers.try_emplace(address);
    if (fresh) {
      place->second.component = static_cast<uint16_t>(components.size());
      components.push_back({Component::Kind::Barrier, Queue::Tensor, 0, address});
    }
    return place->second;
  }
};

}  // namespace mxfa::emulator
