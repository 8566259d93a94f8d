// attention_fwd_sm100_pair: two CTAs share keys and values.  Against the references, against the kernel of
// one CTA (the same arithmetic: the same bits), in many schedules under the hazard checks, and what is
// refused.
#include <cmath>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "kernels/attention_run.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;
using namespace mxfa::reference;

namespace {

constexpr const char* kPair = R"({"ctas_per_tile": 2})";
// A pair has stages of 256 rows and tiles of 512, and halves blocks of 128 keys.
const std::vector<int32_t> kEdges{0, 1, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1000};
const std::vector<int32_t> kEdgesShuffled{129, 257, 0,   65, 1000, 1,   256, 511,
                                          255, 63,  127, 64, 513,  512, 128};

// By pairs: within the references, and the bits of one CTA a tile.
AttentionOutputs check_pair(AttentionInputs inputs) {
  const AttentionOutputs one = run_attention(inputs);
  inputs.kernel = kPair;
  AttentionOutputs two = run_attention(inputs);
  check_kernel_rounding(inputs, two);
  check_exact(inputs, two);
  CHECK(two == one);
  return two;
}

std::string refusal(const AttentionInputs& inputs) {
  const mxfa_attention attention = describe_attention(inputs);
  mxfa_plan* plan = nullptr;
  mxfa_context* context = Device::instance().context().get();
  CHECK(mxfa_plan_attention_forward(context, &attention, &plan) == MXFA_ERROR_INVALID);
  CHECK(plan == nullptr);
  return mxfa_error(context);
}

}  // namespace

TEST_CASE("pair: self attention over every edge", "[attention][pair][sm_100]") {
  check_pair(make_inputs(problem_of(kEdges, kEdges, 1, 128), false));
}

TEST_CASE("pair: cross attention of every edge with another, one key head for three",
          "[attention][pair][sm_100]") {
  AttentionProblem problem = problem_of(kEdges, kEdgesShuffled, 3, 128);
  problem.heads_kv = 1;
  check_pair(make_inputs(problem, false, DataDistribution::kHeavyTailed));
}

TEST_CASE("pair: one Q for all sequences, power-of-two data, padded rows", "[attention][pair][sm_100]") {
  AttentionProblem problem = problem_of({300}, {9, 300, 0, 77, 128}, 2, 128);
  problem.broadcast_q = true;
  AttentionInputs inputs = make_inputs(problem, false, DataDistribution::kPowerOfTwo);
  inputs.kernel = kPair;
  const AttentionOutputs packed = run_attention(inputs);
  check_kernel_rounding(inputs, packed);
  LaunchOptions padded;
  padded.row_padding_bytes = 48;
  padded.tail_rows = 600;
  CHECK(run_attention(inputs, padded) == packed);
}

// Rows past the end of a sequence reach as far as the next pair of tiles; their bytes are NaN.
TEST_CASE("pair: neighbours' NaN and an unstored LSE change nothing", "[attention][pair][sm_100]") {
  AttentionInputs inputs = make_inputs(problem_of({130, 260, 90}, {64, 200, 70}, 1, 128), false);
  inputs.kernel = kPair;
  const AttentionOutputs clean = run_attention(inputs);
  const uint16_t nan = 0x7fc0;
  for (int row = 64; row < 264; ++row)
    for (int d = 0; d < 128; ++d) inputs.bf16_k[row * 128 + d] = inputs.bf16_v[row * 128 + d] = nan;
  for (int row = 130; row < 390; ++row)
    for (int d = 0; d < 128; ++d) inputs.bf16_q[row * 128 + d] = nan;
  LaunchOptions without_lse;
  without_lse.store_lse = false;
  const AttentionOutputs spoiled = run_attention(inputs, without_lse);
  for (int i = 0; i < 130 * 128; ++i) REQUIRE(spoiled.o[i] == clean.o[i]);
  for (int i = 390 * 128; i < 480 * 128; ++i) REQUIRE(spoiled.o[i] == clean.o[i]);
  CHECK((spoiled.o[131 * 128] & 0x7fff) > 0x7f80);  // the neighbour did get its NaN
}

TEST_CASE("sched-zero-kv-cluster: a pair with an empty key range writes zeros",
          "[attention][pair][cases][sm_100]") {
  const AttentionOutputs outputs = check_pair(make_inputs(problem_of({256, 256}, {0, 128}, 2, 128), false));
  for (int i = 0; i < 256 * 2 * 128; ++i) REQUIRE(outputs.o[i] == 0);  // the bits of +0
  for (int head = 0; head < 2; ++head)
    for (int row = 0; row < 256; ++row) REQUIRE(outputs.lse[head * 512 + row] == -INFINITY);
}

// 513: the second CTA has no rows of the second tile; 40: none at all; keys 30: none of the block's keys
// either.
TEST_CASE("pair: the same bits in every schedule, without a hazard", "[attention][pair][hazard][sm_100]") {
  AttentionInputs inputs = make_inputs(problem_of({513, 40, 5, 0, 300}, {257, 300, 0, 7, 30}, 1, 128), false);
  inputs.kernel = kPair;
  const AttentionOutputs want = run_attention(inputs);
  check_kernel_rounding(inputs, want);
  inputs.kernel = R"({"ctas_per_tile": 2, "max_ctas": 3, "kv_stages": 3})";  // one pair walks all tiles
  const Checked checked;
  for (const std::string& order : schedules(12)) {
    CAPTURE(order);
    const Schedule schedule(order);
    CHECK(run_attention(inputs) == want);
  }
}

TEST_CASE("pair: tables of both CTAs, and a grid of whole pairs", "[attention][pair][sm_100]") {
  AttentionInputs inputs = make_inputs(problem_of({600, 5}, {130, 7}, 2, 128), false);
  inputs.kernel = kPair;
  const mxfa::Plan plan = Device::instance().context().attention_forward(describe_attention(inputs));
  const auto description = nlohmann::json::parse(plan.describe());
  CHECK(description["kernel"] == "attention_fwd_sm100_pair");
  CHECK(description["tiles"] == 6);
  CHECK(description["grid"][0] == 12);
  const auto& tables = description["tables"];
  CHECK(tables["tile_rows"] == 512);
  CHECK(tables["tmem_columns"] == 512);
  std::map<std::string, nlohmann::json> rows;
  for (const char* table : {"smem", "barriers"})
    for (const auto& row : tables[table]) rows[row["name"]] = row;
  CHECK(rows["q"]["bytes"] == 128 * 128 * 2);
  CHECK(rows["kv"]["bytes"] == 128 * 128 * 2 / 2);
  // One load thread arrives for the bytes of both CTAs; softmax and correction of both arrive, a warp once.
  CHECK((rows["q_full"]["count"] == 1 && rows["q_full"]["tx_bytes"] == 2 * 128 * 128 * 2));
  CHECK((rows["kv_full"]["count"] == 1 && rows["kv_full"]["tx_bytes"] == 128 * 128 * 2));
  CHECK((rows["p_full"]["count"] == 2 * (4 + 4) && rows["p_last"]["count"] == 2 * 4));
  for (const char* commit : {"q_empty", "kv_empty", "s_full", "o_full"}) CHECK(rows[commit]["count"] == 1);
}

TEST_CASE("pair: what it does not serve is refused by name", "[attention][pair][sm_100]") {
  AttentionInputs mxfp8 = make_inputs(problem_of({130}, {130}, 1, 128), true);
  mxfp8.kernel = kPair;
  CHECK_THAT(refusal(mxfp8), Contains("kernel.ctas_per_tile is 2") && Contains("mxfp8"));
  AttentionInputs narrow = make_inputs(problem_of({130}, {130}, 1, 64), false);
  narrow.kernel = kPair;
  CHECK_THAT(refusal(narrow), Contains("kernel.ctas_per_tile is 2") && Contains("head_dim is 64"));
  AttentionInputs inputs = make_inputs(problem_of({130}, {130}, 1, 128), false);
  inputs.kernel = R"({"ctas_per_tile": 3})";
  CHECK_THAT(refusal(inputs), Contains("kernel.ctas_per_tile is 3") && Contains("1 to 2"));
  inputs.kernel = R"({"ctas_per_tile": 2, "max_ctas": 1})";
  CHECK_THAT(refusal(inputs), Contains("kernel.max_ctas is 1") && Contains("at least 2"));
  inputs.kernel = kPair;
  inputs.problem.window_left = 10;
  CHECK_THAT(refusal(inputs), Contains("kernel.ctas_per_tile is 2") && Contains("window is [10, -1]"));
  inputs.problem.window_left = -1;
  inputs.problem.causal = true;
  CHECK_THAT(refusal(inputs), Contains("kernel.ctas_per_tile is 2") && Contains("causal"));
}

TEST_CASE("pair: Hopper has no such kernel", "[gpu][attention][pair][sm_90]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  AttentionInputs inputs = make_inputs(problem_of({130}, {130}, 1, 128), false);
  inputs.kernel = kPair;
  CHECK_THAT(refusal(inputs), Contains("kernel.ctas_per_tile") && Contains("attention_fwd_sm90"));
}
