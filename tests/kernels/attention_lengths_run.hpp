// Launches of one plan whose lengths lie in device memory.
#pragma once

#include "kernels/attention_backward_run.hpp"

namespace mxfa::test {

// The case rt-graph-new-lengths: the lengths of the capture, then those of the replays.
inline const std::vector<std::vector<int32_t>> kReplays{
    {10, 20, 30, 0}, {256, 100, 1, 50}, {0, 0, 0, 0}, {128, 128, 128, 128}};

// At most `total` tokens and `longest` of a sequence; 0: as in mxfa.h.
struct Capacity {
  int32_t batch, total_q, total_k, longest_q, longest_k;
};
inline constexpr Capacity kCapacity{4, 512, 512, 256, 256};  // of the case

// The forward of one capacity: plan, workspace and buffers, which every launch shares as the replays of a
// graph do.
class CapacityForward {
 public:
  // Heads, head_dim, masks and format are those of `like`, its lengths do not matter.
  CapacityForward(const AttentionInputs& like, const Capacity& capacity);

  // What a replay may change: data, scales and offsets.  O and LSE become NaN bytes.
  void set(const AttentionInputs& inputs);
  void set_offsets(const std::vector<int32_t>& offsets_q, const std::vector<int32_t>& offsets_k);
  void launch();
  void check() { plan_.check(workspace_->data(), Device::instance().stream()); }
  // Of the lengths that were set last; fails if a row that is not theirs was written.
  AttentionOutputs outputs() const;
  bool outputs_untouched() const;

  const Plan& plan() const { return plan_; }
  const mxfa_attention_forward_args& args() const { return args_; }

 private:
  const Capacity capacity_;
  const bool mxfp8_;
  reference::AttentionProblem problem_;
  Plan plan_;
  std::unique_ptr<Buffer> workspace_;
  int64_t rows_o_;
  Buffer q_, k_, v_, o_, lse_, scales_q_, scales_k_, scales_v_, offsets_q_, offsets_k_;
  mxfa_attention_forward_args args_{};
};

// The backward likewise; O and LSE are given.
class CapacityBackward {
 public:
  CapacityBackward(const BackwardInputs& like, const Capacity& capacity);

  // What a replay may change: data and offsets.  `forward` has O and LSE.  The gradients become NaN bytes.
  void set(const BackwardInputs& inputs, const BackwardOutputs& forward);
  void set_offsets(const std::vector<int32_t>& offsets_q, const std::vector<int32_t>& offsets_k);
  void launch();
  void check() { plan_.check(workspace_->data(), Device::instance().stream()); }
  // Those that were set, and the gradients; fails if a row that is not of the lengths was written.
  BackwardOutputs outputs() const;
  bool outputs_untouched() const;

 private:
  reference::AttentionProblem problem_;
  Plan plan_;
  std::unique_ptr<Buffer> workspace_;
  int64_t rows_o_;
  Buffer q_, k_, v_, o_, d_o_, lse_, dq_, dk_, dv_, offsets_q_, offsets_k_;
  BackwardOutputs forward_;
  mxfa_attention_backward_args args_{};
};

// `attention` with a capacity in place of its offsets.
mxfa_attention with_capacity(mxfa_attention attention, const Capacity& capacity);

}  // namespace mxfa::test
