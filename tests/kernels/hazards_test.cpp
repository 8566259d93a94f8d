// Our kernels under the hazard checks of the CPU driver (docs/hazards.md): no error, and the same bits as
// without. A launch with an error fails, and so does the test, with the report.
#include <cstdlib>

#include "kernels/attention_backward_run.hpp"
#include "kernels/attention_run.hpp"
#include "kernels/quantize_run.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;
using namespace mxfa::reference;

namespace {

// Rows without keys, keys without rows, one and several blocks of keys, ends of tiles and others.
const std::vector<int32_t> kQ{0, 1, 100, 130, 256}, kK{129, 0, 33, 300, 257};

void check_forward(const AttentionProblem& problem, bool mxfp8) {
  AttentionInputs inputs = make_inputs(problem, mxfp8);
  // All tiles one after the other: with one stage, with two, with none.
  if (Device::instance().arch() != "sm_90a") inputs.kernel = R"({"scheduler": "static", "max_ctas": 1})";
  const AttentionOutputs plain = run_attention(inputs);
  for (const std::string& order : schedules(1)) {
    CAPTURE(order);
    const Schedule schedule(order);
    const Checked checked;
    CHECK(run_attention(inputs) == plain);
  }
}

void check_forward(bool mxfp8) {
  for (const int head_dim : {64, 128}) {
    CAPTURE(head_dim, mxfp8);
    AttentionProblem problem = problem_of(kQ, kK, 2, head_dim);
    check_forward(problem, mxfp8);
    problem.causal = true;
    check_forward(problem, mxfp8);
  }
}

}  // namespace

TEST_CASE("attention forward on Blackwell has no hazard", "[hazard][sm_100]") {
  check_forward(false);
  check_forward(true);
}

TEST_CASE("attention forward on Hopper has no hazard", "[gpu][hazard][sm_90]") {
  const OnHopper hopper;
  if (hopper.ready()) check_forward(false);
}

TEST_CASE("attention backward on Hopper has no hazard", "[gpu][hazard][sm_90]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  AttentionProblem problem = problem_of({75, 1, 130, 0}, {170, 9, 3, 20}, 2, 128);
  problem.causal = true;
  const BackwardInputs inputs = make_backward(problem);
  const Checked checked;
  check_gradient_bounds(inputs, run_backward(inputs));
}

TEST_CASE("attention backward on Hopper by the split pair has no hazard", "[gpu][hazard][sm_90][split]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  for (const bool broadcast : {false, true}) {
    CAPTURE(broadcast);
    AttentionProblem problem = broadcast ? problem_of({75}, {170, 0, 3, 140}, 2, 128)
                                         : problem_of({75, 1, 130, 0}, {170, 9, 3, 20}, 2, 128);
    problem.broadcast_q = broadcast;
    problem.causal = true;
    BackwardInputs inputs = make_backward(problem);
    inputs.forward.kernel = R"({"method": "split"})";
    for (const std::string& order : schedules(1)) {
      CAPTURE(order);
      const Schedule schedule(order);
      const Checked checked;
      check_gradient_bounds(inputs, run_backward(inputs));
    }
  }
}

TEST_CASE("the quantiser has no hazard", "[hazard][any_arch]") {
  const Checked checked;
  const std::vector<uint16_t> x(size_t{170} * 2 * 128, 0x3fc0);
  for (const BlockLayout layout : {BlockLayout::kAlongD, BlockLayout::kAlongTokens, BlockLayout::kSquare}) {
    QuantizeOptions options;
    options.layout = layout;
    check_quantize(x, JaggedShape{{0, 33, 33, 170}, 2, 128}, options);
  }
}
