// Fundamental PTX types and state spaces.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace mxfa::emulator::ptx {

enum class Type : uint8_t {
  None,
  Pred,
  B8,
  B16,
  B32,
  B64,
  B128,
  U8,
  U16,
  U32,
  U64,
  S8,
  S16,
  S32,
  S64,
  F16,
  BF16,
  TF32,
  F32,
  F64,
  F16x2,
  BF16x2,
  F32x2,
  U16x2,
  S16x2,
  E4M3x2,
  E5M2x2,
  E2M1x2,
  E2M3x2,
  E3M2x2,
  UE8M0x2,
  E4M3x4,
  E5M2x4,
  E2M3x4,
  E3M2x4,
  E2M1x4,
};

struct TypeInfo {
  Type type;
  std::string_view name;  // without the dot
  uint16_t bits;
};

// Null for a word that is no type.
const TypeInfo* find_type(std::string_view name);
const TypeInfo& type_info(Type type);
inline uint32_t bits(Type type) { return type_info(type).bits; }
inline std::string_view name(Type type) { return type_info(type).name; }

inline bool is_signed(Type t) { return t >= Type::S8 && t <= Type::S64; }
inline bool is_unsigned(Type t) { return t >= Type::U8 && t <= Type::U64; }
inline bool is_integer(Type t) { return is_signed(t) || is_unsigned(t); }
inline bool is_untyped(Type t) { return t >= Type::B8 && t <= Type::B128; }
inline bool is_float(Type t) { return t >= Type::F16 && t <= Type::F64; }

enum class Space : uint8_t { Generic, Global, Const, Shared, Local, Param };
std::string_view name(Space space);

}  // namespace mxfa::emulator::ptx
