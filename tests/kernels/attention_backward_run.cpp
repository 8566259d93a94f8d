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

JaggedShape shape_q(const AttentionProblem& p) { return {p.offsets_q, p.heads_q, p.head_dim}; }
JaggedShape shape_k(const AttentionProblem& p) { return {p.offsets_k, p.heads_kv, p.head_dim}; }
// Of O and dO.
JaggedShape shape_o(const AttentionProblem& p) {
  JaggedShape shape{{0}, p.heads_q, p.head_dim};
  for (int b = 0; b < p.batch; ++b) shape.offsets.push_back(shape.offsets.back() + p.len_q(b));
  return shape;
}

// Of V and dO as the backward is given them.
std::vector<double> given_v(const BackwardInputs& inputs) {
  return inputs.forward.mxfp8 ? dequantize(inputs.mx_v) : inputs.forward.v;
}
std::vector<double> given_d_o(const BackwardInputs& inputs) {
  return inputs.forward.mxfp8 ? dequantize(inputs.mx_d_o) : as_double(inputs.d_o);
}

BackwardOptions numerics_of(const BackwardInputs& inputs) {
  std::optional<int> dq_fp16;
  if (inputs.options.dq_accumulate == MXFA_DQ_FP16) dq_fp16 = inputs.options.dq_scale_log2;
  if (inputs.forward.mxfp8) return hopper_mxfp8_backward_numerics(inputs.forward.square, dq_fp16);
  return hopper_backward_numerics(dq_fp16);
}

}  // namespace

BackwardInputs make_backward(const AttentionProblem& problem, DataDistribution distribution, double std,
                             uint64_t seed) {
  BackwardInputs inputs;
  inputs.forward = make_inputs(problem, /*mxfp8=*/false, distribution, std, seed);
  inputs.d_o = random_tensor(distribution, std, seed, Operand::kOutputGradient, problem.rows_o(),
                             problem.heads_q, problem.head_dim);
  update_backward(inputs);
  return inputs;
}

BackwardInputs make_mx_backward(const AttentionProblem& problem, bool square, DataDistribution distribution,
                                double std, uint64_t seed) {
  BackwardInputs inputs = make_backward(problem, distribution, std, seed);
  inputs.forward.mxfp8 = true;
  inputs.forward.square = square;
  update_backward(inputs);
  return inputs;
}

void update_backward(BackwardInputs& inputs) {
  AttentionInputs& in = inputs.forward;
  update_inputs(in);
  if (!in.mxfp8) return;
  const BlockLayout layout = in.square ? BlockLayout::kSquare : BlockLayout::kAlongD;
  inputs.mx_v = quantize_bf16(in.bf16_v, shape_k(in.problem), layout, in.scaling);
  inputs.mx_d_o = quantize_bf16(inputs.d_o, shape_o(in.problem), layout, in.scaling);
}

BackwardOutputs run_backward(const BackwardInputs& inputs, const BackwardLaunch& launch) {
  Device& device = Device::instance();
  const AttentionInputs& in = inputs.forward;
  const AttentionProblem& p = in.problem;
  mxfa_attention attention = describe_attention(in);
  const Plan plan = device.context().attention_backward(attention, inputs.options);
  Buffer workspace(plan.workspace(), launch.workspace_fill);
  plan.prepare(workspace.data(), device.stream());

  const int64_t element = in.mxfp8 ? 1 : 2;
  const int64_t row_q = int64_t{p.heads_q} * p.head_dim, row_k = int64_t{p.heads_kv} * p.head_dim;
  const auto tensor = [&](int64_t row_bytes, int64_t rows) {
    return DeviceTensor(row_bytes, rows, launch.row_padding_bytes, launch.tail_rows);
  };
  DeviceTensor q = tensor(row_q * element, p.rows_q()), k = tensor(row_k * element, p.rows_k()),
               v = tensor(row_k * element, p.rows_k()), o = tensor(row_q * 2, p.rows_o()),
               v_along_d = tensor(in.mxfp8 ? row_k : 0, in.mxfp8 ? p.rows_k() : 0),
               d_o(row_q * element, p.rows_o(), launch.row_padding_bytes + launch.d_o_padding_bytes,
                   launch.tail_rows),
               dq = tensor(row_q * 2, p.rows_q()), dk = tensor(row_k * 2, p.rows_k()),
               dv = tensor(row_k * 2, p.rows_k());
  std::unique_ptr<Buffer> scales_q, scales_k, scales_v, scales_v_along_d, scales_d_o;
  if (in.mxfp8) {
    q.upload(in.mx_q.payload);
    k.upload(in.mx_k.payload);
    v.upload(in.mx_v.payload);
    v_along_d.upload(inputs.mx_v.payload);
    d_o.upload(inputs.mx_d_o.payload);
    const auto along_d = [&](const QuantizedTensor& quantized, const JaggedShape& shape) {
      return upload_scales(quantized.scales_d, Orientation::kAlongD, shape, launch.scale_padding);
    };
    scales_q = along_d(in.mx_q, shape_q(p));
    scales_k = along_d(in.mx_k, shape_k(p));
    scales_v =
        upload_scales(in.mx_v.scales_tokens, Orientation::kAlongTokens, shape_k(p), launch.scale_padding);
    scales_v_along_d = along_d(inputs.mx_v, shape_k(p));
    scales_d_o = along_d(inputs.mx_d_o, shape_o(p));
  } else {
    q.upload(in.bf16_q);
    k.upload(in.bf16_k);
    v.upload(in.bf16_v);
    d_o.upload(inputs.d_o);
  }
  const auto operand = [&](DeviceTensor& of, const std::unique_ptr<Buffer>& scales, int32_t orientation) {
    mxfa_tensor given = of.tensor(element);
    if (scales) given.scales = {scales->data(), scales->size(), orientation};
    return given;
  };
  Buffer lse(p.rows_o() * p.heads_q * sizeof(float));

  // Those of the struct are the backward's.
  attention.kernel = inputs.forward_kernel.empty() ? nullptr : inputs.forward_kernel.c_str();
  const Plan forward = device.context().attention_forward(attention);
  const auto forward_workspace = prepared_workspace(forward);
  mxfa_attention_forward_args forward_args{};
  forward_args.size = sizeof forward_args;
  forward_args.q = operand(q, scales_q, MXFA_SCALE_ALONG_D);
  forward_args.k = operand(k, scales_k, MXFA_SCALE_ALONG_D);
  forward_args.v = operand(v, scales_v, MXFA_SCALE_ALONG_TOKENS);
  forward_args.o = o.tensor(2);
  forward_args.lse = static_cast<float*>(lse.data());
  forward_args.workspace = forward_workspace->data();
  forward(forward_args, device.stream());

  if (launch.given) {
    device.synchronize();
    o.buffer.upload(std::span<const uint16_t>(launch.given->o).first(launch.given_rows * row_q));
    lse.upload(std::span<const float>(launch.given->lse).first(launch.given_rows));
  }
  mxfa_attention_backward_args args{};
  args.size = sizeof args;
  args.q = forward_args.q, args.k = forward_args.k;
  args.v = in.mxfp8 ? operand(v_along_d, scales_v_along_d, MXFA_SCALE_ALONG_D) : forward_args.v;
  args.o = o.tensor(2), args.d_o = operand(d_o, scales_d_o, MXFA_SCALE_ALONG_D);
  args.lse = static_cast<const float*>(lse.data());
  args.dq = dq.tensor(2), args.dk = dk.tensor(2), args.dv = dv.tensor(2);
  if (launch.row_stride != 0)
    args.o.row_stride = args.d_o.row_stride = args.dq.row_stride = launch.row_stride;
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
  const Gradients want = attention_backward(in.problem, in.q, in.k, given_v(inputs), given_d_o(inputs),
                                            as_double(outputs.o), lse, numerics_of(inputs));
  if (const auto wrong = first_gradient_outside_bound(in.problem, decoded(outputs), want)) FAIL_CHECK(*wrong);
}

BackwardOutputs check_backward(const BackwardInputs& inputs, const BackwardLaunch& launch) {
  BackwardOutputs outputs = run_backward(inputs, launch);
  check_gradient_bounds(inputs, outputs);
  const AttentionInputs& in = inputs.forward;
  const Gradients exact = attention_backward(in.problem, in.q, in.k, given_v(inputs), given_d_o(inputs));
  const Deviation distance = gradient_deviation(decoded(outputs), exact);
  INFO("against the exact gradients: " << distance.sqnr_db << " dB");
  CHECK(distance.not_finite == 0);
  CHECK(distance.sqnr_db >= (in.mxfp8 ? kMxfp8BackwardMinSqnrDb : kBf16BackwardMinSqnrDb));
  return outputs;
}

}  // namespace mxfa::test
