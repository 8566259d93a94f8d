// The tables of the Blackwell forward (roles, shared memory, tensor memory, barriers) as every configuration
// publishes them: what lives together lies apart, and each barrier counts the arrivals that its producers
// make.
#include <map>
#include <set>

#include "runtime/shipped_kernel.hpp"
#include "support/catch.hpp"

using namespace mxfa;
using namespace mxfa::test;

namespace {

constexpr uint32_t kWarps = 16, kRegisterFile = 64 * 1024, kSharedBytes = 227 * 1024, kColumns = 512;

struct Region {
  std::string name;
  uint32_t begin, end;
  bool meets(const Region& other) const { return begin < other.end && other.begin < end; }
};

void check_roles(const abi::KernelTables& t, const std::string& ptx) {
  uint32_t next = 0, registers = 0;
  for (uint32_t i = 0; i < t.role_count; ++i) {
    const auto& role = t.roles[i];
    INFO(role.name);
    CHECK(role.first_warp == next);
    next += role.warps;
    // The warps of a warpgroup share one setmaxnreg.
    registers += role.registers * 32 * role.warps;
    const char* direction = role.registers > 128 ? "inc" : "dec";
    CHECK(ptx.find(std::string("setmaxnreg.") + direction + ".sync.aligned.u32 " +
                   std::to_string(role.registers)) != ptx.npos);
  }
  CHECK((next == kWarps && t.threads == 32 * kWarps));
  CHECK(registers <= kRegisterFile);
}

void check_shared_memory(const abi::KernelTables& t) {
  uint32_t end = 0;
  Region barriers{};
  for (uint32_t i = 0; i < t.smem_count; ++i) {
    const auto& row = t.smem[i];
    INFO(row.name);
    CHECK(row.offset % row.alignment == 0);
    CHECK(row.offset >= end);
    end = row.offset + row.bytes * row.stages;
    if (std::string(row.name) == "barriers") barriers = {row.name, row.offset, end};
  }
  CHECK((end <= t.shared_bytes && t.shared_bytes <= kSharedBytes));
  uint32_t next = barriers.begin;
  for (uint32_t i = 0; i < t.barrier_count; ++i) {
    INFO(t.barriers[i].name);
    CHECK(t.barriers[i].offset == next);
    next += 8 * t.barriers[i].stages;
  }
  CHECK(next == barriers.end);
}

// Regions that share columns with another one's dead part (docs/attention_fwd_sm100.md, "Why each overlay is
// safe"): where each may lie.  All others are apart.
const std::map<std::string, std::string> kOverlays{{"p0", "s0"},      {"p1", "s1"},     {"sf_pv0", "s0"},
                                                   {"sf_pv1", "s1"},  {"sf_qk0", "s1"}, {"sf_qk1", "s0"},
                                                   {"sf_start", "o0"}};

void check_tensor_memory(const abi::KernelTables& t) {
  std::map<std::string, Region> regions;
  for (uint32_t i = 0; i < t.tmem_count; ++i) {
    const auto& row = t.tmem[i];
    regions[row.name] = {row.name, row.column, row.column + row.columns};
    CHECK(row.column + row.columns <= kColumns);
    CHECK((row.live_from[0] != 0 && row.live_until[0] != 0));
  }
  for (const auto& [name, region] : regions) {
    const auto host = kOverlays.find(name);
    if (host != kOverlays.end()) {
      const Region& around = regions.at(host->second);
      CHECK((around.begin <= region.begin && region.end <= around.end));
    }
    for (const auto& [other, second] : regions) {
      if (name == other || (host != kOverlays.end() && host->second == other)) continue;
      const auto guest = kOverlays.find(other);
      if (guest != kOverlays.end() && guest->second == name) continue;
      INFO(name << " and " << other);
      CHECK(!region.meets(second));
    }
  }
}

// Arrivals a phase, from who arrives: a warp once through an elected lane, a thread once, a commit once.
uint32_t arrivals(const std::string& producer) {
  static const std::map<std::string, uint32_t> counts{
      {"load", 1},
      {"mma commit", 1},
      {"softmax", 4},
      {"softmax, correction", 4 + 4},
      {"softmax warp", 1},
      {"correction", 4},
      {"epilogue", 1},
      {"scheduler", 1},
      {"all roles", 8 + 4 + 3}};  // those that walk tiles: 12 warps, mma, epilogue and load
  return counts.at(producer);
}

void check_barriers(const abi::KernelTables& t, bool pair) {
  std::map<std::string, uint32_t> bytes;
  for (uint32_t i = 0; i < t.smem_count; ++i) bytes[t.smem[i].name] = t.smem[i].bytes;
  std::set<std::string> names;
  for (uint32_t i = 0; i < t.barrier_count; ++i) names.insert(t.barriers[i].name);
  for (uint32_t i = 0; i < t.barrier_count; ++i) {
    const auto& row = t.barriers[i];
    const std::string name = row.name;
    INFO(name);
    // The mma thread of a pair waits for both CTAs, and the loads of both signal there.
    const uint32_t both = pair && (name == "p_full" || name == "p_last") ? 2 : 1;
    CHECK(row.count == both * arrivals(row.producer));
    uint32_t expected = 0;
    if (name == "q_full") expected = (bytes["q"] + bytes["sf_q"]) * (pair ? 2 : 1);
    if (name == "kv_full") expected = (bytes["kv"] + bytes["sf_kv"]) * (pair ? 2 : 1);
    if (name == "grant_full") expected = bytes["grant"];
    CHECK(row.tx_bytes == expected);
    // Whoever refills waits first with the parity that a fresh barrier passes.
    const bool refill = name.ends_with("_empty");
    CHECK(row.consumer_first_parity == (refill ? 1 : 0));
    if (refill) CHECK(names.contains(name.substr(0, name.size() - 6) + "_full"));
  }
}

}  // namespace

TEST_CASE("the tables of the Blackwell forward: nothing that lives together overlaps, counts balance",
          "[kernels]") {
  const Nvrtc nvrtc;
  std::vector<BlackwellForward> kernels = blackwell_forwards();
  kernels.push_back({.arch = "sm_100a", .head_dim = 128, .right_mask = true, .launch_control = true});
  for (const BlackwellForward& forward : kernels) {
    const auto built = compile_shipped(nvrtc, forward.config());
    INFO(forward.config().translation_unit());
    const abi::KernelTables t = tables_of(built->ptx, forward.kernel());
    REQUIRE(t.magic == abi::kTablesMagic);
    check_roles(t, built->ptx);
    check_shared_memory(t);
    check_tensor_memory(t);
    check_barriers(t, forward.pair);
  }
}
