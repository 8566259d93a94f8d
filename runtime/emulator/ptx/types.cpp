// Spellings and widths of the PTX types.
#include "ptx/types.hpp"

#include <array>
#include <unordered_map>

namespace mxfa::emulator::ptx {
namespace {

constexpr std::array kTypes = {
    TypeInfo{Type::None, "", 0},
    TypeInfo{Type::Pred, "pred", 1},
    TypeInfo{Type::B8, "b8", 8},
    TypeInfo{Type::B16, "b16", 16},
    TypeInfo{Type::B32, "b32", 32},
    TypeInfo{Type::B64, "b64", 64},
    TypeInfo{Type::B128, "b128", 128},
    TypeInfo{Type::U8, "u8", 8},
    TypeInfo{Type::U16, "u16", 16},
    TypeInfo{Type::U32, "u32", 32},
    TypeInfo{Type::U64, "u64", 64},
    TypeInfo{Type::S8, "s8", 8},
    TypeInfo{Type::S16, "s16", 16},
    TypeInfo{Type::S32, "s32", 32},
    TypeInfo{Type::S64, "s64", 64},
    TypeInfo{Type::F16, "f16", 16},
    TypeInfo{Type::BF16, "bf16", 16},
    TypeInfo{Type::TF32, "tf32", 32},
    TypeInfo{Type::F32, "f32", 32},
    TypeInfo{Type::F64, "f64", 64},
    TypeInfo{Type::F16x2, "f16x2", 32},
    TypeInfo{Type::BF16x2, "bf16x2", 32},
    TypeInfo{Type::F32x2, "f32x2", 64},
    TypeInfo{Type::U16x2, "u16x2", 32},
    TypeInfo{Type::S16x2, "s16x2", 32},
    TypeInfo{Type::E4M3x2, "e4m3x2", 16},
    TypeInfo{Type::E5M2x2, "e5m2x2", 16},
    TypeInfo{Type::E2M1x2, "e2m1x2", 8},
    TypeInfo{Type::E2M3x2, "e2m3x2", 16},
    TypeInfo{Type::E3M2x2, "e3m2x2", 16},
    TypeInfo{Type::UE8M0x2, "ue8m0x2", 16},
    TypeInfo{Type::E4M3x4, "e4m3x4", 32},
    TypeInfo{Type::E5M2x4, "e5m2x4", 32},
    TypeInfo{Type::E2M3x4, "e2m3x4", 32},
    TypeInfo{Type::E3M2x4, "e3m2x4", 32},
    TypeInfo{Type::E2M1x4, "e2m1x4", 16},
};

}  // namespace

const TypeInfo& type_info(Type type) { return kTypes[static_cast<size_t>(type)]; }

const TypeInfo* find_type(std::string_view name) {
  static const auto table = [] {
    std::unordered_map<std::string_view, const TypeInfo*> map;
    for (const TypeInfo& t : kTypes)
      if (t.type != Type::None) map.emplace(t.name, &t);
    return map;
  }();
  const auto it = table.find(name);
  return it == table.end() ? nullptr : it->second;
}

std::string_view name(Space space) {
  static constexpr std::array<std::string_view, 6> kNames = {"generic", "global", "const",
                                                             "shared",  "local",  "param"};
  return kNames[static_cast<size_t>(space)];
}

}  // namespace mxfa::emulator::ptx
