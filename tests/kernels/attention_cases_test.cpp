// Cases from public bug reports, each named after its id.
#include <cmath>

#include "kernels/attention_run.hpp"
#include "reference/compare.hpp"
#include "reference/formats.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;
using namespace mxfa::reference;

namespace {

void check_case(const AttentionInputs& inputs, const LaunchOptions& options = {}) {
  const AttentionOutputs outputs = run_attention(inputs, options);
  check_kernel_rounding(inputs, outputs);
  check_exact(inputs, outputs);
}

}  // namespace

TEST_CASE("fwd-zero-q-middle: a sequence with keys but no queries", "[attention][cases][sm_100]") {
  check_case(make_inputs(problem_of({150, 0, 150}, {100, 100, 100}, 2, 128), false));
}

TEST_CASE("fwd-all-empty: every sequence is empty", "[attention][cases][sm_100]") {
  for (const bool mxfp8 : {false, true}) {
    const AttentionOutputs outputs =
        run_attention(make_inputs(problem_of({0, 0, 0}, {0, 0, 0}, 2, 128), mxfp8));
    CHECK(outputs.o.empty());
    CHECK(outputs.lse.empty());
  }
}

TEST_CASE("A batch of no sequences is a success", "[attention][cases][sm_100]") {
  CHECK(run_attention(make_inputs(problem_of({}, {}, 2, 128), false)).o.empty());
}

TEST_CASE("fwd-tile-tail-sweep: lengths around every tile edge", "[attention][cases][sm_100]") {
  check_case(make_inputs(problem_of({1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 191, 193},
                                    {193, 1, 129, 2, 128, 31, 127, 32, 65, 33, 64, 63, 191}, 2, 128),
                         false));
}

TEST_CASE("fwd-nan-capacity-tail: 64 rows of NaN after the packed total", "[attention][cases][sm_100]") {
  LaunchOptions tail;
  tail.tail_rows = 64;
  check_case(make_inputs(problem_of({70, 100}, {64, 100}, 2, 128), false), tail);
}

// A buffer may hold more rows than the offsets cover: those are never read (NaN in Q, K and V) and never
// written (run_attention checks O).
TEST_CASE("fwd-rows-past-offsets: two more rows than the offsets cover", "[attention][cases][sm_100]") {
  LaunchOptions tail;
  tail.tail_rows = 2;
  const AttentionInputs inputs = make_inputs(problem_of({14, 29, 51}, {14, 29, 51}, 2, 128), false);
  check_case(inputs, tail);
  CHECK(run_attention(inputs, tail) == run_attention(inputs));
}

TEST_CASE("fwd-single-key: one key returns V bit for bit", "[attention][cases][sm_100]") {
  const auto inputs = make_inputs(problem_of({5, 130}, {1, 1}, 2, 128), false);
  const AttentionOutputs outputs = run_attention(inputs);
  for (int row = 0; row < 135; ++row) {
    const int sequence = row < 5 ? 0 : 1;
    for (int i = 0; i < 256; ++i) REQUIRE(outputs.o[row * 256 + i] == inputs.bf16_v[sequence * 256 + i]);
  }
  check_exact(inputs, outputs);
}

TEST_CASE("fwd-batch-invariance: the same bits alone and among fifteen neighbours",
          "[attention][cases][sm_100]") {
  for (const bool mxfp8 : {false, true}) {
    const auto alone = make_inputs(problem_of({200}, {333}, 2, 128), mxfp8);
    std::vector<int32_t> lengths_q, lengths_k;
    Random random(3);
    for (int b = 0; b < 16; ++b) {
      lengths_q.push_back(b == 7 ? 200 : 1 + static_cast<int>(random.uniform() * 50));
      lengths_k.push_back(b == 7 ? 333 : 1 + static_cast<int>(random.uniform() * 50));
    }
    AttentionInputs crowd =
        make_inputs(problem_of(lengths_q, lengths_k, 2, 128), mxfp8, DataDistribution::kNormal, 1.0, 2);
    const int64_t first_q = crowd.problem.offsets_q[7], first_k = crowd.problem.offsets_k[7];
    std::copy(alone.bf16_q.begin(), alone.bf16_q.end(), crowd.bf16_q.begin() + first_q * 256);
    std::copy(alone.bf16_k.begin(), alone.bf16_k.end(), crowd.bf16_k.begin() + first_k * 256);
    std::copy(alone.bf16_v.begin(), alone.bf16_v.end(), crowd.bf16_v.begin() + first_k * 256);
    update_inputs(crowd);
    const AttentionOutputs a = run_attention(alone), b = run_attention(crowd);
    CHECK(std::equal(a.o.begin(), a.o.end(), b.o.begin() + first_q * 256));
    for (int head = 0; head < 2; ++head)
      CHECK(std::memcmp(&a.lse[head * 200], &b.lse[head * crowd.problem.rows_o() + first_q],
                        200 * sizeof(float)) == 0);
  }
}

TEST_CASE("fwd-80000-tiny-sequences: planned on one grid dimension", "[attention][cases][sm_100]") {
  const std::vector<int32_t> lengths(80000, 16);
  AttentionInputs inputs;
  inputs.problem = problem_of(lengths, lengths, 1, 64);
  const mxfa::Plan plan = Device::instance().context().attention_forward(describe_attention(inputs));
  CHECK(plan.describe().find("80000") != std::string::npos);
}
