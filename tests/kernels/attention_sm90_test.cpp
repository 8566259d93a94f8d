// attention_fwd_sm90 on an sm_90a device, against the double-precision reference: every element of O and LSE
// within the bound of a kernel that rounds P to BF16, N(0,1) data also at 50 dB or better overall.
#include <cmath>
#include <functional>

#include "kernels/attention_masks.hpp"
#include "kernels/attention_run.hpp"
#include "reference/compare.hpp"
#include "reference/formats.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;
using namespace mxfa::reference;

namespace {

// Both sides of a warpgroup's 64 rows and of a tile's end, one long sequence; every length meets another one.
const std::vector<int32_t> kLengthsQ{0, 1, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1000};
const std::vector<int32_t> kLengthsK{129, 257, 0, 65, 1000, 1, 256, 128, 255, 64, 127, 63};
// At head_dim 64 four warpgroups a CTA take these, and three the ones above.
const std::vector<int32_t> kShortQ{256, 1, 0, 193, 64, 130, 255};
const std::vector<int32_t> kShortK{300, 700, 64, 193, 0, 63, 129};

void check_kernel(const AttentionInputs& inputs) {
  const AttentionOutputs outputs = run_attention(inputs);
  check_kernel_rounding(inputs, outputs);
}

// With N(0,1) data: everything within its bound, and the accuracy that BF16 promises.
void check_normal(const AttentionProblem& problem) {
  const AttentionInputs inputs = make_inputs(problem, /*mxfp8=*/false);
  const AttentionOutputs outputs = run_attention(inputs);
  check_kernel_rounding(inputs, outputs);
  const AttentionResult exact = attention_forward(problem, inputs.q, inputs.k, inputs.v);
  const Deviation distance = deviation(bf16_to_double(std::span<const uint16_t>(outputs.o)), exact.o);
  CHECK(distance.not_finite == 0);
  CHECK(distance.sqnr_db >= kBf16ForwardMinSqnrDb);
}

void check_masks(int head_dim, const std::vector<int32_t>& lengths_q, const std::vector<int32_t>& lengths_k) {
  for (const Mask& variant : kMasks) {
    INFO("head_dim " << head_dim << ", " << variant.name);
    AttentionProblem problem = problem_of(lengths_q, lengths_k, 2, head_dim);
    variant.apply(problem);
    check_normal(problem);
  }
}

// Groups of three query heads share keys and values.
void check_grouped(int head_dim) {
  for (const bool causal : {false, true}) {
    INFO("head_dim " << head_dim << ", grouped heads, causal " << causal);
    AttentionProblem problem = problem_of(kLengthsQ, kLengthsK, 6, head_dim);
    problem.heads_kv = 2;
    problem.causal = causal;
    check_normal(problem);
  }
}

void check_broadcast(int head_dim) {
  for (const int32_t queries : {1, 65, 256, 300})
    for (const Mask& variant : {kMasks[0], kMasks[1], kMasks[4]}) {
      INFO("head_dim " << head_dim << ", " << queries << " broadcast queries, " << variant.name);
      AttentionProblem problem = problem_of({queries}, kLengthsK, 2, head_dim);
      problem.broadcast_q = true;
      variant.apply(problem);
      check_normal(problem);
    }
}

void check_head_dim(int head_dim) {
  check_masks(head_dim, kLengthsQ, kLengthsK);
  check_masks(head_dim, kShortQ, kShortK);
  check_grouped(head_dim);
  check_broadcast(head_dim);
}

// One channel makes the scores: level(key) log2 units for even queries, minus that for odd ones, so that rows
// of one warp outgrow their reference point while others do not.
AttentionInputs with_levels(int head_dim, int keys, const std::function<double(int)>& level) {
  AttentionInputs inputs = make_inputs(problem_of({140}, {keys}, 1, head_dim), /*mxfp8=*/false);
  const double c = inputs.problem.scale * std::log2(std::exp(1.0));
  for (int i = 0; i < 140; ++i) inputs.bf16_q[i * head_dim] = bf16_from_double(i % 2 ? -4.0 : 4.0);
  for (int j = 0; j < keys; ++j) inputs.bf16_k[j * head_dim] = bf16_from_double(level(j) / (4.0 * c));
  update_inputs(inputs);
  return inputs;
}

void poison(std::vector<uint16_t>& tensor, int64_t first, int64_t rows, int64_t width) {
  std::fill_n(tensor.begin() + first * width, rows * width, uint16_t{0x7fff});
}

const std::vector<int> kHeadDims{64, 96, 128};

}  // namespace

TEST_CASE("sm_90a: every mask, grouped heads and broadcast queries at head_dim 64", "[gpu][sm_90][d64]") {
  const OnHopper hopper;
  if (hopper.ready()) check_head_dim(64);
}

TEST_CASE("sm_90a: every mask, grouped heads and broadcast queries at head_dim 96", "[gpu][sm_90][d96]") {
  const OnHopper hopper;
  if (hopper.ready()) check_head_dim(96);
}

TEST_CASE("sm_90a: every mask, grouped heads and broadcast queries at head_dim 128", "[gpu][sm_90][d128]") {
  const OnHopper hopper;
  if (hopper.ready()) check_head_dim(128);
}

TEST_CASE("sm_90a: more tiles than CTAs", "[gpu][sm_90][tiles]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  std::vector<int32_t> lengths_q, lengths_k;
  Random random(3);
  for (int b = 0; b < 300; ++b) {
    lengths_q.push_back(static_cast<int32_t>(random.next() % 400));
    lengths_k.push_back(static_cast<int32_t>(random.next() % 300));
  }
  for (const int head_dim : kHeadDims)
    for (const bool causal : {false, true}) {
      INFO("head_dim " << head_dim << ", causal " << causal);
      AttentionProblem problem = problem_of(lengths_q, lengths_k, 1, head_dim);
      problem.causal = causal;
      check_normal(problem);
    }
}

// Blocks are walked from the last key to the first, so a score that falls with the key's number keeps
// outgrowing what the row has seen: by less than the kernel tolerates, by more, and by far more, a block.
TEST_CASE("sm_90a: maxima that keep growing", "[gpu][sm_90][growing]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  for (const int head_dim : kHeadDims)
    for (const double step : {0.02, 0.05, 0.1, 0.2, 3.0}) {
      INFO("head_dim " << head_dim << ", " << step << " a key");
      check_kernel(with_levels(head_dim, 1500, [&](int j) { return (1500 - j) * step; }));
    }
}

TEST_CASE("sm_90a: one score that towers over a block", "[gpu][sm_90][growing]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  for (const int head_dim : kHeadDims)
    for (const double height : {7.0, 11.0, 13.0, 100.0, 5000.0}) {
      INFO("head_dim " << head_dim << ", height " << height);
      check_kernel(with_levels(head_dim, 900, [&](int j) { return j % 211 == 37 ? height : 0.0; }));
    }
}

TEST_CASE("sm_90a: scores of +-10000 neither overflow nor vanish", "[gpu][sm_90][growing]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  for (const int head_dim : kHeadDims)
    for (const double sign : {1.0, -1.0}) {
      INFO("head_dim " << head_dim << ", sign " << sign);
      AttentionProblem problem = problem_of({70}, {500}, 1, head_dim);
      problem.scale = 1.0;
      AttentionInputs inputs = make_inputs(problem, false, DataDistribution::kNormal, 0.125);
      for (int i = 0; i < 70; ++i) inputs.bf16_q[i * head_dim] = bf16_from_double(sign * 64.0);
      for (int j = 0; j < 500; ++j) inputs.bf16_k[j * head_dim] = bf16_from_double(160.0);
      update_inputs(inputs);
      const AttentionOutputs outputs = run_attention(inputs);
      check_kernel_rounding(inputs, outputs);
      for (float lse : outputs.lse) REQUIRE(std::fabs(lse - sign * 10240) < 10);  // 64 * 160 and ln 500
    }
}

TEST_CASE("sm_90a: scale 0 averages the visible keys", "[gpu][sm_90][rows]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  for (const int head_dim : kHeadDims)
    for (const Mask& variant : kMasks) {
      INFO("head_dim " << head_dim << ", " << variant.name);
      AttentionProblem problem = problem_of({3, 140, 65}, {0, 300, 40}, 1, head_dim);
      problem.scale = 0;
      variant.apply(problem);
      check_kernel(make_inputs(problem, false));
    }
}

TEST_CASE("sm_90a: rows without keys are +0 with LSE = -infinity, over poisoned outputs",
          "[gpu][sm_90][rows]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  for (const int head_dim : kHeadDims) {
    INFO("head_dim " << head_dim);
    AttentionProblem problem = problem_of({3, 300, 0, 5}, {0, 0, 7, 9}, 2, head_dim);
    const AttentionOutputs outputs = run_attention(make_inputs(problem, false));
    for (int row = 0; row < 303; ++row)
      for (int head = 0; head < 2; ++head) {
        CHECK(outputs.lse[head * 308 + row] == -INFINITY);
        for (int d = 0; d < head_dim; ++d) REQUIRE(outputs.o[(row * 2 + head) * head_dim + d] == 0);
      }
  }
}

TEST_CASE("sm_90a: NaN in neighbouring sequences and behind the last one changes no bit",
          "[gpu][sm_90][rows]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  for (const int head_dim : kHeadDims)
    for (const bool causal : {false, true}) {
      INFO("head_dim " << head_dim << ", causal " << causal);
      AttentionProblem problem = problem_of({65, 40, 200, 40, 1}, {33, 60, 129, 60, 200}, 2, head_dim);
      problem.causal = causal;
      const AttentionInputs clean = make_inputs(problem, false);
      AttentionInputs poisoned = clean;
      const int64_t width = 2 * head_dim;
      for (const int b : {1, 3}) {
        poison(poisoned.bf16_q, problem.first_q(b), problem.len_q(b), width);
        poison(poisoned.bf16_k, problem.offsets_k[b], problem.len_k(b), width);
        poison(poisoned.bf16_v, problem.offsets_k[b], problem.len_k(b), width);
      }
      LaunchOptions tail;
      tail.tail_rows = 300;
      const AttentionOutputs a = run_attention(clean), with_tail = run_attention(clean, tail),
                             b = run_attention(poisoned);
      CHECK(with_tail == a);
      for (const int sequence : {0, 2, 4}) {
        INFO("sequence " << sequence);
        const int64_t first = problem.first_o(sequence), rows = problem.len_q(sequence);
        CHECK(std::equal(a.o.begin() + first * width, a.o.begin() + (first + rows) * width,
                         b.o.begin() + first * width));
        for (int head = 0; head < 2; ++head)
          CHECK(std::memcmp(&a.lse[head * problem.rows_o() + first], &b.lse[head * problem.rows_o() + first],
                            rows * sizeof(float)) == 0);
      }
    }
}

TEST_CASE("sm_90a: padded rows and a missing LSE change no bit of O", "[gpu][sm_90][rows]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  for (const int head_dim : kHeadDims) {
    INFO("head_dim " << head_dim);
    const AttentionInputs inputs = make_inputs(problem_of({130, 7}, {64, 200}, 2, head_dim), false);
    const AttentionOutputs packed = run_attention(inputs);
    LaunchOptions padded, without_lse;
    padded.row_padding_bytes = 48;
    without_lse.store_lse = false;
    CHECK(run_attention(inputs, padded) == packed);
    CHECK(run_attention(inputs, without_lse).o == packed.o);
  }
}

TEST_CASE("sm_90a: repeated launches give the same bits", "[gpu][sm_90][repeat]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  for (const int head_dim : kHeadDims)
    for (const bool causal : {false, true}) {
      INFO("head_dim " << head_dim << ", causal " << causal);
      AttentionProblem problem = problem_of(kLengthsQ, kLengthsK, 8, head_dim);
      problem.causal = causal;
      const AttentionInputs inputs = make_inputs(problem, false);
      const AttentionOutputs first = run_attention(inputs);
      for (int i = 1; i < launches(200); ++i) REQUIRE(run_attention(inputs) == first);
    }
}

// A GPU has one order of its own; the CPU driver delays asynchronous work and shuffles warps.
TEST_CASE("sm_90a: every schedule of the CPU driver gives the same bits", "[gpu][sm_90][schedules]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  for (const int head_dim : kHeadDims)
    for (const bool causal : {false, true}) {
      AttentionProblem problem = problem_of({130, 5, 1, 256}, {300, 129, 0, 250}, 1, head_dim);
      problem.causal = causal;
      const AttentionInputs inputs = make_inputs(problem, false);
      const AttentionOutputs want = run_attention(inputs);
      for (const std::string& name : schedules(10)) {
        INFO("head_dim " << head_dim << ", causal " << causal << ", schedule " << name);
        const Schedule schedule(name);
        CHECK(run_attention(inputs) == want);
      }
    }
}
