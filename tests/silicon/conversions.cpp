// cvt between the floating-point formats, integers, and back: all 65536 inputs where the source has 16 bits,
// every upper half of an f32 with lower halves around which roundings turn.
#include <fmt/format.h>

#include "operands.hpp"

namespace mxfa::silicon {

void add_conversions(Programs& programs) {
  const auto halves = all_halves(), floats = every_upper_half(), pairs = all_pairs(1);
  std::vector<uint64_t> other(floats.rbegin(), floats.rend());  // a second operand
  const auto name_of = [](std::string text) {
    text = "conversions/" + text.substr(0, text.find(' '));
    return text;
  };
  const auto add = [&](const std::string& instruction, const char* in, const char* out,
                       const std::vector<uint64_t>& values) {
    add_form(programs, name_of(instruction), {instruction + " %d0, %a0;", {in}, {out}}, {values});
  };
  for (const char* i :
       {"cvt.rn.bf16.f32", "cvt.rz.bf16.f32", "cvt.rn.relu.bf16.f32", "cvt.rz.relu.bf16.f32",
        "cvt.rn.satfinite.bf16.f32", "cvt.rn.f16.f32", "cvt.rz.f16.f32", "cvt.rm.f16.f32", "cvt.rp.f16.f32",
        "cvt.rn.ftz.f16.f32", "cvt.rn.sat.f16.f32", "cvt.rn.relu.f16.f32", "cvt.rn.satfinite.f16.f32"})
    add(i, "b32", "b16", floats);
  for (const char* i :
       {"cvt.rn.bf16x2.f32", "cvt.rz.bf16x2.f32", "cvt.rn.relu.bf16x2.f32", "cvt.rz.relu.bf16x2.f32",
        "cvt.rn.satfinite.bf16x2.f32", "cvt.rn.relu.satfinite.bf16x2.f32", "cvt.rn.f16x2.f32",
        "cvt.rz.f16x2.f32", "cvt.rn.relu.f16x2.f32", "cvt.rn.satfinite.f16x2.f32"})
    add_form(programs, name_of(i), {std::string(i) + " %d0, %a0, %a1;", {"b32", "b32"}, {"b32"}},
             {floats, other});
  for (const char* i : {"cvt.rn.satfinite.e4m3x2.f32", "cvt.rn.satfinite.e5m2x2.f32",
                        "cvt.rn.satfinite.relu.e4m3x2.f32", "cvt.rn.satfinite.relu.e5m2x2.f32"})
    add_form(programs, name_of(i), {std::string(i) + " %d0, %a0, %a1;", {"b32", "b32"}, {"b16"}},
             {floats, other});
  for (const char* i : {"cvt.rn.satfinite.e4m3x2.f16x2", "cvt.rn.satfinite.e5m2x2.f16x2",
                        "cvt.rn.satfinite.relu.e4m3x2.f16x2", "cvt.rn.satfinite.relu.e5m2x2.f16x2"})
    add(i, "b32", "b16", pairs);
  for (const char* i :
       {"cvt.rn.f16x2.e4m3x2", "cvt.rn.f16x2.e5m2x2", "cvt.rn.relu.f16x2.e4m3x2", "cvt.rn.relu.f16x2.e5m2x2"})
    add(i, "b16", "b32", halves);
  for (const char* i : {"cvt.rna.tf32.f32", "cvt.rn.tf32.f32", "cvt.rz.tf32.f32", "cvt.rn.relu.tf32.f32",
                        "cvt.rz.relu.tf32.f32"})
    add(i, "b32", "b32", floats);
  for (const char* i : {"cvt.f32.bf16", "cvt.f32.f16", "cvt.ftz.f32.f16", "cvt.rni.s32.f16",
                        "cvt.rzi.u32.f16", "cvt.rzi.s32.bf16", "cvt.rmi.u32.bf16", "cvt.sat.f32.f16"})
    add(i, "b16", "b32", halves);
  for (const char* i :
       {"cvt.rni.f16.f16", "cvt.rzi.f16.f16", "cvt.rmi.f16.f16", "cvt.rpi.f16.f16", "cvt.rzi.s16.f16",
        "cvt.rni.u16.f16", "cvt.rn.f16.s16", "cvt.rz.f16.u16", "cvt.rn.bf16.s16", "cvt.rn.bf16.u16"})
    add(i, "b16", "b16", halves);
  for (const char* i : {"cvt.rn.f32.s16", "cvt.rp.f32.u16"}) add(i, "b16", "b32", halves);

  for (const char* i :
       {"cvt.rni.s32.f32", "cvt.rzi.s32.f32", "cvt.rmi.s32.f32", "cvt.rpi.s32.f32", "cvt.rzi.u32.f32",
        "cvt.rni.u32.f32", "cvt.rzi.ftz.s32.f32", "cvt.rpi.ftz.u32.f32", "cvt.rzi.s8.f32", "cvt.rni.u8.f32",
        "cvt.rni.f32.f32", "cvt.rmi.f32.f32", "cvt.rpi.f32.f32", "cvt.rzi.f32.f32", "cvt.rni.ftz.f32.f32",
        "cvt.sat.f32.f32", "cvt.ftz.f32.f32", "cvt.ftz.sat.f32.f32"})
    add(i, "b32", "b32", floats);
  for (const char* i : {"cvt.rzi.s16.f32", "cvt.rmi.u16.f32"}) add(i, "b32", "b16", floats);
  for (const char* i : {"cvt.rzi.s64.f32", "cvt.rni.u64.f32", "cvt.f64.f32"}) add(i, "b32", "b64", floats);

  auto words = integer_edges(32);
  auto doubles = integer_edges(64);
  Random random(3);
  for (int i = 0; i < 4000; ++i) {
    words.push_back(random.word() >> random.below(32));
    doubles.push_back(random.next() >> random.below(64));
  }
  for (const char* i : {"cvt.rn.f32.s32", "cvt.rz.f32.s32", "cvt.rm.f32.s32", "cvt.rp.f32.s32",
                        "cvt.rn.f32.u32", "cvt.rz.f32.u32"})
    add(i, "b32", "b32", words);
  for (const char* i : {"cvt.rn.bf16.s32", "cvt.rn.bf16.u32", "cvt.rn.f16.s32", "cvt.rz.f16.u32"})
    add(i, "b32", "b16", words);
  for (const char* i : {"cvt.rn.f32.s64", "cvt.rn.f32.u64", "cvt.rz.f32.s64"}) add(i, "b64", "b32", doubles);
  // Doubles around the edges of f32: every exponent, mantissas where the 29 lower bits tie.
  std::vector<uint64_t> wide;
  for (uint64_t exponent = 0x340; exponent < 0x4c0; ++exponent)
    for (const uint64_t low : {0x00000000ull, 0x0fffffffull, 0x10000000ull, 0x10000001ull, 0x3fffffffull})
      wide.push_back((random.next() & 0x800fffffe0000000ull) | exponent << 52 | low);
  for (const uint64_t special :
       {0x7ff0000000000000ull, 0x7ff8000000000000ull, 0x7ff0000000000001ull, 0ull, 1ull})
    for (const uint64_t sign : {0ull, 1ull}) wide.push_back(special | sign << 63);
  for (const char* i : {"cvt.rn.f32.f64", "cvt.rz.f32.f64", "cvt.rm.f32.f64", "cvt.rp.f32.f64",
                        "cvt.rzi.s32.f64", "cvt.rni.u32.f64"})
    add(i, "b64", "b32", wide);
}

}  // namespace mxfa::silicon
