// What the runtime tells attention_fwd_sm90, against a recording driver.
#include <cmath>
#include <cstring>
#include <limits>

#include "host/attention_tiles.hpp"
#include "host/plan.hpp"
#include "runtime/fake_driver.hpp"
#include "support/catch.hpp"

using namespace mxfa;
using namespace mxfa::test;
using mxfa::test::Contains;

namespace {

// Two sequences, 300 + 5 queries and 130 + 0 keys, 4 query heads on 2 of keys, head_dim 96.
struct Problem {
  std::vector<int32_t> offsets_q = {0, 300, 305}, offsets_k = {0, 130, 130};
  mxfa_attention attention;
  mxfa_attention_forward_args args{};
  alignas(256) char workspace[8192] = {};

  Problem() {
    mxfa_attention_defaults(&attention, sizeof attention);
    attention.head_dim = 96;
    attention.heads_q = 4, attention.heads_kv = 2;
    attention.batch = 2;
    attention.offsets_q = offsets_q.data();
    attention.offsets_k = offsets_k.data();
    args.size = sizeof args;
    args.q = {device(0x100000), 4 * 96, 305, {}};
    args.k = args.v = {device(0x300000), 2 * 96, 130, {}};
    args.o = {device(0x700000), 4 * 96, 10000, {}};
    args.lse = static_cast<float*>(device(0x800000));
    args.workspace = workspace;
  }

  abi::AttentionForwardParams launch(mxfa_context& context) {
    mxfa_plan* raw = nullptr;
    INFO(context.error);
    REQUIRE(mxfa_plan_attention_forward(&context, &attention, &raw) == MXFA_OK);
    const std::unique_ptr<mxfa_plan, void (*)(mxfa_plan*)> plan(raw, mxfa_plan_destroy);
    REQUIRE(mxfa_plan_prepare(raw, workspace, nullptr) == MXFA_OK);
    const mxfa_status status = mxfa_attention_forward(raw, &args, nullptr);
    INFO(context.error);
    REQUIRE(status == MXFA_OK);
    description = nlohmann::json::parse(mxfa_plan_describe(raw));
    abi::AttentionForwardParams params;
    REQUIRE(fake().params.size() == sizeof params);
    std::memcpy(&params, fake().params.data(), sizeof params);
    return params;
  }
  nlohmann::json description;
};

std::unique_ptr<mxfa_context> hopper() {
  auto context = fake_context("sm_90a");
  fake().tables.tile_rows = 192;
  return context;
}

std::string refusal(Problem& problem) {
  const auto context = hopper();
  mxfa_plan* plan = nullptr;
  CHECK(mxfa_plan_attention_forward(context.get(), &problem.attention, &plan) == MXFA_ERROR_INVALID);
  CHECK(plan == nullptr);
  return mxfa_error(context.get());
}

}  // namespace

TEST_CASE("A Hopper launch has its tiles, boxes, counters and a CTA an SM", "[attention]") {
  const auto context = hopper();
  Problem problem;
  const abi::AttentionForwardParams params = problem.launch(*context);
  CHECK(fake().launch.gridDimX == 4);  // SMs
  CHECK(params.tile_count > 4);
  CHECK(params.rows_o == 305);
  CHECK((params.heads_q == 4 && params.heads_kv == 2));
  CHECK((params.window_left == -1 && params.window_right == -1 && params.broadcast_q == 0));
  CHECK((params.scales_q == 0 && params.scales_k == 0 && params.scales_v == 0));
  const auto* counters = reinterpret_cast<const int32_t*>(params.counters);
  CHECK((counters[0] == 0 && counters[1] == 0));
  const auto* tiles = reinterpret_cast<const RowTile*>(params.tiles);
  int64_t rows = 0;
  for (int i = 0; i < params.tile_count; ++i) rows += tiles[i].rows;
  CHECK(rows == 4 * (320 + 64));
  REQUIRE(fake().maps.size() == 4);
  CHECK(fake().maps[0].box[2] == 192);
  CHECK(fake().maps[1].box[2] == 80);
  CHECK(fake().maps[2].box[2] == 80);
  CHECK(fake().maps[3].box[2] == 64);
  for (const TensorMapRequest& map : fake().maps) {
    CHECK(map.dims[0] == 96);
    CHECK(map.box[0] == 64);  // two panels, the second half empty
    CHECK(map.swizzle == CU_TENSOR_MAP_SWIZZLE_128B);
  }
  CHECK(fake().maps[0].dims[1] == 4);
  CHECK(fake().maps[1].dims[1] == 2);
  CHECK(problem.description["grid"] == nlohmann::json({4, 1, 1}));
  CHECK(problem.description["tiles"] == params.tile_count);
  CHECK(problem.description["config"]["right_mask"] == false);
}

TEST_CASE("kernel.max_ctas leaves SMs of a Hopper launch to others", "[attention]") {
  const auto context = hopper();
  Problem problem;
  problem.attention.kernel = R"({"max_ctas": 3})";
  problem.launch(*context);
  CHECK(fake().launch.gridDimX == 3);
}

TEST_CASE("A Hopper MXFP8 launch multiplies its operands out first and reads them from the workspace",
          "[attention]") {
  const auto context = hopper();
  Problem problem;
  problem.attention.dtype = MXFA_MXFP8;
  problem.attention.p_scale = MXFA_P_DYNAMIC;
  problem.args.q.scales = {device(0x900000), 2048 * 4 * 4, MXFA_SCALE_ALONG_D};
  problem.args.k.scales = {device(0xa00000), 1024 * 2 * 4, MXFA_SCALE_ALONG_D};
  problem.args.v.scales = {device(0xb00000), 1024 * 2 * 4, MXFA_SCALE_ALONG_TOKENS};
  problem.args.q.row_stride = 4 * 96 + 16;
  problem.launch(*context);
  CHECK(problem.description["kernel"] == "attention_fwd_sm90");
  CHECK(problem.description["config"]["dynamic_p"] == true);
  CHECK(problem.description["options"]["mxfp8"]["p_scale"] == "dynamic");
  CHECK(problem.description["other_kernels"][0]["kernel"] == "mxfp8_expand");
  CHECK(fake().launches == 2);
  const abi::ExpandJob *q = &fake().expand_params.jobs[0], *k = q + 1, *v = q + 2;
  CHECK(q[3].heads == 0);
  CHECK((q->payload == 0x100000 && k->payload == 0x300000 && v->payload == 0x300000));
  CHECK((q->scales == 0x900000 && k->scales == 0xa00000 && v->scales == 0xb00000));
  CHECK((q->heads == 4 && k->heads == 2 && v->heads == 2));
  CHECK((q->row_stride == 400 && k->row_stride == 192));
  CHECK((q->scale_tiles == 4 && k->scale_tiles == 2 && v->scale_tiles == 2));  // 300 and 5, 130 and 0 rows
  CHECK((q->along_tokens == 0 && k->along_tokens == 0 && v->along_tokens == 1));
  CHECK(fake().expand_launch.gridDimX == 4 * 4 / 2 + 2 * 2 / 2 + 2 * 2 / 2);  // two heads a CTA
  REQUIRE(fake().maps.size() == 4);
  const uint32_t rows[] = {192, 128, 128, 64};
  for (int i = 0; i < 4; ++i) {
    INFO("map " << i);
    CHECK(fake().maps[i].box[2] == rows[i]);
    CHECK(fake().maps[i].type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
  }
  CHECK((fake().maps[0].address == q->output && fake().maps[2].address == v->output));
  CHECK(fake().maps[0].strides[1] == 4 * 96 * 2);
  CHECK(k->output >= q->output + 305 * 4 * 96 * 2);
  CHECK(v->output >= k->output + 130 * 2 * 96 * 2);
  CHECK(problem.description["workspace_bytes"] >= (305 * 4 + 130 * 2 * 2) * 96 * 2);
}

TEST_CASE("A block of keys that MXFP8 cannot have on a Hopper is refused", "[attention]") {
  Problem problem;
  problem.attention.dtype = MXFA_MXFP8;
  problem.attention.kernel = R"({"tile_n": 80})";
  CHECK_THAT(refusal(problem), Contains("kernel.tile_n is 80") && Contains("blocks of 128 keys"));
}

TEST_CASE("Fewer tiles than SMs are a CTA each", "[attention]") {
  const auto context = hopper();
  fake().multiprocessors = 132;
  Problem problem;
  const abi::AttentionForwardParams params = problem.launch(*context);
  CHECK(int(fake().launch.gridDimX) == params.tile_count);
}

TEST_CASE("Causal is a right window of 0, and a window that nothing feels costs no mask", "[attention]") {
  struct Row {
    int causal, left, right;            // asked
    int32_t kernel_left, kernel_right;  // 300 queries and 130 keys at most
  };
  for (const Row& row :
       {Row{0, -1, -1, -1, -1}, Row{1, -1, -1, -1, 0}, Row{1, -1, 50, -1, 0}, Row{0, -1, 298, -1, 298},
        Row{0, -1, 299, -1, -1}, Row{0, 128, -1, 128, -1}, Row{0, 129, -1, -1, -1}, Row{0, 7, 3, 7, 3},
        Row{0, INT32_MAX, INT32_MAX, -1, -1}, Row{1, 0, -1, 0, 0}}) {
    INFO("causal " << row.causal << ", window " << row.left << ", " << row.right);
    const auto context = hopper();
    Problem problem;
    problem.attention.causal = row.causal;
    problem.attention.window_left = row.left, problem.attention.window_right = row.right;
    const abi::AttentionForwardParams params = problem.launch(*context);
    CHECK(params.window_left == row.kernel_left);
    CHECK(params.window_right == row.kernel_right);
    CHECK(problem.description["config"]["left_mask"] == (row.kernel_left >= 0));
    CHECK(problem.description["config"]["right_mask"] == (row.kernel_right >= 0));
    CHECK(problem.description["options"]["causal"] == (row.causal != 0));  // as asked
  }
}

TEST_CASE("Broadcast queries: O and LSE have batch times the rows of Q", "[attention]") {
  const auto context = hopper();
  Problem problem;
  problem.offsets_q = {0, 70};
  problem.attention.broadcast_q = 1;
  problem.args.q.rows = 70;
  problem.args.o.rows = 140;
  SECTION("launched") {
    const abi::AttentionForwardParams params = problem.launch(*context);
    CHECK(params.broadcast_q == 1);
    CHECK(params.rows_o == 140);
    CHECK(params.tile_count == 2 * 4);
    CHECK(problem.description["options"]["rows_o"] == 140);
  }
  SECTION("O too small") {
    problem.args.o.rows = 139;
    mxfa_plan* plan = nullptr;
    REQUIRE(mxfa_plan_attention_forward(context.get(), &problem.attention, &plan) == MXFA_OK);
    REQUIRE(mxfa_plan_prepare(plan, problem.workspace, nullptr) == MXFA_OK);
    CHECK(mxfa_attention_forward(plan, &problem.args, nullptr) == MXFA_ERROR_INVALID);
    CHECK_THAT(mxfa_error(context.get()), Contains("broadcast_q") && Contains("is 140, but O has 139 rows"));
    mxfa_plan_destroy(plan);
  }
  SECTION("too many rows") {
    problem.offsets_q = {0, 1 << 30};
    problem.attention.offsets_q = problem.offsets_q.data();
    CHECK_THAT(refusal(problem), Contains("batch 2 times 1073741824 queries are 2147483648 rows of O"));
  }
}

TEST_CASE("A broadcast Q of two or four runs of 64 rows has a configuration of its own", "[attention]") {
  const auto tile_n = [](bool broadcast, int32_t length, const char* kernel = nullptr) {
    const auto context = hopper();
    Problem problem;
    problem.offsets_q = {0, length, length + (broadcast ? 0 : 70)};
    problem.attention.broadcast_q = broadcast, problem.attention.kernel = kernel;
    problem.args.q.rows = 1000;
    problem.launch(*context);
    return problem.description["config"]["tile_n"].get<int>();
  };
  for (const int32_t length : {65, 128, 193, 256}) CHECK(tile_n(true, length) == 96);
  for (const int32_t length : {64, 129, 192, 257}) CHECK(tile_n(true, length) == 80);
  CHECK(tile_n(false, 256) == 80);  // whose bits must not depend on the other sequence
  CHECK(tile_n(true, 256, R"({"max_ctas": 2})") == 96);
  CHECK(tile_n(true, 256, R"({"tile_n": 112})") == 112);
}

TEST_CASE("Scale 0 reaches the kernels as the smallest normal number", "[attention]") {
  for (const float scale : {0.0f, 1e-42f}) {
    const auto context = hopper();
    Problem problem;
    problem.attention.scale = scale;
    CHECK(problem.launch(*context).scale_log2 == std::numeric_limits<float>::min());
  }
  const auto context = hopper();
  Problem problem;
  problem.attention.scale = -0.5f;
  CHECK_THAT(refusal(problem), Contains("scale is -0.5") && Contains("not negative"));
}

TEST_CASE("Masks and lengths whose sum leaves 32 bits are refused", "[attention]") {
  Problem problem;
  problem.offsets_q = {0, 1 << 30, 1 << 30}, problem.offsets_k = {0, 1 << 30, 1 << 30};
  problem.attention.offsets_q = problem.offsets_q.data();
  problem.attention.offsets_k = problem.offsets_k.data();
  problem.attention.causal = 1;
  CHECK_THAT(refusal(problem), Contains("causal or window") && Contains("1073741824 queries"));
}
