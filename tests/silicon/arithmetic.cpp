// Floating-point arithmetic with exact answers: rounding, denormals and .ftz, NaN and signed zero, f32, f64,
// f16x2 and bf16x2; comparisons.
#include <fmt/format.h>

#include "operands.hpp"

namespace mxfa::silicon {

void add_arithmetic(Programs& programs) {
  const auto floats = float_edges();
  const Columns two = combine({floats, floats}, 8192), three = combine({floats, floats, floats}, 8192),
                one = {floats};
  const auto add = [&](const std::string& instruction, int inputs, const std::string& type,
                       const Columns& columns) {
    std::string text = instruction + " %d0";
    for (int i = 0; i < inputs; ++i) text += fmt::format(", %a{}", i);
    add_form(programs, "arithmetic/" + instruction,
             {text + ";", std::vector<std::string>(static_cast<size_t>(inputs), type), {type}}, columns);
  };
  for (const char* i : {"add.rn.f32",     "add.rz.f32",      "add.rm.f32",          "add.rp.f32",
                        "add.rn.ftz.f32", "add.rz.ftz.f32",  "add.rn.sat.f32",      "sub.rn.f32",
                        "sub.rm.ftz.f32", "mul.rn.f32",      "mul.rz.f32",          "mul.rm.f32",
                        "mul.rp.f32",     "mul.rn.ftz.f32",  "mul.rn.sat.f32",      "min.f32",
                        "max.f32",        "min.ftz.f32",     "max.ftz.f32",         "min.NaN.f32",
                        "max.NaN.f32",    "max.ftz.NaN.f32", "min.xorsign.abs.f32", "max.NaN.xorsign.abs.f32",
                        "div.rn.f32",     "div.rz.f32",      "div.rm.f32",          "div.rp.f32",
                        "div.rn.ftz.f32", "copysign.f32"})
    add(i, 2, i[0] == 'c' ? "f32" : "f32", two);
  for (const char* i : {"fma.rn.f32", "fma.rz.f32", "fma.rm.f32", "fma.rp.f32", "fma.rn.ftz.f32",
                        "fma.rz.ftz.f32", "fma.rn.sat.f32"})
    add(i, 3, "f32", three);
  for (const char* i : {"abs.f32", "neg.f32", "abs.ftz.f32", "neg.ftz.f32"}) add(i, 1, "f32", one);
  std::vector<uint64_t> many = floats;
  for (uint64_t i = 0; i < 4096; ++i) many.push_back(i * 0x000ff7ffu + 0x1234u);
  for (const char* i : {"rcp.rn.f32", "rcp.rz.f32", "rcp.rm.f32", "rcp.rp.f32", "rcp.rn.ftz.f32",
                        "sqrt.rn.f32", "sqrt.rz.f32", "sqrt.rm.f32", "sqrt.rp.f32", "sqrt.rn.ftz.f32"})
    add(i, 1, "f32", {many});

  // Comparisons: all operators in one word.
  std::string compare = "mov.b32 %d0, 0;";
  int bit = 0;
  for (const char* op :
       {"eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"})
    for (const char* ftz : {"", ".ftz"})
      compare += fmt::format(" setp.{}{}.f32 %q0, %a0, %a1; @%q0 or.b32 %d0, %d0, {};", op, ftz, 1u << bit++);
  add_form(programs, "arithmetic/setp.f32", {compare, {"f32", "f32"}, {"b32"}}, two);
  std::string tests = "mov.b32 %d0, 0;";
  bit = 0;
  for (const char* what : {"finite", "infinite", "number", "notanumber", "normal", "subnormal"})
    tests += fmt::format(" testp.{}.f32 %q0, %a0; @%q0 or.b32 %d0, %d0, {};", what, 1u << bit++);
  add_form(programs, "arithmetic/testp.f32", {tests, {"f32"}, {"b32"}}, one);
  add_form(programs, "arithmetic/set.gt.ftz.f32.f32",
           {"set.gt.ftz.f32.f32 %d0, %a0, %a1;", {"f32", "f32"}, {"f32"}}, two);

  // Two halves of a word at once: the pairs of one combination beside those of another.
  for (const bool brain : {false, true}) {
    const auto edges = brain ? bfloat_edges() : half_edges();
    Columns packed2(2), packed3(3);
    for (Columns* packed : {&packed2, &packed3}) {
      const size_t n = packed->size();
      const Columns low = combine(std::vector<std::vector<uint64_t>>(n, edges), n == 2 ? 4096 : 8192);
      for (size_t k = 0; k < n; ++k)
        for (size_t i = 0; i < low[k].size(); ++i)
          (*packed)[k].push_back(low[k][i] | low[k][low[k].size() - 1 - i] << 16);
    }
    const std::string type = brain ? "bf16x2" : "f16x2";
    for (const char* op : {"add.rn", "sub.rn", "mul.rn", "min", "max", "min.NaN", "max.NaN",
                           "min.xorsign.abs", "max.NaN.xorsign.abs"})
      add(fmt::format("{}.{}", op, type), 2, "b32", packed2);
    for (const char* op : {"fma.rn", "fma.rn.relu"}) add(fmt::format("{}.{}", op, type), 3, "b32", packed3);
    for (const char* op : {"abs", "neg"}) add(fmt::format("{}.{}", op, type), 1, "b32", {packed2[0]});
    if (brain) continue;
    for (const char* op : {"add.rn.ftz", "mul.rn.ftz", "add.rn.sat", "min.ftz"})
      add(fmt::format("{}.{}", op, type), 2, "b32", packed2);
    for (const char* op : {"fma.rn.ftz", "fma.rn.sat"})
      add(fmt::format("{}.{}", op, type), 3, "b32", packed3);
  }
  add_form(
      programs, "arithmetic/setp.bf16x2",
      {"setp.gt.bf16x2 %q0|%q1, %a0, %a1; selp.b32 %d0, 1, 0, %q0; @%q1 or.b32 %d0, %d0, 2; setp.leu.bf16x2 "
       "%q0|%q1, %a0, %a1; @%q0 or.b32 %d0, %d0, 4; @%q1 or.b32 %d0, %d0, 8;",
       {"b32", "b32"},
       {"b32"}},
      {all_pairs(5), all_pairs(9)});

  std::vector<uint64_t> doubles = integer_edges(64);
  for (const uint64_t v :
       {0x3ff0000000000000ull, 0x3ff0000000000001ull, 0x3fefffffffffffffull, 0x7fefffffffffffffull,
        0x7ff0000000000000ull, 0x7ff0000000000001ull, 0x7ff8000000000000ull, 0x0010000000000000ull,
        0x000fffffffffffffull, 0x0000000000000001ull, 0x4330000000000000ull, 0x4340000000000001ull})
    for (const uint64_t sign : {0ull, 1ull}) doubles.push_back(v | sign << 63);
  for (const char* i :
       {"add.rn.f64", "add.rz.f64", "mul.rn.f64", "mul.rp.f64", "div.rn.f64", "min.f64", "max.f64"})
    add(i, 2, "f64", combine({doubles, doubles}, 4096));
  for (const char* i : {"fma.rn.f64", "fma.rz.f64"})
    add(i, 3, "f64", combine({doubles, doubles, doubles}, 4096));
  for (const char* i : {"sqrt.rn.f64", "rcp.rn.f64"}) add(i, 1, "f64", {doubles});
}

}  // namespace mxfa::silicon
