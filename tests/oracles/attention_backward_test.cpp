// The reference gradients against finite differences of the reference forward, and the rounded ones against
// the exact.
#include "reference/attention_backward.hpp"

#include <cmath>
#include <functional>

#include "reference/compare.hpp"
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
      attention_backward(p.attention, p.q, p.k, p.v, p.d_o, {}, {},
                         hopper_backward_numerics(p.attention.head_dim));
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
      attention_backward(p.attention, p.q, p.k, p.v, p.d_o, {}, {},
                         hopper_backward_numerics(p.attention.head_dim));
  GradientValues got{want.dq, want.dk, want.dv};
  CHECK_FALSE(first_gradient_outside_bound(p.attention, got, want));
  got.dq[0] = -0.0;  // row 0 of 5 sees none of 3 keys
  CHECK(first_gradient_outside_bound(p.attention, got, want)->find("dQ: sequence 0, head 0, row 0") == 0);
  got.dq[0] = 0;
  got.dk[8 * 8 + 5] *= 1.01;
  CHECK(first_gradient_outside_bound(p.attention, got, want)
            ->find("dK: sequence 1, head 0, row 5, channel 5") == 0);
}
