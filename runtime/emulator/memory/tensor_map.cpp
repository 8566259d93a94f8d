// Encoding and reading tensor maps.  The rules and limits are those in the comments of cuda.h.
#include "memory/tensor_map.hpp"

#include <cuda.h>
#include <fmt/format.h>

#include <cstring>

#include "memory/memory.hpp"

namespace mxfa::emulator {
namespace {

struct TypeInfo {
  const char* name;
  int bytes;
  bool is_float, supported;
};
constexpr TypeInfo kTypes[] = {
    {"UINT8", 1, false, true},          {"UINT16", 2, false, true},        {"UINT32", 4, false, true},
    {"INT32", 4, false, true},          {"UINT64", 8, false, true},        {"INT64", 8, false, true},
    {"FLOAT16", 2, true, true},         {"FLOAT32", 4, true, true},        {"FLOAT64", 8, true, true},
    {"BFLOAT16", 2, true, true},        {"FLOAT32_FTZ", 4, true, false},   {"TFLOAT32", 4, true, false},
    {"TFLOAT32_FTZ", 4, true, false},   {"16U4_ALIGN8B", 0, false, false}, {"16U4_ALIGN16B", 0, false, false},
    {"16U6_ALIGN16B", 0, false, false},
};
constexpr uint64_t kLargestBox = 228 * 1024;   // the driver of an H200 takes 233472 bytes and refuses 234496
constexpr int kTypeCount = sizeof(kTypes) / sizeof(kTypes[0]);

std::string check(const TiledTensor& t, int bytes, bool is_float) {
  if (t.rank < 1 || t.rank > 5) return fmt::format("tensorRank is {}: 1 to 5 are allowed", t.rank);
  if (t.address % 16 != 0) return fmt::format("globalAddress {:#x} is not a multiple of 16", t.address);
  if (!t.dims || !t.box || !t.element_strides || (t.rank > 1 && !t.strides)) return "a null array";
  for (uint32_t i = 0; i < t.rank; ++i)
    if (t.dims[i] == 0 || t.dims[i] > 1ull << 32)
      return fmt::format("globalDim[{}] is {}: 1 to 2^32 elements are allowed", i, t.dims[i]);
  for (uint32_t i = 0; i + 1 < t.rank; ++i)
    if (t.strides[i] % 16 != 0 || t.strides[i] >= 1ull << 40)
      return fmt::format("globalStrides[{}] is {}: a multiple of 16 bytes below 2^40 is needed", i,
                         t.strides[i]);
  for (uint32_t i = 0; i < t.rank; ++i)
    if (t.box[i] == 0 || t.box[i] > 256)
      return fmt::format("boxDim[{}] is {}: 1 to 256 are allowed", i, t.box[i]);
  for (uint32_t i = 0; i < t.rank; ++i)
    if (t.element_strides[i] == 0 || t.element_strides[i] > 8)
      return fmt::format("elementStrides[{}] is {}: 1 to 8 are allowed", i, t.element_strides[i]);
  if (t.swizzle < 0 || t.swizzle > 6) return fmt::format("swizzle {} does not exist", t.swizzle);
  if (t.l2_promotion < 0 || t.l2_promotion > 3)
    return fmt::format("l2Promotion {} does not exist", t.l2_promotion);
  if (t.oob_fill < 0 || t.oob_fill > 1) return fmt::format("oobFill {} does not exist", t.oob_fill);
  if (t.oob_fill == 1 && !is_float) return "oobFill NAN_REQUEST_ZERO_FMA needs a floating-point type";
  const uint32_t inner = t.box[0] * static_cast<uint32_t>(bytes);
  uint64_t box_bytes = bytes;
  for (uint32_t i = 0; i < t.rank; ++i) box_bytes *= t.box[i];
  if (box_bytes > kLargestBox)
    return fmt::format("the box has {} bytes, more than the {} bytes of an SM's shared memory", box_bytes,
                       kLargestBox);
  if (inner % 16 != 0)
    return fmt::format("the inner box extent is {} bytes: a multiple of 16 is needed", inner);
  const auto mode = static_cast<Swizzle>(t.swizzle);
  if (mode != Swizzle::None && inner > swizzle_span(mode))
    return fmt::format("the inner box extent is {} bytes, more than the {} bytes of the swizzle", inner,
                       swizzle_span(mode));
  return "";
}

}  // namespace

int tensor_type_bytes(TensorType type) { return kTypes[static_cast<int>(type)].bytes; }
const char* tensor_type_name(TensorType type) { return kTypes[static_cast<int>(type)].name; }

int encode_tiled(const TiledTensor& t, TensorMap* map, std::string* error) {
  if (t.type < 0 || t.type >= kTypeCount) {
    *error = fmt::format("tensorDataType {} does not exist", t.type);
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (t.interleave < 0 || t.interleave > 2) {
    *error = fmt::format("interleave {} does not exist", t.interleave);
    return CUDA_ERROR_INVALID_VALUE;
  }
  const TypeInfo& type = kTypes[t.type];
  if (!type.supported) {
    *error = fmt::format("tensor maps of type {} are not emulated", type.name);
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (t.interleave != 0) {
    *error = fmt::format("interleaved tensor maps (interleave {}) are not emulated", t.interleave);
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  *error = check(t, type.bytes, type.is_float);
  if (!error->empty()) return CUDA_ERROR_INVALID_VALUE;

  TensorMap m;
  m.address = t.address;
  m.rank = static_cast<uint8_t>(t.rank);
  m.type = static_cast<TensorType>(t.type);
  m.swizzle = static_cast<Swizzle>(t.swizzle);
  m.nan_fill = static_cast<uint8_t>(t.oob_fill);
  m.l2_promotion = static_cast<uint8_t>(t.l2_promotion);
  m.dims.fill(1);
  m.box.fill(1);
  m.element_strides.fill(1);
  for (uint32_t i = 0; i < t.rank; ++i) {
    m.dims[i] = t.dims[i];
    m.box[i] = static_cast<uint16_t>(t.box[i]);
    // Without interleave the element stride of dimension 0 is ignored (cuda.h).
    m.element_strides[i] = i == 0 ? 1 : static_cast<uint8_t>(t.element_strides[i]);
    if (i + 1 < t.rank) m.strides[i] = t.strides[i];
  }
  *map = m;
  return CUDA_SUCCESS;
}

int replace_address(TensorMap* map, uint64_t address, std::string* error) {
  if (map->magic != TensorMap::kMagic) {
    *error = "the tensor map was not encoded by cuTensorMapEncodeTiled";
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (address % 16 != 0) {
    *error = fmt::format("globalAddress {:#x} is not a multiple of 16", address);
    return CUDA_ERROR_INVALID_VALUE;
  }
  map->address = address;
  return CUDA_SUCCESS;
}

TensorMap load_tensor_map(Grid& grid, uint64_t address) {
  if (address % 64 != 0)
    throw Fault(CUDA_ERROR_MISALIGNED_ADDRESS,
                fmt::format("the tensor map at {:#x} is not 64-byte aligned", address));
  TensorMap map;
  if (address >= kParamWindow && address < kParamWindow + kWindowBytes) {
    const uint64_t offset = address - kParamWindow;
    if (offset + sizeof(map) > grid.parameters.size())
      throw Fault(
          CUDA_ERROR_ILLEGAL_ADDRESS,
          fmt::format("the tensor map at parameter offset {} lies beyond the {} bytes of kernel parameters",
                      offset, grid.parameters.size()));
    std::memcpy(&map, grid.parameters.data() + offset, sizeof(map));
  } else {
    std::memcpy(&map, global_range(grid, address, sizeof(map), false), sizeof(map));
  }
  if (map.magic != TensorMap::kMagic)
    throw Fault(CUDA_ERROR_ILLEGAL_INSTRUCTION,
                fmt::format("{:#x} holds no tensor map: encode one with cuTensorMapEncodeTiled and pass it "
                            "as a __grid_constant__ "
                            "parameter or in global memory",
                            address));
  return map;
}

}  // namespace mxfa::emulator
