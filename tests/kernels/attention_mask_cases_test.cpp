// Cases from public bug reports about masks, grouped heads and broadcast queries, each named after its id,
// for the Blackwell kernel and for Hopper's.
#include <cmath>
#include <numeric>

#include "kernels/attention_run.hpp"
#include "reference/formats.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;
using namespace mxfa::reference;

namespace {

AttentionOutputs check_case(const AttentionInputs& inputs, const LaunchOptions& options = {}) {
  const AttentionOutputs outputs = run_attention(inputs, options);
  check_kernel_rounding(inputs, outputs);
  check_exact(inputs, outputs);
  return outputs;
}

AttentionProblem grouped(AttentionProblem problem, int heads_kv) {
  problem.heads_kv = heads_kv;
  return problem;
}

// Rows [first, first + count) of O are +0, of LSE -infinity.
void check_no_keys(const AttentionProblem& p, const AttentionOutputs& outputs, int64_t first, int64_t count) {
  const int64_t width = int64_t{p.heads_q} * p.head_dim;
  for (int64_t i = first * width; i < (first + count) * width; ++i) REQUIRE(outputs.o[i] == 0);
  for (int head = 0; head < p.heads_q; ++head)
    for (int64_t row = first; row < first + count; ++row)
      REQUIRE(outputs.lse[head * p.rows_o() + row] == -INFINITY);
}

void fwd_zero_q_maxlen1() {
  AttentionProblem problem = grouped(problem_of({1, 0, 1}, {3, 0, 5}, 9, 64), 3);
  problem.causal = true;
  problem.scale = 1.0;
  const AttentionOutputs causal = check_case(make_inputs(problem, false));
  CHECK(causal.lse.size() == 9 * 2);
  // Aligned at the ends, so both queries see every key.
  problem.causal = false;
  CHECK(check_case(make_inputs(problem, false)) == causal);
}

void fwd_causal_more_q_than_k() {
  AttentionProblem problem = problem_of({113}, {65}, 2, 128);
  problem.causal = true;
  const AttentionOutputs outputs = check_case(make_inputs(problem, false));
  check_no_keys(problem, outputs, 0, 48);
  for (int head = 0; head < 2; ++head) CHECK(std::isfinite(outputs.lse[head * 113 + 48]));
}

void fwd_first_block_masked_negative() {
  AttentionProblem problem = grouped(problem_of({88}, {448}, 14, 128), 2);
  problem.causal = true;
  problem.scale = 0.125;
  AttentionInputs inputs = make_inputs(problem, false);
  Random random(5);
  for (uint16_t& q : inputs.bf16_q) q = bf16_from_double(2.0);
  for (uint16_t& k : inputs.bf16_k) k = bf16_from_double(-4.0 + 0.05 * random.normal());
  update_inputs(inputs);
  const AttentionOutputs outputs = check_case(inputs);
  for (int head = 0; head < 14; ++head)
    for (int row = 0; row < 88; ++row) {
      // 448 - 88 + row + 1 visible keys.  A score is -128 plus 128 terms 0.125 * 2 * 0.05 N(0, 1) and BF16's
      // rounding of k: 0.14 N(0, 1); twice that bounds what it adds to the mean.
      REQUIRE(std::fabs(outputs.lse[head * 88 + row] - (-128 + std::log(361.0 + row))) < 0.3);
      const auto o = outputs.o.begin() + (row * 14 + head) * 128;
      REQUIRE(std::accumulate(o, o + 128, uint64_t{0}) != 0);
    }
}

void fwd_scale_zero() {
  AttentionProblem problem = problem_of({33}, {33}, 2, 128);
  problem.causal = true;
  problem.scale = 0.0;
  AttentionInputs inputs = make_inputs(problem, false);
  std::fill(inputs.bf16_v.begin(), inputs.bf16_v.end(), bf16_from_double(1.0));
  update_inputs(inputs);
  const AttentionOutputs outputs = check_case(inputs);
  // 0.004 is half a BF16 step at 1; the logarithm is FP32's.
  for (const double o : bf16_to_double(std::span<const uint16_t>(outputs.o)))
    REQUIRE(std::fabs(o - 1.0) <= 0.004);
  for (int head = 0; head < 2; ++head)
    for (int row = 0; row < 33; ++row)
      REQUIRE(std::fabs(outputs.lse[head * 33 + row] - std::log(row + 1.0)) < 0.001);
}

void fwd_window_equals_causal() {
  AttentionProblem problem = problem_of({300}, {300}, 2, 128);
  problem.causal = true;
  const AttentionOutputs causal = check_case(make_inputs(problem, false));
  problem.causal = false;
  problem.window_right = 0;
  for (const int left : {299, 300, -1}) {
    INFO("window " << left << ", 0");
    problem.window_left = left;
    CHECK(run_attention(make_inputs(problem, false)) == causal);
  }
}

void fwd_window_exact_width() {
  AttentionProblem problem = problem_of({40}, {40}, 2, 128);
  problem.window_left = 2, problem.window_right = 0;
  AttentionInputs inputs = make_inputs(problem, false);
  std::fill(inputs.bf16_q.begin(), inputs.bf16_q.end(), uint16_t{0});
  for (size_t i = 0; i < inputs.bf16_v.size(); ++i) inputs.bf16_v[i] = bf16_from_double(double(i / 256));
  update_inputs(inputs);
  const AttentionOutputs outputs = check_case(inputs);
  const auto o = bf16_to_double(std::span<const uint16_t>(outputs.o));
  for (int row = 0; row < 40; ++row) {
    const int first = std::max(0, row - 2);
    // BF16 steps by 0.25 from 32 on: half of that is the rounding of the mean.
    for (int i = 0; i < 256; ++i) REQUIRE(std::fabs(o[row * 256 + i] - (first + row) / 2.0) <= 0.13);
    for (int head = 0; head < 2; ++head)
      REQUIRE(std::fabs(outputs.lse[head * 40 + row] - std::log(row - first + 1.0)) < 0.001);
  }
}

void fwd_gqa_ratio_7() {
  const AttentionInputs inputs = make_inputs(grouped(problem_of({65, 3}, {130, 77}, 14, 128), 2), false);
  AttentionInputs repeated = inputs;
  repeated.problem.heads_kv = 14;
  repeated.bf16_k.clear(), repeated.bf16_v.clear();
  for (int row = 0; row < 207; ++row)
    for (int head = 0; head < 14; ++head) {
      const int from = (row * 2 + head / 7) * 128;
      repeated.bf16_k.insert(repeated.bf16_k.end(), &inputs.bf16_k[from], &inputs.bf16_k[from] + 128);
      repeated.bf16_v.insert(repeated.bf16_v.end(), &inputs.bf16_v[from], &inputs.bf16_v[from] + 128);
    }
  update_inputs(repeated);
  CHECK(check_case(inputs) == run_attention(repeated));
}

void fwd_broadcast_q() {
  const std::vector<int32_t> lengths_k{0, 1, 17, 128, 300, 5};
  AttentionProblem problem = problem_of({64}, lengths_k, 2, 128);
  problem.broadcast_q = true;
  const AttentionInputs inputs = make_inputs(problem, false);
  AttentionInputs repeated = inputs;
  repeated.problem = problem_of({64, 64, 64, 64, 64, 64}, lengths_k, 2, 128);
  repeated.bf16_q.clear();
  for (int i = 0; i < 6; ++i)
    repeated.bf16_q.insert(repeated.bf16_q.end(), inputs.bf16_q.begin(), inputs.bf16_q.end());
  update_inputs(repeated);
  const AttentionOutputs outputs = check_case(inputs);
  CHECK(outputs.o.size() == 6 * 64 * 2 * 128);
  check_no_keys(problem, outputs, 0, 64);
  CHECK(outputs == run_attention(repeated));
}

// A buffer may hold more rows than the offsets cover: those are never read (NaN in Q, K and V) and never
// written (run_attention checks O).
void fwd_rows_past_offsets() {
  LaunchOptions tail;
  tail.tail_rows = 2;
  const AttentionInputs inputs = make_inputs(problem_of({14, 29, 51}, {14, 29, 51}, 2, 128), false);
  CHECK(check_case(inputs, tail) == run_attention(inputs));
}

}  // namespace

TEST_CASE("fwd-zero-q-maxlen1: an empty sequence among single queries", "[attention][cases][sm_100]") {
  fwd_zero_q_maxlen1();
}
TEST_CASE("fwd-zero-q-maxlen1 on sm_90a", "[gpu][sm_90][cases]") { on_hopper(fwd_zero_q_maxlen1); }
TEST_CASE("fwd-causal-more-q-than-k: the first queries see nothing", "[attention][cases][sm_100]") {
  fwd_causal_more_q_than_k();
}
TEST_CASE("fwd-causal-more-q-than-k on sm_90a", "[gpu][sm_90][cases]") {
  on_hopper(fwd_causal_more_q_than_k);
}
TEST_CASE("fwd-first-block-masked-negative: scores of -128 after blocks without a visible key",
          "[attention][cases][sm_100]") {
  fwd_first_block_masked_negative();
}
TEST_CASE("fwd-first-block-masked-negative on sm_90a", "[gpu][sm_90][cases]") {
  on_hopper(fwd_first_block_masked_negative);
}
TEST_CASE("fwd-scale-zero with a causal mask: the mean of the visible keys, never 0 * infinity",
          "[attention][cases][sm_100]") {
  fwd_scale_zero();
}
TEST_CASE("fwd-scale-zero with a causal mask on sm_90a", "[gpu][sm_90][cases]") { on_hopper(fwd_scale_zero); }
TEST_CASE("fwd-window-equals-causal: the same mask in four spellings gives the same bits",
          "[attention][cases][sm_100]") {
  fwd_window_equals_causal();
}
TEST_CASE("fwd-window-equals-causal on sm_90a", "[gpu][sm_90][cases]") {
  on_hopper(fwd_window_equals_causal);
}
TEST_CASE("fwd-window-exact-width: a left window of 2 sees three keys", "[attention][cases][sm_100]") {
  fwd_window_exact_width();
}
TEST_CASE("fwd-window-exact-width on sm_90a", "[gpu][sm_90][cases]") { on_hopper(fwd_window_exact_width); }
TEST_CASE("fwd-gqa-ratio-7: seven query heads a key head give the bits of repeated keys",
          "[attention][cases][sm_100]") {
  fwd_gqa_ratio_7();
}
TEST_CASE("fwd-gqa-ratio-7 on sm_90a", "[gpu][sm_90][cases]") { on_hopper(fwd_gqa_ratio_7); }
TEST_CASE("fwd-broadcast-q: one Q for all sequences gives the bits of Q repeated",
          "[attention][cases][sm_100]") {
  fwd_broadcast_q();
}
TEST_CASE("fwd-broadcast-q on sm_90a", "[gpu][sm_90][cases]") { on_hopper(fwd_broadcast_q); }
TEST_CASE("fwd-rows-past-offsets on sm_90a", "[gpu][sm_90][cases]") { on_hopper(fwd_rows_past_offsets); }
