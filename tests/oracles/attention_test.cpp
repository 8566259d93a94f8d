// Reference attention against what can be said without computing a softmax the same way: closed forms,
// symmetries, and direct sums over an explicit mask.
#include "reference/attention.hpp"

#include <cmath>
#include <limits>

#include "reference/compare.hpp"
#include "reference/formats.hpp"
#include "reference/random.hpp"
#include "support/catch.hpp"

using namespace mxfa::reference;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Double-precision sums of a few hundred terms of order one.
constexpr double kRounding = 1e-12;

AttentionProblem self_attention(std::vector<int32_t> offsets, int heads, int head_dim) {
  AttentionProblem p;
  p.batch = static_cast<int>(offsets.size()) - 1;
  p.heads_q = p.heads_kv = heads;
  p.head_dim = head_dim;
  p.offsets_q = p.offsets_k = std::move(offsets);
  p.scale = 1 / std::sqrt(head_dim);
  return p;
}

struct Tensors {
  std::vector<double> q, k, v;
};
Tensors random_tensors(const AttentionProblem& p, DataDistribution distribution = DataDistribution::kNormal) {
  const auto make = [&](Operand operand, int64_t rows, int heads) {
    return bf16_to_double(random_tensor(distribution, 1.0, 11, operand, rows, heads, p.head_dim));
  };
  return {make(Operand::kQ, p.rows_q(), p.heads_q), make(Operand::kK, p.rows_k(), p.heads_kv),
          make(Operand::kV, p.rows_k(), p.heads_kv)};
}
AttentionResult run(const AttentionProblem& p, const Tensors& t, const AttentionOptions& options = {}) {
  return attention_forward(p, t.q, t.k, t.v, options);
}

// The definition with the mask as a predicate, one sum of exponentials without a maximum (scores are small).
AttentionResult direct(const AttentionProblem& p, const Tensors& t) {
  AttentionResult out;
  out.o.resize(p.rows_o() * p.heads_q * p.head_dim);
  out.lse.resize(p.rows_o() * p.heads_q);
  const auto at = [&](int64_t row, int heads, int head, int d) {
    return (row * heads + head) * p.head_dim + d;
  };
  for (int b = 0; b < p.batch; ++b)
    for (int h = 0; h < p.heads_q; ++h)
      for (int i = 0; i < p.len_q(b); ++i) {
        const int hk = h * p.heads_kv / p.heads_q, shift = p.len_k(b) - p.len_q(b);
        double sum = 0;
        std::vector<double> o(p.head_dim, 0.0);
        for (int j = 0; j < p.len_k(b); ++j) {
          if (p.causal && j > i + shift) continue;
          if (p.window_right >= 0 && j > i + shift + p.window_right) continue;
          if (p.window_left >= 0 && j < i + shift - p.window_left) continue;
          double s = 0;
          for (int d = 0; d < p.head_dim; ++d)
            s += t.q[at(p.first_q(b) + i, p.heads_q, h, d)] * t.k[at(p.offsets_k[b] + j, p.heads_kv, hk, d)];
          const double e = std::exp(s * p.scale);
          sum += e;
          for (int d = 0; d < p.head_dim; ++d) o[d] += e * t.v[at(p.offsets_k[b] + j, p.heads_kv, hk, d)];
        }
        out.lse[h * p.rows_o() + p.first_o(b) + i] = std::log(sum);
        for (int d = 0; d < p.head_dim; ++d)
          out.o[at(p.first_o(b) + i, p.heads_q, h, d)] = sum > 0 ? o[d] / sum : 0;
      }
  return out;
}

void check_close(const AttentionResult& got, const AttentionResult& want) {
  REQUIRE(got.o.size() == want.o.size());
  CHECK(deviation(got.o, want.o).max_abs < kRounding);
  CHECK(deviation(got.lse, want.lse).max_abs < kRounding);
}

}  // namespace

TEST_CASE("One key gives V and LSE = scale q.k", "[attention]") {
  const AttentionProblem p = self_attention({0, 1, 2, 3}, 2, 64);
  const Tensors t = random_tensors(p);
  const AttentionResult result = run(p, t);
  CHECK(result.o == t.v);
  double s = 0;
  for (int d = 0; d < 64; ++d) s += t.q[d] * t.k[d];
  CHECK(result.lse[0] == Approx(s * p.scale).margin(kRounding));
}

TEST_CASE("Equal scores give the mean of V and LSE = s + ln n", "[attention]") {
  AttentionProblem p = self_attention({0, 5}, 1, 64);
  Tensors t = random_tensors(p);
  std::fill(t.k.begin(), t.k.end(), 0.5);
  std::fill(t.q.begin(), t.q.end(), 0.25);
  const AttentionResult result = run(p, t);
  for (int d = 0; d < 64; ++d) {
    double mean = 0;
    for (int j = 0; j < 5; ++j) mean += t.v[j * 64 + d] / 5;
    CHECK(result.o[2 * 64 + d] == Approx(mean).margin(kRounding));
  }
  CHECK(result.lse[2] == Approx(64 * 0.125 * p.scale + std::log(5)).margin(kRounding));
}

TEST_CASE("Scores of +-10000 neither overflow nor vanish", "[attention]") {
  for (const double sign : {1.0, -1.0}) {
    AttentionProblem p = self_attention({0, 3}, 1, 64);
    p.scale = 1.0;
    Tensors t = random_tensors(p);
    std::fill(t.q.begin(), t.q.end(), 1.0);
    for (int j = 0; j < 3; ++j)
      for (int d = 0; d < 64; ++d) t.k[j * 64 + d] = sign * (10000.0 + (j == 1 ? 64 : 0)) / 64;
    const AttentionResult result = run(p, t);
    // 64 apart in the score: exp(-64) < 2^-92, so the nearer keys are all there is.
    if (sign > 0) {
      CHECK(result.lse[0] == Approx(10064).margin(1e-9));
      CHECK(result.o[0] == Approx(t.v[64]).margin(kRounding));
    } else {
      CHECK(result.lse[0] == Approx(-10000 + std::log(2)).margin(1e-9));
      CHECK(result.o[0] == Approx((t.v[0] + t.v[128]) / 2).margin(kRounding));
    }
  }
}

TEST_CASE("Rows without a visible key are +0 with LSE = -infinity", "[attention]") {
  AttentionProblem p = self_attention({0, 2, 5}, 2, 64);
  p.offsets_k = {0, 0, 2};  // the first sequence has no key; the second fewer keys than queries
  p.causal = true;
  const Tensors t = random_tensors(p);
  const AttentionResult result = run(p, t, kernel_numerics(true));
  for (int row = 0; row < 3; ++row)
    for (int head = 0; head < 2; ++head) {
      CHECK(result.lse[head * 5 + row] == -kInfinity);
      for (int d = 0; d < 64; ++d) {
        CHECK(result.o[(row * 2 + head) * 64 + d] == 0);
        CHECK_FALSE(std::signbit(result.o[(row * 2 + head) * 64 + d]));
        CHECK(result.o_bound[(row * 2 + head) * 64 + d] == 0);
      }
    }
  CHECK(std::isfinite(result.lse[3]));
}

TEST_CASE("Jagged cross attention equals the direct sum", "[attention]") {
  AttentionProblem p = self_attention({0, 3, 3, 20, 150}, 2, 64);
  p.offsets_k = {0, 130, 131, 131, 140};
  const Tensors t = random_tensors(p);
  check_close(run(p, t), direct(p, t));
}

TEST_CASE("Masks are aligned to the bottom right and inclusive", "[attention]") {
  AttentionProblem p = self_attention({0, 9, 40}, 1, 64);
  p.offsets_k = {0, 30, 37};
  const Tensors t = random_tensors(p);
  const auto with = [&](bool causal, int left, int right) {
    p.causal = causal;
    p.window_left = left;
    p.window_right = right;
    const AttentionResult result = run(p, t);
    check_close(result, direct(p, t));
    return result;
  };
  const AttentionResult causal = with(true, -1, -1);
  CHECK(with(false, -1, 0).o == causal.o);
  CHECK(with(false, 40, 0).o == causal.o);
  CHECK(with(true, -1, 3).o == causal.o);  // causal caps the window on the right
  with(false, 2, 0);
  with(false, 0, 5);
  with(false, 3, 3);
}

TEST_CASE("Query heads share their key head in order", "[attention]") {
  AttentionProblem p = self_attention({0, 7, 20}, 6, 64);
  p.heads_kv = 2;
  const Tensors t = random_tensors(p);
  check_close(run(p, t), direct(p, t));
}

TEST_CASE("A broadcast query equals the query repeated", "[attention]") {
  AttentionProblem p = self_attention({0, 6, 6, 26}, 2, 64);
  p.broadcast_q = true;
  p.offsets_q = {0, 10};
  const Tensors t = random_tensors(p);
  AttentionProblem repeated = p;
  repeated.broadcast_q = false;
  repeated.offsets_q = {0, 10, 20, 30};
  Tensors tiled = t;
  for (int copy = 1; copy < 3; ++copy) tiled.q.insert(tiled.q.end(), t.q.begin(), t.q.end());
  const AttentionResult a = run(p, t), b = run(repeated, tiled);
  CHECK(a.o == b.o);
  CHECK(a.lse == b.lse);
}

TEST_CASE("The result does not depend on the number of threads", "[attention]") {
  const AttentionProblem p = self_attention({0, 100, 133}, 2, 64);
  const Tensors t = random_tensors(p);
  AttentionOptions one = kernel_numerics(true);
  one.threads = 1;
  AttentionOptions many = one;
  many.threads = 5;
  const AttentionResult a = run(p, t, one), b = run(p, t, many);
  CHECK(a.o == b.o);
  CHECK(a.o_bound == b.o_bound);
  CHECK(a.undecided_rows == b.undecided_rows);
}

TEST_CASE("The walk over blocks changes nothing while P is exact", "[attention]") {
  const AttentionProblem p = self_attention({0, 400}, 1, 64);
  const Tensors t = random_tensors(p, DataDistribution::kPowerOfTwo);
  AttentionOptions walk;
  walk.row_maximum = RowMaximum::kBlockWalk;
  walk.threshold_log2 = 0.5;
  const AttentionResult a = run(p, t), b = run(p, t, walk);
  CHECK(deviation(b.o, a.o).sqnr_db > 250);
  CHECK(deviation(b.lse, a.lse).max_abs < kRounding);
}

// Two blocks of one visible score each: the reference point is that of the last block unless the first
// exceeds it by more than the threshold, and 256 P of the first block is rounded relative to it.
TEST_CASE("The reference point moves only past the threshold", "[attention]") {
  AttentionProblem p = self_attention({0, 256}, 1, 64);
  p.offsets_q = {0, 1};
  p.scale = std::log(2.0);  // scores are exponents of two
  Tensors t;
  t.q.assign(64, 0.0);
  t.q[0] = 1;
  t.k.assign(256 * 64, 0.0);
  t.v.assign(256 * 64, 0.0);
  t.v[0] = 1;  // the first key of the first block
  const auto weight = [&](double growth) {
    for (int j = 0; j < 256; ++j) t.k[j * 64] = -200.0;
    t.k[0] = growth;
    t.k[255 * 64] = 0;
    AttentionOptions options;
    options.p_format = PFormat::kE4m3Constant;
    options.row_maximum = RowMaximum::kBlockWalk;
    return run(p, t, options).o[0] *
           (1 + std::exp2(growth));  // P of the first key relative to the last block
  };
  // Below log2(448/256) = 0.807: P = 2^0.75 is rounded on the grid of the old reference point.
  CHECK(weight(0.75) == Approx(round_to_e4m3(256 * std::exp2(0.75)) / 256).epsilon(1e-12));
  CHECK(weight(0.75) != Approx(std::exp2(0.75)).epsilon(1e-3));
  // Above: the reference point moves to it, P = 1 is exact.
  CHECK(weight(0.875) == Approx(std::exp2(0.875)).epsilon(1e-12));
}

TEST_CASE("Rounding P to BF16 and to E4M3 costs what the formats cost", "[attention]") {
  const AttentionProblem p = self_attention({0, 256}, 2, 128);
  const Tensors t = random_tensors(p);
  const AttentionResult exact = run(p, t);
  const double bf16 = deviation(run(p, t, kernel_numerics(false)).o, exact.o).sqnr_db;
  const double e4m3 = deviation(run(p, t, kernel_numerics(true)).o, exact.o).sqnr_db;
  // Uniform relative error up to 2^-9 is about 55 dB; up to 2^-4, 31.5 dB (element SQNR of E4M3).
  CHECK(bf16 > 54);
  CHECK(bf16 < 62);
  CHECK(e4m3 > 30);
  CHECK(e4m3 < 35);
}

TEST_CASE("The bound is far below the rounding of P, and holds under perturbed scores", "[attention]") {
  const AttentionProblem p = self_attention({0, 300}, 1, 64);
  const Tensors t = random_tensors(p);
  for (const bool mxfp8 : {false, true}) {
    const AttentionResult reference = run(p, t, kernel_numerics(mxfp8));
    double bound2 = 0, o2 = 0;
    for (size_t i = 0; i < reference.o.size(); ++i) {
      bound2 += reference.o_bound[i] * reference.o_bound[i];
      o2 += reference.o[i] * reference.o[i];
    }
    // A worst case, yet below the 55 dB noise of BF16 P only by what the cubic exp2 may add, 8.9e-5 a term.
    CHECK(10 * std::log10(o2 / bound2) > 45);
    // A relative error of 1e-6 of the scale stands for the FP32 arithmetic of a kernel.
    AttentionProblem perturbed = p;
    perturbed.scale *= 1 + 1e-6;
    AttentionOptions options = kernel_numerics(mxfp8);
    options.bounds = false;
    const AttentionResult other = run(perturbed, t, options);
    for (size_t i = 0; i < other.o.size(); ++i)
      REQUIRE(std::fabs(other.o[i] - reference.o[i]) <= reference.o_bound[i]);
    for (size_t i = 0; i < other.lse.size(); ++i)
      REQUIRE(std::fabs(other.lse[i] - reference.lse[i]) <= reference.lse_bound[i]);
  }
}
