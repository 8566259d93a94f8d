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

double cosine_of_sequence(const AttentionInputs& in, const AttentionOutputs& outputs, int sequence) {
  const AttentionProblem& p = in.problem;
  const AttentionResult exact = attention_forward(p, in.q, in.k, in.v);
  const auto got = bf16_to_double(std::span<const uint16_t>(outputs.o));
  const int64_t width = int64_t{p.heads_q} * p.head_dim;
  const auto rows = [&](const std::vector<double>& o) {
    return std::span(o).subspan(p.first_o(sequence) * width, p.len_q(sequence) * width);
  };
  return deviation(rows(got), rows(exact.o)).cosine;
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

TEST_CASE("mxa-first-row-exact: one key returns dequantised V", "[attention][cases][sm_100]") {
  const auto inputs = make_inputs(problem_of({4, 9}, {1, 1}, 2, 128), true);
  const AttentionOutputs outputs = run_attention(inputs);
  for (int row = 0; row < 13; ++row) {
    const int sequence = row < 4 ? 0 : 1;
    for (int i = 0; i < 256; ++i)
      REQUIRE(outputs.o[row * 256 + i] == bf16_from_double(inputs.v[sequence * 256 + i]));
  }
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

TEST_CASE("mxa-tile-boundary: no accuracy cliff at 128 keys", "[attention][cases][sm_100]") {
  const auto inputs = make_inputs(problem_of({1, 1, 1, 1}, {127, 128, 129, 130}, 6, 128), true);
  const AttentionOutputs outputs = run_attention(inputs);
  check_kernel_rounding(inputs, outputs);
  check_exact(inputs, outputs);
  CHECK(cosine_of_sequence(inputs, outputs, 1) > cosine_of_sequence(inputs, outputs, 0) - 0.001);
}

TEST_CASE("mxa-error-not-growing: the error at 8192 keys is at most twice that at 512",
          "[attention][cases][sm_100]") {
  const auto error_with = [](int keys) {
    const auto inputs = make_inputs(problem_of({64}, {keys}, 1, 128), true);
    const AttentionOutputs outputs = run_attention(inputs);
    check_exact(inputs, outputs);
    const AttentionResult exact = attention_forward(inputs.problem, inputs.q, inputs.k, inputs.v);
    return deviation(bf16_to_double(std::span<const uint16_t>(outputs.o)), exact.o).relative_l2;
  };
  CHECK(error_with(8192) <= 2 * error_with(512));
}

TEST_CASE("mxa-nan-payload-tail: NaN payload in the next sequence", "[attention][cases][sm_100]") {
  const auto clean = make_inputs(problem_of({40, 10}, {33, 31}, 1, 128), true);
  AttentionInputs poisoned = clean;
  std::fill(poisoned.mx_v.payload.begin() + 33 * 128, poisoned.mx_v.payload.end(), uint8_t{0x7f});
  const AttentionOutputs a = run_attention(clean), b = run_attention(poisoned);
  CHECK(std::equal(a.o.begin(), a.o.begin() + 40 * 128, b.o.begin()));
  check_exact(clean, a);
}

TEST_CASE("mxa-gqa-or-reject: grouped heads in MXFP8 share keys and values", "[attention][cases][sm_100]") {
  AttentionProblem problem = problem_of({100, 33}, {200, 64}, 4, 128);
  problem.heads_kv = 1;
  const auto inputs = make_inputs(problem, true);
  const AttentionOutputs outputs = run_attention(inputs);
  check_kernel_rounding(inputs, outputs);
  check_exact(inputs, outputs);
}

TEST_CASE("mxa-empty-mix: empty and one-token sequences in MXFP8", "[attention][cases][sm_100]") {
  const auto inputs = make_inputs(problem_of({3, 128, 1, 65}, {0, 1, 300, 128}, 2, 128), true);
  const AttentionOutputs outputs = run_attention(inputs);
  check_kernel_rounding(inputs, outputs);
  check_exact(inputs, outputs);
  for (int i = 0; i < 3 * 256; ++i) REQUIRE(outputs.o[i] == 0);
  for (int head = 0; head < 2; ++head)
    for (int row = 0; row < 3; ++row) CHECK(outputs.lse[head * 197 + row] == -INFINITY);
}

TEST_CASE("mxa-outlier-channel: one channel of magnitude 1880", "[attention][cases][sm_100]") {
  AttentionInputs inputs = make_inputs(problem_of({64}, {128}, 2, 128), true);
  Random random(4);
  const auto sign = [&] { return random.uniform() < 0.5 ? -1.0 : 1.0; };
  for (int row = 0; row < 64; ++row)
    for (int head = 0; head < 2; ++head)
      inputs.bf16_q[(row * 2 + head) * 128 + 17] = bf16_from_double(sign() * 4);
  for (int row = 0; row < 128; ++row)
    for (int head = 0; head < 2; ++head)
      inputs.bf16_k[(row * 2 + head) * 128 + 17] = bf16_from_double(sign() * 1880);
  update_inputs(inputs);
  const AttentionOutputs outputs = run_attention(inputs);
  check_kernel_rounding(inputs, outputs);
  check_exact(inputs, outputs);
}

TEST_CASE("sf-pad-poison-attn: scale padding 0xFF gives the bits of padding 0x00",
          "[attention][cases][sm_100]") {
  const auto inputs = make_inputs(problem_of({65, 3}, {33, 129}, 2, 128), true);
  LaunchOptions poisoned;
  poisoned.scale_padding = 0xff;
  const AttentionOutputs a = run_attention(inputs), b = run_attention(inputs, poisoned);
  CHECK(a == b);
  check_exact(inputs, a);
}

TEST_CASE("fwd-80000-tiny-sequences: planned on one grid dimension", "[attention][cases][sm_100]") {
  const std::vector<int32_t> lengths(80000, 16);
  AttentionInputs inputs;
  inputs.problem = problem_of(lengths, lengths, 1, 64);
  const mxfa::Plan plan = Device::instance().context().attention_forward(describe_attention(inputs));
  CHECK(plan.describe().find("80000") != std::string::npos);
}
