// One backward through the C ABI: the forward kernel makes O and LSE, the backward kernels the gradients; and
// the comparison with the references.
#pragma once

#include "kernels/attention_run.hpp"
#include "reference/attention_backward.hpp"
#include "reference/compare.hpp"

namespace mxfa::test {

struct BackwardInputs {
  AttentionInputs forward;     // problem, Q, K, V, kernel overrides of the backward
  std::string forward_kernel;  // kernel overrides of the forward
  std::vector<uint16_t> d_o;   // [rows_o, heads_q, head_dim]
  // MXFP8: V and dO with scales along D, or square.
  reference::QuantizedTensor mx_v, mx_d_o;
  mxfa_attention_backward_options options{sizeof(mxfa_attention_backward_options), 0, 0, 0, 0};
};
BackwardInputs make_backward(const reference::AttentionProblem& problem,
                             reference::DataDistribution distribution = reference::DataDistribution::kNormal,
                             double std = 1.0, uint64_t seed = 1);
BackwardInputs make_mx_backward(
    const reference::AttentionProblem& problem, bool square,
    reference::DataDistribution distribution = reference::DataDistribution::kNormal, double std = 1.0,
    uint64_t seed = 1);
// After BF16 operands were edited: quantises (MXFP8) and decodes again.
void update_backward(BackwardInputs& inputs);

struct BackwardOutputs {
  std::vector<uint16_t> o;  // of the forward, as the backward was given it
  std::vector<float> lse;
  std::vector<uint16_t> dq, dk, dv;
};
struct BackwardLaunch {
  int tail_rows = 0;          // rows past the last offset: NaN in the inputs, untouched in the gradients
  int row_padding_bytes = 0;  // between rows, likewise; a multiple of 16
  int d_o_padding_bytes = 0;  // between the rows of dO beside that
  int64_t row_stride = 0;     // of O, dO and dQ, in elements, where it is only said: they have one row
  uint8_t workspace_fill = 0xff;
  uint8_t scale_padding = 0;  // MXFP8: value of scale bytes that belong to no element
  int launches = 1;           // on the same workspace
  // The first rows of O and LSE as an earlier run had them; for a batch of one sequence and one head.
  const BackwardOutputs* given = nullptr;
  int64_t given_rows = 0;
};
BackwardOutputs run_backward(const BackwardInputs& inputs, const BackwardLaunch& launch = {});

reference::GradientValues decoded(const BackwardOutputs& outputs);
// Every element within the bound of the reference that is given the same O and LSE.
void check_gradient_bounds(const BackwardInputs& inputs, const BackwardOutputs& outputs);
// That, and with N(0,1) data the accuracy that the format promises against the exact gradients.
BackwardOutputs check_backward(const BackwardInputs& inputs, const BackwardLaunch& launch = {});

}  // namespace mxfa::test
