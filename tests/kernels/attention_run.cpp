// Buffers, launch and comparison of the attention forward kernels.
#include "kernels/attention_run.hpp"

#include <algorithm>
#include <cmath>

#include "reference/compare.hpp"
#include "reference/formats.hpp"
#include "support/catch.hpp"
#include "support/lengths.hpp"

namespace mxfa::test {
namespace {

using namespace reference;

JaggedShape shape_q(const AttentionProblem& p) { return {p.offsets_q, p.heads_q, p.head_dim}; }
JaggedShape shape_k(const AttentionProblem& p) { return {p.offsets_k, p.heads_kv, p.head_dim}; }

}  // namespace

std::unique_ptr<Buffer> upload_scales(std::vector<uint8_t> scales, Orientation orientation,
                                      const JaggedShape& shape, uint8_t padding) {
  fill_scale_padding(scales, orientation, shape, padding);
  auto buffer = std::make_unique<Buffer>(scales.size());
  buffer->upload(std::span<const uint8_t>(scales));
  return buffer;
}

AttentionProblem problem_of(const std::vector<int32_t>& lengths_q, const std::vector<int32_t>& lengths_k,
                            int heads, int head_dim) {
  AttentionProblem p;
  p.batch = static_cast<int>(lengths_k.size());
  p.heads_q = p.heads_kv = heads;
  p.head_dim = head_dim;
  p.offsets_q = offsets_of(lengths_q);
  p.offsets_k = offsets_of(lengths_k);
  p.scale = 1 / std::sqrt(head_dim);
  return p;
}

AttentionInputs make_inputs(const AttentionProblem& p, bool mxfp8, DataDistribution distribution, double std,
                            uint64_t seed) {
  AttentionInputs in;
  in.problem = p;
  in.mxfp8 = mxfp8;
  in.bf16_q = random_tensor(distribution, std, seed, Operand::kQ, p.rows_q(), p.heads_q, p.head_dim);
  in.bf16_k = random_tensor(distribution, std, seed, Operand::kK, p.rows_k(), p.heads_kv, p.head_dim);
  in.bf16_v = random_tensor(distribution, std, seed, Operand::kV, p.rows_k(), p.heads_kv, p.head_dim);
  update_inputs(in);
  return in;
}

void update_inputs(AttentionInputs& in) {
  if (!in.mxfp8) {
    in.q = bf16_to_double(std::span<const uint16_t>(in.bf16_q));
    in.k = bf16_to_double(std::span<const uint16_t>(in.bf16_k));
    in.v = bf16_to_double(std::span<const uint16_t>(in.bf16_v));
    return;
  }
  const AttentionProblem& p = in.problem;
  const auto layout = [&](BlockLayout line) { return in.square ? BlockLayout::kSquare : line; };
  in.mx_q = quantize_bf16(in.bf16_q, shape_q(p), layout(BlockLayout::kAlongD), in.scaling);
  in.mx_k = quantize_bf16(in.bf16_k, shape_k(p), layout(BlockLayout::kAlongD), in.scaling);
  in.mx_v = quantize_bf16(in.bf16_v, shape_k(p), layout(BlockLayout::kAlongTokens), in.scaling);
  in.q = dequantize(in.mx_q);
  in.k = dequantize(in.mx_k);
  in.v = dequantize(in.mx_v);
}

// By bits: -0 differs from +0, and a NaN equals itself.
bool AttentionOutputs::operator==(const AttentionOutputs& other) const {
  return o == other.o && lse.size() == other.lse.size() &&
         std::memcmp(lse.data(), other.lse.data(), lse.size() * sizeof(float)) == 0;
}

mxfa_attention describe_attention(const AttentionInputs& in) {
  const AttentionProblem& p = in.problem;
  mxfa_attention attention;
  mxfa_attention_defaults(&attention, sizeof attention);
  attention.dtype = in.mxfp8 ? MXFA_MXFP8 : MXFA_BF16;
  attention.head_dim = p.head_dim;
  attention.heads_q = p.heads_q;
  attention.heads_kv = p.heads_kv;
  attention.batch = p.batch;
  attention.offsets_q = p.offsets_q.data();
  attention.offsets_k = p.offsets_k.data();
  attention.broadcast_q = p.broadcast_q;
  attention.causal = p.causal;
  attention.window_left = p.window_left;
  attention.window_right = p.window_right;
  attention.scale = static_cast<float>(p.scale);
  attention.p_scale = in.dynamic_p ? MXFA_P_DYNAMIC : MXFA_P_CONSTANT;
  attention.block = in.square ? MXFA_BLOCK_32X32 : MXFA_BLOCK_1X32;
  attention.scaling_mode = in.scaling == ScalingMode::kFloor ? MXFA_FLOOR : MXFA_RCEIL;
  if (!in.kernel.empty()) attention.kernel = in.kernel.c_str();
  return attention;
}

AttentionOutputs run_attention(const AttentionInputs& in, const LaunchOptions& options) {
  Device& device = Device::instance();
  const AttentionProblem& p = in.problem;
  const Plan plan = device.context().attention_forward(describe_attention(in));
  const auto workspace = prepared_workspace(plan);

  const int64_t element = in.mxfp8 ? 1 : 2;
  const int64_t row_q = int64_t{p.heads_q} * p.head_dim, row_k = int64_t{p.heads_kv} * p.head_dim;
  const auto tensor = [&](int64_t row_bytes, int64_t rows) {
    return DeviceTensor(row_bytes, rows, options.row_padding_bytes, options.tail_rows);
  };
  DeviceTensor q = tensor(row_q * element, p.rows_q()), k = tensor(row_k * element, p.rows_k()),
               v = tensor(row_k * element, p.rows_k()), o = tensor(row_q * 2, p.rows_o());
  Buffer lse(options.store_lse ? p.rows_o() * p.heads_q * sizeof(float) : 0);

  mxfa_attention_forward_args args{};
  args.size = sizeof args;
  std::unique_ptr<Buffer> scales_q, scales_k, scales_v;
  if (in.mxfp8) {
    q.upload(in.mx_q.payload);
    k.upload(in.mx_k.payload);
    v.upload(in.mx_v.payload);
    scales_q = upload_scales(in.mx_q.scales_d, Orientation::kAlongD, shape_q(p), options.scale_padding);
    scales_k = upload_scales(in.mx_k.scales_d, Orientation::kAlongD, shape_k(p), options.scale_padding);
    scales_v =
        upload_scales(in.mx_v.scales_tokens, Orientation::kAlongTokens, shape_k(p), options.scale_padding);
  } else {
    q.upload(in.bf16_q);
    k.upload(in.bf16_k);
    v.upload(in.bf16_v);
  }
  args.q = q.tensor(element);
  args.k = k.tensor(element);
  args.v = v.tensor(element);
  args.o = o.tensor(2);
  if (in.mxfp8) {
    args.q.scales = {scales_q->data(), scales_q->size(), MXFA_SCALE_ALONG_D};
    args.k.scales = {scales_k->data(), scales_k->size(), MXFA_SCALE_ALONG_D};
    args.v.scales = {scales_v->data(), scales_v->size(), MXFA_SCALE_ALONG_TOKENS};
  }
  args.lse = options.store_lse ? static_cast<float*>(lse.data()) : nullptr;
  args.workspace = workspace->data();
  plan(args, device.stream());
  device.synchronize();
  return {o.download(), lse.download<float>()};
}

void check_kernel_rounding(const AttentionInputs& in, const AttentionOutputs& outputs) {
  const bool hopper = Device::instance().arch() == "sm_90a";
  AttentionOptions numerics =
      hopper ? hopper_kernel_numerics(in.mxfp8, in.dynamic_p) : kernel_numerics(in.mxfp8, in.dynamic_p);
  if (!hopper) numerics.row_maximum = in.row_maximum;
  if (in.exp2_error > 0) numerics.exp2_error = in.exp2_error;
  const AttentionResult want = attention_forward(in.problem, in.q, in.k, in.v, numerics);
  const auto got = bf16_to_double(std::span<const uint16_t>(outputs.o));
  const AttentionDeviation distance = attention_deviation(in.problem, got, want.o);
  INFO("against the reference with the kernel's rounding of P: "
       << distance.overall.sqnr_db << " dB, worst tile " << distance.worst_sqnr_db << " dB at "
       << to_string(distance.worst_tile));
  if (const auto mismatch = first_outside_bound(in.problem, got, want)) FAIL_CHECK(to_string(*mismatch));
  if (outputs.lse.empty()) return;
  if (const auto mismatch = first_lse_outside_bound(in.problem, outputs.lse, want))
    FAIL_CHECK("LSE: " << to_string(*mismatch));
}

void check_exact(const AttentionInputs& in, const AttentionOutputs& outputs) {
  const AttentionResult want = attention_forward(in.problem, in.q, in.k, in.v);
  const auto got = bf16_to_double(std::span<const uint16_t>(outputs.o));
  const Deviation distance = deviation(got, want.o);
  CHECK(distance.not_finite == 0);
  if (in.mxfp8) {
    CHECK(distance.relative_l2 <= kMxfp8ForwardMaxRelativeL2);
    CHECK(distance.cosine >= kMxfp8ForwardMinCosine);
  } else {
    CHECK(distance.max_abs <= bf16_forward_tolerance(in.problem, in.q, in.k, in.v, want));
    CHECK(distance.sqnr_db >= kBf16ForwardMinSqnrDb);
  }
  if (outputs.lse.empty()) return;
  if (const auto mismatch = first_lse_outside_tolerance(in.problem, outputs.lse, want.lse))
    FAIL_CHECK("LSE: " << to_string(*mismatch));
}

void check_format_accuracy(const AttentionInputs& in, const AttentionOutputs& outputs) {
  const auto exact = [](const std::vector<uint16_t>& bits) {
    return bf16_to_double(std::span<const uint16_t>(bits));
  };
  const AttentionResult want =
      attention_forward(in.problem, exact(in.bf16_q), exact(in.bf16_k), exact(in.bf16_v));
  const Deviation distance = deviation(exact(outputs.o), want.o);
  CHECK(distance.sqnr_db >= kMxfp8ForwardMinSqnrDb);
  CHECK(distance.cosine >= kMxfp8ForwardMinCosine);
}

}  // namespace mxfa::test
