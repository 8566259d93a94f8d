// MXFP8 operands multiplied out to BF16 in the plan's workspace, for devices whose tensor cores know no block
// scales: one launch of mxfp8_expand before the attention's kernels.
#pragma once

#include "host/plan.hpp"

namespace mxfa {

// What is to be expanded, in the order of the launch.
struct ExpandOperand {
  const Sequences* sequences;
  int32_t heads;
  int32_t orientation;  // mxfa_orientation of its scales
  uint64_t at_offsets, at_scale_offsets;
};

// Loads the kernel and reserves the workspace; at most abi::kExpandJobs operands.  The context is current.
ExpandPlan plan_expand(mxfa_plan& plan, const std::vector<ExpandOperand>& operands);

// `tensors` in the order of the operands, checked by the caller.  The context is current.
void launch_expand(const mxfa_plan& plan, const std::vector<const mxfa_tensor*>& tensors, uint64_t workspace,
                   CUstream stream);

// Operand `index` as the attention's kernels see it.
mxfa_tensor expanded_operand(const mxfa_plan& plan, size_t index, uint64_t workspace);

}  // namespace mxfa
