#include "kernels/attention_backward_run.hpp"

#include <cmath>

#include "reference/formats.hpp"
#include "support/catch.hpp"

namespace mxfa::test {
namespace {

using namespace reference;

std::vector<double> as_double(const std::vector<uint16_t>& bits) {
  return bf16_to_double(std::span<const uint16_t>(bits));
}

BackwardOptions numerics_of(const BackwardInputs& inputs) {
  std::optional<int> dq_fp16;
  if (inputs.options.dq_accumulate == MXFA_DQ_FP16) dq_fp16 = inputs.options.dq_scale_log2;
  // What the plan chooses is for the tests that ask for it to say.
  const bool split = inputs.forward.kernel.find("split") != std::string::npos;
  return hopper_backward_numerics(inputs.forward.problem.head_dim, dq_fp16, split);
}

}  // namespace

BackwardInputs make_backward(const AttentionProblem& problem, DataDistribution distribution, double std,
                             uint64_t seed) {
  BackwardInputs inputs;
  inputs.forward = make_inputs(problem, /*mxfp8=*/false, distribution, std, seed);
  inputs.d_o = random_tensor(distribution, std, seed, Operand::kOutputGradient, problem.rows_o(),
                             problem.heads_q, problem.head_dim);
  return inputs;
}

BackwardOutputs run_backward(const BackwardInputs& inputs, const BackwardLaunch& launch) {
  Device& device = Device::instance();
  const AttentionInputs& in = inputs.forward;
  const AttentionProblem& p = in.problem;
  mxfa_attention attention = describe_attention(in);
  const Plan plan = device.context().attention_backward(attention, inputs.options);
  Buffer workspace(plan.workspace(), launch.workspace_fill);
  plan.prepare(workspace.data(), device.stream());

  const int64_t row_q = int64_t{p.heads_q} * p.head_dim * 2, row_k = int64_t{p.heads_kv} * p.head_dim * 2;
  const auto tensor = [&](int64_t row_bytes, int64_t rows) {
    return DeviceTensor(row_bytes, rows, launch.row_padding_bytes, launch.tail_rows);
  };
  DeviceTensor q = tensor(row_q, p.rows_q()), k = tensor(row_k, p.rows_k()), v = tensor(row_k, p.rows_k()),
               o = tensor(row_q, p.rows_o()),
               d_o(row_q, p.rows_o(), launch.row_padding_bytes + launch.d_o_padding_bytes, launch.tail_rows),
               dq = tensor(row_q, p.rows_q()), dk = tensor(row_k, p.rows_k()), dv = tensor(row_k, p.rows_k());
  q.upload(in.bf16_q);
  k.upload(in.bf16_k);
  v.upload(in.bf16_v);
  d_o.upload(inputs.d_o);
  Buffer lse(p.rows_o() * p.heads_q * sizeof(float));

  attention.kernel = nullptr;  // overrides are the backward's
  const Plan forward = device.context().attention_forward(attention);
  const auto forward_workspace = prepared_workspace(forward);
  mxfa_attention_forward_args forward_args{};
  forward_args.size = sizeof forward_args;
  forward_args.q = q.tensor(2), forward_args.k = k.tensor(2), forward_args.v = v.tensor(2);
  forward_args.o = o.tensor(2);
  forward_args.lse = static_cast<float*>(lse.data());
  forward_args.workspace = forward_workspace->data();
  forward(forward_args, device.stream());

  mxfa_attention_backward_args args{};
  args.size = sizeof args;
  args.q = q.tensor(2), args.k = k.tensor(2), args.v = v.tensor(2);
  args.o = o.tensor(2), args.d_o = d_o.tensor(2);
  args.lse = static_cast<const float*>(lse.data());
  args.dq = dq.tensor(2), args.dk = dk.tensor(2), args.dv = dv.tensor(2);
  args.workspace = workspace.data();
  for (int i = 0; i < launch.launches; ++i) plan(args, device.stream());
  device.synchronize();
  return {o.download(), lse.download<float>(), dq.download(), dk.download(), dv.download()};
}

GradientValues decoded(const BackwardOutputs& outputs) {
  return {as_double(outputs.dq), as_double(outputs.dk), as_double(outputs.dv)};
}

void check_gradient_bounds(const BackwardInputs& inputs, const BackwardOutputs& outputs) {
  const AttentionInputs& in = inputs.forward;
  const std::vector<double> lse(outputs.lse.begin(), outputs.lse.end());
  const Gradients want = attention_backward(in.problem, in.q, in.k, in.v, as_double(inputs.d_o),
                                            as_double(outputs.o), lse, numerics_of(inputs));
  if (const auto wrong = first_gradient_outside_bound(in.problem, decoded(outputs), want)) FAIL_CHECK(*wrong);
}

BackwardOutputs check_backward(const BackwardInputs& inputs, const BackwardLaunch& launch) {
  BackwardOutputs outputs = run_backward(inputs, launch);
  check_gradient_bounds(inputs, outputs);
  const AttentionInputs& in = inputs.forward;
  const Gradients exact = attention_backward(in.problem, in.q, in.k, in.v, as_double(inputs.d_o));
  const Deviation distance = gradient_deviation(decoded(outputs), exact);
  INFO("against the exact gradients: " << distance.sqnr_db << " dB");
  CHECK(distance.not_finite == 0);
  CHECK(distance.sqnr_db >= kBf16BackwardMinSqnrDb);
  return outputs;
}

}  // namespace mxfa::test
