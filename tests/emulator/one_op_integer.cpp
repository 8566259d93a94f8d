// Integer arithmetic, comparison, selection and moves against references written from the PTX ISA, "Integer
// Arithmetic", "Comparison and Selection", "Data Movement".
#include "one_op_integer.hpp"

#include <algorithm>

#include "support/catch.hpp"

using namespace mxfa::test;

namespace {

u32 saturate(s64 value) {
  return value > INT32_MAX   ? INT32_MAX
         : value < INT32_MIN ? static_cast<u32>(INT32_MIN)
                             : static_cast<u32>(value);
}

}  // namespace

TEST_CASE("add and sub wrap, and saturate where asked", "[one_op]") {
  check({
      {{"add.u32 %d0, %a0, %a1;", k32x2, k32x1}, [](const Words& w) { return Words{w[0] + w[1]}; }},
      {{"add.s32 %d0, %a0, %a1;", k32x2, k32x1}, [](const Words& w) { return Words{w[0] + w[1]}; }},
      {{"add.sat.s32 %d0, %a0, %a1;", k32x2, k32x1},
       [](const Words& w) { return Words{saturate(s64{s32(w[0])} + s32(w[1]))}; }},
      {{"sub.sat.s32 %d0, %a0, %a1;", k32x2, k32x1},
       [](const Words& w) { return Words{saturate(s64{s32(w[0])} - s32(w[1]))}; }},
      {{"sub.s32 %d0, %a0, %a1;", k32x2, k32x1}, [](const Words& w) { return Words{w[0] - w[1]}; }},
      {{"add.s64 %d0, %a0, %a1;", k64x2, k64x1}, [](const Words& w) { return Words{w[0] + w[1]}; }},
      {{"sub.u64 %d0, %a0, %a1;", k64x2, k64x1}, [](const Words& w) { return Words{w[0] - w[1]}; }},
      {{"add.u16 %d0, %a0, %a1;", k16x2, k16x1}, [](const Words& w) { return Words{w[0] + w[1]}; }},
      {{"sub.s16 %d0, %a0, %a1;", k16x2, k16x1}, [](const Words& w) { return Words{w[0] - w[1]}; }},
      {{"neg.s32 %d0, %a0;", k32x1, k32x1}, [](const Words& w) { return Words{-w[0]}; }},
      {{"neg.s64 %d0, %a0;", k64x1, k64x1}, [](const Words& w) { return Words{-w[0]}; }},
      {{"abs.s32 %d0, %a0;", k32x1, k32x1},
       [](const Words& w) { return Words{s32(w[0]) < 0 ? -w[0] : w[0]}; }},
      {{"abs.s64 %d0, %a0;", k64x1, k64x1},
       [](const Words& w) { return Words{s64(w[0]) < 0 ? -w[0] : w[0]}; }},
  });
}

TEST_CASE("carry chains", "[one_op]") {
  check({
      {{"add.cc.u32 %d0, %a0, %a1; addc.u32 %d1, %a2, %a2;", k32x3, k32x2},
       [](const Words& w) {
         return Words{w[0] + w[1], w[2] + w[2] + ((w[0] + w[1]) >> 32)};
       }},
      {{"sub.cc.u32 %d0, %a0, %a1; subc.u32 %d1, %a2, %a0;", k32x3, k32x2},
       [](const Words& w) {
         return Words{w[0] - w[1], w[2] - w[0] - (w[0] < w[1])};
       }},
  });
}

TEST_CASE("mul and mad: low, high and wide halves", "[one_op]") {
  check({
      {{"mul.lo.u32 %d0, %a0, %a1;", k32x2, k32x1}, [](const Words& w) { return Words{w[0] * w[1]}; }},
      {{"mul.hi.u32 %d0, %a0, %a1;", k32x2, k32x1}, [](const Words& w) { return Words{w[0] * w[1] >> 32}; }},
      {{"mul.hi.s32 %d0, %a0, %a1;", k32x2, k32x1},
       [](const Words& w) { return Words{u64(s64{s32(w[0])} * s32(w[1])) >> 32}; }},
      {{"mul.wide.u32 %d0, %a0, %a1;", k32x2, k64x1}, [](const Words& w) { return Words{w[0] * w[1]}; }},
      {{"mul.wide.s32 %d0, %a0, %a1;", k32x2, k64x1},
       [](const Words& w) { return Words{u64(s64{s32(w[0])} * s32(w[1]))}; }},
      {{"mul.wide.u16 %d0, %a0, %a1;", k16x2, k32x1}, [](const Words& w) { return Words{w[0] * w[1]}; }},
      {{"mul.wide.s16 %d0, %a0, %a1;", k16x2, k32x1},
       [](const Words& w) { return Words{u64(s64{s16(w[0])} * s16(w[1]))}; }},
      {{"mul.lo.s16 %d0, %a0, %a1;", k16x2, k16x1}, [](const Words& w) { return Words{w[0] * w[1]}; }},
      {{"mul.lo.s64 %d0, %a0, %a1;", k64x2, k64x1}, [](const Words& w) { return Words{w[0] * w[1]}; }},
      {{"mul.hi.u64 %d0, %a0, %a1;", k64x2, k64x1},
       [](const Words& w) { return Words{u64(u128{w[0]} * w[1] >> 64)}; }},
      {{"mul.hi.s64 %d0, %a0, %a1;", k64x2, k64x1},
       [](const Words& w) { return Words{u64(s128{s64(w[0])} * s64(w[1]) >> 64)}; }},
      {{"mad.lo.s32 %d0, %a0, %a1, %a2;", k32x3, k32x1},
       [](const Words& w) { return Words{w[0] * w[1] + w[2]}; }},
      {{"mad.hi.u32 %d0, %a0, %a1, %a2;", k32x3, k32x1},
       [](const Words& w) { return Words{(w[0] * w[1] >> 32) + w[2]}; }},
      {{"mad.wide.u32 %d0, %a0, %a1, %a2;", {"b32", "b32", "b64"}, k64x1},
       [](const Words& w) { return Words{w[0] * w[1] + w[2]}; }},
      {{"mad.wide.s32 %d0, %a0, %a1, %a2;", {"b32", "b32", "b64"}, k64x1},
       [](const Words& w) { return Words{u64(s64{s32(w[0])} * s32(w[1])) + w[2]}; }},
      {{"mad.lo.u64 %d0, %a0, %a1, %a2;", k64x3, k64x1},
       [](const Words& w) { return Words{w[0] * w[1] + w[2]}; }},
      {{"sad.u32 %d0, %a0, %a1, %a2;", k32x3, k32x1},
       [](const Words& w) { return Words{(w[0] < w[1] ? w[1] - w[0] : w[0] - w[1]) + w[2]}; }},
  });
}

TEST_CASE("div and rem round towards zero", "[one_op]") {
  // The result of a division by zero is not specified, and INT_MIN / -1 overflows: neither is asked for.
  const auto defined = [](const std::vector<std::string>& types, auto allowed) {
    std::vector<Words> cases;
    for (const Words& words : combine(edges_for(types))) {
      if (allowed(words)) cases.push_back(words);
    }
    return cases;
  };
  const auto unsigned32 = defined(k32x2, [](const Words& w) { return w[1] != 0; });
  const auto signed32 =
      defined(k32x2, [](const Words& w) { return w[1] != 0 && !(w[0] == 0x80000000 && w[1] == 0xffffffff); });
  const auto unsigned64 = defined(k64x2, [](const Words& w) { return w[1] != 0; });
  const auto signed64 =
      defined(k64x2, [](const Words& w) { return w[1] != 0 && !(w[0] == 1ull << 63 && w[1] == ~0ull); });
  check_form({"div.u32 %d0, %a0, %a1;", k32x2, k32x1}, unsigned32,
             [](const Words& w) { return Words{w[0] / w[1]}; });
  check_form({"rem.u32 %d0, %a0, %a1;", k32x2, k32x1}, unsigned32,
             [](const Words& w) { return Words{w[0] % w[1]}; });
  check_form({"div.s32 %d0, %a0, %a1;", k32x2, k32x1}, signed32,
             [](const Words& w) { return Words{u64(s32(w[0]) / s32(w[1]))}; });
  check_form({"rem.s32 %d0, %a0, %a1;", k32x2, k32x1}, signed32,
             [](const Words& w) { return Words{u64(s32(w[0]) % s32(w[1]))}; });
  check_form({"div.u64 %d0, %a0, %a1;", k64x2, k64x1}, unsigned64,
             [](const Words& w) { return Words{w[0] / w[1]}; });
  check_form({"rem.u64 %d0, %a0, %a1;", k64x2, k64x1}, unsigned64,
             [](const Words& w) { return Words{w[0] % w[1]}; });
  check_form({"div.s64 %d0, %a0, %a1;", k64x2, k64x1}, signed64,
             [](const Words& w) { return Words{u64(s64(w[0]) / s64(w[1]))}; });
}

TEST_CASE("min and max of integers", "[one_op]") {
  check({
      {{"min.u32 %d0, %a0, %a1;", k32x2, k32x1}, [](const Words& w) { return Words{std::min(w[0], w[1])}; }},
      {{"max.u32 %d0, %a0, %a1;", k32x2, k32x1}, [](const Words& w) { return Words{std::max(w[0], w[1])}; }},
      {{"min.s32 %d0, %a0, %a1;", k32x2, k32x1},
       [](const Words& w) { return Words{u64(std::min(s32(w[0]), s32(w[1])))}; }},
      {{"max.s32 %d0, %a0, %a1;", k32x2, k32x1},
       [](const Words& w) { return Words{u64(std::max(s32(w[0]), s32(w[1])))}; }},
      {{"max.relu.s32 %d0, %a0, %a1;", k32x2, k32x1},
       [](const Words& w) {
         return Words{u64(std::max({s32(w[0]), s32(w[1]), 0}))};
       }},
      {{"min.s64 %d0, %a0, %a1;", k64x2, k64x1},
       [](const Words& w) { return Words{u64(std::min(s64(w[0]), s64(w[1])))}; }},
      {{"max.u64 %d0, %a0, %a1;", k64x2, k64x1}, [](const Words& w) { return Words{std::max(w[0], w[1])}; }},
      {{"min.s16 %d0, %a0, %a1;", k16x2, k16x1},
       [](const Words& w) { return Words{u64(std::min(s16(w[0]), s16(w[1])))}; }},
  });
}

TEST_CASE("dp4a sums four byte products", "[one_op]") {
  check({
      {{"dp4a.u32.u32 %d0, %a0, %a1, %a2;", k32x3, k32x1},
       [](const Words& w) {
         u64 sum = w[2];
         for (int i = 0; i < 4; ++i) sum += (w[0] >> (8 * i) & 0xff) * (w[1] >> (8 * i) & 0xff);
         return Words{sum};
       }},
      {{"dp4a.s32.s32 %d0, %a0, %a1, %a2;", k32x3, k32x1},
       [](const Words& w) {
         u64 sum = w[2];
         for (int i = 0; i < 4; ++i)
           sum += static_cast<int8_t>(w[0] >> (8 * i)) * static_cast<int8_t>(w[1] >> (8 * i));
         return Words{sum};
       }},
  });
}

TEST_CASE("setp of integers, with and without combination", "[one_op]") {
  struct Op {
    const char* name;
    bool (*is_true)(u64, u64);
  };
  const auto test = [](const std::string& type, const std::vector<std::string>& types,
                       const std::vector<Op>& ops) {
    for (const Op& op : ops) {
      check_form({"setp." + std::string(op.name) + "." + type + " %q0, %a0, %a1; selp.u32 %d0, 1, 0, %q0;",
                  types, k32x1},
                 combine(edges_for(types)), [&](const Words& w) { return Words{op.is_true(w[0], w[1])}; });
    }
  };
  test("u32", k32x2,
       {{"eq", [](u64 a, u64 b) { return a == b; }},
        {"ne", [](u64 a, u64 b) { return a != b; }},
        {"lt", [](u64 a, u64 b) { return a < b; }},
        {"le", [](u64 a, u64 b) { return a <= b; }},
        {"gt", [](u64 a, u64 b) { return a > b; }},
        {"ge", [](u64 a, u64 b) { return a >= b; }},
        {"lo", [](u64 a, u64 b) { return a < b; }},
        {"hs", [](u64 a, u64 b) { return a >= b; }}});
  test("s32", k32x2, {{"lt", [](u64 a, u64 b) { return s32(a) < s32(b); }}, {"ge", [](u64 a, u64 b) {
                                                                               return s32(a) >= s32(b);
                                                                             }}});
  test("s64", k64x2, {{"lt", [](u64 a, u64 b) { return s64(a) < s64(b); }}, {"le", [](u64 a, u64 b) {
                                                                               return s64(a) <= s64(b);
                                                                             }}});
  test("u64", k64x2,
       {{"gt", [](u64 a, u64 b) { return a > b; }}, {"eq", [](u64 a, u64 b) { return a == b; }}});
  test("s16", k16x2, {{"lt", [](u64 a, u64 b) { return s16(a) < s16(b); }}});

  // Both destinations, and a third predicate.
  check({{{"setp.ne.u32 %q2, %a2, 0; setp.lt.and.s32 %q0|%q1, %a0, %a1, !%q2; selp.u32 %d0, 1, 0, %q0; "
           "selp.u32 %d1, 1, 0, %q1;",
           k32x3, k32x2},
          [](const Words& w) {
            const bool less = s32(w[0]) < s32(w[1]), c = w[2] == 0;
            return Words{less && c, !less && c};
          }}});
}

TEST_CASE("selp, slct and set", "[one_op]") {
  check({
      {{"setp.gt.s32 %q0, %a2, 0; selp.b32 %d0, %a0, %a1, %q0;", k32x3, k32x1},
       [](const Words& w) { return Words{s32(w[2]) > 0 ? w[0] : w[1]}; }},
      {{"setp.gt.s32 %q0, %a2, 0; selp.b64 %d0, %a0, %a1, %q0;", {"b64", "b64", "b32"}, k64x1},
       [](const Words& w) { return Words{s32(w[2]) > 0 ? w[0] : w[1]}; }},
      {{"slct.b32.s32 %d0, %a0, %a1, %a2;", k32x3, k32x1},
       [](const Words& w) { return Words{s32(w[2]) >= 0 ? w[0] : w[1]}; }},
      {{"set.lt.u32.s32 %d0, %a0, %a1;", k32x2, k32x1},
       [](const Words& w) { return Words{s32(w[0]) < s32(w[1]) ? ~0ull : 0}; }},
      {{"set.eq.f32.u32 %d0, %a0, %a1;", k32x2, {"f32"}},
       [](const Words& w) { return Words{w[0] == w[1] ? 0x3f800000ull : 0}; }},
  });
}

TEST_CASE("mov splits and joins registers", "[one_op]") {
  check({
      {{"mov.b64 {%d0, %d1}, %a0;", k64x1, k32x2},
       [](const Words& w) {
         return Words{w[0], w[0] >> 32};
       }},
      {{"mov.b64 %d0, {%a0, %a1};", k32x2, k64x1}, [](const Words& w) { return Words{w[0] | w[1] << 32}; }},
      {{"mov.b32 {%d0, %d1}, %a0;", k32x1, k16x2},
       [](const Words& w) {
         return Words{w[0], w[0] >> 16};
       }},
      {{"mov.b32 %d0, {%a0, %a1};", k16x2, k32x1}, [](const Words& w) { return Words{w[0] | w[1] << 16}; }},
      {{"mov.b64 {_, %d0}, %a0;", k64x1, k32x1}, [](const Words& w) { return Words{w[0] >> 32}; }},
      {{".reg .b128 %wide; mov.b128 %wide, {%a0, %a1}; mov.b128 {%d1, %d0}, %wide;", k64x2, k64x2},
       [](const Words& w) {
         return Words{w[1], w[0]};
       }},
  });
}

TEST_CASE("integer cvt extends, truncates and saturates", "[one_op]") {
  check({
      {{"cvt.s64.s32 %d0, %a0;", k32x1, k64x1}, [](const Words& w) { return Words{u64(s64{s32(w[0])})}; }},
      {{"cvt.u64.u32 %d0, %a0;", k32x1, k64x1}, [](const Words& w) { return Words{w[0]}; }},
      {{"cvt.u32.u64 %d0, %a0;", k64x1, k32x1}, [](const Words& w) { return Words{w[0]}; }},
      {{"cvt.u16.u32 %d0, %a0;", k32x1, k16x1}, [](const Words& w) { return Words{w[0]}; }},
      {{"cvt.u32.u16 %d0, %a0;", k16x1, k32x1}, [](const Words& w) { return Words{w[0]}; }},
      {{"cvt.s32.s16 %d0, %a0;", k16x1, k32x1}, [](const Words& w) { return Words{u64(s64{s16(w[0])})}; }},
      {{"cvt.s32.s8 %d0, %a0;", k32x1, k32x1},
       [](const Words& w) { return Words{u64(s64{static_cast<int8_t>(w[0])})}; }},
      {{"cvt.u32.u8 %d0, %a0;", k32x1, k32x1}, [](const Words& w) { return Words{w[0] & 0xff}; }},
      {{"cvt.sat.s16.s32 %d0, %a0;", k32x1, k16x1},
       [](const Words& w) { return Words{u64(std::max(-32768, std::min(32767, s32(w[0]))))}; }},
      {{"cvt.sat.u8.s32 %d0, %a0;", k32x1, k32x1},
       [](const Words& w) { return Words{u64(std::max(0, std::min(255, s32(w[0]))))}; }},
  });
}
