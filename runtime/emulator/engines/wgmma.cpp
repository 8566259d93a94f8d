// Issue, order and completion of wgmma.
#include "engines/wgmma.hpp"

#include <cuda.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>

#include "engines/engines.hpp"
#include "engines/fragment.hpp"
#include "engines/operand_tile.hpp"

namespace mxfa::emulator {

// Accumulators in flight: a run of instructions on the same registers shares one.
struct WgmmaAccumulator {
  uint32_t n = 0;
  bool f16 = false;
  std::vector<uint32_t> words;                  // 64 rows x n columns, column-major
  std::array<std::vector<Row*>, 4> registers;   // of each warp, empty until it issues
  std::array<uint64_t, 4> last = {0, 0, 0, 0};  // newest instruction of each warp on it
};

struct WgmmaGroup {
  struct Issued {
    Wgmma wgmma;
    MatrixDescriptor a, b;
    std::shared_ptr<WgmmaAccumulator> accumulator;
    std::array<std::array<const Row*, 4>, 4> a_registers{};  // by warp
    uint32_t arrived = 0;                                    // warps
    uint32_t pc = 0;                                         // of the first warp, for reports
    uint64_t ticket = 0;                                     // for observers
  };
  std::deque<std::shared_ptr<Issued>> issued;  // instructions first .. first + size, not yet performed
  uint64_t first = 1;                          // the oldest of them: those before are performed
  uint64_t ready = 0;                          // newest instruction that all four warps have issued
  struct PerWarp {
    uint64_t next = 1;            // number of its next instruction
    std::deque<uint64_t> groups;  // last instruction of each committed group, oldest first
    uint64_t committed = 0;       // last instruction of the newest group
    uint64_t waits_for = 0;       // instruction whose completion it waits for
    std::vector<std::shared_ptr<WgmmaAccumulator>> live;
  };
  std::array<PerWarp, 4> warps;
};

namespace {

constexpr int kRows = 64, kWarpRows = 16;

[[noreturn]] void refuse(const std::string& text, int code = CUDA_ERROR_ILLEGAL_INSTRUCTION) {
  throw Fault(code, "wgmma." + text);
}

uint64_t queue_of(const Cta& cta, uint32_t warpgroup) { return wgmma_queue(cta.rank, warpgroup); }

WgmmaGroup& group_of(Warp& warp) {
  Cta& cta = *warp.cta;
  const uint32_t index = warp.index / 4;
  if (cta.warps.size() < 4 * (index + 1) || cta.threads < 128 * (index + 1))
    refuse(fmt::format(
        "mma_async by warp {}: its warpgroup (warps {} to {}) is not complete in a CTA of {} threads",
        warp.index, 4 * index, 4 * index + 3, cta.threads));
  if (cta.wgmma.size() <= index) cta.wgmma.resize(index + 1);
  if (!cta.wgmma[index]) cta.wgmma[index] = std::make_shared<WgmmaGroup>();
  return *cta.wgmma[index];
}

void perform(Cta& cta, const WgmmaGroup::Issued& op) {
  TileWorkspace& w = tile_workspace();
  Operands& o = w.operands;
  const Wgmma& i = op.wgmma;
  o.m = kRows, o.n = i.n, o.k = 256 / format_bits(i.a);
  Cluster& cluster = *cta.cluster;
  if (i.a_in_registers) {
    for (uint32_t warp = 0; warp < 4; ++warp) gather_a(op.a_registers[warp], w.raw + warp * kWarpRows * 32);
  } else {
    fetch_rows(cluster, cta.rank, op.a, format_bits(i.a), i.a_mn_major, 0, kRows, w.raw);
  }
  turn_a(format_bits(i.a), w.raw, kRows, 0, w.turned);
  decode_a(o, i.a, i.negate_a, w.turned);
  fetch_rows(cluster, cta.rank, op.b, format_bits(i.b), i.b_mn_major, 0, static_cast<uint32_t>(i.n), w.raw);
  decode_b(o, i.b, i.negate_b, w.raw);

  Accumulator d;
  d.d = op.accumulator->words.data();
  d.pitch = kRows;
  for (uint8_t group = 0; group < 4; ++group) {
    d.lane[group] = static_cast<uint8_t>(kWarpRows * group);
    d.enabled[group] = 0xffff;
  }
  d.accumulate = i.accumulate;
  d.f16 = i.f16_result;
  // The 8-bit floats of Hopper keep 13 fractional bits (hardware measurements of microsoft/MMA-Sim).
  d.short_sums = i.a == Format::E4M3 || i.a == Format::E5M2;
  if (i.a == Format::S8 || i.a == Format::U8)
    integer_sums(o, d, i.saturate);
  else
    fused_sums(o, d, numerics_from_environment());
  Counters& counters = cluster.grid->counters;
  ++counters.mma_instructions;
  counters.mma_macs += static_cast<uint64_t>(kRows) * static_cast<uint64_t>(i.n) * static_cast<uint64_t>(o.k);
}

// The oldest instruction, which all four warps have issued.
void perform_next(Cta& cta, WgmmaGroup& group) {
  const std::shared_ptr<WgmmaGroup::Issued> op = group.issued.front();
  perform(cta, *op);
  report_performed(*cta.cluster, op->ticket);
  group.issued.pop_front();
  ++group.first;
  ++cta.cluster->epoch;
}

// The accumulator that this warp has in flight on these registers, null if none.
std::shared_ptr<WgmmaAccumulator> in_flight(const WgmmaGroup::PerWarp& state, uint32_t quarter, bool f16,
                                            std::span<Row* const> d) {
  for (const auto& a : state.live) {
    const auto& held = a->registers[quarter];
    if (a->f16 == f16 && std::equal(held.begin(), held.end(), d.begin(), d.end())) return a;
    for (const Row* row : held)
      if (std::find(d.begin(), d.end(), row) != d.end())
        refuse(
            "mma_async: some of its accumulator registers belong to an instruction in flight with another "
            "accumulator: a wait_group has to come between (PTX ISA 9.7.15.7)");
  }
  return nullptr;
}

std::shared_ptr<WgmmaAccumulator> new_accumulator(const Wgmma& wgmma) {
  auto fresh = std::make_shared<WgmmaAccumulator>();
  fresh->n = static_cast<uint32_t>(wgmma.n);
  fresh->f16 = wgmma.f16_result;
  fresh->words.resize(size_t{kRows} * fresh->n);
  return fresh;
}

}  // namespace

void wgmma_issue(Warp& warp, const Wgmma& wgmma, std::span<Row* const> d, std::span<const Row* const> a) {
  Cta& cta = *warp.cta;
  WgmmaGroup& group = group_of(warp);
  const uint32_t quarter = warp.index % 4;
  WgmmaGroup::PerWarp& state = group.warps[quarter];
  const uint64_t number = state.next++;
  const std::shared_ptr<WgmmaAccumulator> live = in_flight(state, quarter, wgmma.f16_result, d);
  std::shared_ptr<WgmmaGroup::Issued> op;
  if (number < group.first + group.issued.size()) {
    op = group.issued[number - group.first];
    if (!(op->wgmma == wgmma))
      refuse(fmt::format(
          "mma_async: warp {} executes another instruction or other operands than the warps of its "
          "warpgroup before it (at pc {}): all four must agree (PTX ISA 9.7.15.5.1)",
          warp.index, op->pc));
  } else {
    op = std::make_shared<WgmmaGroup::Issued>();
    op->wgmma = wgmma;
    op->pc = warp.pc;
    if (!wgmma.a_in_registers) op->a = decode_wgmma_matrix(wgmma.a_descriptor, "A");
    op->b = decode_wgmma_matrix(wgmma.b_descriptor, "B");
    op->accumulator = live ? live : new_accumulator(wgmma);
    op->ticket = new_ticket(*cta.cluster->grid);
    group.issued.push_back(op);
  }
  WgmmaAccumulator& accumulator = *op->accumulator;
  std::vector<Row*>& registers = accumulator.registers[quarter];
  if (live ? live != op->accumulator : !registers.empty())
    refuse(fmt::format(
        "mma_async: the warps of the warpgroup do not agree on which accumulators are in flight: warp {} "
        "has waited for others than the warps before it",
        warp.index));
  if (!live) {
    registers.assign(d.begin(), d.end());
    state.live.push_back(op->accumulator);
    const std::vector<const Row*> sources(d.begin(), d.end());
    gather_fragment(sources, wgmma.f16_result, accumulator.words.data() + quarter * kWarpRows, kRows);
    for (Row* row : registers) std::memset(row->lane, 0xff, sizeof(row->lane));
  }
  accumulator.last[quarter] = number;
  std::copy(a.begin(), a.end(), op->a_registers[quarter].begin());
  op->arrived |= 1u << quarter;
  if (op->ticket) {
    AsyncWork work{op->ticket, AsyncKind::Wgmma, -1, kNoBarrier, 1, number};
    Touches list;
    if (!wgmma.a_in_registers)
      add_rows(list, cta.rank, op->a, format_bits(wgmma.a), wgmma.a_mn_major, kWarpRows * quarter, kWarpRows);
    observe(*cta.cluster->grid, [&](Observer& o) { o.issue(warp, work, list); });
    if (op->arrived == 15) {
      list.clear();
      add_rows(list, cta.rank, op->b, format_bits(wgmma.b), wgmma.b_mn_major, 0,
               static_cast<uint32_t>(wgmma.n));
      work.whole_group = true;
      observe(*cta.cluster->grid, [&](Observer& o) { o.issue(warp, work, list); });
    }
  }
  if (op->arrived != 15) return;
  group.ready = number;
  const uint32_t index = warp.index / 4;
  EventQueue& events = cta.cluster->events;
  const uint64_t queue = queue_of(cta, index);
  if (events.immediate() && events.size(queue) == 0)
    perform_next(cta, group);
  else
    events.submit(queue,
                  fmt::format("wgmma m64n{}k{} by cta {} warps {}-{} pc {}", wgmma.n,
                              256 / format_bits(wgmma.a), cta.rank, 4 * index, 4 * index + 3, op->pc),
                  [&cta, &group] { perform_next(cta, group); });
  ++cta.cluster->epoch;  // warps may wait for this one to issue
}

void wgmma_commit(Warp& warp) {
  WgmmaGroup::PerWarp& state = group_of(warp).warps[warp.index % 4];
  state.committed = state.next - 1;
  observe(*warp.cta->cluster->grid, [&](Observer& o) { o.wgmma_commit(warp, state.committed); });
  state.groups.push_back(state.committed);
}

bool wgmma_wait(Warp& warp, uint32_t outstanding) {
  Cta& cta = *warp.cta;
  WgmmaGroup& group = group_of(warp);
  const uint32_t quarter = warp.index % 4;
  WgmmaGroup::PerWarp& state = group.warps[quarter];
  if (state.groups.size() <= outstanding) return true;
  const uint64_t through = state.groups[state.groups.size() - 1 - outstanding];
  state.waits_for = through;
  if (group.ready < through) return false;
  observe(*cta.cluster->grid, [&](Observer& o) { o.wgmma_waited(warp, through); });
  if (group.first <= through)
    cta.cluster->events.drain(queue_of(cta, warp.index / 4), static_cast<size_t>(through + 1 - group.first));
  state.waits_for = 0;
  state.groups.erase(state.groups.begin(), state.groups.end() - outstanding);
  std::erase_if(state.live, [&](const std::shared_ptr<WgmmaAccumulator>& a) {
    if (a->last[quarter] > through) return false;
    scatter_fragment(a->words.data() + quarter * kWarpRows, kRows, a->f16, a->registers[quarter]);
    return true;
  });
  return true;
}

std::string wgmma_describe(const Warp& warp) {
  const uint32_t index = warp.index / 4;
  if (index >= warp.cta->wgmma.size() || !warp.cta->wgmma[index]) return "wgmma.wait_group";
  const WgmmaGroup& group = *warp.cta->wgmma[index];
  const uint64_t through = group.warps[warp.index % 4].waits_for;
  std::string missing;
  for (uint32_t w = 0; w < 4; ++w)
    if (group.warps[w].next <= through)
      missing += fmt::format("{}{}", missing.empty() ? "" : ", ", 4 * index + w);
  if (missing.empty()) return "wgmma.wait_group: about to go on";
  return fmt::format("wgmma.wait_group: warps {} of the warpgroup have not issued the instruction", missing);
}

void wgmma_at_exit(const Cta& cta, std::vector<std::string>& findings) {
  for (size_t index = 0; index < cta.wgmma.size(); ++index) {
    if (!cta.wgmma[index] || cta.wgmma[index]->issued.empty()) continue;
    const WgmmaGroup::Issued& op = *cta.wgmma[index]->issued.front();
    const int warps = std::popcount(op.arrived);
    findings.push_back(
        warps == 4 ? fmt::format("warpgroup {}: wgmma without a wgmma.wait_group that covers it", index)
                   : fmt::format("warpgroup {}: a wgmma (pc {}) was executed by {} of its 4 warps", index,
                                 op.pc, warps));
  }
}

}  // namespace mxfa::emulator
