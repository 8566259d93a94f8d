// attention_fwd_sm100 over a covering array: every format, head_dim and mask meet in one of its rows, and
// every two values of those, heads, lengths, broadcast, scheduler, packing, CTAs, quantisation and scale.
// Each row matches the references, and has the same bits under other schedules of the CPU driver and under
// its hazard checks.
#include <array>
#include <cstdlib>

#include "kernels/attention_run.hpp"
#include "reference/compare.hpp"
#include "reference/formats.hpp"
#include "support/catch.hpp"
#include "support/covering.hpp"

using namespace mxfa::test;
using namespace mxfa::reference;

namespace {

enum Factor {
  kFormat,
  kHeadDim,
  kMask,
  kHeads,
  kLength,
  kBroadcast,
  kScheduler,
  kPacking,
  kCtas,
  kQuantization,
  kScale
};

struct Lengths {
  const char* name;
  std::vector<int32_t> q, k;
};
struct Mask {
  const char* name;
  bool causal;
  int left, right;
};
struct Heads {
  int q, kv;
};
struct Quantization {
  const char* name;
  bool square;
  ScalingMode scaling;
};

const std::vector<const char*> kFormats{"bf16", "mxfp8", "mxfp8 with dynamic P"};
const std::vector<int> kHeadDims{64, 96, 128};
const std::vector<Heads> kHeadNumbers{{2, 2}, {4, 2}, {7, 1}, {8, 1}};  // MHA, GQA, MQA
const std::vector<Mask> kMasks{{"none", false, -1, -1},
                               {"causal", true, -1, -1},
                               {"right window", false, -1, 3},
                               {"left window", false, 130, -1},
                               {"both windows", false, 40, 140}};
const std::vector<Lengths> kLengths{{"with 0", {0, 3, 40}, {4, 0, 70}},
                                    {"1", {1, 1}, {1, 200}},
                                    {"31 to 33", {31, 32, 33}, {33, 31, 32}},
                                    {"127 to 129", {127, 128, 129}, {129, 127, 128}},
                                    {"255 to 257", {257, 255}, {256, 257}},
                                    {"1000", {5, 1000}, {1000, 40}},
                                    {"mixed", {130, 1, 0, 300}, {64, 513, 9, 200}}};
const std::vector<const char*> kSchedulers{"static", "zigzag", "lpt", "clc"};
const std::vector<const char*> kPackings{"off", "on"};
const std::vector<int> kMaxCtas{0, 2};  // one a tile here, or two that walk all tiles
const std::vector<Quantization> kQuantizations{{"1x32 rceil", false, ScalingMode::kRceil},
                                               {"1x32 floor", false, ScalingMode::kFloor},
                                               {"32x32 rceil", true, ScalingMode::kRceil},
                                               {"32x32 floor", true, ScalingMode::kFloor}};
const std::vector<double> kScales{0, 0.05};  // 0: 1/sqrt(head_dim)

std::vector<int> values() {
  return {static_cast<int>(kFormats.size()),    static_cast<int>(kHeadDims.size()),
          static_cast<int>(kMasks.size()),      static_cast<int>(kHeadNumbers.size()),
          static_cast<int>(kLengths.size()),    2,
          static_cast<int>(kSchedulers.size()), static_cast<int>(kPackings.size()),
          static_cast<int>(kMaxCtas.size()),    static_cast<int>(kQuantizations.size()),
          static_cast<int>(kScales.size())};
}

// What is refused by name (attention_refusals_test.cpp), packs nothing, or quantises nothing.
bool allowed(int a, int x, int b, int y) {
  if (b == kPacking && y == 1) {
    if (a == kFormat) return x == 0;
    if (a == kHeads) return kHeadNumbers[x].q > kHeadNumbers[x].kv && kHeadNumbers[x].q != 7;
  }
  if (a == kScheduler && kSchedulers[x] == std::string("clc") && b == kCtas) return kMaxCtas[y] == 0;
  if (a == kFormat && x == 0 && b == kQuantization) return y == 0;
  return a != kPacking || x == 0 || b != kQuantization || y == 0;
}

// The kernel is compiled for these three.
std::vector<CoveringRow> rows() {
  return covering_array(values(), allowed, combinations(values(), {kFormat, kHeadDim, kMask}));
}

AttentionInputs inputs_of(const CoveringRow& row) {
  const Lengths& lengths = kLengths[row[kLength]];
  const bool broadcast = row[kBroadcast] == 1;
  AttentionProblem problem = problem_of(broadcast ? std::vector<int32_t>{lengths.q.back()} : lengths.q,
                                        lengths.k, kHeadNumbers[row[kHeads]].q, kHeadDims[row[kHeadDim]]);
  problem.heads_kv = kHeadNumbers[row[kHeads]].kv;
  problem.broadcast_q = broadcast;
  const Mask& mask = kMasks[row[kMask]];
  problem.causal = mask.causal;
  problem.window_left = mask.left, problem.window_right = mask.right;
  if (kScales[row[kScale]] > 0) problem.scale = kScales[row[kScale]];
  AttentionInputs inputs = make_inputs(problem, row[kFormat] != 0);
  inputs.dynamic_p = row[kFormat] == 2;
  inputs.square = kQuantizations[row[kQuantization]].square;
  inputs.scaling = kQuantizations[row[kQuantization]].scaling;
  update_inputs(inputs);
  inputs.kernel = std::string(R"({"scheduler": ")") + kSchedulers[row[kScheduler]] + R"(", "pack_heads": ")" +
                  kPackings[row[kPacking]] + R"(", "max_ctas": )" + std::to_string(kMaxCtas[row[kCtas]]) +
                  "}";
  return inputs;
}

std::string describe(const CoveringRow& row) {
  const Heads heads = kHeadNumbers[row[kHeads]];
  return std::string(kFormats[row[kFormat]]) + ", head_dim " + std::to_string(kHeadDims[row[kHeadDim]]) +
         ", heads " + std::to_string(heads.q) + "/" + std::to_string(heads.kv) + ", mask " +
         kMasks[row[kMask]].name + ", lengths " + kLengths[row[kLength]].name +
         (row[kBroadcast] ? ", broadcast Q" : "") + ", scheduler " + kSchedulers[row[kScheduler]] +
         ", packing " + kPackings[row[kPacking]] + ", max_ctas " + std::to_string(kMaxCtas[row[kCtas]]) +
         ", quantised " + kQuantizations[row[kQuantization]].name + ", scale " +
         std::to_string(kScales[row[kScale]]);
}

// MXFA_COVERING_SEEDS: how many seeds of random schedules (and with them orders of grants) each row runs
// under; 20 in `make check`.
int seeds() {
  const char* text = std::getenv("MXFA_COVERING_SEEDS");
  return text ? std::atoi(text) : 1;
}

}  // namespace

TEST_CASE("The covering array has every allowed pair of values, and every format, head_dim and mask",
          "[attention][sm_100][covering]") {
  std::set<ValuePair> open = allowed_pairs(values(), allowed);
  std::set<CoveringRow> compiled;
  const std::vector<CoveringRow> all = rows();
  for (const CoveringRow& row : all) {
    compiled.insert({row[kFormat], row[kHeadDim], row[kMask]});
    for (const ValuePair& pair : pairs_of(row)) {
      const auto [a, x, b, y] = pair;
      CHECK(allowed(a, x, b, y));
      open.erase(pair);
    }
  }
  CHECK(open.empty());
  CHECK(compiled.size() == kFormats.size() * kHeadDims.size() * kMasks.size());
  CHECK(all.size() < 60);  // 45 of those
}

TEST_CASE("Every row of the covering array matches the references under every schedule",
          "[attention][sm_100][covering]") {
  int number = 0;
  for (const CoveringRow& row : rows()) {
    INFO("row " << number << ": " << describe(row));
    const AttentionInputs inputs = inputs_of(row);
    const AttentionOutputs want = run_attention(inputs);
    check_kernel_rounding(inputs, want);
    check_exact(inputs, want);
    if (inputs.mxfp8) check_format_accuracy(inputs, want);
    for (int seed = 0; seed < seeds(); ++seed) {
      // Another kind of schedule for the neighbouring row, and the checks with each kind.
      const char* kinds[] = {"random", "pct", "split"};
      const std::string order = kinds[(number + seed) % 3] + (":" + std::to_string(100 * number + seed));
      INFO("schedule " << order);
      const Schedule schedule(order);
      if (seed == 0) {
        const Checked checked;
        CHECK(run_attention(inputs) == want);
      } else {
        CHECK(run_attention(inputs) == want);
      }
    }
    ++number;
  }
}

// The rule of mxa-error-not-growing for every format: the error at sixteen times the keys is at most twice.
TEST_CASE("The error does not grow with the number of key blocks", "[attention][sm_100][covering]") {
  for (int format = 0; format < 3; ++format) {
    INFO(kFormats[format]);
    const auto error_with = [&](int keys) {
      AttentionInputs inputs = make_inputs(problem_of({64}, {keys}, 1, 64), format != 0);
      inputs.dynamic_p = format == 2;
      const AttentionOutputs outputs = run_attention(inputs);
      check_kernel_rounding(inputs, outputs);
      const AttentionResult exact = attention_forward(inputs.problem, inputs.q, inputs.k, inputs.v);
      return deviation(bf16_to_double(std::span<const uint16_t>(outputs.o)), exact.o).relative_l2;
    };
    const double few = error_with(256);
    CHECK(error_with(1024) <= 2 * few);
    CHECK(error_with(4096) <= 2 * few);
  }
}
