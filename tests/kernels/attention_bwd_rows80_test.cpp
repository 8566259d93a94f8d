// attention_bwd_sm90 with steps of 80 query rows, which the plan takes for tiles of keys that meet 512 rows
// and more: here at lengths a test can afford, two CTAs for all tiles, so that each has several.
#include <nlohmann/json.hpp>

#include "kernels/attention_backward_run.hpp"
#include "kernels/attention_masks.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;
using namespace mxfa::reference;

namespace {

constexpr char kRows80[] =
    R"({"tile_m": 80, "kv_stages": 1, "direct_chunks": 0, "dv_before_ds": 1, "max_ctas": 2})";

// Both sides of a unit's 8 rows, of a step's 80 and of two of them; every length meets another one.
const std::vector<int32_t> kLengthsQ{0, 1, 7, 8, 9, 79, 80, 81, 159, 160, 161, 257};
const std::vector<int32_t> kLengthsK{129, 257, 33, 0, 127, 1, 64, 256, 128, 63, 300, 160};

BackwardInputs with_80_rows(const AttentionProblem& problem) {
  BackwardInputs inputs = make_backward(problem);
  inputs.forward.kernel = kRows80;
  return inputs;
}

}  // namespace

TEST_CASE("sm_90a backward in steps of 80 rows: every mask at head_dim 96 and 128", "[gpu][sm_90][bwd]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  for (const int head_dim : {96, 128})
    for (const Mask& variant : kMasks) {
      INFO("head_dim " << head_dim << ", " << variant.name);
      AttentionProblem problem = problem_of(kLengthsQ, kLengthsK, 1, head_dim);
      variant.apply(problem);
      check_backward(with_80_rows(problem));
    }
}

TEST_CASE("sm_90a backward in steps of 80 rows: grouped heads, dQ summed in FP32 and in FP16",
          "[gpu][sm_90][bwd][fp16]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  for (const int head_dim : {96, 128})
    for (const bool fp16 : {false, true}) {
      INFO("head_dim " << head_dim << ", fp16 " << fp16);
      AttentionProblem problem = problem_of({330, 0, 70}, {330, 40, 200}, 4, head_dim);
      problem.heads_kv = 2;
      problem.causal = true;
      BackwardInputs inputs = with_80_rows(problem);
      inputs.options.dq_accumulate = fp16 ? MXFA_DQ_FP16 : MXFA_DQ_FP32;
      inputs.options.dq_scale_log2 = fp16 ? 6 : 0;
      check_backward(inputs);
    }
}

TEST_CASE("sm_90a backward in steps of 80 rows: dQ of broadcast queries is summed over the batch",
          "[gpu][sm_90][bwd]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  for (const int32_t queries : {1, 81, 200}) {
    INFO(queries << " broadcast queries");
    AttentionProblem problem = problem_of({queries}, {129, 0, 64, 1, 200}, 2, 128);
    problem.broadcast_q = true;
    check_backward(with_80_rows(problem));
  }
}

TEST_CASE("sm_90a backward: steps of 80 rows are the plan's choice for long walks alone",
          "[gpu][sm_90][bwd]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  const auto step_rows = [](int32_t rows, int head_dim, bool deterministic) {
    BackwardInputs inputs = make_backward(problem_of({rows}, {128}, 1, head_dim));
    inputs.options.deterministic = deterministic;
    mxfa_attention attention = describe_attention(inputs.forward);
    attention.kernel = R"({"method": "one_kernel"})";
    const auto plan = Device::instance().context().attention_backward(attention, inputs.options);
    return nlohmann::json::parse(plan.describe())["config"]["tile_m"].get<int>();
  };
  CHECK(step_rows(512, 128, false) == 80);
  CHECK(step_rows(512, 96, false) == 80);
  CHECK(step_rows(511, 128, false) == 64);
  CHECK(step_rows(512, 64, false) == 128);
  CHECK(step_rows(512, 128, true) == 64);
}
