// Cases from public bug reports about gradients, each named after its id.
#include <cmath>
#include <nlohmann/json.hpp>

#include "kernels/attention_backward_run.hpp"
#include "reference/formats.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;
using namespace mxfa::reference;

namespace {

std::vector<double> decode(const std::vector<uint16_t>& bits) {
  return bf16_to_double(std::span<const uint16_t>(bits));
}

bool all_zero(const std::vector<uint16_t>& tensor, int64_t first = 0, int64_t count = -1) {
  const auto begin = tensor.begin() + first;
  return std::all_of(begin, count < 0 ? tensor.end() : begin + count, [](uint16_t x) { return x == 0; });
}

double relative_l2(const std::vector<double>& got, const std::vector<double>& want) {
  return deviation(got, want).relative_l2;
}

}  // namespace

TEST_CASE("bwd-zero-q: sequences with keys but no queries have dK = dV = +0", "[gpu][sm_90][bwd][cases]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  AttentionProblem problem = problem_of({0, 120, 84, 0}, {253, 174, 84, 307}, 4, 128);
  problem.heads_kv = 1;
  const BackwardOutputs outputs = check_backward(make_backward(problem));
  for (const auto* tensor : {&outputs.dk, &outputs.dv}) {
    CHECK(all_zero(*tensor, 0, 253 * 128));
    CHECK(all_zero(*tensor, 511 * 128, 307 * 128));
  }
}

TEST_CASE("bwd-dead-rows-one-key: causal, one key, many dead queries, dO of ones",
          "[gpu][sm_90][bwd][cases]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  AttentionProblem problem = problem_of({76, 34, 146}, {1, 1, 1}, 1, 64);
  problem.causal = true;
  BackwardInputs inputs = make_backward(problem, DataDistribution::kNormal, 3.0);
  std::fill(inputs.d_o.begin(), inputs.d_o.end(), bf16_from_double(1.0));
  const BackwardOutputs outputs = run_backward(inputs);
  check_gradient_bounds(inputs, outputs);
  const std::vector<double> dq = decode(outputs.dq), dk = decode(outputs.dk), dv = decode(outputs.dv);
  for (int row = 0; row < 256; ++row) {
    const bool live = row == 75 || row == 109 || row == 255;
    if (!live) CHECK(all_zero(outputs.dq, row * 64, 64));
    // A softmax over one key is constant.
    for (int d = 0; d < 64; ++d) REQUIRE(std::fabs(dq[row * 64 + d]) <= 1e-2);
  }
  for (const double value : dv) REQUIRE(std::fabs(value - 1) <= 1e-2);
  for (const double value : dk) REQUIRE(std::fabs(value) <= 1e-2);
}

TEST_CASE("bwd-workspace-poison: what the workspace holds before changes no bit",
          "[gpu][sm_90][bwd][cases]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  AttentionProblem problem = problem_of({70, 5, 129}, {70, 5, 129}, 4, 128);
  problem.heads_kv = 2;
  problem.causal = true;
  const BackwardInputs inputs = make_backward(problem);
  BackwardLaunch zeros;
  zeros.workspace_fill = 0;
  const BackwardOutputs poisoned = check_backward(inputs), clean = run_backward(inputs, zeros);
  CHECK(poisoned.dk == clean.dk);
  CHECK(poisoned.dv == clean.dv);
  // Two tiles of keys add to the last rows of dQ: two addends, whose sum has one order.
  CHECK(poisoned.dq == clean.dq);
}

TEST_CASE("bwd-broadcast-q-sum: dQ is the sum over the batch", "[gpu][sm_90][bwd][cases]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  AttentionProblem problem = problem_of({64}, {0, 1, 17, 128, 300, 5}, 2, 128);
  problem.broadcast_q = true;
  const BackwardInputs inputs = make_backward(problem);
  const BackwardOutputs outputs = check_backward(inputs);
  const std::vector<double> d_o = decode(inputs.d_o);
  const int64_t width = 256;
  std::vector<double> sum(64 * width);
  for (int b = 0; b < problem.batch; ++b) {
    const AttentionProblem one = problem_of({64}, {problem.len_k(b)}, 2, 128);
    const auto rows = [&](const std::vector<double>& of, int64_t first, int64_t count) {
      return std::span(of).subspan(first * width, count * width);
    };
    const int64_t first_k = problem.offsets_k[b], len_k = problem.len_k(b);
    const Gradients part = attention_backward(one, inputs.forward.q, rows(inputs.forward.k, first_k, len_k),
                                              rows(inputs.forward.v, first_k, len_k), rows(d_o, b * 64, 64));
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += part.dq[i];
  }
  CHECK(relative_l2(decode(outputs.dq), sum) < 5e-3);  // BF16: 2.4e-3
}

TEST_CASE("bwd-deterministic-repeat: 50 launches on a GPU, the same bits", "[gpu][sm_90][bwd][cases]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  AttentionProblem problem = problem_of({300, 7, 129}, {300, 7, 129}, 4, 128);
  problem.causal = true;
  BackwardInputs inputs = make_backward(problem);
  inputs.options.deterministic = 1;
  const BackwardOutputs want = check_backward(inputs);
  BackwardLaunch repeated;
  repeated.launches = launches(50);
  const BackwardOutputs last = run_backward(inputs, repeated);
  CHECK(last.dq == want.dq);
  CHECK(last.dk == want.dk);
  CHECK(last.dv == want.dv);
}

TEST_CASE("bwd-gqa-nonsquare: head ratios 9/3, 6/2 and 8/1", "[gpu][sm_90][bwd][cases]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  for (const auto& [heads_q, heads_kv] : {std::pair{9, 3}, {6, 2}, {8, 1}}) {
    INFO(heads_q << "/" << heads_kv);
    AttentionProblem problem = problem_of({65, 30}, {40, 131}, heads_q, 128);
    problem.heads_kv = heads_kv;
    check_backward(make_backward(problem));
  }
}

// Heads further apart than head_dim cannot be expressed; a row stride of its own can.
TEST_CASE("bwd-noncontiguous-do: dO with a row stride of its own gives the same bits",
          "[gpu][sm_90][bwd][cases]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  AttentionProblem problem = problem_of({32, 32}, {32, 32}, 4, 128);
  problem.heads_kv = 1;
  const BackwardInputs inputs = make_backward(problem);
  BackwardLaunch strided;
  strided.d_o_padding_bytes = 4 * 128 * 2;
  const BackwardOutputs a = check_backward(inputs), b = run_backward(inputs, strided);
  CHECK(a.dq == b.dq);
  CHECK(a.dk == b.dk);
  CHECK(a.dv == b.dv);
}

TEST_CASE("bwd-lse-below-minus-88: LSE of -114.7 at length 192", "[gpu][sm_90][bwd][cases]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  AttentionProblem problem = problem_of({192}, {192}, 1, 64);
  problem.scale = 0.125;
  BackwardInputs inputs = make_backward(problem);
  std::fill(inputs.forward.bf16_q.begin(), inputs.forward.bf16_q.end(), bf16_from_double(3.0));
  std::fill(inputs.forward.bf16_k.begin(), inputs.forward.bf16_k.end(), bf16_from_double(-5.0));
  update_inputs(inputs.forward);
  const BackwardOutputs outputs = run_backward(inputs);
  check_gradient_bounds(inputs, outputs);
  for (const float lse : outputs.lse) REQUIRE(std::fabs(lse + 114.74250462797222) < 0.002);
  // All keys are the same, so moving Q changes no weight.
  for (const double value : decode(outputs.dq)) REQUIRE(std::fabs(value) < 0.05);
}

TEST_CASE("bwd-heavy-tail-batch2: heavy-tailed activations, batch of two, grouped heads",
          "[gpu][sm_90][bwd][cases]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  AttentionProblem problem = problem_of({64, 64}, {64, 64}, 16, 128);
  problem.heads_kv = 2;
  problem.causal = true;
  BackwardInputs inputs = make_backward(problem);
  std::vector<double> row_factor(128, 1.0);
  row_factor[17] = row_factor[100] = 20.0;  // about 1 % of the tokens
  for (auto* tensor : {&inputs.forward.bf16_q, &inputs.forward.bf16_k})
    for (size_t i = 0; i < tensor->size(); ++i) {
      const size_t channel = i % 128, row = i / (tensor->size() / 128);
      const double factor = (channel == 3 || channel == 40 || channel == 101 ? 50.0 : 1.0) * row_factor[row];
      (*tensor)[i] = bf16_from_double(bf16_to_double((*tensor)[i]) * factor);
    }
  update_inputs(inputs.forward);
  const BackwardOutputs outputs = run_backward(inputs);
  check_gradient_bounds(inputs, outputs);
  const Gradients exact =
      attention_backward(problem, inputs.forward.q, inputs.forward.k, inputs.forward.v, decode(inputs.d_o));
  CHECK(deviation(decode(outputs.dq), exact.dq).cosine >= 0.999);
  CHECK(deviation(decode(outputs.dk), exact.dk).cosine >= 0.999);
  CHECK(deviation(decode(outputs.dv), exact.dv).cosine >= 0.999);
}

TEST_CASE("bwd-2cta-repeat: broadcast queries under many schedules", "[gpu][sm_90][bwd][cases]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  AttentionProblem problem = problem_of({256}, {256, 256}, 2, 128);
  problem.broadcast_q = true;
  const BackwardInputs inputs = make_backward(problem);
  const BackwardOutputs want = check_backward(inputs);
  for (const std::string& name : schedules(4)) {
    INFO(name);
    const Schedule schedule(name);
    const BackwardOutputs outputs = run_backward(inputs);
    CHECK(outputs.dk == want.dk);
    CHECK(outputs.dv == want.dv);
    CHECK(relative_l2(decode(outputs.dq), decode(want.dq)) < 1e-2);
  }
}

TEST_CASE("bwd-workspace-bound: skewed lengths do not blow up the workspace", "[gpu][sm_90][bwd][cases]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  std::vector<int32_t> lengths(2048, 1);
  lengths.push_back(2048);
  const BackwardInputs inputs = make_backward(problem_of(lengths, lengths, 8, 128));
  const auto plan =
      Device::instance().context().attention_backward(describe_attention(inputs.forward), inputs.options);
  const uint64_t compact = 8 * 4096 * (128 + 2) * 4;
  CHECK(plan.workspace() <= 2 * compact + (64 << 20));
  const auto description = nlohmann::json::parse(plan.describe());
  uint64_t sum = 0;
  for (const auto& part : description["options"]["workspace"]) {
    CHECK_FALSE(part["formula"].get<std::string>().empty());
    sum += part["bytes"].get<uint64_t>();
  }
  CHECK(sum <= plan.workspace());
  CHECK(sum + 3 * 256 >= plan.workspace());
}

TEST_CASE("mxa-bwd-zero-do: dO of zeros gives gradients of zeros", "[gpu][sm_90][bwd][cases]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  BackwardInputs inputs = make_backward(problem_of({65, 33}, {65, 33}, 2, 128));
  std::fill(inputs.d_o.begin(), inputs.d_o.end(), uint16_t{0});
  const BackwardOutputs outputs = run_backward(inputs);
  const auto zero = [](const std::vector<double>& values) {
    return std::all_of(values.begin(), values.end(), [](double x) { return x == 0; });
  };
  CHECK(zero(decode(outputs.dq)));
  CHECK(zero(decode(outputs.dk)));
  CHECK(zero(decode(outputs.dv)));
}

TEST_CASE("mxa-bwd-tiny-do: gradients around 1e-30 keep their relative accuracy",
          "[gpu][sm_90][bwd][cases]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  const BackwardInputs whole = make_backward(problem_of({64}, {64}, 1, 128));
  BackwardInputs tiny = whole;
  const double factor = 0x1p-100;  // 8e-31: BF16 values scale without rounding
  for (uint16_t& bits : tiny.d_o) bits = bf16_from_double(bf16_to_double(bits) * factor);
  const BackwardOutputs a = run_backward(whole), b = run_backward(tiny);
  const auto scaled = [&](const std::vector<uint16_t>& bits) {
    std::vector<double> values = decode(bits);
    for (double& value : values) value *= factor;
    return values;
  };
  CHECK(relative_l2(decode(b.dq), scaled(a.dq)) < 0.06);
  CHECK(relative_l2(decode(b.dk), scaled(a.dk)) < 0.06);
  CHECK(relative_l2(decode(b.dv), scaled(a.dv)) < 0.06);
}
