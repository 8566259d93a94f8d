// Reference gradients, a key/value head of a sequence at a time.
//
// Where the bounds come from.  A kernel differs from this file, given the same O and LSE, only in:
//  S, dP     one dot product is D / 16 fused sums of 16 products, each off by less than kFusedSumError of the
//            sum of the absolute addends (attention.cpp has the derivation).
//  P         exp2(fma(s, c, -l)), c = scale log2(e), l = LSE log2(e): the error of s, half an ulp of c, of l
//            and of the fma, and exp2 itself; below 2^-126 it is flushed.
//  delta     D FP32 products and sums.
//  dS        one subtraction and one product in FP32.
//  rounding  of P and dS to BF16 is monotone: the kernel's value lies between the roundings of the smallest
//            and the largest possible value, so a flip near a tie is allowed exactly where one can happen.
//  dV, dK    fused sums over 16 query rows each, of all query heads; dQ: of 16 keys each within a tile of
//            keys, tiles then added in FP32 in any order, or each rounded to FP16 and added there: half an
//            ulp (2^-11; below 2^-14 2^-25) for each rounding and each addition, of at most the sum of the
//            absolute addends.
//  scale     of dQ and dK: one FP32 product.
#include "reference/attention_backward.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <numbers>
#include <stdexcept>
#include <thread>

#include "reference/formats.hpp"

namespace mxfa::reference {
namespace {

constexpr int kFusedTerms = 16;
constexpr double kFusedSumError = (kFusedTerms + 1) * 0x1p-25 + 0x1p-23;
constexpr double kFp32Step = 0x1p-22;
constexpr double kExp2Error = 0x1p-22;  // PTX ISA, ex2.approx.f32
constexpr double kFlushed = 0x1p-126;

struct Inputs {
  const AttentionProblem& problem;
  std::span<const double> q, k, v, d_o, o, lse;
  const BackwardOptions& options;
};

double dot(const double* a, const double* b, int n, double* absolute) {
  double sum = 0, magnitude = 0;
  for (int i = 0; i < n; ++i) {
    const double product = a[i] * b[i];
    sum += product;
    magnitude += std::fabs(product);
  }
  *absolute = magnitude;
  return sum;
}

// The error that rounding adds when the value itself may be off by `error`.
double rounding_spread(double value, double rounded, double error) {
  return std::max(round_to_bf16(value + error) - rounded, rounded - round_to_bf16(value - error));
}

// to += factor from; and what that adds to the bound: `spread` is the error of factor, `relative` that of the
// sums.
void accumulate(double factor, double spread, double relative, const double* from, double* to, double* bound,
                int n) {
  for (int d = 0; d < n; ++d) to[d] += factor * from[d];
  if (!bound) return;
  const double error = spread + relative * (std::fabs(factor) + spread);
  for (int d = 0; d < n; ++d) bound[d] += error * std::fabs(from[d]);
}

class KeyHead {
 public:
  KeyHead(const Inputs& in, Gradients& out) : in_(in), out_(out), p_(in.problem), dim_(p_.head_dim) {}

  void run(int sequence, int head_kv) {
    const int group = p_.heads_q / p_.heads_kv;
    const double rows = static_cast<double>(p_.len_q(sequence)),
                 keys = static_cast<double>(p_.len_k(sequence));
    // Fused sums an element of dV and dK goes through: 16 rows each, tiles of rows padded.
    sums_over_rows_ = kFusedSumError * (group * (std::ceil(rows / kFusedTerms) + 8) + 1);
    // Of dQ: those of a tile of keys, then FP32 additions of tiles; with broadcast_q of the whole batch.
    const double tiles = p_.broadcast_q ? static_cast<double>(p_.rows_k()) / 128 + p_.batch : keys / 128 + 1;
    const double additions = tiles + in_.options.more_tiles + 1;
    sums_over_keys_ = kFusedSumError * 9 + (additions + 16) * 0x1p-24;
    if (in_.options.dq_fp16) {
      // One more for what the roundings themselves add to the sum.
      sums_over_keys_ += (additions + 2) * 0x1p-11;
      dq_subnormal_ = (additions + 1) * std::ldexp(0x1p-25, -*in_.options.dq_fp16);
    }
    for (int head = head_kv * group; head < (head_kv + 1) * group; ++head)
      for (int64_t row = 0; row < p_.len_q(sequence); ++row) query(sequence, head_kv, head, row);
  }

 private:
  void query(int sequence, int head_kv, int head, int64_t row) {
    const KeyInterval keys = visible_keys(p_, sequence, row);
    if (keys.empty()) return;
    const int64_t row_q = (p_.first_q(sequence) + row) * p_.heads_q + head;
    const int64_t row_o = (p_.first_o(sequence) + row) * p_.heads_q + head;
    const double *q = &in_.q[row_q * dim_], *d_o = &in_.d_o[row_o * dim_], *o = &in_.o[row_o * dim_];
    const double lse = in_.lse[head * p_.rows_o() + p_.first_o(sequence) + row];
    if (lse == -std::numeric_limits<double>::infinity()) return;
    double absolute = 0;
    const double delta = dot(o, d_o, dim_, &absolute);
    const double delta_error = absolute * (dim_ + 1) * 0x1p-24;
    const double c = p_.scale * std::numbers::log2e, l = lse * std::numbers::log2e;
    const double fused = kFusedSumError * ((dim_ + kFusedTerms - 1) / kFusedTerms);
    if (in_.options.bounds)
      for (int d = 0; d < dim_; ++d) out_.dq_bound[row_q * dim_ + d] += dq_subnormal_;
    for (int64_t j = keys.first; j < keys.last; ++j) {
      const int64_t row_k = ((p_.offsets_k[sequence] + j) * p_.heads_kv + head_kv) * dim_;
      double s_absolute = 0, dp_absolute = 0;
      const double x = dot(q, &in_.k[row_k], dim_, &s_absolute) * c - l;
      const double dp = dot(d_o, &in_.v[row_k], dim_, &dp_absolute);
      const double probability = std::exp2(x);
      const double p = in_.options.round_bf16 ? round_to_bf16(probability) : probability;
      double p_spread = 0, p_error = 0, difference_error = 0;
      if (in_.options.bounds) {
        const double x_error =
            fused * s_absolute * std::fabs(c) + kFp32Step * (std::fabs(x) + 2 * std::fabs(l));
        p_error = probability * (std::exp2(x_error) * (1 + kExp2Error) - 1) + kFlushed;
        difference_error = fused * dp_absolute + delta_error + kFp32Step * (std::fabs(dp) + std::fabs(delta));
        p_spread = in_.options.round_bf16 ? rounding_spread(probability, p, p_error) : p_error;
      }
      // dS as an operand, and its spread.
      const auto operand = [&](bool rounded_p) {
        const double p_in_ds = rounded_p ? p : probability, ds = p_in_ds * (dp - delta);
        const double s = in_.options.round_bf16 ? round_to_bf16(ds) : ds;
        if (!in_.options.bounds) return std::pair{s, 0.0};
        const double s_error = (rounded_p ? p_spread : p_error) * (std::fabs(dp - delta) + difference_error) +
                               p_in_ds * difference_error + kFp32Step * std::fabs(ds);
        return std::pair{s, in_.options.round_bf16 ? rounding_spread(ds, s, s_error) : s_error};
      };
      const auto [s, s_spread] = operand(in_.options.rounded_p_in_ds);
      const auto [s_dq, s_dq_spread] =
          in_.options.rounded_p_in_ds && in_.options.exact_p_in_dq ? operand(false) : std::pair{s, s_spread};
      const bool bounds = in_.options.bounds;
      const auto bound = [&](std::vector<double>& of, int64_t at) { return bounds ? &of[at] : nullptr; };
      accumulate(p, p_spread, sums_over_rows_, d_o, &out_.dv[row_k], bound(out_.dv_bound, row_k), dim_);
      accumulate(s, s_spread, sums_over_rows_, q, &out_.dk[row_k], bound(out_.dk_bound, row_k), dim_);
      accumulate(s_dq, s_dq_spread, sums_over_keys_, &in_.k[row_k], &out_.dq[row_q * dim_],
                 bound(out_.dq_bound, row_q * dim_), dim_);
    }
  }

  const Inputs& in_;
  Gradients& out_;
  const AttentionProblem& p_;
  const int dim_;
  double sums_over_rows_ = 0, sums_over_keys_ = 0, dq_subnormal_ = 0;
};

void check(const Inputs& in) {
  const AttentionProblem& p = in.problem;
  const auto size = [&](int64_t rows, int heads) { return static_cast<size_t>(rows * heads * p.head_dim); };
  if (in.q.size() < size(p.rows_q(), p.heads_q) || in.k.size() < size(p.rows_k(), p.heads_kv) ||
      in.v.size() < size(p.rows_k(), p.heads_kv) || in.d_o.size() < size(p.rows_o(), p.heads_q) ||
      in.o.size() < size(p.rows_o(), p.heads_q) ||
      in.lse.size() < static_cast<size_t>(p.rows_o() * p.heads_q))
    throw std::invalid_argument("an operand holds fewer rows than the offsets cover");
}

void scale_all(std::vector<double>& values, std::vector<double>& bound, double scale) {
  // A bound that is not 0 stays so with scale 0: the zero may have either sign then.
  for (size_t i = 0; i < bound.size(); ++i)
    if (bound[i] != 0)
      bound[i] = bound[i] * std::fabs(scale) + kFp32Step * std::fabs(values[i] * scale) + kFlushed;
  for (double& value : values) value *= scale;
}

}  // namespace

BackwardOptions hopper_backward_numerics(int head_dim, std::optional<int> dq_fp16, bool split) {
  BackwardOptions options;
  options.round_bf16 = options.bounds = true;
  options.rounded_p_in_ds = head_dim == 64;
  options.exact_p_in_dq = split;
  options.dq_fp16 = dq_fp16;
  return options;
}

Gradients attention_backward(const AttentionProblem& problem, std::span<const double> q,
                             std::span<const double> k, std::span<const double> v,
                             std::span<const double> d_o, std::span<const double> o,
                             std::span<const double> lse, const BackwardOptions& options) {
  AttentionResult forward;
  if (o.empty() && lse.empty()) {
    forward = attention_forward(problem, q, k, v, {.threads = options.threads});
    o = forward.o, lse = forward.lse;
  }
  const Inputs in{problem, q, k, v, d_o, o, lse, options};
  check(in);
  Gradients out;
  out.dq.resize(problem.rows_q() * problem.heads_q * problem.head_dim);
  out.dk.resize(problem.rows_k() * problem.heads_kv * problem.head_dim);
  out.dv.resize(out.dk.size());
  if (options.bounds) {
    out.dq_bound.resize(out.dq.size());
    out.dk_bound.resize(out.dk.size());
    out.dv_bound.resize(out.dv.size());
  }
  // A task writes nothing that another writes: with broadcast_q sequences share dQ.
  struct Task {
    int first, last, head_kv;  // sequences
  };
  std::vector<Task> tasks;
  for (int head = 0; head < problem.heads_kv; ++head) {
    if (problem.broadcast_q) {
      tasks.push_back({0, problem.batch, head});
    } else {
      for (int b = 0; b < problem.batch; ++b) tasks.push_back({b, b + 1, head});
    }
  }
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    KeyHead one(in, out);
    for (size_t i; (i = next.fetch_add(1)) < tasks.size();)
      for (int b = tasks[i].first; b < tasks[i].last; ++b) one.run(b, tasks[i].head_kv);
  };
  {
    const unsigned wanted = options.threads > 0 ? options.threads : std::thread::hardware_concurrency();
    std::vector<std::jthread> threads;
    for (unsigned t = 1; t < std::min<size_t>(wanted, tasks.size()); ++t) threads.emplace_back(work);
    work();
  }
  scale_all(out.dq, out.dq_bound, problem.scale);
  scale_all(out.dk, out.dk_bound, problem.scale);
  return out;
}

}  // namespace mxfa::reference
