// Loads, stores, atomics, matrix loads and the other instructions that use plain addresses.
#include <fmt/format.h>

#include "core/handlers.hpp"
#include "core/observer.hpp"
#include "ptx/lower.hpp"
#include "ptx/lower_families.hpp"

namespace mxfa::emulator::ptx {
namespace {

Space space_of(std::string_view word) {
  if (word.empty()) return Space::Generic;
  if (word == "global") return Space::Global;
  if (word.substr(0, 6) == "shared") return Space::Shared;
  if (word == "local") return Space::Local;
  if (word == "const") return Space::Const;
  return Space::Param;
}

// .param of a call or of a .func is a place in local memory; of an entry, the kernel's parameters.
Space placed(Lowering& l, Space space, const Operand& address) {
  if (space != Space::Param || address.kind != Operand::Kind::Address) return space;
  if (address.base == Operand::Kind::Variable)
    return l.parameter_of_entry(address.index) ? Space::Param : Space::Local;
  return l.is_entry() ? Space::Param : Space::Local;
}

// An address without a state space that names a variable lies in the variable's space.
Space generic_or_named(Lowering& l, Space space, const Operand& address) {
  if (space != Space::Generic || address.kind != Operand::Kind::Address ||
      address.base != Operand::Kind::Variable)
    return space;
  const Space where = l.module().variables[address.index].space;
  return where == Space::Param ? placed(l, Space::Param, address) : where;
}

// For the observers; the machine itself is sequentially consistent.
uint16_t order_of(const Match& m, bool atomic) {
  const std::string_view sem = m.get("sem"), scope = m.get("scope");
  Order o;
  o.semantics = sem == "acquire"                            ? Semantics::Acquire
                : sem == "release"                          ? Semantics::Release
                : sem == "acq_rel" || sem == "sc"           ? Semantics::AcquireRelease
                : sem == "weak" || (sem.empty() && !atomic) ? Semantics::Weak
                                                            : Semantics::Relaxed;
  // Atomics are .relaxed.gpu and volatile accesses .relaxed.sys unless they say otherwise (PTX
  // ISA 9.7.13.5, 9.7.9.8).
  o.scope = scope == "cta"                                         ? Scope::Cta
            : scope == "cluster"                                   ? Scope::Cluster
            : scope == "sys" || sem == "volatile" || sem == "mmio" ? Scope::Sys
                                                                   : Scope::Gpu;
  return encode_order(o);
}

size_t vector_size(const Match& m) {
  return m.get("vec") == "v2" ? 2 : m.get("vec") == "v4" ? 4 : m.get("vec") == "v8" ? 8 : 1;
}

void check_vector(Lowering& l, const Match& m, const Operand& values, Type type) {
  const size_t n = vector_size(m), have = values.kind == Operand::Kind::Vector ? values.elements.size() : 1;
  if (n != have) l.fail(values, fmt::format("{} values, the instruction moves {}", have, n));
  if (n * bits(type) > 256) l.fail(fmt::format("{} bits in one access: at most 256", n * bits(type)));
}

// Widest register among the values: loads and stores allow registers wider than the type.
uint32_t widest(Lowering& l, const Operand& values) {
  uint32_t w = 0;
  const auto look = [&](const Operand& o) {
    if (o.kind == Operand::Kind::Register) w = std::max(w, l.register_bits(static_cast<uint32_t>(o.index)));
  };
  if (values.kind == Operand::Kind::Vector)
    for (const Operand& o : values.elements) look(o);
  else
    look(values);
  return w;
}

}  // namespace

void lower_ld(Lowering& l, const Match& m) {
  const Type type = m.type();
  const Operand &values = l.operand(0), &address = l.operand(1);
  check_vector(l, m, values, type);
  Space space = l.in().opcode == "ldu" && !m.has("space") ? Space::Generic : space_of(m.get("space"));
  space = generic_or_named(l, placed(l, space, address), address);
  const uint32_t width = std::max(widest(l, values), bits(type));
  const bool wide = width == 64;
  const Handler h = handlers::load(space, bits(type) / 8, is_signed(type), wide);
  if (!h) l.fail(fmt::format("'{}' cannot load .{}", l.in().opcode, name(type)));
  auto op = l.emit(h);
  op.aux(width <= 16 ? 0xffff : 0xffffffff);
  op.flag(order_of(m, false));
  op.address(0, address, space);
  op.list_dst(values, wide ? 64 : bits(type), true);
}

void lower_st(Lowering& l, const Match& m) {
  const Type type = m.type();
  const Operand &address = l.operand(0), &values = l.operand(1);
  check_vector(l, m, values, type);
  Space space = space_of(m.get("space"));
  space = generic_or_named(l, placed(l, space, address), address);
  const bool wide = widest(l, values) == 64 && bits(type) < 64;
  if (wide && values.kind == Operand::Kind::Vector)
    for (const Operand& o : values.elements)
      if (o.kind != Operand::Kind::Register || l.register_bits(static_cast<uint32_t>(o.index)) != 64)
        l.fail(o, "registers of one vector have the same width");
  const Handler h = handlers::store(space, bits(type) / 8, wide);
  if (!h) l.fail(fmt::format("'{}' cannot store .{} to {}", l.in().opcode, name(type), name(space)));
  auto op = l.emit(h);
  op.list_src(values, type, true);
  op.flag(order_of(m, false));
  op.address(0, address, space);
}

namespace {

void emit_atomic(Lowering& l, const Match& m, const Operand* result, const Operand& address,
                 const Operand& value, const Operand* second) {
  const Type type = m.type();
  const Space space = generic_or_named(l, space_of(m.get("space")), address);
  const std::string_view name_of = m.get("op");
  if ((name_of == "cas") != (second != nullptr)) l.fail("cas takes two values, other operations one");
  check_vector(l, m, value, type);
  const Handler h = handlers::atomic(space, name_of, type, result != nullptr);
  if (!h) l.fail(fmt::format("'{}' does not exist", l.spelled()));
  auto op = l.emit(h);
  const auto n = static_cast<uint32_t>(vector_size(m));
  // List: results (if any), values, second values.
  op.list_src(value, type);
  if (second) op.list_src(*second, type);
  if (result) op.list_dst(*result, bits(type));
  op.aux(n).mode(static_cast<uint32_t>(l.program().combines.size()));
  op.flag(static_cast<uint16_t>(kAtomicAccess | order_of(m, true)));
  op.flag(kSumAccess, name_of == "add" && !is_integer(type));
  l.program().combines.push_back(handlers::atomic_combine(name_of, type));
  op.address(0, address, space);
}

}  // namespace

void lower_atom(Lowering& l, const Match& m) {
  const bool cas = m.get("op") == "cas";
  emit_atomic(l, m, &l.operand(0), l.operand(1), l.operand(2), cas ? &l.operand(3) : nullptr);
}

void lower_red(Lowering& l, const Match& m) {
  emit_atomic(l, m, nullptr, l.operand(0), l.operand(1), nullptr);
}

void lower_st_async(Lowering& l, const Match& m) {
  const Type type = m.type();
  check_vector(l, m, l.operand(1), type);
  auto op = l.emit(handlers::async_store());
  op.list_src(l.operand(1), type);
  op.aux(bits(type) / 8);
  op.second_address(1, l.operand(2));
  op.address(0, l.operand(0), Space::Shared);
}

void lower_red_async(Lowering& l, const Match& m) {
  const Type type = m.type();
  const Handler h = handlers::async_reduce(m.get("op"), type);
  if (!h) l.fail(fmt::format("'{}' does not exist", l.spelled()));
  auto op = l.emit(h);
  op.list_src(l.operand(1), type);
  op.aux(static_cast<uint32_t>(l.program().combines.size()));
  l.program().combines.push_back(handlers::atomic_combine(m.get("op"), type));
  op.second_address(1, l.operand(2));
  op.address(0, l.operand(0), Space::Shared);
}

void lower_st_bulk(Lowering& l, const Match&) {
  if (l.integer(l.operand(2), "the value of st.bulk") != 0)
    l.fail(l.operand(2), "st.bulk stores zeroes only");
  auto op = l.emit(handlers::store_bulk());
  op.src(1, l.operand(1), Type::U64);
  op.address(0, l.operand(0), Space::Shared);
}

// cp.async dst, src, size {, source size or ignore predicate} {, policy}
void lower_cp_async(Lowering& l, const Match& m) {
  const int64_t bytes = l.integer(l.operand(2), "the size of cp.async");
  if (bytes != 4 && bytes != 8 && bytes != 16) l.fail(l.operand(2), "cp.async copies 4, 8 or 16 bytes");
  if (m.get("cop") == "cg" && bytes != 16) l.fail(l.operand(2), "cp.async.cg copies 16 bytes");
  const size_t extra = l.operands() - 3 - (m.has("hint") ? 1 : 0);
  auto op = l.emit(handlers::cp_async()).aux(static_cast<uint32_t>(bytes));
  if (extra == 1) {
    const Operand& o = l.operand(3);
    const bool predicate =
        o.kind == Operand::Kind::Register && l.function().registers[o.index].type == Type::Pred;
    if (predicate)
      op.flag(kOption).src_pred(2, o);
    else
      op.src(2, o, Type::U32);
  }
  op.second_address(1, l.operand(1), Space::Global);
  op.address(0, l.operand(0), Space::Shared);
}

void lower_cp_async_order(Lowering& l, const Match& m) {
  const std::string_view word = m.get("op");
  auto op = l.emit(handlers::cp_async_order()).aux(word == "commit_group" ? 0 : word == "wait_group" ? 1 : 2);
  if (word != "wait_group") return;
  const int64_t n = l.integer(l.operand(0), "the number of cp.async groups");
  if (n < 0 || n > 0xffffffffll) l.fail(l.operand(0), "this is no number of cp.async groups");
  op.imm(n);
}

void lower_ldmatrix(Lowering& l, const Match& m) {
  const uint32_t count = m.get("num") == "x1" ? 1 : m.get("num") == "x2" ? 2 : 4;
  const uint32_t shape = m.get("shape") == "m8n8" ? 0 : 1;
  const Operand& d = l.operand(0);
  const size_t registers = shape == 0 ? count : 2 * count;
  if ((d.kind == Operand::Kind::Vector ? d.elements.size() : 1) != registers)
    l.fail(d, fmt::format("{} registers are needed", registers));
  auto op =
      l.emit(handlers::ldmatrix(shape)).aux(count).mode(m.has("space") ? 0 : 1).flag(kOption, m.has("trans"));
  op.address(0, l.operand(1), m.has("space") ? Space::Shared : Space::Generic);
  op.list_dst(d, 32);
}

void lower_stmatrix(Lowering& l, const Match& m) {
  const uint32_t count = m.get("num") == "x1" ? 1 : m.get("num") == "x2" ? 2 : 4;
  const uint32_t shape = m.get("shape") == "m8n8" ? 0 : 1;
  const Operand& s = l.operand(1);
  if ((s.kind == Operand::Kind::Vector ? s.elements.size() : 1) != count)
    l.fail(s, fmt::format("{} registers are needed", count));
  auto op =
      l.emit(handlers::stmatrix(shape)).aux(count).mode(m.has("space") ? 0 : 1).flag(kOption, m.has("trans"));
  op.list_src(s, Type::B32);
  op.address(0, l.operand(0), m.has("space") ? Space::Shared : Space::Generic);
}

void lower_movmatrix(Lowering& l, const Match&) {
  l.emit(handlers::movmatrix()).src(0, l.operand(1), Type::B32).dst(l.operand(0), 32);
}

}  // namespace mxfa::emulator::ptx
