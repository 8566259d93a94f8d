// Moves, address conversion, and the instructions that have no effect here.
#include <fmt/format.h>

#include "core/handlers.hpp"
#include "ptx/lower.hpp"
#include "ptx/lower_families.hpp"

namespace mxfa::emulator::ptx {
namespace {

Space space_of(std::string_view word) {
  if (word == "global") return Space::Global;
  if (word.substr(0, 6) == "shared") return Space::Shared;
  if (word == "local") return Space::Local;
  if (word.substr(0, 5) == "param") return Space::Param;
  if (word == "const") return Space::Const;
  return Space::Generic;
}

}  // namespace

// mov d, a with a register, constant, special register, address or function; mov d, {a, b, ...} and mov {d,
// e, ...}, a repack bits.
void lower_mov(Lowering& l, const Match& m) {
  const Type type = m.type();
  const Operand &d = l.operand(0), &a = l.operand(1);
  if (type == Type::Pred) {
    if (a.kind == Operand::Kind::Special) {
      if (a.index != static_cast<int32_t>(SpecialRegister::IsExplicitCluster))
        l.fail(a, "this special register is no predicate");
      l.emit(handlers::read_special_predicate()).dst_pred(d);
      return;
    }
    l.emit(handlers::move_predicate()).src_pred(0, a).dst_pred(d);
    return;
  }
  const uint32_t width = bits(type);
  if (d.kind == Operand::Kind::Vector) {
    const auto parts = static_cast<uint32_t>(d.elements.size());
    if (parts < 2 || width % parts || width / parts < 8)
      l.fail(d, fmt::format("{} bits do not divide into {} parts", width, parts));
    const Handler h = handlers::unpack(width / parts, parts);
    if (!h) l.fail("this repacking does not exist");
    auto op = l.emit(h);
    op.src(0, a, type);
    op.list_dst(d, width / parts);
    return;
  }
  if (a.kind == Operand::Kind::Vector) {
    const auto parts = static_cast<uint32_t>(a.elements.size());
    if (parts < 2 || width % parts || width / parts < 8)
      l.fail(a, fmt::format("{} bits do not divide into {} parts", width, parts));
    const uint32_t part = width / parts;
    const Handler h = handlers::pack(part, parts);
    if (!h) l.fail("this repacking does not exist");
    auto op = l.emit(h);
    op.list_src(a, part == 8 ? Type::B8 : part == 16 ? Type::B16 : part == 32 ? Type::B32 : Type::B64);
    op.dst(d, width);
    return;
  }
  if (a.kind == Operand::Kind::Special || a.kind == Operand::Kind::Variable ||
      a.kind == Operand::Kind::Function) {
    if (width < 32) l.fail(a, fmt::format("a .{} register is too narrow for this value", name(type)));
    l.emit_load(a, width).dst(d, width);
    return;
  }
  auto op = l.emit(handlers::move(width));
  op.src(0, a, type);
  op.dst(d, width);
}

void lower_cvta(Lowering& l, const Match& m) {
  const Space space = space_of(m.get("space"));
  const Operand& a = l.operand(1);
  if (a.kind == Operand::Kind::Variable && !m.has("to")) {
    l.emit_load(a, 64, true).dst(l.operand(0), 64);
    return;
  }
  const uint64_t window = space == Space::Shared  ? kSharedWindow
                          : space == Space::Local ? kLocalWindow
                                                  : kParamWindow;
  l.emit(handlers::cvta(space, m.has("to")))
      .imm(static_cast<int64_t>(window))
      .src(0, a, Type::U64)
      .dst(l.operand(0), 64);
}

void lower_isspacep(Lowering& l, const Match& m) {
  l.emit(handlers::isspacep())
      .aux(handlers::isspacep_kind(m.get("space")))
      .src(0, l.operand(1), Type::U64)
      .dst_pred(l.operand(0));
}

void lower_mapa(Lowering& l, const Match& m) {
  const Type type = m.type();
  const bool generic = !m.has("space");
  if (generic && type != Type::U64) l.fail("mapa of a generic address needs .u64");
  auto op = l.emit(handlers::map_shared(type == Type::U64));
  op.src(0, l.operand(1), type).src(1, l.operand(2), Type::U32).dst(l.operand(0), bits(type));
}

void lower_getctarank(Lowering& l, const Match& m) {
  l.emit(handlers::cta_rank(m.type() == Type::U64)).src(0, l.operand(1), m.type()).dst(l.operand(0), 32);
}

// Hints (prefetch, cache policy, cp.async groups: those copies are complete at issue) and brkpt.
void lower_nothing(Lowering& l, const Match&) { l.emit(handlers::nop()); }

// The value of a cache policy is opaque and ignored.
void lower_createpolicy(Lowering& l, const Match&) {
  l.emit(handlers::broadcast(true)).imm(0x1000000000000000).dst(l.operand(0), 64);
}

void lower_refused(Lowering& l, const Match& m) { l.refuse(std::string(m.form->note)); }

}  // namespace mxfa::emulator::ptx
