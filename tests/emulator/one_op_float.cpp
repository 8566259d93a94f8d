// binary32 arithmetic and comparison, packed and mixed forms.  References: the host's IEEE arithmetic under
// the asked rounding mode, which is correctly rounded by definition.
#include <cmath>

#include "one_op.hpp"
#include "one_op_rounding.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;

namespace {

uint32_t add32(uint32_t a, uint32_t b, int mode) {
  const volatile float x = as_float(a), y = as_float(b);
  return canonical(rounded<float>(mode, [&] { return x + y; }));
}
uint32_t mul32(uint32_t a, uint32_t b, int mode) {
  const volatile float x = as_float(a), y = as_float(b);
  return canonical(rounded<float>(mode, [&] { return x * y; }));
}
uint32_t fma32(uint32_t a, uint32_t b, uint32_t c, int mode) {
  const volatile float x = as_float(a), y = as_float(b), z = as_float(c);
  return canonical(rounded<float>(mode, [&] { return std::fma(float{x}, float{y}, float{z}); }));
}

const std::vector<std::string> kOne = {"f32"}, kTwo = {"f32", "f32"}, kThree = {"f32", "f32", "f32"};

// A subnormal result that rounding would carry to the smallest normal number: whether .ftz looks before or
// after rounding is not documented, so those cases (below the smallest normal before rounding, at it after)
// are left out.
bool ftz_is_unclear(uint32_t flushed_to_zero_or_min) {
  return (flushed_to_zero_or_min & 0x7fffffff) == 0x00800000;
}

bool same_ftz(const Words&, uint64_t got, uint64_t expected, size_t) {
  return got == expected ||
         (ftz_is_unclear(expected) && (got & 0x7fffffff) == 0 && got >> 31 == expected >> 31);
}

}  // namespace

TEST_CASE("f32 add and sub round as asked", "[one_op]") {
  const auto cases = combine({float_edges(), float_edges()}, 12000);
  for (const Rounding& rounding : kRoundings) {
    const std::string name = rounding.name;
    check_form({"add." + name + ".f32 %d0, %a0, %a1;", kTwo, kOne}, cases,
               [&](const Words& w) { return Words{add32(w[0], w[1], rounding.mode)}; });
    check_form({"sub." + name + ".f32 %d0, %a0, %a1;", kTwo, kOne}, cases, [&](const Words& w) {
      return Words{is_nan32(w[1]) ? kNan32 : add32(w[0], w[1] ^ 0x80000000, rounding.mode)};
    });
    check_form(
        {"add." + name + ".ftz.f32 %d0, %a0, %a1;", kTwo, kOne}, cases,
        [&](const Words& w) { return Words{flush(add32(flush(w[0]), flush(w[1]), rounding.mode))}; }, "sm_90",
        same_ftz);
  }
  check_form({"add.sat.f32 %d0, %a0, %a1;", kTwo, kOne}, cases,
             [](const Words& w) { return Words{saturate(add32(w[0], w[1], FE_TONEAREST))}; });
}

TEST_CASE("f32 mul rounds as asked", "[one_op]") {
  const auto cases = combine({float_edges(), float_edges()}, 12000);
  for (const Rounding& rounding : kRoundings) {
    const std::string name = rounding.name;
    check_form({"mul." + name + ".f32 %d0, %a0, %a1;", kTwo, kOne}, cases,
               [&](const Words& w) { return Words{mul32(w[0], w[1], rounding.mode)}; });
    check_form(
        {"mul." + name + ".ftz.f32 %d0, %a0, %a1;", kTwo, kOne}, cases,
        [&](const Words& w) { return Words{flush(mul32(flush(w[0]), flush(w[1]), rounding.mode))}; }, "sm_90",
        same_ftz);
  }
  check_form(
      {"mul.ftz.sat.f32 %d0, %a0, %a1;", kTwo, kOne}, cases,
      [](const Words& w) { return Words{flush(saturate(mul32(flush(w[0]), flush(w[1]), FE_TONEAREST)))}; },
      "sm_90", same_ftz);
}

TEST_CASE("f32 fma rounds once, as asked", "[one_op]") {
  const auto cases = combine({float_edges(), float_edges(), float_edges()}, 20000);
  for (const Rounding& rounding : kRoundings) {
    const std::string name = rounding.name;
    check_form({"fma." + name + ".f32 %d0, %a0, %a1, %a2;", kThree, kOne}, cases,
               [&](const Words& w) { return Words{fma32(w[0], w[1], w[2], rounding.mode)}; });
    check_form(
        {"fma." + name + ".ftz.f32 %d0, %a0, %a1, %a2;", kThree, kOne}, cases,
        [&](const Words& w) {
          return Words{flush(fma32(flush(w[0]), flush(w[1]), flush(w[2]), rounding.mode))};
        },
        "sm_90", same_ftz);
  }
  check_form({"fma.rn.sat.f32 %d0, %a0, %a1, %a2;", kThree, kOne}, cases,
             [](const Words& w) { return Words{saturate(fma32(w[0], w[1], w[2], FE_TONEAREST))}; });
}

TEST_CASE("packed f32x2 is two f32 operations", "[one_op]") {
  const std::vector<std::string> pairs2 = {"b64", "b64"}, pairs3 = {"b64", "b64", "b64"}, pair = {"b64"};
  std::vector<Words> cases;
  for (const Words& words :
       combine({float_edges(), float_edges(), float_edges(), float_edges(), float_edges(), float_edges()},
               12000)) {
    cases.push_back({words[0] | words[1] << 32, words[2] | words[3] << 32, words[4] | words[5] << 32});
  }
  const auto join = [](auto half) { return Words{uint64_t{half(0)} | uint64_t{half(32)} << 32}; };
  const Same same = [](const Words&, uint64_t got, uint64_t expected, size_t) {
    return same_ftz({}, got & 0xffffffff, expected & 0xffffffff, 0) &&
           same_ftz({}, got >> 32, expected >> 32, 0);
  };
  for (const Rounding& rounding : kRoundings) {
    const std::string name = rounding.name;
    check_form(
        {"add." + name + ".f32x2 %d0, %a0, %a1;", pairs2, pair}, cases,
        [&](const Words& w) {
          return join([&](int s) { return add32(w[0] >> s, w[1] >> s, rounding.mode); });
        },
        "sm_100a");
    check_form(
        {"mul." + name + ".f32x2 %d0, %a0, %a1;", pairs2, pair}, cases,
        [&](const Words& w) {
          return join([&](int s) { return mul32(w[0] >> s, w[1] >> s, rounding.mode); });
        },
        "sm_100a");
    check_form(
        {"fma." + name + ".f32x2 %d0, %a0, %a1, %a2;", pairs3, pair}, cases,
        [&](const Words& w) {
          return join([&](int s) { return fma32(w[0] >> s, w[1] >> s, w[2] >> s, rounding.mode); });
        },
        "sm_100a");
    check_form(
        {"fma." + name + ".ftz.f32x2 %d0, %a0, %a1, %a2;", pairs3, pair}, cases,
        [&](const Words& w) {
          return join([&](int s) {
            return flush(fma32(flush(w[0] >> s), flush(w[1] >> s), flush(w[2] >> s), rounding.mode));
          });
        },
        "sm_100a", same);
  }
}

TEST_CASE("mixed-precision f32 sums widen their bf16 and f16 operands exactly", "[one_op]") {
  const auto widen = [](uint64_t bits) { return static_cast<uint32_t>(bits << 16); };
  check_form(
      {"add.rn.f32.bf16 %d0, %a0, %a1;", {"b16", "f32"}, kOne}, combine({bfloat_edges(), float_edges()}),
      [&](const Words& w) { return Words{add32(widen(w[0]), w[1], FE_TONEAREST)}; }, "sm_100a");
  check_form(
      {"fma.rn.f32.bf16 %d0, %a0, %a1, %a2;", {"b16", "b16", "f32"}, kOne},
      combine({bfloat_edges(), bfloat_edges(), float_edges()}),
      [&](const Words& w) { return Words{fma32(widen(w[0]), widen(w[1]), w[2], FE_TONEAREST)}; }, "sm_100a");
}

TEST_CASE("min and max of f32: NaN, signed zero, .NaN, .ftz", "[one_op]") {
  const auto pick = [](uint32_t a, uint32_t b, bool max) {
    if (is_nan32(a) && is_nan32(b)) return kNan32;
    if (is_nan32(a)) return b;
    if (is_nan32(b)) return a;
    const float x = as_float(a), y = as_float(b);
    if (x == y) return max ? a & b : a | b;  // +0 > -0; equal numbers are equal bits
    return (x > y) == max ? a : b;
  };
  const auto pick_nan = [&](uint32_t a, uint32_t b, bool max) {
    return is_nan32(a) || is_nan32(b) ? kNan32 : pick(a, b, max);
  };
  const auto cases = combine({float_edges(), float_edges()}, 12000);
  for (const bool max : {false, true}) {
    const std::string name = max ? "max" : "min";
    check_form({name + ".f32 %d0, %a0, %a1;", kTwo, kOne}, cases,
               [&](const Words& w) { return Words{pick(w[0], w[1], max)}; });
    check_form({name + ".ftz.f32 %d0, %a0, %a1;", kTwo, kOne}, cases,
               [&](const Words& w) { return Words{flush(pick(flush(w[0]), flush(w[1]), max))}; });
    check_form({name + ".NaN.f32 %d0, %a0, %a1;", kTwo, kOne}, cases,
               [&](const Words& w) { return Words{pick_nan(w[0], w[1], max)}; });
    check_form(
        {name + ".xorsign.abs.f32 %d0, %a0, %a1;", kTwo, kOne}, cases,
        [&](const Words& w) {
          const uint32_t result = pick(w[0] & 0x7fffffff, w[1] & 0x7fffffff, max);
          return Words{is_nan32(result) ? kNan32 : result | ((w[0] ^ w[1]) & 0x80000000)};
        },
        "sm_90",
        [](const Words& w, uint64_t got, uint64_t expected, size_t) {
          // The sign taken from a NaN operand is not specified.
          return got == expected ||
                 ((is_nan32(w[0]) || is_nan32(w[1])) && (got & 0x7fffffff) == (expected & 0x7fffffff));
        });
    const auto triples = combine({float_edges(), float_edges(), float_edges()}, 12000);
    check_form(
        {name + ".f32 %d0, %a0, %a1, %a2;", kThree, kOne}, triples,
        [&](const Words& w) { return Words{pick(pick(w[0], w[1], max), w[2], max)}; }, "sm_100a");
    check_form(
        {name + ".ftz.f32 %d0, %a0, %a1, %a2;", kThree, kOne}, triples,
        [&](const Words& w) {
          return Words{flush(pick(pick(flush(w[0]), flush(w[1]), max), flush(w[2]), max))};
        },
        "sm_100a");
    check_form(
        {name + ".NaN.f32 %d0, %a0, %a1, %a2;", kThree, kOne}, triples,
        [&](const Words& w) { return Words{pick_nan(pick_nan(w[0], w[1], max), w[2], max)}; }, "sm_100a");
    check_form(
        {name + ".abs.f32 %d0, %a0, %a1, %a2;", kThree, kOne}, triples,
        [&](const Words& w) {
          return Words{pick(pick(w[0] & 0x7fffffff, w[1] & 0x7fffffff, max), w[2] & 0x7fffffff, max)};
        },
        "sm_100a");
  }
}

TEST_CASE("abs, neg and copysign of f32", "[one_op]") {
  std::vector<Words> cases;
  for (const uint64_t bits : float_edges()) {
    if (!is_nan32(bits)) cases.push_back({bits});  // the sign and payload of a NaN are not specified
  }
  check_form({"abs.f32 %d0, %a0;", kOne, kOne}, cases,
             [](const Words& w) { return Words{w[0] & 0x7fffffff}; });
  check_form({"neg.f32 %d0, %a0;", kOne, kOne}, cases,
             [](const Words& w) { return Words{w[0] ^ 0x80000000}; });
  check_form({"abs.ftz.f32 %d0, %a0;", kOne, kOne}, cases,
             [](const Words& w) { return Words{flush(w[0]) & 0x7fffffff}; });
  check_form({"neg.ftz.f32 %d0, %a0;", kOne, kOne}, cases,
             [](const Words& w) { return Words{flush(w[0]) ^ 0x80000000}; });
  check_form({"copysign.f32 %d0, %a0, %a1;", kTwo, kOne}, combine({float_edges(), float_edges()}),
             [](const Words& w) {
               return Words{(w[1] & 0x7fffffff) | (w[0] & 0x80000000)};
             });  // b with the sign of a
}

TEST_CASE("setp of f32: ordered and unordered comparisons", "[one_op]") {
  const auto cases = combine({float_edges(), float_edges()}, 12000);
  struct Op {
    const char* name;
    bool (*is_true)(float, float);
  };
  const Op ops[] = {{"eq", [](float a, float b) { return a == b; }},
                    {"ne", [](float a, float b) { return a < b || a > b; }},
                    {"lt", [](float a, float b) { return a < b; }},
                    {"le", [](float a, float b) { return a <= b; }},
                    {"gt", [](float a, float b) { return a > b; }},
                    {"ge", [](float a, float b) { return a >= b; }},
                    {"equ", [](float a, float b) { return !(a < b || a > b); }},
                    {"neu", [](float a, float b) { return a != b; }},
                    {"ltu", [](float a, float b) { return !(a >= b); }},
                    {"leu", [](float a, float b) { return !(a > b); }},
                    {"gtu", [](float a, float b) { return !(a <= b); }},
                    {"geu", [](float a, float b) { return !(a < b); }},
                    {"num", [](float a, float b) { return a == a && b == b; }},
                    {"nan", [](float a, float b) { return a != a || b != b; }}};
  for (const Op& op : ops) {
    check_form(
        {"setp." + std::string(op.name) + ".f32 %q0, %a0, %a1; selp.u32 %d0, 1, 0, %q0;", kTwo, {"b32"}},
        cases, [&](const Words& w) { return Words{op.is_true(as_float(w[0]), as_float(w[1]))}; });
    check_form(
        {"setp." + std::string(op.name) + ".ftz.f32 %q0, %a0, %a1; selp.u32 %d0, 1, 0, %q0;", kTwo, {"b32"}},
        cases,
        [&](const Words& w) { return Words{op.is_true(as_float(flush(w[0])), as_float(flush(w[1])))}; });
  }
}

TEST_CASE("testp classifies f32", "[one_op]") {
  std::vector<Words> cases;
  for (const uint64_t bits : float_edges()) cases.push_back({bits});
  struct Op {
    const char* name;
    bool (*is_true)(float);
  };
  for (const Op& op : {Op{"finite", [](float a) { return std::isfinite(a); }},
                       {"infinite", [](float a) { return std::isinf(a); }},
                       {"number", [](float a) { return !std::isnan(a); }},
                       {"notanumber", [](float a) { return std::isnan(a); }},
                       {"normal", [](float a) { return std::isnormal(a) || a == 0; }},  // an H200 counts zero
                       {"subnormal", [](float a) { return std::fpclassify(a) == FP_SUBNORMAL; }}}) {
    check_form({"testp." + std::string(op.name) + ".f32 %q0, %a0; selp.u32 %d0, 1, 0, %q0;", kOne, {"b32"}},
               cases, [&](const Words& w) { return Words{op.is_true(as_float(w[0]))}; });
  }
}

TEST_CASE("correctly rounded division, reciprocal and square root", "[one_op]") {
  const auto pairs = combine({float_edges(), float_edges()}, 8000);
  std::vector<Words> singles;
  for (const uint64_t bits : float_edges()) singles.push_back({bits});
  for (const Rounding& rounding : kRoundings) {
    const std::string name = rounding.name;
    check_form({"div." + name + ".f32 %d0, %a0, %a1;", kTwo, kOne}, pairs, [&](const Words& w) {
      const volatile float x = as_float(w[0]), y = as_float(w[1]);
      return Words{canonical(rounded<float>(rounding.mode, [&] { return x / y; }))};
    });
    check_form({"rcp." + name + ".f32 %d0, %a0;", kOne, kOne}, singles, [&](const Words& w) {
      const volatile float x = as_float(w[0]), one = 1;
      return Words{canonical(rounded<float>(rounding.mode, [&] { return one / x; }))};
    });
    check_form({"sqrt." + name + ".f32 %d0, %a0;", kOne, kOne}, singles, [&](const Words& w) {
      const volatile float x = as_float(w[0]);
      return Words{canonical(rounded<float>(rounding.mode, [&] { return std::sqrt(float{x}); }))};
    });
  }
  check_form(
      {"div.rn.ftz.f32 %d0, %a0, %a1;", kTwo, kOne}, pairs,
      [&](const Words& w) {
        const volatile float x = as_float(flush(w[0])), y = as_float(flush(w[1]));
        return Words{flush(canonical(x / y))};
      },
      "sm_90", same_ftz);
}
