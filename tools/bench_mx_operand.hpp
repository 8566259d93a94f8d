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

  mxfa_tensor tensor() const;
  // The values that the kernel is given: an E4M3 element times its scale is a BF16 number.
  FetchRows fetch() const;
  std::vector<const DeviceBuffer*> buffers() const { return {&payload_, &scales_}; }

 private:
  bool along_d() const { return orientation_ == reference::Orientation::kAlongD; }

  std::vector<int32_t> offsets_;
  int heads_, head_dim_;
  reference::Orientation orientation_;
  uint64_t row_elements_, rows_, scale_bytes_;
  DeviceBuffer payload_, scales_;
};

}  // namespace mxfa::tools
