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

// What the launches of one plan for a capacity share, as the replays of a graph do: plan, workspace, buffers.
class CapacityLaunches {
 public:
  // What a replay may change beside the data.  What the launch writes becomes NaN bytes.
  void set_offsets(const std::vector<int32_t>& offsets_q, const std::vector<int32_t>& offsets_k);
  void check() { plan_.check(workspace_->data(), Device::instance().stream()); }
  bool outputs_untouched() const;
  const Plan& plan() const { return plan_; }

 protected:
  // Heads, head_dim, masks and format are those of `like`, its lengths do not matter.
  CapacityLaunches(const AttentionInputs& like, const Capacity& capacity, Plan plan);

  template <class Args>
  void describe(Args& args) const;
  size_t row_q() const { return size_t(problem_.heads_q) * problem_.head_dim; }
  size_t row_k() const { return size_t(problem_.heads_kv) * problem_.head_dim; }

  const Capacity capacity_;
  reference::AttentionProblem problem_;
  Plan plan_;
  std::unique_ptr<Buffer> workspace_;
  int64_t rows_o_;
  Buffer q_, k_, v_, o_, lse_, offsets_q_, offsets_k_;
  std::vector<const Buffer*> outputs_;  // what a launch writes
};

class CapacityForward : public CapacityLaunches {
 public:
  CapacityForward(const AttentionInputs& like, const Capacity& capacity);

  void set(const AttentionInputs& inputs);  // data, scales and offsets
  void launch() { plan_(args_, Device::instance().stream()); }
  // Of the lengths that were set last; fails if a row that is not theirs was written.
  AttentionOutputs outputs() const;
  const mxfa_attention_forward_args& args() const { return args_; }

 private:
  const bool mxfp8_;
  Buffer scales_q_, scales_k_, scales_v_;
  mxfa_attention_forward_args args_{};
};

// The backward likewise; O and LSE are given.
class CapacityBackward : public CapacityLaunches {
 public:
  CapacityBackward(const BackwardInputs& like, const Capacity& capacity);

  // Data and offsets.  `forward` has O and LSE.
  void set(const BackwardInputs& inputs, const BackwardOutputs& forward);
  void launch() { plan_(args_, Device::instance().stream()); }
  // Those that were set, and the gradients; fails if a row that is not of the lengths was written.
  BackwardOutputs outputs() const;

 private:
  Buffer d_o_, dq_, dk_, dv_;
  BackwardOutputs forward_;
  mxfa_attention_backward_args args_{};
};

// `attention` with a capacity in place of its offsets.
mxfa_attention with_capacity(mxfa_attention attention, const Capacity& capacity);

}  // namespace mxfa::test
