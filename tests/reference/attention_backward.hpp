// Gradients of softmax attention over jagged sequences in double precision, from their definition; and the
// same with P and dS rounded as the Hopper kernel rounds them, with a bound on what its arithmetic may add.
//
//   P = exp(scale Q K^T - LSE),  dV = P^T dO,  dP = dO V^T,  delta = rowsum(O * dO),
//   dS = P * (dP - delta),       dQ = scale dS K,             dK = scale dS^T Q.
// dK and dV are summed over the query heads that share a key head; with broadcast_q dQ is summed over the
// batch.  Rows of O without a visible key contribute nothing; a gradient nothing contributes to is +0.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "reference/attention.hpp"

namespace mxfa::reference {

// How dS is rounded before the products of dK and dQ.
enum class DsFormat {
  kExact,
  kBf16,
  kMxfp8Square  // MXFP8 in blocks of 32 queries x 32 keys of the sequence: amax of the pairs that see each
                // other, RCEIL scale (quantize.hpp), E4M3 payload
};

struct BackwardOptions {
  PFormat p_format = PFormat::kExact;  // of P before the product of dV: exact, BF16 or E4M3 times 2^-8
  DsFormat ds_format = DsFormat::kExact;
  bool bounds = false;         // fill the bounds
  int threads = 0;             // 0: all of the machine
  double more_tiles = 0;       // tiles of keys that add to a row of dQ beside those of the problem
  std::optional<int> dq_fp16;  // tiles are added in FP16, times two to this power; else in FP32
};
// What the Hopper kernels are compared with: rounded, with bounds.  dS is computed from P before its
// rounding. MXFP8, on the values of the quantised operands: E4M3 P, and dS in BF16 or in square blocks.
BackwardOptions hopper_backward_numerics(std::optional<int> dq_fp16 = {});
BackwardOptions hopper_mxfp8_backward_numerics(bool square_ds, std::optional<int> dq_fp16 = {});

struct Gradients {
  std::vector<double> dq;      // [rows_q, heads_q, head_dim]
  std::vector<double> dk, dv;  // [rows_k, heads_kv, head_dim]
  // Largest distance of the kernel's results from these, before they are rounded to BF16; derived in
  // attention_backward.cpp.
  std::vector<double> dq_bound, dk_bound, dv_bound;
};

// q, k, v, d_o: packed, contiguous.  o [rows_o, heads_q, head_dim] and lse [heads_q, rows_o] are what the
// backward is given, with the errors they have; where both are empty the exact ones are computed.
Gradients attention_backward(const AttentionProblem& problem, std::span<const double> q,
                             std::span<const double> k, std::span<const double> v,
                             std::span<const double> d_o, std::span<const double> o = {},
                             std::span<const double> lse = {}, const BackwardOptions& options = {});

}  // namespace mxfa::reference
