// A packed tensor between NaN bytes.
#pragma once

#include "kernels/device.hpp"
#include "support/catch.hpp"

namespace mxfa::test {

// A packed tensor on the device whose rows are `stride` bytes apart; everything between and after is NaN
// bytes.
struct DeviceTensor {
  int64_t row_bytes, stride, rows, tail_rows;
  Buffer buffer;

  DeviceTensor(int64_t row_bytes, int64_t rows, int row_padding_bytes, int tail_rows)
      : row_bytes(row_bytes),
        stride(row_bytes + row_padding_bytes),
        rows(rows),
        tail_rows(tail_rows),
        buffer((rows + tail_rows) * stride) {}

  template <class T>
  void upload(const std::vector<T>& packed) {
    const std::span<const T> all(packed);
    const int64_t width = row_bytes / sizeof(T);
    for (int64_t r = 0; r < rows; ++r) buffer.upload(all.subspan(r * width, width), r * stride);
  }
  // The rows, packed; fails when a byte outside them was written.
  std::vector<uint16_t> download() const {
    const auto bytes = buffer.download<uint8_t>();
    std::vector<uint16_t> packed(rows * row_bytes / 2);
    int64_t written_outside = 0;
    for (int64_t r = 0; r < rows + tail_rows; ++r)
      for (int64_t i = 0; i < stride; ++i)
        if (r >= rows || i >= row_bytes) written_outside += bytes[r * stride + i] != 0xff;
    for (int64_t r = 0; r < rows; ++r)
      std::memcpy(packed.data() + r * row_bytes / 2, &bytes[r * stride], row_bytes);
    CHECK(written_outside == 0);
    return packed;
  }
  mxfa_tensor tensor(int64_t element_bytes) const {
    return {buffer.data(), stride / element_bytes, rows + tail_rows, {}};
  }
};

}  // namespace mxfa::test
