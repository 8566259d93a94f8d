// Approximate functions against long double; the error bounds are those of PTX ISA 9.7.3 and 9.7.4.
#include <cmath>
#include <limits>

#include "one_op.hpp"
#include "one_op_rounding.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;

// ------------------------------------------------------------------------------------
namespace {

const std::vector<std::string> kOne = {"f32"}, kTwo = {"f32", "f32"};

// Distance in units of the last place of the expected value.
double ulps(float got, long double expected) {
  if (std::isinf(expected) || std::fabs(expected) > std::numeric_limits<float>::max())
    return std::isinf(got) ? 0 : 1e9;
  int exponent = 0;
  std::frexp(static_cast<double>(expected), &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent, -125) - 24);
  return static_cast<double>(std::fabs(static_cast<long double>(got) - expected)) / unit;
}

struct Approximation {
  const char* name;
  long double (*exact)(long double);
  bool (*within)(float x, float got, long double exact);  // for finite, non-zero, non-NaN exact results
};

double relative(float got, long double exact) {
  return static_cast<double>(std::fabs((got - exact) / exact));
}

const Approximation kApproximations[] = {
    {"ex2.approx", [](long double x) { return std::exp2(x); },
     [](float, float got, long double exact) { return ulps(got, exact) <= 2; }},
    {"lg2.approx", [](long double x) { return std::log2(x); },
     [](float x, float got, long double exact) {
       const double bound = std::ldexp(1.0, -22);
       return x > 0.5f && x < 2 ? std::fabs(static_cast<double>(got - exact)) <= bound
                                : relative(got, exact) <= bound;
     }},
    {"rcp.approx", [](long double x) { return 1 / x; },
     [](float, float got, long double exact) { return ulps(got, exact) <= 1; }},
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
    cases.push_back({bits_of(-150.0f + 0.07f * i)});                    // the range of ex2
    cases.push_back({bits_of(0.5f + i * 4e-4f)});                       // around one, where lg2 vanishes
    cases.push_back({static_cast<uint32_t>(i) * 0x7f800u + 0x12345u});  // all magnitudes
  }
  for (const Approximation& function : kApproximations) {
    for (const bool ftz : {false, true}) {
      const std::string name = function.name;
      if (ftz && name == "tanh.approx") continue;  // has no .ftz
      const auto exact = [&](const Words& w) {
        float x = as_float(ftz ? flush(w[0]) : static_cast<uint32_t>(w[0]));
        return function.exact(x);
      };
      check_form(
          {name + (ftz ? ".ftz" : "") + ".f32 %d0, %a0;", kOne, kOne}, cases,
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
    check_form(
        {std::string(sine ? "sin" : "cos") + ".approx.ftz.f32 %d0, %a0;", kOne, kOne}, cases,
        [&](const Words& w) {
          return Words{bits_of(sine ? std::sin(as_float(w[0])) : std::cos(as_float(w[0])))};
        },
        "sm_90",
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
    if (b >= std::ldexp(1.0f, -126) && b <= std::ldexp(1.0f, 126) &&
        std::fabs(quotient) > std::ldexp(1.0L, -120))
      cases.push_back(words);
  }
  for (const char* name : {"div.approx", "div.full"}) {
    check_form(
        {std::string(name) + ".f32 %d0, %a0, %a1;", kTwo, kOne}, cases,
        [](const Words& w) { return Words{canonical(as_float(w[0]) / as_float(w[1]))}; }, "sm_90",
        [](const Words& w, uint64_t got, uint64_t expected, size_t) {
          if (got == expected) return true;
          return ulps(as_float(got), static_cast<long double>(as_float(w[0])) / as_float(w[1])) <= 2;
        });
  }
}
