// Races show on a GPU as bits that change from launch to launch.
#include "kernels/attention_backward_run.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;
using namespace mxfa::reference;

namespace {

// Under a causal mask tiles differ in length, so that CTAs, warpgroups and stages meet in ever new ways. The
// CPU driver looks for races itself: it is given little.
AttentionProblem causal_problem(int head_dim) {
  AttentionProblem problem =
      launches(200) == 200 ? problem_of({2900, 1, 700, 129, 1500}, {3000, 65, 700, 129, 1400}, 4, head_dim)
                           : problem_of({130, 0, 65}, {130, 9, 65}, 2, head_dim);
  problem.causal = true;
  return problem;
}

void check_gradients(const BackwardInputs& inputs, bool dq_too) {
  BackwardLaunch repeated;
  repeated.launches = launches(200);
  const BackwardOutputs first = run_backward(inputs), last = run_backward(inputs, repeated);
  CHECK(last.dk == first.dk);
  CHECK(last.dv == first.dv);
  if (dq_too) CHECK(last.dq == first.dq);
}

}  // namespace

TEST_CASE("sm_90a: 200 launches of a backward on a GPU, the same bits", "[gpu][sm_90][bwd][repeat]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  for (const int head_dim : {64, 96, 128}) {
    const AttentionProblem problem = causal_problem(head_dim);
    for (const std::string method : {"one_kernel", "split"})
      for (const bool deterministic : {false, true}) {
        INFO("head_dim " << head_dim << ", " << method << (deterministic ? ", deterministic" : ""));
        BackwardInputs inputs = make_backward(problem);
        inputs.options.deterministic = deterministic;
        inputs.forward.kernel = R"({"method": ")" + method + R"("})";
        check_gradients(inputs, deterministic || method == "split");
      }
    for (const bool square : {false, true}) {
      INFO("head_dim " << head_dim << ", MXFP8 " << (square ? "32x32" : "1x32"));
      check_gradients(make_mx_backward(problem, square), false);
    }
  }
}
