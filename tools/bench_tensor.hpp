// A packed BF16 tensor of a timed run, with kTailRows rows of NaN behind its own.
#pragma once

#include "bench_check.hpp"
#include "bench_inputs.hpp"
#include "run.hpp"

namespace mxfa::tools {

struct BenchTensor {
  DeviceBuffer buffer;
  uint64_t rows, row_elements;

  BenchTensor(const Session& session, const char* name, int64_t rows, int heads, int head_dim)
      : buffer(session, name,
               (static_cast<uint64_t>(rows) + kTailRows) * static_cast<uint64_t>(heads) * head_dim * 2),
        rows(static_cast<uint64_t>(rows)),
        row_elements(static_cast<uint64_t>(heads) * head_dim) {}

  void fill(const RandomBlock& block, int operand) const { block.fill(buffer, rows * row_elements, operand); }
  mxfa_tensor tensor() const {
    return {buffer.data(), static_cast<int64_t>(row_elements), static_cast<int64_t>(rows + kTailRows), {}};
  }
  std::vector<uint16_t> all() const { return buffer.download<uint16_t>(0, rows * row_elements); }
  FetchRows fetch() const {
    return [this](int64_t first_row, int64_t count) {
      return buffer.download<uint16_t>(static_cast<uint64_t>(first_row) * row_elements,
                                       static_cast<uint64_t>(count) * row_elements);
    };
  }
};

}  // namespace mxfa::tools
