// One launch of the attention forward kernel through the C ABI, its inputs, and the comparison with the
// references.
#pragma once

#include "kernels/device.hpp"
#include "kernels/device_tensor.hpp"
#include "reference/attention.hpp"
#include "reference/quantize.hpp"
#include "reference/random.hpp"

namespace mxfa::test {

// The operands of one problem: as BF16, what the kernel is given, and the exact values of that.
struct AttentionInputs {
  reference::AttentionProblem problem;
  bool mxfp8 = false;
  bool dynamic_p = false;  // MXFP8: a scale of P for each row and 32 keys
  bool square = false;     // MXFP8: blocks of 32x32, else of 32
  reference::ScalingMode scaling = reference::ScalingMode::kRceil;
  std::vector<uint16_t> bf16_q, bf16_k, bf16_v;
  reference::QuantizedTensor mx_q, mx_k, mx_v;  // MXFP8 only: Q and K along D, V along tokens; or square
  std::vector<double> q, k, v;                  // of the stored operands
  std::string kernel;                           // JSON of kernel configuration overrides; empty: none
  double exp2_error = 0;                        // of the kernel's exponentials; 0: as shipped
  // What the reference may assume of the kernel's reference point.
  reference::RowMaximum row_maximum = reference::RowMaximum::kBlockWalk;
};
// Cross attention from lengths; scale 1/sqrt(head_dim).
reference::AttentionProblem problem_of(const std::vector<int32_t>& lengths_q,
                                       const std::vector<int32_t>& lengths_k, int heads, int head_dim);
AttentionInputs make_inputs(const reference::AttentionProblem& problem, bool mxfp8,
                            reference::DataDistribution distribution = reference::DataDistribution::kNormal,
                            double std = 1.0, uint64_t seed = 1);
// After bf16_q, bf16_k, bf16_v, square or scaling were edited: quantises (MXFP8) and decodes again.
void update_inputs(AttentionInputs& inputs);

// Scales on the device, with every byte that belongs to no element set to `padding`.
std::unique_ptr<Buffer> upload_scales(std::vector<uint8_t> scales, reference::Orientation orientation,
                                      const reference::JaggedShape& shape, uint8_t padding);

struct LaunchOptions {
  int tail_rows = 0;          // rows past the last offset in Q, K, V (NaN) and O (must stay untouched)
  int row_padding_bytes = 0;  // between the rows of Q, K, V (NaN) and O (untouched); a multiple of 16
  uint8_t scale_padding = 0;  // value of scale bytes that belong to no element
  bool store_lse = true;
};
struct AttentionOutputs {
  std::vector<uint16_t> o;                               // [rows_o, heads_q, head_dim], BF16
  std::vector<float> lse;                                // [heads_q, rows_o]; empty when not stored
  bool operator==(const AttentionOutputs& other) const;  // bits
};
AttentionOutputs run_attention(const AttentionInputs& inputs, const LaunchOptions& options = {});

// The C structs, for tests that spoil one member.
mxfa_attention describe_attention(const AttentionInputs& inputs);

// Every element of O and LSE within the bound that the reference with the kernel's roundings derives.
void check_kernel_rounding(const AttentionInputs& inputs, const AttentionOutputs& outputs);
// Against the exact reference on the stored operands: BF16 tolerance and >= 50 dB, or MXFP8 relative L2 and
// cosine; LSE.
void check_exact(const AttentionInputs& inputs, const AttentionOutputs& outputs);
// MXFP8 against exact attention on the BF16 data before quantisation: >= 24 dB, cosine >= 0.998.
void check_format_accuracy(const AttentionInputs& inputs, const AttentionOutputs& outputs);

}  // namespace mxfa::test
