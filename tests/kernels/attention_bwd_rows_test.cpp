// Query rows that attention_bwd_sm90 prepares itself, ahead of its tiles of keys, and dQ that it finishes
// behind them: against the plan of more CTAs than tiles of keys, in which other kernels do all of it.
#include <nlohmann/json.hpp>

#include "kernels/attention_lengths_run.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;
using namespace mxfa::reference;

namespace {

// Two CTAs have several tiles of keys each.  Sequence 1 has no keys, 4 no queries; ends of steps of 64, 80
// and 128 rows and of units of 8.
const std::vector<int32_t> kLengthsQ{170, 20, 81, 260, 0, 7};
const std::vector<int32_t> kLengthsK{170, 0, 300, 260, 40, 140};
constexpr char kShared[] = R"("method": "one_kernel", "max_ctas": 2)", kApart[] = R"("method": "one_kernel")";
constexpr char kSteps80[] = R"("tile_m": 80, "kv_stages": 1, "direct_chunks": 0, "dv_before_ds": 1)";

std::string config(const std::string& method, const std::string& steps) {
  return "{" + method + (steps.empty() ? "" : ", ") + steps + "}";
}

nlohmann::json describe(const BackwardInputs& inputs) {
  mxfa_attention attention = describe_attention(inputs.forward);
  return nlohmann::json::parse(
      Device::instance().context().attention_backward(attention, inputs.options).describe());
}
int prepared_before(const BackwardInputs& inputs) {
  const auto description = describe(inputs);
  for (const auto& other : description["other_kernels"])
    if (other["kernel"] == "attention_bwd_prepare") return other["grid"].get<int>();
  return 0;
}

// dQ is left out: it is added to in the order in which tiles finish.
bool same_bits(const BackwardOutputs& a, const BackwardOutputs& b) { return a.dk == b.dk && a.dv == b.dv; }

// For a list of tiles of keys whose order does not depend on the number of CTAs: a tile starts its walk by
// its place in the list.
void check_shared(BackwardInputs inputs, const std::string& steps = "") {
  inputs.forward.kernel = config(kApart, steps);
  const int all = prepared_before(inputs);
  const BackwardOutputs apart = run_backward(inputs);
  inputs.forward.kernel = config(kShared, steps);
  CHECK(prepared_before(inputs) < all);
  // The second launch finds the counters and accumulators of the first.
  for (const int launches : {1, 2}) {
    const BackwardOutputs shared = check_backward(inputs, {.launches = launches});
    CHECK(same_bits(shared, apart));
  }
}

}  // namespace

TEST_CASE("sm_90a backward: rows that the main kernel prepares are those that others prepare",
          "[gpu][sm_90][bwd][ahead]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  for (const int head_dim : {64, 96, 128})
    for (const bool causal : {false, true}) {
      INFO("head_dim " << head_dim << ", causal " << causal);
      AttentionProblem problem = problem_of(kLengthsQ, kLengthsK, 4, head_dim);
      problem.heads_kv = 2;
      problem.causal = causal;
      check_shared(make_backward(problem));
      if (head_dim != 64) check_shared(make_backward(problem), kSteps80);
    }
}

TEST_CASE(
    "sm_90a backward: dQ in FP16, of broadcast queries and of MXFP8 over rows that the main kernel prepares",
    "[gpu][sm_90][bwd][fp16][mxfp8][ahead]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  for (const int head_dim : {64, 96, 128}) {
    INFO("head_dim " << head_dim);
    const AttentionProblem problem = problem_of(kLengthsQ, kLengthsK, 2, head_dim);
    const std::vector<std::string> steps =
        head_dim == 64 ? std::vector<std::string>{""} : std::vector<std::string>{"", kSteps80};
    for (const std::string& with : steps) {
      INFO("steps " << with);
      BackwardInputs fp16 = make_backward(problem);
      fp16.options.dq_accumulate = MXFA_DQ_FP16;
      fp16.options.dq_scale_log2 = 6;
      check_shared(fp16, with);
      AttentionProblem broadcast = problem_of({170}, {256, 0, 128, 384}, 2, head_dim);
      broadcast.broadcast_q = true;
      check_shared(make_backward(broadcast), with);
    }
    check_shared(make_mx_backward(problem, head_dim == 64));
  }
}

TEST_CASE("sm_90a backward: rows prepared and finished beside the tiles of keys, under every schedule",
          "[gpu][sm_90][bwd][schedules][ahead]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  BackwardInputs inputs = make_backward(problem_of(kLengthsQ, kLengthsK, 1, 128));
  inputs.forward.kernel = config(kShared, kSteps80);
  const BackwardOutputs want = run_backward(inputs);
  for (const std::string& name : schedules(5)) {
    INFO("schedule " << name);
    const Schedule schedule(name);
    const BackwardOutputs outputs = run_backward(inputs);
    CHECK(same_bits(outputs, want));
    check_gradient_bounds(inputs, outputs);
  }
}

// With a stride of more than 32 bits other kernels prepare all rows (are_short), also those that tiles of
// keys are marked to wait for.  One row needs no memory for such a stride; that it is seen, runtime tests
// show.
TEST_CASE("sm_90a backward: no tile of keys waits for rows where other kernels prepare all",
          "[gpu][sm_90][bwd][ahead]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  for (const std::string& steps : {std::string(), std::string(kSteps80)}) {
    INFO("steps " << steps);
    BackwardInputs inputs = make_backward(problem_of({1}, {640}, 4, 128));
    inputs.forward.kernel = config(kShared, steps);
    BackwardLaunch far;
    far.row_stride = int64_t{1} << 32;
    const BackwardOutputs want = check_backward(inputs), outputs = check_backward(inputs, far);
    CHECK(same_bits(outputs, want));
  }
}

TEST_CASE("sm_90a backward: the main kernel prepares rows where its CTAs have tiles of keys to come",
          "[gpu][sm_90][bwd][ahead]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  const auto prepared = [](const std::string& kernel, int heads, bool deterministic) {
    BackwardInputs inputs = make_backward(problem_of({640}, {256}, heads, 128));
    inputs.options.deterministic = deterministic;
    inputs.forward.kernel = kernel;
    return prepared_before(inputs);
  };
  // 80 rows a step, 8 steps a head, two tiles of keys a head.
  CHECK(prepared(config(kShared, ""), 4, false) == 8);
  CHECK(prepared(config(kShared, ""), 1, false) == 8);  // no more tiles of keys than CTAs
  CHECK(prepared(config(kApart, ""), 4, false) == 4 * 8);
  // 64 rows a step.
  CHECK(prepared(config(kShared, ""), 4, true) == 4 * 10);
  CHECK(prepared(R"({"method": "split", "max_ctas": 2})", 4, false) == 4 * 10);
}

TEST_CASE("sm_90a backward: the main kernel prepares no rows of lengths in device memory",
          "[gpu][sm_90][bwd][ahead][lengths]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  BackwardInputs inputs = make_backward(problem_of({8}, {8}, 4, 128));
  inputs.forward.kernel = config(kShared, "");
  const CapacityBackward launches(inputs, kCapacity);
  const auto description = nlohmann::json::parse(launches.plan().describe());
  for (const auto& part : description["options"]["workspace"]) CHECK(part["part"] != "progress");
}
