// Runs one cluster under a schedule.
#pragma once

#include <unordered_map>

#include "core/exec.hpp"

namespace mxfa::emulator {

class Scheduler {
 public:
  Scheduler(Grid& grid, Cluster& cluster);
  // Until every lane has exited (true), or until `patience` rounds in a row brought nothing but polling
  // (false, polls()): then another cluster may have to run first.  Or until `turn` random choices have
  // brought something (false).  Throws Fault with place and, for a hang, the report.
  bool run(uint32_t patience, uint64_t turn = UINT64_MAX);
  bool polls() const { return polls_; }
  uint64_t stamp() const {
    return cluster_.epoch + x_.progress;
  }  // changes whenever the cluster achieves something
  [[noreturn]] void report_livelock();

 private:
  struct Place {
    Cta* cta;
    Warp* warp;
    uint32_t fragment;
    uint64_t thread() const { return uint64_t{cta->index} << 32 | warp->index << 16 | fragment; }
  };
  bool runnable(const Warp& warp, const Fragment& f) const;
  bool run_round();   // each warp until it blocks; false if nothing could run
  bool run_choice();  // one random choice
  void find_choices();
  bool run_by_priority();
  uint64_t priority(uint64_t thread) const;
  void lower(uint64_t thread);  // below every other thread
  uint64_t draw() { return grid_.schedule.randomised() ? grid_.random() : 0; }
  bool unstick();  // events, expired waits, broken reconvergence; false: a deadlock
  Step run_fragment(Cta& cta, Warp& warp, uint32_t fragment, bool stop_at_sync);
  void bind(Cta& cta, Warp& warp, uint32_t fragment);
  void after_exit(Cta& cta, Warp& warp);
  Step interpret(bool stop_at_sync);
  [[noreturn]] void fault(const Fault& f);
  [[noreturn]] void report_hang(const std::string& kind);
  void finish_cta(Cta& cta);

  Grid& grid_;
  Cluster& cluster_;
  Exec x_;
  uint32_t live_ctas_ = 0;
  uint64_t last_stamp_ = 0;
  bool polls_ = false;
  uint32_t idle_rounds_ = 0;    // rounds in which everything that ran was polling
  uint32_t expired_waits_ = 0;  // consecutive times that all try_waits were told to give up
  std::vector<Place> choices_;
  // Pct: synchronisation points at which the running thread falls, ascending; threads that have fallen.
  std::vector<uint64_t> changes_;
  uint64_t step_ = 0, next_change_ = 0, lowered_count_ = 0;
  std::unordered_map<uint64_t, uint64_t> lowered_;
};

}  // namespace mxfa::emulator
