// What is not supported, or does not fit, is refused before anything is launched or written, in a sentence
// that names it.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>

#include "kernels/attention_run.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;
using namespace mxfa::reference;

namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}
void check_message(const std::vector<std::string>& parts) {
  const std::string message = mxfa_error(Device::instance().context().get());
  for (const std::string& part : parts) {
    INFO("message: " << message << "\nmissing: " << part);
    CHECK(lower(message).find(lower(part)) != std::string::npos);
  }
}

AttentionInputs small_inputs(bool mxfp8, int len_q = 130, int len_k = 130) {
  return make_inputs(problem_of({len_q}, {len_k}, 2, 128), mxfp8);
}

// A plan request with one member spoiled is refused with a message that has these parts.
void refused_plan(bool mxfp8, const std::function<void(mxfa_attention&)>& spoil,
                  const std::vector<std::string>& parts) {
  const AttentionInputs inputs = small_inputs(mxfp8);
  mxfa_attention attention = describe_attention(inputs);
  spoil(attention);
  mxfa_plan* plan = nullptr;
  CHECK(mxfa_plan_attention_forward(Device::instance().context().get(), &attention, &plan) ==
        MXFA_ERROR_INVALID);
  CHECK(plan == nullptr);
  check_message(parts);
  mxfa_plan_destroy(plan);
}

// A launch with one argument spoiled is refused, and O and LSE keep their poison.
void refused_launch(const AttentionInputs& in, const std::function<void(mxfa_attention_forward_args&)>& spoil,
                    const std::vector<std::string>& parts) {
  Device& device = Device::instance();
  const AttentionProblem& p = in.problem;
  const mxfa::Plan plan = device.context().attention_forward(describe_attention(in));
  const auto workspace = prepared_workspace(plan);
  const int64_t element = in.mxfp8 ? 1 : 2, width = int64_t{p.heads_q} * p.head_dim;
  Buffer q(p.rows_q() * width * element), k(p.rows_k() * width * element), v(p.rows_k() * width * element);
  Buffer o(p.rows_o() * width * 2), lse(p.rows_o() * p.heads_q * 4);
  Buffer scales_q(in.mx_q.scales_d.size()), scales_k(in.mx_k.scales_d.size());
  Buffer scales_v(in.mx_v.scales_tokens.size());
  mxfa_attention_forward_args args{};
  args.size = sizeof args;
  args.q = {q.data(), width, p.rows_q(), {}};
  args.k = {k.data(), width, p.rows_k(), {}};
  args.v = {v.data(), width, p.rows_k(), {}};
  if (in.mxfp8) {
    args.q.scales = {scales_q.data(), scales_q.size(), MXFA_SCALE_ALONG_D};
    args.k.scales = {scales_k.data(), scales_k.size(), MXFA_SCALE_ALONG_D};
    args.v.scales = {scales_v.data(), scales_v.size(), MXFA_SCALE_ALONG_TOKENS};
  }
  args.o = {o.data(), width, p.rows_o(), {}};
  args.lse = static_cast<float*>(lse.data());
  args.workspace = workspace->data();
  spoil(args);
  CHECK(mxfa_attention_forward(plan.get(), &args, device.stream()) == MXFA_ERROR_INVALID);
  check_message(parts);
  device.synchronize();
  for (uint8_t byte : o.download<uint8_t>()) REQUIRE(byte == 0xff);
  for (uint8_t byte : lse.download<uint8_t>()) REQUIRE(byte == 0xff);
}

char* advance(void* pointer, int64_t bytes) { return static_cast<char*>(pointer) + bytes; }

}  // namespace

TEST_CASE("Options of MXFP8 are refused with BF16", "[attention][sm_100]") {
  refused_plan(false, [](mxfa_attention& a) { a.p_scale = MXFA_P_DYNAMIC; }, {"p_scale", "bf16"});
  refused_plan(false, [](mxfa_attention& a) { a.block = MXFA_BLOCK_32X32; }, {"block", "bf16"});
}

TEST_CASE("A scheduler that there is none of is refused", "[attention][sm_100]") {
  refused_plan(false, [](mxfa_attention& a) { a.kernel = R"({"scheduler": 5})"; },
               {"scheduler", "5", "0 to 4"});
  refused_plan(false, [](mxfa_attention& a) { a.kernel = R"({"scheduler": "cls"})"; },
               {"scheduler", "\"cls\"", "automatic, static, zigzag, lpt, clc", "did you mean \"clc\""});
  refused_plan(false, [](mxfa_attention& a) { a.kernel = R"({"scheduler": "clc", "max_ctas": 3})"; },
               {"max_ctas", "3", "clc"});
}

TEST_CASE("Packing heads is refused where rows of a tile cannot hold them", "[attention][sm_100]") {
  const auto pack = [](int heads_q, int heads_kv, const char* kernel) {
    return [=](mxfa_attention& a) { a.heads_q = heads_q, a.heads_kv = heads_kv, a.kernel = kernel; };
  };
  const char* on = R"({"pack_heads": "on"})";
  refused_plan(true, pack(4, 2, on), {"pack_heads is on", "dtype is mxfp8", "choose automatic or off"});
  refused_plan(false, pack(6, 2, on),
               {"pack_heads is on", "heads_q 6 / heads_kv 2 = 3", "divide the 128 rows"});
  refused_plan(false, pack(128, 1, R"({"pack_heads": "on", "o_box_rows": 64})"),
               {"pack_heads is on", "o_box_rows 64", "128 heads of a token", "choose 128"});
}

TEST_CASE("fwd-head-dim-72: refused, with the supported sizes", "[attention][sm_100]") {
  refused_plan(false, [](mxfa_attention& a) { a.head_dim = 72; }, {"head_dim", "72", "64", "128"});
}

TEST_CASE("A plan with impossible heads, windows, offsets or scale is refused", "[attention][sm_100]") {
  refused_plan(false, [](mxfa_attention& a) { a.heads_q = 3; }, {"heads_q", "3", "heads_kv", "2"});
  refused_plan(false, [](mxfa_attention& a) { a.window_left = -2; }, {"window", "-2"});
  refused_plan(false, [](mxfa_attention& a) { a.scale = INFINITY; }, {"scale"});
  refused_plan(false, [](mxfa_attention& a) { a.scale = -1.0f; }, {"scale", "-1"});
  static const int32_t decreasing[] = {0, 130};
  static const int32_t late_start[] = {1, 130};
  static const int32_t two_down[] = {0, 130, 40};
  refused_plan(false, [](mxfa_attention& a) { a.batch = 2, a.offsets_q = a.offsets_k = two_down; },
               {"offsets", "130", "40"});
  refused_plan(false, [](mxfa_attention& a) { a.offsets_k = late_start; }, {"offsets_k", "1"});
  refused_plan(false, [](mxfa_attention& a) { a.offsets_q = nullptr, a.offsets_k = decreasing; },
               {"offsets_q"});
}

TEST_CASE("sf-orientation-swap: head-axis scales for V are refused", "[attention][sm_100]") {
  refused_launch(make_inputs(problem_of({128}, {128}, 1, 128), true),
                 [](auto& args) { args.v.scales.orientation = MXFA_SCALE_ALONG_D; }, {"V", "orientation"});
  refused_launch(small_inputs(true), [](auto& args) { args.q.scales.orientation = MXFA_SCALE_ALONG_TOKENS; },
                 {"Q", "orientation"});
}

TEST_CASE("sf-size-check: a scale buffer one tile too small is refused", "[attention][sm_100]") {
  refused_launch(small_inputs(true), [](auto& args) { args.k.scales.bytes = 2 * 128 * 4; },
                 {"scale", "1024", "2048"});
}

TEST_CASE("Missing or misaligned scales are refused", "[attention][sm_100]") {
  refused_launch(small_inputs(true), [](auto& args) { args.v.scales.data = nullptr; }, {"V", "scale"});
  refused_launch(small_inputs(true),
                 [](auto& args) { args.k.scales.data = advance(args.k.scales.data, 256); },
                 {"K", "scale", "512"});
}

TEST_CASE("fwd-misaligned-base: a base that is not 16-byte aligned is refused", "[attention][sm_100]") {
  refused_launch(small_inputs(false, 16, 16), [](auto& args) { args.k.data = advance(args.k.data, 2); },
                 {"K", "16", "align"});
}

TEST_CASE("fwd-noncontiguous-v: a head-major V is refused with the rule for strides", "[attention][sm_100]") {
  refused_launch(small_inputs(false, 83, 150), [](auto& args) { args.v.row_stride = 128; },
                 {"V.row_stride is 128", "at least heads * head_dim = 2 * 128 = 256"});
}

TEST_CASE("Buffers and strides that do not fit are refused", "[attention][sm_100]") {
  const AttentionInputs inputs = small_inputs(false);
  refused_launch(inputs, [](auto& args) { args.v.rows = 129; }, {"V", "129", "130"});
  refused_launch(inputs, [](auto& args) { args.o.rows = 1; }, {"O", "1", "130"});
  refused_launch(inputs, [](auto& args) { args.q.row_stride = 255; }, {"Q", "255", "256"});
  refused_launch(inputs, [](auto& args) { args.q.row_stride = 257; }, {"Q", "stride", "16"});
  refused_launch(inputs, [](auto& args) { args.q.data = nullptr; }, {"Q"});
  refused_launch(inputs, [](auto& args) { args.workspace = nullptr; }, {"workspace"});
  refused_launch(inputs, [](auto& args) { args.size = 4; }, {"size", "4"});
}
