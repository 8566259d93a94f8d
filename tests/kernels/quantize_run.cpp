// Buffers, launch and byte comparison of mxfp8_quantize.
#include "kernels/quantize_run.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include "reference/formats.hpp"
#include "support/catch.hpp"

namespace mxfa::test {
namespace {

using reference::BlockLayout;
using reference::JaggedScaleLayout;
using reference::JaggedShape;

int32_t layout_of(BlockLayout layout) {
  switch (layout) {
    case BlockLayout::kAlongD:
      return MXFA_QUANTIZE_ALONG_D;
    case BlockLayout::kAlongTokens:
      return MXFA_QUANTIZE_ALONG_TOKENS;
    case BlockLayout::kSquare:
      return MXFA_QUANTIZE_SQUARE;
  }
  return -1;
}

// First difference by place, so that a failure says more than "vectors differ".
void check_bytes(const char* what, std::span<const uint8_t> got, std::span<const uint8_t> want) {
  INFO(what);
  REQUIRE(got.size() == want.size());
  const auto [a, b] = std::mismatch(got.begin(), got.end(), want.begin());
  const int64_t differing = std::inner_product(got.begin(), got.end(), want.begin(), int64_t{0},
                                               std::plus<>(), [](uint8_t x, uint8_t y) { return x != y; });
  if (a == got.end()) return;
  const int64_t at = a - got.begin();
  INFO("byte " << at << ": got " << int{*a} << ", want " << int{*b} << "; " << differing << " of "
               << got.size() << " differ");
  CHECK(differing == 0);
}

}  // namespace

QuantizeResult run_quantize(std::span<const uint16_t> x, const JaggedShape& shape,
                            const QuantizeOptions& options) {
  Device& device = Device::instance();
  mxfa_quantize_desc desc{};
  desc.size = sizeof desc;
  desc.head_dim = shape.head_dim;
  desc.heads = shape.heads;
  desc.batch = shape.batch();
  desc.offsets = shape.offsets.data();
  desc.layout = layout_of(options.layout);
  desc.scaling_mode = options.mode == reference::ScalingMode::kRceil ? MXFA_RCEIL : MXFA_FLOOR;
  const Plan plan = device.context().quantize(desc);
  const auto workspace = prepared_workspace(plan);

  const int64_t width = int64_t{shape.heads} * shape.head_dim, stride = width + options.row_padding;
  Buffer input((shape.tokens() + options.tail_rows) * stride * sizeof(uint16_t));
  for (int64_t t = 0; t < shape.tokens(); ++t)
    input.upload(x.subspan(t * width, width), t * stride * sizeof(uint16_t));

  const JaggedScaleLayout atoms(shape.offsets, shape.heads);
  Buffer payload(shape.elements());
  Buffer scales_d(options.layout == BlockLayout::kAlongTokens ? 0 : atoms.bytes());
  Buffer scales_tokens(options.layout == BlockLayout::kAlongD ? 0 : atoms.bytes());

  mxfa_quantize_args args{};
  args.size = sizeof args;
  args.input = {input.data(), stride, shape.tokens() + options.tail_rows, {}};
  args.payload = payload.data();
  if (scales_d.size() > 0) args.scales_d = {scales_d.data(), scales_d.size(), MXFA_SCALE_ALONG_D};
  if (scales_tokens.size() > 0)
    args.scales_tokens = {scales_tokens.data(), scales_tokens.size(), MXFA_SCALE_ALONG_TOKENS};
  args.workspace = workspace->data();
  plan(args, device.stream());
  device.synchronize();
  return {payload.download<uint8_t>(), scales_d.download<uint8_t>(), scales_tokens.download<uint8_t>()};
}

void check_quantize(std::span<const uint16_t> x, const JaggedShape& shape, const QuantizeOptions& options) {
  const auto want = reference::quantize_bf16(x, shape, options.layout, options.mode);
  QuantizeResult got = run_quantize(x, shape, options);
  // The sign of a NaN that comes out of a conversion is not specified.
  for (uint8_t& code : got.payload)
    if (code == 0xff) code = reference::kE4m3Nan;
  INFO("head_dim " << shape.head_dim << ", heads " << shape.heads << ", layout " << layout_of(options.layout)
                   << ", floor " << (options.mode == reference::ScalingMode::kFloor));
  check_bytes("payload", got.payload, want.payload);
  check_bytes("scales along D", got.scales_d, want.scales_d);
  check_bytes("scales along tokens", got.scales_tokens, want.scales_tokens);
}

}  // namespace mxfa::test
