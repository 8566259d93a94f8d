// Reference attention, a row at a time.
//
// Where o_bound comes from.  A kernel differs from this file only in:
//  S      one dot product is `D / K` fused sums of K products.  A fused sum aligns its K+1 addends to the
//         largest, drops what lies below 25 fractional bits and truncates the result to FP32 (the public
//         model of the tensor core), so it is off by less than (K+1) 2^-25 + 2^-23 of the sum of the absolute
//         addends; kFusedSumError.  The absolute sums A_j = sum |q k| are computed here.
//  P      exp2(fma(s, c, -m c)): the errors of s_j and of m, half an ulp of c, of m c and of the fma
//  (kFp32Step
//         times the magnitudes), and exp2 itself.  A rounding of P is monotone, so the kernel's P lies
//         between the roundings of the smallest and the largest possible value: a flip near a tie is allowed
//         exactly where one can happen.
//  m      with kBlockWalk a comparison with the threshold can go the other way when it is closer than the
//  error
//         of its sides.  Such a row is undecided: from there on P may be rounded anywhere within half a step.
//  sum    len_k FP32 additions of positive numbers, 2^-24 each.
//  PV     fused sums over the keys, as for S; a rescaling costs the error of its factor.
//  1/sum  an approximate reciprocal and two products: kFp32Step.
#include "reference/attention.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <numbers>
#include <stdexcept>
#include <string>
#include <thread>

#include "reference/formats.hpp"

namespace mxfa::reference {
namespace {

constexpr int kKeyBlock = 128;
constexpr int kScaleGroup = 32;  // keys that share a dynamic scale of P
constexpr int kRowsPerTask = 16;
constexpr double kFp32Step = 0x1p-22;
constexpr double kE4m3PScale = 256.0;  // the constant scale 2^-8 of P, stored as 256 P
constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool is_e4m3(PFormat format) { return format == PFormat::kE4m3Constant || format == PFormat::kE4m3Dynamic; }
// K of one MMA instruction: 32 bytes of operand.
int fused_terms(const AttentionOptions& options) {
  return options.fused_terms > 0 ? options.fused_terms : is_e4m3(options.p_format) ? 32 : 16;
}
double fused_sum_error(const AttentionOptions& options) {
  return (fused_terms(options) + 1) * 0x1p-25 + 0x1p-23;
}

// `scale`: what a stored E4M3 value is multiplied with.
double round_p(double p, PFormat format, double scale) {
  if (format == PFormat::kBf16) return round_to_bf16(p);
  if (is_e4m3(format)) return round_to_e4m3(p / scale) * scale;
  return p;
}
// Distance between two roundings of one p under different reference points or scales: each within half a
// step.
double rounding_freedom(double p, PFormat format, double scale) {
  if (format == PFormat::kBf16) return p * 0x1p-8;
  // Normal: 2 * 2^-4 of p.  Subnormal: steps of 2^-9 of p / scale, doubled because m may move by up to a
  // binade, or the scale by one.
  if (is_e4m3(format)) return p * 0x1p-3 + 2 * 0x1p-9 * scale;
  return 0;
}

// The smallest power of two, not below 2^-127, that brings `largest` to 448 or less.
double dynamic_p_scale(double largest) {
  int exponent = 0;
  if (std::frexp(largest / kE4m3Max, &exponent) == 0.5) --exponent;
  return std::ldexp(1.0, std::max(exponent, -127));
}

double threshold_of(const AttentionOptions& options) {
  if (options.threshold_log2 >= 0) return options.threshold_log2;
  return options.p_format == PFormat::kE4m3Constant ? std::log2(kE4m3Max / kE4m3PScale) : 8.0;
}

// Four accumulators, so that the sum is not one chain of additions.
struct Dot {
  double sum, absolute;
};
Dot dot(const double* a, const double* b, int n) {
  double sum[4] = {}, absolute[4] = {};
  for (int i = 0; i < n; i += 4)
    for (int lane = 0; lane < 4; ++lane) {
      const double product = a[i + lane] * b[i + lane];
      sum[lane] += product;
      absolute[lane] += std::fabs(product);
    }
  return {(sum[0] + sum[1]) + (sum[2] + sum[3]), (absolute[0] + absolute[1]) + (absolute[2] + absolute[3])};
}

struct Inputs {
  const AttentionProblem& problem;
  std::span<const double> q, k, v;
  const AttentionOptions& options;
};

class Row {
 public:
  Row(const Inputs& in, AttentionResult& out) : in_(in), out_(out), dim_(in.problem.head_dim) {
    o_.resize(dim_);
    spread_.resize(dim_);
    absolute_.resize(dim_);
  }

  void run(int sequence, int head, int64_t row) {
    const AttentionProblem& p = in_.problem;
    const int head_kv = head / (p.heads_q / p.heads_kv);
    const int64_t out_row = p.first_o(sequence) + row;
    double* o = &out_.o[(out_row * p.heads_q + head) * dim_];
    double& lse = out_.lse[head * p.rows_o() + out_row];
    const KeyInterval keys = visible_keys(p, sequence, row);
    if (keys.empty()) {
      lse = -kInfinity;  // o and the bounds stay 0
      return;
    }
    scores(&in_.q[((p.first_q(sequence) + row) * p.heads_q + head) * dim_], sequence, head_kv, keys);
    accumulate(sequence, head_kv, keys);
    for (int d = 0; d < dim_; ++d) o[d] = o_[d] / sum_;
    lse = (maximum_ + std::log2(sum_)) * std::numbers::ln2;
    if (in_.options.bounds) bounds(o, lse, out_row, head, keys);
  }

 private:
  const double* key_row(std::span<const double> tensor, int sequence, int64_t key, int head_kv) const {
    const int64_t token = in_.problem.offsets_k[sequence] + key;
    return &tensor[(token * in_.problem.heads_kv + head_kv) * dim_];
  }

  // x_[j] = s_j c; error_[j] = how far a kernel's s_j c may be off.
  void scores(const double* q, int sequence, int head_kv, KeyInterval keys) {
    const double c = in_.problem.scale * std::numbers::log2e;
    const double relative = fused_sum_error(in_.options) * ((dim_ + 15) / fused_terms(in_.options));
    x_.resize(keys.last);
    error_.resize(keys.last);
    for (int64_t j = keys.first; j < keys.last; ++j) {
      const Dot product = dot(q, key_row(in_.k, sequence, j, head_kv), dim_);
      x_[j] = product.sum * c;
      error_[j] = relative * product.absolute * std::fabs(c);
    }
  }

  void accumulate(int sequence, int head_kv, KeyInterval keys) {
    std::fill(o_.begin(), o_.end(), 0.0);
    std::fill(spread_.begin(), spread_.end(), 0.0);
    std::fill(absolute_.begin(), absolute_.end(), 0.0);
    sum_ = sum_spread_ = largest_error_ = 0;
    maximum_ = -kInfinity;
    undecided_ = false;
    if (in_.options.row_maximum != RowMaximum::kBlockWalk) {
      block(sequence, head_kv, keys);
      return;
    }
    for (int64_t n = (keys.last - 1) / kKeyBlock; n >= keys.first / kKeyBlock; --n)
      block(sequence, head_kv,
            {std::max(keys.first, n * kKeyBlock), std::min(keys.last, (n + 1) * kKeyBlock)});
  }

  // The scale of P of the keys of one group, and whether an error of the largest p could change it.
  void find_p_scale(KeyInterval group) {
    p_scale_ = 1 / kE4m3PScale;
    scale_undecided_ = false;
    if (in_.options.p_format != PFormat::kE4m3Dynamic) return;
    const double largest = *std::max_element(&x_[group.first], &x_[group.last - 1] + 1);
    const double p = std::exp2(largest - maximum_);
    const double relative =
        std::exp2(difference_error(largest, largest_error_)) * (1 + in_.options.exp2_error) - 1;
    p_scale_ = dynamic_p_scale(p);
    scale_undecided_ =
        dynamic_p_scale(p * (1 + relative)) != dynamic_p_scale(p * (1 - std::min(relative, 1.0)));
  }

  void block(int sequence, int head_kv, KeyInterval keys) {
    const double block_maximum = *std::max_element(&x_[keys.first], &x_[keys.last - 1] + 1);
    largest_error_ =
        std::max(largest_error_, *std::max_element(&error_[keys.first], &error_[keys.last - 1] + 1));
    move_maximum(block_maximum);
    for (int64_t j = keys.first; j < keys.last; ++j) {
      if (j == keys.first || j % kScaleGroup == 0)
        find_p_scale({j, std::min(keys.last, (j / kScaleGroup + 1) * kScaleGroup)});
      const double p = std::exp2(x_[j] - maximum_);
      const bool unknown = in_.options.row_maximum == RowMaximum::kUnknown;
      const double rounded = unknown ? p : round_p(p, in_.options.p_format, p_scale_);
      const double* v = key_row(in_.v, sequence, j, head_kv);
      sum_ += p;
      for (int d = 0; d < dim_; ++d) o_[d] += rounded * v[d];
      if (in_.options.bounds) spread_of(j, p, rounded, v);
    }
  }

  void move_maximum(double block_maximum) {
    if (maximum_ == -kInfinity) {
      maximum_ = block_maximum;
      return;
    }
    const double threshold = threshold_of(in_.options);
    const double growth = block_maximum - maximum_;
    const double doubt = difference_error(block_maximum, largest_error_);
    if (std::fabs(growth - threshold) <= doubt) undecided_ = true;
    if (growth <= threshold) return;
    const double factor = std::exp2(-growth);
    const double factor_error = doubt * std::numbers::ln2 + in_.options.exp2_error;
    sum_spread_ = factor * (sum_spread_ + factor_error * sum_);
    sum_ *= factor;
    for (int d = 0; d < dim_; ++d) {
      o_[d] *= factor;
      spread_[d] = factor * (spread_[d] + factor_error * absolute_[d]);
      absolute_[d] *= factor;
    }
    maximum_ = block_maximum;
  }

  // Of x - m in FP32: both scores, and the roundings of c, m c and the fma.
  double difference_error(double x, double error) const {
    return error + largest_error_ + kFp32Step * (std::fabs(x) + std::fabs(maximum_) + 8);
  }

  // How far apart the kernel's P_j and this one may be, and what that does to the sums.
  void spread_of(int64_t j, double p, double rounded, const double* v) {
    const PFormat format = in_.options.p_format;
    const double relative = std::exp2(difference_error(x_[j], error_[j])) * (1 + in_.options.exp2_error) - 1;
    double spread = std::max(round_p(p * (1 + relative), format, p_scale_) - rounded,
                             rounded - round_p(p * (1 - std::min(relative, 1.0)), format, p_scale_));
    // `rounded` is p itself; the kernel's rounding, under any reference point, is within half a step of its
    // own p.
    if (in_.options.row_maximum == RowMaximum::kUnknown)
      spread = relative * p + rounding_freedom(p * (1 + relative), format, p_scale_);
    if (undecided_ || scale_undecided_)
      spread = std::max(spread, rounding_freedom(p, format, p_scale_) + relative * p);
    sum_spread_ += relative * p;
    for (int d = 0; d < dim_; ++d) {
      const double magnitude = std::fabs(v[d]);
      spread_[d] += spread * magnitude;
      absolute_[d] += (rounded + spread) * magnitude;
    }
  }

  void bounds(const double* o, double lse, int64_t out_row, int head, KeyInterval keys) {
    const AttentionProblem& p = in_.problem;
    const double instructions = std::ceil(static_cast<double>(keys.last) / fused_terms(in_.options));
    const double product_error = fused_sum_error(in_.options) * (instructions + 1);
    const double sum_error = sum_spread_ / sum_ + static_cast<double>(keys.last) * 0x1p-24;
    double* bound = &out_.o_bound[(out_row * p.heads_q + head) * dim_];
    for (int d = 0; d < dim_; ++d)
      bound[d] =
          (spread_[d] + product_error * absolute_[d]) / sum_ + std::fabs(o[d]) * (sum_error + kFp32Step);
    out_.lse_bound[head * p.rows_o() + out_row] =
        sum_error + (largest_error_ + kFp32Step * (std::fabs(maximum_) + 8)) * std::numbers::ln2 +
        kFp32Step * std::fabs(lse);
    if (undecided_) std::atomic_ref(out_.undecided_rows).fetch_add(1, std::memory_order_relaxed);
  }

  const Inputs& in_;
  AttentionResult& out_;
  const int dim_;
  std::vector<double> x_, error_;
  std::vector<double> o_, spread_, absolute_;  // sum P v; its error so far; sum P |v|
  double sum_ = 0, sum_spread_ = 0, maximum_ = 0, largest_error_ = 0;
  double p_scale_ = 1;
  bool undecided_ = false, scale_undecided_ = false;
};

void check(const Inputs& in) {
  const AttentionProblem& p = in.problem;
  const auto size = [&](int64_t rows, int heads) { return static_cast<size_t>(rows * heads * p.head_dim); };
  if (p.batch < 0 || p.offsets_k.size() != static_cast<size_t>(p.batch) + 1 ||
      p.offsets_q.size() != (p.broadcast_q ? 2 : static_cast<size_t>(p.batch) + 1))
    throw std::invalid_argument("offsets must have batch + 1 entries (offsets_q 2 with broadcast_q)");
  if (p.heads_kv <= 0 || p.heads_q % p.heads_kv != 0)
    throw std::invalid_argument("heads_q must be a multiple of heads_kv");
  if (p.head_dim % 4 != 0) throw std::invalid_argument("head_dim must be a multiple of 4");
  if (in.q.size() < size(p.rows_q(), p.heads_q) || in.k.size() < size(p.rows_k(), p.heads_kv) ||
      in.v.size() < size(p.rows_k(), p.heads_kv))
    throw std::invalid_argument("q, k or v holds fewer rows than the offsets cover");
}

struct Task {
  int sequence, head;
  int64_t first_row, last_row;
};

std::vector<Task> list_tasks(const AttentionProblem& p) {
  std::vector<Task> tasks;
  for (int b = 0; b < p.batch; ++b)
    for (int head = 0; head < p.heads_q; ++head)
      for (int64_t row = 0; row < p.len_q(b); row += kRowsPerTask)
        tasks.push_back({b, head, row, std::min<int64_t>(row + kRowsPerTask, p.len_q(b))});
  return tasks;
}

}  // namespace

AttentionOptions kernel_numerics(bool mxfp8, bool dynamic_p) {
  AttentionOptions options;
  options.p_format = !mxfp8 ? PFormat::kBf16 : dynamic_p ? PFormat::kE4m3Dynamic : PFormat::kE4m3Constant;
  options.row_maximum = RowMaximum::kBlockWalk;
  options.bounds = true;
  // Part of the exponentials comes from a cubic minimax polynomial: 8.8e-5, and a few FP32 roundings.
  options.exp2_error = 8.9e-5;
  return options;
}

AttentionOptions hopper_kernel_numerics(bool mxfp8, bool dynamic_p) {
  AttentionOptions options;
  if (mxfp8) {
    options = kernel_numerics(mxfp8, dynamic_p);
    options.fused_terms = 16;
    options.exp2_error = AttentionOptions{}.exp2_error;
    return options;
  }
  options.p_format = PFormat::kBf16;
  options.row_maximum = RowMaximum::kUnknown;
  options.bounds = true;
  return options;  // every exponential is ex2.approx
}

KeyInterval visible_keys(const AttentionProblem& problem, int sequence, int64_t row) {
  const int64_t len_k = problem.len_k(sequence);
  const int64_t diagonal = row + len_k - problem.len_q(sequence);
  int64_t right = problem.window_right < 0 ? len_k - 1 : diagonal + problem.window_right;
  if (problem.causal) right = std::min(right, diagonal);
  const int64_t left = problem.window_left < 0 ? 0 : diagonal - problem.window_left;
  return {std::max<int64_t>(left, 0), std::min(right + 1, len_k)};
}

AttentionResult attention_forward(const AttentionProblem& problem, std::span<const double> q,
                                  std::span<const double> k, std::span<const double> v,
                                  const AttentionOptions& options) {
  const Inputs in{problem, q, k, v, options};
  check(in);
  AttentionResult out;
  out.o.resize(problem.rows_o() * problem.heads_q * problem.head_dim);
  out.lse.resize(problem.rows_o() * problem.heads_q);
  if (options.bounds) {
    out.o_bound.resize(out.o.size());
    out.lse_bound.resize(out.lse.size());
  }
  const std::vector<Task> tasks = list_tasks(problem);
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    Row row(in, out);
    for (size_t i; (i = next.fetch_add(1)) < tasks.size();)
      for (int64_t r = tasks[i].first_row; r < tasks[i].last_row; ++r)
        row.run(tasks[i].sequence, tasks[i].head, r);
  };
  const unsigned wanted = options.threads > 0 ? options.threads : std::thread::hardware_concurrency();
  std::vector<std::jthread> threads;
  for (unsigned t = 1; t < std::min<size_t>(wanted, tasks.size()); ++t) threads.emplace_back(work);
  work();
  return out;
}

}  // namespace mxfa::reference
