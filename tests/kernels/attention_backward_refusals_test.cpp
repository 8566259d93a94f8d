// What the backward does not support, or what does not fit, is refused before anything is launched or
// written, in a sentence that names it.
#include <functional>

#include "kernels/attention_backward_run.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;
using namespace mxfa::reference;

namespace {

void check_message(const std::vector<std::string>& parts) {
  const std::string message = mxfa_error(Device::instance().context().get());
  for (const std::string& part : parts) {
    INFO("message: " << message << "\nmissing: " << part);
    CHECK(message.find(part) != std::string::npos);
  }
}

using Spoil = std::function<void(mxfa_attention&, mxfa_attention_backward_options&)>;
void refused_plan(const Spoil& spoil, const std::vector<std::string>& parts) {
  const BackwardInputs inputs = make_backward(problem_of({40}, {40}, 4, 128));
  mxfa_attention attention = describe_attention(inputs.forward);
  mxfa_attention_backward_options options = inputs.options;
  spoil(attention, options);
  mxfa_plan* plan = nullptr;
  CHECK(mxfa_plan_attention_backward(Device::instance().context().get(), &attention, &options, &plan) ==
        MXFA_ERROR_INVALID);
  CHECK(plan == nullptr);
  check_message(parts);
  mxfa_plan_destroy(plan);
}

// A launch with one argument spoiled is refused, and the gradients keep their poison.
void refused_launch(const std::function<void(mxfa_attention_backward_args&)>& spoil,
                    const std::vector<std::string>& parts) {
  Device& device = Device::instance();
  const BackwardInputs inputs = make_backward(problem_of({40}, {50}, 1, 64));
  const mxfa::Plan plan =
      device.context().attention_backward(describe_attention(inputs.forward), inputs.options);
  const auto workspace = prepared_workspace(plan);
  Buffer q(40 * 128), k(50 * 128), v(50 * 128), o(40 * 128), d_o(40 * 128), lse(40 * 4);
  Buffer dq(40 * 128), dk(50 * 128), dv(50 * 128);
  mxfa_attention_backward_args args{};
  args.size = sizeof args;
  args.q = {q.data(), 64, 40, {}}, args.k = {k.data(), 64, 50, {}}, args.v = {v.data(), 64, 50, {}};
  args.o = {o.data(), 64, 40, {}}, args.d_o = {d_o.data(), 64, 40, {}};
  args.dq = {dq.data(), 64, 40, {}}, args.dk = {dk.data(), 64, 50, {}}, args.dv = {dv.data(), 64, 50, {}};
  args.lse = static_cast<const float*>(lse.data());
  args.workspace = workspace->data();
  spoil(args);
  CHECK(mxfa_attention_backward(plan.get(), &args, device.stream()) == MXFA_ERROR_INVALID);
  check_message(parts);
  device.synchronize();
  for (const Buffer* gradient : {&dq, &dk, &dv})
    for (const uint8_t byte : gradient->download<uint8_t>()) REQUIRE(byte == 0xff);
}

}  // namespace

TEST_CASE("sm_90a backward: options without a kernel are refused by name", "[gpu][sm_90][bwd][refusals]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  refused_plan(
      [](auto& attention, auto& options) {
        attention.kernel = R"({"method": "split"})";
        options.dq_accumulate = MXFA_DQ_FP16;
      },
      {"kernel.method is split", "dq_accumulate is fp16"});
  refused_plan(
      [](auto& attention, auto&) { attention.kernel = R"({"method": "split", "direct_chunks": 8})"; },
      {"kernel.direct_chunks", "method split"});
  const auto with_kernel = [](const char* kernel, const std::vector<std::string>& parts) {
    refused_plan([&](auto& attention, auto&) { attention.kernel = kernel; }, parts);
  };
  with_kernel(R"({"tile_m": 96})", {"tile_m=96", "64 or 80"});
  with_kernel(R"({"tile_m": 80, "kv_stages": 2, "direct_chunks": 0})", {"kv_stages=2", "227 KB"});
  with_kernel(R"({"tile_m": 80, "method": "split"})", {"kernel.tile_m is 80", "method split"});
  with_kernel(R"({"keys_in_registers": 1})", {"keys_in_registers=1", "head_dim 64"});
  refused_plan(
      [](auto& attention, auto& options) {
        attention.kernel = R"({"tile_m": 80, "method": "one_kernel"})";
        options.deterministic = 1;
      },
      {"tile_m=80", "deterministic"});
  refused_plan([](auto& attention, auto&) { attention.scale = 0x1p-115f; }, {"scale is 2.4", "2^-114"});
  refused_plan([](auto& attention, auto&) { attention.kernel = R"({"dq_tile_n": 64})"; },
               {"kernel.dq_tile_n", "set kernel.method to split"});
  refused_plan([](auto& attention, auto&) { attention.kernel = R"({"method": "both"})"; },
               {"kernel.method is \"both\"", "automatic, one_kernel, split"});
  refused_plan(
      [](auto& attention, auto&) {
        attention.dtype = MXFA_MXFP8;
        attention.p_scale = MXFA_P_DYNAMIC;
      },
      {"p_scale is dynamic", "2^-8"});
  refused_plan(
      [](auto& attention, auto&) {
        attention.dtype = MXFA_MXFP8;
        attention.block = MXFA_BLOCK_32X32;
        attention.scaling_mode = MXFA_FLOOR;
      },
      {"scaling_mode is floor", "block 32x32"});
  refused_plan(
      [](auto& attention, auto& options) {
        attention.dtype = MXFA_MXFP8;
        options.dkv_output = MXFA_MXFP8;
      },
      {"dkv_output mxfp8", "bf16"});
  refused_plan(
      [](auto& attention, auto&) {
        attention.dtype = MXFA_MXFP8;
        attention.kernel = R"({"method": "split"})";
      },
      {"kernel.method is split", "mxfp8"});
  refused_plan([](auto&, auto& options) { options.dkv_output = MXFA_MXFP8; }, {"dkv_output mxfp8"});
}

TEST_CASE("sm_90a backward: options out of range are refused by name", "[gpu][sm_90][bwd][refusals]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  refused_plan([](auto&, auto& options) { options.dq_accumulate = 7; }, {"dq_accumulate is 7"});
  refused_plan([](auto&, auto& options) { options.deterministic = 2; }, {"deterministic is 2"});
  refused_plan([](auto&, auto& options) { options.dkv_output = 5; }, {"dkv_output is 5"});
  refused_plan([](auto&, auto& options) { options.dq_scale_log2 = 3; }, {"dq_scale_log2 is 3", "fp16"});
  refused_plan([](auto&, auto& options) { options.dq_scale_log2 = 31; }, {"dq_scale_log2 is 31"});
  refused_plan([](auto& attention, auto&) { attention.head_dim = 80; }, {"head_dim is 80"});
  refused_plan([](auto& attention, auto&) { attention.heads_kv = 3; }, {"heads_q 4", "heads_kv 3"});
  refused_plan([](auto& attention, auto&) { attention.kernel = R"({"tile_n": 80})"; }, {"kernel.tile_n"});
  refused_plan([](auto&, auto& options) { options.size = 3; }, {"mxfa_attention_backward_options.size is 3"});
}

TEST_CASE("sm_90a backward: operands that do not fit are refused, nothing is written",
          "[gpu][sm_90][bwd][refusals]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  refused_launch([](auto& args) { args.d_o.row_stride = 56; }, {"dO.row_stride is 56"});
  refused_launch([](auto& args) { args.dq.row_stride = 68; }, {"dQ.row_stride is 68", "16 bytes"});
  refused_launch([](auto& args) { args.dk.rows = 49; }, {"dK has 49 rows"});
  refused_launch([](auto& args) { args.dv.data = nullptr; }, {"dV.data is null"});
  refused_launch([](auto& args) { args.o.data = nullptr; }, {"O.data is null"});
  refused_launch([](auto& args) { args.lse = nullptr; }, {"lse is null"});
  refused_launch([](auto& args) { args.workspace = static_cast<char*>(args.workspace) + 256; },
                 {"was not prepared"});
  refused_launch([](auto& args) { args.q.scales.data = args.q.data; }, {"Q.scales.data is set"});
}

TEST_CASE("a backward plan is not a forward plan", "[gpu][sm_90][bwd][refusals]") {
  const OnHopper hopper;
  if (!hopper.ready()) return;
  const BackwardInputs inputs = make_backward(problem_of({4}, {5}, 1, 64));
  const mxfa_attention attention = describe_attention(inputs.forward);
  const mxfa::Plan forward = Device::instance().context().attention_forward(attention);
  mxfa_attention_backward_args args{};
  args.size = sizeof args;
  CHECK(mxfa_attention_backward(forward.get(), &args, nullptr) == MXFA_ERROR_INVALID);
  check_message({"not an attention_backward plan"});
}

TEST_CASE("the backward is refused by name where there is no kernel for it",
          "[attention][refusals][sm_100]") {
  refused_plan([](auto&, auto&) {}, {"attn_bwd", Device::instance().arch(), "sm_90a", "emulator:h200"});
}
