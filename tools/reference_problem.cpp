#include "reference_problem.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

namespace mxfa::tools {

reference::AttentionProblem attention_problem(const Shape& shape) {
  reference::AttentionProblem problem;
  problem.batch = static_cast<int>(shape.seqlens_k.size());
  problem.heads_q = shape.heads_q;
  problem.heads_kv = shape.heads_kv;
  problem.head_dim = shape.head_dim;
  problem.offsets_q = offsets_of(shape.seqlens_q);
  problem.offsets_k = offsets_of(shape.seqlens_k);
  problem.broadcast_q = shape.broadcast_q;
  problem.causal = shape.causal;
  problem.window_left = shape.window[0];
  problem.window_right = shape.window[1];
  problem.scale = shape.scale.value_or(1.0 / std::sqrt(shape.head_dim));
  return problem;
}

reference::AttentionOptions attention_numerics(const std::string& arch, const Shape& shape) {
  const bool mxfp8 = shape.dtype == Dtype::mxfp8, dynamic_p = shape.mxfp8.p_scale == PScale::dynamic;
  if (arch == "sm_90a") return reference::hopper_kernel_numerics(mxfp8, dynamic_p);
  reference::AttentionOptions options = reference::kernel_numerics(mxfp8, dynamic_p);
  // A kernel that does not look for the row maximum moves its reference point when sums have grown.
  const auto kernel = nlohmann::json::parse(shape.kernel.empty() ? "{}" : shape.kernel);
  if (!mxfp8 && kernel.value("skip_maximum", 0) != 0) options.row_maximum = reference::RowMaximum::kUnknown;
  if (kernel.value("exp2_emulation_degree", 3) == 2) options.exp2_error = 2.2e-3;  // a parabola, not a cubic
  return options;
}

reference::BackwardOptions backward_numerics(const Shape& shape) {
  std::optional<int> dq_fp16;
  if (shape.backward.dq_accumulate == DqAccumulate::fp16) dq_fp16 = shape.backward.dq_scale_log2;
  if (shape.dtype == Dtype::mxfp8)
    return reference::hopper_mxfp8_backward_numerics(shape.mxfp8.block == BlockShape::b32x32, dq_fp16);
  return reference::hopper_backward_numerics(dq_fp16);
}

}  // namespace mxfa::tools
