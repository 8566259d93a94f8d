// The check of a timed attention: a sample of its rows against the double-precision reference, and all of its
// output for elements that were never written.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "reference/attention.hpp"

namespace mxfa::tools {

// Consecutive query rows of one sequence and one query head.
struct RowSample {
  int sequence = 0, head = 0;
  int64_t first_row = 0, rows = 0;  // within the sequence
};

// Multiply-adds that checking a row of the table may take: a tenth of what `mxfa run` allows itself.
inline constexpr double kCheckBudget = 1.5e9;
inline constexpr int64_t kSampleRows = 32;

// The ends of the longest, the first, the last and the shortest sequence that have queries, then places drawn
// evenly from all rows until the reference has enough to do.  The same problem and seed give the same sample.
std::vector<RowSample> sample_rows(const reference::AttentionProblem& problem, uint64_t seed, double budget);

// Those rows as a problem of one sequence and one head, with the first `keys` keys of the sequence: every row
// sees what it sees in the whole.
struct RowProblem {
  reference::AttentionProblem problem;
  int64_t keys = 0;
};
RowProblem row_problem(const reference::AttentionProblem& whole, const RowSample& sample);

// BF16 rows of a packed tensor [tokens, heads, head_dim], all heads.
using FetchRows = std::function<std::vector<uint16_t>(int64_t first_row, int64_t rows)>;

struct AttentionTensors {
  FetchRows q, k, v;
  std::span<const uint16_t> o;  // all of it
  std::span<const float> lse;
};

struct CheckResult {
  int samples = 0;
  int64_t rows = 0;
  double sqnr_db = 0;  // of the sampled rows of O; infinite: equal
  std::vector<std::string> failures;
};

CheckResult check_attention(const reference::AttentionProblem& problem,
                            const reference::AttentionOptions& numerics, const AttentionTensors& tensors,
                            const std::vector<RowSample>& samples, double min_sqnr_db);

}  // namespace mxfa::tools
