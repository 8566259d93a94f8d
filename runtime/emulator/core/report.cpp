// Reports.  A hang names who waits for what, then lists every live warp, every barrier waited for, and what
// is still pending.
#include "core/report.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "engines/engines.hpp"
#include "engines/mbarrier_state.hpp"
#include "engines/wgmma.hpp"

namespace mxfa::emulator {
namespace {

std::string waits_for(const Wait& w, const Warp& warp, const Cta& cta, Cluster& cluster) {
  using K = Wait::Kind;
  switch (w.kind) {
    case K::None:
      return "running (polling)";
    case K::Mbarrier:
      return fmt::format("mbarrier at shared {:#x} (CTA rank {}), parity {}: {}", shared_offset(w.address),
                         shared_rank(w.address), w.parity, mbarrier_describe(cluster, w.address));
    case K::NamedBarrier: {
      const NamedBarrier& b = cta.barriers[w.address & 15];
      uint32_t warps = 0, live = 0;
      for (const Warp& other : cta.warps) {
        if (other.alive == 0) continue;
        ++live;
        if (other.index < b.lanes.size() && !(other.alive & ~b.lanes[other.index])) ++warps;
      }
      if (b.expected)
        return fmt::format("barrier {}: {} of {} threads arrived", w.address, b.arrived, b.expected);
      return fmt::format("barrier {}: {} of {} live warps arrived", w.address, warps, live);
    }
    case K::ClusterBarrier: {
      uint32_t arrived = 0, live = 0;
      for (const auto& c : cluster.ctas)
        for (const Warp& other : c->warps) {
          if (other.alive == 0) continue;
          ++live;
          if (!(other.alive & ~other.cluster_arrived)) ++arrived;
        }
      return fmt::format("the cluster barrier: {} of {} live warps arrived", arrived, live);
    }
    case K::BulkGroup:
      return fmt::format("bulk groups: at most {} may stay outstanding", w.address);
    case K::CopyGroup:
      return fmt::format("cp.async groups: at most {} may stay outstanding", w.address);
    case K::TmemLoad:
      return "tcgen05.wait::ld";
    case K::TmemStore:
      return "tcgen05.wait::st";
    case K::TmemAlloc:
      return fmt::format("tensor memory: {} columns", w.address);
    case K::Warpgroup:
      return wgmma_describe(warp);
    case K::Registers:
      return fmt::format("registers: setmaxnreg.inc to {} from {} needs {}, the pool of the CTA has {}",
                         w.address, w.parity, (w.address - w.parity) * kLanes, cta.register_pool);
    case K::Aligned:
      return "the other lanes of its warp, at an .aligned instruction";
    case K::WarpSync:
      return fmt::format("other lanes of its warp (member mask {:#010x})", w.address);
    case K::Other:
      return w.detail.empty() ? "something" : w.detail;
  }
  return {};
}

// "cta 0 warp 3 pc 57": the program's word for the place instead of ours.
std::string with_place(const Program& program, const std::string& who) {
  const std::string mark = " pc ";
  const size_t at = who.rfind(mark);
  if (at == std::string::npos) return who;
  const auto pc = static_cast<uint32_t>(std::strtoul(who.c_str() + at + mark.size(), nullptr, 10));
  return who.substr(0, at) + ", " + program.where(pc);
}

// What is known of the mbarriers that somebody waits for: a missing arrival is named by those that came.
std::string barrier_history(const Program& program, const Cluster& cluster) {
  std::map<uint32_t, const Cta::BarrierFacts*> waited;
  for (const auto& cta : cluster.ctas)
    for (const Warp& warp : cta->warps)
      for (const Fragment& f : warp.fragments) {
        if (!f.mask || f.wait.kind != Wait::Kind::Mbarrier) continue;
        const uint32_t rank = shared_rank(f.wait.address);
        if (rank >= cluster.ctas.size()) continue;
        const auto& known = cluster.ctas[rank]->mbarriers;
        if (const auto it = known.find(shared_offset(f.wait.address)); it != known.end())
          waited[f.wait.address] = &it->second;
      }
  std::string text;
  for (const auto& [address, facts] : waited) {
    text += fmt::format("\n  mbarrier at shared {:#x} (CTA rank {}), count {}, initialised by {}",
                        shared_offset(address), shared_rank(address), facts->init_count,
                        program.where(facts->init_pc));
    for (const std::string& who : facts->last_arrivals)
      text += "\n      in this phase: " + with_place(program, who);
    if (facts->last_arrivals.empty()) text += "\n      nothing has arrived in this phase";
  }
  return text.empty() ? text : "\nbarriers waited for:" + text;
}

using nlohmann::ordered_json;

const char* kind_name(Wait::Kind kind) {
  using K = Wait::Kind;
  switch (kind) {
    case K::None:
      return "polling";
    case K::Mbarrier:
      return "mbarrier";
    case K::NamedBarrier:
      return "barrier";
    case K::ClusterBarrier:
      return "cluster barrier";
    case K::BulkGroup:
      return "bulk group";
    case K::CopyGroup:
      return "cp.async group";
    case K::TmemLoad:
      return "tcgen05.wait::ld";
    case K::TmemStore:
      return "tcgen05.wait::st";
    case K::TmemAlloc:
      return "tensor memory";
    case K::Warpgroup:
      return "wgmma group";
    case K::Registers:
      return "registers";
    case K::WarpSync:
    case K::Aligned:
      return "lanes";
    case K::Other:
      break;
  }
  return "other";
}

ordered_json place_json(const Program& program, uint32_t pc) {
  return {{"ptx_line", program.ptx_line_number(pc)},
          {"ptx", program.ptx_line(pc)},
          {"source", program.cuda_line(pc)}};
}

ordered_json wait_json(const Wait& w, const Warp& warp, const Cta& cta, Cluster& cluster) {
  ordered_json wait{{"kind", kind_name(w.kind)}, {"text", waits_for(w, warp, cta, cluster)}};
  if (w.kind == Wait::Kind::NamedBarrier) {
    const NamedBarrier& b = cta.barriers[w.address & 15];
    wait["barrier"] = w.address;
    wait["arrived_threads"] = b.arrived;
    wait["expected_threads"] = b.expected ? b.expected : cta.threads;
  }
  if (w.kind != Wait::Kind::Mbarrier) return wait;
  wait["cta_rank"] = shared_rank(w.address);
  wait["offset"] = shared_offset(w.address);
  wait["parity"] = w.parity;
  const std::optional<MbarrierState> state = mbarrier_state(cluster, w.address);
  if (!state) return wait;
  wait["phase"] = state->phase;
  wait["expected_arrivals"] = state->expected;
  wait["pending_arrivals"] = state->pending;
  wait["expected_bytes"] = state->expected_bytes;
  wait["pending_bytes"] = state->pending_bytes;
  const Program& program = *cluster.grid->kernel->program;
  const auto& known = cluster.ctas[shared_rank(w.address)]->mbarriers;
  if (const auto facts = known.find(shared_offset(w.address)); facts != known.end()) {
    wait["initialised_by"] = place_json(program, facts->second.init_pc);
    wait["in_this_phase"] = ordered_json::array();
    for (const std::string& who : facts->second.last_arrivals)
      wait["in_this_phase"].push_back(with_place(program, who));
  }
  return wait;
}

// Waiting warps in the words of the source: the outermost function that they do not all have in common.
void name_roles(const Program& program, ordered_json& warps, const std::vector<uint32_t>& pcs) {
  std::vector<std::vector<std::string>> calls;
  for (const uint32_t pc : pcs) calls.push_back(inlined_functions(program, pc));
  size_t common = 0;
  const auto shared = [&] {
    for (const auto& names : calls)
      if (names.size() <= common || names[common] != calls.front()[common]) return false;
    return calls.size() > 1;
  };
  while (shared()) ++common;
  for (size_t k = 0; k < calls.size(); ++k)
    warps[k]["role"] = common < calls[k].size() ? calls[k][common] : calls[k].empty() ? "" : calls[k].back();
}

std::string deadlock_json(const Grid& grid, Cluster& cluster, const std::string& kind) {
  const Program& program = *grid.kernel->program;
  ordered_json report{{"kind", kind.substr(0, kind.find(':'))},
                      {"kernel", grid.kernel->info.name},
                      {"schedule", grid.schedule.name()},
                      {"seed", grid.schedule.seed}};
  ordered_json warps = ordered_json::array();
  std::vector<uint32_t> pcs;
  for (const auto& cta : cluster.ctas)
    for (const Warp& warp : cta->warps)
      for (const Fragment& f : warp.fragments) {
        if (!f.mask) continue;
        ordered_json entry{{"cta", {cta->id.x, cta->id.y, cta->id.z}},
                           {"cta_rank", cta->rank},
                           {"warp", warp.index},
                           {"lanes", fmt::format("{:#010x}", f.mask)},
                           {"role", ""}};
        entry.update(place_json(program, f.pc));
        entry["waits_for"] = wait_json(f.wait, warp, *cta, cluster);
        warps.push_back(std::move(entry));
        pcs.push_back(f.pc);
      }
  name_roles(program, warps, pcs);
  report["warps"] = std::move(warps);
  report["pending_work"] = cluster.events.describe();
  return report.dump(1);
}

struct LastDeadlock {
  std::mutex mutex;
  std::string json;
};
LastDeadlock& last() {
  static LastDeadlock instance;
  return instance;
}

std::string cta_name(const Cta& cta) {
  return fmt::format("CTA ({}, {}, {}) rank {}", cta.id.x, cta.id.y, cta.id.z, cta.rank);
}

}  // namespace

std::string describe_place(const Grid& grid, const Warp& warp, uint32_t pc, uint32_t mask) {
  const Program& program = *grid.kernel->program;
  std::string text =
      fmt::format("  in kernel {}, {}, warp {}, lanes {:#010x}\n  PTX line {}, column {}: {}",
                  grid.kernel->info.name, cta_name(*warp.cta), warp.index, mask, program.ptx_line_number(pc),
                  program.ptx_column_number(pc), program.ptx_line(pc));
  if (const std::string cuda = program.cuda_line(pc); !cuda.empty()) text += "\n  CUDA " + cuda;
  return text;
}

std::string deadlock_report(const Grid& grid, Cluster& cluster, const std::string& kind) {
  const Program& program = *grid.kernel->program;
  std::string headline, table;
  int headline_rank = 0;
  std::map<std::string, uint32_t> reasons;  // what is waited for -> warps
  for (const auto& cta : cluster.ctas) {
    for (const Warp& warp : cta->warps) {
      for (const Fragment& f : warp.fragments) {
        if (!f.mask) continue;
        const std::string why = waits_for(f.wait, warp, *cta, cluster);
        ++reasons[why];
        // Bytes that never come are a cause, arrivals that never come may be a consequence.
        const int rank = f.wait.kind != Wait::Kind::Mbarrier      ? 1
                         : why.find("bytes expected") == why.npos ? 2
                                                                  : 3;
        if (rank > headline_rank) {
          headline = fmt::format("{}, warp {} waits for {}", cta_name(*cta), warp.index, why);
          headline_rank = rank;
        }
        const std::string cuda = program.cuda_line(f.pc), role = role_of(program, f.pc);
        table += fmt::format("\n  {} warp {:2} lanes {:#010x}{} PTX line {}: {}{}\n      waits for {}",
                             cta_name(*cta), warp.index, f.mask, role.empty() ? "" : " in " + role,
                             program.ptx_line_number(f.pc), program.ptx_line(f.pc),
                             cuda.empty() ? "" : " (" + cuda + ")", why);
      }
      for (const ConvergenceToken& t : warp.tokens)
        if (t.used && t.arrived)
          table += fmt::format(
              "\n  {} warp {:2} lanes {:#010x} wait to reconverge with lanes {:#010x} at PTX line {}",
              cta_name(*cta), warp.index, t.arrived, t.expected & ~t.arrived, program.ptx_line_number(t.pc));
    }
    if (cta->finished) table += fmt::format("\n  {} has exited", cta_name(*cta));
  }
  std::string text = fmt::format("{}\n{}\nkernel {}, schedule {}", kind, headline, grid.kernel->info.name,
                                 grid.schedule.name());
  if (grid.schedule.randomised()) text += fmt::format(", seed {}", grid.schedule.seed);
  text += "\nwaited for:";
  for (const auto& [why, count] : reasons)
    text += fmt::format("\n  {} warp{}: {}", count, count == 1 ? "" : "s", why);
  text += barrier_history(program, cluster);
  text += "\nlive warps:" + table;
  const std::vector<std::string> events = cluster.events.describe();
  text += events.empty() ? "\nno asynchronous work is pending" : "\npending asynchronous work:";
  for (const std::string& e : events) text += "\n  " + e;
  std::lock_guard lock(last().mutex);
  last().json = deadlock_json(grid, cluster, kind);
  return text;
}

void forget_deadlock() {
  std::lock_guard lock(last().mutex);
  last().json.clear();
}
const std::string& last_deadlock() { return last().json; }

}  // namespace mxfa::emulator
