// Every kernel that ships, in every configuration an operation can ask for, through the real NVRTC.
#include <nlohmann/json.hpp>

#include "host/error.hpp"
#include "runtime/shipped_kernel.hpp"
#include "support/catch.hpp"

using namespace mxfa;

namespace {

void compiles_cleanly(const Nvrtc& nvrtc, const char* kernel, const std::string& arch,
                      const std::vector<ConfigField>& facts) {
  const KernelConfig config =
      resolve_kernel_config(mxfa_embedded_kernel_configs, kernel, arch, facts, nullptr);
  INFO(config.translation_unit());
  try {
    const auto built = test::compile_shipped(nvrtc, config);
    const Artefact& artefact = *built;
    const auto report = nlohmann::json::parse(artefact.report);
    INFO(artefact.report);
    CHECK(report["warnings"].empty());
    CHECK(report["spill_stores"] == 0);
    CHECK(report["spill_loads"] == 0);
    CHECK(artefact.ptx.find(std::string(".entry ") + kernel) != std::string::npos);
    CHECK(artefact.ptx.find(std::string(kernel) + "_tables") != std::string::npos);
  } catch (const Error& error) {
    FAIL_CHECK(error.what());
  }
}

void compiles_cleanly(const Nvrtc& nvrtc, const test::BlackwellForward& forward) {
  compiles_cleanly(nvrtc, forward.kernel(), forward.arch, forward.facts());
}

}  // namespace

TEST_CASE(
    "jitc-device-intrinsics: every quantizer compiles for every architecture without a warning or a spill",
    "[kernels]") {
  const Nvrtc nvrtc;
  for (const char* arch : {"sm_90a", "sm_100a", "sm_103a"})
    for (const int head_dim : {64, 96, 128})
      for (const int layout : {0, 1, 2})
        for (const int floor : {0, 1})
          compiles_cleanly(
              nvrtc, "mxfp8_quantize", arch,
              {{"head_dim", head_dim, false}, {"layout", layout, false}, {"floor", floor, false}});
}

TEST_CASE(
    "jitc-device-intrinsics: every attention kernel compiles for every architecture without a warning or a "
    "spill",
    "[kernels]") {
  const Nvrtc nvrtc;
  struct Format {
    bool mxfp8, dynamic_p;
  };
  for (const char* arch : {"sm_100a", "sm_103a"})
    for (const int head_dim : {64, 96, 128})
      for (const auto& [mxfp8, dynamic_p] : {Format{false, false}, Format{true, false}, Format{true, true}})
        for (const bool right_mask : {false, true})
          for (const bool left_mask : {false, true})
            compiles_cleanly(nvrtc, {.arch = arch,
                                     .head_dim = head_dim,
                                     .mxfp8 = mxfp8,
                                     .dynamic_p = dynamic_p,
                                     .right_mask = right_mask,
                                     .left_mask = left_mask});
  // Two masks cost the most registers, none leave the walk over tiles the largest part.
  for (const char* arch : {"sm_100a", "sm_103a"})
    for (const int head_dim : {64, 96, 128})
      for (const auto& [mxfp8, dynamic_p] : {Format{false, false}, Format{true, false}, Format{true, true}})
        for (const bool masks : {false, true})
          compiles_cleanly(nvrtc, {.arch = arch,
                                   .head_dim = head_dim,
                                   .mxfp8 = mxfp8,
                                   .dynamic_p = dynamic_p,
                                   .right_mask = masks,
                                   .left_mask = masks,
                                   .launch_control = true,
                                   .packed_heads = mxfp8 ? 1 : 4});
  for (const char* arch : {"sm_100a", "sm_103a"})
    compiles_cleanly(nvrtc, {.arch = arch, .head_dim = 128, .pair = true});
  for (const char* arch : {"sm_90a", "sm_100a", "sm_103a"})
    compiles_cleanly(nvrtc, "attention_lengths", arch, {});
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
  for (const int head_dim : {64, 96, 128})
    for (const Backward& of : backwards)
      compiles_cleanly(nvrtc, "attention_bwd_sm90", "sm_90a",
                       {{"head_dim", head_dim},
                        {"right_mask", of.masks, true},
                        {"left_mask", of.masks, true},
                        {"deterministic", of.deterministic, true},
                        {"dq_fp16", of.dq_fp16, true},
                        {"with_dq", true, true},
                        {"mxfp8", of.mxfp8, true},
                        {"square_ds", of.square_ds, true},
                        {"short_walk", of.short_walk, true, ConfigField::Use::kChoiceOnly}});
  for (const int head_dim : {64, 96, 128})
    for (const bool masks : {false, true}) {
      std::vector<ConfigField> facts{
          {"head_dim", head_dim}, {"right_mask", masks, true}, {"left_mask", masks, true}};
      compiles_cleanly(nvrtc, "attention_bwd_dq_sm90", "sm_90a", facts);
      for (const char* name : {"deterministic", "dq_fp16", "with_dq", "mxfp8", "square_ds"})
        facts.push_back({name, false, true});
      compiles_cleanly(nvrtc, "attention_bwd_sm90", "sm_90a", facts);
    }
  for (const int head_dim : {64, 96, 128})
    for (const bool dq_fp16 : {false, true}) {
      compiles_cleanly(nvrtc, "attention_bwd_finish", "sm_90a",
                       {{"head_dim", head_dim}, {"dq_fp16", dq_fp16, true}});
      for (const bool mxfp8 : {false, true})
        compiles_cleanly(nvrtc, "attention_bwd_prepare", "sm_90a",
                         {{"head_dim", head_dim}, {"dq_fp16", dq_fp16, true}, {"mxfp8", mxfp8, true}});
    }
  for (const int head_dim : {64, 96, 128}) {
    compiles_cleanly(nvrtc, "mxfp8_expand", "sm_90a", {{"head_dim", head_dim}});
    for (const bool right_mask : {false, true})
      for (const bool left_mask : {false, true}) {
        const auto compiles = [&](bool mxfp8, bool dynamic_p) {
          compiles_cleanly(nvrtc, "attention_fwd_sm90", "sm_90a",
                           {{"head_dim", head_dim},
                            {"mxfp8", mxfp8, true},
                            {"right_mask", right_mask, true},
                            {"left_mask", left_mask, true},
                            {"dynamic_p", dynamic_p, true}});
        };
        compiles(false, false);
        compiles(true, false);
        compiles(true, true);
      }
  }
}
