// The clocks: what each release, acquire, fence and wait does to them (docs/hazards.md).
#include "checks/races.hpp"

#include <bit>
#include <utility>

#include "core/handlers.hpp"
#include "core/kernel.hpp"
#include "memory/memory.hpp"

namespace mxfa::emulator {
namespace {

uint64_t location_key(const ClusterState& s, MemorySpace space, uint64_t address) {
  // Shared memory belongs to a cluster; device addresses have no bit 63.
  return space == MemorySpace::Global ? address : 1ull << 63 | uint64_t{s.number} << 32 | address;
}

void join_location(const std::map<uint32_t, Knowledge>& location, uint32_t self, Knowledge& into) {
  for (const auto& [cluster, knowledge] : location) {
    if (cluster == self) {
      into.join(knowledge);
    } else {
      into.others[cluster].order.join(knowledge.order);
      into.others[cluster].global_fenced.join(knowledge.global_fenced);
    }
  }
}

void publish_location(const Knowledge& from, uint32_t self, std::map<uint32_t, Knowledge>& location) {
  Knowledge& mine = location[self];
  mine.order.join(from.order);
  mine.shared_fenced.join(from.shared_fenced);
  mine.global_fenced.join(from.global_fenced);
  mine.tensor_fenced.join(from.tensor_fenced);
  mine.reached.join(from.reached);
  for (const auto& [cluster, other] : from.others) {
    location[cluster].order.join(other.order);
    location[cluster].global_fenced.join(other.global_fenced);
  }
}

constexpr int kWholeWarp = 255;

}  // namespace

Races::Races(CheckMode mode, Findings& findings) : mode_(mode), findings_(findings) {}

void Races::cluster_begins(Cluster& cluster) {
  grid_ = cluster.grid;
  program_ = cluster.grid->kernel->program;
  findings_.name_lines(*program_);
  unordered_sums_.resize(program_->code.size());
  auto s = std::make_unique<ClusterState>();
  s->cluster = &cluster;
  s->number = next_number_++;
  s->warps_per_cta = static_cast<uint32_t>(cluster.ctas.front()->warps.size());
  const auto warps = static_cast<uint32_t>(s->warps_per_cta * cluster.ctas.size());
  s->warps.resize(warps);
  for (uint32_t w = 0; w < warps; ++w) {
    s->components.push_back({Component::Kind::Warp, Queue::Tensor, w, 0});
  }
  for (const auto& cta : cluster.ctas) {
    s->shared.emplace_back((cta->shared_size + 15) / 16);
    s->tensor.emplace_back(cta->tensor_memory ? 4 * TensorMemory::kColumns : 0);
  }
  states_[&cluster] = std::move(s);
  last_cluster_ = nullptr;
}

void Races::cluster_ends(Cluster& cluster) {
  ClusterState& s = *states_.at(&cluster);
  for (auto& [mbarrier, b] : s.barriers) {
    const auto& facts = cluster.ctas[shared_rank(mbarrier)]->mbarriers;
    if (const auto known = facts.find(shared_offset(mbarrier)); known != facts.end() && known->second.phases)
      phase_completed(s, mbarrier, b, known->second.phases - 1);
  }
  states_.erase(&cluster);
  last_cluster_ = nullptr;
}

// ---- release and acquire
void Races::publish(ClusterState& s, const Warp& warp, uint32_t lanes, Knowledge& into) const {
  const uint32_t index = s.index(warp);
  const WarpState& w = s.warps[index];
  for (const LaneGroup& g : w.groups) {
    if (!(g.mask & lanes)) continue;
    into.join_all_but_tensor(g.known);
    into.tensor_fenced.join(warp.alive & ~lanes ? g.alone : g.before);
  }
  const auto accesses = [&](Clock& clock) {
    if (!(warp.alive & ~lanes)) return clock.raise(index, w.epoch);
    for (uint32_t m = lanes; m; m &= m - 1)
      clock.raise_lane(index, static_cast<uint32_t>(std::countr_zero(m)), w.epoch);
    clock.raise_lane(index, Clock::kAnyLane, w.epoch);
  };
  accesses(into.order);
  into.reached.raise(index, w.epoch);
}

void Races::released(ClusterState& s, uint32_t warp, uint32_t pc) {
  WarpState& w = s.warps[warp];
  ++w.epoch;
  w.accessed = false;
  w.release_pc.push_back(pc);
}

// Everything that these lanes have done comes before everything that they will do.
void Races::warp_sync(Warp& warp, uint32_t lanes) {
  // The text of the PTX ISA promises an order of memory for bar.warp.sync (and barriers, which are releases
  // and acquires here) only.
  if (mode_ == CheckMode::Strict && program_->code[warp.pc].run != handlers::warp_sync()) return;
  ClusterState& s = state_of(warp);
  const uint32_t index = s.index(warp);
  WarpState& w = s.warps[index];
  const bool all = !(warp.alive & ~lanes);
  const uint32_t done = w.accessed ? w.epoch : w.epoch - 1;
  if (all && w.groups.size() == 1 && !w.accessed) {
    w.groups.front().known.order.raise(index, done);
    w.groups.front().alone = w.groups.front().before;
    return;
  }
  LaneGroup* first = nullptr;
  s.learn(warp, lanes, [](LaneGroup&) {});  // splits
  for (LaneGroup& g : w.groups) {
    if (!(g.mask & lanes)) continue;
    if (!first) {
      first = &g;
      continue;
    }
    first->known.join(g.known);
    first->before.join(g.before);
    first->after.join(g.after);
    for (auto member : {&LaneGroup::fence_release, &LaneGroup::fence_acquire})
      if (g.*member) {
        if (!(first->*member)) (first->*member).emplace();
        (first->*member)->join(*(g.*member));
      }
    first->mask |= g.mask;
    g.mask = 0;
  }
  if (!first) return;
  if (all) {
    first->known.order.raise(index, done);
    first->alone = first->before;
  } else {
    for (uint32_t m = lanes; m; m &= m - 1)
      first->known.order.raise_lane(index, static_cast<uint32_t>(std::countr_zero(m)), done);
    first->known.order.raise_lane(index, Clock::kAnyLane, done);
  }
  std::erase_if(w.groups, [](const LaneGroup& g) { return g.mask == 0; });
  if (w.accessed) released(s, index, kNoPc);
}

void Races::lanes_exit(Warp& warp, uint32_t lanes) {
  std::vector<LaneGroup>& groups = state_of(warp).of(warp).groups;
  for (size_t k = 0; groups.size() > 1 && k < groups.size();) {
    groups[k].mask &= ~lanes;
    if (groups[k].mask == 0)
      groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(k));
    else
      ++k;
  }
}

// Loads, stores and atomics with an order, and relaxed ones beside thread fences.
void Races::synchronise(Warp& warp, const LaneAccess& access) {
  const bool reads = access.kind != AccessKind::Write, writes = access.kind != AccessKind::Read;
  ClusterState& s = state_of(warp);
  const uint32_t index = s.index(warp);
  WarpState& w = s.warps[index];
  bool fenced = false;
  for (const LaneGroup& g : w.groups) fenced = fenced || ((g.mask & access.mask) && g.fence_release);
  const bool publishes = writes && (access.order.releases() || fenced);
  if (!publishes && locations_.empty()) return;
  uint64_t learnt = ~uint64_t{0};
  for (uint32_t m = access.mask; m; m &= m - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(m));
    const uint64_t key = location_key(s, access.space, access.address[lane]);
    if (reads && key != std::exchange(learnt, key)) {
      if (const auto found = locations_.find(key); found != locations_.end()) {
        // All lanes of the instruction learn it: they mostly ask for the same.
        s.learn(warp, access.mask, [&](LaneGroup& g) {
          if (!access.order.acquires() && !g.fence_acquire) g.fence_acquire.emplace();
          join_location(found->second, s.number, access.order.acquires() ? g.known : *g.fence_acquire);
        });
      }
    }
    if (publishes) {
      Location& location = locations_[key];
      if (!reads) location.clear();  // a store ends the release sequence before it
      if (access.order.releases()) {
        Knowledge now;
        publish(s, warp, access.mask, now);
        publish_location(now, s.number, location);
      } else if (const auto& released = s.group_of(index, lane).fence_release) {
        publish_location(*released, s.number, location);
      }
    }
  }
  if (writes && access.order.releases()) released(s, index, warp.pc);
}

void Races::fence(Warp& warp, const Fence& fence) {
  ClusterState& s = state_of(warp);
  const uint32_t index = s.index(warp), epoch = s.epoch(index);
  const bool orders = fence.kind == FenceKind::Thread || fence.kind == FenceKind::ProxyAsyncOrder ||
                      fence.kind == FenceKind::MbarrierInit;
  const bool proxy = fence.kind == FenceKind::ProxyAsync || fence.kind == FenceKind::ProxyAsyncOrder;
  const bool tensor = fence.kind == FenceKind::TmemBefore || fence.kind == FenceKind::TmemAfter;
  if (!orders && !proxy && !tensor) return;
  const uint32_t lanes = warp.mask;
  const auto cover = [&](Clock& fenced, const Clock& order) {
    fenced.join(order);
    if (!(warp.alive & ~lanes)) return fenced.raise(index, epoch);
    for (uint32_t m = lanes; m; m &= m - 1)
      fenced.raise_lane(index, static_cast<uint32_t>(std::countr_zero(m)), epoch);
    fenced.raise_lane(index, Clock::kAnyLane, epoch);
  };
  s.learn(warp, lanes, [&](LaneGroup& g) {
    if (orders && fence.order.acquires() && g.fence_acquire) {
      g.known.join(*g.fence_acquire);
      g.fence_acquire.reset();
    }
    if (proxy && fence.shared) cover(g.known.shared_fenced, g.known.order);
    if (proxy && fence.global) {
      cover(g.known.global_fenced, g.known.order);
      for (auto& [cluster, other] : g.known.others) other.global_fenced.join(other.order);
    }
    if (fence.kind == FenceKind::TmemBefore) {
      g.before.join(g.known.tensor_fenced);
      // Work of this warp that its waits have completed.
      for (uint32_t c = 0; c < s.components.size(); ++c)
        if (const Component& x = s.components[c];
            x.kind == Component::Kind::Queue && x.warp == index && x.queue <= Queue::TmemAlloc)
          g.before.raise(c, g.known.order.get(c));
      if (warp.alive & ~lanes) g.alone = g.before;
    }
    if (fence.kind == FenceKind::TmemAfter) g.after.join(g.known.tensor_fenced);
  });
  if (tensor) return;
  if (s.unfenced_inits && (fence.kind == FenceKind::MbarrierInit || (proxy && fence.shared)))
    for (auto& [mbarrier, b] : s.barriers)
      if (b.init_unfenced && b.init_warp == index) b.init_unfenced = false, --s.unfenced_inits;
  if (orders && fence.order.releases()) {
    Knowledge now;
    publish(s, warp, lanes, now);
    s.learn(warp, lanes, [&](LaneGroup& g) { g.fence_release = now; });
  }
  released(s, index, kNoPc);  // what follows is not covered
}

// ---- mbarriers
void Races::mbarrier_init(Warp& warp, uint32_t mbarrier, uint32_t) {
  ClusterState& s = state_of(warp);
  BarrierState& b = s.barrier(mbarrier);
  b.base = b.highest + 1;
  b.highest = b.base;
  b.phase[0] = b.phase[1] = b.passed[0] = b.passed[1] = ~uint64_t{0};
  b.observed.clear();
  if (!b.init_unfenced) ++s.unfenced_inits;
  b.init_unfenced = true;
  b.init_warp = s.index(warp);
  b.init_pc = warp.pc;
  Access now = access_by(warp, MemorySpace::Shared, true);
  now.record.flags |= kBarrierInit;
  touch_bytes(now, shared_rank(mbarrier), shared_offset(mbarrier), 8);
}

void Races::mbarrier_inval(Warp& warp, uint32_t mbarrier) {
  Access now = access_by(warp, MemorySpace::Shared, true);
  now.name = "mbarrier.inval";
  touch_bytes(now, shared_rank(mbarrier), shared_offset(mbarrier), 8);
}

void Races::mbarrier_expect(Warp& warp, uint32_t mbarrier, uint32_t, uint64_t) {
  check_barrier(warp, mbarrier);
}

void Races::mbarrier_arrive(Warp& warp, uint32_t mbarrier, uint32_t, uint64_t phase, Order order) {
  check_barrier(warp, mbarrier);
  ClusterState& s = state_of(warp);
  const uint32_t index = s.index(warp);
  Knowledge& into = released_in(s, mbarrier, phase);
  uint64_t& observed = s.barrier(mbarrier).observed[index];
  observed = std::max(observed, phase);
  if (order.releases()) {
    publish(s, warp, warp.mask, into);
    released(s, index, warp.pc);
    return;
  }
  for (const LaneGroup& g : s.warps[index].groups) {
    if (!(g.mask & warp.mask)) continue;
    if (g.fence_release) into.join(*g.fence_release);
    into.reached.join(g.known.reached);
  }
  into.reached.raise(index, s.epoch(index));
}

void Races::mbarrier_arrive_async(Cluster& cluster, uint64_t ticket, uint32_t mbarrier, uint64_t phase) {
  ClusterState& s = state_of(cluster);
  const auto commit = s.commits.find(ticket);
  if (commit == s.commits.end()) return;
  released_in(s, mbarrier, phase).join(commit->second.knowledge);
  if (--commit->second.arrivals == 0) s.commits.erase(commit);
}

void Races::mbarrier_arrive_copies(Warp& warp, uint32_t mbarrier, uint64_t phase) {
  check_barrier(warp, mbarrier);
  ClusterState& s = state_of(warp);
  const QueueState& q = s.queue(s.index(warp), kWholeWarp, Queue::CopyAsync);
  released_in(s, mbarrier, phase).order.raise(q.component, q.issued);
  issued_for(s, warp, warp.mask, mbarrier);
}

void Races::mbarrier_test(Warp& warp, uint32_t mbarrier, uint32_t parity, uint64_t phase, bool done,
                          Order order) {
  check_barrier(warp, mbarrier);
  waited(warp, mbarrier, parity, phase, done);
  if (!done || phase == 0) return;  // a fresh barrier: the phase before the first one
  ClusterState& s = state_of(warp);
  BarrierState& b = s.barrier(mbarrier);
  s.learn(warp, warp.mask, [&](LaneGroup& g) {
    g.known.order.raise(b.component, b.value(phase - 1));
    g.known.reached.join(b.issuers);
    if (b.phase[(phase - 1) & 1] != phase - 1) return;
    if (order.acquires()) {
      g.known.join(b.at(phase - 1));
    } else {
      if (!g.fence_acquire) g.fence_acquire.emplace();
      g.fence_acquire->join(b.at(phase - 1));
      g.known.reached.join(b.at(phase - 1).reached);
    }
  });
}

void Races::landed(Cluster& cluster, uint64_t ticket, uint32_t mbarrier, uint32_t, uint64_t phase) {
  ClusterState& s = state_of(cluster);
  BarrierState& b = s.barrier(mbarrier);
  const uint32_t value = b.value(phase);
  b.highest = std::max(b.highest, value + 1);
  if (ticket == 0 || ticket >= works_.size()) return;
  works_[ticket].pending = false;
  works_[ticket].value = value;
}

// ---- barriers of CTAs and clusters
void Races::barrier_arrive(Warp& warp, uint32_t id, uint64_t generation) {
  ClusterState& s = state_of(warp);
  publish(s, warp, warp.mask, s.named[warp.cta->rank << 4 | id].at(generation));
  released(s, s.index(warp), warp.pc);
}

void Races::barrier_passed(Warp& warp, uint32_t id, uint64_t generation) {
  ClusterState& s = state_of(warp);
  const Knowledge& from = s.named[warp.cta->rank << 4 | id].at(generation);
  s.learn(warp, warp.mask, [&](LaneGroup& g) { g.known.join(from); });
}

void Races::cluster_arrive(Warp& warp, uint64_t generation, bool releases) {
  ClusterState& s = state_of(warp);
  const WarpState& w = s.of(warp);
  Clock& over = s.cluster_over.at(generation).order;
  for (const LaneGroup& g : w.groups) over.join(g.known.order);
  over.raise(s.index(warp), w.epoch);
  over.join(w.over);
  for (const LaneGroup& g : w.groups) s.cluster_barrier.at(generation).reached.join(g.known.reached);
  s.cluster_barrier.at(generation).reached.raise(s.index(warp), w.epoch);
  if (releases) publish(s, warp, warp.mask, s.cluster_barrier.at(generation));
  for (const LaneGroup& g :
       w.groups)  // hands on what a fence before it released: fence.mbarrier_init, mostly
    if (!releases && (g.mask & warp.mask) && g.fence_release)
      s.cluster_barrier.at(generation).join(*g.fence_release);
  released(s, s.index(warp), releases ? warp.pc : kNoPc);
}

void Races::cluster_passed(Warp& warp, uint64_t generation) {
  ClusterState& s = state_of(warp);
  const Knowledge& from = s.cluster_barrier.at(generation);
  s.learn(warp, warp.mask, [&](LaneGroup& g) { g.known.join(from); });
  s.of(warp).over.join(s.cluster_over.at(generation).order);
}

// ---- queues
void Races::bulk_commit(Warp& warp, int lane) {
  ClusterState& s = state_of(warp);
  ++s.queue(s.index(warp), lane, Queue::BulkRead).issued;
  ++s.queue(s.index(warp), lane, Queue::Bulk).issued;
}

void Races::bulk_waited(Warp& warp, int lane, uint32_t outstanding, bool read_only) {
  ClusterState& s = state_of(warp);
  const uint32_t index = s.index(warp);
  for (const Queue kind : {Queue::BulkRead, Queue::Bulk}) {
    if (kind == Queue::Bulk && read_only) continue;
    const QueueState& q = s.queue(index, lane, kind);
    if (q.issued > outstanding)
      s.learn(warp, 1u << lane,
              [&](LaneGroup& g) { g.known.order.raise(q.component, q.issued - outstanding); });
  }
}

void Races::copy_async_commit(Warp& warp) {
  ClusterState& s = state_of(warp);
  s.of(warp).copy_groups.push_back(s.queue(s.index(warp), kWholeWarp, Queue::CopyAsync).issued);
}

void Races::copy_async_waited(Warp& warp, uint32_t outstanding) {
  ClusterState& s = state_of(warp);
  WarpState& w = s.of(warp);
  const QueueState& q = s.queue(s.index(warp), kWholeWarp, Queue::CopyAsync);
  for (; w.copy_groups.size() > outstanding; w.copy_groups.pop_front())
    s.learn(warp, warp.mask, [&](LaneGroup& g) { g.known.order.raise(q.component, w.copy_groups.front()); });
}

void Races::wgmma_waited(Warp& warp, uint64_t through) {
  ClusterState& s = state_of(warp);
  const uint32_t first = s.index(warp) - warp.index % 4;
  const uint16_t component = s.queue(first, kWholeWarp, Queue::Wgmma).component;
  s.learn(warp, warp.mask,
          [&](LaneGroup& g) { g.known.order.raise(component, static_cast<uint32_t>(through)); });
}

void Races::tmem_waited(Warp& warp, bool loads) {
  ClusterState& s = state_of(warp);
  const QueueState& q = s.queue(s.index(warp), kWholeWarp, loads ? Queue::TmemLoad : Queue::TmemStore);
  s.learn(warp, warp.mask, [&](LaneGroup& g) { g.known.order.raise(q.component, q.issued); });
}

// tcgen05.commit releases what its thread knows, and the work it covers; it implies
// fence::before_thread_sync.
void Races::tensor_commit(Warp& warp, uint64_t ticket, int lane, int, std::span<const uint32_t> mbarriers) {
  ClusterState& s = state_of(warp);
  const uint32_t index = s.index(warp);
  const QueueState& q = s.queue(index, lane, Queue::Tensor);
  ClusterState::Commit& commit = s.commits[ticket];
  commit.arrivals = mbarriers.size();
  publish(s, warp, 1u << lane, commit.knowledge);
  commit.knowledge.order.raise(q.component, q.issued);
  commit.knowledge.tensor_fenced.raise(q.component, q.issued);
  released(s, index, warp.pc);
  for (const uint32_t mbarrier : mbarriers) check_barrier(warp, mbarrier, true);
}

}  // namespace mxfa::emulator
