// The clocks: what each release, acquire, fence and wait does to them (docs/hazards.md).
#include "checks/races.hpp"

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
  auto s = std::make_unique<ClusterState>();
  s->cluster = &cluster;
  s->number = next_number_++;
  s->warps_per_cta = static_cast<uint32_t>(cluster.ctas.front()->warps.size());
  const auto warps = static_cast<uint32_t>(s->warps_per_cta * cluster.ctas.size());
  s->warps.resize(warps);
  for (uint32_t w = 0; w < warps; ++w) {
    s->components.push_back({Component::Kind::Warp, Queue::Tensor, w, 0});
    s->warps[w].known.order.raise(w, 1);
  }
  for (const auto& cta : cluster.ctas) {
    s->shared.emplace_back((cta->shared_size + 15) / 16);
    s->tensor.emplace_back(cta->tensor_memory ? 4 * TensorMemory::kColumns : 0);
  }
  states_[&cluster] = std::move(s);
  last_cluster_ = nullptr;
}

void Races::cluster_ends(Cluster& cluster) {
  states_.erase(&cluster);
  last_cluster_ = nullptr;
}

// ---- release and acquire
void Races::publish(ClusterState& s, uint32_t warp, Knowledge& into) const {
  const WarpState& w = s.warps[warp];
  into.order.join(w.known.order);
  into.shared_fenced.join(w.known.shared_fenced);
  into.global_fenced.join(w.known.global_fenced);
  into.tensor_fenced.join(w.before);
  for (const auto& [cluster, other] : w.known.others) {
    into.others[cluster].order.join(other.order);
    into.others[cluster].global_fenced.join(other.global_fenced);
  }
}

void Races::released(ClusterState& s, uint32_t warp, uint32_t pc) {
  s.warps[warp].known.order.raise(warp, s.epoch(warp) + 1);
  s.warps[warp].release_pc.push_back(pc);
}

void Races::acquire(ClusterState& s, uint32_t warp, const Knowledge& from) { s.warps[warp].known.join(from); }

// Loads, stores and atomics with an order, and relaxed ones beside thread fences.
void Races::synchronise(Warp& warp, const LaneAccess& access) {
  const bool reads = access.kind != AccessKind::Write, writes = access.kind != AccessKind::Read;
  ClusterState& s = state_of(warp);
  const uint32_t index = s.index(warp);
  WarpState& w = s.warps[index];
  const bool publishes = writes && (access.order.releases() || w.fence_release);
  if (!publishes && locations_.empty()) return;
  for (uint32_t m = access.mask; m; m &= m - 1) {
    const uint64_t key = location_key(s, access.space, access.address[std::countr_zero(m)]);
    if (reads) {
      if (const auto found = locations_.find(key); found != locations_.end()) {
        if (!access.order.acquires() && !w.fence_acquire) w.fence_acquire = std::make_unique<Knowledge>();
        join_location(found->second, s.number, access.order.acquires() ? w.known : *w.fence_acquire);
      }
    }
    if (publishes) {
      Location& location = locations_[key];
      if (!reads) location.clear();  // a store ends the release sequence before it
      if (access.order.releases()) {
        Knowledge now;
        publish(s, index, now);
        publish_location(now, s.number, location);
      } else {
        publish_location(*w.fence_release, s.number, location);
      }
    }
  }
  if (writes && access.order.releases()) released(s, index, warp.pc);
}

void Races::fence(Warp& warp, const Fence& fence) {
  ClusterState& s = state_of(warp);
  const uint32_t index = s.index(warp);
  WarpState& w = s.warps[index];
  const bool orders = fence.kind == FenceKind::Thread || fence.kind == FenceKind::ProxyAsyncOrder ||
                      fence.kind == FenceKind::MbarrierInit;
  if (orders && fence.order.acquires() && w.fence_acquire) {
    w.known.join(*w.fence_acquire);
    w.fence_acquire.reset();
  }
  switch (fence.kind) {
    case FenceKind::ProxyAsync:
    case FenceKind::ProxyAsyncOrder:
      if (fence.shared) w.known.shared_fenced.join(w.known.order);
      if (fence.global) w.known.global_fenced.join(w.known.order);
      for (auto& [cluster, other] : w.known.others)
        if (fence.global) other.global_fenced.join(other.order);
      break;
    case FenceKind::TmemBefore:
      w.before.join(w.known.tensor_fenced);
      // Work of this warp that its waits have completed.
      for (uint32_t c = 0; c < s.components.size(); ++c)
        if (const Component& x = s.components[c];
            x.kind == Component::Kind::Queue && x.warp == index && x.queue <= Queue::TmemStore)
          w.before.raise(c, w.known.order.get(c));
      return;
    case FenceKind::TmemAfter:
      w.after.join(w.known.tensor_fenced);
      return;
    case FenceKind::Thread:
    case FenceKind::MbarrierInit:
      break;
    default:
      return;
  }
  if (orders && fence.order.releases()) {
    w.fence_release = std::make_unique<Knowledge>();
    publish(s, index, *w.fence_release);
  }
  released(s, index, kNoPc);  // what follows is not covered
}

// ---- mbarriers
void Races::mbarrier_init(Warp& warp, uint32_t mbarrier, uint32_t) {
  ClusterState& s = state_of(warp);
  BarrierState& b = s.barrier(mbarrier);
  b.base = b.highest + 1;
  b.highest = b.base;
  b.phase[0] = b.phase[1] = ~uint64_t{0};
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
  Knowledge& into = s.barrier(mbarrier).at(phase);
  if (order.releases()) {
    publish(s, index, into);
    released(s, index, warp.pc);
  } else if (s.warps[index].fence_release) {
    into.join(*s.warps[index].fence_release);
  }
}

void Races::mbarrier_arrive_async(Cluster& cluster, uint64_t ticket, uint32_t mbarrier, uint64_t phase) {
  ClusterState& s = state_of(cluster);
  const auto commit = s.commits.find(ticket);
  if (commit == s.commits.end()) return;
  s.barrier(mbarrier).at(phase).join(commit->second.knowledge);
  if (--commit->second.arrivals == 0) s.commits.erase(commit);
}

void Races::mbarrier_arrive_copies(Warp& warp, uint32_t mbarrier, uint64_t phase) {
  check_barrier(warp, mbarrier);
  ClusterState& s = state_of(warp);
  const QueueState& q = s.queue(s.index(warp), kWholeWarp, Queue::CopyAsync);
  s.barrier(mbarrier).at(phase).order.raise(q.component, q.issued);
}

void Races::mbarrier_test(Warp& warp, uint32_t mbarrier, uint32_t, uint64_t phase, bool done, Order order) {
  check_barrier(warp, mbarrier);
  if (!done || phase == 0) return;  // a fresh barrier: the phase before the first one
  ClusterState& s = state_of(warp);
  WarpState& w = s.of(warp);
  BarrierState& b = s.barrier(mbarrier);
  w.known.order.raise(b.component, b.value(phase - 1));
  if (b.phase[(phase - 1) & 1] != phase - 1) return;
  if (order.acquires()) {
    w.known.join(b.at(phase - 1));
  } else {
    if (!w.fence_acquire) w.fence_acquire = std::make_unique<Knowledge>();
    w.fence_acquire->join(b.at(phase - 1));
  }
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
  publish(s, s.index(warp), s.named[warp.cta->rank << 4 | id].at(generation));
  released(s, s.index(warp), warp.pc);
}

void Races::barrier_passed(Warp& warp, uint32_t id, uint64_t generation) {
  ClusterState& s = state_of(warp);
  acquire(s, s.index(warp), s.named[warp.cta->rank << 4 | id].at(generation));
}

void Races::cluster_arrive(Warp& warp, uint64_t generation, bool releases) {
  ClusterState& s = state_of(warp);
  const WarpState& w = s.of(warp);
  Clock& over = s.cluster_over.at(generation).order;
  over.join(w.known.order);
  over.join(w.over);
  if (releases)
    publish(s, s.index(warp), s.cluster_barrier.at(generation));
  else if (w.fence_release)  // hands on what a fence before it released: fence.mbarrier_init, mostly
    s.cluster_barrier.at(generation).join(*w.fence_release);
  released(s, s.index(warp), releases ? warp.pc : kNoPc);
}

void Races::cluster_passed(Warp& warp, uint64_t generation) {
  ClusterState& s = state_of(warp);
  acquire(s, s.index(warp), s.cluster_barrier.at(generation));
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
    if (q.issued > outstanding) s.warps[index].known.order.raise(q.component, q.issued - outstanding);
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
    w.known.order.raise(q.component, w.copy_groups.front());
}

void Races::wgmma_waited(Warp& warp, uint64_t through) {
  ClusterState& s = state_of(warp);
  const uint32_t first = s.index(warp) - warp.index % 4;
  s.of(warp).known.order.raise(s.queue(first, kWholeWarp, Queue::Wgmma).component,
                               static_cast<uint32_t>(through));
}

void Races::tmem_waited(Warp& warp, bool loads) {
  ClusterState& s = state_of(warp);
  const QueueState& q = s.queue(s.index(warp), kWholeWarp, loads ? Queue::TmemLoad : Queue::TmemStore);
  s.of(warp).known.order.raise(q.component, q.issued);
}

// tcgen05.commit releases what its thread knows, and the work it covers; it implies
// fence::before_thread_sync.
void Races::tensor_commit(Warp& warp, uint64_t ticket, int lane, int, std::span<const uint32_t> mbarriers) {
  ClusterState& s = state_of(warp);
  const uint32_t index = s.index(warp);
  const QueueState& q = s.queue(index, lane, Queue::Tensor);
  ClusterState::Commit& commit = s.commits[ticket];
  commit.arrivals = mbarriers.size();
  publish(s, index, commit.knowledge);
  commit.knowledge.order.raise(q.component, q.issued);
  commit.knowledge.tensor_fenced.raise(q.component, q.issued);
  released(s, index, warp.pc);
  for (const uint32_t mbarrier : mbarriers) check_barrier(warp, mbarrier);
}

}  // namespace mxfa::emulator
