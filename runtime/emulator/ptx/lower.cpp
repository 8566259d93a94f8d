// The operand helpers of Lowering: registers, constants, addresses, lists, predicates.
#include "ptx/lower.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/handlers.hpp"

namespace mxfa::emulator::ptx {

using Field = Reference::Field;

uint32_t ProgramBuilder::constant(uint64_t low, uint64_t high, uint32_t bytes) {
  const uint32_t rows = std::max<uint32_t>(1, bytes / 4);
  const uint64_t parts[2] = {low, high};
  std::string key(reinterpret_cast<const char*>(parts), rows * 4);
  const auto [it, fresh] = constants.emplace(std::move(key), static_cast<uint32_t>(program.constants.size()));
  if (fresh) {
    program.constants.resize(program.constants.size() + rows);
    auto* bytes_out = reinterpret_cast<uint8_t*>(&program.constants[it->second]);
    for (int lane = 0; lane < kLanes; ++lane) std::memcpy(bytes_out + lane * rows * 4, parts, rows * 4);
  }
  return it->second;
}

const Operand& Lowering::operand(size_t k) const {
  if (k >= instruction_->operands.size()) fail(fmt::format("operand {} is missing", k + 1));
  return instruction_->operands[k];
}

void Lowering::fail(const std::string& message) const {
  builder_.source.fail(instruction_ ? instruction_->position : function_.position, message);
}

void Lowering::fail(const Operand& o, const std::string& message) const {
  builder_.source.fail(o.position, message);
}

uint32_t Lowering::temporary(uint32_t bits, bool predicate) {
  virtuals_.push_back({static_cast<uint16_t>(std::max<uint32_t>(1, bits / 32)), predicate});
  return static_cast<uint32_t>(virtuals_.size() - 1);
}

void Lowering::reference(uint32_t op, Field field, uint32_t reg, bool def, uint32_t list) {
  references_.push_back({op, field, def, list, reg});
}

Lowering::Op Lowering::emit(Handler handler) {
  const auto index = static_cast<uint32_t>(builder_.program.code.size());
  MicroOp op;
  op.run = handler;
  builder_.program.code.push_back(op);
  builder_.program.origins.push_back({instruction_ ? instruction_->position : function_.position, index_,
                                      instruction_ ? instruction_->location : -1});
  if (instruction_ && instruction_->guard >= 0) {
    builder_.program.code.back().guard_xor = instruction_->guard_negated ? ~0u : 0u;
    reference(index, Field::Guard, static_cast<uint32_t>(instruction_->guard), false);
  }
  return Op(*this, index);
}

Lowering::Op Lowering::emit_unguarded(Handler handler) {
  Op op = emit(handler);
  if (instruction_->guard >= 0) {
    op.op().guard_xor = 0;
    references_.pop_back();
  }
  return op;
}

Lowering::Op Lowering::emit_load(const Operand& o, uint32_t width, bool generic) {
  Op op = emit(nullptr);
  fill_load(op.op(), o, width, generic);
  return op;
}

uint32_t Lowering::carry_register() {
  if (carry_ == ~0u) carry_ = temporary(1, true);
  return carry_;
}

uint32_t Lowering::register_of(const Operand& o) const {
  if (o.kind != Operand::Kind::Register) fail(o, "a register is needed here");
  return static_cast<uint32_t>(o.index);
}

const std::vector<Operand>& Lowering::elements(const Operand& o) const {
  if (o.kind != Operand::Kind::Vector && o.kind != Operand::Kind::Pair && o.kind != Operand::Kind::List)
    fail(o, "a vector in braces is needed here");
  return o.elements;
}

int64_t Lowering::integer(const Operand& o, const char* what) const {
  if (o.kind != Operand::Kind::Integer) fail(o, fmt::format("{} must be an integer constant", what));
  return o.value;
}

uint64_t Lowering::immediate(const Operand& o, Type type) const {
  const uint32_t width = std::max<uint32_t>(8, bits(type));
  const uint64_t keep = width >= 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
  if (o.kind == Operand::Kind::Integer) {
    if (is_float(type) && type != Type::F16 && type != Type::BF16)
      fail(o, fmt::format("{} needs a floating-point constant (0f... or 0d...), not an integer", name(type)));
    return static_cast<uint64_t>(o.value) & keep;
  }
  if (o.kind == Operand::Kind::Float32 || o.kind == Operand::Kind::Float64) {
    const bool single = o.kind == Operand::Kind::Float32;
    const auto raw = static_cast<uint64_t>(o.value);
    if (width == 64) {
      if (!single) return raw;
      return std::bit_cast<uint64_t>(static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(raw))));
    }
    if (width == 32)
      return single ? raw : std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(raw)));
    fail(o, fmt::format("a floating-point constant cannot be a .{}", name(type)));
  }
  fail(o, "a constant is needed here");
}

// ---- Op

Lowering::Op& Lowering::Op::dst_reg(uint32_t reg) {
  l_.reference(index_, Field::Dst, reg, true);
  return *this;
}
Lowering::Op& Lowering::Op::dst2_reg(uint32_t reg) {
  l_.reference(index_, Field::Dst2, reg, true);
  return *this;
}
Lowering::Op& Lowering::Op::src_reg(int k, uint32_t reg) {
  l_.reference(index_, static_cast<Field>(static_cast<int>(Field::Src0) + k), reg, false);
  return *this;
}
Lowering::Op& Lowering::Op::src_constant(int k, uint64_t value, uint32_t bytes) {
  op().src[k] = l_.builder_.constant(value, 0, bytes) | kConstantBit;
  return *this;
}
void Lowering::check_width(const Operand& o, uint32_t wanted, bool loose) const {
  const Type type = function_.registers[o.index].type;
  if (type == Type::Pred)
    fail(o, fmt::format("'{}' expects a {}-bit register, this is a predicate", in().opcode, wanted));
  const uint32_t have = bits(type);
  if (have == wanted || (loose && have > wanted)) return;
  fail(o,
       fmt::format("'{}' expects a {}-bit register here, this one has {} bits", in().opcode, wanted, have));
}

Lowering::Op& Lowering::Op::dst(const Operand& o, uint32_t wanted, bool loose) {
  if (o.kind == Operand::Kind::Sink) return dst_reg(l_.temporary(std::max(32u, wanted)));
  const uint32_t reg = l_.register_of(o);
  l_.check_width(o, wanted, loose);
  return dst_reg(reg);
}
Lowering::Op& Lowering::Op::dst2(const Operand& o, uint32_t wanted, bool loose) {
  if (o.kind == Operand::Kind::Sink) return dst2_reg(l_.temporary(std::max(32u, wanted)));
  const uint32_t reg = l_.register_of(o);
  l_.check_width(o, wanted, loose);
  return dst2_reg(reg);
}

Lowering::Op& Lowering::Op::src(int k, const Operand& o, Type type, bool loose) {
  switch (o.kind) {
    case Operand::Kind::Register:
      if (o.negated) l_.fail(o, "'!' applies to predicates only");
      l_.check_width(o, std::max(8u, bits(type)), loose);
      return src_reg(k, static_cast<uint32_t>(o.index));
    case Operand::Kind::Integer:
    case Operand::Kind::Float32:
    case Operand::Kind::Float64:
      return src_constant(k, l_.immediate(o, type), std::max(4u, bits(type) / 8));
    default:
      return src_reg(k, l_.load_before(*this, o, type));
  }
}

Lowering::Op& Lowering::Op::dst_pred(const Operand& o) {
  if (o.kind == Operand::Kind::Sink) return dst_reg(l_.temporary(1, true));
  const uint32_t reg = l_.register_of(o);
  if (l_.function_.registers[reg].type != Type::Pred) l_.fail(o, "a predicate register is needed here");
  return dst_reg(reg);
}
Lowering::Op& Lowering::Op::dst2_pred(const Operand& o) {
  if (o.kind == Operand::Kind::Sink) return dst2_reg(l_.temporary(1, true));
  const uint32_t reg = l_.register_of(o);
  if (l_.function_.registers[reg].type != Type::Pred) l_.fail(o, "a predicate register is needed here");
  return dst2_reg(reg);
}
Lowering::Op& Lowering::Op::src_pred(int k, const Operand& o) {
  if (o.kind == Operand::Kind::Integer) {  // predicate 0 is all ones
    op().src[k] = (o.value != 0) == !o.negated ? 0 : 1;
    return *this;
  }
  const uint32_t reg = l_.register_of(o);
  if (l_.function_.registers[reg].type != Type::Pred) l_.fail(o, "a predicate register is needed here");
  op().src[k] = o.negated ? 1 : 0;  // the allocator adds the number
  return src_reg(k, reg);
}

Lowering::Op& Lowering::Op::list_dst(const Operand& o, uint32_t wanted, bool loose) {
  const Operand* first = &o;
  size_t count = 1;
  if (o.kind == Operand::Kind::Vector) first = o.elements.data(), count = o.elements.size();
  auto& lists = l_.builder_.program.lists;
  if (op().count == 0) op().list = static_cast<uint32_t>(lists.size());
  for (size_t k = 0; k < count; ++k) {
    const auto entry = static_cast<uint32_t>(lists.size());
    lists.push_back(kNoRow);
    ++op().count;
    if (first[k].kind == Operand::Kind::Sink) continue;
    const uint32_t reg = l_.register_of(first[k]);
    l_.check_width(first[k], wanted, loose);
    l_.reference(index_, Field::List, reg, true, entry);
  }
  return *this;
}

Lowering::Op& Lowering::Op::list_src(const Operand& o, Type type, bool loose) {
  const Operand* first = &o;
  size_t count = 1;
  if (o.kind == Operand::Kind::Vector) first = o.elements.data(), count = o.elements.size();
  // Specials and addresses need an instruction of their own, which must come before the list is begun.
  std::vector<uint32_t> loaded(count, ~0u);
  for (size_t k = 0; k < count; ++k)
    if (first[k].kind == Operand::Kind::Special || first[k].kind == Operand::Kind::Variable)
      loaded[k] = l_.load_before(*this, first[k], type);
  auto& lists = l_.builder_.program.lists;
  if (op().count == 0) op().list = static_cast<uint32_t>(lists.size());
  for (size_t k = 0; k < count; ++k) {
    const auto entry = static_cast<uint32_t>(lists.size());
    lists.push_back(kNoRow);
    ++op().count;
    const Operand& e = first[k];
    if (loaded[k] != ~0u) {
      l_.reference(index_, Field::List, loaded[k], false, entry);
    } else if (e.kind == Operand::Kind::Register) {
      l_.check_width(e, std::max(8u, bits(type)), loose);
      l_.reference(index_, Field::List, static_cast<uint32_t>(e.index), false, entry);
    } else {
      lists[entry] =
          l_.builder_.constant(l_.immediate(e, type), 0, std::max(4u, bits(type) / 8)) | kConstantBit;
    }
  }
  return *this;
}

// A memory operand: src[k] is the base register, imm the offset.
Lowering::Op& Lowering::Op::address(int k, const Operand& o, Space space) {
  if (o.kind != Operand::Kind::Address) l_.fail(o, "an address in brackets is needed here");
  op().imm = o.value;
  if (o.base == Operand::Kind::Register) {
    const uint32_t width = l_.register_bits(static_cast<uint32_t>(o.index));
    if (l_.function_.registers[o.index].type == Type::Pred || (width != 32 && width != 64))
      l_.fail(o, "an address register has 32 or 64 bits");
    if (width == 32 && (space == Space::Generic || space == Space::Global || space == Space::Const))
      l_.fail(o, fmt::format("{} addresses have 64 bits", name(space)));
    return flag(kWideAddress, width == 64).src_reg(k, static_cast<uint32_t>(o.index));
  }
  if (o.base == Operand::Kind::Variable) {
    Operand v = o;
    v.kind = Operand::Kind::Variable;
    v.value = 0;
    const Space where = l_.module().variables[v.index].space;
    const bool generic = space == Space::Generic;
    if (where == Space::Global || where == Space::Const)
      return flag(kWideAddress).src_constant(k, l_.variable_address(v.index), 8);
    if (where != Space::Shared && !generic) return src_constant(k, l_.variable_address(v.index), 4);
    const uint32_t reg = l_.load_before(*this, v, generic ? Type::U64 : Type::U32, generic);
    return flag(kWideAddress, generic).src_reg(k, reg);
  }
  op().imm = 0;
  return flag(kWideAddress).src_constant(k, static_cast<uint64_t>(o.value), 8);
}

Lowering::Op& Lowering::Op::second_address(int k, const Operand& o, Space space) {
  const int64_t imm = op().imm;
  const uint16_t flags = op().flags;
  address(k, o, space);
  const bool wide = op().flags & kWideAddress;
  if (op().imm != static_cast<int32_t>(op().imm)) l_.fail(o, "address offset does not fit 32 bits");
  op().mode = static_cast<uint32_t>(op().imm);
  op().imm = imm;
  op().flags = flags;
  if (wide != (space == Space::Global))
    l_.fail(o, fmt::format("a {} address register has {} bits here", name(space),
                           space == Space::Global ? 64 : 32));
  return *this;
}

// Puts an instruction that loads `o` into a temporary in front of `user`.
uint32_t Lowering::load_before(Op& user, const Operand& o, Type type, bool generic) {
  if (o.kind != Operand::Kind::Special && o.kind != Operand::Kind::Variable &&
      o.kind != Operand::Kind::Function)
    fail(o, "a register or a constant is needed here");
  auto& code = builder_.program.code;
  const uint32_t index = user.index_;
  const uint32_t width = std::max(32u, bits(type));
  // The user moves one place on, with the references it already has.
  code.push_back(code[index]);
  builder_.program.origins.push_back(builder_.program.origins[index]);
  for (auto r = references_.rbegin(); r != references_.rend() && r->op == index; ++r) ++r->op;
  user.index_ = index + 1;
  MicroOp load;
  const uint32_t reg = temporary(width);
  fill_load(load, o, width, generic);
  code[index] = load;
  // References stay sorted by micro-operation: the new one goes before those of the user.
  auto at = references_.end();
  while (at != references_.begin() && (at - 1)->op > index) --at;
  references_.insert(at, {index, Field::Dst, true, 0, reg});
  return reg;
}

// The micro-operation (without its destination) that computes a special register or the address of a symbol.
void Lowering::fill_load(MicroOp& op, const Operand& o, uint32_t width, bool generic) {
  if (o.kind == Operand::Kind::Special) {
    const SpecialInfo& info = special_info(static_cast<SpecialRegister>(o.index));
    if (info.type == Type::Pred) fail(o, fmt::format("{} is a predicate; use mov.pred", info.name));
    if (width < bits(info.type)) fail(o, fmt::format("{} has {} bits", info.name, bits(info.type)));
    op.run = handlers::read_special(width == 64);
    op.aux = static_cast<uint32_t>(o.index);
    return;
  }
  if (o.kind == Operand::Kind::Function) {
    op.run = handlers::broadcast(width == 64);
    op.imm = static_cast<int64_t>(kFunctionWindow + static_cast<uint64_t>(o.index));
    return;
  }
  const Variable& v = module().variables[o.index];
  const uint64_t address = variable_address(o.index) + static_cast<uint64_t>(o.value);
  switch (v.space) {
    case Space::Shared:
      op.run = handlers::shared_address(width == 64, generic, v.unsized || v.external);
      op.imm = static_cast<int64_t>(v.unsized || v.external ? static_cast<uint64_t>(o.value) : address);
      break;
    case Space::Local:
      op.run = handlers::broadcast(width == 64);
      op.imm = static_cast<int64_t>(address + (generic ? kLocalWindow : 0));
      break;
    case Space::Param: {
      const bool in_local = !parameter_of_entry(o.index);
      op.run = handlers::broadcast(width == 64);
      op.imm = static_cast<int64_t>(address + (generic ? (in_local ? kLocalWindow : kParamWindow) : 0));
      break;
    }
    default:
      if (width < 64) fail(o, fmt::format("the address of '{}' has 64 bits", v.name));
      op.run = handlers::broadcast(true);
      op.imm = static_cast<int64_t>(address);
  }
}

void Lowering::refuse(const std::string& why) {
  auto& texts = builder_.program.texts;
  emit(handlers::refuse()).aux(static_cast<uint32_t>(texts.size()));
  texts.push_back(fmt::format("'{}' is not executed by this emulator: {}", spelled(), why));
}

std::string Lowering::spelled() const {
  std::string text(instruction_->opcode);
  for (uint32_t k = 0; k < instruction_->modifiers; ++k)
    text += fmt::format(".{}", function_.modifier(*instruction_, k));
  return text;
}

}  // namespace mxfa::emulator::ptx
