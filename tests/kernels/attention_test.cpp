// attention_fwd on every tile edge and every kind of data, against the reference with the kernel's roundings
// (element bounds) and the exact one (the accuracy the format promises).
#include <cmath>
#include <nlohmann/json.hpp>

#include "kernels/attention_run.hpp"
#include "reference/compare.hpp"
#include "reference/formats.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;
using namespace mxfa::reference;

namespace {

// Both sides of every edge of a 32-block, half tile, tile and CTA tile.
const std::vector<int32_t> kEdges{0, 1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257};
// Every query length meets another key length, short ones long ones.
const std::vector<int32_t> kEdgesShuffled{129, 257, 0, 65, 128, 1, 256, 33, 255, 2, 127, 64, 32, 63, 31};

struct Format {
  bool mxfp8;
  int head_dim;
};
const std::vector<Format> kFormats{{false, 64}, {false, 96}, {false, 128},
                                   {true, 64},  {true, 96},  {true, 128}};

std::string name(const Format& f) {
  return (f.mxfp8 ? "MXFP8, head_dim " : "BF16, head_dim ") + std::to_string(f.head_dim);
}

void check_all(const AttentionInputs& inputs) {
  const AttentionOutputs outputs = run_attention(inputs);
  check_kernel_rounding(inputs, outputs);
  check_exact(inputs, outputs);
  if (inputs.mxfp8) check_format_accuracy(inputs, outputs);
}

}  // namespace

TEST_CASE("Self attention over every tile edge is within rounding", "[attention][sm_100]") {
  for (const Format& f : kFormats) {
    INFO(name(f));
    check_all(make_inputs(problem_of(kEdges, kEdges, 2, f.head_dim), f.mxfp8));
  }
}

TEST_CASE("Cross attention over every pair of tile edges is within rounding", "[attention][sm_100]") {
  for (const Format& f : kFormats) {
    INFO(name(f));
    check_all(make_inputs(problem_of(kEdges, kEdgesShuffled, 1, f.head_dim), f.mxfp8));
  }
}

TEST_CASE("Many key blocks walk the ring of key and value tiles several times", "[attention][sm_100]") {
  for (const Format& f : kFormats) {
    INFO(name(f));
    check_all(make_inputs(problem_of({200, 130}, {1500, 2049}, 1, f.head_dim), f.mxfp8));
  }
}

// Gaussian data hides misplaced scales and rows; these do not.
TEST_CASE("Power-of-two, heavy-tailed and constant data are within rounding", "[attention][sm_100]") {
  for (const Format& f : kFormats)
    for (const auto distribution :
         {DataDistribution::kPowerOfTwo, DataDistribution::kHeavyTailed, DataDistribution::kConstant}) {
      INFO(name(f) << ", distribution " << static_cast<int>(distribution));
      const auto inputs = make_inputs(problem_of({1, 130, 257, 40}, {257, 129, 300, 33}, 2, f.head_dim),
                                      f.mxfp8, distribution);
      check_kernel_rounding(inputs, run_attention(inputs));
    }
}

// The reference point of a row stays unless a block exceeds it by more than the threshold: blocks that rise
// by less and by more, in the order of the walk (last block first).
TEST_CASE("Rising and falling block maxima are within rounding", "[attention][sm_100]") {
  for (const Format& f : kFormats) {
    INFO(name(f));
    AttentionInputs inputs = make_inputs(problem_of({140}, {6 * 128 + 5}, 1, f.head_dim), f.mxfp8);
    // Scores of one channel, in units of log2; the last entry is the block visited first.
    const double level[] = {-3.0, 7.5, 5.0, 4.5, 0.5, 0.0, -1.0};
    const double c = inputs.problem.scale * std::log2(std::exp(1.0));
    for (int i = 0; i < 140; ++i) inputs.bf16_q[i * f.head_dim] = bf16_from_double(4.0);
    for (int j = 0; j < 6 * 128 + 5; ++j)
      inputs.bf16_k[j * f.head_dim] = bf16_from_double(level[j / 128] / (4.0 * c));
    update_inputs(inputs);
    const AttentionOutputs outputs = run_attention(inputs);
    check_kernel_rounding(inputs, outputs);
    check_exact(inputs, outputs);
  }
}

TEST_CASE("Scores of +-10000 neither overflow nor vanish", "[attention][sm_100]") {
  for (const Format& f : kFormats)
    for (const double sign : {1.0, -1.0}) {
      INFO(name(f) << ", sign " << sign);
      AttentionProblem problem = problem_of({70}, {200}, 1, f.head_dim);
      problem.scale = 1.0;
      AttentionInputs inputs = make_inputs(problem, f.mxfp8, DataDistribution::kNormal, 0.125);
      for (int i = 0; i < 70; ++i) inputs.bf16_q[i * f.head_dim] = bf16_from_double(sign * 64.0);
      for (int j = 0; j < 200; ++j) inputs.bf16_k[j * f.head_dim] = bf16_from_double(160.0);
      update_inputs(inputs);
      const AttentionOutputs outputs = run_attention(inputs);
      check_kernel_rounding(inputs, outputs);
      // 64 * 160, both exact in E4M3; the other channels add a few hundredths a score, and ln 200.
      for (float lse : outputs.lse) REQUIRE(std::fabs(lse - sign * 10240) < 10);
    }
}

TEST_CASE("fwd-scale-zero: scale 0 averages the keys", "[attention][sm_100]") {
  for (const Format& f : kFormats) {
    INFO(name(f));
    AttentionProblem problem = problem_of({70, 3}, {200, 129}, 2, f.head_dim);
    problem.scale = 0;
    const AttentionInputs inputs = make_inputs(problem, f.mxfp8);
    const AttentionOutputs outputs = run_attention(inputs);
    check_kernel_rounding(inputs, outputs);
    // exp2 is off by 8.8e-5 at most, so is the sum.
    CHECK(std::fabs(outputs.lse[0] - std::log(200.0)) < 1e-4);
  }
}

TEST_CASE("exp2 on the special function unit alone is within its smaller error", "[attention][sm_100]") {
  for (const Format& f : kFormats) {
    INFO(name(f));
    AttentionInputs inputs = make_inputs(problem_of({129, 40}, {300, 65}, 1, f.head_dim), f.mxfp8);
    inputs.kernel = R"({"exp2_emulation_count": 0})";
    inputs.exp2_error = 0x1p-22;  // PTX ISA, ex2.approx
    check_all(inputs);
  }
}

// The reserve that docs/attention_fwd_sm100.md names.
TEST_CASE("exp2 on the FMA pipe in three fragments of four is within rounding, without a spill in MXFP8",
          "[attention][sm_100]") {
  for (const bool causal : {false, true}) {
    AttentionProblem problem = problem_of({129, 40}, {300, 65}, 1, 128);
    problem.causal = causal;
    AttentionInputs inputs = make_inputs(problem, /*mxfp8=*/true);
    inputs.kernel = R"({"exp2_emulation_count": 4, "exp2_emulation_first_fragment": 0,
                        "softmax_registers": 200, "correction_registers": 64, "other_registers": 48})";
    check_all(inputs);
    const mxfa::Plan plan = Device::instance().context().attention_forward(describe_attention(inputs));
    const auto ptxas = nlohmann::json::parse(plan.describe())["ptxas"];
    CHECK((ptxas["spill_loads"] == 0 && ptxas["spill_stores"] == 0));
  }
}

// E4M3 rounds P by up to 2^-4 of it, thirty times the error of the parabola.
TEST_CASE("exp2 by a parabola keeps the accuracy of MXFP8", "[attention][sm_100]") {
  for (const int head_dim : {64, 128}) {
    INFO(head_dim);
    AttentionInputs inputs = make_inputs(problem_of({129, 40}, {300, 65}, 1, head_dim), /*mxfp8=*/true);
    inputs.kernel = R"({"exp2_emulation_degree": 2, "exp2_emulation_count": 8})";
    inputs.exp2_error = 2.2e-3;
    check_all(inputs);
  }
}

TEST_CASE("Rows without keys are +0 with LSE = -infinity, over poisoned outputs", "[attention][sm_100]") {
  for (const Format& f : kFormats) {
    INFO(name(f));
    const auto inputs = make_inputs(problem_of({3, 300, 0, 5}, {0, 0, 7, 9}, 2, f.head_dim), f.mxfp8);
    const AttentionOutputs outputs = run_attention(inputs);
    for (int row = 0; row < 303; ++row)
      for (int head = 0; head < 2; ++head) {
        CHECK(outputs.lse[head * 308 + row] == -INFINITY);
        for (int d = 0; d < f.head_dim; ++d)
          REQUIRE(outputs.o[(row * 2 + head) * f.head_dim + d] == 0);  // the bits of +0
      }
    check_kernel_rounding(inputs, outputs);
  }
}

TEST_CASE("O does not depend on whether LSE is stored", "[attention][sm_100]") {
  for (const Format& f : kFormats) {
    INFO(name(f));
    const auto inputs = make_inputs(problem_of({130, 7}, {64, 200}, 1, f.head_dim), f.mxfp8);
    LaunchOptions without_lse;
    without_lse.store_lse = false;
    CHECK(run_attention(inputs, without_lse).o == run_attention(inputs).o);
  }
}

TEST_CASE("Padded rows give the bits of packed rows and leave the padding alone", "[attention][sm_100]") {
  for (const Format& f : kFormats) {
    INFO(name(f));
    const auto inputs = make_inputs(problem_of({130, 7}, {64, 200}, 2, f.head_dim), f.mxfp8);
    LaunchOptions padded;
    padded.row_padding_bytes = 48;
    CHECK(run_attention(inputs, padded) == run_attention(inputs));
  }
}
