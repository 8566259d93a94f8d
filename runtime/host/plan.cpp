#include "host/plan.hpp"

#include <algorithm>
#include <cstring>

#include "host/tensor_map.hpp"

namespace mxfa {

int32_t Sequences::scale_rows() const {
  if (!capacity) return scale_offsets.back();
  // Each sequence that has a token may add up to 127 rows.
  const int64_t sequences = std::min(capacity->batch, capacity->total);
  const int64_t tiles = (capacity->total + sequences * (kScaleTileRows - 1)) / kScaleTileRows;
  return int32_t(tiles * kScaleTileRows);
}

int32_t Sequences::longest() const {
  if (capacity) return capacity->longest;
  int32_t longest = 0;
  for (int32_t b = 0; b < batch(); ++b) longest = std::max(longest, length(b));
  return longest;
}

Sequences read_sequences(const char* name, int32_t batch, const int32_t* offsets) {
  if (batch < 0) invalid("batch is {}; it must be at least 0", batch);
  if (batch == INT32_MAX) invalid("batch is {}; it must be less", batch);
  if (!offsets && batch > 0)
    invalid("{} is null; it must point to batch + 1 = {} int32 values in host memory", name,
            int64_t{batch} + 1);
  Sequences sequences;
  if (!offsets) {
    sequences.offsets = sequences.scale_offsets = {0};
    return sequences;
  }
  sequences.offsets.assign(offsets, offsets + batch + 1);
  const auto& values = sequences.offsets;
  if (values[0] != 0) invalid("{}: index 0 is {}; offsets begin with 0", name, values[0]);
  sequences.scale_offsets.reserve(values.size());
  sequences.scale_offsets.push_back(0);
  int64_t scale_rows = 0;
  for (int32_t b = 0; b < batch; ++b) {
    if (values[b + 1] < values[b])
      invalid("{}: index {} is {}, after {}; offsets must not decrease", name, b + 1, values[b + 1],
              values[b]);
    const int64_t length = values[b + 1] - values[b];
    // The ragged tensor maps count rows of a sequence down from kBig (tensor_map.hpp).
    if (length > kBig) invalid("{}: sequence {} has {} tokens; the limit is {}", name, b, length, kBig);
    scale_rows += (length + kScaleTileRows - 1) / kScaleTileRows * kScaleTileRows;
    if (scale_rows > INT32_MAX)
      invalid("{}: up to index {} the sequences take more than {} rows, counting each padded to {}", name,
              b + 1, INT32_MAX, kScaleTileRows);
    sequences.scale_offsets.push_back(int32_t(scale_rows));
  }
  // off + len is a coordinate of a dimension of 2^31 - 1.
  if (values.back() == INT32_MAX)
    invalid("{}: the total is {}; the limit is {}", name, values.back(), INT32_MAX - 1);
  return sequences;
}

uint64_t WorkspaceImage::add(const void* bytes, size_t size) {
  const uint64_t at = bytes_.size();
  bytes_.resize((at + size + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment);
  if (size > 0) std::memcpy(bytes_.data() + at, bytes, size);
  return at;
}

uint64_t WorkspaceImage::reserve(uint64_t bytes) {
  const uint64_t at = size();
  reserved_ += (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
  return at;
}

void check_aligned(const void* pointer, uint64_t alignment, const char* name) {
  if (!pointer) invalid("{} is null", name);
  const auto address = reinterpret_cast<uint64_t>(pointer);
  if (address % alignment != 0)
    invalid("{} is at {:#x}; it must be aligned to {} bytes", name, address, alignment);
}

void check_tensor(const mxfa_tensor& tensor, const TensorRule& rule) {
  const int64_t row = int64_t{rule.heads} * rule.head_dim;
  if (tensor.rows < rule.rows)
    invalid("{} is {}, but {} has {} rows", rule.rows_are, rule.rows, rule.name, tensor.rows);
  if (rule.rows == 0) return;  // an empty tensor is never touched and may be null
  check_aligned(tensor.data, 16, fmt::format("{}.data", rule.name).c_str());
  // The ragged tensor map stores 2^34 - stride.
  const int64_t limit = (int64_t{1} << 34) / rule.element_bytes;
  if (tensor.row_stride < row || tensor.row_stride >= limit)
    invalid(
        "{}.row_stride is {} elements; it must be at least heads * head_dim = {} * {} = {} and less than {}",
        rule.name, tensor.row_stride, rule.heads, rule.head_dim, row, limit);
  if (tensor.row_stride * rule.element_bytes % 16 != 0)
    invalid("{}.row_stride is {} elements = {} bytes; it must be a multiple of 16 bytes", rule.name,
            tensor.row_stride, tensor.row_stride * rule.element_bytes);
}

void check_scales(const mxfa_scales& scales, const char* name, int32_t orientation, int32_t heads,
                  int32_t scale_rows) {
  const auto spell = [](int32_t value) {
    return value == MXFA_SCALE_ALONG_D        ? "MXFA_SCALE_ALONG_D"
           : value == MXFA_SCALE_ALONG_TOKENS ? "MXFA_SCALE_ALONG_TOKENS"
                                              : "no orientation";
  };
  if (scale_rows == 0) return;
  if (!scales.data)
    invalid("{} has no scales; an MXFP8 tensor needs scales with orientation {}", name, spell(orientation));
  if (scales.orientation != orientation)
    invalid("{}: the scales have orientation {} ({}), the operation needs {}", name, scales.orientation,
            spell(scales.orientation), spell(orientation));
  check_aligned(scales.data, 512, fmt::format("{} scale data", name).c_str());
  const uint64_t needed = uint64_t(heads) * uint64_t(scale_rows) * 4;
  if (scales.bytes < needed)
    invalid(
        "{}: the scale buffer has {} bytes, it needs {} ({} heads * {} rows, each sequence padded to {}, * "
        "4)",
        name, scales.bytes, needed, heads, scale_rows, kScaleTileRows);
}

void refuse_scales(const mxfa_scales& scales, const char* place, const char* why) {
  if (scales.data) invalid("{}.data is set, but {}; set it to null", place, why);
}

}  // namespace mxfa

uint64_t mxfa_plan::require_workspace(const void* given) const {
  if (workspace.bytes().empty()) return 0;
  mxfa::check_aligned(given, mxfa::kWorkspaceAlignment, "workspace");
  const auto address = reinterpret_cast<uint64_t>(given);
  if (!prepared.count(address))
    mxfa::invalid("workspace {:#x} was not prepared for this plan; call mxfa_plan_prepare once for it",
                  address);
  return address;
}
