// Integer, logic, shift, comparison and selection instructions.
#include <fmt/format.h>

#include "core/handlers.hpp"
#include "ptx/lower.hpp"
#include "ptx/lower_families.hpp"

namespace mxfa::emulator::ptx {
namespace {

Handler need(Lowering& l, Handler h) {
  if (!h) l.fail(fmt::format("'{}' has no such combination of modifiers", l.spelled()));
  return h;
}

Type twice(Type t) {
  switch (t) {
    case Type::U16:
      return Type::U32;
    case Type::S16:
      return Type::S32;
    case Type::U32:
      return Type::U64;
    default:
      return Type::S64;
  }
}

}  // namespace

void lower_integer(Lowering& l, const Match& m) {
  const Type type = m.type();
  const std::string_view opcode = l.in().opcode;
  std::string name(opcode);
  if (opcode == "shf") name += fmt::format(".{}", m.get("dir"));
  if (m.has("mode")) name += fmt::format(".{}", m.get("mode"));
  if (m.has("shiftamt")) name += ".shiftamt";
  if (m.has("sat")) name += ".sat";
  if (m.has("relu")) name += ".relu";
  const bool wide = m.get("mode") == "wide";
  if (wide && bits(type) == 64)
    l.fail(fmt::format("'{}': wide products of 64-bit operands do not exist", opcode));
  const bool count_result = opcode == "popc" || opcode == "clz" || opcode == "bfind";
  auto op = l.emit(need(
      l, handlers::integer(name, opcode == "shf" || opcode == "bmsk" || opcode == "fns" ? Type::U32 : type)));
  const uint32_t out = count_result ? 32 : bits(type) * (wide ? 2 : 1);
  // Which sources have a type of their own: shift counts and field positions are 32-bit, the addend of
  // mad.wide is wide.
  const bool shift = opcode == "shl" || opcode == "shr" || opcode == "bfe";
  for (size_t k = 1; k < l.operands(); ++k) {
    Type t = type;
    if (shift && k >= 2) t = Type::U32;
    if (opcode == "bfi" && k >= 3) t = Type::U32;
    if (wide && k == 3) t = twice(type);
    op.src(static_cast<int>(k) - 1, l.operand(k), t);
  }
  op.dst(l.operand(0), out);
}

// Carry chains: CC.CF is a predicate of the function, never named in PTX.
void lower_carry(Lowering& l, const Match& m) {
  const std::string_view opcode = l.in().opcode;
  const bool in = opcode == "addc" || opcode == "subc" || opcode == "madc", out = m.has("cc");
  const bool mad = opcode.substr(0, 3) == "mad", sub = opcode.substr(0, 3) == "sub";
  const Type type = m.type();
  const int64_t kind = mad ? (m.get("mode") == "hi" ? 3 : 2) : sub ? 1 : 0;
  auto op = l.emit(handlers::carry(kind == 3 ? "mad.hi" : opcode, type))
                .imm(kind)
                .aux((in ? 1u : 0u) | (out ? 2u : 0u));
  for (size_t k = 1; k < l.operands(); ++k) op.src(static_cast<int>(k) - 1, l.operand(k), type);
  const uint32_t carry = l.carry_register();
  if (in) op.op().src[3] = 0, op.src_reg(3, carry);
  op.dst(l.operand(0), bits(type));
  if (out) op.dst2_reg(carry);
}

void lower_dot_product(Lowering& l, const Match& m) {
  const bool two = l.in().opcode == "dp2a";
  auto op = l.emit(
      handlers::dot_product(two, m.type("t") == Type::S32, m.type("u") == Type::S32, m.get("mode") == "hi"));
  for (int k = 0; k < 3; ++k) op.src(k, l.operand(k + 1), Type::B32);
  op.dst(l.operand(0), 32);
}

void lower_logic(Lowering& l, const Match& m) {
  const Type type = m.type();
  const std::string_view opcode = l.in().opcode;
  if (type != Type::Pred) return lower_integer(l, m);
  auto op = l.emit(need(l, handlers::logic_predicate(opcode)));
  op.src_pred(0, l.operand(1));
  if (l.operands() > 2)
    op.src_pred(1, l.operand(2));
  else
    op.op().src[1] = 0;
  op.dst_pred(l.operand(0));
}

void lower_lop3(Lowering& l, const Match& m) {
  const int64_t table = l.integer(l.operand(4), "the table of lop3");
  if (table < 0 || table > 255) l.fail(l.operand(4), "the table of lop3 has 8 bits");
  const bool predicate = m.has("op");
  auto op =
      l.emit(predicate ? handlers::lop3_predicate() : handlers::lop3()).aux(static_cast<uint32_t>(table));
  for (int k = 0; k < 3; ++k) op.src(k, l.operand(k + 1), Type::B32);
  if (!predicate) {
    op.dst(l.operand(0), 32);
    return;
  }
  op.imm(m.get("op") == "and").src_pred(3, l.operand(5));
  const Operand& d = l.operand(0);
  if (d.kind == Operand::Kind::Pair)
    op.dst(d.elements[0], 32).dst2_pred(d.elements[1]);
  else
    l.fail(d, "lop3 with a Boolean operation needs d|p");
}

void lower_prmt(Lowering& l, const Match& m) {
  const std::string_view mode = m.get("mode");
  static constexpr std::string_view kModes[] = {"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"};
  uint32_t number = 0;
  for (uint32_t k = 0; k < 6; ++k)
    if (mode == kModes[k]) number = k;
  auto op = l.emit(handlers::prmt(!mode.empty())).aux(number);
  for (int k = 0; k < 3; ++k) op.src(k, l.operand(k + 1), Type::B32);
  op.dst(l.operand(0), 32);
}

// setp writes p, or p|q with q the complement before combination.
void lower_setp(Lowering& l, const Match& m) {
  const Type type = m.type();
  auto op = l.emit(need(l, handlers::compare(m.get("cmp"), type, m.has("ftz"))));
  op.aux(handlers::combine_kind(m.get("bool")));
  if (m.has("bool") != (l.operands() == 4)) l.fail("a combining operation and its predicate go together");
  op.src(0, l.operand(1), type).src(1, l.operand(2), type);
  if (l.operands() == 4) op.src_pred(2, l.operand(3));
  const Operand& d = l.operand(0);
  if (d.kind == Operand::Kind::Pair)
    op.dst_pred(d.elements[0]).dst2_pred(d.elements[1]);
  else
    op.dst_pred(d);
}

void lower_set(Lowering& l, const Match& m) {
  const Type type = m.type();
  const uint32_t p = l.temporary(1, true);
  auto op = l.emit(need(l, handlers::compare(m.get("cmp"), type, m.has("ftz"))));
  op.aux(handlers::combine_kind(m.get("bool")));
  if (m.has("bool") != (l.operands() == 4)) l.fail("a combining operation and its predicate go together");
  op.src(0, l.operand(1), type).src(1, l.operand(2), type);
  if (l.operands() == 4) op.src_pred(2, l.operand(3));
  op.dst_reg(p);
  auto set = l.emit(handlers::set_from_predicate(m.type("d") == Type::F32));
  set.op().src[0] = 0;
  set.src_reg(0, p).dst(l.operand(0), 32);
}

void lower_testp(Lowering& l, const Match& m) {
  l.emit(handlers::test_property(m.type()))
      .aux(handlers::property_kind(m.get("op")))
      .src(0, l.operand(1), m.type())
      .dst_pred(l.operand(0));
}

void lower_selp(Lowering& l, const Match& m) {
  const Type type = m.type();
  l.emit(handlers::select(bits(type)))
      .src(0, l.operand(1), type)
      .src(1, l.operand(2), type)
      .src_pred(2, l.operand(3))
      .dst(l.operand(0), bits(type));
}

void lower_slct(Lowering& l, const Match& m) {
  const Type type = m.type();
  l.emit(handlers::select_by_sign(bits(type), m.get("c") == "f32"))
      .src(0, l.operand(1), type)
      .src(1, l.operand(2), type)
      .src(2, l.operand(3), m.get("c") == "f32" ? Type::F32 : Type::S32)
      .dst(l.operand(0), bits(type));
}

}  // namespace mxfa::emulator::ptx
