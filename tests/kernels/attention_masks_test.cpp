// attention_fwd_sm100 with masks, grouped heads, broadcast queries, dynamic scales of P and several tiles a
// CTA.
#include "kernels/attention_masks.hpp"

#include <cmath>
#include <cstring>

#include "kernels/attention_run.hpp"
#include "reference/compare.hpp"
#include "reference/formats.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;
using namespace mxfa::reference;

namespace {

struct Format {
  bool mxfp8, dynamic_p;
  int head_dim;
};
const std::vector<Format> kFormats{{false, false, 64}, {false, false, 96}, {false, false, 128},
                                   {true, false, 64},  {true, false, 96},  {true, false, 128}};
const std::vector<Format> kDynamic{{true, true, 64}, {true, true, 96}, {true, true, 128}};

std::string name(const Format& f) {
  return std::string(f.mxfp8 ? f.dynamic_p ? "MXFP8 with dynamic P, " : "MXFP8, " : "BF16, ") + "head_dim " +
         std::to_string(f.head_dim);
}

AttentionInputs inputs_of(const AttentionProblem& problem, const Format& f,
                          DataDistribution distribution = DataDistribution::kNormal) {
  AttentionInputs inputs = make_inputs(problem, f.mxfp8, distribution);
  inputs.dynamic_p = f.dynamic_p;
  return inputs;
}

void check_all(const AttentionInputs& inputs) {
  const AttentionOutputs outputs = run_attention(inputs);
  check_kernel_rounding(inputs, outputs);
  check_exact(inputs, outputs);
}

struct Heads {
  int q, kv;
};
const std::vector<Heads> kHeads{{1, 1}, {4, 2}, {3, 1}};

// Both sides of a stage's and of a tile's end; each meets another number of keys: more, fewer (rows without a
// key, stages without one), none.
const std::vector<int32_t> kLengthsQ{0, 1, 31, 129, 300, 257, 33, 400, 128, 130};
const std::vector<int32_t> kLengthsK{129, 257, 0, 33, 130, 700, 128, 255, 127, 1};

// Every format meets every mask; heads, broadcast and data take turns, each pair of choices occurs.  On
// sm_103a, which is the same source in other configurations, every format and every mask, each with a third
// of the other; all of them in `make check` (attention_covering_test.cpp).
void check_masks(const std::vector<Format>& formats, const std::vector<Mask>& masks) {
  const bool sample = Device::instance().arch() == "sm_103a";
  for (size_t f = 0; f < formats.size(); ++f)
    for (size_t m = 0; m < masks.size(); ++m) {
      if (sample && (f + m) % 3 != 0) continue;
      const Heads heads = kHeads[(f + m) % kHeads.size()];
      const bool broadcast = (f + 2 * m) % 4 == 0;
      AttentionProblem problem = problem_of(broadcast ? std::vector<int32_t>{257} : kLengthsQ, kLengthsK,
                                            heads.q, formats[f].head_dim);
      problem.heads_kv = heads.kv;
      problem.broadcast_q = broadcast;
      masks[m].apply(problem);
      INFO(name(formats[f]) << ", " << masks[m].name << ", heads " << heads.q << "/" << heads.kv
                            << ", broadcast " << broadcast);
      check_all(inputs_of(problem, formats[f]));
      // Misplaced scales and rows show in these.
      const auto distribution = m % 2 ? DataDistribution::kPowerOfTwo : DataDistribution::kHeavyTailed;
      const AttentionInputs inputs = inputs_of(problem, formats[f], distribution);
      check_kernel_rounding(inputs, run_attention(inputs));
    }
}

// A few tiles of every kind: full, one stage only, without keys, one block, many.
AttentionProblem several_tiles(const Format& f, bool causal) {
  AttentionProblem problem =
      problem_of({300, 5, 129, 256, 1, 100}, {500, 300, 0, 256, 128, 700}, 1, f.head_dim);
  problem.causal = causal;
  return problem;
}

}  // namespace

TEST_CASE("Every mask with grouped heads and broadcast queries is within rounding",
          "[attention][sm_100][masks]") {
  check_masks(kFormats, kMasks);
}

TEST_CASE("A dynamic scale of P is within rounding under every mask",
          "[attention][sm_100][masks][dynamic_p]") {
  check_masks(kDynamic, {kMasks[0], kMasks[1], kMasks[4]});
}

TEST_CASE("Square attention under a causal mask equals attention over the visible prefix",
          "[attention][sm_100][masks]") {
  // Row i of a causal problem is the only row of a problem with i + 1 keys: what lies behind the diagonal
  // plays no part, to the bit, when the blocks are the same.
  for (const Format& f : kFormats) {
    INFO(name(f));
    AttentionProblem problem = problem_of({160}, {160}, 1, f.head_dim);
    problem.causal = true;
    const AttentionInputs inputs = inputs_of(problem, f);
    AttentionInputs poisoned = inputs;  // keys behind the last visible one of rows 0 .. 127
    const auto spoil = [&](auto& tensor, auto value) {
      std::fill(tensor.begin() + 128 * f.head_dim, tensor.end(), value);
    };
    if (f.mxfp8) {
      spoil(poisoned.mx_k.payload, uint8_t{0x7f});
    } else {
      spoil(poisoned.bf16_k, uint16_t{0x7fff});
    }
    const AttentionOutputs a = run_attention(inputs), b = run_attention(poisoned);
    CHECK(std::equal(a.o.begin(), a.o.begin() + 128 * f.head_dim, b.o.begin()));
    CHECK(std::memcmp(a.lse.data(), b.lse.data(), 128 * sizeof(float)) == 0);
  }
}

TEST_CASE("Rows that a mask leaves without keys are +0 with LSE = -infinity", "[attention][sm_100][masks]") {
  for (const Format& f : kFormats) {
    INFO(name(f));
    // 300 queries over 100 keys: rows 0 .. 199 see nothing, so stage 0 of the first tile has no block at all.
    AttentionProblem problem = problem_of({300}, {100}, 1, f.head_dim);
    problem.causal = true;
    const AttentionInputs inputs = inputs_of(problem, f);
    const AttentionOutputs outputs = run_attention(inputs);
    for (int row = 0; row < 200; ++row) {
      CHECK(outputs.lse[row] == -INFINITY);
      for (int d = 0; d < f.head_dim; ++d) REQUIRE(outputs.o[row * f.head_dim + d] == 0);  // the bits of +0
    }
    check_kernel_rounding(inputs, outputs);
  }
}

TEST_CASE("Few CTAs that take several tiles give the bits of one CTA a tile, in every schedule",
          "[attention][sm_100][persistent]") {
  std::vector<Format> formats = kFormats;
  formats.push_back(kDynamic[0]);
  formats.push_back(kDynamic[2]);
  for (const Format& f : formats)
    for (const bool causal : {false, true}) {
      AttentionInputs inputs = inputs_of(several_tiles(f, causal), f);
      const AttentionOutputs want = run_attention(inputs);
      check_kernel_rounding(inputs, want);
      inputs.kernel = R"({"max_ctas": 1})";
      for (const std::string& schedule_name : schedules(causal ? 5 : 20)) {
        INFO(name(f) << ", causal " << causal << ", schedule " << schedule_name);
        const Schedule schedule(schedule_name);
        CHECK(run_attention(inputs) == want);
      }
    }
}

TEST_CASE("sched-sm-counts: the same bits for every number of CTAs",
          "[attention][sm_100][persistent][cases]") {
  AttentionProblem problem = problem_of({64}, {9, 300, 0, 77, 128}, 2, 128);
  problem.broadcast_q = true;
  AttentionInputs inputs = make_inputs(problem, /*mxfp8=*/false);
  const AttentionOutputs want = run_attention(inputs);  // ten CTAs, one a tile
  check_kernel_rounding(inputs, want);
  for (const int ctas : {1, 3, 78, 132, 148}) {
    INFO(ctas);
    inputs.kernel = R"({"max_ctas": )" + std::to_string(ctas) + "}";
    CHECK(run_attention(inputs) == want);
  }
}

TEST_CASE("Every scheduler gives the same bits", "[attention][sm_100][persistent]") {
  const Format f{false, false, 64};
  AttentionInputs inputs = inputs_of(several_tiles(f, true), f);
  const AttentionOutputs want = run_attention(inputs);
  for (const char* kernel : {R"({"scheduler": 1, "max_ctas": 2})", R"({"scheduler": 2, "max_ctas": 2})",
                             R"({"scheduler": 3, "max_ctas": 2})"}) {
    INFO(kernel);
    inputs.kernel = kernel;
    CHECK(run_attention(inputs) == want);
  }
}

TEST_CASE("More tiles than SMs are within rounding", "[attention][sm_100][persistent]") {
  std::vector<int32_t> lengths_q, lengths_k;
  Random random(3);
  for (int b = 0; b < 200; ++b) {
    lengths_q.push_back(static_cast<int32_t>(random.next() % 300));
    lengths_k.push_back(static_cast<int32_t>(random.next() % 200));
  }
  for (const Format& f : {kFormats[0], kFormats[3]}) {
    INFO(name(f));
    check_all(inputs_of(problem_of(lengths_q, lengths_k, 1, f.head_dim), f));
  }
}

TEST_CASE("A dynamic scale of P keeps small probabilities that the constant one loses",
          "[attention][sm_100][dynamic_p]") {
  for (const Format& f : kDynamic) {
    INFO(name(f));
    // Keys 0 .. 31 carry most of the weight, the others 2^-12 of it each: below the smallest E4M3 under the
    // constant scale (2^-9 / 256 = 2^-17 ... half a step), so their values would be rounded coarsely.
    AttentionInputs inputs = inputs_of(problem_of({130}, {160}, 1, f.head_dim), f);
    const double c = inputs.problem.scale * std::log2(std::exp(1.0));
    for (int i = 0; i < 130; ++i)
      for (int d = 0; d < f.head_dim; ++d)
        inputs.bf16_q[i * f.head_dim + d] = bf16_from_double(d == 0 ? 4.0 : 0);
    for (int j = 0; j < 160; ++j)
      inputs.bf16_k[j * f.head_dim] = bf16_from_double(j < 32 ? 0.0 : -14.0 / (4.0 * c));
    update_inputs(inputs);
    const auto error = [&](bool dynamic_p) {
      inputs.dynamic_p = dynamic_p;
      const AttentionOutputs outputs = run_attention(inputs);
      check_kernel_rounding(inputs, outputs);
      const AttentionResult exact = attention_forward(inputs.problem, inputs.q, inputs.k, inputs.v);
      return deviation(bf16_to_double(std::span<const uint16_t>(outputs.o)), exact.o).sqnr_db;
    };
    CHECK(error(true) >= error(false));
  }
}

// Blocks are walked from the last key to the first, so a score that falls with the key's number keeps
// outgrowing what the row has seen: by less than the kernel tolerates, by more, and by far more, a block.
TEST_CASE("Without the row maximum, maxima that keep growing are within rounding",
          "[attention][sm_100][skip_maximum]") {
  for (const int head_dim : {64, 96, 128})
    for (const double step : {0.0, 0.05, 0.1, 0.2, 3.0}) {
      INFO("head_dim " << head_dim << ", " << step << " a key");
      AttentionInputs inputs = make_inputs(problem_of({140}, {700}, 1, head_dim), /*mxfp8=*/false);
      const double c = inputs.problem.scale * std::log2(std::exp(1.0));
      for (int i = 0; i < 140; ++i)
        inputs.bf16_q[i * head_dim] = bf16_from_double(step == 0 ? 0 : i % 2 ? -4.0 : 4.0);
      for (int j = 0; j < 700; ++j) inputs.bf16_k[j * head_dim] = bf16_from_double(-step * j / (4.0 * c));
      update_inputs(inputs);
      inputs.kernel = R"({"skip_maximum": 1})";
      inputs.row_maximum = RowMaximum::kUnknown;
      check_all(inputs);
    }
}
