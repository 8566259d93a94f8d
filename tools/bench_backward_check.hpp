// The check of a timed backward: samples of rows of dQ, and of dK and dV, against the double-precision
// reference that is given the same O and LSE; and all of the gradients for elements that were never written.
#pragma once

#include "bench_check.hpp"
#include "reference/attention_backward.hpp"

namespace mxfa::tools {

// Keys [first, first + count) of one sequence as a problem of one sequence and one key head with all the
// query heads of its group: `rows` queries from the first on, each of which sees what it sees in the whole.
struct KeyProblem {
  reference::AttentionProblem problem;
  int64_t rows = 0;
};
KeyProblem key_problem(const reference::AttentionProblem& whole, int sequence, int64_t first, int64_t count);

struct BackwardTensors {
  FetchRows q, k, v, o, d_o;
  std::span<const float> lse;  // all of it, as the rest
  std::span<const uint16_t> dq, dk, dv;
};

CheckResult check_backward(const reference::AttentionProblem& problem, const BackwardTensors& tensors,
                           const reference::BackwardOptions& numerics, uint64_t seed, double budget,
                           double min_sqnr_db);

}  // namespace mxfa::tools
