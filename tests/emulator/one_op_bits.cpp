// Logic, shifts, bit fields and byte permutation against references written from the PTX ISA, "Logic and
// Shift" and "Integer Arithmetic".
#include <algorithm>
#include <bit>

#include "one_op_integer.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;

namespace {

// prmt: selector nibble n picks byte n of {b, a}; bit 3 of it replicates that byte's sign.
u32 prmt(u32 a, u32 b, u32 selector) {
  const u64 bytes = static_cast<u64>(b) << 32 | a;
  u32 result = 0;
  for (int i = 0; i < 4; ++i) {
    const u32 nibble = selector >> (4 * i) & 0xf;
    u32 byte = bytes >> (8 * (nibble & 7)) & 0xff;
    if (nibble & 8) byte = byte & 0x80 ? 0xff : 0;
    result |= byte << (8 * i);
  }
  return result;
}

u64 bfe(u64 a, u32 position, u32 length, int width, bool is_signed) {
  position &= 0xff;
  length &= 0xff;
  const int msb = width - 1;
  u64 sign = 0;
  if (is_signed && length != 0) sign = a >> std::min<int>(position + length - 1, msb) & 1;
  u64 result = 0;
  for (int i = 0; i <= msb; ++i) {
    const u64 bit = i < static_cast<int>(length) && static_cast<int>(position) + i <= msb
                        ? a >> (position + i) & 1
                        : sign;
    result |= bit << i;
  }
  return result;
}

u64 bfi(u64 a, u64 b, u32 position, u32 length, int width) {
  position &= 0xff;
  length &= 0xff;
  u64 result = b;
  for (u32 i = 0; i < length && position + i < static_cast<u32>(width); ++i) {
    result = (result & ~(1ull << (position + i))) | (a >> i & 1) << (position + i);
  }
  return result;
}

// Bit position of the most significant bit that differs from the sign (signed) or is set (unsigned); all ones
// if there is none.
u32 bfind(u64 a, int width, bool is_signed, bool shift_amount) {
  if (is_signed && a >> (width - 1) & 1) a = ~a;
  if (width == 32) a &= 0xffffffff;
  for (int i = width - 1; i >= 0; --i) {
    if (a >> i & 1) return shift_amount ? width - 1 - i : i;
  }
  return ~0u;
}

}  // namespace

TEST_CASE("logic", "[one_op]") {
  check({
      {{"and.b32 %d0, %a0, %a1;", k32x2, k32x1}, [](const Words& w) { return Words{w[0] & w[1]}; }},
      {{"or.b32 %d0, %a0, %a1;", k32x2, k32x1}, [](const Words& w) { return Words{w[0] | w[1]}; }},
      {{"xor.b32 %d0, %a0, %a1;", k32x2, k32x1}, [](const Words& w) { return Words{w[0] ^ w[1]}; }},
      {{"not.b32 %d0, %a0;", k32x1, k32x1}, [](const Words& w) { return Words{~w[0]}; }},
      {{"and.b64 %d0, %a0, %a1;", k64x2, k64x1}, [](const Words& w) { return Words{w[0] & w[1]}; }},
      {{"xor.b64 %d0, %a0, %a1;", k64x2, k64x1}, [](const Words& w) { return Words{w[0] ^ w[1]}; }},
      {{"not.b64 %d0, %a0;", k64x1, k64x1}, [](const Words& w) { return Words{~w[0]}; }},
      {{"or.b16 %d0, %a0, %a1;", k16x2, k16x1}, [](const Words& w) { return Words{w[0] | w[1]}; }},
      {{"not.b16 %d0, %a0;", k16x1, k16x1}, [](const Words& w) { return Words{~w[0]}; }},
      {{"cnot.b32 %d0, %a0;", k32x1, k32x1}, [](const Words& w) { return Words{w[0] == 0}; }},
  });
  for (const u32 table : {0x00u, 0xffu, 0x80u, 0x96u, 0xe8u, 0xcau, 0x1bu, 0xf8u}) {
    check_form({"lop3.b32 %d0, %a0, %a1, %a2, " + std::to_string(table) + ";", k32x3, k32x1},
               combine({edges32(), edges32(), edges32()}), [table](const Words& w) {
                 u64 result = 0;
                 for (int i = 0; i < 32; ++i) {
                   const u64 row = (w[0] >> i & 1) << 2 | (w[1] >> i & 1) << 1 | (w[2] >> i & 1);
                   result |= u64{table >> row & 1} << i;
                 }
                 return Words{result};
               });
  }
}

TEST_CASE("logic of predicates", "[one_op]") {
  const std::string compare = "setp.ne.u32 %q0, %a0, 0; setp.ne.u32 %q1, %a1, 0; ";
  const std::vector<uint64_t> both = {0, 1};
  struct Op {
    const char* text;
    bool (*value)(bool, bool);
  };
  for (const Op& op : {Op{"and.pred %q2, %q0, %q1;", [](bool a, bool b) { return a && b; }},
                       {"or.pred %q2, %q0, %q1;", [](bool a, bool b) { return a || b; }},
                       {"xor.pred %q2, %q0, %q1;", [](bool a, bool b) { return a != b; }},
                       {"not.pred %q2, %q1;", [](bool, bool b) { return !b; }},
                       {"mov.pred %q2, %q0;", [](bool a, bool) { return a; }}}) {
    check_form({compare + op.text + " selp.u32 %d0, 1, 0, %q2;", k32x2, k32x1}, combine({both, both}),
               [&](const Words& w) { return Words{op.value(w[0], w[1])}; });
  }
}

TEST_CASE("shifts clamp their amount", "[one_op]") {
  check({
      {{"shl.b32 %d0, %a0, %a1;", k32x2, k32x1},
       [](const Words& w) { return Words{w[1] > 31 ? 0 : w[0] << w[1]}; }},
      {{"shr.u32 %d0, %a0, %a1;", k32x2, k32x1},
       [](const Words& w) { return Words{w[1] > 31 ? 0 : w[0] >> w[1]}; }},
      {{"shr.s32 %d0, %a0, %a1;", k32x2, k32x1},
       [](const Words& w) { return Words{u64(s32(w[0]) >> std::min<u64>(w[1], 31))}; }},
      {{"shl.b64 %d0, %a0, %a1;", {"b64", "b32"}, k64x1},
       [](const Words& w) { return Words{w[1] > 63 ? 0 : w[0] << w[1]}; }},
      {{"shr.u64 %d0, %a0, %a1;", {"b64", "b32"}, k64x1},
       [](const Words& w) { return Words{w[1] > 63 ? 0 : w[0] >> w[1]}; }},
      {{"shr.s64 %d0, %a0, %a1;", {"b64", "b32"}, k64x1},
       [](const Words& w) { return Words{u64(s64(w[0]) >> std::min<u64>(w[1], 63))}; }},
      {{"shl.b16 %d0, %a0, %a1;", {"b16", "b32"}, k16x1},
       [](const Words& w) { return Words{w[1] > 15 ? 0 : w[0] << w[1]}; }},
      {{"shr.s16 %d0, %a0, %a1;", {"b16", "b32"}, k16x1},
       [](const Words& w) { return Words{u64(s16(w[0]) >> std::min<u64>(w[1], 15))}; }},
  });
}

TEST_CASE("funnel shifts take the amount modulo 32 or clamped at 32", "[one_op]") {
  // a holds the low word, b the high one.
  const auto left = [](u64 low, u64 high, u64 n) {
    return Words{n == 0 ? high : n == 32 ? low : (high << n | low >> (32 - n)) & 0xffffffff};
  };
  const auto right = [](u64 low, u64 high, u64 n) {
    return Words{n == 0 ? low : n == 32 ? high : (high << (32 - n) | low >> n) & 0xffffffff};
  };
  check({
      {{"shf.l.wrap.b32 %d0, %a0, %a1, %a2;", k32x3, k32x1},
       [&](const Words& w) { return left(w[0], w[1], w[2] & 31); }},
      {{"shf.r.wrap.b32 %d0, %a0, %a1, %a2;", k32x3, k32x1},
       [&](const Words& w) { return right(w[0], w[1], w[2] & 31); }},
      {{"shf.l.clamp.b32 %d0, %a0, %a1, %a2;", k32x3, k32x1},
       [&](const Words& w) { return left(w[0], w[1], std::min<u64>(w[2], 32)); }},
      {{"shf.r.clamp.b32 %d0, %a0, %a1, %a2;", k32x3, k32x1},
       [&](const Words& w) { return right(w[0], w[1], std::min<u64>(w[2], 32)); }},
  });
}

TEST_CASE("bit fields", "[one_op]") {
  const std::vector<uint64_t> positions = {0,  1,  7,  15,  16,  31,  32,    33,
                                           63, 64, 65, 127, 255, 256, 0x1ff, 0xffffffff};
  // PTX allows 0 to 255; the 32-bit forms of an H200 take the low byte of larger ones, its 64-bit forms do
  // not.
  const std::vector<uint64_t> allowed(positions.begin(), positions.begin() + 13);
  for (const bool is_signed : {false, true}) {
    const std::string sign = is_signed ? "s" : "u";
    check_form({"bfe." + sign + "32 %d0, %a0, %a1, %a2;", k32x3, k32x1},
               combine({edges32(), positions, positions}, 20000),
               [=](const Words& w) { return Words{bfe(w[0], w[1], w[2], 32, is_signed)}; });
    check_form({"bfe." + sign + "64 %d0, %a0, %a1, %a2;", {"b64", "b32", "b32"}, k64x1},
               combine({edges64(), allowed, allowed}, 20000),
               [=](const Words& w) { return Words{bfe(w[0], w[1], w[2], 64, is_signed)}; });
  }
  check_form({"bfi.b32 %d0, %a0, %a1, %a2, %a3;", {"b32", "b32", "b32", "b32"}, k32x1},
             combine({edges32(), edges32(), positions, positions}, 20000),
             [](const Words& w) { return Words{bfi(w[0], w[1], w[2], w[3], 32)}; });
  check_form({"bfi.b64 %d0, %a0, %a1, %a2, %a3;", {"b64", "b64", "b32", "b32"}, k64x1},
             combine({edges64(), edges64(), allowed, allowed}, 20000),
             [](const Words& w) { return Words{bfi(w[0], w[1], w[2], w[3], 64)}; });
}

TEST_CASE("counting and reversing bits", "[one_op]") {
  check({
      {{"popc.b32 %d0, %a0;", k32x1, k32x1},
       [](const Words& w) { return Words{u64(std::popcount(u32(w[0])))}; }},
      {{"popc.b64 %d0, %a0;", k64x1, k32x1}, [](const Words& w) { return Words{u64(std::popcount(w[0]))}; }},
      {{"clz.b32 %d0, %a0;", k32x1, k32x1},
       [](const Words& w) { return Words{u64(std::countl_zero(u32(w[0])))}; }},
      {{"clz.b64 %d0, %a0;", k64x1, k32x1},
       [](const Words& w) { return Words{u64(std::countl_zero(w[0]))}; }},
      {{"brev.b32 %d0, %a0;", k32x1, k32x1},
       [](const Words& w) {
         u32 result = 0;
         for (int i = 0; i < 32; ++i) result |= (w[0] >> i & 1) << (31 - i);
         return Words{result};
       }},
      {{"brev.b64 %d0, %a0;", k64x1, k64x1},
       [](const Words& w) {
         u64 result = 0;
         for (int i = 0; i < 64; ++i) result |= (w[0] >> i & 1) << (63 - i);
         return Words{result};
       }},
      {{"bfind.u32 %d0, %a0;", k32x1, k32x1},
       [](const Words& w) { return Words{bfind(w[0], 32, false, false)}; }},
      {{"bfind.s32 %d0, %a0;", k32x1, k32x1},
       [](const Words& w) { return Words{bfind(w[0], 32, true, false)}; }},
      {{"bfind.shiftamt.u32 %d0, %a0;", k32x1, k32x1},
       [](const Words& w) { return Words{bfind(w[0], 32, false, true)}; }},
      {{"bfind.u64 %d0, %a0;", k64x1, k32x1},
       [](const Words& w) { return Words{bfind(w[0], 64, false, false)}; }},
  });
}

TEST_CASE("prmt picks bytes and replicates signs", "[one_op]") {
  check({{{"prmt.b32 %d0, %a0, %a1, %a2;", k32x3, k32x1},
          [](const Words& w) { return Words{prmt(w[0], w[1], w[2])}; }}});
  check_form({"prmt.b32 %d0, %a0, %a1, 0x5410;", k32x2, k32x1}, combine({edges32(), edges32()}),
             [](const Words& w) { return Words{(w[0] & 0xffff) | w[1] << 16}; });
}

TEST_CASE("bmsk builds masks, szext extends a field", "[one_op]") {
  check({
      {{"bmsk.clamp.b32 %d0, %a0, %a1;", k32x2, k32x1},
       [](const Words& w) {
         u32 result = 0;
         for (u64 i = 0; i < 32; ++i) {
           if (i >= w[0] && i - w[0] < w[1]) result |= 1u << i;
         }
         return Words{result};
       }},
      {{"szext.clamp.s32 %d0, %a0, %a1;", k32x2, k32x1},
       [](const Words& w) {
         const u64 n = std::min<u64>(w[1], 32);
         if (n == 0) return Words{0};
         return Words{u64(s64(w[0] << (64 - n)) >> (64 - n))};
       }},
  });
}
