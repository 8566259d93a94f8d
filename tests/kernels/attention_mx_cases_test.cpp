// MXFP8 cases from public bug reports, each named after its id, on the Blackwell and on the Hopper kernel.
#include <cmath>

#include "kernels/attention_run.hpp"
#include "reference/compare.hpp"
#include "reference/formats.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;
using namespace mxfa::reference;

namespace {

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

void mxa_first_row_exact() {
  const auto inputs = make_inputs(problem_of({4, 9}, {1, 1}, 2, 128), true);
  const AttentionOutputs outputs = run_attention(inputs);
  for (int row = 0; row < 13; ++row) {
    const int sequence = row < 4 ? 0 : 1;
    for (int i = 0; i < 256; ++i)
      REQUIRE(outputs.o[row * 256 + i] == bf16_from_double(inputs.v[sequence * 256 + i]));
  }
}

void mxa_tile_boundary() {
  const auto inputs = make_inputs(problem_of({1, 1, 1, 1}, {127, 128, 129, 130}, 6, 128), true);
  const AttentionOutputs outputs = run_attention(inputs);
  check_kernel_rounding(inputs, outputs);
  check_exact(inputs, outputs);
  CHECK(cosine_of_sequence(inputs, outputs, 1) > cosine_of_sequence(inputs, outputs, 0) - 0.001);
}

void mxa_error_not_growing() {
  const auto error_with = [](int keys) {
    const auto inputs = make_inputs(problem_of({64}, {keys}, 1, 128), true);
    const AttentionOutputs outputs = run_attention(inputs);
    check_exact(inputs, outputs);
    const AttentionResult exact = attention_forward(inputs.problem, inputs.q, inputs.k, inputs.v);
    return deviation(bf16_to_double(std::span<const uint16_t>(outputs.o)), exact.o).relative_l2;
  };
  CHECK(error_with(8192) <= 2 * error_with(512));
}

void mxa_nan_payload_tail() {
  const auto clean = make_inputs(problem_of({40, 10}, {33, 31}, 1, 128), true);
  AttentionInputs poisoned = clean;
  std::fill(poisoned.mx_v.payload.begin() + 33 * 128, poisoned.mx_v.payload.end(), uint8_t{0x7f});
  const AttentionOutputs a = run_attention(clean), b = run_attention(poisoned);
  CHECK(std::equal(a.o.begin(), a.o.begin() + 40 * 128, b.o.begin()));
  check_exact(clean, a);
}

void mxa_gqa_or_reject() {
  AttentionProblem problem = problem_of({100, 33}, {200, 64}, 4, 128);
  problem.heads_kv = 1;
  const auto inputs = make_inputs(problem, true);
  const AttentionOutputs outputs = run_attention(inputs);
  check_kernel_rounding(inputs, outputs);
  check_exact(inputs, outputs);
}

void mxa_empty_mix() {
  const auto inputs = make_inputs(problem_of({3, 128, 1, 65}, {0, 1, 300, 128}, 2, 128), true);
  const AttentionOutputs outputs = run_attention(inputs);
  check_kernel_rounding(inputs, outputs);
  check_exact(inputs, outputs);
  for (int i = 0; i < 3 * 256; ++i) REQUIRE(outputs.o[i] == 0);
  for (int head = 0; head < 2; ++head)
    for (int row = 0; row < 3; ++row) CHECK(outputs.lse[head * 197 + row] == -INFINITY);
}

void mxa_outlier_channel() {
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

void sf_pad_poison_attn() {
  const auto inputs = make_inputs(problem_of({65, 3}, {33, 129}, 2, 128), true);
  LaunchOptions poisoned;
  poisoned.scale_padding = 0xff;
  const AttentionOutputs a = run_attention(inputs), b = run_attention(inputs, poisoned);
  CHECK(a == b);
  check_exact(inputs, a);
}

}  // namespace

TEST_CASE("mxa-first-row-exact: one key returns dequantised V", "[attention][cases][sm_100]") {
  mxa_first_row_exact();
}
TEST_CASE("mxa-first-row-exact on sm_90a", "[gpu][sm_90][mx][cases]") { on_hopper(mxa_first_row_exact); }
TEST_CASE("mxa-tile-boundary: no accuracy cliff at 128 keys", "[attention][cases][sm_100]") {
  mxa_tile_boundary();
}
TEST_CASE("mxa-tile-boundary on sm_90a", "[gpu][sm_90][mx][cases]") { on_hopper(mxa_tile_boundary); }
TEST_CASE("mxa-error-not-growing: the error at 8192 keys is at most twice that at 512",
          "[attention][cases][sm_100]") {
  mxa_error_not_growing();
}
TEST_CASE("mxa-error-not-growing on sm_90a", "[gpu][sm_90][mx][cases]") { on_hopper(mxa_error_not_growing); }
TEST_CASE("mxa-nan-payload-tail: NaN payload in the next sequence", "[attention][cases][sm_100]") {
  mxa_nan_payload_tail();
}
TEST_CASE("mxa-nan-payload-tail on sm_90a", "[gpu][sm_90][mx][cases]") { on_hopper(mxa_nan_payload_tail); }
TEST_CASE("mxa-gqa-or-reject: grouped heads in MXFP8 share keys and values", "[attention][cases][sm_100]") {
  mxa_gqa_or_reject();
}
TEST_CASE("mxa-gqa-or-reject on sm_90a", "[gpu][sm_90][mx][cases]") { on_hopper(mxa_gqa_or_reject); }
TEST_CASE("mxa-empty-mix: empty and one-token sequences in MXFP8", "[attention][cases][sm_100]") {
  mxa_empty_mix();
}
TEST_CASE("mxa-empty-mix on sm_90a", "[gpu][sm_90][mx][cases]") { on_hopper(mxa_empty_mix); }
TEST_CASE("mxa-outlier-channel: one channel of magnitude 1880", "[attention][cases][sm_100]") {
  mxa_outlier_channel();
}
TEST_CASE("mxa-outlier-channel on sm_90a", "[gpu][sm_90][mx][cases]") { on_hopper(mxa_outlier_channel); }
TEST_CASE("sf-pad-poison-attn: scale padding 0xFF gives the bits of padding 0x00",
          "[attention][cases][sm_100]") {
  sf_pad_poison_attn();
}
TEST_CASE("sf-pad-poison-attn on sm_90a", "[gpu][sm_90][mx][cases]") { on_hopper(sf_pad_poison_attn); }
