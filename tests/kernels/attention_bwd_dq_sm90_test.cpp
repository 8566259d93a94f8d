// The split pair of the backward, attention_bwd_dq_sm90 beside attention_bwd_sm90 without dQ, on an sm_90a
// device, against the double-precision gradients; and that every gradient has the same bits under all
// schedules.
#include <nlohmann/json.hpp>

#include "kernels/attention_backward_run.hpp"
#include "kernels/attention_masks.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;
using namespace mxfa::reference;

namespace {

const std::vector<int> kHeadDims{64, 96, 128};

BackwardInputs split(const AttentionProblem& problem, const char* kernel = R"({"method": "split"})") {
  BackwardInputs inputs = make_backward(problem);
  inputs.forward.kernel = kernel;
  return inputs;
}

void same_bits(const BackwardOutputs& a, const BackwardOutputs& b) {
  CHECK(a.dq == b.dq);
  CHECK(a.dk == b.dk);
  CHECK(a.dv == b.dv);
}

bool all_plus_zero(const std::vector<uint16_t>& tensor) {
  return std::all_of(tensor.begin(), tensor.end(), [](uint16_t bits) { return bits == 0; });
}

}  // namespace

TEST_CASE("split backward: every mask and head_dim, lengths around a warpgroup, a tile and a block",
          "[gpu][sm_90][bwd][split]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  // Every mask and head_dim, not every pair: each is two kernels to compile.
  for (const auto& [head_dim, mask] : {std::pair{128, 0},
                                       {128, 1},
                                       {128, 2},
                                       {128, 3},
                                       {128, 4},
                                       {128, 5},
                                       {128, 6},
                                       {64, 0},
                                       {64, 4},
                                       {96, 1}}) {
    const Mask& variant = kMasks[mask];
    INFO("head_dim " << head_dim << ", " << variant.name);
    AttentionProblem problem =
        problem_of({0, 1, 64, 127, 129, 200, 65}, {129, 128, 1, 270, 127, 97, 0}, 2, head_dim);
    problem.heads_kv = 1;
    variant.apply(problem);
    check_backward(split(problem));
  }
}

TEST_CASE("split backward: a broadcast Q, whose dQ stays on chip over a run of sequences",
          "[gpu][sm_90][bwd][split]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  // 70 heads: fewer runs than sequences on 132 SMs and more.  Two heads: a run for each.
  const std::vector<int32_t> many{40, 0, 3, 70, 0, 1, 129, 30, 0, 20, 64, 0}, few{129, 0, 300, 1, 64};
  for (const auto& [head_dim, mask] : {std::pair{64, 4}, {96, 1}, {128, 0}})
    for (const bool long_runs : {false, true}) {
      const Mask& variant = kMasks[mask];
      INFO("head_dim " << head_dim << ", long runs " << long_runs << ", " << variant.name);
      AttentionProblem problem =
          long_runs ? problem_of({3}, many, 70, head_dim) : problem_of({200}, few, 2, head_dim);
      problem.broadcast_q = true;
      variant.apply(problem);
      check_backward(split(problem));
    }
}

TEST_CASE("split backward: other tiles of dQ", "[gpu][sm_90][bwd][split]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  for (const auto& [head_dim, kernel] :
       {std::pair{128, R"({"method": "split", "dq_tile_n": 64, "dq_consumer_warpgroups": 3,
                           "dq_consumer_registers": 160, "dq_producer_registers": 32})"},
        {128, R"({"method": "split", "dq_tile_n": 96, "dq_k_stages": 3})"},
        {128, R"({"method": "split", "dq_q_stages": 1, "dq_k_stages": 3})"},
        {64, R"({"method": "split", "dq_tile_n": 128, "dq_consumer_warpgroups": 2,
                 "dq_consumer_registers": 240, "dq_producer_registers": 24})"}}) {
    INFO("head_dim " << head_dim << ", " << kernel);
    AttentionProblem problem = problem_of({300, 1, 130}, {300, 9, 260}, 1, head_dim);
    problem.causal = true;
    check_backward(split(problem, kernel));
  }
}

TEST_CASE("split backward: nothing to sum is +0, over poisoned outputs and workspace",
          "[gpu][sm_90][bwd][split]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  for (const int head_dim : kHeadDims) {
    INFO("head_dim " << head_dim);
    const BackwardOutputs keys_only = run_backward(split(problem_of({0, 0}, {70, 200}, 2, head_dim)));
    CHECK(all_plus_zero(keys_only.dk));
    CHECK(all_plus_zero(keys_only.dv));
    CHECK(all_plus_zero(run_backward(split(problem_of({70, 200}, {0, 0}, 2, head_dim))).dq));
    CHECK(run_backward(split(problem_of({}, {}, 2, head_dim))).dq.empty());
    for (const std::vector<int32_t>& lengths_k : {std::vector<int32_t>{}, {0, 0, 0}}) {
      AttentionProblem problem = problem_of({70}, lengths_k, 2, head_dim);
      problem.broadcast_q = true;
      CHECK(all_plus_zero(run_backward(split(problem)).dq));
    }
  }
}

TEST_CASE("split backward: NaN behind the last sequence and between rows changes no bit",
          "[gpu][sm_90][bwd][split]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  for (const bool broadcast : {false, true}) {
    INFO("broadcast " << broadcast);
    AttentionProblem problem =
        broadcast ? problem_of({70}, {130, 7, 0}, 2, 128) : problem_of({130, 7}, {64, 129}, 2, 128);
    problem.broadcast_q = broadcast;
    const BackwardInputs inputs = split(problem);
    const BackwardOutputs packed = run_backward(inputs);
    BackwardLaunch padded, tail, zeros, twice;
    padded.row_padding_bytes = 48;
    tail.tail_rows = 150;
    zeros.workspace_fill = 0;
    twice.launches = 2;
    for (const BackwardLaunch& launch : {padded, tail, zeros, twice})
      same_bits(run_backward(inputs, launch), packed);
  }
}

TEST_CASE("split backward: every schedule gives the same bits", "[gpu][sm_90][bwd][split][schedules]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  for (const int head_dim : kHeadDims)
    for (const bool broadcast : {false, true}) {
      INFO("head_dim " << head_dim << ", broadcast " << broadcast);
      AttentionProblem problem = broadcast ? problem_of({130}, {300, 129, 0, 150}, 1, head_dim)
                                           : problem_of({130, 5, 1, 200}, {300, 129, 0, 150}, 1, head_dim);
      problem.broadcast_q = broadcast;
      problem.causal = head_dim == 96;
      const BackwardInputs inputs = split(problem);
      const BackwardOutputs want = check_backward(inputs);
      for (const std::string& name : schedules(3)) {
        INFO("schedule " << name);
        const Schedule schedule(name);
        same_bits(run_backward(inputs), want);
      }
    }
}

// The lane that elect.sync takes waits for the store of dQ; whoever hands Q back, whose memory it went
// through, must know of that wait.
TEST_CASE("split backward: no hazard where elect.sync takes another lane than the first",
          "[gpu][sm_90][bwd][split][hazard]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  const BackwardInputs inputs =
      split(problem_of({140, 140}, {140, 200}, 2, 128), R"({"method": "split", "max_ctas": 1})");
  const Schedule schedule("split:1");
  const Checked checked;
  check_gradient_bounds(inputs, run_backward(inputs));
}
