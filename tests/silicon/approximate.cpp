// Approximate functions.  The bounds are distances between the device and the CPU driver, which returns the
// nearly correctly rounded value: the documented error of the device plus half a unit (PTX ISA 9.7.3
// and 9.7.4).
#include <fmt/format.h>

#include <cmath>

#include "operands.hpp"

namespace mxfa::silicon {
namespace {

using Kind = Agreement::Kind;

// 2^first .. 2^last in magnitude with the signs asked for, and the specials.
std::vector<uint64_t> samples(int first, int last, bool negative, int count) {
  std::vector<uint64_t> values = float_edges();
  Random random(21);
  for (int i = 0; i < count; ++i) {
    const uint32_t exponent =
        static_cast<uint32_t>(127 + first) + random.below(static_cast<uint32_t>(last - first + 1));
    values.push_back((negative && (i & 1) ? 0x80000000u : 0) | exponent << 23 | random.word() >> 9);
  }
  return values;
}

// Every 23-bit mantissa in equal steps, at one exponent.
std::vector<uint64_t> mantissas(uint32_t exponent, uint32_t count) {
  std::vector<uint64_t> values;
  for (uint32_t i = 0; i < count; ++i) values.push_back(exponent << 23 | i * ((1u << 23) / count));
  return values;
}

}  // namespace

void add_approximate(Programs& programs) {
  struct Function {
    const char* name;
    std::vector<uint64_t> values;
    Agreement agreement;
  };
  const Agreement two_ulp{Kind::Ulp, 3}, one_ulp{Kind::Ulp, 2};
  // Around one the logarithm vanishes and only its absolute error is bounded.
  const Agreement logarithm{Kind::Ulp, 4, Agreement::Format::F32, std::exp2(-22)};
  std::vector<uint64_t> angles;
  for (int i = -1000; i <= 1000; ++i) angles.push_back(bits_of(static_cast<float>(i * 3.14159e-3 * 2)));
  const std::vector<Function> functions = {
      {"ex2.approx.ftz.f32", samples(-24, 7, true, 1800), two_ulp},
      {"ex2.approx.f32", samples(-24, 7, true, 1800), two_ulp},
      {"rcp.approx.ftz.f32", samples(-127, 127, true, 1800), one_ulp},
      {"rcp.approx.f32", samples(-127, 127, true, 1800), one_ulp},
      {"rsqrt.approx.ftz.f32", samples(-127, 127, false, 1800), two_ulp},
      {"rsqrt.approx.f32", samples(-127, 127, false, 1800), two_ulp},
      {"sqrt.approx.ftz.f32", samples(-127, 127, false, 1800), two_ulp},
      {"sqrt.approx.f32", samples(-127, 127, false, 1800), two_ulp},
      {"lg2.approx.ftz.f32", samples(-127, 127, false, 1800), logarithm},
      {"lg2.approx.f32", samples(-127, 127, false, 1000), logarithm},
      {"tanh.approx.f32", samples(-12, 4, true, 1000), {Kind::Ulp, 8192 + 256}},  // 2^-11 relative
      {"sin.approx.ftz.f32", angles, {Kind::Absolute, std::exp2(-20.5)}},
      {"cos.approx.ftz.f32", angles, {Kind::Absolute, std::exp2(-20.5)}},
      {"sin.approx.f32", angles, {Kind::Absolute, std::exp2(-20.5)}},
      {"cos.approx.f32", angles, {Kind::Absolute, std::exp2(-20.5)}}};
  for (const Function& f : functions)
    add_form(programs, fmt::format("approximate/{}", f.name),
             {fmt::format("{} %d0, %a0;", f.name), {"f32"}, {"f32"}}, {f.values}, f.agreement);
  std::vector<uint64_t> around_one;
  for (int i = 0; i < 1000; ++i) around_one.push_back(bits_of(0.5f + static_cast<float>(i) * 1.5e-3f));
  add_form(programs, "approximate/lg2.approx.ftz.f32.around_one",
           {"lg2.approx.ftz.f32 %d0, %a0;", {"f32"}, {"f32"}}, {around_one},
           {Kind::Absolute, std::exp2(-22)});

  Columns quotients(2);
  for (const auto pool = combine({samples(-60, 60, true, 200), samples(-60, 60, true, 200)}, 4000);
       size_t i : {0u, 1u})
    quotients[i] = pool[i];
  Columns moderate(2);
  for (size_t i = 0; i < quotients[0].size() && moderate[0].size() < 1500; ++i) {
    const uint64_t magnitude = quotients[1][i] & 0x7fffffff;
    if (magnitude < 0x00800000 || magnitude > 0x7e800000) continue;  // the bound holds for 2^-126 .. 2^126
    moderate[0].push_back(quotients[0][i]);
    moderate[1].push_back(quotients[1][i]);
  }
  for (const char* name : {"div.full.f32", "div.full.ftz.f32", "div.approx.f32", "div.approx.ftz.f32"})
    add_form(programs, fmt::format("approximate/{}", name),
             {fmt::format("{} %d0, %a0, %a1;", name), {"f32", "f32"}, {"f32"}}, moderate, two_ulp);

  // 16-bit results: those of ex2 agree to the bit, for every input.  For tanh the whole range is a survey,
  // every 32nd value is kept.
  std::vector<uint64_t> some;
  for (uint64_t i = 0; i < 65536; i += 32) some.push_back(i | (i ^ 0x8000) << 16);
  for (uint64_t i = 0; i < 8; ++i) some.push_back((0x7c00 - 4 + i) | (0xfc00 - 4 + i) << 16);
  for (uint64_t i = 0; i < 8; ++i) some.push_back((0x7f80 - 4 + i) | (0xff80 - 4 + i) << 16);
  struct Half {
    const char* name;
    Agreement agreement;
  };
  for (const char* name : {"ex2.approx.f16x2", "ex2.approx.ftz.bf16x2"})
    add_form(programs, fmt::format("approximate/{}", name),
             {fmt::format("{} %d0, %a0;", name), {"b32"}, {"b32"}}, {all_pairs(0)});
  for (const Half& h :
       {Half{"tanh.approx.f16x2", {Kind::Ulp, 2, Agreement::Format::F16x2}},       // 2^-10.987 absolute
        Half{"tanh.approx.bf16x2", {Kind::Ulp, 1, Agreement::Format::Bf16x2}}}) {  // 2^-8 relative
    const Form form{fmt::format("{} %d0, %a0;", h.name), {"b32"}, {"b32"}};
    add_form(programs, fmt::format("approximate/{}", h.name), form, {some}, h.agreement);
    add_form(programs, fmt::format("survey/{}", h.name), form, {all_pairs(0)}, {Kind::Survey});
  }
  const auto survey = [&](const char* name, const std::string& suffix, const std::vector<uint64_t>& values) {
    add_form(programs, fmt::format("survey/{}{}", name, suffix),
             {fmt::format("{} %d0, %a0;", name), {"f32"}, {"f32"}}, {values}, {Kind::Survey});
  };
  for (const char* name : {"rcp.approx.ftz.f32", "rsqrt.approx.ftz.f32", "sqrt.approx.ftz.f32",
                           "lg2.approx.ftz.f32", "tanh.approx.f32"}) {
    survey(name, ".binade127", mantissas(127, 16384));
    survey(name, ".binade126", mantissas(126, 16384));
  }
  for (const uint32_t exponent : {126u, 125u, 124u, 120u, 254u - 127u})
    survey("ex2.approx.ftz.f32", fmt::format(".binade{}", exponent), mantissas(exponent, 16384));
}

}  // namespace mxfa::silicon
