// Every kernel that ships, in every configuration an operation can ask for, through the real NVRTC: a sample
// in `make test`, all of them in `make check`.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "host/error.hpp"
#include "runtime/disassemble.hpp"
#include "runtime/role_registers.hpp"
#include "runtime/shipped_kernel.hpp"
#include "support/catch.hpp"

using namespace mxfa;

namespace {

struct Shipped {
  std::string kernel, arch;
  std::vector<ConfigField> facts;
};

std::vector<Shipped> quantizers() {
  std::vector<Shipped> all;
  for (const char* arch : {"sm_90a", "sm_100a", "sm_103a"})
    for (const int head_dim : {64, 96, 128})
      for (const int layout : {0, 1, 2})
        for (const int floor : {0, 1})
          for (const bool even_heads : {false, true})
            all.push_back({"mxfp8_quantize",
                           arch,
                           {{"head_dim", head_dim},
                            {"layout", layout},
                            {"floor", floor},
                            {"even_heads", even_heads, true, ConfigField::Use::kChoiceOnly}}});
  return all;
}

std::vector<Shipped> blackwell_attentions() {
  std::vector<Shipped> all;
  const auto add = [&](const test::BlackwellForward& forward) {
    all.push_back({forward.kernel(), forward.arch, forward.facts()});
  };
  struct Format {
    bool mxfp8, dynamic_p;
  };
  for (const char* arch : {"sm_100a", "sm_103a"}) {
    for (const int head_dim : {64, 96, 128})
      for (const auto& [mxfp8, dynamic_p] : {Format{false, false}, Format{true, false}, Format{true, true}}) {
        test::BlackwellForward forward{
            .arch = arch, .head_dim = head_dim, .mxfp8 = mxfp8, .dynamic_p = dynamic_p};
        for (const bool right_mask : {false, true})
          for (const bool left_mask : {false, true}) {
            forward.right_mask = right_mask, forward.left_mask = left_mask;
            add(forward);
          }
        // Two masks cost the most registers, none leave the walk over tiles the largest part.
        forward.launch_control = true, forward.packed_heads = mxfp8 ? 1 : 4;
        for (const bool masks : {false, true}) {
          forward.right_mask = forward.left_mask = masks;
          add(forward);
        }
      }
    add({.arch = arch, .head_dim = 128, .pair = true});
  }
  for (const char* arch : {"sm_90a", "sm_100a", "sm_103a"}) all.push_back({"attention_lengths", arch, {}});
  return all;
}

std::vector<Shipped> hopper_attentions() {
  std::vector<Shipped> all;
  const auto add = [&](const char* kernel, const std::vector<ConfigField>& facts) {
    all.push_back({kernel, "sm_90a", facts});
  };
  // Both masks hold what one alone has.
  struct Backward {
    bool mxfp8, square_ds, masks, deterministic, dq_fp16, short_walk;
  };
  std::vector<Backward> backwards;
  for (const bool masks : {false, true})
    for (const bool deterministic : {false, true})
      for (const bool dq_fp16 : {false, true})
        for (const bool short_walk : {false, true})
          backwards.push_back({false, false, masks, deterministic, dq_fp16, short_walk});
  backwards.push_back({true, false, true, false, false, false});
  backwards.push_back({true, true, false, false, false, true});
  backwards.push_back({true, true, true, false, false, false});
  backwards.push_back({true, true, true, true, false, false});
  for (const int head_dim : {64, 96, 128}) {
    for (const Backward& of : backwards)
      add("attention_bwd_sm90", {{"head_dim", head_dim},
                                 {"right_mask", of.masks, true},
                                 {"left_mask", of.masks, true},
                                 {"deterministic", of.deterministic, true},
                                 {"dq_fp16", of.dq_fp16, true},
                                 {"with_dq", true, true},
                                 {"mxfp8", of.mxfp8, true},
                                 {"square_ds", of.square_ds, true},
                                 {"short_walk", of.short_walk, true, ConfigField::Use::kChoiceOnly}});
    for (const bool masks : {false, true}) {
      std::vector<ConfigField> facts{
          {"head_dim", head_dim}, {"right_mask", masks, true}, {"left_mask", masks, true}};
      add("attention_bwd_dq_sm90", facts);
      for (const char* name : {"deterministic", "dq_fp16", "with_dq", "mxfp8", "square_ds"})
        facts.push_back({name, false, true});
      add("attention_bwd_sm90", facts);
    }
    for (const int tile_m : head_dim == 64 ? std::vector{128} : std::vector{64, 80})
      for (const bool dq_fp16 : {false, true}) {
        std::vector<ConfigField> facts{
            {"head_dim", head_dim}, {"tile_m", tile_m}, {"dq_fp16", dq_fp16, true}};
        add("attention_bwd_finish", facts);
        facts.push_back({"mxfp8", false, true});
        add("attention_bwd_prepare", facts);
        facts.back().value = 1;
        add("attention_bwd_prepare", facts);
      }
    for (const bool even_heads : {false, true})
      add("mxfp8_expand",
          {{"head_dim", head_dim}, {"even_heads", even_heads, true, ConfigField::Use::kChoiceOnly}});
    struct Format {
      bool mxfp8, dynamic_p;
    };
    for (const auto& [mxfp8, dynamic_p] : {Format{false, false}, Format{true, false}, Format{true, true}})
      for (const bool right_mask : {false, true})
        for (const bool left_mask : {false, true})
          for (const bool two_unit_tiles : {false, true})
            add("attention_fwd_sm90",
                {{"head_dim", head_dim},
                 {"mxfp8", mxfp8, true},
                 {"right_mask", right_mask, true},
                 {"left_mask", left_mask, true},
                 {"dynamic_p", dynamic_p, true},
                 {"two_unit_tiles", two_unit_tiles, true, ConfigField::Use::kChoiceOnly}});
  }
  return all;
}

std::vector<Shipped> all_kernels() {
  std::vector<Shipped> all = quantizers();
  for (const auto& more : {blackwell_attentions(), hopper_attentions()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

// Every two facts of a kernel, its architecture among them.
using Pair = std::tuple<std::string, std::string, int64_t, std::string, int64_t>;
std::set<Pair> pairs_of(const Shipped& shipped) {
  std::vector<ConfigField> facts = shipped.facts;
  facts.push_back({"arch", std::stoi(shipped.arch.substr(3))});
  std::set<Pair> pairs;
  for (const ConfigField& a : facts)
    for (const ConfigField& b : facts)
      if (a.name <= b.name) pairs.insert({shipped.kernel, a.name, a.value, b.name, b.value});
  return pairs;
}

// Few kernels in which every two facts meet that meet in one of all, beside those that other tests of this
// room compile anyway.
std::vector<Shipped> sample_of(const std::vector<Shipped>& all) {
  std::vector<Shipped> sample;
  std::set<Pair> covered;
  const auto add = [&](const Shipped& shipped) {
    covered.merge(pairs_of(shipped));
    sample.push_back(shipped);
  };
  const auto gain = [&](const Shipped& shipped) {
    const std::set<Pair> pairs = pairs_of(shipped);
    return std::count_if(pairs.begin(), pairs.end(), [&](const Pair& p) { return !covered.contains(p); });
  };
  for (const test::BlackwellForward& forward : test::blackwell_forwards())
    add({forward.kernel(), forward.arch, forward.facts()});
  for (;;) {
    const auto best = std::max_element(all.begin(), all.end(),
                                       [&](const Shipped& x, const Shipped& y) { return gain(x) < gain(y); });
    if (gain(*best) == 0) return sample;
    add(*best);
  }
}

void compile_cleanly(const std::vector<Shipped>& kernels) {
  const Nvrtc nvrtc;
  for (const Shipped& shipped : kernels) {
    const KernelConfig config = resolve_kernel_config(mxfa_embedded_kernel_configs, shipped.kernel,
                                                      shipped.arch, shipped.facts, nullptr);
    INFO(config.translation_unit());
    try {
      const auto built = test::compile_shipped(nvrtc, config);
      const Artefact& artefact = *built;
      const auto report = nlohmann::json::parse(artefact.report);
      INFO(artefact.report);
      CHECK(report["warnings"].empty());
      CHECK(report["spill_stores"] == 0);
      CHECK(report["spill_loads"] == 0);
      CHECK(artefact.ptx.find(".entry " + shipped.kernel) != std::string::npos);
      CHECK(artefact.ptx.find(shipped.kernel + "_tables") != std::string::npos);
    } catch (const Error& error) {
      FAIL_CHECK(error.what());
    }
  }
}

}  // namespace

TEST_CASE("jitc-device-intrinsics: every two facts of a kernel meet in one that compiles without a spill",
          "[kernels]") {
  compile_cleanly(sample_of(all_kernels()));
}

// `make check`.
TEST_CASE("No warp uses registers that setmaxnreg has given back", "[.every_kernel]") {
  const char* disassembler = std::getenv("MXFA_NVDISASM");
  if (!disassembler) {
    WARN("not looked at: MXFA_NVDISASM names no disassembler");
    return;
  }
  const Nvrtc nvrtc;
  int seen = 0;
  for (const Shipped& shipped : hopper_attentions()) {
    const KernelConfig config = resolve_kernel_config(mxfa_embedded_kernel_configs, shipped.kernel,
                                                      shipped.arch, shipped.facts, nullptr);
    INFO(config.translation_unit());
    const std::string text = test::disassemble(disassembler, test::compile_shipped(nvrtc, config)->cubin);
    for (const test::RoleRegisters& role : test::role_registers(text)) {
      ++seen;
      // ptxas keeps two back, and a build that used them ended in an illegal instruction on an H200.
      CHECK(role.highest < role.budget - 2);
    }
  }
  CHECK(seen > 0);
}

// `make check`.
TEST_CASE("Every kernel compiles for every architecture without a warning or a spill", "[.every_kernel]") {
  compile_cleanly(all_kernels());
}
