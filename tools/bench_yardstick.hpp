// What rates are compared with: a cuBLAS BF16 product for kernels bound by the tensor cores, a copy within
// device memory for kernels bound by bandwidth.  cuBLAS is loaded by name, by the bench alone; where it is
// missing the yardstick says so and nothing else changes.
#pragma once

#include <memory>

#include "bench_inputs.hpp"
#include "bench_measure.hpp"

namespace mxfa::tools {

// C = A B, 8192 x 8192 x 8192, BF16 operands and result, FP32 accumulation, random data of the block.
Yardstick make_gemm_yardstick(const Session& session, const Stream& stream, const RandomBlock& block);
// A copy of 1 GiB; its work counts the bytes read and the bytes written.
Yardstick make_copy_yardstick(const Session& session, const Stream& stream);

}  // namespace mxfa::tools
