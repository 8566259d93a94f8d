// attention_fwd_sm100 over a covering array: every two values of format, head_dim, heads, mask, lengths,
// broadcast, scheduler and packing meet in one of its rows.  Each row matches the references, and has the
// same bits under other schedules of the CPU driver and under its hazard checks.
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

enum Factor { kFormat, kHeadDim, kRatio, kMask, kLength, kBroadcast, kScheduler, kPacking };

struct Lengths {
  const char* name;
  std::vector<int32_t> q, k;
};
struct Mask {
  const char* name;
  bool causal;
  int left, right;
};

const std::vector<const char*> kFormats{"bf16", "mxfp8", "mxfp8 with dynamic P"};
const std::vector<int> kHeadDims{64, 96, 128};
const std::vector<int> kRatios{1, 2, 7, 8};  // query heads of a key head
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

std::vector<int> values() {
  return {static_cast<int>(kFormats.size()),    static_cast<int>(kHeadDims.size()),
          static_cast<int>(kRatios.size()),     static_cast<int>(kMasks.size()),
          static_cast<int>(kLengths.size()),    2,
          static_cast<int>(kSchedulers.size()), static_cast<int>(kPackings.size())};
}

// What is refused by name (attention_refusals_test.cpp), or packs nothing.
bool allowed(int a, int x, int b, int y) {
  if (b != kPacking || y == 0) return true;
  if (a == kFormat) return x == 0;
  if (a == kRatio) return kRatios[x] == 2 || kRatios[x] == 8;
  return true;
}

AttentionInputs inputs_of(const CoveringRow& row) {
  const Lengths& lengths = kLengths[row[kLength]];
  const bool broadcast = row[kBroadcast] == 1;
  AttentionProblem problem = problem_of(broadcast ? std::vector<int32_t>{lengths.q.back()} : lengths.q,
                                        lengths.k, kRatios[row[kRatio]], kHeadDims[row[kHeadDim]]);
  problem.heads_kv = 1;
  problem.broadcast_q = broadcast;
  const Mask& mask = kMasks[row[kMask]];
  problem.causal = mask.causal;
  problem.window_left = mask.left, problem.window_right = mask.right;
  AttentionInputs inputs = make_inputs(problem, row[kFormat] != 0);
  inputs.dynamic_p = row[kFormat] == 2;
  inputs.kernel = std::string(R"({"scheduler": ")") + kSchedulers[row[kScheduler]] + R"(", "pack_heads": ")" +
                  kPackings[row[kPacking]] + R"("})";
  return inputs;
}

std::string describe(const CoveringRow& row) {
  return std::string(kFormats[row[kFormat]]) + ", head_dim " + std::to_string(kHeadDims[row[kHeadDim]]) +
         ", " + std::to_string(kRatios[row[kRatio]]) + " query heads a key head, mask " +
         kMasks[row[kMask]].name + ", lengths " + kLengths[row[kLength]].name +
         (row[kBroadcast] ? ", broadcast Q" : "") + ", scheduler " + kSchedulers[row[kScheduler]] +
         ", packing " + kPackings[row[kPacking]];
}

// MXFA_COVERING_SEEDS: how many seeds of random schedules (and with them orders of grants) each row runs
// under; 20 in `make check`.
int seeds() {
  const char* text = std::getenv("MXFA_COVERING_SEEDS");
  return text ? std::atoi(text) : 1;
}

struct Checked {
  Checked() { setenv("MXFA_EMU_CHECK", "on", 1); }
  ~Checked() { unsetenv("MXFA_EMU_CHECK"); }
};

}  // namespace

TEST_CASE("The covering array has every allowed pair of values", "[attention][sm_100][covering]") {
  std::set<ValuePair> open = allowed_pairs(values(), allowed);
  const auto rows = covering_array(values(), allowed);
  for (const CoveringRow& row : rows)
    for (const ValuePair& pair : pairs_of(row)) {
      const auto [a, x, b, y] = pair;
      CHECK(allowed(a, x, b, y));
      open.erase(pair);
    }
  CHECK(open.empty());
  CHECK(rows.size() < 50);  // 35 pairs of masks and lengths need as many
}

TEST_CASE("Every row of the covering array matches the references under every schedule",
          "[attention][sm_100][covering]") {
  int number = 0;
  for (const CoveringRow& row : covering_array(values(), allowed)) {
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
