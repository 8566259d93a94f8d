// Floating-point arithmetic and conversions.
#include <fmt/format.h>

#include "core/exec.hpp"
#include "core/handlers.hpp"
#include "ptx/lower.hpp"
#include "ptx/lower_families.hpp"

namespace mxfa::emulator::ptx {
namespace {

Handler need(Lowering& l, Handler h) {
  if (!h) l.fail(fmt::format("'{}' has no such combination of modifiers", l.spelled()));
  return h;
}

// MXCSR for a rounding modifier (none: nearest even) and .ftz.
uint32_t mode_of(std::string_view rounding, bool ftz) {
  uint32_t mode = kModeDefault | (ftz ? kModeFtz : 0);
  if (rounding == "rz") mode |= kModeZero;
  if (rounding == "rm") mode |= kModeDown;
  if (rounding == "rp") mode |= kModeUp;
  return mode;
}

bool is_half(Type t) { return t == Type::F16 || t == Type::BF16 || t == Type::F16x2 || t == Type::BF16x2; }

}  // namespace

void lower_float(Lowering& l, const Match& m) {
  const Type type = m.type();
  if (type == Type::F64 && (m.has("ftz") || m.has("sat"))) l.fail("f64 has neither .ftz nor .sat");
  const std::string_view opcode = l.in().opcode == "mad" ? "fma" : l.in().opcode;
  auto op = l.emit(need(l, handlers::floating(opcode, type)));
  op.mode(mode_of(m.get("rnd"), m.has("ftz"))).flag(kSaturate, m.has("sat"));
  for (size_t k = 1; k < l.operands(); ++k) op.src(static_cast<int>(k) - 1, l.operand(k), type);
  op.dst(l.operand(0), bits(type));
}

void lower_half(Lowering& l, const Match& m) {
  const Type type = m.type();
  auto op = l.emit(need(l, handlers::half(l.in().opcode, type)));
  op.flag(kSaturate, m.has("sat")).aux((m.has("ftz") ? 1u : 0u) | (m.has("relu") ? 2u : 0u));
  for (size_t k = 1; k < l.operands(); ++k) op.src(static_cast<int>(k) - 1, l.operand(k), type);
  op.dst(l.operand(0), bits(type));
}

// add.f32.bf16 d, a, c and fma.f32.bf16 d, a, b, c: the narrow operands widen exactly.
void lower_mixed(Lowering& l, const Match& m) {
  const Type narrow = m.type("u");
  auto op = l.emit(need(l, handlers::mixed(l.in().opcode, narrow)));
  op.mode(mode_of(m.get("rnd"), false)).flag(kSaturate, m.has("sat"));
  const size_t last = l.operands() - 1;
  for (size_t k = 1; k <= last; ++k)
    op.src(static_cast<int>(k) - 1, l.operand(k), k == last ? Type::F32 : narrow);
  op.dst(l.operand(0), 32);
}

void lower_divide(Lowering& l, const Match& m) {
  const Type type = m.type();
  const std::string_view rounding = m.get("rnd");
  const bool approximate = rounding == "approx";
  auto op = l.emit(need(l, handlers::floating(approximate ? "div.approx" : "div", type)));
  op.mode(mode_of(rounding, m.has("ftz")))
      .src(0, l.operand(1), type)
      .src(1, l.operand(2), type)
      .dst(l.operand(0), bits(type));
}

void lower_sign(Lowering& l, const Match& m) {
  const Type type = m.type();
  auto op =
      l.emit(need(l, is_half(type) ? handlers::half(l.in().opcode, type)
                                   : handlers::floating(m.has("ftz") ? std::string(l.in().opcode) + ".ftz"
                                                                     : std::string(l.in().opcode),
                                                        type)));
  op.mode(kModeDefault).aux(m.has("ftz") ? 1 : 0);
  for (size_t k = 1; k < l.operands(); ++k) op.src(static_cast<int>(k) - 1, l.operand(k), type);
  op.dst(l.operand(0), bits(type));
}

void lower_min_max(Lowering& l, const Match& m) {
  const Type type = m.type();
  const bool three = l.operands() == 4, absolute = m.has("abs"), xorsign = m.has("xorsign");
  if (three && (type != Type::F32 || xorsign)) l.fail("the three-input form exists for f32 without .xorsign");
  if (!three && absolute && !xorsign) l.fail(".abs of the two-input form goes with .xorsign");
  if (xorsign && !absolute) l.fail(".xorsign goes with .abs");
  auto op = l.emit(need(l, handlers::min_max(l.in().opcode == "max", m.has("NaN"), absolute, xorsign, three,
                                             m.has("ftz"), type)));
  op.mode(kModeDefault).aux((m.has("ftz") ? 1u : 0u) | (xorsign ? 2u : 0u));
  for (size_t k = 1; k < l.operands(); ++k) op.src(static_cast<int>(k) - 1, l.operand(k), type);
  op.dst(l.operand(0), bits(type));
}

void lower_root(Lowering& l, const Match& m) {
  const Type type = m.type();
  auto op = l.emit(need(l, handlers::floating(l.in().opcode, type)));
  op.mode(mode_of(m.get("rnd"), m.has("ftz"))).src(0, l.operand(1), type).dst(l.operand(0), bits(type));
}

void lower_approximate(Lowering& l, const Match& m) {
  const Type type = m.type();
  l.emit(need(l, handlers::approximate(l.in().opcode, type, m.has("ftz"))))
      .src(0, l.operand(1), type)
      .dst(l.operand(0), bits(type));
}

void lower_cvt(Lowering& l, const Match& m) {
  const Type to = m.type("d"), from = m.type("t");
  handlers::Conversion c{to,           from,          m.get("rnd"),      m.has("ftz"),
                         m.has("sat"), m.has("relu"), m.has("satfinite")};
  const bool packed =
      bits(to) > 8 && (to == Type::F16x2 || to == Type::BF16x2 || to == Type::E4M3x2 || to == Type::E5M2x2 ||
                       to == Type::E2M3x2 || to == Type::E3M2x2 || to == Type::UE8M0x2);
  const bool two = (packed || to == Type::E2M1x2) && from == Type::F32;
  if (two != (l.operands() == 3))
    l.fail(fmt::format("cvt.{}.{} has {} sources", name(to), name(from), two ? 2 : 1));
  const std::string problem = handlers::check_conversion(c);
  if (!problem.empty()) l.fail(problem);
  auto op = l.emit(need(l, handlers::convert(c)));
  handlers::fill_conversion(c, op.op());
  for (size_t k = 1; k < l.operands(); ++k)
    op.src(static_cast<int>(k) - 1, l.operand(k), from, !is_float(from));
  // An integer result narrower than its register is extended to the register's width by its sign.
  const Operand& d = l.operand(0);
  const uint32_t width =
      d.kind == Operand::Kind::Register ? l.register_bits(static_cast<uint32_t>(d.index)) : bits(to);
  op.dst(d, bits(to), is_integer(to));
  const Operand& a = l.operand(1);
  const uint32_t source =
      a.kind == Operand::Kind::Register ? l.register_bits(static_cast<uint32_t>(a.index)) : bits(from);
  handlers::widen_conversion(c, op.op(), source, width);
}

// cvt.pack.sat.TYPE.s32{.b32} d, a, b{, c}
void lower_cvt_pack(Lowering& l, const Match& m) {
  const std::string_view to = m.get("d");
  auto op = l.emit(handlers::convert_pack_integers());
  op.aux(to == "u16" || to == "s16" ? 16u : static_cast<uint32_t>(to[1] - '0')).flag(kOption, to[0] == 's');
  op.src(0, l.operand(1), Type::S32).src(1, l.operand(2), Type::S32);
  if (m.has("c")) op.src(2, l.operand(3), Type::B32);
  op.dst(l.operand(0), 32);
}

// cvt.rs d, a, b, random;  cvt.rs d, {a, b, e, f}, random
void lower_cvt_stochastic(Lowering& l, const Match& m) {
  const Type to = m.type("d");
  const bool pair = to == Type::F16x2 || to == Type::BF16x2;
  if (!pair && (l.operand(1).kind != Operand::Kind::Vector || l.operand(1).elements.size() != 4))
    l.fail(l.operand(1), "four elements in braces are needed here");
  auto op = l.emit(handlers::convert_stochastic());
  op.imm(static_cast<int64_t>(to)).flag(kSaturate, m.has("satfinite")).flag(kOption, m.has("relu"));
  op.list_src(l.operand(1), Type::F32);
  if (pair) op.list_src(l.operand(2), Type::F32);
  op.list_src(l.operand(pair ? 3 : 2), Type::B32);
  op.dst(l.operand(0), bits(to));
}

}  // namespace mxfa::emulator::ptx
