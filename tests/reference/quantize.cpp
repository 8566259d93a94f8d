// The quantiser: one block by its definition, and the walk over the blocks of a jagged tensor.
#include "reference/quantize.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <stdexcept>

#include "reference/formats.hpp"

namespace mxfa::reference {
namespace {

constexpr int kBlock = 32;
constexpr int kE4m3MaxExponent = 8;  // 448 = 1.75 * 2^8
constexpr int kScaleBias = 127, kLargestFiniteScale = 254;

void check(const JaggedShape& shape, size_t elements) {
  if (shape.offsets.empty() || shape.offsets.front() != 0)
    throw std::invalid_argument("offsets must start with 0");
  if (shape.head_dim % kBlock != 0 || shape.head_dim > kAtomRows)
    throw std::invalid_argument("head_dim must be a multiple of 32, at most 128");
  if (elements != static_cast<size_t>(shape.elements()))
    throw std::invalid_argument("the tensor does not have tokens * heads * head_dim elements");
}

// Calls visit(head, sequence, first token, tokens, first channel, channels) for every block of the layout;
// tokens count within the sequence.
void for_each_block(const JaggedShape& shape, BlockLayout layout,
                    const std::function<void(int, int, int64_t, int64_t, int, int)>& visit) {
  const int64_t token_step = layout == BlockLayout::kAlongD ? 1 : kBlock;
  const int channel_step = layout == BlockLayout::kAlongTokens ? 1 : kBlock;
  for (int head = 0; head < shape.heads; ++head)
    for (int b = 0; b < shape.batch(); ++b) {
      const int64_t length = shape.offsets[b + 1] - shape.offsets[b];
      for (int64_t t = 0; t < length; t += token_step)
        for (int d = 0; d < shape.head_dim; d += channel_step)
          visit(head, b, t, std::min(token_step, length - t), d, channel_step);
    }
}

}  // namespace

uint8_t scale_byte(float amax, ScalingMode mode) {
  if (amax == 0) return 0;
  if (std::isinf(amax)) return kLargestFiniteScale;
  int exponent = std::ilogb(amax) - kE4m3MaxExponent;
  if (mode == ScalingMode::kRceil && amax > std::ldexp(kE4m3Max, exponent)) ++exponent;
  return static_cast<uint8_t>(std::clamp(exponent + kScaleBias, 0, kLargestFiniteScale));
}

uint8_t quantize_block(std::span<const float> x, ScalingMode mode, std::span<uint8_t> payload) {
  float amax = 0;
  for (float value : x)
    if (!std::isnan(value)) amax = std::max(amax, std::fabs(value));
  const uint8_t scale = scale_byte(amax, mode);
  for (size_t i = 0; i < x.size(); ++i)
    payload[i] = e4m3_from_double(std::ldexp(double{x[i]}, kScaleBias - scale));
  return scale;
}

QuantizedTensor quantize(std::span<const float> x, const JaggedShape& shape, BlockLayout layout,
                         ScalingMode mode) {
  check(shape, x.size());
  const JaggedScaleLayout atoms(shape.offsets, shape.heads);
  QuantizedTensor result{shape, layout, std::vector<uint8_t>(x.size()), {}, {}};
  if (layout != BlockLayout::kAlongTokens) result.scales_d.resize(atoms.bytes());
  if (layout != BlockLayout::kAlongD) result.scales_tokens.resize(atoms.bytes());

  std::vector<float> block;
  std::vector<uint8_t> codes;
  for_each_block(shape, layout, [&](int head, int b, int64_t t0, int64_t tokens, int d0, int channels) {
    const auto element = [&](int64_t t, int d) {
      return ((shape.offsets[b] + t) * shape.heads + head) * shape.head_dim + d;
    };
    block.clear();
    for (int64_t t = t0; t < t0 + tokens; ++t)
      for (int d = d0; d < d0 + channels; ++d) block.push_back(x[element(t, d)]);
    codes.resize(block.size());
    const uint8_t scale = quantize_block(block, mode, codes);
    size_t i = 0;
    for (int64_t t = t0; t < t0 + tokens; ++t)
      for (int d = d0; d < d0 + channels; ++d) result.payload[element(t, d)] = codes[i++];
    if (!result.scales_d.empty())
      for (int64_t t = t0; t < t0 + tokens; ++t)
        result.scales_d[atoms.along_d(head, b, t, d0 / kBlock)] = scale;
    if (!result.scales_tokens.empty())
      for (int d = d0; d < d0 + channels; ++d)
        result.scales_tokens[atoms.along_tokens(head, b, t0 / kBlock, d)] = scale;
  });
  return result;
}

QuantizedTensor quantize_bf16(std::span<const uint16_t> x, const JaggedShape& shape, BlockLayout layout,
                              ScalingMode mode) {
  std::vector<float> values(x.size());
  std::transform(x.begin(), x.end(), values.begin(),
                 [](uint16_t bits) { return static_cast<float>(bf16_to_double(bits)); });
  return quantize(values, shape, layout, mode);
}

std::vector<double> dequantize(std::span<const uint8_t> payload, std::span<const uint8_t> scales,
                               Orientation orientation, const JaggedShape& shape) {
  check(shape, payload.size());
  const JaggedScaleLayout atoms(shape.offsets, shape.heads);
  if (scales.size() < static_cast<size_t>(atoms.bytes()))
    throw std::invalid_argument("the scale tensor is smaller than heads * scale rows * 4 bytes");
  std::vector<double> values(payload.size());
  size_t i = 0;
  for (int b = 0; b < shape.batch(); ++b)
    for (int64_t t = 0; t < shape.offsets[b + 1] - shape.offsets[b]; ++t)
      for (int head = 0; head < shape.heads; ++head)
        for (int d = 0; d < shape.head_dim; ++d, ++i) {
          const int64_t at = orientation == Orientation::kAlongD ? atoms.along_d(head, b, t, d / kBlock)
                                                                 : atoms.along_tokens(head, b, t / kBlock, d);
          values[i] = e4m3_to_double(payload[i]) * ue8m0_to_double(scales[at]);
        }
  return values;
}

std::vector<double> dequantize(const QuantizedTensor& tensor) {
  const bool along_d = !tensor.scales_d.empty();
  return dequantize(tensor.payload, along_d ? tensor.scales_d : tensor.scales_tokens,
                    along_d ? Orientation::kAlongD : Orientation::kAlongTokens, tensor.shape);
}

void fill_scale_padding(std::span<uint8_t> scales, Orientation orientation, const JaggedShape& shape,
                        uint8_t value) {
  const JaggedScaleLayout atoms(shape.offsets, shape.heads);
  std::vector<bool> owned(scales.size(), false);
  const auto layout = orientation == Orientation::kAlongD ? BlockLayout::kAlongD : BlockLayout::kAlongTokens;
  for_each_block(shape, layout, [&](int head, int b, int64_t t, int64_t, int d, int) {
    owned[orientation == Orientation::kAlongD ? atoms.along_d(head, b, t, d / kBlock)
                                              : atoms.along_tokens(head, b, t / kBlock, d)] = true;
  });
  for (size_t i = 0; i < scales.size(); ++i)
    if (!owned[i]) scales[i] = value;
}

}  // namespace mxfa::reference
