// Reference gradients, a key/value head of a sequence at a time.
//
// Where the bounds come from.  A kernel differs from this file, given the same O and LSE, only in:
//  S, dP     one dot product is D / 16 fused sums of 16 products, each off by less than kFusedSumError of the
//            sum of the absolute addends (attention.cpp has the derivation).
//  P         exp2(fma(s, c, -l)), c = scale log2(e), l = LSE log2(e): the error of s, half an ulp of c, of l
//            and of the fma, and exp2 itself; below 2^-126 it is flushed.
//  delta     D FP32 products and sums.
//  dS        one subtraction and one product in FP32.
//  rounding  of P and dS is monotone: the kernel's value lies between the roundings of the smallest and the
//            largest possible value, so a flip near a tie is allowed exactly where one can happen.  With
//            square blocks the largest dS of the block may be off as well: every scale that it could have is
//            admitted.
//  dV, dK    fused sums over 16 query rows each, of all query heads; dQ: of 16 keys each within a tile of
//            keys, tiles then added in FP32 in any order, or each rounded to FP16 and added there: half an
//            ulp (2^-11; below 2^-14 2^-25) for each rounding and each addition, of at most the sum of the
//            absolute addends.
//  scale     of dQ and dK: one FP32 product.
#include "reference/attention_backward.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <numbers>
#include <stdexcept>
#include <thread>

#include "reference/formats.hpp"
#include "reference/quantize.hpp"

namespace mxfa::reference {
namespace {

constexpr int kFusedTerms = 16;
constexpr double kFusedSumError = (kFusedTerms + 1) * 0x1p-25 + 0x1p-23;
constexpr double kFp32Step = 0x1p-22;
constexpr double kExp2Error = 0x1p-22;  // PTX ISA, ex2.approx.f32
constexpr double kFlushed = 0x1p-126;
constexpr double kE4m3PScale = 256.0;  // the constant scale 2^-8 of P, stored as 256 P
constexpr int64_t kSquare = 32;

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

double round_p(double p, PFormat format) {
  switch (format) {
    case PFormat::kExact:
      return p;
    case PFormat::kBf16:
      return round_to_bf16(p);
    default:
      return round_to_e4m3(p * kE4m3PScale) / kE4m3PScale;
  }
}

// Largest distance from `rounded` that a monotone rounding of a number within `error` of `value` has.
template <class Round>
double rounding_spread(double value, double rounded, double error, const Round& round) {
  return std::max(round(value + error) - rounded, rounded - round(value - error));
}

// Rounding of one square block of dS: the scale 2^exponent, and those that it may have in a kernel.
struct SquareScale {
  int exponent = -127, lowest = -127, highest = -127;

  static int exponent_of(double amax) {
    return scale_byte(static_cast<float>(amax), ScalingMode::kRceil) - 127;
  }
  static double round(double value, int exponent) {
    return std::ldexp(round_to_e4m3(std::ldexp(value, -exponent)), exponent);
  }
  double spread(double value, double rounded, double error) const {
    // Some scale below the highest: half a step is at most 2^-4 of the value, or 2^-10 of the scale.
    if (highest - lowest > 1)
      return std::fabs(rounded - value) + error + (std::fabs(value) + error) * 0x1p-4 +
             std::ldexp(0x1p-10, highest);
    double largest = 0;
    for (int e = lowest; e <= highest; ++e)
      largest =
          std::max(largest, rounding_spread(value, rounded, error, [&](double x) { return round(x, e); }));
    return largest;
  }
};

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
      for (int64_t first = 0; first < p_.len_q(sequence); first += kSquare)
        queries(sequence, head_kv, head, first, std::min<int64_t>(kSquare, p_.len_q(sequence) - first));
  }

 private:
  // A number, and how far a kernel's may be off.
  struct Value {
    double value = 0, error = 0;
  };
  // What a query and a key have between them.
  struct Pair {
    Value p, ds;
  };
  struct Query {
    KeyInterval keys{0, 0};
    int64_t at_q = 0, at_o = 0;  // first elements of its rows
    std::vector<Pair> pairs;     // of `keys`
  };

  void queries(int sequence, int head_kv, int head, int64_t first, int64_t count) {
    for (int64_t i = 0; i < count; ++i) score(queries_[i], sequence, head_kv, head, first + i);
    const std::span<const Query> rows(queries_.data(), static_cast<size_t>(count));
    if (in_.options.ds_format == DsFormat::kMxfp8Square) find_scales(rows, p_.len_k(sequence));
    for (const Query& query : rows) add(query, sequence, head_kv);
  }

  void score(Query& query, int sequence, int head_kv, int head, int64_t row) {
    query.pairs.clear();
    query.keys = visible_keys(p_, sequence, row);
    query.at_q = ((p_.first_q(sequence) + row) * p_.heads_q + head) * dim_;
    query.at_o = ((p_.first_o(sequence) + row) * p_.heads_q + head) * dim_;
    if (query.keys.empty()) return;
    const double *q = &in_.q[query.at_q], *d_o = &in_.d_o[query.at_o], *o = &in_.o[query.at_o];
    const double lse = in_.lse[head * p_.rows_o() + p_.first_o(sequence) + row];
    if (lse == -std::numeric_limits<double>::infinity()) {
      query.keys = {0, 0};
      return;
    }
    double absolute = 0;
    const double delta = dot(o, d_o, dim_, &absolute);
    const double delta_error = absolute * (dim_ + 1) * 0x1p-24;
    const double c = p_.scale * std::numbers::log2e, l = lse * std::numbers::log2e;
    const double fused = kFusedSumError * ((dim_ + kFusedTerms - 1) / kFusedTerms);
    // E4M3: what is exponentiated is x + 8.
    const double shift = in_.options.p_format == PFormat::kE4m3Constant ? std::log2(kE4m3PScale) : 0;
    for (int64_t j = query.keys.first; j < query.keys.last; ++j) {
      const int64_t row_k = ((p_.offsets_k[sequence] + j) * p_.heads_kv + head_kv) * dim_;
      double s_absolute = 0, dp_absolute = 0;
      const double x = dot(q, &in_.k[row_k], dim_, &s_absolute) * c - l;
      const double dp = dot(d_o, &in_.v[row_k], dim_, &dp_absolute);
      Pair pair{{std::exp2(x)}, {}};
      double difference_error = 0;
      if (in_.options.bounds) {
        const double x_error =
            fused * s_absolute * std::fabs(c) + kFp32Step * (std::fabs(x) + 2 * std::fabs(l) + shift);
        pair.p.error = pair.p.value * (std::exp2(x_error) * (1 + kExp2Error) - 1) + kFlushed;
        difference_error = fused * dp_absolute + delta_error + kFp32Step * (std::fabs(dp) + std::fabs(delta));
      }
      pair.ds.value = pair.p.value * (dp - delta);
      if (in_.options.bounds)
        pair.ds.error = pair.p.error * (std::fabs(dp - delta) + difference_error) +
                        pair.p.value * difference_error + kFp32Step * std::fabs(pair.ds.value);
      query.pairs.push_back(pair);
    }
  }

  double p_spread(const Value& p, double rounded) const {
    return rounding_spread(p.value, rounded, p.error,
                           [&](double x) { return round_p(x, in_.options.p_format); });
  }

  // Of the blocks of the sequence's keys and these queries.
  void find_scales(std::span<const Query> rows, int64_t len_k) {
    scales_.assign(static_cast<size_t>((len_k + kSquare - 1) / kSquare), {});
    for (size_t block = 0; block < scales_.size(); ++block) {
      double amax = 0, least = 0, most = 0;
      for (const Query& query : rows)
        for (int64_t j = std::max(query.keys.first, int64_t(block) * kSquare);
             j < std::min(query.keys.last, int64_t(block + 1) * kSquare); ++j) {
          const Value& ds = query.pairs[j - query.keys.first].ds;
          amax = std::max(amax, std::fabs(ds.value));
          least = std::max(least, std::fabs(ds.value) - ds.error);
          most = std::max(most, std::fabs(ds.value) + ds.error);
        }
      scales_[block] = {SquareScale::exponent_of(amax), SquareScale::exponent_of(least),
                        SquareScale::exponent_of(most)};
    }
  }

  void add(const Query& query, int sequence, int head_kv) {
    const double *q = &in_.q[query.at_q], *d_o = &in_.d_o[query.at_o];
    const bool bounds = in_.options.bounds;
    if (bounds && !query.keys.empty())
      for (int d = 0; d < dim_; ++d) out_.dq_bound[query.at_q + d] += dq_subnormal_;
    const auto bound = [&](std::vector<double>& of, int64_t at) { return bounds ? &of[at] : nullptr; };
    for (int64_t j = query.keys.first; j < query.keys.last; ++j) {
      const int64_t row_k = ((p_.offsets_k[sequence] + j) * p_.heads_kv + head_kv) * dim_;
      const Pair& pair = query.pairs[j - query.keys.first];
      const double p = round_p(pair.p.value, in_.options.p_format);
      const Value ds = round_ds(pair.ds, j);
      accumulate(p, bounds ? p_spread(pair.p, p) : 0, sums_over_rows_, d_o, &out_.dv[row_k],
                 bound(out_.dv_bound, row_k), dim_);
      accumulate(ds.value, ds.error, sums_over_rows_, q, &out_.dk[row_k], bound(out_.dk_bound, row_k), dim_);
      accumulate(ds.value, ds.error, sums_over_keys_, &in_.k[row_k], &out_.dq[query.at_q],
                 bound(out_.dq_bound, query.at_q), dim_);
    }
  }

  // dS as an operand: rounded, and how far the rounding of a kernel may be from that.
  Value round_ds(const Value& ds, int64_t key) const {
    if (in_.options.ds_format == DsFormat::kExact) return ds;
    const bool square = in_.options.ds_format == DsFormat::kMxfp8Square;
    const double rounded =
        square ? SquareScale::round(ds.value, scales_[key / kSquare].exponent) : round_to_bf16(ds.value);
    if (!in_.options.bounds) return {rounded};
    return {rounded, square ? scales_[key / kSquare].spread(ds.value, rounded, ds.error)
                            : rounding_spread(ds.value, rounded, ds.error, round_to_bf16)};
  }

  const Inputs& in_;
  Gradients& out_;
  const AttentionProblem& p_;
  const int dim_;
  double sums_over_rows_ = 0, sums_over_keys_ = 0, dq_subnormal_ = 0;
  std::array<Query, kSquare> queries_;
  std::vector<SquareScale> scales_;  // of the blocks of keys
};

void check(const Inputs& in) {
  const AttentionProblem& p = in.problem;
  const auto size = [&](int64_t rows, int heads) { return static_cast<size_t>(rows * heads * p.head_dim); };
  if (in.options.p_format == PFormat::kE4m3Dynamic)
    throw std::invalid_argument("p_format: no backward has a dynamic scale of P");
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

BackwardOptions hopper_backward_numerics(std::optional<int> dq_fp16) {
  BackwardOptions options;
  options.p_format = PFormat::kBf16;
  options.ds_format = DsFormat::kBf16;
  options.bounds = true;
  options.dq_fp16 = dq_fp16;
  return options;
}

BackwardOptions hopper_mxfp8_backward_numerics(bool square_ds, std::optional<int> dq_fp16) {
  BackwardOptions options;
  options.p_format = PFormat::kE4m3Constant;
  options.ds_format = square_ds ? DsFormat::kMxfp8Square : DsFormat::kBf16;
  options.bounds = true;
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
