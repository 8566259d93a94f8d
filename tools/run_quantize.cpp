// Quantisation on the device, and op mxfp8_quantize of `mxfa run`: every byte is compared with the reference
// quantiser.
#include <fmt/format.h>

#include <algorithm>

#include "byte_difference.hpp"
#include "host/shape_file.hpp"
#include "reference/random.hpp"
#include "run.hpp"

namespace mxfa::tools {

namespace {

using reference::BlockLayout;
using reference::Orientation;

reference::ScalingMode reference_mode(ScalingMode mode) {
  return mode == ScalingMode::floor ? reference::ScalingMode::kFloor : reference::ScalingMode::kRceil;
}

void compare_bytes(const std::vector<uint8_t>& got, const std::vector<uint8_t>& want, const std::string& name,
                   const char* what, RunRow& row) {
  const std::string sentence =
      byte_difference(got, want, fmt::format("{} of {}", what, name), "the reference quantiser");
  if (!sentence.empty()) row.fail(sentence);
}

}  // namespace

mxfa_tensor DeviceOperand::tensor(int heads, int head_dim, Orientation orientation) const {
  const bool along_d = orientation == Orientation::kAlongD;
  const DeviceBuffer& scales = along_d ? *scales_d : *scales_tokens;
  return {payload->data(),
          int64_t{heads} * head_dim,
          static_cast<int64_t>(rows),
          {scales.data(), scales.bytes(), along_d ? MXFA_SCALE_ALONG_D : MXFA_SCALE_ALONG_TOKENS}};
}

std::vector<uint16_t> make_data(const Shape& shape, reference::Operand operand, int64_t tokens, int heads) {
  return reference::random_tensor(*reference::data_distribution(name_of(shape.data.distribution)),
                                  shape.data.std, shape.data.seed, operand, tokens, heads, shape.head_dim);
}

DeviceOperand quantize_on_device(const Session& session, const Shape& shape, const QuantizeRequest& request,
                                 const std::vector<uint16_t>& values, bool check, RunRow& row) {
  const std::vector<int32_t> offsets = offsets_of(request.lengths);
  const int heads = request.heads;
  const BlockLayout layout = request.layout;
  const std::string& name = request.name;
  const Plan plan = plan_quantize(session.context(), shape, request);
  const bool own_row = shape.op == Op::mxfp8_quantize;  // else the row is about attention

  const uint64_t row_elements = static_cast<uint64_t>(heads) * shape.head_dim;
  const uint64_t tokens = static_cast<uint64_t>(offsets.back());
  const uint64_t scale_bytes = static_cast<uint64_t>(heads) *
                               mxfa_scale_rows(static_cast<int32_t>(request.lengths.size()), offsets.data()) *
                               4;
  // What an attention that is planned for a capacity may ask for.
  const uint64_t scale_room =
      shape.device_lengths ? (tokens + request.lengths.size() * 127) * static_cast<uint64_t>(heads) * 4 : 0;
  const uint64_t scale_buffer = std::max(scale_bytes, scale_room);
  DeviceOperand operand;
  operand.rows = tokens + kTailRows;
  operand.input = std::make_unique<DeviceBuffer>(session, fmt::format("{} (BF16)", name),
                                                 operand.rows * row_elements * 2);
  // The payload's tail stays poison: it is the operand that attention reads, and its tail must not matter
  // either.
  operand.payload = std::make_unique<DeviceBuffer>(session, fmt::format("payload of {}", name),
                                                   operand.rows * row_elements);
  operand.scales_d =
      std::make_unique<DeviceBuffer>(session, fmt::format("scales of {} along D", name), scale_buffer);
  operand.scales_tokens =
      std::make_unique<DeviceBuffer>(session, fmt::format("scales of {} along tokens", name), scale_buffer);
  operand.workspace = std::make_unique<DeviceBuffer>(session, "the quantiser's workspace", plan.workspace());
  operand.input->upload<uint16_t>(values);

  mxfa_quantize_args args{};
  args.size = sizeof args;
  args.input = {
      operand.input->data(), static_cast<int64_t>(row_elements), static_cast<int64_t>(operand.rows), {}};
  args.payload = operand.payload->data();
  args.scales_d = {operand.scales_d->data(), scale_bytes, MXFA_SCALE_ALONG_D};
  args.scales_tokens = {operand.scales_tokens->data(), scale_bytes, MXFA_SCALE_ALONG_TOKENS};
  if (layout == BlockLayout::kAlongTokens) args.scales_d = {};
  if (layout == BlockLayout::kAlongD) args.scales_tokens = {};
  args.workspace = operand.workspace->data();
  plan.prepare(args.workspace, nullptr);
  const nlohmann::ordered_json before = session.counters();
  plan(args, nullptr);
  session.synchronize();
  if (own_row && tokens > 0) {
    row.counters = session.counters_since(before);
    if (session.real_device()) {
      row.time_ms = median_ms(session, [&] { plan(args, nullptr); });
      const uint64_t scale_tensors = layout == BlockLayout::kSquare ? 2 : 1;
      row.rate =
          static_cast<double>(tokens * row_elements * 3 + scale_tensors * scale_bytes) / row.time_ms * 1e-6;
    }
  }

  reference::QuantizedTensor& result = operand.result;
  result.shape = {offsets, heads, shape.head_dim};
  result.layout = layout;
  result.payload = operand.payload->download<uint8_t>();
  result.payload.resize(tokens * row_elements);
  if (layout != BlockLayout::kAlongTokens)
    result.scales_d = operand.scales_d->download<uint8_t>(0, scale_bytes);
  if (layout != BlockLayout::kAlongD)
    result.scales_tokens = operand.scales_tokens->download<uint8_t>(0, scale_bytes);
  for (const auto* buffer :
       {&operand.input, &operand.payload, &operand.scales_d, &operand.scales_tokens, &operand.workspace}) {
    if (const std::string damage = (*buffer)->damage(); !damage.empty()) row.fail(damage);
  }
  if (check) {
    const reference::QuantizedTensor want =
        reference::quantize_bf16(values, result.shape, layout, reference_mode(shape.mxfp8.scaling_mode));
    compare_bytes(result.payload, want.payload, name, "payload", row);
    compare_bytes(result.scales_d, want.scales_d, name, "scales along D", row);
    compare_bytes(result.scales_tokens, want.scales_tokens, name, "scales along tokens", row);
  }
  return operand;
}

std::vector<RunRow> run_quantize(const Session& session, const Shape& shape, const RunOptions& options) {
  const int64_t tokens = offsets_of(shape.seqlens_q).back();
  const std::vector<uint16_t> values = make_data(shape, reference::Operand::kQ, tokens, shape.heads_q);
  std::vector<RunRow> rows;
  for (const QuantizeRequest& request : quantize_requests(shape)) {
    RunRow row;
    row.shape = fmt::format("{} ({})", shape.source, name_of(request.layout));
    row.op = name_of(shape.op);
    row.dtype = name_of(shape.dtype);
    DeviceOperand operand = quantize_on_device(session, shape, request, values, options.judge, row);
    row.checked = options.judge;
    if (options.keep_outputs)
      row.outputs = {{"payload", std::move(operand.result.payload)},
                     {"scales along D", std::move(operand.result.scales_d)},
                     {"scales along tokens", std::move(operand.result.scales_tokens)}};
    if (tokens == 0) row.note = "no tokens, nothing launched";
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace mxfa::tools
