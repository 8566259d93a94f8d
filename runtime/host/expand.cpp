#include "host/expand.hpp"

#include <algorithm>

namespace mxfa {

ExpandPlan plan_expand(mxfa_plan& plan, const std::vector<ExpandOperand>& operands) {
  mxfa_context& context = *plan.context;
  ExpandPlan expand;
  const bool even_heads = std::all_of(operands.begin(), operands.end(),
                                      [](const ExpandOperand& operand) { return operand.heads % 2 == 0; });
  const KernelConfig config =
      resolve_kernel_config(context.configs, "mxfp8_expand", context.driver.arch,
                            {{"head_dim", plan.attention.head_dim},
                             {"even_heads", even_heads, true, ConfigField::Use::kChoiceOnly}},
                            nullptr);
  expand.kernel = &context.kernel(config, sizeof(abi::ExpandParams));
  const auto heads_per_cta = int32_t(config.at("heads_per_cta"));
  int64_t grid = 0, bytes = 0;
  for (const ExpandOperand& operand : operands) {
    const int32_t tiles = operand.sequences->scale_rows() / kScaleTileRows;
    const int64_t size = int64_t{operand.sequences->total()} * operand.heads * plan.attention.head_dim * 2;
    expand.operands.push_back({plan.workspace.reserve(uint64_t(size)), operand.at_offsets,
                               operand.at_scale_offsets, operand.sequences->batch(), operand.heads, tiles,
                               operand.sequences->total(), operand.orientation});
    grid += int64_t{tiles} * (operand.heads / heads_per_cta);
    bytes += size;
  }
  if (grid > INT32_MAX)
    invalid("{} tiles of {} tokens and a head to multiply out; the limit of a launch is {}", grid,
            kScaleTileRows, INT32_MAX);
  expand.grid = uint32_t(grid);
  plan.options["expanded_bytes"] = bytes;
  return expand;
}

void launch_expand(const mxfa_plan& plan, const std::vector<const mxfa_tensor*>& tensors, uint64_t workspace,
                   CUstream stream) {
  const ExpandPlan& expand = plan.expand;
  if (expand.grid == 0) return;
  abi::ExpandParams params{};
  for (size_t i = 0; i < expand.operands.size(); ++i) {
    const ExpandPlan::Operand& operand = expand.operands[i];
    params.jobs[i] = {.payload = reinterpret_cast<uint64_t>(tensors[i]->data),
                      .row_stride = tensors[i]->row_stride,
                      .scales = reinterpret_cast<uint64_t>(tensors[i]->scales.data),
                      .output = workspace + operand.at,
                      .offsets = workspace + operand.at_offsets,
                      .scale_offsets = workspace + operand.at_scale_offsets,
                      .batch = operand.batch,
                      .heads = operand.heads,
                      .scale_tiles = operand.scale_tiles,
                      .along_tokens = operand.orientation == MXFA_SCALE_ALONG_TOKENS};
  }
  launch_kernel(plan.context->driver, *expand.kernel, expand.grid, &params, stream);
}

mxfa_tensor expanded_operand(const mxfa_plan& plan, size_t index, uint64_t workspace) {
  const ExpandPlan::Operand& operand = plan.expand.operands.at(index);
  mxfa_tensor tensor{};
  tensor.data = operand.rows > 0 ? reinterpret_cast<void*>(workspace + operand.at) : nullptr;
  tensor.row_stride = int64_t{operand.heads} * plan.attention.head_dim;
  tensor.rows = operand.rows;
  return tensor;
}

}  // namespace mxfa
