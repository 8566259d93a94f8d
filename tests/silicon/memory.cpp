// Atomics, one lane an address so that every answer is determined: old value and new value.
#include <fmt/format.h>

#include "operands.hpp"

namespace mxfa::silicon {

void add_memory(Programs& programs) {
  const auto words = integer_edges(32), longs = integer_edges(64), floats = float_edges();
  const Columns words2 = combine({words, words}), longs2 = combine({longs, longs}),
                floats2 = combine({floats, floats});
  const auto add = [&](const std::string& space, const std::string& operation, const std::string& type,
                       const std::string& reg, const Columns& columns) {
    const std::string where = space == "global" ? "%slot" : "%shared";
    const std::string text =
        fmt::format("st.{0}.{1} [{2}], %a0; atom.{0}.{3}.{4} %d0, [{2}], %a1; ld.{0}.{1} %d1, [{2}];", space,
                    reg, where, operation, type);
    add_form(programs, fmt::format("memory/atom.{}.{}.{}", space, operation, type),
             {text, {reg, reg}, {reg, reg}}, columns);
    if (operation == "exch") return;
    const std::string reduction =
        fmt::format("st.{0}.{1} [{2}], %a0; red.{0}.{3}.{4} [{2}], %a1; ld.{0}.{1} %d0, [{2}];", space, reg,
                    where, operation, type);
    add_form(programs, fmt::format("memory/red.{}.{}.{}", space, operation, type),
             {reduction, {reg, reg}, {reg}}, columns);
  };
  for (const std::string space : {"global", "shared"}) {
    for (const char* operation : {"add", "min", "max", "inc", "dec"})
      add(space, operation, "u32", "b32", words2);
    for (const char* operation : {"min", "max"}) add(space, operation, "s32", "b32", words2);
    for (const char* operation : {"and", "or", "xor", "exch"}) add(space, operation, "b32", "b32", words2);
    for (const char* operation : {"add", "max"}) add(space, operation, "u64", "b64", longs2);
    add(space, "min", "s64", "b64", longs2);
    add(space, "add", "f32", "b32", floats2);
    add(space, "add", "f64", "b64", longs2);
    for (const bool brain : {false, true}) {
      const auto edges = brain ? bfloat_edges() : half_edges();
      Columns packed = combine({edges, edges});
      for (auto& column : packed)
        for (size_t i = 0; i < column.size(); ++i)
          column[i] |= (column[column.size() - 1 - i] & 0xffff) << 16;
      add(space, "add.noftz", brain ? "bf16x2" : "f16x2", "b32", packed);
      const std::string where = space == "global" ? "%slot" : "%shared", type = brain ? "bf16" : "f16";
      add_form(programs, fmt::format("memory/atom.{}.add.noftz.{}", space, type),
               {fmt::format(
                    "st.{0}.b16 [{1}], %a0; atom.{0}.add.noftz.{2} %d0, [{1}], %a1; ld.{0}.b16 %d1, [{1}];",
                    space, where, type),
                {"b16", "b16"},
                {"b16", "b16"}},
               combine({edges, edges}));
    }
  }
  for (const std::string space : {"global", "shared"}) {
    const std::string where = space == "global" ? "%slot" : "%shared";
    add_form(
        programs, fmt::format("memory/atom.{}.cas", space),
        {fmt::format("st.{0}.b32 [{1}], %a0; atom.{0}.cas.b32 %d0, [{1}], %a1, %a2; ld.{0}.b32 %d1, [{1}];",
                     space, where),
         {"b32", "b32", "b32"},
         {"b32", "b32"}},
        combine({{0, 1, 5, 0xffffffff}, {0, 1, 5, 0xffffffff}, words}));
  }
  add_form(programs, "memory/atom.global.add.v4.f32",
           {"st.global.v4.b32 [%slot], {%a0, %a1, %a0, %a1}; atom.global.add.v4.f32 {%d0, %d1, %d2, %d3}, "
            "[%slot], {%a1, "
            "%a0, %a0, %a1}; ld.global.v4.b32 {%d4, %d5, %d6, %d7}, [%slot];",
            {"f32", "f32"},
            std::vector<std::string>(8, "f32")},
           floats2);
  add_form(programs, "memory/red.global.add.noftz.v2.bf16x2",
           {"st.global.v2.b32 [%slot], {%a0, %a1}; red.global.add.noftz.v2.bf16x2 [%slot], {%a1, %a1}; "
            "ld.global.v2.b32 "
            "{%d0, %d1}, [%slot];",
            {"b32", "b32"},
            {"b32", "b32"}},
           {all_pairs(5), all_pairs(9)});
  // Narrow loads and stores.
  add_form(programs, "memory/narrow",
           {"st.global.b32 [%slot], %a0; ld.global.s8 %d0, [%slot+1]; ld.global.u8 %d1, [%slot+3]; "
            "ld.global.s16 %t0, "
            "[%slot+2]; cvt.s32.s16 %d2, %t0; st.shared.b32 [%shared], %a0; st.shared.b8 [%shared+2], %a1; "
            "ld.shared.b32 "
            "%d3, [%shared];",
            {"b32", "b32"},
            std::vector<std::string>(4, "b32")},
           words2);
}

}  // namespace mxfa::silicon
