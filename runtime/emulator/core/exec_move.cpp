// Moves, packing and selection.
#include <algorithm>

#include "core/exec.hpp"
#include "core/handlers.hpp"

namespace mxfa::emulator {
namespace {

template <class T>
Step move_value(Exec& x, const MicroOp& op) {
  const auto* a = lanes<T>(x.src(op.src[0]));
  for_lanes<T>(x.mask, lanes<T>(x.dst(op.dst)), [=](int i) { return a[i]; });
  return Step::Continue;
}
// 16 bytes a lane: two copies of 8.
Step move_quad(Exec& x, const MicroOp& op) {
  const auto* a = lanes<uint64_t>(x.src(op.src[0]));
  auto* d = lanes<uint64_t>(x.dst(op.dst));
  for (int i = 0; i < kLanes; ++i)
    if (x.mask >> i & 1) d[2 * i] = a[2 * i], d[2 * i + 1] = a[2 * i + 1];
  return Step::Continue;
}

Step move_pred(Exec& x, const MicroOp& op) {
  x.set_pred(op.dst, x.pred(op.src[0]));
  return Step::Continue;
}

// The common case: two 32-bit registers make a 64-bit one.
Step pack_2x32(Exec& x, const MicroOp& op) {
  const auto* low = lanes<uint32_t>(x.src(x.lists[op.list]));
  const auto* high = lanes<uint32_t>(x.src(x.lists[op.list + 1]));
  for_lanes<uint64_t>(x.mask, lanes<uint64_t>(x.dst(op.dst)),
                      [=](int i) { return static_cast<uint64_t>(high[i]) << 32 | low[i]; });
  return Step::Continue;
}
Step pack_2x16(Exec& x, const MicroOp& op) {
  const auto* low = lanes<uint32_t>(x.src(x.lists[op.list]));
  const auto* high = lanes<uint32_t>(x.src(x.lists[op.list + 1]));
  for_lanes<uint32_t>(x.mask, lanes<uint32_t>(x.dst(op.dst)),
                      [=](int i) { return (low[i] & 0xffff) | high[i] << 16; });
  return Step::Continue;
}
Step unpack_2x32(Exec& x, const MicroOp& op) {
  const auto* a = lanes<uint64_t>(x.src(op.src[0]));
  const uint32_t low = x.lists[op.list], high = x.lists[op.list + 1];
  if (low != kNoRow)
    for_lanes<uint32_t>(x.mask, lanes<uint32_t>(x.dst(low)),
                        [=](int i) { return static_cast<uint32_t>(a[i]); });
  if (high != kNoRow)
    for_lanes<uint32_t>(x.mask, lanes<uint32_t>(x.dst(high)),
                        [=](int i) { return static_cast<uint32_t>(a[i] >> 32); });
  return Step::Continue;
}
Step unpack_2x16(Exec& x, const MicroOp& op) {
  const auto* a = lanes<uint32_t>(x.src(op.src[0]));
  const uint32_t low = x.lists[op.list], high = x.lists[op.list + 1];
  if (low != kNoRow)
    for_lanes<uint32_t>(x.mask, lanes<uint32_t>(x.dst(low)), [=](int i) { return a[i] & 0xffff; });
  if (high != kNoRow)
    for_lanes<uint32_t>(x.mask, lanes<uint32_t>(x.dst(high)), [=](int i) { return a[i] >> 16; });
  return Step::Continue;
}

// Any other combination, byte by byte: part k of `kPart` bytes lies at byte k * kPart of the whole.
template <uint32_t kPart>
Step pack_bytes(Exec& x, const MicroOp& op) {
  const uint32_t stride = std::max<uint32_t>(4, kPart), whole = std::max<uint32_t>(4, kPart * op.count);
  auto* d = reinterpret_cast<uint8_t*>(&x.dst(op.dst));
  for (int i = 0; i < kLanes; ++i) {
    if (!(x.mask >> i & 1)) continue;
    uint8_t value[16] = {};
    for (uint32_t k = 0; k < op.count; ++k)
      std::memcpy(value + k * kPart,
                  reinterpret_cast<const uint8_t*>(&x.src(x.lists[op.list + k])) + i * stride, kPart);
    std::memcpy(d + i * whole, value, whole);
  }
  return Step::Continue;
}
template <uint32_t kPart>
Step unpack_bytes(Exec& x, const MicroOp& op) {
  const uint32_t stride = std::max<uint32_t>(4, kPart), whole = std::max<uint32_t>(4, kPart * op.count);
  const auto* a = reinterpret_cast<const uint8_t*>(&x.src(op.src[0]));
  for (uint32_t k = 0; k < op.count; ++k) {
    if (x.lists[op.list + k] == kNoRow) continue;
    auto* d = reinterpret_cast<uint8_t*>(&x.dst(x.lists[op.list + k]));
    for (int i = 0; i < kLanes; ++i) {
      if (!(x.mask >> i & 1)) continue;
      if (kPart < 4) std::memset(d + i * 4, 0, 4);
      std::memcpy(d + i * stride, a + i * whole + k * kPart, kPart);
    }
  }
  return Step::Continue;
}

template <class T>
Step select_value(Exec& x, const MicroOp& op) {
  const auto* a = lanes<T>(x.src(op.src[0]));
  const auto* b = lanes<T>(x.src(op.src[1]));
  const uint32_t p = x.pred(op.src[2]);
  for_lanes<T>(x.mask, lanes<T>(x.dst(op.dst)), [=](int i) {
    const T u = a[i], v = b[i];
    return (p >> i) & 1 ? u : v;
  });
  return Step::Continue;
}

template <class T, bool kFloat>
Step select_sign(Exec& x, const MicroOp& op) {
  const auto* a = lanes<T>(x.src(op.src[0]));
  const auto* b = lanes<T>(x.src(op.src[1]));
  const auto* c = lanes<uint32_t>(x.src(op.src[2]));
  for_lanes<T>(x.mask, lanes<T>(x.dst(op.dst)), [=](int i) {
    // c >= 0; a float also when it is -0, and not when it is NaN
    const bool first =
        kFloat ? ((c[i] & 0x7fffffff) <= 0x7f800000 && (!(c[i] >> 31) || (c[i] & 0x7fffffff) == 0))
               : !(c[i] >> 31);
    return first ? a[i] : b[i];
  });
  return Step::Continue;
}

// prmt (PTX 9.7.8.7): bytes 0-3 come from a, 4-7 from b; bit 3 of a selector replicates the sign of the byte.
uint32_t permute(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
  uint32_t r = 0;
  for (int k = 0; k < 4; ++k) {
    const uint32_t s = selector >> (4 * k) & 15;
    uint32_t byte = static_cast<uint32_t>(bytes >> (8 * (s & 7))) & 0xff;
    if (s & 8) byte = byte & 0x80 ? 0xff : 0;
    r |= byte << (8 * k);
  }
  return r;
}
uint32_t mode_selector(uint32_t mode, uint32_t c) {
  static constexpr uint16_t kTable[6][4] = {
      {0x3210, 0x4321, 0x5432, 0x6543},  // f4e
      {0x5670, 0x6701, 0x7012, 0x0123},  // b4e
      {0x0000, 0x1111, 0x2222, 0x3333},  // rc8
      {0x3210, 0x3211, 0x3222, 0x3333},  // ecl
      {0x0000, 0x1110, 0x2210, 0x3210},  // ecr
      {0x1010, 0x3232, 0x1010, 0x3232},  // rc16
  };
  return kTable[mode][c & 3];
}
Step prmt_default(Exec& x, const MicroOp& op) {
  const auto* a = lanes<uint32_t>(x.src(op.src[0]));
  const auto* b = lanes<uint32_t>(x.src(op.src[1]));
  const auto* c = lanes<uint32_t>(x.src(op.src[2]));
  for_lanes<uint32_t>(x.mask, lanes<uint32_t>(x.dst(op.dst)),
                      [=](int i) { return permute(a[i], b[i], c[i]); });
  return Step::Continue;
}
Step prmt_mode(Exec& x, const MicroOp& op) {
  const auto* a = lanes<uint32_t>(x.src(op.src[0]));
  const auto* b = lanes<uint32_t>(x.src(op.src[1]));
  const auto* c = lanes<uint32_t>(x.src(op.src[2]));
  const uint32_t mode = op.aux;
  for_lanes<uint32_t>(x.mask, lanes<uint32_t>(x.dst(op.dst)),
                      [=](int i) { return permute(a[i], b[i], mode_selector(mode, c[i])); });
  return Step::Continue;
}

}  // namespace

namespace handlers {

Handler move(uint32_t bits) {
  return bits == 128 ? &move_quad : bits == 64 ? &move_value<uint64_t> : &move_value<uint32_t>;
}
Handler move_predicate() { return &move_pred; }

Handler pack(uint32_t part_bits, uint32_t count) {
  if (count == 2 && part_bits == 32) return &pack_2x32;
  if (count == 2 && part_bits == 16) return &pack_2x16;
  switch (part_bits) {
    case 8:
      return &pack_bytes<1>;
    case 16:
      return &pack_bytes<2>;
    case 32:
      return &pack_bytes<4>;
    case 64:
      return &pack_bytes<8>;
    default:
      return nullptr;
  }
}
Handler unpack(uint32_t part_bits, uint32_t count) {
  if (count == 2 && part_bits == 32) return &unpack_2x32;
  if (count == 2 && part_bits == 16) return &unpack_2x16;
  switch (part_bits) {
    case 8:
      return &unpack_bytes<1>;
    case 16:
      return &unpack_bytes<2>;
    case 32:
      return &unpack_bytes<4>;
    case 64:
      return &unpack_bytes<8>;
    default:
      return nullptr;
  }
}

Handler select(uint32_t bits) { return bits == 64 ? &select_value<uint64_t> : &select_value<uint32_t>; }
Handler select_by_sign(uint32_t bits, bool compare_float) {
  if (bits == 64) return compare_float ? &select_sign<uint64_t, true> : &select_sign<uint64_t, false>;
  return compare_float ? &select_sign<uint32_t, true> : &select_sign<uint32_t, false>;
}

Handler prmt(bool mode) { return mode ? &prmt_mode : &prmt_default; }

}  // namespace handlers
}  // namespace mxfa::emulator
