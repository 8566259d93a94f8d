#include "host/tensor_map.hpp"

#include <algorithm>
#include <cstring>

#include "host/error.hpp"

namespace mxfa {

TensorMapRequest ragged_request(const RaggedTensor& tensor) {
  const uint64_t element = tensor.bf16 ? 2 : 1;
  const uint64_t row = uint64_t(tensor.row_stride_bytes);
  const uint64_t span = tensor.box_row_bytes > 0         ? uint64_t(tensor.box_row_bytes)
                        : tensor.head_dim * element > 64 ? 128
                                                         : 64;
  TensorMapRequest request{};
  request.type = tensor.bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_UINT8;
  request.address = tensor.address;
  const cuuint64_t dims[5] = {cuuint64_t(tensor.head_dim), cuuint64_t(tensor.heads), kBig, INT32_MAX,
                              INT32_MAX};
  const cuuint64_t strides[4] = {tensor.head_dim * element, row, (uint64_t{1} << 34) - row, row};
  const cuuint32_t box[5] = {cuuint32_t(span / element), cuuint32_t(tensor.box_heads),
                             cuuint32_t(tensor.box_rows), 1, 1};
  std::copy_n(dims, 5, request.dims);
  std::copy_n(strides, 4, request.strides);
  std::copy_n(box, 5, request.box);
  request.swizzle = span == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B;
  return request;
}

abi::TensorMap encode_tensor_map(const Driver& driver, const TensorMapRequest& request, const char* name) {
  alignas(64) CUtensorMap map{};
  static_assert(sizeof(map) == sizeof(abi::TensorMap));
  const cuuint32_t element_strides[5] = {1, 1, 1, 1, 1};
  // 256 bytes are a row of D = 128 in BF16, which arrives as two boxes one after the other.
  driver.check(
      driver.cuTensorMapEncodeTiled(&map, request.type, 5, reinterpret_cast<void*>(request.address),
                                    request.dims, request.strides, request.box, element_strides,
                                    CU_TENSOR_MAP_INTERLEAVE_NONE, request.swizzle,
                                    CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
      fmt::format("encoding the tensor map of {} (address {:#x}, row stride {} bytes, {} heads of {})", name,
                  request.address, request.strides[1], request.dims[1], request.dims[0]));
  abi::TensorMap out;
  std::memcpy(&out, &map, sizeof(out));
  return out;
}

}  // namespace mxfa
