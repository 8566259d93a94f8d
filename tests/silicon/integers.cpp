// Integer and bit instructions.
#include <fmt/format.h>

#include <algorithm>

#include "operands.hpp"

namespace mxfa::silicon {

void add_integers(Programs& programs) {
  const auto words = integer_edges(32), longs = integer_edges(64), shorts = integer_edges(16);
  const auto add = [&](std::string instruction, std::vector<std::string> inputs, const std::string& result,
                       const Columns& columns) {
    std::string text = instruction + " %d0";
    for (size_t i = 0; i < inputs.size(); ++i) text += fmt::format(", %a{}", i);
    add_form(programs, "integers/" + instruction, {text + ";", std::move(inputs), {result}}, columns);
  };
  const std::vector<std::string> w1(1, "b32"), w2(2, "b32"), w3(3, "b32"), l1(1, "b64"), l2(2, "b64");
  const Columns words2 = combine({words, words}), words3 = combine({words, words, words}),
                longs2 = combine({longs, longs});
  for (const char* i :
       {"add.sat.s32",   "sub.sat.s32",     "mul.lo.s32",     "mul.hi.s32",     "mul.hi.u32",
        "mul24.lo.u32",  "mul24.lo.s32",    "min.s32",        "max.u32",        "min.relu.s32",
        "min.u16x2",     "max.s16x2",       "add.s16x2",      "max.relu.s16x2", "bmsk.clamp.b32",
        "bmsk.wrap.b32", "szext.clamp.s32", "szext.wrap.u32", "shl.b32",        "shr.u32",
        "shr.s32"})
    add(i, w2, "b32", words2);
  // The quotient by zero is unspecified.
  Columns divisible(2);
  for (size_t i = 0; i < words2[0].size(); ++i)
    if (words2[1][i]) divisible[0].push_back(words2[0][i]), divisible[1].push_back(words2[1][i]);
  for (const char* i : {"div.s32", "div.u32", "rem.s32", "rem.u32"}) add(i, w2, "b32", divisible);
  for (const char* i :
       {"mad.lo.s32",     "mad.hi.s32",      "mad.hi.u32",      "sad.s32",      "sad.u32",
        "dp4a.s32.s32",   "dp4a.u32.s32",    "dp4a.s32.u32",    "dp4a.u32.u32", "shf.l.wrap.b32",
        "shf.r.wrap.b32", "shf.l.clamp.b32", "shf.r.clamp.b32", "prmt.b32",     "prmt.b32.f4e",
        "prmt.b32.b4e",   "prmt.b32.rc8",    "prmt.b32.ecl",    "prmt.b32.ecr", "prmt.b32.rc16"})
    add(i, w3, "b32", words3);
  for (const char* i : {"dp2a.lo.s32.s32", "dp2a.hi.u32.s32"}) add(i, w3, "b32", words3);
  for (int table = 0; table < 256; table += 15)
    add_form(programs, fmt::format("integers/lop3.b32.{:02x}", table),
             {fmt::format("lop3.b32 %d0, %a0, %a1, %a2, {};", table), w3, {"b32"}},
             combine({words, words, words}, 256));
  auto positions = words;
  for (uint64_t i = 0; i < 66; ++i) positions.push_back(i);
  for (const char* i : {"bfe.u32", "bfe.s32"})
    add(i, w3, "b32", combine({words, positions, positions}, 8192));
  add("bfi.b32", {"b32", "b32", "b32", "b32"}, "b32", combine({words, words, positions, positions}, 8192));
  add("bfe.u64", {"b64", "b32", "b32"}, "b64", combine({longs, positions, positions}, 8192));
  add("bfe.s64", {"b64", "b32", "b32"}, "b64", combine({longs, positions, positions}, 8192));
  add("bfi.b64", {"b64", "b64", "b32", "b32"}, "b64", combine({longs, longs, positions, positions}, 8192));
  for (const char* i : {"bfind.u32", "bfind.s32", "bfind.shiftamt.u32", "bfind.shiftamt.s32", "brev.b32",
                        "clz.b32", "popc.b32", "abs.s32", "neg.s32", "cnot.b32"})
    add(i, w1, "b32", {words});
  for (const char* i : {"bfind.u64", "bfind.shiftamt.s64", "clz.b64", "popc.b64"}) add(i, l1, "b32", {longs});
  for (const char* i : {"brev.b64", "abs.s64"}) add(i, l1, "b64", {longs});
  for (const char* i : {"mul.lo.s64", "mul.hi.s64", "mul.hi.u64", "min.s64", "max.u64"})
    add(i, l2, "b64", longs2);
  for (const char* i : {"shl.b64", "shr.u64", "shr.s64"})
    add(i, {"b64", "b32"}, "b64", combine({longs, positions}));
  for (const char* i : {"mul.wide.s32", "mul.wide.u32"}) add(i, w2, "b64", words2);
  for (const char* i : {"mul.lo.s16", "mul.hi.s16", "mul.hi.u16", "min.s16"})
    add(i, {"b16", "b16"}, "b16", combine({shorts, shorts}));
  add("fns.b32", w3, "b32", combine({words, {0, 1, 5, 16, 31}, {0, 1, 2, 5, 0xffffffff, 0xfffffffe}}));
  add_form(
      programs, "integers/carry",
      {"add.cc.u32 %d0, %a0, %a1; addc.cc.u32 %d1, %a1, %a2; addc.u32 %d2, 0, 0; sub.cc.u32 %d3, %a0, %a1; "
       "subc.cc.u32 %d4, %a2, %a1; subc.u32 %d5, 7, 0; mad.lo.cc.u32 %d6, %a0, %a1, %a2; madc.hi.u32 %d7, "
       "%a0, "
       "%a1, %a2;",
       w3, std::vector<std::string>(8, "b32")},
      words3);
  add_form(programs, "integers/narrow",
           {"cvt.s32.s8 %d0, %a0; cvt.u32.u8 %d1, %a0; cvt.sat.u8.s32 %d2, %a0; cvt.sat.s8.s32 %d3, %a0; "
            "cvt.sat.u16.s32 %t0, %a0; and.b32 %d4, %t0, 0xffff; cvt.s64.s32 %w0, %a0; shr.s64 %w0, %w0, 20; "
            "cvt.u32.u64 "
            "%d5, %w0;",
            w1, std::vector<std::string>(6, "b32")},
           {words});
}

}  // namespace mxfa::silicon
