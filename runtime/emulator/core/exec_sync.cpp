// Barriers of CTAs and clusters, register pools, fences, cluster addresses.
#include <fmt/format.h>

#include "core/aligned.hpp"
#include "core/exec.hpp"
#include "core/handlers.hpp"
#include "core/observer.hpp"
#include "core/results.hpp"
#include "core/simt.hpp"
#include "core/sync.hpp"
#include "memory/memory.hpp"

namespace mxfa::emulator {
namespace {

uint32_t uniform(const Exec& x, uint32_t source, const char* what) {
  const uint32_t* v = x.src(source).lane;
  const uint32_t value = v[x.first_lane()];
  for (uint32_t m = x.mask; m; m &= m - 1)
    if (v[std::countr_zero(m)] != value)
      throw Fault(result::kLaunchFailed, fmt::format("{} differs between lanes of a warp", what));
  return value;
}

using handlers::BarrierOp;

void finish_barrier(Cta& cta, NamedBarrier& b) {
  ++b.generation;
  b.open = false;
  b.arrived = 0;
  b.last_popc = b.popc;
  b.last_all = b.all;
  b.last_any = b.any;
  ++cta.cluster->epoch;
}

// Barriers count warps: a warp has arrived when all its live lanes have (PTX ISA 9.7.13.1).
bool barrier_complete(const Cta& cta, const NamedBarrier& b) {
  if (!b.open) return false;
  if (b.expected != 0) return b.arrived >= b.expected;
  bool somebody = false;
  for (const Warp& w : cta.warps) {
    if (w.alive == 0) continue;
    somebody = true;
    if (w.alive & ~b.lanes[w.index]) return false;
  }
  return somebody;
}

// src0 id, src1 count or kNoRow, src2 predicate (red); dst.
template <BarrierOp kOp>
Step cta_barrier(Exec& x, const MicroOp& op) {
  constexpr bool kWaits = kOp != BarrierOp::Arrive;
  const uint32_t id = uniform(x, op.src[0], "the barrier number");
  Cta& cta = *x.cta;
  if (id > 15)
    throw Fault(result::kLaunchFailed,
                fmt::format("barrier {} does not exist: a CTA has barriers 0 to 15", id));
  NamedBarrier& b = cta.barriers[id];
  Fragment& f = x.current();
  const auto done = [&] {
    f.wait.kind = Wait::Kind::None;
    if (kOp == BarrierOp::RedPopc) {
      const uint32_t value = b.last_popc;
      for_lanes<uint32_t>(x.mask, lanes<uint32_t>(x.dst(op.dst)), [=](int) { return value; });
    } else if (kOp == BarrierOp::RedAnd || kOp == BarrierOp::RedOr) {
      x.set_pred(op.dst, (kOp == BarrierOp::RedAnd ? b.last_all : b.last_any) ? ~0u : 0u);
    }
    return Step::Sync;
  };
  const auto passed = [&](uint64_t generation) {
    if (x.observed) {
      x.leave();
      observe(*x.grid, [&](Observer& o) { o.barrier_passed(*x.warp, id, generation); });
    }
    return done();
  };
  if (f.wait.kind == Wait::Kind::NamedBarrier)
    return b.generation == f.generation ? Step::Blocked : passed(f.generation);

  if (op.flags & kAligned) require_whole_warp(x);
  const uint32_t count = op.src[1] == kNoRow ? 0 : uniform(x, op.src[1], "the thread count of a barrier");
  if (count % kLanes)
    throw Fault(result::kLaunchFailed,
                fmt::format("barrier {}: the thread count {} is no multiple of 32", id, count));
  if (count > (cta.threads + 31) / 32 * 32)
    throw Fault(result::kLaunchFailed,
                fmt::format("barrier {} waits for {} threads, the CTA has {}", id, count, cta.threads));
  if (!b.open) {
    b.open = true;
    b.expected = count;
    b.arrived = b.popc = b.any = 0;
    b.all = 1;
    b.lanes.assign(cta.warps.size(), 0);
    b.arrivals.clear();
  } else if (b.expected != count) {
    throw Fault(result::kLaunchFailed,
                fmt::format("barrier {} is used with {} threads while it is open for {} (0 = all)", id, count,
                            b.expected));
  }
  uint32_t& arrived = b.lanes[x.warp->index];
  // A barrier with a count counts threads, whoever they are: a warp may arrive and then wait for the same
  // phase.
  if (b.expected && !(x.warp->alive & ~arrived)) arrived = 0;
  if (arrived & x.mask)
    throw Fault(
        result::kLaunchFailed,
        fmt::format(
            "barrier {}: warp {} arrives twice before the barrier completes ({} of {} threads arrived)", id,
            x.warp->index, b.arrived, b.expected));
  arrived |= x.mask;
  if (!(x.warp->alive & ~arrived)) b.arrived += kLanes;
  if (b.expected && b.arrived > b.expected)
    throw Fault(result::kLaunchFailed,
                fmt::format("barrier {}: more threads arrive than the {} it waits for", id, b.expected));
  if (kOp >= BarrierOp::RedPopc) {
    const uint32_t votes = x.pred(op.src[2]) & x.mask;
    b.popc += static_cast<uint32_t>(std::popcount(votes));
    b.all = b.all && votes == x.mask;
    b.any = b.any || votes;
  }
  ++x.progress;
  const uint64_t generation = b.generation;
  if (x.observed) {
    x.leave();
    observe(*x.grid, [&](Observer& o) { o.barrier_arrive(*x.warp, id, generation); });
  }
  if (barrier_complete(cta, b)) {
    finish_barrier(cta, b);
    return kWaits ? passed(generation) : done();
  }
  if (!kWaits) return Step::Sync;
  f.generation = generation;
  return x.block(Wait::Kind::NamedBarrier, id);
}

bool cluster_complete(const Cluster& cluster) {
  bool somebody = false;
  for (const auto& cta : cluster.ctas)
    for (const Warp& w : cta->warps) {
      if (w.alive == 0) continue;
      somebody = true;
      if (w.alive & ~w.cluster_arrived) return false;
    }
  return somebody;
}

void finish_cluster_barrier(Cluster& cluster) {
  for (auto& cta : cluster.ctas)
    for (Warp& w : cta->warps) w.cluster_arrived = 0;
  ++cluster.cluster_barrier_generation;
  ++cluster.epoch;
}

Step arrive_cluster(Exec& x, const MicroOp& op) {
  if (op.flags & kAligned) require_whole_warp(x);
  Warp& w = *x.warp;
  if (w.cluster_arrived & x.mask)
    throw Fault(result::kLaunchFailed,
                "barrier.cluster.arrive twice without a barrier.cluster.wait in between");
  w.cluster_arrived |= x.mask;
  w.cluster_generation = x.cluster->cluster_barrier_generation;
  w.cluster_pending |= x.mask;
  if (x.observed) {
    x.leave();
    observe(*x.grid, [&](Observer& o) { o.cluster_arrive(w, w.cluster_generation, op.aux == 0); });
  }
  ++x.progress;
  if (cluster_complete(*x.cluster)) finish_cluster_barrier(*x.cluster);
  return Step::Sync;
}

Step wait_cluster(Exec& x, const MicroOp& op) {
  Warp& w = *x.warp;
  Fragment& f = x.current();
  if (f.wait.kind != Wait::Kind::ClusterBarrier) {
    if (op.flags & kAligned) require_whole_warp(x);
    if (x.mask & ~w.cluster_pending)
      throw Fault(result::kLaunchFailed, "barrier.cluster.wait without a barrier.cluster.arrive before it");
  }
  if (x.cluster->cluster_barrier_generation == w.cluster_generation)
    return x.block(Wait::Kind::ClusterBarrier);
  w.cluster_pending &= ~x.mask;
  if (x.observed) {
    x.leave();
    observe(*x.grid, [&](Observer& o) { o.cluster_passed(w, w.cluster_generation); });
  }
  f.wait.kind = Wait::Kind::None;
  return Step::Sync;
}

// setmaxnreg: the CTA owns a pool of what its warps gave back (emulator rule: registers at launch times
// threads).
template <bool kIncrease>
Step max_registers(Exec& x, const MicroOp& op) {
  require_whole_warp(x);
  Warp& w = *x.warp;
  Fragment& f = x.current();
  const auto wanted = static_cast<uint32_t>(op.imm);
  const auto misuse = [&](Misuse m) {
    if (!x.observed) return;
    x.leave();
    observe(*x.grid, [&](Observer& o) {
      o.misuse(*x.cluster, &w, m, wanted, kIncrease ? "setmaxnreg.inc" : "setmaxnreg.dec");
    });
  };
  if (x.kernel->info.registers == 0) {  // ptxas drops it when the register count at entry is unknown
    misuse(Misuse::RegistersIgnored);
    return Step::Continue;
  }
  const uint32_t have = w.registers_per_thread;
  if (kIncrease ? wanted < have : wanted > have) {
    misuse(Misuse::RegistersDirection);
    throw Fault(result::kLaunchFailed, fmt::format("setmaxnreg.{} to {} from {} registers per thread",
                                                   kIncrease ? "inc" : "dec", wanted, have));
  }
  if (kIncrease) {
    const uint32_t need = (wanted - have) * kLanes;
    if (x.cta->register_pool < need) return x.block(Wait::Kind::Registers, wanted, have);
    x.cta->register_pool -= need;
  } else {
    x.cta->register_pool += (have - wanted) * kLanes;
    ++x.cluster->epoch;
  }
  if (x.observed) {
    x.leave();
    observe(*x.grid, [&](Observer& o) { o.registers_change(w, have, wanted); });
  }
  w.registers_per_thread = wanted;
  f.wait.kind = Wait::Kind::None;
  ++x.progress;
  return Step::Sync;
}

// Memory is sequentially consistent here, so fences order nothing further; the hazard checks give them
// meaning.
Step fence_lanes(Exec& x, const MicroOp& op) {
  if (x.observed) {
    x.leave();
    const Fence fence{static_cast<FenceKind>(op.aux), decode_order(op.flags), (op.mode & 1) != 0,
                      (op.mode & 2) != 0};
    observe(*x.grid, [&](Observer& o) { o.fence(*x.warp, fence); });
  }
  return Step::Continue;
}

template <class T>
Step map_address(Exec& x, const MicroOp& op) {  // src0 address, src1 rank
  const auto* a = lanes<T>(x.src(op.src[0]));
  const uint32_t* rank = x.src(op.src[1]).lane;
  const size_t ctas = x.cluster->ctas.size();
  for (uint32_t m = x.mask; m; m &= m - 1)
    if (rank[std::countr_zero(m)] >= ctas)
      throw Fault(result::kLaunchFailed,
                  fmt::format("mapa to CTA {} of a cluster of {}", rank[std::countr_zero(m)], ctas));
  for_lanes<T>(x.mask, lanes<T>(x.dst(op.dst)), [=](int i) {
    return (a[i] & ~static_cast<T>(0xff000000u)) | static_cast<T>(rank[i] << kRankShift);
  });
  return Step::Continue;
}
template <class T>
Step rank_of(Exec& x, const MicroOp& op) {
  const auto* a = lanes<T>(x.src(op.src[0]));
  for_lanes<uint32_t>(x.mask, lanes<uint32_t>(x.dst(op.dst)),
                      [=](int i) { return shared_rank(static_cast<uint32_t>(a[i])); });
  return Step::Continue;
}

}  // namespace

void require_whole_warp(Exec& x) {
  const uint32_t alive = x.warp->alive;
  if (x.mask == alive || simt::gather(x) == alive) {
    Wait& wait = x.current().wait;
    if (wait.kind == Wait::Kind::Aligned) wait.kind = Wait::Kind::None;
    if (x.observed) {
      x.leave();
      observe(*x.grid, [&](Observer& o) { o.warp_sync(*x.warp, alive); });
    }
    return;
  }
  if (!x.strict) throw PartialWarp{};
  std::string elsewhere;
  for (uint32_t k = 0; k < x.warp->fragments.size(); ++k) {
    const Fragment& f = x.warp->fragments[k];
    if (k == x.fragment || !f.mask) continue;
    elsewhere += fmt::format("\n    lanes {:#010x} are at {}", f.mask, x.program->where(f.pc));
  }
  for (const ConvergenceToken& t : x.warp->tokens)
    if (t.used && t.arrived)
      elsewhere +=
          fmt::format("\n    lanes {:#010x} wait to reconverge at {}", t.arrived, x.program->where(t.pc));
  if (x.active & ~x.mask)
    elsewhere += fmt::format("\n    lanes {:#010x} are switched off by the instruction's predicate",
                             x.active & ~x.mask);
  throw Fault(result::kLaunchFailed,
              fmt::format(".aligned instruction executed by part of a warp: lanes {:#010x} of {:#010x}{}",
                          x.mask, alive, elsewhere));
}

void barriers_after_exit(Cta& cta) {
  for (NamedBarrier& b : cta.barriers)
    if (b.open && b.expected == 0 && barrier_complete(cta, b)) finish_barrier(cta, b);
  bool pending = false;
  for (const auto& c : cta.cluster->ctas)
    for (const Warp& w : c->warps) pending = pending || (w.cluster_arrived & w.alive);
  if (pending && cluster_complete(*cta.cluster)) finish_cluster_barrier(*cta.cluster);
}

namespace handlers {

Handler barrier(BarrierOp op) {
  switch (op) {
    case BarrierOp::Sync:
      return &cta_barrier<BarrierOp::Sync>;
    case BarrierOp::Arrive:
      return &cta_barrier<BarrierOp::Arrive>;
    case BarrierOp::RedPopc:
      return &cta_barrier<BarrierOp::RedPopc>;
    case BarrierOp::RedAnd:
      return &cta_barrier<BarrierOp::RedAnd>;
    case BarrierOp::RedOr:
      return &cta_barrier<BarrierOp::RedOr>;
  }
  return nullptr;
}
Handler cluster_arrive() { return &arrive_cluster; }
Handler cluster_wait() { return &wait_cluster; }
Handler fence() { return &fence_lanes; }
Handler set_max_registers(bool increase) { return increase ? &max_registers<true> : &max_registers<false>; }
Handler map_shared(bool wide) { return wide ? &map_address<uint64_t> : &map_address<uint32_t>; }
Handler cta_rank(bool wide) { return wide ? &rank_of<uint64_t> : &rank_of<uint32_t>; }

}  // namespace handlers
}  // namespace mxfa::emulator
