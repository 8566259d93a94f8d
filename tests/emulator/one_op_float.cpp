// Floating-point arithmetic.  References: the host's IEEE arithmetic under the asked rounding mode (correctly rounded by definition), and
// long double for approximate functions, whose error bounds are those of PTX ISA 9.7.3 and 9.7.4.
#include <cfenv>
#include <cmath>
#include <limits>

#include "one_op.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;

namespace {

constexpr uint32_t kNan32 = 0x7fffffff;             // the NaN that arithmetic produces
constexpr uint64_t kNan64 = 0xfff8000000000000;     // only "is a NaN" is checked in binary64

struct Rounding { const char* name; int mode; };
constexpr Rounding kRoundings[] = {{"rn", FE_TONEAREST}, {"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}};

// Evaluates under a rounding mode; volatile keeps the compiler from evaluating elsewhere.
template <class T, class Operation>
T rounded(int mode, Operation operation) {
  std::fesetround(mode);
  const volatile T result = operation();
  std::fesetround(FE_TONEAREST);
  return result;
}

bool is_nan32(uint64_t bits) { return (bits & 0x7fffffff) > 0x7f800000; }
bool is_nan64(uint64_t bits) { return (bits & ~(1ull << 63)) > 0x7ff0000000000000; }
uint32_t canonical(float value) { return std::isnan(value) ? kNan32 : bits_of(value); }

// .ftz: subnormal operands and results become zero of their sign.
uint32_t flush(uint32_t bits) { return (bits & 0x7f800000) ? bits : bits & 0x80000000; }
uint32_t saturate(uint32_t bits) {
  const float value = as_float(bits);
  return std::isnan(value) || value <= 0 ? 0 : value >= 1 ? 0x3f800000 : bits;
}

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

// A subnormal result that rounding would carry to the smallest normal number: whether .ftz looks before or after rounding is not
// documented, so those cases (below the smallest normal before rounding, at it after) are left out.
bool ftz_is_unclear(uint32_t flushed_to_zero_or_min) { return (flushed_to_zero_or_min & 0x7fffffff) == 0x00800000; }

bool same_ftz(const Words&, uint64_t got, uint64_t expected, size_t) {
  return got == expected || (ftz_is_unclear(expected) && (got & 0x7fffffff) == 0 && got >> 31 == expected >> 31);
}
bool same64(const Words&, uint64_t got, uint64_t expected, size_t) {
  return got == expected || (is_nan64(got) && is_nan64(expected));
}

}  // namespace

TEST_CASE("f32 add and sub round as asked", "[one_op]") {
  const auto cases = combine({float_edges(), float_edges()}, 12000);
  for (const Rounding& rounding : kRoundings) {
    const std::string name = rounding.name;
    check_form({"add." + name + ".f32 %d0, %a0, %a1;", kTwo, kOne}, cases,
               [&](const Words& w) { return Words{add32(w[0], w[1], rounding.mode)}; });
    check_form({"sub." + name + ".f32 %d0, %a0, %a1;", kTwo, kOne}, cases,
               [&](const Words& w) { return Words{is_nan32(w[1]) ? kNan32 : add32(w[0], w[1] ^ 0x80000000, rounding.mode)}; });
    check_form({"add." + name + ".ftz.f32 %d0, %a0, %a1;", kTwo, kOne}, cases,
               [&](const Words& w) { return Words{flush(add32(flush(w[0]), flush(w[1]), rounding.mode))}; }, "sm_90", same_ftz);
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
    check_form({"mul." + name + ".ftz.f32 %d0, %a0, %a1;", kTwo, kOne}, cases,
               [&](const Words& w) { return Words{flush(mul32(flush(w[0]), flush(w[1]), rounding.mode))}; }, "sm_90", same_ftz);
  }
  check_form({"mul.ftz.sat.f32 %d0, %a0, %a1;", kTwo, kOne}, cases,
             [](const Words& w) { return Words{flush(saturate(mul32(flush(w[0]), flush(w[1]), FE_TONEAREST)))}; }, "sm_90", same_ftz);
}

TEST_CASE("f32 fma rounds once, as asked", "[one_op]") {
  const auto cases = combine({float_edges(), float_edges(), float_edges()}, 20000);
  for (const Rounding& rounding : kRoundings) {
    const std::string name = rounding.name;
    check_form({"fma." + name + ".f32 %d0, %a0, %a1, %a2;", kThree, kOne}, cases,
               [&](const Words& w) { return Words{fma32(w[0], w[1], w[2], rounding.mode)}; });
    check_form({"fma." + name + ".ftz.f32 %d0, %a0, %a1, %a2;", kThree, kOne}, cases,
               [&](const Words& w) { return Words{flush(fma32(flush(w[0]), flush(w[1]), flush(w[2]), rounding.mode))}; }, "sm_90", same_ftz);
  }
  check_form({"fma.rn.sat.f32 %d0, %a0, %a1, %a2;", kThree, kOne}, cases,
             [](const Words& w) { return Words{saturate(fma32(w[0], w[1], w[2], FE_TONEAREST))}; });
}

TEST_CASE("packed f32x2 is two f32 operations", "[one_op]") {
  const std::vector<std::string> pairs2 = {"b64", "b64"}, pairs3 = {"b64", "b64", "b64"}, pair = {"b64"};
  std::vector<Words> cases;
  for (const Words& words : combine({float_edges(), float_edges(), float_edges(), float_edges(), float_edges(), float_edges()}, 12000)) {
    cases.push_back({words[0] | words[1] << 32, words[2] | words[3] << 32, words[4] | words[5] << 32});
  }
  const auto join = [](auto half) { return Words{uint64_t{half(0)} | uint64_t{half(32)} << 32}; };
  const Same same = [](const Words&, uint64_t got, uint64_t expected, size_t) {
    return same_ftz({}, got & 0xffffffff, expected & 0xffffffff, 0) && same_ftz({}, got >> 32, expected >> 32, 0);
  };
  for (const Rounding& rounding : kRoundings) {
    const std::string name = rounding.name;
    check_form({"add." + name + ".f32x2 %d0, %a0, %a1;", pairs2, pair}, cases,
               [&](const Words& w) { return join([&](int s) { return add32(w[0] >> s, w[1] >> s, rounding.mode); }); }, "sm_100a");
    check_form({"mul." + name + ".f32x2 %d0, %a0, %a1;", pairs2, pair}, cases,
               [&](const Words& w) { return join([&](int s) { return mul32(w[0] >> s, w[1] >> s, rounding.mode); }); }, "sm_100a");
    check_form({"fma." + name + ".f32x2 %d0, %a0, %a1, %a2;", pairs3, pair}, cases,
               [&](const Words& w) { return join([&](int s) { return fma32(w[0] >> s, w[1] >> s, w[2] >> s, rounding.mode); }); }, "sm_100a");
    check_form({"fma." + name + ".ftz.f32x2 %d0, %a0, %a1, %a2;", pairs3, pair}, cases,
               [&](const Words& w) {
                 return join([&](int s) { return flush(fma32(flush(w[0] >> s), flush(w[1] >> s), flush(w[2] >> s), rounding.mode)); });
               },
               "sm_100a", same);
  }
}

TEST_CASE("mixed-precision f32 sums widen their bf16 and f16 operands exactly", "[one_op]") {
  const auto widen = [](uint64_t bits) { return static_cast<uint32_t>(bits << 16); };
  check_form({"add.rn.f32.bf16 %d0, %a0, %a1;", {"b16", "f32"}, kOne}, combine({bfloat_edges(), float_edges()}),
             [&](const Words& w) { return Words{add32(widen(w[0]), w[1], FE_TONEAREST)}; }, "sm_100a");
  check_form({"fma.rn.f32.bf16 %d0, %a0, %a1, %a2;", {"b16", "b16", "f32"}, kOne}, combine({bfloat_edges(), bfloat_edges(), float_edges()}),
             [&](const Words& w) { return Words{fma32(widen(w[0]), widen(w[1]), w[2], FE_TONEAREST)}; }, "sm_100a");
}

TEST_CASE("min and max of f32: NaN, signed zero, .NaN, .ftz", "[one_op]") {
  const auto pick = [](uint32_t a, uint32_t b, bool max) {
    if (is_nan32(a) && is_nan32(b)) return kNan32;
    if (is_nan32(a)) return b;
    if (is_nan32(b)) return a;
    const float x = as_float(a), y = as_float(b);
    if (x == y) return max ? a & b : a | b;            // +0 > -0; equal numbers are equal bits
    return (x > y) == max ? a : b;
  };
  const auto pick_nan = [&](uint32_t a, uint32_t b, bool max) { return is_nan32(a) || is_nan32(b) ? kNan32 : pick(a, b, max); };
  const auto cases = combine({float_edges(), float_edges()}, 12000);
  for (const bool max : {false, true}) {
    const std::string name = max ? "max" : "min";
    check_form({name + ".f32 %d0, %a0, %a1;", kTwo, kOne}, cases, [&](const Words& w) { return Words{pick(w[0], w[1], max)}; });
    check_form({name + ".ftz.f32 %d0, %a0, %a1;", kTwo, kOne}, cases,
               [&](const Words& w) { return Words{flush(pick(flush(w[0]), flush(w[1]), max))}; });
    check_form({name + ".NaN.f32 %d0, %a0, %a1;", kTwo, kOne}, cases, [&](const Words& w) { return Words{pick_nan(w[0], w[1], max)}; });
    check_form({name + ".xorsign.abs.f32 %d0, %a0, %a1;", kTwo, kOne}, cases, [&](const Words& w) {
      const uint32_t result = pick(w[0] & 0x7fffffff, w[1] & 0x7fffffff, max);
      return Words{is_nan32(result) ? kNan32 : result | ((w[0] ^ w[1]) & 0x80000000)};
    }, "sm_90", [](const Words& w, uint64_t got, uint64_t expected, size_t) {
      // The sign taken from a NaN operand is not specified.
      return got == expected || ((is_nan32(w[0]) || is_nan32(w[1])) && (got & 0x7fffffff) == (expected & 0x7fffffff));
    });
    const auto triples = combine({float_edges(), float_edges(), float_edges()}, 12000);
    check_form({name + ".f32 %d0, %a0, %a1, %a2;", kThree, kOne}, triples,
               [&](const Words& w) { return Words{pick(pick(w[0], w[1], max), w[2], max)}; }, "sm_100a");
    check_form({name + ".ftz.f32 %d0, %a0, %a1, %a2;", kThree, kOne}, triples,
               [&](const Words& w) { return Words{flush(pick(pick(flush(w[0]), flush(w[1]), max), flush(w[2]), max))}; }, "sm_100a");
    check_form({name + ".NaN.f32 %d0, %a0, %a1, %a2;", kThree, kOne}, triples,
               [&](const Words& w) { return Words{pick_nan(pick_nan(w[0], w[1], max), w[2], max)}; }, "sm_100a");
    check_form({name + ".abs.f32 %d0, %a0, %a1, %a2;", kThree, kOne}, triples,
               [&](const Words& w) {
                 return Words{pick(pick(w[0] & 0x7fffffff, w[1] & 0x7fffffff, max), w[2] & 0x7fffffff, max)};
               },
               "sm_100a");
  }
}

TEST_CASE("abs, neg and copysign of f32", "[one_op]") {
  std::vector<Words> cases;
  for (const uint64_t bits : float_edges()) {
    if (!is_nan32(bits)) cases.push_back({bits});         // the sign and payload of a NaN are not specified
  }
  check_form({"abs.f32 %d0, %a0;", kOne, kOne}, cases, [](const Words& w) { return Words{w[0] & 0x7fffffff}; });
  check_form({"neg.f32 %d0, %a0;", kOne, kOne}, cases, [](const Words& w) { return Words{w[0] ^ 0x80000000}; });
  check_form({"abs.ftz.f32 %d0, %a0;", kOne, kOne}, cases, [](const Words& w) { return Words{flush(w[0]) & 0x7fffffff}; });
  check_form({"neg.ftz.f32 %d0, %a0;", kOne, kOne}, cases, [](const Words& w) { return Words{flush(w[0]) ^ 0x80000000}; });
  check_form({"copysign.f32 %d0, %a0, %a1;", kTwo, kOne}, combine({float_edges(), float_edges()}),
             [](const Words& w) { return Words{(w[1] & 0x7fffffff) | (w[0] & 0x80000000)}; });   // b with the sign of a
}

TEST_CASE("setp of f32: ordered and unordered comparisons", "[one_op]") {
  const auto cases = combine({float_edges(), float_edges()}, 12000);
  struct Op { const char* name; bool (*is_true)(float, float); };
  const Op ops[] = {{"eq", [](float a, float b) { return a == b; }}, {"ne", [](float a, float b) { return a < b || a > b; }},
                    {"lt", [](float a, float b) { return a < b; }}, {"le", [](float a, float b) { return a <= b; }},
                    {"gt", [](float a, float b) { return a > b; }}, {"ge", [](float a, float b) { return a >= b; }},
                    {"equ", [](float a, float b) { return !(a < b || a > b); }}, {"neu", [](float a, float b) { return a != b; }},
                    {"ltu", [](float a, float b) { return !(a >= b); }}, {"leu", [](float a, float b) { return !(a > b); }},
                    {"gtu", [](float a, float b) { return !(a <= b); }}, {"geu", [](float a, float b) { return !(a < b); }},
                    {"num", [](float a, float b) { return a == a && b == b; }}, {"nan", [](float a, float b) { return a != a || b != b; }}};
  for (const Op& op : ops) {
    check_form({"setp." + std::string(op.name) + ".f32 %q0, %a0, %a1; selp.u32 %d0, 1, 0, %q0;", kTwo, {"b32"}}, cases,
               [&](const Words& w) { return Words{op.is_true(as_float(w[0]), as_float(w[1]))}; });
    check_form({"setp." + std::string(op.name) + ".ftz.f32 %q0, %a0, %a1; selp.u32 %d0, 1, 0, %q0;", kTwo, {"b32"}}, cases,
               [&](const Words& w) { return Words{op.is_true(as_float(flush(w[0])), as_float(flush(w[1])))}; });
  }
}

TEST_CASE("testp classifies f32", "[one_op]") {
  std::vector<Words> cases;
  for (const uint64_t bits : float_edges()) cases.push_back({bits});
  struct Op { const char* name; bool (*is_true)(float); };
  for (const Op& op : {Op{"finite", [](float a) { return std::isfinite(a); }}, {"infinite", [](float a) { return std::isinf(a); }},
                       {"number", [](float a) { return !std::isnan(a); }}, {"notanumber", [](float a) { return std::isnan(a); }},
                       {"normal", [](float a) { return std::isnormal(a) || a == 0; }},   // an H200 counts zero
                       {"subnormal", [](float a) { return std::fpclassify(a) == FP_SUBNORMAL; }}}) {
    check_form({"testp." + std::string(op.name) + ".f32 %q0, %a0; selp.u32 %d0, 1, 0, %q0;", kOne, {"b32"}}, cases,
               [&](const Words& w) { return Words{op.is_true(as_float(w[0]))}; });
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
  check_form({"div.rn.ftz.f32 %d0, %a0, %a1;", kTwo, kOne}, pairs,
             [&](const Words& w) {
               const volatile float x = as_float(flush(w[0])), y = as_float(flush(w[1]));
               return Words{flush(canonical(x / y))};
             },
             "sm_90", same_ftz);
}

// ---- approximate functions ------------------------------------------------------------------------------------
namespace {

// Distance in units of the last place of the expected value.
double ulps(float got, long double expected) {
  if (std::isinf(expected) || std::fabs(expected) > std::numeric_limits<float>::max()) return std::isinf(got) ? 0 : 1e9;
  int exponent = 0;
  std::frexp(static_cast<double>(expected), &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent, -125) - 24);
  return static_cast<double>(std::fabs(static_cast<long double>(got) - expected)) / unit;
}

struct Approximation {
  const char* name;
  long double (*exact)(long double);
  bool (*within)(float x, float got, long double exact);   // for finite, non-zero, non-NaN exact results
};

double relative(float got, long double exact) { return static_cast<double>(std::fabs((got - exact) / exact)); }

const Approximation kApproximations[] = {
    {"ex2.approx", [](long double x) { return std::exp2(x); }, [](float, float got, long double exact) { return ulps(got, exact) <= 2; }},
    {"lg2.approx", [](long double x) { return std::log2(x); },
     [](float x, float got, long double exact) {
       const double bound = std::ldexp(1.0, -22);
       return x > 0.5f && x < 2 ? std::fabs(static_cast<double>(got - exact)) <= bound : relative(got, exact) <= bound;
     }},
    {"rcp.approx", [](long double x) { return 1 / x; }, [](float, float got, long double exact) { return ulps(got, exact) <= 1; }},
    {"rsqrt.approx", [](long double x) { return 1 / std::sqrt(x); },
     [](float, float got, long double exact) { return relative(got, exact) <= std::exp2(-22.9); }},
    {"sqrt.approx", [](long double x) { return std::sqrt(x); },
     [](float, float got, long double exact) { return relative(got, exact) <= std::exp2(-23.0) * 1.0001; }},
    {"tanh.approx", [](long double x) { return std::tanh(x); },
     [](float, float got, long double exact) { return relative(got, exact) <= std::exp2(-11.0) * 1.01; }},
};

}  // namespace

TEST_CASE("approximate functions stay within their documented errors", "[one_op]") {
  std::vector<Words> cases;
  for (const uint64_t bits : float_edges()) cases.push_back({bits});
  for (int i = 0; i < 4000; ++i) {
    cases.push_back({bits_of(-150.0f + 0.07f * i)});                          // the range of ex2
    cases.push_back({bits_of(0.5f + i * 4e-4f)});                             // around one, where lg2 vanishes
    cases.push_back({static_cast<uint32_t>(i) * 0x7f800u + 0x12345u});        // all magnitudes
  }
  for (const Approximation& function : kApproximations) {
    for (const bool ftz : {false, true}) {
      const std::string name = function.name;
      if (ftz && name == "tanh.approx") continue;   // has no .ftz
      const auto exact = [&](const Words& w) {
        float x = as_float(ftz ? flush(w[0]) : static_cast<uint32_t>(w[0]));
        return function.exact(x);
      };
      check_form({name + (ftz ? ".ftz" : "") + ".f32 %d0, %a0;", kOne, kOne}, cases,
                 [&](const Words& w) {
                   const float nearest = static_cast<float>(exact(w));
                   return Words{ftz ? flush(canonical(nearest)) : canonical(nearest)};
                 },
                 "sm_90",
                 [&](const Words& w, uint64_t got, uint64_t expected, size_t) {
                   if (got == expected) return true;
                   const long double value = exact(w);
                   const float result = as_float(got);
                   if (std::isnan(value) || std::isnan(result) || value == 0) return false;
                   // At the edge of .ftz either zero or the smallest normal number is right.
                   if (ftz && std::fabs(static_cast<double>(value)) < std::ldexp(1.0, -125)) {
                     return result == 0 || function.within(as_float(w[0]), result, value);
                   }
                   return function.within(as_float(w[0]), result, value);
                 });
    }
  }
}

TEST_CASE("sin and cos stay within 2^-20.5 on [-2 pi, 2 pi]", "[one_op]") {
  std::vector<Words> cases;
  for (int i = -2000; i <= 2000; ++i) cases.push_back({bits_of(static_cast<float>(i * 3.14159e-3))});
  for (const bool sine : {true, false}) {
    check_form({std::string(sine ? "sin" : "cos") + ".approx.ftz.f32 %d0, %a0;", kOne, kOne}, cases,
               [&](const Words& w) { return Words{bits_of(sine ? std::sin(as_float(w[0])) : std::cos(as_float(w[0])))}; }, "sm_90",
               [&](const Words&, uint64_t got, uint64_t expected, size_t) {
                 return std::fabs(as_float(got) - as_float(expected)) <= std::exp2(-20.5);
               });
  }
}

TEST_CASE("division by approximate reciprocals stays within 2 ulp", "[one_op]") {
  std::vector<Words> cases;
  for (const Words& words : combine({float_edges(), float_edges()}, 8000)) {
    const float b = std::fabs(as_float(words[1]));
    // PTX promises the bound for 2^-126 <= |b| <= 2^126; results that underflow are left to .ftz.
    const long double quotient = static_cast<long double>(as_float(words[0])) / as_float(words[1]);
    if (b >= std::ldexp(1.0f, -126) && b <= std::ldexp(1.0f, 126) && std::fabs(quotient) > std::ldexp(1.0L, -120)) cases.push_back(words);
  }
  for (const char* name : {"div.approx", "div.full"}) {
    check_form({std::string(name) + ".f32 %d0, %a0, %a1;", kTwo, kOne}, cases,
               [](const Words& w) { return Words{canonical(as_float(w[0]) / as_float(w[1]))}; }, "sm_90",
               [](const Words& w, uint64_t got, uint64_t expected, size_t) {
                 if (got == expected) return true;
                 return ulps(as_float(got), static_cast<long double>(as_float(w[0])) / as_float(w[1])) <= 2;
               });
  }
}

// ---- binary64 and the 16-bit formats ------------------------------------------------------------------------
TEST_CASE("f64 arithmetic and comparison", "[one_op]") {
  std::vector<uint64_t> values;
  for (const uint64_t bits : float_edges()) values.push_back(bits_of(static_cast<double>(as_float(bits))));
  for (const uint64_t bits : edges64()) values.push_back(bits);
  const std::vector<std::string> one = {"f64"}, two = {"f64", "f64"}, three = {"f64", "f64", "f64"};
  const auto pairs = combine({values, values}, 8000);
  for (const Rounding& rounding : kRoundings) {
    const std::string name = rounding.name;
    check_form({"add." + name + ".f64 %d0, %a0, %a1;", two, one}, pairs, [&](const Words& w) {
      const volatile double x = as_double(w[0]), y = as_double(w[1]);
      return Words{bits_of(rounded<double>(rounding.mode, [&] { return x + y; }))};
    }, "sm_90", same64);
    check_form({"mul." + name + ".f64 %d0, %a0, %a1;", two, one}, pairs, [&](const Words& w) {
      const volatile double x = as_double(w[0]), y = as_double(w[1]);
      return Words{bits_of(rounded<double>(rounding.mode, [&] { return x * y; }))};
    }, "sm_90", same64);
    check_form({"fma." + name + ".f64 %d0, %a0, %a1, %a2;", three, one}, combine({values, values, values}, 8000), [&](const Words& w) {
      const volatile double x = as_double(w[0]), y = as_double(w[1]), z = as_double(w[2]);
      return Words{bits_of(rounded<double>(rounding.mode, [&] { return std::fma(double{x}, double{y}, double{z}); }))};
    }, "sm_90", same64);
  }
  check_form({"div.rn.f64 %d0, %a0, %a1;", two, one}, pairs, [](const Words& w) { return Words{bits_of(as_double(w[0]) / as_double(w[1]))}; },
             "sm_90", same64);
  check_form({"max.f64 %d0, %a0, %a1;", two, one}, pairs,
             [](const Words& w) {
               const double x = as_double(w[0]), y = as_double(w[1]);
               if (x == 0 && y == 0) return Words{w[0] & w[1]};
               return Words{std::isnan(x) && std::isnan(y) ? kNan64 : bits_of(std::fmax(x, y))};
             },
             "sm_90", same64);
  check_form({"setp.lt.f64 %q0, %a0, %a1; selp.u32 %d0, 1, 0, %q0;", two, {"b32"}}, pairs,
             [](const Words& w) { return Words{as_double(w[0]) < as_double(w[1])}; });
}

namespace {

// A 16-bit format by its exponent and mantissa widths; every value of it is exact in double.
struct Small { const char* name; int exponent_bits, mantissa_bits; };
constexpr Small kHalf = {"f16", 5, 10}, kBfloat = {"bf16", 8, 7};

double decode(uint32_t bits, const Small& format) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const int exponent = bits >> format.mantissa_bits & ((1 << format.exponent_bits) - 1);
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  double value;
  if (exponent == (1 << format.exponent_bits) - 1) {
    value = mantissa ? NAN : INFINITY;
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, 1 - bias - format.mantissa_bits);
  } else {
    value = std::ldexp(mantissa + (1 << format.mantissa_bits), exponent - bias - format.mantissa_bits);
  }
  return bits >> 15 & 1 ? -value : value;
}

// Round to nearest even.
uint32_t encode(double value, const Small& format) {
  if (std::isnan(value)) return 0x7fff;
  const uint32_t sign = std::signbit(value) ? 0x8000 : 0;
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const double magnitude = std::fabs(value);
  const uint32_t infinity = ((1u << format.exponent_bits) - 1) << format.mantissa_bits;
  if (std::isinf(value)) return sign | infinity;
  if (magnitude == 0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), 1 - bias);
  const double scaled = std::ldexp(magnitude, format.mantissa_bits - exponent);     // in units of the last place
  const double integer = std::nearbyint(scaled);
  uint32_t bits = static_cast<uint32_t>(integer) + (static_cast<uint32_t>(exponent + bias - 1) << format.mantissa_bits);
  return sign | std::min(bits, infinity);
}

// a + b rounded to odd: the result has the last bit set whenever it is not exact, so that rounding it once more to a narrower format is
// like rounding the exact sum.  The error of the nearest sum is itself a double (Knuth's two-sum).
double odd_sum(double a, double b) {
  const double sum = a + b;
  if (!std::isfinite(sum)) return sum;
  const double of_b = sum - a;
  const double error = (a - (sum - of_b)) + (b - of_b);
  if (error == 0 || bits_of(sum) & 1) return sum;
  return std::nextafter(sum, error > 0 ? INFINITY : -INFINITY);
}

}  // namespace

TEST_CASE("f16 and bf16 arithmetic rounds to nearest", "[one_op]") {
  for (const Small& format : {kHalf, kBfloat}) {
    const std::string type = format.name;
    const auto values = type == "f16" ? half_edges() : bfloat_edges();
    const std::vector<std::string> one = {"b16"}, two = {"b16", "b16"}, three = {"b16", "b16", "b16"};
    const auto pairs = combine({values, values});
    const auto value = [&](uint64_t bits) { return decode(static_cast<uint32_t>(bits), format); };
    check_form({"add.rn." + type + " %d0, %a0, %a1;", two, one}, pairs,
               [&](const Words& w) { return Words{encode(odd_sum(value(w[0]), value(w[1])), format)}; });
    check_form({"mul.rn." + type + " %d0, %a0, %a1;", two, one}, pairs,
               [&](const Words& w) { return Words{encode(value(w[0]) * value(w[1]), format)}; });
    check_form({"fma.rn." + type + " %d0, %a0, %a1, %a2;", three, one}, combine({values, values, values}, 8000),
               [&](const Words& w) {
                 const double product = value(w[0]) * value(w[1]);     // exact
                 return Words{encode(odd_sum(product, value(w[2])), format)};
               });
    check_form({"max." + type + " %d0, %a0, %a1;", two, one}, pairs, [&](const Words& w) {
      const double x = value(w[0]), y = value(w[1]);
      if (std::isnan(x) && std::isnan(y)) return Words{0x7fff};
      if (std::isnan(x) || std::isnan(y)) return Words{std::isnan(x) ? w[1] : w[0]};
      return Words{x == y ? w[0] & w[1] : x > y ? w[0] : w[1]};
    });
    // Packed: two of them in one register.
    check_form({"fma.rn." + type + "x2 %d0, %a0, %a1, %a2;", {"b32", "b32", "b32"}, {"b32"}},
               combine({edges32(), edges32(), edges32()}, 8000), [&](const Words& w) {
                 uint64_t result = 0;
                 for (int s : {0, 16}) {
                   const double product = value(w[0] >> s & 0xffff) * value(w[1] >> s & 0xffff);
                   result |= uint64_t{encode(odd_sum(product, value(w[2] >> s & 0xffff)), format)} << s;
                 }
                 return Words{result};
               });
  }
}
