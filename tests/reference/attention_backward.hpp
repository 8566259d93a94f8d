// Gradients of softmax attention over jagged sequences in double precision, from their definition; and the
// same with P and dS rounded to BF16 as the Hopper kernel rounds them, with a bound on what its arithmetic
// may add.
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

struct BackwardOptions {
  bool round_bf16 = false;       // P and dS, before the products of dV, dK and dQ
  bool rounded_p_in_ds = false;  // dS is computed from the rounded P, not from the exact one
  bool exact_p_in_dq = false;    // but for dQ from the exact one all the same: a kernel of its own
  bool bounds = false;           // fill the bounds
  int threads = 0;               // 0: all of the machine
  double more_tiles = 0;         // tiles of keys that add to a row of dQ beside those of the problem
  std::optional<int> dq_fp16;    // tiles are added in FP16, times two to this power; else in FP32
};
// What the Hopper kernels are compared with: rounded, with bounds; at head_dim 64 the kernel of dK and dV
// keeps only the rounded P.  split: dQ has a kernel of its own.
BackwardOptions hopper_backward_numerics(int head_dim, std::optional<int> dq_fp16 = {}, bool split = false);

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
