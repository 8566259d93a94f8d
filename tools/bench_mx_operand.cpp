#include "bench_mx_operand.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reference/formats.hpp"
#include "reference/scale_layout.hpp"

namespace mxfa::tools {

using reference::Orientation;

BenchMxOperand::BenchMxOperand(const Session& session, const Shape& shape, const QuantizeRequest& request,
                               const RandomBlock& block, int operand, const Stream& stream)
    : offsets_(offsets_of(request.lengths)),
      heads_(request.heads),
      head_dim_(shape.head_dim),
      layout_(request.layout),
      row_elements_(static_cast<uint64_t>(request.heads) * shape.head_dim),
      rows_(static_cast<uint64_t>(offsets_.back())),
      scale_bytes_(static_cast<uint64_t>(request.heads) * 4 *
                   static_cast<uint64_t>(
                       mxfa_scale_rows(static_cast<int32_t>(request.lengths.size()), offsets_.data()))),
      // The payload's tail stays poison: what lies behind the last sequence must not matter.
      payload_(session, fmt::format("payload of {}", request.name), (rows_ + kTailRows) * row_elements_),
      scales_d_(session, fmt::format("scales of {} along D", request.name), has_d() ? scale_bytes_ : 0),
      scales_tokens_(session, fmt::format("scales of {} along tokens", request.name),
                     has_tokens() ? scale_bytes_ : 0) {
  if (rows_ == 0) return;
  const Plan plan = plan_quantize(session.context(), shape, request);
  const BenchTensor input(session, request.name.c_str(), offsets_.back(), heads_, head_dim_);
  const DeviceBuffer workspace(session, "the quantiser's workspace", plan.workspace());
  input.fill(block, operand);
  mxfa_quantize_args args{};
  args.size = sizeof args;
  args.input = input.tensor();
  args.payload = payload_.data();
  if (has_d()) args.scales_d = {scales_d_.data(), scale_bytes_, MXFA_SCALE_ALONG_D};
  if (has_tokens()) args.scales_tokens = {scales_tokens_.data(), scale_bytes_, MXFA_SCALE_ALONG_TOKENS};
  args.workspace = workspace.data();
  session.synchronize();
  plan.prepare(args.workspace, stream.get());
  plan(args, stream.get());
  stream.synchronize();
}

mxfa_tensor BenchMxOperand::tensor(Orientation orientation) const {
  const bool along_d = orientation == Orientation::kAlongD;
  const DeviceBuffer& scales = along_d ? scales_d_ : scales_tokens_;
  return {payload_.data(),
          static_cast<int64_t>(row_elements_),
          static_cast<int64_t>(rows_ + kTailRows),
          {scales.data(), scale_bytes_, along_d ? MXFA_SCALE_ALONG_D : MXFA_SCALE_ALONG_TOKENS}};
}

FetchRows BenchMxOperand::fetch() const {
  return [this, scales = (has_d() ? scales_d_ : scales_tokens_).download<uint8_t>(),
          layout = reference::JaggedScaleLayout(offsets_, heads_)](int64_t first_row, int64_t count) {
    const std::vector<uint8_t> payload = payload_.download<uint8_t>(
        static_cast<uint64_t>(first_row) * row_elements_, static_cast<uint64_t>(count) * row_elements_);
    std::vector<uint16_t> values(payload.size());
    // Of the first row; empty sequences begin where the next one does.
    int sequence = int(std::upper_bound(offsets_.begin(), offsets_.end(), first_row) - offsets_.begin()) - 1;
    for (int64_t row = 0; row < count; ++row) {
      while (first_row + row >= offsets_[sequence + 1]) ++sequence;
      const int64_t token = first_row + row - offsets_[sequence];
      for (int head = 0; head < heads_; ++head)
        for (int d = 0; d < head_dim_; ++d) {
          const int64_t at = has_d() ? layout.along_d(head, sequence, token, d / 32)
                                     : layout.along_tokens(head, sequence, token / 32, d);
          const size_t element = static_cast<size_t>((row * heads_ + head) * head_dim_ + d);
          values[element] = reference::bf16_from_double(
              std::ldexp(reference::e4m3_to_double(payload[element]), int(scales[at]) - 127));
        }
    }
    return values;
  };
}

}  // namespace mxfa::tools
