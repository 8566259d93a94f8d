// cvt.pack (PTX ISA 9.7.9.22) and stochastic rounding (9.7.9.21).
#include <algorithm>
#include <cmath>

#include "one_op.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;

TEST_CASE("cvt.pack clamps two integers and packs them over the third operand", "[one_op]") {
  const struct {
    const char* type;
    int bits;
    bool is_signed;
  } types[] = {{"u16", 16, false}, {"s16", 16, true}, {"u8", 8, false}, {"s8", 8, true},
               {"u4", 4, false},   {"s4", 4, true},   {"u2", 2, false}, {"s2", 2, true}};
  const auto cases = combine({{0, 1, 3, 7, 8, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0x7fffffff, 0x80000000,
                               0xffffffff, 0xfffffffe, 0xffffff80, 0xffff7fff},
                              edges32(),
                              {0, 0xffffffff, 0x12345678}},
                             600);
  for (const auto& t : types) {
    const bool wide = t.bits == 16;
    check_form({std::string("cvt.pack.sat.") + t.type +
                    (wide ? ".s32 %d0, %a0, %a1;" : ".s32.b32 %d0, %a0, %a1, %a2;"),
                {"b32", "b32", "b32"},
                {"b32"}},
               cases, [&](const Words& w) {
                 const int64_t low = t.is_signed ? -(1ll << (t.bits - 1)) : 0,
                               high = t.is_signed ? (1ll << (t.bits - 1)) - 1 : (1ll << t.bits) - 1;
                 const auto clamped = [&](uint64_t word) {
                   const int64_t v = std::clamp<int64_t>(static_cast<int32_t>(word), low, high);
                   return static_cast<uint64_t>(v) & ((1ull << t.bits) - 1);
                 };
                 const uint64_t pair = clamped(w[0]) << t.bits | clamped(w[1]);
                 return Words{wide ? pair : pair | w[2] << 2 * t.bits};
               });
  }
}

namespace {

// A float format on its grid: the two neighbours of a value.
struct Grid {
  int exponent_bits, mantissa_bits, bias;
  double largest;
  double unit(double x) const {
    const int e = x == 0 ? 1 - bias : std::max(std::ilogb(x), 1 - bias);
    return std::ldexp(1.0, e - mantissa_bits);
  }
  double value(uint32_t code) const {
    const uint32_t e = code >> mantissa_bits & ((1u << exponent_bits) - 1),
                   m = code & ((1u << mantissa_bits) - 1);
    const double x = e ? std::ldexp(m + (1 << mantissa_bits), static_cast<int>(e) - bias - mantissa_bits)
                       : std::ldexp(m, 1 - bias - mantissa_bits);
    return code >> (exponent_bits + mantissa_bits) & 1 ? -x : x;
  }
};

}  // namespace

TEST_CASE("stochastic rounding gives a neighbour, and every random number its share", "[one_op]") {
  // Random bits of zero round toward zero, all ones away from it (unless the value is on the grid); the
  // result never leaves the two neighbours.
  const struct {
    const char* text;
    int elements, width;
    Grid grid;
  } forms[] = {
      {"cvt.rs.bf16x2.f32 %d0, %a0, %a1, %a4;", 2, 16, {8, 7, 127, 3.3895313892515355e38}},
      {"cvt.rs.f16x2.f32 %d0, %a0, %a1, %a4;", 2, 16, {5, 10, 15, 65504}},
      {"cvt.rs.satfinite.e4m3x4.f32 %d0, {%a0, %a1, %a2, %a3}, %a4;", 4, 8, {4, 3, 7, 448}},
      {"cvt.rs.satfinite.e5m2x4.f32 %d0, {%a0, %a1, %a2, %a3}, %a4;", 4, 8, {5, 2, 15, 57344}},
      {"cvt.rs.satfinite.e2m3x4.f32 %d0, {%a0, %a1, %a2, %a3}, %a4;", 4, 8, {2, 3, 1, 7.5}},
      {"cvt.rs.satfinite.e3m2x4.f32 %d0, {%a0, %a1, %a2, %a3}, %a4;", 4, 8, {3, 2, 3, 28}},
  };
  for (const auto& f : forms) {
    if (!can_run("sm_100a")) return;
    const uint64_t x[] = {bits_of(1.3f), bits_of(-2.71f), bits_of(0.1f), bits_of(-0.013f), bits_of(3.0f)};
    std::vector<Words> cases;
    for (const uint64_t a : x)
      for (const uint64_t b : x)
        for (const uint64_t random : {0x00000000ull, 0xffffffffull, 0x80402010ull, 0x12345678ull})
          cases.push_back({a, b, x[0], x[1], random});
    const auto out = run_form({f.text, {"f32", "f32", "f32", "f32", "b32"}, {"b32"}}, cases, "sm_100a");
    int wrong = 0;
    for (size_t i = 0; i < cases.size(); ++i)
      for (int k = 0; k < f.elements; ++k) {
        const auto code =
            static_cast<uint32_t>(out[i][0] >> (f.width * (f.elements - 1 - k))) & ((1u << f.width) - 1);
        const double want = as_float(cases[i][static_cast<size_t>(k)]), unit = f.grid.unit(want);
        const double down = std::trunc(want / unit) * unit,
                     up = down + std::copysign(down == want ? 0 : unit, want);
        const double got = f.grid.value(code);
        const uint64_t random = cases[i][4];
        wrong += random == 0 ? got != down : random == 0xffffffff ? got != up : got != down && got != up;
      }
    INFO(f.text);
    CHECK(wrong == 0);
  }
  // 4-bit results fill 16 bits; beyond the largest value .satfinite stops there.
  check_form(
      {"cvt.rs.satfinite.e2m1x4.f32 %d0, {%a0, %a1, %a2, %a3}, %a4;",
       {"f32", "f32", "f32", "f32", "b32"},
       {"b16"}},
      {{bits_of(6.0f), bits_of(-0.5f), bits_of(100.0f), bits_of(-1.5f), 0}},
      [](const Words&) { return Words{0x797b}; }, "sm_100a");
  check_form(
      {"cvt.rs.relu.bf16x2.f32 %d0, %a0, %a1, %a2;", {"f32", "f32", "b32"}, {"b32"}},
      {{bits_of(-3.0f), 0x7fc00001, 0}, {bits_of(2.0f), 0xff800000, 0}},
      [](const Words& w) { return Words{w[0] == bits_of(2.0f) ? 0x40000000ull : 0x00007fffull}; }, "sm_100a");
}
