// An MXFP8 operand of a timed attention: random BF16, quantised on the device before the clock runs.
#pragma once

#include "bench_check.hpp"
#include "bench_inputs.hpp"
#include "bench_measure.hpp"
#include "bench_tensor.hpp"
#include "plan_shape.hpp"
#include "run.hpp"

namespace mxfa::tools {

class BenchMxOperand {
 public:
  // operand: of RandomBlock::fill.
  BenchMxOperand(const Session& session, const Shape& shape, const QuantizeRequest& request,
                 const RandomBlock& block, int operand, const Stream& stream);

  // With the scales of an orientation that the request has.
  mxfa_tensor tensor(reference::Orientation orientation) const;
  // The values that the kernel is given: an E4M3 element times its scale is a BF16 number.
  FetchRows fetch() const;
  std::vector<const DeviceBuffer*> buffers() const { return {&payload_, &scales_d_, &scales_tokens_}; }

 private:
  bool has_d() const { return layout_ != reference::BlockLayout::kAlongTokens; }
  bool has_tokens() const { return layout_ != reference::BlockLayout::kAlongD; }

  std::vector<int32_t> offsets_;
  int heads_, head_dim_;
  reference::BlockLayout layout_;
  uint64_t row_elements_, rows_, scale_bytes_;
  DeviceBuffer payload_, scales_d_, scales_tokens_;  // the scales that the layout does not have are empty
};

}  // namespace mxfa::tools
