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
  TensorUnit unit;
  bool is_float;
};
constexpr TypeInfo kTypes[] = {
    {"UINT8", {1, 1, 1}, false},           {"UINT16", {1, 2, 2}, false},
    {"UINT32", {1, 4, 4}, false},          {"INT32", {1, 4, 4}, false},
    {"UINT64", {1, 8, 8}, false},          {"INT64", {1, 8, 8}, false},
    {"FLOAT16", {1, 2, 2}, true},          {"FLOAT32", {1, 4, 4}, true},
    {"FLOAT64", {1, 8, 8}, true},          {"BFLOAT16", {1, 2, 2}, true},
    {"FLOAT32_FTZ", {1, 4, 4}, true},      {"TFLOAT32", {1, 4, 4}, true},
    {"TFLOAT32_FTZ", {1, 4, 4}, true},     {"16U4_ALIGN8B", {2, 1, 1}, false},
    {"16U4_ALIGN16B", {16, 8, 16}, false}, {"16U6_ALIGN16B", {16, 12, 16}, false},
};
constexpr uint64_t kLargestBox = 228 * 1024;  // the driver of an H200 takes 233472 bytes and refuses 234496
constexpr int kTypeCount = sizeof(kTypes) / sizeof(kTypes[0]);

// Further rules of the packed types; those with gaps come in rows of 128 elements.
std::string check_packed(const TiledTensor& t) {
  const auto type = static_cast<TensorType>(t.type);
  const char* const name = tensor_type_name(type);
  if (type == TensorType::U4Align8)
    return t.dims[0] % 2 == 0 ? ""
                              : fmt::format("globalDim[0] is {}: {} needs a multiple of 2", t.dims[0], name);
  if (type != TensorType::U4Align16 && type != TensorType::U6Align16) return "";
  if (t.address % 32 != 0)
    return fmt::format("globalAddress {:#x} is not a multiple of 32, as {} needs", t.address, name);
  if (t.dims[0] % 128 != 0)
    return fmt::format("globalDim[0] is {}: {} needs a multiple of 128", t.dims[0], name);
  for (uint32_t i = 0; i + 1 < t.rank; ++i)
    if (t.strides[i] % 32 != 0)
      return fmt::format("globalStrides[{}] is {}: {} needs a multiple of 32", i, t.strides[i], name);
  if (t.box[0] != 128) return fmt::format("boxDim[0] is {}: {} needs 128", t.box[0], name);
  const auto mode = static_cast<Swizzle>(t.swizzle);
  const bool known = mode == Swizzle::None || mode == Swizzle::B128 || mode == Swizzle::B128Atom32 ||
                     (mode == Swizzle::B128Atom64 && type == TensorType::U6Align16);
  return known ? "" : fmt::format("{} has no swizzle {}", name, t.swizzle);
}

std::string check(const TiledTensor& t, const TensorUnit& unit, bool is_float) {
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
  if (std::string packed = check_packed(t); !packed.empty()) return packed;
  if (t.box[0] % unit.elements != 0)
    return fmt::format("boxDim[0] is {}: a multiple of {} is needed", t.box[0], unit.elements);
  const uint32_t inner = t.box[0] / unit.elements * unit.shared_bytes;
  uint64_t box_bytes = inner;
  for (uint32_t i = 1; i < t.rank; ++i) box_bytes *= t.box[i];
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

const TensorUnit& tensor_unit(TensorType type) { return kTypes[static_cast<int>(type)].unit; }
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
  if (t.interleave != 0) {
    *error = fmt::format("interleaved tensor maps (interleave {}) are not emulated", t.interleave);
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  *error = check(t, type.unit, type.is_float);
  if (!error->empty()) return CUDA_ERROR_INVALID_VALUE;

  TensorMap m;
  m.address = t.address;
  m.rank = static_cast<uint8_t>(t.rank);
  m.type = static_cast<TensorType>(t.type);
  m.swizzle = static_cast<Swizzle>(t.swizzle);
  m.nan_fill = static_cast<uint8_t>(t.oob_fill);
  m.l2_promotion = static_cast<uint8_t>(t.l2_promotion);
  m.atomicity = m.swizzle > Swizzle::B128 ? static_cast<uint8_t>(t.swizzle - 3) : 0;
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

namespace {

// The numbers that tensormap.replace gives the element types.
constexpr TensorType kReplaceTypes[] = {
    TensorType::U8,      TensorType::U16,      TensorType::U32,       TensorType::S32,
    TensorType::U64,     TensorType::S64,      TensorType::F16,       TensorType::F32,
    TensorType::F32Ftz,  TensorType::F64,      TensorType::BF16,      TensorType::TF32,
    TensorType::TF32Ftz, TensorType::U4Align8, TensorType::U4Align16, TensorType::U6Align16};

void set_swizzle(TensorMap& m, uint64_t mode) {
  static constexpr Swizzle kWide[] = {Swizzle::B128, Swizzle::B128Atom32, Swizzle::B128Atom32Flip8,
                                      Swizzle::B128Atom64};
  m.swizzle = mode == 3 ? kWide[m.atomicity] : static_cast<Swizzle>(mode);
}

// Limits that the engine relies on; plain stores may have changed any byte of a map.
bool within_limits(const TensorMap& m) {
  bool good =
      m.rank >= 1 && m.rank <= 5 && static_cast<int>(m.type) < kTypeCount && m.swizzle <= Swizzle::B128Atom64;
  for (int i = 0; i < 5; ++i)
    good = good && m.box[i] >= 1 && m.box[i] <= 256 && m.element_strides[i] >= 1 && m.element_strides[i] <= 8;
  return good;
}

// What cuTensorMapEncodeTiled would say of a map that was put together on the device.
std::string check_modified(const TensorMap& m) {
  uint64_t dims[5], strides[4];
  uint32_t box[5], element_strides[5];
  for (int i = 0; i < 5; ++i)
    dims[i] = m.dims[i], box[i] = m.box[i], element_strides[i] = m.element_strides[i];
  for (int i = 0; i < 4; ++i) strides[i] = m.strides[i];
  const TypeInfo& type = kTypes[static_cast<int>(m.type)];
  return check({.type = static_cast<int>(m.type),
                .rank = m.rank,
                .address = m.address,
                .dims = dims,
                .strides = strides,
                .box = box,
                .element_strides = element_strides,
                .swizzle = static_cast<int>(m.swizzle),
                .oob_fill = m.nan_fill},
               type.unit, type.is_float);
}

}  // namespace

void replace_field(uint8_t* bytes, TensorMapField field, uint32_t index, uint64_t value) {
  TensorMap m;
  std::memcpy(&m, bytes, sizeof m);
  const auto refuse = [&](const char* name, const std::string& rule) {
    throw Fault(CUDA_ERROR_ILLEGAL_INSTRUCTION,
                fmt::format("tensormap.replace of {} with {}: {}", name, value, rule));
  };
  if (m.magic != TensorMap::kMagic) {
    for (size_t i = 0; i < sizeof m; ++i)
      if (bytes[i] != 0)
        throw Fault(CUDA_ERROR_ILLEGAL_INSTRUCTION,
                    "tensormap.replace in 128 bytes that are neither a tensor map nor zero");
    m = {};
    m.rank = 1;
    m.dims.fill(1);
    m.box.fill(1);
    m.element_strides.fill(1);
  }
  m.modified = 1;
  const auto at_most = [&](const char* name, uint64_t limit) {
    if (value > limit) refuse(name, fmt::format("0 to {} are allowed", limit));
  };
  switch (field) {
    case TensorMapField::GlobalAddress:
      m.address = value;
      break;
    case TensorMapField::Rank:
      at_most("rank", 4);  // the operand is the rank less 1
      m.rank = static_cast<uint8_t>(value + 1);
      break;
    case TensorMapField::BoxDim:
      at_most("box_dim", 256);
      m.box[index] = static_cast<uint16_t>(value);
      break;
    case TensorMapField::GlobalDim:
      m.dims[index] = value;
      break;
    case TensorMapField::GlobalStride:
      m.strides[index] = value;
      break;
    case TensorMapField::ElementStride:
      at_most("element_stride", 8);
      m.element_strides[index] = index == 0 ? 1 : static_cast<uint8_t>(value);
      break;
    case TensorMapField::ElementType:
      at_most("elemtype", std::size(kReplaceTypes) - 1);
      m.type = kReplaceTypes[value];
      break;
    case TensorMapField::Interleave:
      if (value != 0) refuse("interleave_layout", "interleaved tensor maps are not emulated");
      break;
    case TensorMapField::SwizzleMode:
      at_most("swizzle_mode", 3);
      set_swizzle(m, value);
      break;
    case TensorMapField::SwizzleAtomicity:
      at_most("swizzle_atomicity", 3);
      m.atomicity = static_cast<uint8_t>(value);
      if (m.swizzle >= Swizzle::B128) set_swizzle(m, 3);
      break;
    case TensorMapField::FillMode:
      at_most("fill_mode", 1);
      m.nan_fill = static_cast<uint8_t>(value);
      break;
  }
  std::memcpy(bytes, &m, sizeof m);
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
  if (map.modified)
    if (const std::string problem = check_modified(map); !problem.empty())
      throw Fault(
          CUDA_ERROR_ILLEGAL_INSTRUCTION,
          fmt::format("the tensor map at {:#x}, which tensormap.replace has changed: {}", address, problem));
  if (!within_limits(map))
    throw Fault(
        CUDA_ERROR_ILLEGAL_INSTRUCTION,
        fmt::format("the tensor map at {:#x} has been overwritten: a size, type or mode is out of range",
                    address));
  return map;
}

}  // namespace mxfa::emulator
