// The accesses: records in the shadows, and whether something orders a new one after them.
#include <bit>

#include "checks/races.hpp"
#include "core/kernel.hpp"
#include "memory/memory.hpp"

namespace mxfa::emulator {
namespace {

constexpr int kWholeWarp = 255;

// Bytes [first, last) of a cell of 16.
uint32_t byte_mask(uint64_t first, uint64_t last) {
  return (last >= 16 ? 0xffffu : (1u << last) - 1) & ~((1u << first) - 1);
}

}  // namespace

void forget_repeated(std::vector<Record>& records) {
  std::unordered_map<uint64_t, uint32_t> later;  // bytes of newer records, by warp and kind
  std::erase_if(records, [](const Record& r) { return r.mask == 0; });
  for (auto r = records.rbegin(); r != records.rend(); ++r) {
    if (r->flags & kWork) continue;
    uint32_t& bytes = later[uint64_t{r->cluster} << 32 | uint64_t{r->component} << 16 | r->flags];
    r->mask &= ~bytes;
    bytes |= r->mask;
  }
  std::erase_if(records, [](const Record& r) { return r.mask == 0; });
}

Cell* Races::shared_cell(ClusterState& s, uint64_t address) {
  const auto rank = static_cast<uint32_t>(address >> kRankShift);
  const uint64_t cell = shared_offset(static_cast<uint32_t>(address)) / 16;
  return rank < s.shared.size() && cell < s.shared[rank].size() ? &s.shared[rank][cell] : nullptr;
}

Races::Access Races::access_by(Warp& warp, MemorySpace space, bool writes, int lane) {
  ClusterState& s = state_of(warp);
  Access a;
  a.state = &s;
  a.warp = s.index(warp);
  a.space = space;
  const bool several = lane < 0 && (warp.mask & (warp.mask - 1)) != 0;
  if (lane < 0) lane = warp.mask ? std::countr_zero(warp.mask) : 0;
  a.group = &s.group_of(a.warp, static_cast<uint32_t>(lane));
  const Knowledge& known = a.group->known;
  a.order = &known.order;
  a.fenced = space == MemorySpace::Global ? &known.global_fenced : &known.shared_fenced;
  a.record.pc = warp.pc;
  a.record.cluster = s.number;
  a.record.component = static_cast<uint16_t>(a.warp);
  a.record.value = s.epoch(a.warp);
  a.record.flags = writes ? kWrites : 0;
  a.record.lane = static_cast<uint16_t>(lane & 31);
  a.record.pattern = several ? kOtherLanes : 4;
  s.warps[a.warp].accessed = true;
  return a;
}

uint32_t Races::lane_at(const Record& r, uint32_t byte) const {
  if (r.flags & kWork) return works_[r.value].lane;
  return r.pattern < kEveryLane ? (r.lane + (byte >> r.pattern)) & 31 : r.lane;
}

// Accesses of one warp: whether every byte is touched by the lane that touched it before.
bool Races::same_lanes(const Record& old, const Access& now) const {
  if (old.pattern == kOtherLanes || now.record.pattern == kOtherLanes) return true;  // not known
  if (old.pattern == kEveryLane || now.record.pattern == kEveryLane) return old.pattern == now.record.pattern;
  const uint32_t common = old.mask & now.record.mask;
  if (old.pattern == now.record.pattern && !((old.flags | now.record.flags) & kWork))
    return old.lane == now.record.lane || !common;  // the usual case, without the loop
  for (uint32_t m = common; m; m &= m - 1) {
    const auto byte = static_cast<uint32_t>(std::countr_zero(m));
    if (lane_at(old, byte) != lane_at(now.record, byte)) return false;
  }
  return true;
}

// Whether the clock has the access up to `value`, as far as it touched these bytes.
bool Races::covers(const Clock& clock, const Record& old, uint32_t value, uint32_t bytes) {
  if (clock.get(old.component) >= value) return true;
  if (old.flags & (kWork | kCopyAsync)) return false;
  if (old.pattern == kOtherLanes) return clock.lane(old.component, Clock::kAnyLane) >= value;
  if (clock.lane(old.component, Clock::kAnyLane) < value) return false;
  uint32_t lanes = 0;
  if (old.pattern == kEveryLane) lanes = ~0u;
  for (uint32_t m = lanes ? 0 : bytes; m; m &= m - 1)
    lanes |= 1u << ((old.lane + (static_cast<uint32_t>(std::countr_zero(m)) >> old.pattern)) & 31);
  for (; lanes; lanes &= lanes - 1)
    if (clock.lane(old.component, static_cast<uint32_t>(std::countr_zero(lanes))) < value) return false;
  return true;
}

bool Races::before(const Record& old, const Access& now) const {
  uint32_t value = old.value;
  const Clock* order = now.order;
  const bool own = old.cluster == now.record.cluster;
  if (!own) {
    const auto& others = now.group->known.others;
    const auto found = others.find(old.cluster);
    if (found == others.end()) return false;
    order = &found->second.order;
  }
  if (old.flags & kWork) {
    const Work& work = works_[old.value];
    if (own) {
      // The tensor pipe works in the order of issue; so do the stores of one warp to tensor memory.
      if ((old.flags & now.record.flags & kTensorPipe) &&
          (work.warp == now.warp || order->get(work.warp) >= work.epoch ||
           order->lane(work.warp, work.lane) >= work.epoch))
        return true;
      if ((old.flags & now.record.flags & kTensorAccess) && !(old.flags & kTensorPipe) &&
          old.component == now.record.component)
        return true;
    }
    if (work.pending) return false;
    value = work.value;
  }
  // alloc blocks until its address is written: a cluster barrier, even a relaxed one, comes after that
  // (DeepGEMM reads it so).
  if ((old.flags & kAllocation) && own && now.state->warps[now.warp].over.get(old.component) >= value)
    return true;
  if (order->get(old.component) >= value) return true;
  if (old.flags & (kWork | kCopyAsync)) return false;
  // Lanes follow their own program; a wgmma is the work of four warps.
  const bool group_work = (now.record.flags & kWork) && works_[now.record.value].kind == AsyncKind::Wgmma;
  if (own && old.component == now.warp && !group_work && same_lanes(old, now)) return true;
  return covers(*order, old, value, old.mask & now.record.mask);
}

bool Races::loosely_before(const Record& old, const Access& now) const {
  const bool synchronous = !(old.flags & (kWork | kCopyAsync)), own = old.cluster == now.record.cluster;
  if (synchronous && own && old.component == now.warp) return true;
  for (LaneGroup& g : now.state->warps[now.warp].groups) {
    Access other = now;
    other.group = &g;
    other.order = &g.known.order;
    if (&g != now.group && before(old, other)) return true;
    const Clock* order = other.order;
    if (!own) {
      const auto found = g.known.others.find(old.cluster);
      if (found == g.known.others.end()) continue;
      order = &found->second.order;
    }
    if (synchronous && order->lane(old.component, Clock::kAnyLane) >= old.value) return true;
  }
  return false;
}

// Loads and stores of one lane quarter go through one port in the order of issue, and a store is done before
// its columns belong to somebody else: CUTLASS's attention hands row statistics on so, and deallocates so.
bool Races::through_one_port(const Record& old, const Access& now) const {
  if (!(old.flags & kTensorAccess) || (old.flags & kTensorPipe) || old.cluster != now.record.cluster)
    return false;
  const Work& work = works_[old.value];
  const bool port = (now.record.flags & kTensorAccess) && !(now.record.flags & kTensorPipe),
             deallocation = !(now.record.flags & kTensorAccess) && work.kind == AsyncKind::TmemStore;
  return (port || deallocation) && (work.warp == now.warp || now.order->get(work.warp) >= work.epoch ||
                                    now.order->lane(work.warp, work.lane) >= work.epoch);
}

// Work of another warp that no pair of tcgen05 fences has handed on.
bool Races::lacks_thread_sync(const Record& old, const Access& now) const {
  if ((old.flags & (kWork | kTensorAccess)) != (kWork | kTensorAccess)) return false;
  const Work& work = works_[old.value];
  return work.warp != now.warp && now.group->after.get(old.component) < work.value;
}

Races::Problem Races::problem(const Record& old, const Access& now) const {
  if (!before(old, now)) {
    // Whether the columns are known to be there is a matter of the address, which is read.
    if ((old.flags & kWork) && works_[old.value].allocation) return Problem::None;
    if (through_one_port(old, now)) return Problem::TmemWait;
    if ((old.flags & kWork) && works_[old.value].pending) return Problem::InFlight;
    return loosely_before(old, now) ? Problem::WarpSync : Problem::Unordered;
  }
  if ((now.record.flags & kAsyncProxy) && !(old.flags & (kAsyncProxy | kTensorAccess | kWork))) {
    const Clock* fenced = now.fenced;
    if (old.cluster != now.record.cluster)
      fenced = &now.group->known.others.find(old.cluster)->second.global_fenced;
    if (!covers(*fenced, old, old.value, old.mask & now.record.mask)) {
      if (!(old.flags & kCopyAsync) && fenced->lane(old.component, Clock::kAnyLane) >= old.value)
        return Problem::WarpSync;
      return !(old.flags & kWrites)     ? Problem::FenceAfterRead
             : (old.flags & kCopyAsync) ? Problem::FenceAfterCopy
                                        : Problem::Fence;
    }
  }
  if ((old.flags & now.record.flags & kTensorAccess) && !(old.flags & now.record.flags & kTensorPipe) &&
      lacks_thread_sync(old, now))
    return Problem::ThreadSyncFence;
  return Problem::None;
}

void Races::check(const Record& old, const Access& now, uint64_t where) {
  if (old.component == now.record.component && old.cluster == now.record.cluster &&
      !((old.flags | now.record.flags) & kWork)) {
    if (now.order->get(old.component) >= old.value || same_lanes(old, now)) [[likely]]
      return;
    if (old.pc == now.record.pc && old.value == now.record.value) return;  // lanes of one instruction
  }
  // Data over an mbarrier, or another init: the life cycle's finding (checks/barriers.hpp).
  if ((old.flags & kBarrierInit) && !now.name && (now.record.flags & kWrites)) return;
  if (const Problem why = problem(old, now); why != Problem::None) report(why, old, now, where);
}

// Atomic additions of floating-point numbers do not race: their order may be left open.  Where they are in
// order but for lanes of a warp that do not wait for each other, one is meant.  What came last tells: an
// ordered sum is a chain.
void Races::check_sum(Cell& cell, const Access& now, uint64_t where) {
  if (unordered_sums_[now.record.pc]) return;
  const auto look = [&](const Record& old) {
    const bool own = old.component == now.record.component && old.cluster == now.record.cluster;
    if (!(old.flags & kSum) || !(old.mask & now.record.mask) || own || before(old, now)) return;
    if (unordered_sums_[old.pc]) return;
    if (loosely_before(old, now)) return report(Problem::WarpSyncInSum, old, now, where);
    for (const uint32_t pc : {old.pc, now.record.pc}) {
      unordered_sums_[pc] = true;
      findings_.withdraw(kWarpSyncInSum, pc);
    }
  };
  look(cell.write);  // or here, or the last of:
  if (!cell.more) return;
  if (const auto& strong = overflow_of(now).list(cell.more).strong; !strong.empty()) look(strong.back());
}

namespace {

// The usual case, apart: a plain access to bytes of which the cell knows nothing but plain accesses by the
// same lanes of the same warp.  check() has nothing against those, and the fresh record takes their place.
bool touched_before(Cell& cell, const Record& fresh) {
  const auto same = [&](const Record& old) {
    return !(old.mask & fresh.mask) ||
           (old.component == fresh.component && old.cluster == fresh.cluster && old.lane == fresh.lane &&
            old.pattern == fresh.pattern && !(old.flags & ~kWrites));
  };
  if (cell.more || (fresh.flags & ~kWrites) || !same(cell.write) || !same(cell.read[0]) ||
      !same(cell.read[1]))
    return false;
  Record* place = nullptr;
  if (fresh.flags & kWrites)
    place = cell.write.mask & ~fresh.mask ? nullptr : &cell.write;
  else
    place = !(cell.read[0].mask & ~fresh.mask)   ? &cell.read[0]
            : !(cell.read[1].mask & ~fresh.mask) ? &cell.read[1]
                                                 : nullptr;
  if (!place) return false;
  cell.read[0].mask &= ~fresh.mask;
  cell.read[1].mask &= ~fresh.mask;
  *place = fresh;
  return true;
}

}  // namespace

void Races::touch_cell(Cell& cell, Access& now, uint32_t mask, uint64_t where) {
  now.record.mask = mask;
  if (touched_before(cell, now.record)) return;
  if (now.record.flags & kSum) check_sum(cell, now, where);
  touch(
      cell, overflow_of(now), now.record, [&](const Record& old) { check(old, now, where); },
      [&](const Record& old) {
        return (old.component == now.record.component && old.cluster == now.record.cluster &&
                old.pattern == now.record.pattern && old.lane == now.record.lane &&
                !((old.flags | now.record.flags) & kWork)) ||
               before(old, now);
      });
}

void Races::touch_bytes(Access& now, uint32_t rank, uint64_t begin, uint64_t bytes) {
  const uint64_t end = begin + bytes;
  for (uint64_t at = begin & ~uint64_t{15}; at < end; at += 16) {
    const uint32_t mask = byte_mask(std::max(begin, at) - at, std::min(end, at + 16) - at);
    if (now.space == MemorySpace::Global) {
      touch_cell(global_.cell(at), now, mask, at);
    } else {
      std::vector<Cell>& cells = now.state->shared[rank];
      if (at / 16 < cells.size()) touch_cell(cells[at / 16], now, mask, uint64_t{rank} << kRankShift | at);
    }
  }
}

void Races::touch_columns(Access& now, const Touch& touch) {
  std::vector<Cell>& cells = now.state->tensor[touch.rank];
  for (uint32_t quarter = touch.lane / 32; quarter * 32 < uint32_t{touch.lane} + touch.lanes; ++quarter) {
    const uint32_t first = std::max<uint32_t>(touch.lane, quarter * 32) % 32,
                   last = std::min<uint32_t>(touch.lane + touch.lanes - quarter * 32, 32);
    const uint32_t mask = (last >= 32 ? ~0u : (1u << last) - 1) & ~((1u << first) - 1);
    for (uint32_t column = 0; column < touch.count; ++column) {
      const uint64_t place = quarter * TensorMemory::kColumns + touch.begin + column;
      touch_cell(cells[place], now, mask, uint64_t{touch.rank} << kRankShift | place);
    }
  }
}

void Races::access(Warp& warp, const LaneAccess& a) {
  ClusterState& s = state_of(warp);
  const bool strong = a.kind == AccessKind::Atomic || a.order.semantics != Semantics::Weak;
  // A strong read comes after what it acquires; a strong write is checked with what it knew before.
  if (strong && a.kind == AccessKind::Read) synchronise(warp, a);
  QueueState* copies = nullptr;
  if (a.copy_async) {
    copies = &s.queue(s.index(warp), kWholeWarp, Queue::CopyAsync);
    if (a.kind == AccessKind::Write) ++copies->issued;  // the last side to be reported
  }
  // A record has no room for some lanes of a warp: in a cell that they share they count as one.
  const uint32_t shared_by = warp.alive & ~a.mask ? kOtherLanes : kEveryLane;
  uint32_t rest = a.mask;
  while (rest) {
    Access now = access_by(warp, a.space, a.kind != AccessKind::Read, std::countr_zero(rest));
    if (strong) now.record.flags |= kStrong;
    if (a.sum) now.record.flags |= kSum;
    if (copies) {
      now.record.flags |= kCopyAsync;
      now.record.component = copies->component;
      now.record.value = copies->issued + (a.kind != AccessKind::Write);
    }
    touch_lanes(a, now, rest & now.group->mask, shared_by);
    rest &= ~now.group->mask;
  }
  if (strong && a.kind != AccessKind::Read) synchronise(warp, a);
}

// Lanes that know the same.  Those that follow each other in a cell become one record.
void Races::touch_lanes(const LaneAccess& a, Access& now, uint32_t lanes, uint32_t shared_by) {
  const bool global = a.space == MemorySpace::Global;
  const uint32_t size = std::has_single_bit(a.bytes)
                            ? std::min(static_cast<uint32_t>(std::countr_zero(a.bytes)), 4u)
                            : uint32_t{kOtherLanes};
  Cell* cell = nullptr;
  uint64_t place = ~uint64_t{0};
  uint32_t mask = 0;
  for (uint32_t m = lanes; m; m &= m - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(m));
    const uint64_t address = a.address[lane], last = address + a.bytes;
    for (uint64_t at = address & ~uint64_t{15}; at < last; at += 16) {
      const auto begin = static_cast<uint32_t>(std::max(address, at) - at);
      const uint32_t bytes = byte_mask(begin, std::min(last, at + 16) - at);
      const uint32_t of_first = (lane - (size < kEveryLane ? begin >> size : 0)) & 31;
      if (at == place) {
        if (now.record.pattern < kEveryLane && of_first == now.record.lane) {
        } else if (bytes == mask && now.record.pattern != kOtherLanes) {
          now.record.pattern = shared_by & 7;
        } else {
          now.record.pattern = kOtherLanes;
        }
        mask |= bytes;
        continue;
      }
      if (cell) touch_cell(*cell, now, mask, place);
      place = at;
      mask = bytes;
      now.record.lane = static_cast<uint16_t>(of_first & 31);
      now.record.pattern = size & 7;
      cell = global ? &global_.cell(at) : shared_cell(*now.state, at);
    }
  }
  if (cell) touch_cell(*cell, now, mask, place);
}

void Races::issue(Warp& warp, const AsyncWork& work, std::span<const Touch> touches) {
  ClusterState& s = state_of(warp);
  const uint32_t index = s.index(warp);
  if (works_.size() <= work.ticket) works_.resize(work.ticket + 1);
  Work& w = works_[work.ticket];
  w.kind = work.kind;
  w.pc = warp.pc;
  w.warp = static_cast<uint16_t>(index);
  w.epoch = s.epoch(index);
  w.lane = static_cast<uint8_t>(work.lane < 0 ? 0 : work.lane);
  uint16_t component = 0, global_component = 0;
  // st.async and red.async write through the generic proxy.
  uint8_t flags = work.kind == AsyncKind::StoreAsync ? kWork : kWork | kAsyncProxy;
  const auto next = [&](int lane, Queue kind) {
    QueueState& q = s.queue(index, lane, kind);
    component = q.component;
    w.value = ++q.issued;
  };
  switch (work.kind) {
    case AsyncKind::TensorLoad:
    case AsyncKind::BulkLoad:
    case AsyncKind::SharedCopy:
    case AsyncKind::StoreAsync:
    case AsyncKind::LaunchResponse:
      check_barrier(warp, work.mbarrier, true);
      component = global_component = s.barrier(work.mbarrier).component;
      issued_for(s, warp, work.lane < 0 ? warp.mask : 1u << work.lane, work.mbarrier);
      w.pending = true;
      break;
    case AsyncKind::TensorStore:
    case AsyncKind::BulkStore:
      component = s.queue(index, work.lane, Queue::BulkRead).component;
      global_component = s.queue(index, work.lane, Queue::Bulk).component;
      w.value = s.queue(index, work.lane, Queue::BulkRead).issued + 1;
      break;
    case AsyncKind::Mma:
    case AsyncKind::TmemCopy:
      next(work.lane, Queue::Tensor);
      flags |= kTensorPipe;
      break;
    case AsyncKind::TmemLoad:
      next(kWholeWarp, Queue::TmemLoad);
      break;
    case AsyncKind::TmemStore:
      next(kWholeWarp, Queue::TmemStore);
      break;
    case AsyncKind::Wgmma:
      component = s.queue(index - warp.index % 4, kWholeWarp, Queue::Wgmma).component;
      w.value = static_cast<uint32_t>(work.number);
      break;
  }
  Access now = access_by(warp, MemorySpace::Shared, false, work.lane);
  ClusterState::Meet meet;
  if (work.kind == AsyncKind::Wgmma) {
    ClusterState::Meet& common = s.meets[work.ticket];
    if (work.whole_group) {
      meet = std::move(common);
      s.meets.erase(work.ticket);
      now.order = &meet.order;
      now.fenced = &meet.fenced;
    } else if (common.warps++ == 0) {
      common.order = *now.order;
      common.fenced = *now.fenced;
    } else {
      common.order.meet(*now.order);
      common.fenced.meet(*now.fenced);
    }
  }
  const Knowledge& known = now.group->known;
  now.record.value = static_cast<uint32_t>(work.ticket);
  now.record.lane = w.lane & 31;
  for (const Touch& t : touches) {
    now.space = t.space;
    now.record.component = t.space == MemorySpace::Global ? global_component : component;
    now.record.flags = static_cast<uint8_t>(
        (t.space == MemorySpace::Tensor ? (flags & ~kAsyncProxy) | kTensorAccess : flags) |
        (t.kind == AccessKind::Read    ? 0
         : t.kind == AccessKind::Write ? kWrites
                                       : kWrites | kStrong));
    if (t.space == MemorySpace::Global) now.fenced = &known.global_fenced;
    if (t.space == MemorySpace::Tensor)
      touch_columns(now, t);
    else
      touch_bytes(now, t.rank, t.begin, t.count);
    if (t.space == MemorySpace::Global) now.fenced = &known.shared_fenced;
  }
}

// Uses of an mbarrier may come in any order among themselves, but after its init.
void Races::check_barrier(Warp& warp, uint32_t mbarrier, bool async) {
  Access now = access_by(warp, MemorySpace::Shared, true);
  now.name = "use of the mbarrier";
  const Cell* cell = shared_cell(*now.state, mbarrier);
  if (!cell) return;
  const uint32_t mask = byte_mask(mbarrier % 16, mbarrier % 16 + 8);
  now.record.mask = mask;
  const Record& init = cell->write;
  if (!(init.mask & mask) || (init.flags & kWork)) return;
  // CUTLASS initialises one mbarrier of a pair after its fence.
  if (init.component != now.record.component && init.cluster == now.record.cluster && !before(init, now) &&
      now.state->warps[now.warp].over.get(init.component) >= init.value)
    report(Problem::InitFence, init, now, mbarrier);
  else
    check(init, now, mbarrier);
  const ClusterState& s = *now.state;
  if (async && s.unfenced_inits && (init.flags & kBarrierInit) && init.cluster == now.record.cluster)
    if (const auto b = s.barriers.find(mbarrier); b != s.barriers.end() && b->second.init_unfenced)
      report(Problem::InitFence, init, now, mbarrier);
}

void Races::tmem_alloc(Warp& warp, uint32_t rank, uint32_t column, uint32_t columns, int,
                       uint32_t destination) {
  Access now = access_by(warp, MemorySpace::Shared, true);
  now.record.flags |= kAllocation;
  touch_bytes(now, shared_rank(destination), shared_offset(destination), 4);
  if (mode_ != CheckMode::Strict) return;
  // The text wants thread_sync fences between an alloc and another warp's use: a write that is complete.
  ClusterState& s = *now.state;
  const uint64_t ticket = new_ticket(*warp.cta->cluster->grid);
  if (works_.size() <= ticket) works_.resize(ticket + 1);
  QueueState& q = s.queue(now.warp, kWholeWarp, Queue::TmemAlloc);
  Work& w = works_[ticket];
  w.allocation = true;
  w.kind = AsyncKind::TmemStore;
  w.value = ++q.issued;
  w.epoch = s.epoch(now.warp);
  w.pc = warp.pc;
  w.warp = static_cast<uint16_t>(now.warp);
  s.learn(warp, ~0u, [&](LaneGroup& g) { g.known.order.raise(q.component, w.value); });
  now = access_by(warp, MemorySpace::Tensor, true);
  now.record.flags = kWork | kTensorAccess | kWrites;
  now.record.component = q.component;
  now.record.value = static_cast<uint32_t>(ticket);
  touch_columns(now, {MemorySpace::Tensor, AccessKind::Write, rank, column, columns});
}

// Columns are given back: everybody must be done with them.  Nothing is read any more, so that it is enough
// to know that the work is over.
void Races::tmem_dealloc(Warp& warp, uint32_t rank, uint32_t column, uint32_t columns) {
  Access now = access_by(warp, MemorySpace::Tensor, true);
  now.name = "tcgen05.dealloc";
  now.record.mask = ~0u;
  ClusterState& s = *now.state;
  Clock over = *now.order;
  over.join(s.of(warp).over);
  now.order = &over;
  for (uint32_t quarter = 0; quarter < 4; ++quarter)
    for (uint32_t c = column; c < column + columns; ++c) {
      const uint32_t place = quarter * TensorMemory::kColumns + c;
      Cell& cell = s.tensor[rank][place];
      const auto look = [&](const Record& old) {
        if (!old.mask) return;
        check(old, now, uint64_t{rank} << kRankShift | place);
        if (mode_ == CheckMode::Strict && lacks_thread_sync(old, now))
          report(Problem::ThreadSyncFence, old, now, uint64_t{rank} << kRankShift | place);
      };
      look(cell.write);
      look(cell.read[0]);
      look(cell.read[1]);
      if (cell.more) {
        const MoreRecords& more = s.overflow.list(cell.more);
        for (const auto* list : {&more.writes, &more.strong, &more.reads})
          for (const Record& old : *list) look(old);
        s.overflow.release(cell.more);
      }
      cell = {};
    }
}

}  // namespace mxfa::emulator
