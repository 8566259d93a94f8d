// Ragged tensor maps: one map for all sequences of a packed tensor, in which rows at or beyond the end of a
// sequence are out of bounds, so that the copy engine loads zeros for them and stores nothing to them.
//
// Row i of a sequence that owns rows [off, off + len) has the coordinates (d, head, kBig - len + i, kBig, off
// + len).  The row coordinate leaves its dimension (kBig rows) exactly when i >= len.  With row stride s
// bytes the two extra dimensions have strides 2^34 - s and s, and
//   (kBig - len + i) s + kBig (2^34 - s) + (off + len) s  =  (off + i) s + 2^64  =  (off + i) s   (mod 2^64):
// the copy engine computes addresses modulo 2^64 and checks bounds per dimension.  The pointer is not
// shifted, so loads may use it as well as stores.
#pragma once

#include <cstdint>

#include "host/driver.hpp"
#include "host/kernel_abi.hpp"

namespace mxfa {

inline constexpr int64_t kBig = int64_t{1} << 30;

struct RaggedTensor {
  uint64_t address;
  int32_t head_dim, heads;
  int64_t row_stride_bytes;
  bool bf16;  // else one byte an element
  int32_t box_rows;
  // Bytes of a box row, the swizzle span: 64 or 128.  0: the 64 of a row of D that has no more, else 128;
  // what a box has beyond the row is loaded as zeros and not stored.
  int32_t box_row_bytes = 0;
  // Heads of a box: it holds row after row, of each one head after the other.
  int32_t box_heads = 1;
};

// What is asked of cuTensorMapEncodeTiled; dimensions, fastest first: channel, head, row, and the two extra
// ones.
struct TensorMapRequest {
  CUtensorMapDataType type;
  uint64_t address;
  cuuint64_t dims[5], strides[4];  // strides in bytes, of dimensions 1..4
  cuuint32_t box[5];
  CUtensorMapSwizzle swizzle;
};

TensorMapRequest ragged_request(const RaggedTensor& tensor);
// `name` appears in the message of a failure.
abi::TensorMap encode_tensor_map(const Driver& driver, const TensorMapRequest& request, const char* name);

}  // namespace mxfa
