// Arithmetic of binary64 and of the 16-bit formats.  A 16-bit reference computes in double, where such
// operands and their products are exact, and rounds once.
#include <cmath>

#include "one_op.hpp"
#include "one_op_rounding.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;

namespace {

constexpr uint64_t kNan64 = 0xfff8000000000000;

// Of a binary64 NaN only that it is one is checked.
bool same64(const Words&, uint64_t got, uint64_t expected, size_t) {
  return got == expected || (is_nan64(got) && is_nan64(expected));
}

}  // namespace

// ------------------------------------------------------------------------
TEST_CASE("f64 arithmetic and comparison", "[one_op]") {
  std::vector<uint64_t> values;
  for (const uint64_t bits : float_edges()) values.push_back(bits_of(static_cast<double>(as_float(bits))));
  for (const uint64_t bits : edges64()) values.push_back(bits);
  const std::vector<std::string> one = {"f64"}, two = {"f64", "f64"}, three = {"f64", "f64", "f64"};
  const auto pairs = combine({values, values}, 8000);
  for (const Rounding& rounding : kRoundings) {
    const std::string name = rounding.name;
    check_form(
        {"add." + name + ".f64 %d0, %a0, %a1;", two, one}, pairs,
        [&](const Words& w) {
          const volatile double x = as_double(w[0]), y = as_double(w[1]);
          return Words{bits_of(rounded<double>(rounding.mode, [&] { return x + y; }))};
        },
        "sm_90", same64);
    check_form(
        {"mul." + name + ".f64 %d0, %a0, %a1;", two, one}, pairs,
        [&](const Words& w) {
          const volatile double x = as_double(w[0]), y = as_double(w[1]);
          return Words{bits_of(rounded<double>(rounding.mode, [&] { return x * y; }))};
        },
        "sm_90", same64);
    check_form(
        {"fma." + name + ".f64 %d0, %a0, %a1, %a2;", three, one}, combine({values, values, values}, 8000),
        [&](const Words& w) {
          const volatile double x = as_double(w[0]), y = as_double(w[1]), z = as_double(w[2]);
          return Words{bits_of(
              rounded<double>(rounding.mode, [&] { return std::fma(double{x}, double{y}, double{z}); }))};
        },
        "sm_90", same64);
  }
  check_form(
      {"div.rn.f64 %d0, %a0, %a1;", two, one}, pairs,
      [](const Words& w) { return Words{bits_of(as_double(w[0]) / as_double(w[1]))}; }, "sm_90", same64);
  check_form(
      {"max.f64 %d0, %a0, %a1;", two, one}, pairs,
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
struct Small {
  const char* name;
  int exponent_bits, mantissa_bits;
};
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
  const double scaled = std::ldexp(magnitude, format.mantissa_bits - exponent);  // in units of the last place
  const double integer = std::nearbyint(scaled);
  uint32_t bits =
      static_cast<uint32_t>(integer) + (static_cast<uint32_t>(exponent + bias - 1) << format.mantissa_bits);
  return sign | std::min(bits, infinity);
}

// a + b rounded to odd: the result has the last bit set whenever it is not exact, so that rounding it once
// more to a narrower format is like rounding the exact sum.  The error of the nearest sum is itself a double
// (Knuth's two-sum).
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
    check_form({"fma.rn." + type + " %d0, %a0, %a1, %a2;", three, one},
               combine({values, values, values}, 8000), [&](const Words& w) {
                 const double product = value(w[0]) * value(w[1]);  // exact
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
