// tcgen05: operands for core/exec_tensor.cpp; what is not modelled loads and is refused when executed.
#include <fmt/format.h>

#include "core/handlers.hpp"
#include "engines/engines.hpp"
#include "ptx/lower.hpp"
#include "ptx/lower_families.hpp"

namespace mxfa::emulator::ptx {
namespace {

// 1 or 2.  ptxas accepts one cta_group a function.
uint32_t group(Lowering& l, const Match& m) {
  const uint32_t n = m.get("group") == "cta_group::2" ? 2 : 1;
  l.require_cta_group(n);
  return n;
}

uint32_t repeat(const Match& m) {
  uint32_t n = 0;
  for (const char c : m.get("num").substr(1)) n = n * 10 + static_cast<uint32_t>(c - '0');
  return n;
}

TmemShape shape_of(std::string_view s) {
  if (s == "32x32b") return TmemShape::S32x32b;
  if (s == "16x64b") return TmemShape::S16x64b;
  if (s == "16x128b") return TmemShape::S16x128b;
  return s == "16x256b" ? TmemShape::S16x256b : TmemShape::S16x32bx2;
}
// Registers of a thread: blackwell-isa 2.
uint32_t registers_of(TmemShape shape, uint32_t n) {
  return shape == TmemShape::S16x128b ? 2 * n : shape == TmemShape::S16x256b ? 4 * n : n;
}

}  // namespace

void lower_tcgen05_alloc(Lowering& l, const Match& m) {
  const bool generic = !m.has("space");
  auto op = l.emit(handlers::tcgen05_alloc());
  op.aux(group(l, m)).src(1, l.operand(1), Type::U32);
  op.address(0, l.operand(0), generic ? Space::Generic : Space::Shared).flag(kGenericAddress, generic);
}

void lower_tcgen05_dealloc(Lowering& l, const Match& m) {
  l.emit(handlers::tcgen05_dealloc())
      .aux(group(l, m))
      .src(0, l.operand(0), Type::U32)
      .src(1, l.operand(1), Type::U32);
}

void lower_tcgen05_relinquish(Lowering& l, const Match& m) {
  l.emit(handlers::tcgen05_relinquish()).aux(group(l, m));
}

namespace {

// Tensor-memory addresses are plain 32-bit numbers: lane in bits 16-31, column in bits 0-15.
void tmem_address(Lowering& l, Lowering::Op& op, int k, const Operand& o) {
  const uint16_t flags = op.op().flags;
  op.address(k, o, Space::Shared);
  if ((op.op().flags & kWideAddress) && o.base == Operand::Kind::Register)
    l.fail(o, "a tensor-memory address register has 32 bits");
  if (o.base == Operand::Kind::Integer)
    op.op().src[k] = l.constant32(static_cast<uint32_t>(o.value)), op.op().imm = 0;
  op.op().flags = flags;
}

void check_registers(Lowering& l, const Operand& o, uint32_t wanted) {
  if (o.kind != Operand::Kind::Vector) l.fail(o, "a vector in braces is needed here");
  if (o.elements.size() != wanted)
    l.fail(o, fmt::format("{} registers, the shape has {}", o.elements.size(), wanted));
}

}  // namespace

// aux: bits 0-3 shape, 4 pack, 8-15 repeat; imm: address offset; mode: distance of the second half
// (16x32bx2).
void lower_tcgen05_ld(Lowering& l, const Match& m) {
  const TmemShape shape = shape_of(m.get("shape"));
  const bool two = shape == TmemShape::S16x32bx2;
  check_registers(l, l.operand(0), registers_of(shape, repeat(m)));
  if (two != (l.operands() == 3)) l.fail("the distance of the second half goes with .16x32bx2");
  auto op = l.emit(handlers::tcgen05_load());
  op.aux(static_cast<uint32_t>(shape) | (m.has("pack::16b") ? 16u : 0u) | repeat(m) << 8);
  tmem_address(l, op, 0, l.operand(1));
  if (two) op.mode(static_cast<uint32_t>(l.integer(l.operand(2), "the distance of the second half")));
  op.list_dst(l.operand(0), 32);
  l.mark_pending_load(op);
}

// A load whose list ends with the register of the reduced value.  aux, besides: bit 5 this form, 6 max, 7
// .NaN, 16 .abs, 17-18 type (0 .u32, 1 .s32, 2 .f32).
void lower_tcgen05_ld_red(Lowering& l, const Match& m) {
  const TmemShape shape = shape_of(m.get("shape"));
  const bool two = shape == TmemShape::S16x32bx2, real = m.get("t") == "f32";
  check_registers(l, l.operand(0), registers_of(shape, repeat(m)));
  if (two != (l.operands() == 4)) l.fail("the distance of the second half goes with .16x32bx2");
  if (!real && (m.has("abs") || m.has("NaN"))) l.fail(".abs and .NaN go with .f32");
  auto op = l.emit(handlers::tcgen05_load());
  const uint32_t type = real ? 2 : m.get("t") == "s32" ? 1 : 0;
  op.aux(static_cast<uint32_t>(shape) | 32u | (m.get("op") == "max" ? 64u : 0u) | (m.has("NaN") ? 128u : 0u) |
         repeat(m) << 8 | (m.has("abs") ? 1u << 16 : 0u) | type << 17);
  tmem_address(l, op, 0, l.operand(2));
  if (two) op.mode(static_cast<uint32_t>(l.integer(l.operand(3), "the distance of the second half")));
  op.list_dst(l.operand(0), 32);
  op.list_dst(l.operand(1), 32);
  l.mark_pending_load(op);
}

void lower_tcgen05_st(Lowering& l, const Match& m) {
  const TmemShape shape = shape_of(m.get("shape"));
  const bool two = shape == TmemShape::S16x32bx2;
  if (two != (l.operands() == 3)) l.fail("the distance of the second half goes with .16x32bx2");
  const Operand& values = l.operand(l.operands() - 1);
  check_registers(l, values, registers_of(shape, repeat(m)));
  auto op = l.emit(handlers::tcgen05_store());
  op.aux(static_cast<uint32_t>(shape) | (m.has("unpack::16b") ? 16u : 0u) | repeat(m) << 8);
  op.list_src(values, Type::B32);
  tmem_address(l, op, 0, l.operand(0));
  if (two) op.mode(static_cast<uint32_t>(l.integer(l.operand(1), "the distance of the second half")));
}

void lower_tcgen05_wait(Lowering& l, const Match& m) {
  const bool load = m.get("op") == "wait::ld";
  auto op = l.emit(handlers::tcgen05_wait(load));
  if (load) l.use_pending_loads(op);
}

void lower_tcgen05_fence(Lowering& l, const Match& m) {
  l.emit(handlers::tcgen05_fence()).aux(m.get("op") == "fence::before_thread_sync");
}

void lower_tcgen05_cp(Lowering& l, const Match& m) {
  const std::string_view shape = m.get("shape"), multicast = m.get("multicast");
  TmemCopyShape s = TmemCopyShape::S128x256b;
  bool ok = multicast.empty();
  if (shape == "128x128b")
    s = TmemCopyShape::S128x128b;
  else if (shape == "4x256b")
    s = TmemCopyShape::S4x256b;
  else if (shape == "64x128b")
    s = multicast == "warpx2::02_13" ? TmemCopyShape::S64x128b_02_13 : TmemCopyShape::S64x128b_01_23,
    ok = multicast.substr(0, 6) == "warpx2";
  else if (shape == "32x128b")
    s = TmemCopyShape::S32x128b, ok = multicast == "warpx4";
  if (!ok) l.fail(fmt::format("tcgen05.cp of shape .{} does not go with multicast '{}'", shape, multicast));
  auto op = l.emit(handlers::tcgen05_copy());
  const uint32_t expansion = m.get("from") == "b6x16_p32" ? 1 : m.get("from") == "b4x16_p64" ? 2 : 0;
  op.aux(static_cast<uint32_t>(s) | group(l, m) << 4 | expansion << 6).src(1, l.operand(1), Type::B64);
  tmem_address(l, op, 0, l.operand(0));
}

void lower_tcgen05_commit(Lowering& l, const Match& m) {
  const bool generic = !m.has("space"), multicast = m.has("multicast");
  if (multicast != (l.operands() == 2)) l.fail("the CTA mask goes with .multicast::cluster");
  auto op = l.emit(handlers::tcgen05_commit());
  op.aux(group(l, m));
  if (multicast) op.src(1, l.operand(1), Type::B16);
  op.address(0, l.operand(0), generic ? Space::Generic : Space::Shared).flag(kGenericAddress, generic);
}

// List: d, a, b, idesc, scale a, scale b, then the disable-output-lane mask; src0 the enable-input-d
// predicate. aux: bits 0-3 kind, 4 a in tensor memory, 5 block scale, 6 cta_group::2, 7 .ws, 8-11 scale
// vector, 12-15 mask words; mode: scale-input-d; imm: index of the address offsets (d, a, scale a, scale b)
// in Program::lists.
void lower_tcgen05_mma(Lowering& l, const Match& m) {
  static constexpr std::string_view kKinds[] = {"kind::f16",      "kind::tf32", "kind::f8f6f4",  "kind::i8",
                                                "kind::mxf8f6f4", "kind::mxf4", "kind::mxf4nvf4"};
  uint32_t kind = 0;
  while (m.get("kind") != kKinds[kind]) ++kind;
  const bool scaled = m.has("block_scale");
  const std::string_view vec = m.get("vec");
  uint32_t vector = vec == "scale_vec::1X" ? 1 : vec == "scale_vec::2X" ? 2 : vec == "scale_vec::4X" ? 4 : 0;
  // The block spellings name the same things by block length: K bytes of 32 elements (mxf8f6f4) or 64 (mxf4,
  // mxf4nvf4).
  if (vec == "block32") vector = kind == 4 ? 1 : 2;
  if (vec == "block16") vector = 4;
  const bool fits = !scaled || vector == 0 ? kind != 6 || vector != 0
                    : kind == 4            ? vector == 1
                    : kind == 5            ? vector == 2
                                           : vector == 2 || vector == 4;
  if (!fits) l.fail(fmt::format("'{}' does not accept this scale vector", l.spelled()));

  const Operand& a = l.operand(1);
  const bool a_in_tmem = a.kind == Operand::Kind::Address;
  size_t next = 4;
  const Operand *scale_a = nullptr, *scale_b = nullptr, *mask = nullptr, *scale_d = nullptr;
  if (scaled)
    scale_a = &l.operand(next++), scale_b = &l.operand(next++);
  else if (l.operand(next).kind == Operand::Kind::Vector)
    mask = &l.operand(next++);
  const Operand& enable = l.operand(next++);
  if (!scaled && l.operands() > next) scale_d = &l.operand(next++);
  if (l.operands() != next) l.fail("too many operands");
  const uint32_t ctas = group(l, m);
  if (mask && mask->elements.size() != 4 * ctas)
    l.fail(*mask,
           fmt::format("the disable-output-lane mask of cta_group::{} has {} registers", ctas, 4 * ctas));
  if (scale_d && kind > 1) l.fail(*scale_d, "scale-input-d exists for kind::f16 and kind::tf32");

  auto op = l.emit(handlers::tcgen05_mma());
  op.aux(kind | (a_in_tmem ? 16u : 0u) | (scaled ? 32u : 0u) | (ctas == 2 ? 64u : 0u) |
         (m.has("ws") ? 128u : 0u) | vector << 8 | (mask ? 4 * ctas << 12 : 0u));
  if (scale_d) {
    const int64_t n = l.integer(*scale_d, "scale-input-d");
    if (n < 0 || n > 15) l.fail(*scale_d, "scale-input-d is 0 to 15");
    op.mode(static_cast<uint32_t>(n));
  }
  std::vector<uint32_t> offsets;
  const auto address = [&](const Operand& o) {  // one list entry, its offset kept aside
    if (o.kind != Operand::Kind::Address || o.base == Operand::Kind::Variable)
      l.fail(o, "a tensor-memory address in brackets is needed here");
    Operand value;
    value.kind = o.base == Operand::Kind::Register ? Operand::Kind::Register : Operand::Kind::Integer;
    value.index = o.index;
    value.position = o.position;
    value.value = o.base == Operand::Kind::Register ? 0 : o.value;
    offsets.push_back(o.base == Operand::Kind::Register ? static_cast<uint32_t>(o.value) : 0);
    op.list_src(value, Type::B32);
  };
  address(l.operand(0));
  if (a_in_tmem)
    address(a);
  else
    op.list_src(a, Type::B64), offsets.push_back(0);
  op.list_src(l.operand(2), Type::B64);
  op.list_src(l.operand(3), Type::B32);
  if (scaled) address(*scale_a), address(*scale_b);
  if (mask) op.list_src(*mask, Type::B32);
  op.src_pred(0, enable);
  auto& lists = l.program().lists;
  op.imm(static_cast<int64_t>(lists.size()));
  lists.insert(lists.end(), offsets.begin(), offsets.end());
}

void Lowering::require_cta_group(uint32_t group) {
  if (cta_group_ != 0 && cta_group_ != group)
    fail(fmt::format(
        "tcgen05 with cta_group::{} in a function that has used cta_group::{}: a function uses one of them",
        group, cta_group_));
  cta_group_ = group;
}

}  // namespace mxfa::emulator::ptx
