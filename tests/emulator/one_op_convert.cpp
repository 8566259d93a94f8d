// cvt between formats.  The reference encodes an exact double into a format described by its widths; the
// vectors of tests/data, which come from other implementations, are checked too.
#include <cfenv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "one_op.hpp"
#include "support/catch.hpp"
#include "support/vectors.hpp"

using namespace mxfa::test;
using mxfa::reference::load_vectors;

namespace {

enum class Round { Nearest, Zero, Down, Up };

struct Format {
  int exponent_bits, mantissa_bits, bias;
  double largest;  // finite
  bool has_infinity;
  uint32_t nan;  // canonical
};
const Format kF16 = {5, 10, 15, 65504, true, 0x7fff};
const Format kBf16 = {8, 7, 127, 0x1.fep127, true, 0x7fff};
const Format kE4m3 = {4, 3, 7, 448, false, 0x7f};
const Format kE5m2 = {5, 2, 15, 57344, true, 0x7f};
const Format kE2m1 = {2, 1, 1, 6, false, 0};

uint32_t sign_bit(const Format& format) { return 1u << (format.exponent_bits + format.mantissa_bits); }

uint32_t encode_magnitude(double magnitude, const Format& format) {  // exact values only
  if (magnitude == 0) return 0;
  const int exponent = std::max(std::ilogb(magnitude), 1 - format.bias);
  const double scaled = std::ldexp(magnitude, format.mantissa_bits - exponent);
  return static_cast<uint32_t>(scaled) +
         (static_cast<uint32_t>(exponent + format.bias - 1) << format.mantissa_bits);
}

uint32_t encode(double value, const Format& format, Round round, bool satfinite, bool relu = false) {
  if (std::isnan(value)) return format.nan;
  const bool negative = std::signbit(value);
  if (relu && negative) return 0;
  const uint32_t sign = negative ? sign_bit(format) : 0;
  const double magnitude = std::fabs(value);
  const uint32_t largest = encode_magnitude(format.largest, format);
  if (std::isinf(value)) return sign | (satfinite ? largest : largest + 1);
  if (magnitude == 0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), 1 - format.bias);
  const double scaled = std::ldexp(magnitude, format.mantissa_bits - exponent);
  const bool away = (round == Round::Up && !negative) || (round == Round::Down && negative);
  const double integer = round == Round::Nearest ? std::nearbyint(scaled)
                         : away                  ? std::ceil(scaled)
                                                 : std::floor(scaled);
  const double result = std::ldexp(integer, exponent - format.mantissa_bits);
  if (result > format.largest) {
    if (satfinite) return sign | largest;
    // Directed rounding towards zero stops at the largest finite number; the others overflow.
    return sign | (round == Round::Nearest || away ? largest + 1 : largest);
  }
  return sign | encode_magnitude(result, format);
}

double decode(uint32_t bits, const Format& format) {
  const int exponent = bits >> format.mantissa_bits & ((1 << format.exponent_bits) - 1);
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  const bool negative = bits & sign_bit(format);
  double value;
  if (format.has_infinity && exponent == (1 << format.exponent_bits) - 1) {
    value = mantissa ? NAN : INFINITY;
  } else if (!format.has_infinity && format.nan && (bits & (sign_bit(format) - 1)) == format.nan) {
    value = NAN;
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, 1 - format.bias - format.mantissa_bits);
  } else {
    value = std::ldexp(mantissa + (1 << format.mantissa_bits), exponent - format.bias - format.mantissa_bits);
  }
  return negative ? -value : value;
}

std::vector<Words> single(const std::vector<uint64_t>& values) {
  std::vector<Words> cases;
  for (const uint64_t value : values) cases.push_back({value});
  return cases;
}

// binary32 values that lie on, next to, and half-way between the values of a format.
std::vector<uint64_t> around(const Format& format) {
  std::vector<uint64_t> values = float_edges();
  const uint32_t count = sign_bit(format);
  const uint32_t step = std::max(1u, count / 512);
  for (uint32_t code = 0; code + 1 < count; code += step) {
    const double low = decode(code, format), high = decode(code + 1, format);
    if (!std::isfinite(low) || !std::isfinite(high)) continue;
    const float middle = static_cast<float>((low + high) / 2);
    for (const float value :
         {static_cast<float>(low), middle, std::nextafter(middle, 0.0f), std::nextafter(middle, INFINITY)}) {
      values.push_back(bits_of(value));
      values.push_back(bits_of(-value));
    }
  }
  return values;
}

uint64_t number(const nlohmann::json& value) {
  return value.is_string() ? std::stoull(value.get<std::string>(), nullptr, 16) : value.get<uint64_t>();
}

const std::vector<std::string> kF32 = {"f32"}, kTwoF32 = {"f32", "f32"}, kB16 = {"b16"}, kB32 = {"b32"},
                               kB64 = {"b64"};

}  // namespace

TEST_CASE("cvt from f32 to f16 and bf16 rounds, saturates and clamps", "[one_op]") {
  struct Target {
    const char* name;
    const Format& format;
  };
  for (const Target& to : {Target{"f16", kF16}, {"bf16", kBf16}}) {
    const std::string name = to.name;
    const auto cases = single(around(to.format));
    const auto expect = [&](Round round, bool satfinite, bool relu) {
      return [=, &to](const Words& w) {
        return Words{encode(as_float(w[0]), to.format, round, satfinite, relu)};
      };
    };
    check_form({"cvt.rn." + name + ".f32 %d0, %a0;", kF32, kB16}, cases,
               expect(Round::Nearest, false, false));
    check_form({"cvt.rz." + name + ".f32 %d0, %a0;", kF32, kB16}, cases, expect(Round::Zero, false, false));
    check_form({"cvt.rn.relu." + name + ".f32 %d0, %a0;", kF32, kB16}, cases,
               expect(Round::Nearest, false, true));
    check_form({"cvt.rn.satfinite." + name + ".f32 %d0, %a0;", kF32, kB16}, cases,
               expect(Round::Nearest, true, false));
  }
  check_form({"cvt.rm.f16.f32 %d0, %a0;", kF32, kB16}, single(around(kF16)),
             [](const Words& w) { return Words{encode(as_float(w[0]), kF16, Round::Down, false)}; });
  check_form({"cvt.rp.f16.f32 %d0, %a0;", kF32, kB16}, single(around(kF16)),
             [](const Words& w) { return Words{encode(as_float(w[0]), kF16, Round::Up, false)}; });
}

TEST_CASE("cvt of two f32 puts the first into the upper half", "[one_op]") {
  struct Target {
    const char* name;
    const Format& format;
  };
  for (const Target& to : {Target{"f16x2", kF16}, {"bf16x2", kBf16}}) {
    for (const bool relu : {false, true}) {
      check_form(
          {std::string("cvt.rn.") + (relu ? "relu." : "") + to.name + ".f32 %d0, %a0, %a1;", kTwoF32, kB32},
          combine({around(to.format), around(to.format)}), [&](const Words& w) {
            return Words{uint64_t{encode(as_float(w[0]), to.format, Round::Nearest, false, relu)} << 16 |
                         encode(as_float(w[1]), to.format, Round::Nearest, false, relu)};
          });
    }
  }
}

TEST_CASE("cvt from f16 and bf16 to f32 is exact", "[one_op]") {
  struct Source {
    const char* name;
    const Format& format;
  };
  std::vector<Words> all;
  for (uint64_t bits = 0; bits < 0x10000; bits += 3) all.push_back({bits});
  for (const Source& from : {Source{"f16", kF16}, {"bf16", kBf16}}) {
    check_form(
        {std::string("cvt.f32.") + from.name + " %d0, %a0;", kB16, kF32}, all,
        [&](const Words& w) { return Words{bits_of(static_cast<float>(decode(w[0], from.format)))}; },
        "sm_90",
        [&](const Words&, uint64_t got, uint64_t expected, size_t) {
          return got == expected || (std::isnan(as_float(got)) && std::isnan(as_float(expected)));
        });
  }
}

TEST_CASE("cvt from f32 to FP8 saturates to finite, and packs the first operand high", "[one_op]") {
  struct Target {
    const char* name;
    const Format& format;
  };
  for (const Target& to : {Target{"e4m3x2", kE4m3}, {"e5m2x2", kE5m2}}) {
    for (const bool relu : {false, true}) {
      check_form({std::string("cvt.rn.satfinite.") + (relu ? "relu." : "") + to.name + ".f32 %d0, %a0, %a1;",
                  kTwoF32, kB16},
                 combine({around(to.format), around(to.format)}, 12000), [&](const Words& w) {
                   return Words{encode(as_float(w[0]), to.format, Round::Nearest, true, relu) << 8 |
                                encode(as_float(w[1]), to.format, Round::Nearest, true, relu)};
                 });
    }
    check_form({std::string("cvt.rn.satfinite.") + to.name + ".f16x2 %d0, %a0;", kB32, kB16},
               single(edges32()), [&](const Words& w) {
                 return Words{encode(decode(w[0] >> 16, kF16), to.format, Round::Nearest, true) << 8 |
                              encode(decode(w[0] & 0xffff, kF16), to.format, Round::Nearest, true)};
               });
    std::vector<Words> all;
    for (uint64_t bits = 0; bits < 0x10000; bits += 5) all.push_back({bits});
    check_form({std::string("cvt.rn.f16x2.") + to.name + " %d0, %a0;", kB16, kB32}, all, [&](const Words& w) {
      return Words{uint64_t{encode(decode(w[0] >> 8, to.format), kF16, Round::Nearest, false)} << 16 |
                   encode(decode(w[0] & 0xff, to.format), kF16, Round::Nearest, false)};
    });
  }
}

TEST_CASE("cvt from f32 to E2M1", "[one_op]") {
  // The destination of a byte is the low half of a 16-bit register.  NaN becomes +6 (PTX ISA, cvt:
  // "satfinite").
  const auto code = [](uint64_t bits) {
    const float value = as_float(bits);
    return std::isnan(value) ? 7u : encode(value, kE2m1, Round::Nearest, true);
  };
  check_form(
      {".reg .b8 %byte; cvt.rn.satfinite.e2m1x2.f32 %byte, %a0, %a1; cvt.u16.u8 %d0, %byte;", kTwoF32, kB16},
      combine({around(kE2m1), around(kE2m1)}),
      [&](const Words& w) { return Words{code(w[0]) << 4 | code(w[1])}; }, "sm_100a");
}

TEST_CASE("cvt from f32 and bf16 to UE8M0", "[one_op]") {
  const auto code = [](float value, bool up, bool satfinite) -> uint32_t {
    if (std::isnan(value)) return 0xff;
    const double magnitude = std::fabs(static_cast<double>(value));
    if (std::isinf(magnitude)) return satfinite ? 0xfe : 0xff;
    if (magnitude <= 0x1p-127) return 0;
    const int floor = std::ilogb(magnitude);
    int exponent = up && std::ldexp(1.0, floor) != magnitude ? floor + 1 : floor;
    if (exponent < -127) exponent = -127;
    if (exponent > 127) return satfinite ? 0xfe : 0xff;
    return static_cast<uint32_t>(exponent + 127);
  };
  for (const bool up : {false, true}) {
    for (const bool satfinite : {false, true}) {
      const std::string form =
          std::string("cvt.") + (up ? "rp" : "rz") + (satfinite ? ".satfinite" : "") + ".ue8m0x2.";
      check_form(
          {form + "f32 %d0, %a0, %a1;", kTwoF32, kB16}, combine({float_edges(), float_edges()}),
          [&](const Words& w) {
            return Words{code(as_float(w[0]), up, satfinite) << 8 | code(as_float(w[1]), up, satfinite)};
          },
          "sm_100a");
      check_form(
          {form + "bf16x2 %d0, %a0;", kB32, kB16}, single(edges32()),
          [&](const Words& w) {
            return Words{code(as_float(w[0] & 0xffff0000), up, satfinite) << 8 |
                         code(as_float(w[0] << 16), up, satfinite)};
          },
          "sm_100a");
    }
  }
  std::vector<Words> all;
  for (uint64_t bits = 0; bits < 0x10000; bits += 7) all.push_back({bits});
  const auto widen = [](uint32_t byte) -> uint32_t {
    return byte == 0xff ? 0x7fff
                        : encode(std::ldexp(1.0, static_cast<int>(byte) - 127), kBf16, Round::Nearest, false);
  };
  check_form(
      {"cvt.rn.bf16x2.ue8m0x2 %d0, %a0;", kB16, kB32}, all,
      [&](const Words& w) { return Words{uint64_t{widen(w[0] >> 8)} << 16 | widen(w[0] & 0xff)}; },
      "sm_100a");
}

TEST_CASE("cvt agrees with the conversion vectors", "[one_op]") {
  const auto& vectors = load_vectors("blackwell_isa.json").at("cvt_reference");
  struct Column {
    const char* key;
    std::string form;
  };
  for (const Column& column : {Column{"e4m3_rn_satfinite", "cvt.rn.satfinite.e4m3x2.f32"},
                               {"e5m2_rn_satfinite", "cvt.rn.satfinite.e5m2x2.f32"},
                               {"ue8m0_rz_satfinite", "cvt.rz.satfinite.ue8m0x2.f32"},
                               {"ue8m0_rz", "cvt.rz.ue8m0x2.f32"},
                               {"ue8m0_rp_satfinite", "cvt.rp.satfinite.ue8m0x2.f32"},
                               {"ue8m0_rp", "cvt.rp.ue8m0x2.f32"}}) {
    std::vector<Words> cases;
    std::map<uint64_t, uint64_t> expected;
    for (const auto& row : vectors.at("f32")) {
      const uint64_t in = number(row.at("in"));
      if (std::isnan(as_float(in)) && in >> 31)
        continue;  // the note of the vectors: a signed NaN row shows the header, not silicon
      cases.push_back({0, in});
      expected[in] = number(row.at(column.key));
    }
    check_form(
        {column.form + " %d0, %a0, %a1;", kTwoF32, kB16}, cases,
        [&](const Words& w) { return Words{expected.at(w[1])}; }, "sm_100a");
  }
  struct Table {
    const char* key;
    std::string form;
  };
  for (const Table& table : {Table{"e4m3_to_f16", "cvt.rn.f16x2.e4m3x2"},
                             {"e5m2_to_f16", "cvt.rn.f16x2.e5m2x2"},
                             {"ue8m0_to_bf16", "cvt.rn.bf16x2.ue8m0x2"}}) {
    const auto& values = vectors.at(table.key);
    std::vector<Words> cases;
    for (uint64_t byte = 0; byte < 256; ++byte) cases.push_back({byte << 8});
    check_form(
        {table.form + " %d0, %a0;", kB16, kB32}, cases,
        [&](const Words& w) { return Words{number(values.at(w[0] >> 8)) << 16}; }, "sm_100a",
        [](const Words&, uint64_t got, uint64_t expected, size_t) {
          const auto nan = [](uint64_t bits) {
            return (bits >> 16 & 0x7fff) > 0x7c00 && (bits >> 26 & 0x1f) == 0x1f;
          };
          return got >> 16 == expected >> 16 || (nan(got) && nan(expected));
        });
  }
  const auto& convert = load_vectors("convert.json");
  std::vector<Words> cases;
  std::map<uint64_t, std::pair<uint64_t, uint64_t>> expected;
  for (const auto& row : convert) {
    const uint64_t in = number(row.at("x_bits"));
    if (std::isnan(as_float(in))) continue;  // its sign is kept by some implementations and dropped by others
    cases.push_back({in, in});
    expected[in] = {number(row.at("e4m3")), number(row.at("e5m2"))};
  }
  check_form({"cvt.rn.satfinite.e4m3x2.f32 %d0, %a0, %a1;", kTwoF32, kB16}, cases,
             [&](const Words& w) { return Words{expected.at(w[0]).first * 0x101}; });
  check_form({"cvt.rn.satfinite.e5m2x2.f32 %d0, %a0, %a1;", kTwoF32, kB16}, cases,
             [&](const Words& w) { return Words{expected.at(w[0]).second * 0x101}; });
}

TEST_CASE("cvt from f32 to integers rounds, saturates, and turns NaN into zero", "[one_op]") {
  struct Mode {
    const char* name;
    double (*round)(double);
  };
  const auto cases = single(float_edges());
  std::vector<Words> more = cases;
  for (int i = -40; i <= 40; ++i) more.push_back({bits_of(i * 0.25f)});
  for (const float value :
       {2147483520.0f, 2147483648.0f, -2147483648.0f, -2147483904.0f, 4294967040.0f, 4294967296.0f,
        9.2233715e18f, 9.223372e18f, 1.8446743e19f, 1.8446744e19f, -9.223372e18f}) {
    more.push_back({bits_of(value)});
  }
  for (const Mode& mode : {Mode{"rni", [](double x) { return std::nearbyint(x); }},
                           {"rzi", [](double x) { return std::trunc(x); }},
                           {"rmi", [](double x) { return std::floor(x); }},
                           {"rpi", [](double x) { return std::ceil(x); }}}) {
    const std::string name = mode.name;
    const auto clamp = [&](float value, double low, double high) {
      return std::max(low, std::min(high, mode.round(value)));
    };
    check_form({"cvt." + name + ".s32.f32 %d0, %a0;", kF32, kB32}, more, [&](const Words& w) {
      const float value = as_float(w[0]);
      return Words{std::isnan(value)
                       ? 0
                       : static_cast<uint64_t>(static_cast<int64_t>(clamp(value, -0x1p31, 0x1p31 - 1)))};
    });
    check_form({"cvt." + name + ".u32.f32 %d0, %a0;", kF32, kB32}, more, [&](const Words& w) {
      const float value = as_float(w[0]);
      return Words{std::isnan(value) ? 0 : static_cast<uint64_t>(clamp(value, 0, 0x1p32 - 1))};
    });
    check_form({"cvt." + name + ".s64.f32 %d0, %a0;", kF32, kB64}, more, [&](const Words& w) {
      const float value = as_float(w[0]);
      if (std::isnan(value) || value < -0x1p63f) return Words{1ull << 63};
      return Words{value >= 0x1p63f ? (1ull << 63) - 1
                                    : static_cast<uint64_t>(static_cast<int64_t>(mode.round(value)))};
    });
    // To an integer in the same format: the sign of a zero result stays.
    check_form({"cvt." + name + ".f32.f32 %d0, %a0;", kF32, kF32}, more, [&](const Words& w) {
      const float value = as_float(w[0]);
      return Words{std::isnan(value) ? 0x7fffffff
                                     : bits_of(std::copysign(static_cast<float>(mode.round(value)), value))};
    });
  }
  check_form({"cvt.rzi.ftz.s32.f32 %d0, %a0;", kF32, kB32}, {{1}, {0x80000001}, {0x3fc00000}},
             [](const Words& w) { return Words{w[0] == 0x3fc00000}; });
  check_form({"cvt.rpi.ftz.s32.f32 %d0, %a0;", kF32, kB32}, {{1}},
             [](const Words&) { return Words{0}; });  // 2^-149 is flushed first
}

TEST_CASE("cvt from integers to f32 rounds", "[one_op]") {
  struct Mode {
    const char* name;
    int mode;
  };
  for (const Mode& mode :
       {Mode{"rn", FE_TONEAREST}, {"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}}) {
    const std::string name = mode.name;
    const auto round = [&](auto integer) {
      std::fesetround(mode.mode);
      const volatile auto source = integer;
      const volatile float result = static_cast<float>(source);
      std::fesetround(FE_TONEAREST);
      return Words{bits_of(float{result})};
    };
    check_form({"cvt." + name + ".f32.s32 %d0, %a0;", kB32, kF32}, single(edges32()),
               [&](const Words& w) { return round(static_cast<int32_t>(w[0])); });
    check_form({"cvt." + name + ".f32.u32 %d0, %a0;", kB32, kF32}, single(edges32()),
               [&](const Words& w) { return round(static_cast<uint32_t>(w[0])); });
    check_form({"cvt." + name + ".f32.s64 %d0, %a0;", kB64, kF32}, single(edges64()),
               [&](const Words& w) { return round(static_cast<int64_t>(w[0])); });
    check_form({"cvt." + name + ".f32.u64 %d0, %a0;", kB64, kF32}, single(edges64()), [&](const Words& w) {
      // The host converts large unsigned numbers in two steps; long double holds them exactly.
      std::fesetround(mode.mode);
      const volatile long double exact = static_cast<long double>(w[0]);
      const volatile float result = static_cast<float>(exact);
      std::fesetround(FE_TONEAREST);
      return Words{bits_of(float{result})};
    });
  }
  check_form({"cvt.rn.f32.s16 %d0, %a0;", kB16, kF32}, single(edges16()),
             [](const Words& w) { return Words{bits_of(static_cast<float>(static_cast<int16_t>(w[0])))}; });
  check_form({"cvt.rn.f16.s32 %d0, %a0;", kB32, kB16}, single(edges32()), [](const Words& w) {
    return Words{encode(static_cast<int32_t>(w[0]), kF16, Round::Nearest, false)};
  });
  check_form({"cvt.rn.f64.s32 %d0, %a0;", kB32, {"f64"}}, single(edges32()),
             [](const Words& w) { return Words{bits_of(static_cast<double>(static_cast<int32_t>(w[0])))}; });
  check_form({"cvt.rn.f64.s64 %d0, %a0;", kB64, {"f64"}}, single(edges64()),
             [](const Words& w) { return Words{bits_of(static_cast<double>(static_cast<int64_t>(w[0])))}; });
}

TEST_CASE("cvt between f32 and f64, .sat and .ftz", "[one_op]") {
  const auto cases = single(float_edges());
  const Same nan_is_nan32 = [](const Words&, uint64_t got, uint64_t expected, size_t) {
    return got == expected || (std::isnan(as_float(got)) && std::isnan(as_float(expected)));
  };
  check_form(
      {"cvt.f64.f32 %d0, %a0;", kF32, {"f64"}}, cases,
      [](const Words& w) { return Words{bits_of(static_cast<double>(as_float(w[0])))}; }, "sm_90",
      [](const Words&, uint64_t got, uint64_t expected, size_t) {
        return got == expected || (std::isnan(as_double(got)) && std::isnan(as_double(expected)));
      });
  std::vector<Words> doubles;
  for (const uint64_t bits : float_edges()) {
    for (const double factor : {1.0, 1 + 0x1p-24, 1 - 0x1p-25, 1 + 0x1p-30})
      doubles.push_back({bits_of(as_float(bits) * factor)});
  }
  for (const uint64_t bits : edges64()) doubles.push_back({bits});
  check_form(
      {"cvt.rn.f32.f64 %d0, %a0;", {"f64"}, kF32}, doubles,
      [](const Words& w) { return Words{bits_of(static_cast<float>(as_double(w[0])))}; }, "sm_90",
      nan_is_nan32);
  check_form({"cvt.sat.f32.f32 %d0, %a0;", kF32, kF32}, cases, [](const Words& w) {
    const float value = as_float(w[0]);
    return Words{std::isnan(value) || value <= 0 ? 0 : value >= 1 ? 0x3f800000 : w[0]};
  });
  check_form({"cvt.ftz.f64.f32 %d0, %a0;", kF32, {"f64"}}, {{1}, {0x80000001}, {0x00800000}},
             [](const Words& w) { return Words{w[0] == 0x00800000 ? bits_of(0x1p-126) : w[0] >> 31 << 63}; });
}

TEST_CASE("cvt to tf32 rounds to 10 mantissa bits, ties away", "[one_op]") {
  std::vector<Words> cases;
  for (const Words& words : single(float_edges())) {
    if (std::isfinite(as_float(words[0]))) cases.push_back(words);
  }
  check_form(
      {"cvt.rna.tf32.f32 %d0, %a0;", kF32, kB32}, cases,
      [](const Words& w) { return Words{(w[0] + 0x1000) & 0xffffe000}; }, "sm_90",
      // The 13 low bits of a tf32 are not specified.
      [](const Words&, uint64_t got, uint64_t expected, size_t) { return got >> 13 == expected >> 13; });
}
