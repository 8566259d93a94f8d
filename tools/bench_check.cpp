#include "bench_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>
#include <thread>

#include "host/shape_file.hpp"
#include "reference/compare.hpp"
#include "reference/formats.hpp"

namespace mxfa::tools {

namespace {

using reference::AttentionProblem;
using reference::AttentionResult;

// One sample with the operands of its head, and what the reference says about it.
struct Case {
  RowSample sample;
  AttentionProblem problem;
  std::vector<double> q, k, v, got_o;
  std::vector<float> got_lse;
  AttentionResult want;
};

std::vector<double> one_head(const std::vector<uint16_t>& rows, int heads, int head, int head_dim) {
  const size_t row_elements = static_cast<size_t>(heads) * head_dim;
  std::vector<double> values;
  values.reserve(rows.size() / heads);
  for (size_t row = 0; row < rows.size(); row += row_elements)
    for (int d = 0; d < head_dim; ++d)
      values.push_back(reference::bf16_to_double(rows[row + static_cast<size_t>(head) * head_dim + d]));
  return values;
}

void count_unwritten(const AttentionTensors& tensors, std::vector<std::string>& failures) {
  const auto finite = [](uint16_t bits) { return (bits & 0x7f80) != 0x7f80; };
  const auto bad_o = tensors.o.size() - std::count_if(tensors.o.begin(), tensors.o.end(), finite);
  if (bad_o > 0)
    failures.push_back(fmt::format("{} of {} elements of O are not finite", bad_o, tensors.o.size()));
  // -infinity is the LSE of a row without a key.
  const auto bad_lse = std::count_if(tensors.lse.begin(), tensors.lse.end(),
                                     [](float x) { return std::isnan(x) || x == INFINITY; });
  if (bad_lse > 0)
    failures.push_back(
        fmt::format("{} of {} elements of LSE are NaN or +infinity", bad_lse, tensors.lse.size()));
}

}  // namespace

std::vector<RowSample> sample_rows(const AttentionProblem& problem, uint64_t seed, double budget) {
  std::vector<int> with_queries;
  for (int b = 0; b < problem.batch; ++b)
    if (problem.len_q(b) > 0) with_queries.push_back(b);
  if (with_queries.empty()) return {};
  const auto pairs = [&](int b) { return static_cast<double>(problem.len_q(b)) * problem.len_k(b); };
  const auto less = [&](int a, int b) { return pairs(a) < pairs(b); };
  const int longest = *std::max_element(with_queries.begin(), with_queries.end(), less);
  const int shortest = *std::min_element(with_queries.begin(), with_queries.end(), less);

  std::vector<RowSample> samples;
  double spent = 0;
  const auto take = [&](int sequence, int head, int64_t first_row) {
    const int64_t rows = std::min(kSampleRows, problem.len_q(sequence) - first_row);
    const RowSample sample{sequence, head, first_row, rows};
    samples.push_back(sample);
    spent += 2.0 * static_cast<double>(rows) * static_cast<double>(row_problem(problem, sample).keys) *
             problem.head_dim;
  };
  // Samples are whole blocks of 32 rows, which may share a scale.
  const auto last_rows = [&](int b) { return (problem.len_q(b) - 1) / kSampleRows * kSampleRows; };
  take(longest, problem.heads_q - 1, last_rows(longest));
  take(with_queries.front(), 0, 0);
  take(with_queries.back(), problem.heads_q - 1, last_rows(with_queries.back()));
  take(shortest, 0, last_rows(shortest));
  constexpr size_t kMostSamples = 256;  // of sequences so short that the budget never ends
  PortableRandom random(seed);
  while (spent < budget && samples.size() < kMostSamples) {
    const int64_t row = static_cast<int64_t>(random.uniform() * static_cast<double>(problem.rows_o()));
    const int head = static_cast<int>(random.uniform() * problem.heads_q);
    const auto owner = std::partition_point(with_queries.begin(), with_queries.end(),
                                            [&](int b) { return problem.first_o(b) <= row; }) -
                       1;
    take(*owner, head, (row - problem.first_o(*owner)) / kSampleRows * kSampleRows);
  }
  return samples;
}

RowProblem row_problem(const AttentionProblem& whole, const RowSample& sample) {
  const int64_t len_k = whole.len_k(sample.sequence);
  // Rows behind the sample; masks are aligned at the end, so leaving them out shifts every limit by as many.
  const int64_t behind = whole.len_q(sample.sequence) - (sample.first_row + sample.rows);
  const int64_t right = whole.causal ? 0 : whole.window_right;
  // Keys that none of the rows sees, because the last row's right limit ends before them.
  const int64_t unseen = right < 0 ? 0 : std::min(len_k, std::max<int64_t>(0, behind - right));
  RowProblem result;
  result.keys = len_k - unseen;
  AttentionProblem& part = result.problem;
  part.batch = part.heads_q = part.heads_kv = 1;
  part.head_dim = whole.head_dim;
  part.offsets_q = {0, static_cast<int32_t>(sample.rows)};
  part.offsets_k = {0, static_cast<int32_t>(result.keys)};
  part.window_right = right < 0 ? -1 : static_cast<int>(right - behind + unseen);
  part.window_left = whole.window_left < 0 ? -1 : static_cast<int>(whole.window_left + behind - unseen);
  part.scale = whole.scale;
  return result;
}

CheckResult check_attention(const AttentionProblem& problem, const reference::AttentionOptions& numerics,
                            const AttentionTensors& tensors, const std::vector<RowSample>& samples,
                            double min_sqnr_db) {
  CheckResult result;
  count_unwritten(tensors, result.failures);
  const int group = problem.heads_q / problem.heads_kv, dim = problem.head_dim;
  std::vector<RowSample> ordered = samples;  // so that a sequence's keys are fetched once
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const RowSample& a, const RowSample& b) { return a.sequence < b.sequence; });
  std::vector<Case> cases(ordered.size());
  int fetched = -1;
  std::vector<uint16_t> k, v;
  for (size_t i = 0; i < ordered.size(); ++i) {
    const RowSample& sample = ordered[i];
    const int b = sample.sequence;
    if (fetched != b) {
      k = tensors.k(problem.offsets_k[b], problem.len_k(b));
      v = tensors.v(problem.offsets_k[b], problem.len_k(b));
      fetched = b;
    }
    Case& one = cases[i];
    one.sample = sample;
    const RowProblem part = row_problem(problem, sample);
    one.problem = part.problem;
    one.q = one_head(tensors.q(problem.first_q(b) + sample.first_row, sample.rows), problem.heads_q,
                     sample.head, dim);
    one.k = one_head(k, problem.heads_kv, sample.head / group, dim);
    one.v = one_head(v, problem.heads_kv, sample.head / group, dim);
    const int64_t first_o = problem.first_o(b) + sample.first_row;
    for (int64_t row = first_o; row < first_o + sample.rows; ++row) {
      for (int d = 0; d < dim; ++d)
        one.got_o.push_back(reference::bf16_to_double(
            tensors.o[static_cast<size_t>((row * problem.heads_q + sample.head) * dim + d)]));
      one.got_lse.push_back(tensors.lse[static_cast<size_t>(sample.head * problem.rows_o() + row)]);
    }
    result.rows += sample.rows;
  }
  result.samples = static_cast<int>(cases.size());

  reference::AttentionOptions options = numerics;
  options.threads = 1;  // a sample is little work; the samples run side by side
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i; (i = next.fetch_add(1)) < cases.size();)
      cases[i].want = attention_forward(cases[i].problem, cases[i].q, cases[i].k, cases[i].v, options);
  };
  {
    std::vector<std::jthread> threads;
    for (unsigned t = 1; t < std::min<size_t>(std::thread::hardware_concurrency(), cases.size()); ++t)
      threads.emplace_back(work);
    work();
  }

  std::vector<double> got, want;
  std::optional<std::string> wrong_o, wrong_lse;
  for (const Case& one : cases) {
    const auto place = [&](reference::Mismatch mismatch) {
      mismatch.place.sequence = one.sample.sequence;
      mismatch.place.head = one.sample.head;
      mismatch.place.row += one.sample.first_row;
      return to_string(mismatch);
    };
    if (const auto wrong = first_outside_bound(one.problem, one.got_o, one.want); wrong && !wrong_o)
      wrong_o = "O: " + place(*wrong);
    if (const auto wrong = first_lse_outside_bound(one.problem, one.got_lse, one.want); wrong && !wrong_lse)
      wrong_lse = "LSE: " + place(*wrong);
    got.insert(got.end(), one.got_o.begin(), one.got_o.end());
    want.insert(want.end(), one.want.o.begin(), one.want.o.end());
  }
  for (const auto& wrong : {wrong_o, wrong_lse})
    if (wrong) result.failures.push_back(*wrong);
  result.sqnr_db = reference::deviation(got, want).sqnr_db;
  if (!(result.sqnr_db >= min_sqnr_db)) {
    result.failures.push_back(
        fmt::format("signal to noise of the sampled rows of O, dB: got {:.6g}, need at least {:.6g}",
                    result.sqnr_db, min_sqnr_db));
  }
  return result;
}

}  // namespace mxfa::tools
