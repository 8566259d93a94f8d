// The timed backward of `mxfa bench`: its sample and its check, and a whole row on the CPU driver as an H200,
// whose times mean nothing but whose check does.
#include <cstdlib>

#include "reference/attention_backward.hpp"
#include "reference/formats.hpp"
#include "reference/random.hpp"
#include "support/catch.hpp"
#include "support/kernel_cache.hpp"
#include "tools/bench.hpp"
#include "tools/bench_backward_check.hpp"
#include "tools/reference_problem.hpp"

using namespace mxfa;
using namespace mxfa::tools;

namespace {

Shape shape_of(const std::string& text) { return parse_shapes(text, "folder/shape.json").at(0); }

// Operands of a problem, and what exact kernels would have written, in BF16.
struct Solved {
  reference::AttentionProblem problem;
  std::vector<uint16_t> q, k, v, o, d_o, dq, dk, dv;
  std::vector<float> lse;

  explicit Solved(const Shape& shape) : problem(attention_problem(shape)) {
    const auto random = [&](reference::Operand operand, int64_t rows, int heads) {
      return reference::random_tensor(reference::DataDistribution::kNormal, 1.0, 1, operand, rows, heads,
                                      problem.head_dim);
    };
    const auto exact = [](const std::vector<uint16_t>& bits) {
      return reference::bf16_to_double(std::span<const uint16_t>(bits));
    };
    const auto stored = [](const std::vector<double>& values) {
      return reference::bf16_from_double(std::span<const double>(values));
    };
    q = random(reference::Operand::kQ, problem.rows_q(), problem.heads_q);
    k = random(reference::Operand::kK, problem.rows_k(), problem.heads_kv);
    v = random(reference::Operand::kV, problem.rows_k(), problem.heads_kv);
    d_o = random(reference::Operand::kOutputGradient, problem.rows_o(), problem.heads_q);
    const auto forward = reference::attention_forward(problem, exact(q), exact(k), exact(v));
    o = stored(forward.o);
    lse.assign(forward.lse.begin(), forward.lse.end());
    const auto gradients = reference::attention_backward(
        problem, exact(q), exact(k), exact(v), exact(d_o), exact(o),
        std::vector<double>(lse.begin(), lse.end()), reference::hopper_backward_numerics());
    dq = stored(gradients.dq), dk = stored(gradients.dk), dv = stored(gradients.dv);
  }
  FetchRows fetch(const std::vector<uint16_t>& tensor, int heads) const {
    const int64_t width = int64_t{heads} * problem.head_dim;
    return [&tensor, width](int64_t first, int64_t rows) {
      return std::vector<uint16_t>(tensor.begin() + first * width, tensor.begin() + (first + rows) * width);
    };
  }
  CheckResult check() const {
    return check_backward(problem,
                          {fetch(q, problem.heads_q), fetch(k, problem.heads_kv), fetch(v, problem.heads_kv),
                           fetch(o, problem.heads_q), fetch(d_o, problem.heads_q), lse, dq, dk, dv},
                          reference::hopper_backward_numerics(), 1, 1e7, 40);
  }
};

const char* const kShapes[] = {
    R"({"op":"attn_bwd","dtype":"bf16","head_dim":64,"heads_q":4,"heads_kv":2,"seqlens_q":[70,0,33],
        "seqlens_k":[50,9,120]})",
    R"({"op":"attn_bwd","dtype":"bf16","head_dim":64,"heads_q":2,"seqlens_q":[90,20],"seqlens_k":[70,100],
        "causal":true})",
    R"({"op":"attn_bwd","dtype":"bf16","head_dim":64,"heads_q":2,"seqlens_q":[90,20],"seqlens_k":[70,100],
        "window":[10,5]})",
    R"({"op":"attn_bwd","dtype":"bf16","head_dim":64,"heads_q":2,"seqlens_q":[40],"seqlens_k":[70,0,100,3],
        "broadcast_q":true})",
};

}  // namespace

TEST_CASE("the sample of a backward agrees with the whole reference, for every mask and broadcast queries") {
  for (const char* text : kShapes) {
    CAPTURE(text);
    const CheckResult result = Solved(shape_of(text)).check();
    CAPTURE(result.failures);
    CHECK(result.failures.empty());
    CHECK(result.samples > 4);
  }
}

TEST_CASE("the check of a backward names the gradient that is wrong") {
  for (const char* text : kShapes) {
    CAPTURE(text);
    const Solved good(shape_of(text));
    const auto failure_of = [](const Solved& spoiled) {
      const CheckResult result = spoiled.check();
      return result.failures.empty() ? std::string() : result.failures.front();
    };
    // The first key and row of the first sequence, and for broadcast queries every row, are in every sample.
    Solved spoiled = good;
    for (auto& bits : spoiled.dk) bits ^= 0x8;
    CHECK(failure_of(spoiled).find("dK: ") == 0);
    spoiled = good;
    for (auto& bits : spoiled.dv) bits ^= 0x8;
    CHECK(failure_of(spoiled).find("dV: ") == 0);
    spoiled = good;
    for (auto& bits : spoiled.dq) bits ^= 0x8;
    CHECK(failure_of(spoiled).find("dQ: ") == 0);
    spoiled = good;
    spoiled.dq.back() = 0x7fff;
    CHECK(failure_of(spoiled) == "1 of " + std::to_string(good.dq.size()) + " elements of dQ are not finite");
  }
}

TEST_CASE("a backward measured on the CPU driver as an H200 is checked", "[gpu][h200]") {
  setenv("MXFA_CACHE_DIR", mxfa::test::kernel_cache().c_str(), 1);
  CommonFlags flags;
  flags.device = "emulator:h200";
  flags.quiet = true;
  const Session session(flags);
  MeasureOptions quick;
  quick.repeats = 3;
  quick.warm_up_ms = quick.sample_ms = 0;
  BenchMachine machine(session, quick, /*with_yardsticks=*/false);
  for (const char* text : {kShapes[0], kShapes[3]}) {
    const BenchRow row = bench_shape(machine, shape_of(text)).at(0);
    CAPTURE(row.refused, row.failures);
    CHECK(row.refused.empty());
    CHECK(row.failures.empty());
    CHECK(row.timed());
    CHECK(row.plan.value("kernel", "") == "attention_bwd_sm90");
  }
  CHECK(attention_flop(shape_of(kShapes[1])) == 10.0 * 64 * 2 * (90 * 70 + 20 * 100) / 2);
}
