// The interpreter's loop, and the schedules (core/machine.hpp).
#include "core/scheduler.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/aligned.hpp"
#include "core/observer.hpp"
#include "core/report.hpp"
#include "core/results.hpp"
#include "core/simt.hpp"
#include "core/sync.hpp"
#include "engines/engines.hpp"

namespace mxfa::emulator {
namespace {

constexpr int32_t kBranchBudget =
    512;  // backward branches of a slice: a poll loop must not keep the others from running
constexpr uint32_t kIdleBeforeBreaking =
    64;  // polling rounds until waiting lanes are let go (independent thread scheduling)
constexpr uint64_t kEventThread = 1ull << 62;  // threads of asynchronous work, apart from those of fragments
// Pct wants change points spread over the synchronisation points of a run, whose number is not known before:
// each is below a random power of two up to this exponent.
constexpr uint64_t kChangeExponents = 15;
constexpr uint32_t kExpiredLimit = 256;  // try_waits may give up this often before a standstill is a deadlock

}  // namespace

Scheduler::Scheduler(Grid& grid, Cluster& cluster) : grid_(grid), cluster_(cluster) {
  x_.grid = &grid;
  x_.cluster = &cluster;
  x_.kernel = grid.kernel;
  x_.program = grid.kernel->program;
  x_.lists = x_.program->lists.data();
  x_.base[1] = x_.program->constants.data();
  x_.observed = emulator::observed(grid) ? kObserved : 0;
  live_ctas_ = static_cast<uint32_t>(cluster.ctas.size());
  if (grid.schedule.kind == Schedule::Kind::Pct) {
    for (uint32_t k = 1; k < grid.schedule.depth; ++k) {
      const uint64_t range = 2ull << (grid.random() % kChangeExponents);
      changes_.push_back(grid.random() % range);
    }
    std::sort(changes_.begin(), changes_.end());
  }
}

bool Scheduler::runnable(const Warp&, const Fragment& f) const {
  return f.mask != 0 && (f.wait.kind == Wait::Kind::None || f.blocked_epoch != cluster_.epoch || f.give_up);
}

void Scheduler::bind(Cta& cta, Warp& warp, uint32_t fragment) {
  x_.cta = &cta;
  x_.warp = &warp;
  x_.fragment = fragment;
  x_.rows = warp.rows;
  x_.base[0] = warp.rows;
  x_.predicates = warp.predicates;
  x_.shared_base = cta.shared_base;
  x_.shared_begin = x_.program->shared_reserved;
  x_.shared_size = cta.shared_size;
  x_.shared_rank = cta.rank << kRankShift;
  x_.local_base = warp.local;
  x_.local_bytes = warp.local_bytes;
  const Fragment& f = warp.fragments[fragment];
  x_.pc = f.pc;
  x_.active = f.mask;
  x_.token = f.token;
  x_.budget = kBranchBudget;
}

Step Scheduler::interpret(bool stop_at_sync) {
  const MicroOp* code = x_.program->code.data();
  uint64_t instructions = 0, lanes = 0;
  Step step = Step::Continue;
  // Engines and everything else outside the handlers expect the standard rounding mode.
  struct StandardMode {
    Exec& x;
    ~StandardMode() { x.set_mode(kModeDefault); }
  } standard{x_};
  const auto count = [&] {
    grid_.counters.warp_instructions += instructions;
    grid_.counters.lane_instructions += lanes;
    grid_.clock += instructions;
    instructions = lanes = 0;
  };
  try {
    for (;;) {
      const MicroOp& op = code[x_.pc];
      const uint32_t mask = x_.active & (x_.predicates[op.guard] ^ op.guard_xor);
      x_.at = x_.pc++;
      ++instructions;
      if (mask == 0) continue;
      x_.mask = mask;
      lanes += static_cast<uint64_t>(std::popcount(mask));
      step = op.run(x_, op);
      if (step == Step::Continue) [[likely]]
        continue;
      if (step == Step::Sync && !stop_at_sync) {
        grid_.clock += instructions;
        grid_.counters.warp_instructions += instructions;
        instructions = 0;
        continue;
      }
      break;
    }
  } catch (const PartialWarp&) {
    step = x_.block(Wait::Kind::Aligned);
  } catch (const Fault& f) {
    count();
    fault(f);
  }
  count();
  return step;
}

// Adds the place to a fault.
void Scheduler::fault(const Fault& f) {
  throw Fault(f.code, fmt::format("{}\n{}", f.what(), describe_place(grid_, *x_.warp, x_.at, x_.mask)));
}

Step Scheduler::run_fragment(Cta& cta, Warp& warp, uint32_t fragment, bool stop_at_sync) {
  bind(cta, warp, fragment);
  const uint32_t alive = warp.alive;
  const uint64_t clock = grid_.clock;
  const Step step = interpret(stop_at_sync);
  uint64_t& trace = grid_.counters.trace;
  trace = mix(trace + cluster_.events.trace() + Place{&cta, &warp, fragment}.thread()) + grid_.clock - clock;
  Fragment& f = warp.fragments[fragment];
  f.mask = step == Step::Gone ? 0 : x_.active;
  f.token = x_.token;
  if (step == Step::Blocked) {
    if (x_.observed) {
      warp.pc = x_.at;
      warp.mask = x_.mask;
      observe(grid_, [&](Observer& o) { o.blocked(warp, f.wait); });
    }
    f.pc = x_.at;
    f.blocked_epoch = cluster_.epoch;
  } else {
    f.pc = x_.pc;
    f.wait.kind = Wait::Kind::None;
  }
  if (warp.alive != alive) after_exit(cta, warp);
  return step;
}

void Scheduler::after_exit(Cta& cta, Warp& warp) {
  ++cluster_.epoch;
  if (warp.alive == 0 && cta.live_warps > 0) {
    --cta.live_warps;
    // Registers go back to the pool that setmaxnreg draws from.
    cta.register_pool += warp.registers_per_thread * kLanes;
    if (cta.live_warps == 0) finish_cta(cta);
  }
  barriers_after_exit(cta);
}

void Scheduler::finish_cta(Cta& cta) {
  cta.finished = true;
  --live_ctas_;
  observe(grid_, [&](Observer& o) { o.cta_ends(cta); });
  const std::vector<std::string> findings = engines_at_exit(cta);
  if (findings.empty()) return;
  std::string text =
      fmt::format("kernel {}, CTA ({}, {}, {}) ended with work outstanding:", grid_.kernel->info.name,
                  cta.id.x, cta.id.y, cta.id.z);
  for (const std::string& f : findings) text += "\n  " + f;
  throw Fault(result::kLaunchFailed, text);
}

bool Scheduler::run_round() {
  bool ran = false;
  for (auto& cta : cluster_.ctas) {
    if (cta->finished) continue;
    for (Warp& warp : cta->warps)
      for (uint32_t k = 0; k < warp.fragments.size(); ++k)
        if (runnable(warp, warp.fragments[k])) {
          run_fragment(*cta, warp, k, false);
          ran = true;
        }
  }
  return ran;
}

void Scheduler::find_choices() {
  choices_.clear();
  for (auto& cta : cluster_.ctas) {
    if (cta->finished) continue;
    for (Warp& warp : cta->warps)
      for (uint32_t k = 0; k < warp.fragments.size(); ++k)
        if (runnable(warp, warp.fragments[k])) choices_.push_back({cta.get(), &warp, k});
  }
}

// Uniform among the fragments that can run and the pending events, or by priority.
bool Scheduler::run_choice() {
  if (grid_.schedule.kind == Schedule::Kind::Pct) return run_by_priority();
  find_choices();
  const size_t events = cluster_.events.size(), total = choices_.size() + events;
  if (total == 0) return false;
  const size_t choice = grid_.random() % total;
  if (choice >= choices_.size()) return cluster_.events.fire_one(grid_.random());
  const Place& p = choices_[choice];
  run_fragment(*p.cta, *p.warp, p.fragment, true);
  return true;
}

uint64_t Scheduler::priority(uint64_t thread) const {
  const auto fallen = lowered_.find(thread);
  return fallen == lowered_.end() ? grid_.random.of(thread) | 1ull << 63 : fallen->second;
}

void Scheduler::lower(uint64_t thread) { lowered_[thread] = (1ull << 62) - lowered_count_++; }

bool Scheduler::run_by_priority() {
  find_choices();
  const std::vector<EventQueue::Head>& events = cluster_.events.heads();
  if (choices_.empty() && events.empty()) return false;
  uint64_t highest = 0;
  size_t chosen = 0;
  const auto thread_of = [&](size_t k) {
    return k < choices_.size() ? choices_[k].thread() : kEventThread ^ events[k - choices_.size()].thread;
  };
  const auto choose = [&] {
    highest = 0;
    for (size_t k = 0; k < choices_.size() + events.size(); ++k)
      if (const uint64_t p = priority(thread_of(k)); p > highest) highest = p, chosen = k;
  };
  choose();
  for (++step_; next_change_ < changes_.size() && changes_[next_change_] < step_; ++next_change_) {
    lower(thread_of(chosen));
    choose();
  }
  if (chosen >= choices_.size()) {
    cluster_.events.fire(events[chosen - choices_.size()]);
    return true;
  }
  const Place p = choices_[chosen];
  // A fragment that polls would keep the others from ever running.
  if (run_fragment(*p.cta, *p.warp, p.fragment, true) == Step::Yield) lower(p.thread());
  return true;
}

// Nothing can run, or everything that runs polls.
bool Scheduler::unstick() {
  if (cluster_.events.fire_one(draw())) {
    expired_waits_ = 0;
    return true;
  }
  // try_wait may return false when its time limit has passed: code that only peeks at a barrier goes on.
  if (expired_waits_ < kExpiredLimit) {
    bool any = false;
    for (auto& cta : cluster_.ctas)
      for (Warp& warp : cta->warps)
        for (Fragment& f : warp.fragments)
          if (f.mask && f.wait.kind == Wait::Kind::Mbarrier) f.give_up = any = true;
    if (any) {
      ++expired_waits_;
      return true;
    }
  }
  // Lanes at an .aligned instruction waited for others to join them or to exit: nobody will.
  for (auto& cta : cluster_.ctas)
    for (Warp& warp : cta->warps)
      for (uint32_t k = 0; k < warp.fragments.size(); ++k)
        if (warp.fragments[k].mask && warp.fragments[k].wait.kind == Wait::Kind::Aligned) {
          x_.strict = true;
          run_fragment(*cta, warp, k, false);
          x_.strict = false;
          return true;
        }
  for (auto& cta : cluster_.ctas)
    for (Warp& warp : cta->warps)
      if (simt::break_one(warp)) {
        expired_waits_ = 0;
        return true;
      }
  return false;
}

bool Scheduler::run(uint32_t patience, uint64_t turn) {
  const bool random = grid_.schedule.randomised();
  // A round of a randomised schedule is many single choices.
  const uint32_t scale = random ? 64 : 1;
  idle_rounds_ = 0;
  polls_ = false;
  while (live_ctas_ > 0) {
    const bool ran = random ? run_choice() : run_round();
    if (live_ctas_ == 0) break;
    if (grid_.counters.warp_instructions > grid_.instruction_limit)
      report_hang(fmt::format("endless: {} warp instructions, and the limit is {}",
                              grid_.counters.warp_instructions, grid_.instruction_limit));
    if (stamp() != last_stamp_) {
      last_stamp_ = stamp();
      idle_rounds_ = expired_waits_ = 0;
      if (ran && random && --turn == 0) return false;
      if (ran) continue;
    }
    if (!ran) {
      if (!unstick()) {
        observe(grid_, [&](Observer& o) { o.stuck(cluster_); });
        report_hang("deadlock: no lane can run and no asynchronous work is pending");
      }
      continue;
    }
    ++idle_rounds_;
    // Polling: give asynchronous work its turn (the lazy schedule holds it back until now), then the lanes
    // that wait, then other clusters.
    if (!cluster_.events.empty() && !random)
      cluster_.events.fire_one();
    else if (idle_rounds_ % (kIdleBeforeBreaking * scale) == 0)
      unstick();
    if (idle_rounds_ >= patience * scale) {
      polls_ = true;
      return false;
    }
  }
  // Writes of bulk copies may still be on their way: the grid ends when they have landed.
  while (cluster_.events.fire_one(draw())) {
  }
  return true;
}

void Scheduler::report_livelock() {
  report_hang("livelock: every lane that can run polls, and nothing changes in any cluster");
}

void Scheduler::report_hang(const std::string& kind) {
  throw Fault(result::kLaunchTimeout, deadlock_report(grid_, cluster_, kind));
}

}  // namespace mxfa::emulator
