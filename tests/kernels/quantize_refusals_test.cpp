// What mxfp8_quantize cannot do is refused before a launch, in a sentence that names it.

#include "kernels/device.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;

namespace {

const int32_t kOffsets[] = {0, 40, 40, 170};

mxfa_quantize_desc description(int32_t layout) {
  mxfa_quantize_desc desc{};
  desc.size = sizeof desc;
  desc.head_dim = 64;
  desc.heads = 2;
  desc.batch = 3;
  desc.offsets = kOffsets;
  desc.layout = layout;
  return desc;
}

void check_message(const std::vector<std::string>& parts) {
  const std::string message = mxfa_error(Device::instance().context().get());
  for (const std::string& part : parts) {
    INFO("message: " << message << "\nmissing: " << part);
    CHECK(message.find(part) != std::string::npos);
  }
}

void refused_plan(const mxfa_quantize_desc& desc, const std::vector<std::string>& parts) {
  mxfa_plan* plan = nullptr;
  CHECK(mxfa_plan_quantize(Device::instance().context().get(), &desc, &plan) == MXFA_ERROR_INVALID);
  CHECK(plan == nullptr);
  check_message(parts);
}

// A square launch with one argument spoiled writes nothing.
template <class Spoil>
void refused_launch(Spoil&& spoil, const std::vector<std::string>& parts) {
  Device& device = Device::instance();
  const mxfa::Plan plan = device.context().quantize(description(MXFA_QUANTIZE_SQUARE));
  const auto workspace = prepared_workspace(plan);
  Buffer input(170 * 128 * 2, 0), payload(170 * 128), scales_d(2 * 384 * 4), scales_tokens(2 * 384 * 4);
  mxfa_quantize_args args{};
  args.size = sizeof args;
  args.input = {input.data(), 128, 170, {}};
  args.payload = payload.data();
  args.scales_d = {scales_d.data(), scales_d.size(), MXFA_SCALE_ALONG_D};
  args.scales_tokens = {scales_tokens.data(), scales_tokens.size(), MXFA_SCALE_ALONG_TOKENS};
  args.workspace = workspace->data();
  spoil(args);
  CHECK(mxfa_quantize(plan.get(), &args, device.stream()) == MXFA_ERROR_INVALID);
  check_message(parts);
  device.synchronize();
  for (const Buffer* buffer : {&payload, &scales_d, &scales_tokens})
    for (uint8_t byte : buffer->download<uint8_t>()) REQUIRE(byte == 0xff);
}

}  // namespace

TEST_CASE("A quantiser plan with an impossible shape, layout or mode is refused", "[quantize][any_arch]") {
  const auto with = [](auto member, auto value) {
    mxfa_quantize_desc desc = description(MXFA_QUANTIZE_ALONG_D);
    desc.*member = value;
    return desc;
  };
  refused_plan(with(&mxfa_quantize_desc::head_dim, 72), {"head_dim", "72", "64", "96", "128"});
  refused_plan(with(&mxfa_quantize_desc::heads, 0), {"heads", "0"});
  refused_plan(with(&mxfa_quantize_desc::layout, 3), {"layout", "3"});
  refused_plan(with(&mxfa_quantize_desc::scaling_mode, 2), {"scaling_mode", "2"});
  static const int32_t decreasing[] = {0, 40, 39, 170};
  refused_plan(with(&mxfa_quantize_desc::offsets, decreasing), {"offsets", "40", "39"});
}

TEST_CASE("Quantiser buffers that do not fit are refused", "[quantize][any_arch]") {
  refused_launch([](auto& args) { args.scales_tokens = {}; }, {"scales_tokens"});
  refused_launch([](auto& args) { args.scales_d.bytes -= 512; }, {"scales_d", "2560", "3072"});
  refused_launch([](auto& args) { args.scales_d.orientation = MXFA_SCALE_ALONG_TOKENS; },
                 {"scales_d", "orientation"});
  refused_launch([](auto& args) { args.payload = static_cast<char*>(args.payload) + 8; }, {"payload", "16"});
  refused_launch([](auto& args) { args.input.rows = 169; }, {"input", "169", "170"});
  refused_launch([](auto& args) { args.input.row_stride = 120; }, {"input", "120", "128"});
}
