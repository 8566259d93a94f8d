// Waits for a phase of an mbarrier that come too late: a parity says nothing any more once two phases have
// completed since (PTX ISA 9.7.13.15.16: only the current and the immediately preceding phase can be tested).
#include <fmt/format.h>

#include <bit>

#include "checks/races.hpp"
#include "core/kernel.hpp"

namespace mxfa::emulator {

// What arrivals of a phase release.  The first of them shows that the phase before has completed.
Knowledge& Races::released_in(ClusterState& s, uint32_t mbarrier, uint64_t phase) {
  BarrierState& b = s.barrier(mbarrier);
  if (phase > 0 && b.phase[phase & 1] != phase) phase_completed(s, mbarrier, b, phase - 1);
  return b.at(phase);
}

void Races::issued_for(ClusterState& s, const Warp& warp, uint32_t lanes, uint32_t mbarrier) {
  Clock& issuers = s.barrier(mbarrier).issuers;
  const uint32_t index = s.index(warp);
  issuers.join(s.group_of(index, static_cast<uint32_t>(std::countr_zero(lanes))).known.reached);
  issuers.raise(index, s.epoch(index));
}

// Everybody who had waited for the phase before must be known to what has completed this one.
void Races::phase_completed(ClusterState& s, uint32_t mbarrier, BarrierState& b, uint64_t phase) {
  const size_t slot = phase & 1;
  if (b.passed[slot] != phase) return;
  b.passed[slot] = ~uint64_t{0};
  for (const BarrierState::Wait& w : b.waits[slot]) {
    if (b.issuers.get(w.warp) >= w.epoch) continue;
    if (b.phase[slot] == phase && b.released[slot].reached.get(w.warp) >= w.epoch) continue;
    // Advice, for there are ways of keeping order that leave no trace here.
    const Severity severity = mode_ == CheckMode::Strict ? Severity::Error : Severity::Advice;
    findings_.add("mbarrier-lapped", severity, w.pc, shared_offset(mbarrier), [&] {
      return fmt::format(
          "  {}, phase {}\n{}\n  missing: nothing that completes phase {} comes after this wait for phase {}:"
          " both may have passed before it, and it hangs or takes a later phase for its own\n  remedy: let "
          "the "
          "waiting thread hand on (arrive where the producer waits) before the phase after its own completes",
          barrier_name(s, b.component), phase,
          describe_site(*program_, "wait",
                        {w.pc, w.warp / s.warps_per_cta, w.warp % s.warps_per_cta, w.lane}),
          phase, static_cast<int64_t>(phase) - 1);
    });
  }
}

void Races::waited(Warp& warp, uint32_t mbarrier, uint32_t parity, uint64_t phase, bool done) {
  ClusterState& s = state_of(warp);
  const uint32_t index = s.index(warp),
                 lane = warp.mask ? static_cast<uint32_t>(std::countr_zero(warp.mask)) : 0;
  BarrierState& b = s.barrier(mbarrier);
  uint64_t& observed = b.observed[index];
  const uint32_t value = s.group_of(index, lane).known.order.get(b.component);
  const uint64_t known = std::max<uint64_t>(observed, value > b.base ? value - b.base : 0);
  // It wants the phase after those that it knows of, or the last of these.
  const bool wants_next = (known & 1) == parity;
  if (phase >= known + 2 + (wants_next ? 0 : 1)) {
    findings_.add("mbarrier-lapped", Severity::Error, warp.pc, shared_offset(mbarrier), [&] {
      return fmt::format(
          "  {}\n{}\n  missing: {} phases are complete, the thread knows of {}: for parity {} it {}\n  "
          "remedy: "
          "let the waiting thread hand on before the phase after next is completed (or start with the other "
          "parity)",
          barrier_name(s, b.component),
          describe_site(*program_, "wait", {warp.pc, warp.cta->rank, warp.index, lane}), phase, known, parity,
          done ? "takes a later phase for its own" : "waits for one that is not its own");
    });
  }
  if (!done) return;
  observed = std::max(observed, phase);
  const size_t slot = phase & 1;
  if (b.passed[slot] != phase) {
    b.passed[slot] = phase;
    b.waits[slot].clear();
  }
  // The first test of a warp counts: that lanes may come one after the other is no matter of phases.
  for (const BarrierState::Wait& w : b.waits[slot])
    if (w.warp == index && w.pc == warp.pc) return;
  b.waits[slot].push_back({index, s.epoch(index), warp.pc, static_cast<uint8_t>(lane)});
}

}  // namespace mxfa::emulator
