// One launch of mxfp8_quantize through the C ABI, and the reference for it.
#pragma once

#include "kernels/device.hpp"
#include "reference/quantize.hpp"

namespace mxfa::test {

struct QuantizeOptions {
  reference::BlockLayout layout = reference::BlockLayout::kAlongD;
  reference::ScalingMode mode = reference::ScalingMode::kRceil;
  int row_padding = 0;  // BF16 elements between the rows of the input, NaN
  int tail_rows = 0;    // rows of the input past the last offset, NaN
};

struct QuantizeResult {
  std::vector<uint8_t> payload, scales_d, scales_tokens;
};
QuantizeResult run_quantize(std::span<const uint16_t> x, const reference::JaggedShape& shape,
                            const QuantizeOptions& options);

// Runs, and compares every byte of payload and atoms (padding 0) with the reference.
void check_quantize(std::span<const uint16_t> x, const reference::JaggedShape& shape,
                    const QuantizeOptions& options);

}  // namespace mxfa::test
