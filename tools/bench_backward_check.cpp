#include "bench_backward_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <thread>

#include "host/shape_file.hpp"
#include "reference/compare.hpp"
#include "reference/formats.hpp"

namespace mxfa::tools {

namespace {

using reference::AttentionProblem;
using reference::Gradients;

constexpr int64_t kSampleKeys = 32;

// Heads [head, head + count) of packed rows.
std::vector<double> some_heads(const std::vector<uint16_t>& rows, int heads, int head, int count, int dim) {
  std::vector<double> values;
  values.reserve(rows.size() / heads * count);
  const size_t row_elements = static_cast<size_t>(heads) * dim;
  for (size_t row = 0; row < rows.size(); row += row_elements)
    for (int i = 0; i < count * dim; ++i)
      values.push_back(reference::bf16_to_double(rows[row + static_cast<size_t>(head) * dim + i]));
  return values;
}

// One sample: what the reference is given, what it says, and what the kernels wrote.
struct Case {
  int sequence, head;  // head: of the queries, or of the keys
  int64_t first;       // row or key in the sequence
  bool keys;           // dK and dV, else dQ
  AttentionProblem problem;
  std::vector<double> q, k, v, d_o, o, lse;
  double more_tiles = 0;
  Gradients want;
};

class Sampler {
 public:
  Sampler(const AttentionProblem& problem, const BackwardTensors& tensors)
      : p_(problem), tensors_(tensors), group_(problem.heads_q / problem.heads_kv) {}

  // Rows of dQ of one sequence (and its part of the sum, with broadcast_q).
  Case rows(const RowSample& sample) const {
    const int b = sample.sequence;
    const RowProblem part = row_problem(p_, sample);
    Case one{b, sample.head, sample.first_row, false, part.problem, {}, {}, {}, {}, {}, {}, 0, {}};
    if (p_.broadcast_q) one.more_tiles = static_cast<double>(p_.rows_k()) / 128 + p_.batch;
    fetch_queries(one, sample.head, 1, sample.first_row, sample.rows);
    const int head_kv = sample.head / group_;
    one.k = some_heads(tensors_.k(p_.offsets_k[b], part.keys), p_.heads_kv, head_kv, 1, p_.head_dim);
    one.v = some_heads(tensors_.v(p_.offsets_k[b], part.keys), p_.heads_kv, head_kv, 1, p_.head_dim);
    return one;
  }
  Case keys(int b, int head_kv, int64_t first, int64_t count) const {
    const KeyProblem part = key_problem(p_, b, first, count);
    Case one{b, head_kv, first, true, part.problem, {}, {}, {}, {}, {}, {}, 0, {}};
    fetch_queries(one, head_kv * group_, group_, 0, part.rows);
    one.k = some_heads(tensors_.k(p_.offsets_k[b] + first, count), p_.heads_kv, head_kv, 1, p_.head_dim);
    one.v = some_heads(tensors_.v(p_.offsets_k[b] + first, count), p_.heads_kv, head_kv, 1, p_.head_dim);
    return one;
  }

 private:
  void fetch_queries(Case& one, int head, int heads, int64_t first, int64_t count) const {
    const int64_t first_q = p_.first_q(one.sequence) + first, first_o = p_.first_o(one.sequence) + first;
    one.q = some_heads(tensors_.q(first_q, count), p_.heads_q, head, heads, p_.head_dim);
    one.o = some_heads(tensors_.o(first_o, count), p_.heads_q, head, heads, p_.head_dim);
    one.d_o = some_heads(tensors_.d_o(first_o, count), p_.heads_q, head, heads, p_.head_dim);
    for (int h = head; h < head + heads; ++h)
      for (int64_t row = first_o; row < first_o + count; ++row)
        one.lse.push_back(tensors_.lse[static_cast<size_t>(h * p_.rows_o() + row)]);
  }

  const AttentionProblem& p_;
  const BackwardTensors& tensors_;
  const int group_;
};

void solve(std::vector<Case>& cases, const reference::BackwardOptions& numerics) {
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i; (i = next.fetch_add(1)) < cases.size();) {
      Case& one = cases[i];
      reference::BackwardOptions own = numerics;
      own.threads = 1;  // a sample is little work; the samples run side by side
      own.more_tiles = one.more_tiles;
      one.want = attention_backward(one.problem, one.q, one.k, one.v, one.d_o, one.o, one.lse, own);
    }
  };
  std::vector<std::jthread> threads;
  for (unsigned t = 1; t < std::min<size_t>(std::thread::hardware_concurrency(), cases.size()); ++t)
    threads.emplace_back(work);
  work();
}

class Comparison {
 public:
  Comparison(const AttentionProblem& problem, const BackwardTensors& tensors)
      : p_(problem), tensors_(tensors) {}

  void keys(const Case& one) {
    const int64_t first = p_.offsets_k[one.sequence] + one.first;
    compare("dV", one, rows_of(tensors_.dv, p_.heads_kv, one.head, first, one.want.dv), one.want.dv,
            one.want.dv_bound);
    compare("dK", one, rows_of(tensors_.dk, p_.heads_kv, one.head, first, one.want.dk), one.want.dk,
            one.want.dk_bound);
  }
  void rows(const Case& one) {
    const int64_t first = p_.first_q(one.sequence) + one.first;
    compare("dQ", one, rows_of(tensors_.dq, p_.heads_q, one.head, first, one.want.dq), one.want.dq,
            one.want.dq_bound);
  }
  void finish(double min_sqnr_db, CheckResult& result) const {
    result.failures.insert(result.failures.end(), failures_.begin(), failures_.end());
    result.sqnr_db = reference::deviation(got_, want_).sqnr_db;
    if (!(result.sqnr_db >= min_sqnr_db))
      result.failures.push_back(
          fmt::format("signal to noise of the sampled gradients, dB: got {:.6g}, need at least {:.6g}",
                      result.sqnr_db, min_sqnr_db));
  }

 private:
  std::vector<double> rows_of(std::span<const uint16_t> tensor, int heads, int head, int64_t first,
                              const std::vector<double>& like) const {
    std::vector<double> values;
    for (int64_t row = first; values.size() < like.size(); ++row)
      for (int d = 0; d < p_.head_dim; ++d)
        values.push_back(
            reference::bf16_to_double(tensor[static_cast<size_t>((row * heads + head) * p_.head_dim + d)]));
    return values;
  }
  void compare(const char* name, const Case& one, const std::vector<double>& got,
               const std::vector<double>& want, const std::vector<double>& bound) {
    got_.insert(got_.end(), got.begin(), got.end());
    want_.insert(want_.end(), want.begin(), want.end());
    const std::vector<int32_t> offsets = {0, static_cast<int32_t>(want.size() / p_.head_dim)};
    auto wrong = reference::first_outside_bound(offsets, 1, p_.head_dim, got, want, bound);
    if (!wrong || failures_.size() >= 3) return;
    wrong->place.sequence = one.sequence;
    wrong->place.head = one.head;
    wrong->place.row += one.first;
    failures_.push_back(fmt::format("{}: {}", name, to_string(*wrong)));
  }

  const AttentionProblem& p_;
  const BackwardTensors& tensors_;
  std::vector<double> got_, want_;
  std::vector<std::string> failures_;
};

void count_unwritten(const char* name, std::span<const uint16_t> tensor, std::vector<std::string>& failures) {
  const auto bad =
      std::count_if(tensor.begin(), tensor.end(), [](uint16_t bits) { return (bits & 0x7f80) == 0x7f80; });
  if (bad > 0)
    failures.push_back(fmt::format("{} of {} elements of {} are not finite", bad, tensor.size(), name));
}

// Multiply-adds of the reference for a sample.
double work_of(const Case& one) {
  return 5.0 * static_cast<double>(one.problem.rows_q()) * one.problem.heads_q *
         static_cast<double>(one.problem.rows_k()) * one.problem.head_dim;
}

// Keys of the longest, the first, the last and the shortest sequence that have keys, then places drawn evenly
// from all of them.
std::vector<Case> sample_keys(const AttentionProblem& p, const Sampler& sampler, uint64_t seed,
                              double budget) {
  std::vector<int> with_keys;
  for (int b = 0; b < p.batch; ++b)
    if (p.len_k(b) > 0) with_keys.push_back(b);
  if (with_keys.empty()) return {};
  const auto less = [&](int a, int b) { return p.len_k(a) < p.len_k(b); };
  std::vector<Case> cases;
  double spent = 0;
  const auto take = [&](int b, int head, int64_t first) {
    cases.push_back(sampler.keys(b, head, first, std::min(kSampleKeys, p.len_k(b) - first)));
    spent += work_of(cases.back());
  };
  // Samples are whole blocks of 32 keys, which may share a scale.
  const auto last = [&](int b) { return (p.len_k(b) - 1) / kSampleKeys * kSampleKeys; };
  const int longest = *std::max_element(with_keys.begin(), with_keys.end(), less);
  const int shortest = *std::min_element(with_keys.begin(), with_keys.end(), less);
  take(longest, p.heads_kv - 1, last(longest));
  take(with_keys.front(), 0, 0);
  take(with_keys.back(), p.heads_kv - 1, last(with_keys.back()));
  take(shortest, 0, last(shortest));
  PortableRandom random(seed);
  while (spent < budget && cases.size() < 64) {
    const int64_t key = static_cast<int64_t>(random.uniform() * static_cast<double>(p.rows_k()));
    const int head = static_cast<int>(random.uniform() * p.heads_kv);
    const int b = *(std::partition_point(with_keys.begin(), with_keys.end(),
                                         [&](int of) { return p.offsets_k[of] <= key; }) -
                    1);
    take(b, head, (key - p.offsets_k[b]) / kSampleKeys * kSampleKeys);
  }
  return cases;
}

// Rows of dQ.  With broadcast_q a row sums over the batch: a few rows of one head, a case for each sequence;
// of all rows that may share a scale.
std::vector<Case> sample_queries(const AttentionProblem& p, const Sampler& sampler, uint64_t seed,
                                 double budget, bool whole_blocks) {
  std::vector<Case> cases;
  if (!p.broadcast_q) {
    // The forward's sample counts two products for each pair, the backward has five.
    for (const RowSample& sample : sample_rows(p, seed, budget / 2.5)) cases.push_back(sampler.rows(sample));
    return cases;
  }
  if (p.rows_q() == 0) return cases;
  PortableRandom random(seed);
  const double row_work = 5.0 * static_cast<double>(p.rows_k()) * p.head_dim;
  int64_t rows =
      std::clamp<int64_t>(static_cast<int64_t>(budget / row_work), 1, std::min(kSampleRows, p.rows_q()));
  int64_t first = static_cast<int64_t>(random.uniform() * static_cast<double>(p.rows_q() - rows + 1));
  if (whole_blocks) {
    first = first / kSampleRows * kSampleRows;
    rows = std::min(kSampleRows, p.rows_q() - first);
  }
  const int head = static_cast<int>(random.uniform() * p.heads_q);
  for (int b = 0; b < p.batch; ++b) cases.push_back(sampler.rows({b, head, first, rows}));
  return cases;
}

}  // namespace

KeyProblem key_problem(const AttentionProblem& whole, int sequence, int64_t first, int64_t count) {
  const int64_t len_q = whole.len_q(sequence);
  // Keys behind the sample; masks are aligned at the end, so leaving them out shifts every limit by as many.
  const int64_t behind = whole.len_k(sequence) - (first + count);
  const int64_t right = whole.causal ? 0 : whole.window_right;
  // Last rows that see none of the keys, because their left limit is behind them: leaving them out shifts the
  // limits back.
  const int64_t unseen =
      whole.window_left < 0 ? 0 : std::min(len_q, std::max<int64_t>(0, behind - whole.window_left));
  KeyProblem result;
  result.rows = len_q - unseen;
  AttentionProblem& part = result.problem;
  part.batch = part.heads_kv = 1;
  part.heads_q = whole.heads_q / whole.heads_kv;
  part.head_dim = whole.head_dim;
  part.offsets_q = {0, static_cast<int32_t>(result.rows)};
  part.offsets_k = {0, static_cast<int32_t>(count)};
  part.window_right = right < 0 ? -1 : static_cast<int>(right + behind - unseen);
  part.window_left = whole.window_left < 0 ? -1 : static_cast<int>(whole.window_left - behind + unseen);
  part.scale = whole.scale;
  return result;
}

CheckResult check_backward(const AttentionProblem& problem, const BackwardTensors& tensors,
                           const reference::BackwardOptions& numerics, uint64_t seed, double budget,
                           double min_sqnr_db) {
  CheckResult result;
  count_unwritten("dQ", tensors.dq, result.failures);
  count_unwritten("dK", tensors.dk, result.failures);
  count_unwritten("dV", tensors.dv, result.failures);
  const Sampler sampler(problem, tensors);
  std::vector<Case> keys = sample_keys(problem, sampler, seed, budget / 2);
  std::vector<Case> queries = sample_queries(problem, sampler, seed, budget / 2,
                                             numerics.ds_format == reference::DsFormat::kMxfp8Square);
  solve(keys, numerics);
  solve(queries, numerics);
  Comparison comparison(problem, tensors);
  for (const Case& one : keys) comparison.keys(one);
  result.samples = static_cast<int>(keys.size() + queries.size());
  for (const Case& one : keys) result.rows += one.problem.rows_k();
  if (problem.broadcast_q && !queries.empty()) {
    // The parts of the sum, and of the bound.
    Case& sum = queries.front();
    for (size_t i = 1; i < queries.size(); ++i)
      for (size_t d = 0; d < sum.want.dq.size(); ++d) {
        sum.want.dq[d] += queries[i].want.dq[d];
        sum.want.dq_bound[d] += queries[i].want.dq_bound[d];
      }
    queries.resize(1);
  }
  for (const Case& one : queries) comparison.rows(one);
  for (const Case& one : queries) result.rows += one.problem.rows_q();
  comparison.finish(min_sqnr_db, result);
  return result;
}

}  // namespace mxfa::tools
