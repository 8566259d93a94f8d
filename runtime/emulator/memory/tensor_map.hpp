// The 128-byte tensor map that TMA instructions read.  CUtensorMap is opaque to programs; this layout is our
// own, but for the address in front, and holds a magic number, so that a map that nobody encoded is
// recognised.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "core/machine.hpp"
#include "memory/swizzle.hpp"

namespace mxfa::emulator {

// The numbers of CUtensorMapDataType.
enum class TensorType : uint8_t {
  U8,
  U16,
  U32,
  S32,
  U64,
  S64,
  F16,
  F32,
  F64,
  BF16,
  F32Ftz,
  TF32,
  TF32Ftz,
  U4Align8,
  U4Align16,
  U6Align16
};

struct TensorMap {
  static constexpr uint64_t kMagic = 0x50414d546166786dull;  // "mxfaTMAP" in memory
  uint64_t address = 0;
  // Nothing of ours: CUTLASS clears a bit here, as a remedy for a driver
  // (cute/atom/copy_traits_sm90_tma.hpp).
  uint64_t second_word = 0;
  uint64_t magic = kMagic;
  std::array<uint64_t, 5> dims{};     // elements
  std::array<uint64_t, 4> strides{};  // bytes; of dimensions 1..4
  std::array<uint16_t, 5> box{};      // elements
  std::array<uint8_t, 5> element_strides{};
  uint8_t rank = 0;
  TensorType type = TensorType::U8;
  Swizzle swizzle = Swizzle::None;
  uint8_t nan_fill = 0, l2_promotion = 0;
  uint8_t modified = 0;   // by tensormap.replace: checked as a whole only when it is used
  uint8_t atomicity = 0;  // of the 128-byte swizzle, as tensormap.replace counts
  std::array<uint8_t, 10> unused{};
};
static_assert(sizeof(TensorMap) == 128);

// What a copy moves as one piece: an element, or those of a packed type that share bytes (PTX ISA 5.5.1).
struct TensorUnit {
  uint32_t elements, global_bytes, shared_bytes;  // shared: with the gap behind it
};
const TensorUnit& tensor_unit(TensorType type);
const char* tensor_type_name(TensorType type);

// Arguments of cuTensorMapEncodeTiled, enums as their numbers.
struct TiledTensor {
  int type = 0;
  uint32_t rank = 0;
  uint64_t address = 0;
  const uint64_t* dims = nullptr;             // [rank]
  const uint64_t* strides = nullptr;          // [rank - 1], bytes
  const uint32_t* box = nullptr;              // [rank]
  const uint32_t* element_strides = nullptr;  // [rank]
  int interleave = 0, swizzle = 0, l2_promotion = 0, oob_fill = 0;
};

// Checks what the driver checks (cuda.h, cuTensorMapEncodeTiled).  0 and *map on success, else a CUresult and
// a sentence: INVALID_VALUE for what the driver refuses, NOT_SUPPORTED for what this emulator lacks.
int encode_tiled(const TiledTensor& tensor, TensorMap* map, std::string* error);
// cuTensorMapReplaceAddress.
int replace_address(TensorMap* map, uint64_t address, std::string* error);

// tensormap.replace (PTX ISA 9.7.9.28): one field of the 128 bytes at `map`, which hold a map or, on sm_90a,
// zeroes.  A Fault for a value that the field cannot have.
enum class TensorMapField {
  GlobalAddress,
  Rank,
  BoxDim,
  GlobalDim,
  GlobalStride,
  ElementStride,
  ElementType,
  Interleave,
  SwizzleMode,
  SwizzleAtomicity,
  FillMode
};
void replace_field(uint8_t* map, TensorMapField field, uint32_t index, uint64_t value);

// The map at a generic address (kernel parameter, constant or global memory); a Fault when it is none.
TensorMap load_tensor_map(Grid& grid, uint64_t address);

}  // namespace mxfa::emulator
