// The reference gradients against finite differences of the reference forward, and the rounded ones against
// the exact.
#include "reference/attention_backward.hpp"

#include <cmath>
#include <functional>

#include "reference/compare.hpp"
#include "reference/formats.hpp"
#include "reference/quantize.hpp"
#include "reference/random.hpp"
#include "support/catch.hpp"

using namespace mxfa::reference;

namespace {

struct Problem {
  AttentionProblem attention;
  std::vector<double> q, k, v, d_o;
};

Problem problem_of(std::vector<int32_t> offsets_q, std::vector<int32_t> offsets_k, int heads_q, int heads_kv,
                   const std::function<void(AttentionProblem&)>& apply = {}) {
  Problem p;
  p.attention.batch = static_cast<int>(offsets_k.size()) - 1;
  p.attention.heads_q = heads_q, p.attention.heads_kv = heads_kv, p.attention.head_dim = 8;
  p.attention.offsets_q = std::move(offsets_q), p.attention.offsets_k = std::move(offsets_k);
  p.attention.scale = 0.4;
  if (apply) apply(p.attention);
  Random random(7);
  const auto fill = [&](std::vector<double>& values, int64_t rows, int heads) {
    values.resize(rows * heads * p.attention.head_dim);
    for (double& value : values) value = random.normal();
  };
  fill(p.q, p.attention.rows_q(), heads_q);
  fill(p.k, p.attention.rows_k(), heads_kv);
  fill(p.v, p.attention.rows_k(), heads_kv);
  fill(p.d_o, p.attention.rows_o(), heads_q);
  return p;
}

// sum(dO * O), whose gradients are dQ, dK and dV.
double objective(const Problem& p) {
  const AttentionResult forward = attention_forward(p.attention, p.q, p.k, p.v, {.threads = 1});
  double sum = 0;
  for (size_t i = 0; i < forward.o.size(); ++i) sum += forward.o[i] * p.d_o[i];
  return sum;
}

// A central difference of step h is off by about h^2 f''' / 6 and 2^-52 f / h.
void check_differences(Problem p, std::vector<double> Problem::*operand,
                       const std::vector<double>& gradient) {
  constexpr double kStep = 1e-5, kAllowed = 1e-7;
  for (size_t i = 0; i < gradient.size(); ++i) {
    double& value = (p.*operand)[i];
    const double before = value;
    value = before + kStep;
    const double up = objective(p);
    value = before - kStep;
    const double down = objective(p);
    value = before;
    INFO("element " << i);
    REQUIRE(std::fabs((up - down) / (2 * kStep) - gradient[i]) <= kAllowed);
  }
}

void check_problem(const Problem& p) {
  const Gradients gradients = attention_backward(p.attention, p.q, p.k, p.v, p.d_o);
  check_differences(p, &Problem::q, gradients.dq);
  check_differences(p, &Problem::k, gradients.dk);
  check_differences(p, &Problem::v, gradients.dv);
}

}  // namespace

TEST_CASE("gradients equal finite differences of the forward", "[attention][backward]") {
  check_problem(problem_of({0, 3, 3, 7}, {0, 4, 6, 9}, 1, 1));
  check_problem(problem_of({0, 5, 7}, {0, 4, 4}, 2, 2));
}

TEST_CASE("masked gradients equal finite differences, dead rows and unseen keys included",
          "[attention][backward]") {
  check_problem(problem_of({0, 5, 8}, {0, 3, 9}, 1, 1, [](AttentionProblem& p) { p.causal = true; }));
  check_problem(problem_of({0, 5, 8}, {0, 3, 9}, 1, 1,
                           [](AttentionProblem& p) { p.window_left = 1, p.window_right = 2; }));
  check_problem(
      problem_of({0, 2}, {0, 9}, 1, 1, [](AttentionProblem& p) { p.causal = true, p.window_left = 2; }));
}

TEST_CASE("gradients of grouped heads and of broadcast queries equal finite differences",
          "[attention][backward]") {
  check_problem(problem_of({0, 3, 5}, {0, 4, 6}, 6, 2));
  check_problem(problem_of({0, 3}, {0, 4, 4, 6}, 2, 1, [](AttentionProblem& p) { p.broadcast_q = true; }));
}

TEST_CASE("given O and LSE are used as they are", "[attention][backward]") {
  const Problem p = problem_of({0, 4}, {0, 5}, 1, 1);
  const AttentionResult forward = attention_forward(p.attention, p.q, p.k, p.v);
  const Gradients exact = attention_backward(p.attention, p.q, p.k, p.v, p.d_o);
  CHECK(attention_backward(p.attention, p.q, p.k, p.v, p.d_o, forward.o, forward.lse).dk == exact.dk);
  // LSE off by ln 2 halves P: dV as well.
  std::vector<double> lse = forward.lse;
  for (double& value : lse) value += std::log(2.0);
  const Gradients halved = attention_backward(p.attention, p.q, p.k, p.v, p.d_o, forward.o, lse);
  for (size_t i = 0; i < exact.dv.size(); ++i) CHECK(std::fabs(halved.dv[i] - exact.dv[i] / 2) < 1e-12);
}

TEST_CASE("rounded gradients stay near the exact ones, their bounds far below their size",
          "[attention][backward]") {
  const Problem p = problem_of({0, 60}, {0, 70}, 2, 1);
  const Gradients exact = attention_backward(p.attention, p.q, p.k, p.v, p.d_o);
  const Gradients rounded =
      attention_backward(p.attention, p.q, p.k, p.v, p.d_o, {}, {}, hopper_backward_numerics());
  const Deviation distance = gradient_deviation({rounded.dq, rounded.dk, rounded.dv}, exact);
  // Two roundings of 2^-9 at most: 2^-9 / sqrt(3) each is 58 dB, both 55.
  CHECK(distance.sqnr_db > 52);
  CHECK(distance.sqnr_db < 70);
  const auto mean = [](const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += std::fabs(value);
    return sum / static_cast<double>(values.size());
  };
  CHECK(mean(rounded.dq_bound) < 0x1p-10 * mean(exact.dq));
  CHECK(mean(rounded.dk_bound) < 0x1p-10 * mean(exact.dk));
  CHECK(mean(rounded.dv_bound) < 0x1p-10 * mean(exact.dv));
  CHECK(mean(rounded.dv_bound) > 0);
}

TEST_CASE("a gradient outside its bound is named, a zero must be +0", "[attention][backward]") {
  const Problem p = problem_of({0, 5, 8}, {0, 3, 9}, 1, 1, [](AttentionProblem& a) { a.causal = true; });
  const Gradients want =
      attention_backward(p.attention, p.q, p.k, p.v, p.d_o, {}, {}, hopper_backward_numerics());
  GradientValues got{want.dq, want.dk, want.dv};
  CHECK_FALSE(first_gradient_outside_bound(p.attention, got, want));
  got.dq[0] = -0.0;  // row 0 of 5 sees none of 3 keys
  CHECK(first_gradient_outside_bound(p.attention, got, want)->find("dQ: sequence 0, head 0, row 0") == 0);
  got.dq[0] = 0;
  got.dk[8 * 8 + 5] *= 1.01;
  CHECK(first_gradient_outside_bound(p.attention, got, want)
            ->find("dK: sequence 1, head 0, row 5, channel 5") == 0);
}

// By matrices, with the quantiser of tensors: dS as one tensor of 70 queries x 96 keys.
TEST_CASE("MXFP8 gradients: P times 256 is rounded to E4M3, dS in blocks of 32 queries x 32 keys",
          "[attention][backward][mxfp8]") {
  for (const bool causal : {false, true}) {
    INFO("causal " << causal);
    const Problem p = problem_of({0, 70}, {0, 85}, 1, 1, [&](AttentionProblem& a) { a.causal = causal; });
    const AttentionResult forward = attention_forward(p.attention, p.q, p.k, p.v);
    const int dim = p.attention.head_dim, rows = 70, keys = 85;
    const auto product = [&](const std::vector<double>& a, int i, const std::vector<double>& b, int j) {
      double sum = 0;
      for (int d = 0; d < dim; ++d) sum += a[i * dim + d] * b[j * dim + d];
      return sum;
    };
    std::vector<double> probability(rows * 96);
    std::vector<float> ds(rows * 96);
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < keys; ++j) {
        if (causal && j > i + keys - rows) continue;
        const double of = std::exp(p.attention.scale * product(p.q, i, p.k, j) - forward.lse[i]);
        probability[i * 96 + j] = round_to_e4m3(256 * of) / 256;
        ds[i * 96 + j] =
            static_cast<float>(of * (product(p.d_o, i, p.v, j) - product(p.d_o, i, forward.o, i)));
      }
    const std::vector<double> rounded =
        dequantize(quantize(ds, {{0, rows}, 1, 96}, BlockLayout::kSquare, ScalingMode::kRceil));
    std::vector<double> dq(rows * dim), dk(keys * dim), dv(keys * dim);
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < keys; ++j)
        for (int d = 0; d < dim; ++d) {
          dv[j * dim + d] += probability[i * 96 + j] * p.d_o[i * dim + d];
          dk[j * dim + d] += p.attention.scale * rounded[i * 96 + j] * p.q[i * dim + d];
          dq[i * dim + d] += p.attention.scale * rounded[i * 96 + j] * p.k[j * dim + d];
        }
    const Gradients got = attention_backward(p.attention, p.q, p.k, p.v, p.d_o, forward.o, forward.lse,
                                             hopper_mxfp8_backward_numerics(true));
    // Sums in another order; dS went through FP32, whose rounding flips none of the E4M3 ones here.
    CHECK(deviation(got.dv, dv).relative_l2 < 1e-14);
    CHECK(deviation(got.dk, dk).relative_l2 < 1e-14);
    CHECK(deviation(got.dq, dq).relative_l2 < 1e-14);
    const auto mean = [](const std::vector<double>& values) {
      double sum = 0;
      for (const double value : values) sum += std::fabs(value);
      return sum / static_cast<double>(values.size());
    };
    // Half an E4M3 step is 2^-4: a bound that admitted any rounding would not tell a kernel from another.
    CHECK(mean(got.dq_bound) < 0x1p-9 * mean(got.dq));
    CHECK(mean(got.dk_bound) < 0x1p-9 * mean(got.dk));
    CHECK(mean(got.dv_bound) < 0x1p-9 * mean(got.dv));
  }
}

TEST_CASE("MXFP8 gradients: dS in BF16 is nearer to the exact one than dS in square blocks",
          "[attention][backward][mxfp8]") {
  const Problem p = problem_of({0, 60}, {0, 70}, 2, 1);
  const Gradients exact = attention_backward(p.attention, p.q, p.k, p.v, p.d_o);
  const auto distance = [&](bool square) {
    const Gradients rounded =
        attention_backward(p.attention, p.q, p.k, p.v, p.d_o, {}, {}, hopper_mxfp8_backward_numerics(square));
    return std::pair{deviation(rounded.dk, exact.dk).sqnr_db, deviation(rounded.dv, exact.dv).sqnr_db};
  };
  const auto [bf16_dk, bf16_dv] = distance(false);
  const auto [square_dk, square_dv] = distance(true);
  // 2^-4 / sqrt(3) of a number at the low end of its binade, 2^-5 at the high end: 30 dB or so.
  CHECK(bf16_dk > 52);
  CHECK(square_dk > 25);
  CHECK(square_dk < 38);
  CHECK(bf16_dv > 25);
  CHECK(bf16_dv == square_dv);
}
