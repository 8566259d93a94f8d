#include "plan_shape.hpp"

#include <algorithm>
#include <cmath>

namespace mxfa::tools {

using reference::BlockLayout;

std::vector<QuantizeRequest> quantize_requests(const Shape& shape) {
  const bool square = shape.mxfp8.block == BlockShape::b32x32;
  if (shape.op == Op::mxfp8_quantize) {
    if (square) return {{"the tensor", shape.seqlens_q, shape.heads_q, BlockLayout::kSquare}};
    return {{"the tensor", shape.seqlens_q, shape.heads_q, BlockLayout::kAlongD},
            {"the tensor", shape.seqlens_q, shape.heads_q, BlockLayout::kAlongTokens}};
  }
  if (shape.dtype == Dtype::bf16) return {};
  // The scales of a product's operand run along the dimension that is summed: D for Q K^T and dO V^T, the
  // keys' tokens for P V.
  const BlockLayout along_d = square ? BlockLayout::kSquare : BlockLayout::kAlongD,
                    along_tokens = square ? BlockLayout::kSquare : BlockLayout::kAlongTokens;
  std::vector<QuantizeRequest> requests = {{"Q", shape.seqlens_q, shape.heads_q, along_d},
                                           {"K", shape.seqlens_k, shape.heads_kv, along_d},
                                           {"V", shape.seqlens_k, shape.heads_kv, along_tokens}};
  if (shape.op != Op::attn_bwd) return requests;
  std::vector<int32_t> lengths_o = shape.seqlens_q;
  if (shape.broadcast_q) lengths_o.assign(shape.seqlens_k.size(), shape.seqlens_q[0]);
  requests.push_back({"dO", lengths_o, shape.heads_q, along_d});
  if (!square) requests.push_back({"V", shape.seqlens_k, shape.heads_kv, along_d});
  return requests;
}

const char* name_of(BlockLayout layout) {
  switch (layout) {
    case BlockLayout::kAlongD:
      return "1x32 along D";
    case BlockLayout::kAlongTokens:
      return "1x32 along tokens";
    default:
      return "32x32";
  }
}

Plan plan_quantize(const Context& context, const Shape& shape, const QuantizeRequest& request) {
  const std::vector<int32_t> offsets = offsets_of(request.lengths);
  mxfa_quantize_desc desc{};
  desc.size = sizeof desc;
  desc.head_dim = shape.head_dim;
  desc.heads = request.heads;
  desc.batch = static_cast<int32_t>(request.lengths.size());
  desc.offsets = offsets.data();
  switch (request.layout) {
    case BlockLayout::kAlongD:
      desc.layout = MXFA_QUANTIZE_ALONG_D;
      break;
    case BlockLayout::kAlongTokens:
      desc.layout = MXFA_QUANTIZE_ALONG_TOKENS;
      break;
    case BlockLayout::kSquare:
      desc.layout = MXFA_QUANTIZE_SQUARE;
      break;
  }
  desc.scaling_mode = shape.mxfp8.scaling_mode == ScalingMode::floor ? MXFA_FLOOR : MXFA_RCEIL;
  // "kernel" of an attention shape is about the attention kernel.
  if (shape.op == Op::mxfp8_quantize && !shape.kernel.empty()) desc.kernel = shape.kernel.c_str();
  return context.quantize(desc);
}

namespace {

// The shape's problem for the library, with the offsets that it points to.
struct AttentionDescription {
  std::vector<int32_t> offsets_q, offsets_k;
  mxfa_attention attention;
};

void describe_attention(const Shape& shape, AttentionDescription& description) {
  description.offsets_q = offsets_of(shape.seqlens_q);
  description.offsets_k = offsets_of(shape.seqlens_k);
  mxfa_attention& attention = description.attention;
  mxfa_attention_defaults(&attention, sizeof attention);
  attention.dtype = shape.dtype == Dtype::mxfp8 ? MXFA_MXFP8 : MXFA_BF16;
  attention.head_dim = shape.head_dim;
  attention.heads_q = shape.heads_q;
  attention.heads_kv = shape.heads_kv;
  attention.batch = static_cast<int32_t>(shape.seqlens_k.size());
  attention.offsets_q = description.offsets_q.data();
  attention.offsets_k = description.offsets_k.data();
  if (shape.device_lengths) {
    attention.offsets_q = attention.offsets_k = nullptr;
    attention.max_total_q = description.offsets_q.back();
    attention.max_total_k = description.offsets_k.back();
    attention.max_length_q = *std::max_element(shape.seqlens_q.begin(), shape.seqlens_q.end());
    attention.max_length_k = *std::max_element(shape.seqlens_k.begin(), shape.seqlens_k.end());
  }
  attention.broadcast_q = shape.broadcast_q;
  attention.causal = shape.causal;
  attention.window_left = shape.window[0];
  attention.window_right = shape.window[1];
  attention.scale = shape.scale ? static_cast<float>(*shape.scale) : NAN;
  if (shape.scale && !std::isfinite(attention.scale)) {
    throw InputError(shape.source + ": scale: must be finite as a 32-bit float");
  }
  attention.scaling_mode = shape.mxfp8.scaling_mode == ScalingMode::floor ? MXFA_FLOOR : MXFA_RCEIL;
  attention.block = shape.mxfp8.block == BlockShape::b32x32 ? MXFA_BLOCK_32X32 : MXFA_BLOCK_1X32;
  attention.p_scale = shape.mxfp8.p_scale == PScale::dynamic ? MXFA_P_DYNAMIC : MXFA_P_CONSTANT;
}

const char* kernel_overrides(const Shape& shape) {
  return shape.kernel.empty() ? nullptr : shape.kernel.c_str();
}

}  // namespace

Plan plan_attention(const Context& context, const Shape& shape) {
  AttentionDescription description;
  describe_attention(shape, description);
  // "kernel" of a backward shape is about the backward's main kernel.
  if (shape.op == Op::attn_fwd) description.attention.kernel = kernel_overrides(shape);
  return context.attention_forward(description.attention);
}

Plan plan_attention_backward(const Context& context, const Shape& shape) {
  AttentionDescription description;
  describe_attention(shape, description);
  description.attention.kernel = kernel_overrides(shape);
  const ShapeBackward& backward = shape.backward;
  mxfa_attention_backward_options options{};
  options.size = sizeof options;
  options.dq_accumulate = backward.dq_accumulate == DqAccumulate::fp16 ? MXFA_DQ_FP16 : MXFA_DQ_FP32;
  options.dq_scale_log2 = backward.dq_scale_log2;
  options.deterministic = backward.deterministic;
  options.dkv_output = backward.dkv_output == Dtype::mxfp8 ? MXFA_MXFP8 : MXFA_BF16;
  return context.attention_backward(description.attention, options);
}

std::vector<PlannedKernel> plan_all(const Context& context, const Shape& shape) {
  std::vector<PlannedKernel> planned;
  const auto add = [&](std::string purpose, const Plan& plan) {
    planned.push_back({std::move(purpose), nlohmann::ordered_json::parse(plan.describe())});
  };
  // Attention first: what it refuses should not cost the compilation of a quantiser.
  if (shape.op == Op::attn_bwd) add("attention backward", plan_attention_backward(context, shape));
  if (shape.op != Op::mxfp8_quantize) add("attention forward", plan_attention(context, shape));
  for (const QuantizeRequest& request : quantize_requests(shape)) {
    add("quantize " + request.name + " (" + name_of(request.layout) + ")",
        plan_quantize(context, shape, request));
  }
  return planned;
}

}  // namespace mxfa::tools
