// mbarrier, bulk and tensor copies: operands in the order that core/exec_async.cpp expects.
#include <fmt/format.h>

#include "core/handlers.hpp"
#include "core/observer.hpp"
#include "engines/engines.hpp"
#include "ptx/lower.hpp"
#include "ptx/lower_families.hpp"

namespace mxfa::emulator::ptx {
namespace {

// Without a .shared modifier the address is generic.
void barrier_address(Lowering::Op& op, const Match& m, const Operand& o) {
  const bool generic = !m.has("space");
  op.address(0, o, generic ? Space::Generic : Space::Shared).flag(kGenericAddress, generic);
}

// Of mbarrier operations; `otherwise` where the instruction does not say (PTX ISA 9.7.13.15).
uint16_t order_of(const Match& m, Order otherwise) {
  const std::string_view sem = m.get("sem");
  if (sem.empty()) return encode_order(otherwise);
  const Semantics semantics = sem == "acquire"   ? Semantics::Acquire
                              : sem == "release" ? Semantics::Release
                                                 : Semantics::Relaxed;
  return encode_order({semantics, m.get("scope") == "cluster" ? Scope::Cluster : Scope::Cta});
}

ReduceOp reduce_op(std::string_view word) {
  if (word == "add") return ReduceOp::Add;
  if (word == "min") return ReduceOp::Min;
  if (word == "max") return ReduceOp::Max;
  if (word == "inc") return ReduceOp::Inc;
  if (word == "dec") return ReduceOp::Dec;
  if (word == "and") return ReduceOp::And;
  if (word == "or") return ReduceOp::Or;
  return word == "xor" ? ReduceOp::Xor : ReduceOp::None;
}

ReduceType reduce_type(Type type) {
  switch (type) {
    case Type::U32:
    case Type::B32:
      return ReduceType::U32;
    case Type::S32:
      return ReduceType::S32;
    case Type::U64:
    case Type::B64:
      return ReduceType::U64;
    case Type::S64:
      return ReduceType::S64;
    case Type::F16:
      return ReduceType::F16;
    case Type::BF16:
      return ReduceType::BF16;
    case Type::F32:
      return ReduceType::F32;
    case Type::F64:
      return ReduceType::F64;
    default:
      return ReduceType::None;
  }
}

// The optional operands at the end: a 16-bit mask if `wanted`, then a cache policy if there is a hint.
const Operand* optional_mask(Lowering& l, size_t first, bool wanted, bool hint) {
  const size_t have = l.operands() - first, need = (wanted ? 1 : 0) + (hint ? 1 : 0);
  if (have != need) l.fail(fmt::format("{} operands at the end, the modifiers ask for {}", have, need));
  return wanted ? &l.operand(first) : nullptr;
}

}  // namespace

void lower_mbarrier_init(Lowering& l, const Match& m) {
  auto op = l.emit(handlers::mbarrier_init());
  op.src(1, l.operand(1), Type::U32);
  barrier_address(op, m, l.operand(0));
}

void lower_mbarrier_inval(Lowering& l, const Match& m) {
  auto op = l.emit(handlers::mbarrier_inval());
  barrier_address(op, m, l.operand(0));
}

// {state,} [address] {, count or bytes}
void lower_mbarrier_arrive(Lowering& l, const Match& m) {
  const bool expect = m.has("expect_tx");
  const size_t first = l.operand(0).kind == Operand::Kind::Address ? 0 : 1;
  if (l.operands() > first + 2) l.fail("too many operands");
  if (expect && l.operands() != first + 2) l.fail("expect_tx needs a byte count");
  auto op = l.emit(handlers::mbarrier_arrive());
  op.aux((expect ? 1u : 0u) | (m.get("op") == "arrive_drop" ? 2u : 0u) | (m.has("noComplete") ? 4u : 0u));
  op.flag(order_of(m, kReleaseCta));
  if (l.operands() > first + 1) op.src(1, l.operand(first + 1), Type::U32);
  barrier_address(op, m, l.operand(first));
  if (first == 1 && l.operand(0).kind != Operand::Kind::Sink) op.dst(l.operand(0), 64);
}

void lower_mbarrier_tx(Lowering& l, const Match& m) {
  auto op = l.emit(m.has("expect_tx") ? handlers::mbarrier_expect_tx() : handlers::mbarrier_complete_tx());
  op.src(1, l.operand(1), Type::U32);
  barrier_address(op, m, l.operand(0));
}

// The suspend-time hint is ignored: a wait ends when its phase completes or nothing else can happen.
void lower_mbarrier_wait(Lowering& l, const Match& m) {
  const bool parity = m.has("parity"), suspends = m.get("op") == "try_wait";
  if (l.operands() == 4 && !suspends) l.fail("test_wait takes no time limit");
  auto op = l.emit(handlers::mbarrier_wait(parity, suspends));
  op.flag(order_of(m, kAcquireCta));
  op.src(1, l.operand(2), parity ? Type::U32 : Type::B64);
  barrier_address(op, m, l.operand(1));
  op.dst_pred(l.operand(0));
}

void lower_mbarrier_pending_count(Lowering& l, const Match&) {
  l.emit(handlers::mbarrier_pending_count()).src(0, l.operand(1), Type::B64).dst(l.operand(0), 32);
}

void lower_cp_async_arrive(Lowering& l, const Match& m) {
  auto op = l.emit(handlers::cp_async_mbarrier_arrive());
  op.aux(m.has("noinc") ? 1 : 0);
  barrier_address(op, m, l.operand(0));
}

namespace {

// [map, {c0, ...}] into src1 and the list.
void tensor_operand(Lowering& l, Lowering::Op& op, const Match& m, const Operand& o, bool four_rows) {
  const auto rank = static_cast<uint32_t>(m.get("dim")[0] - '0');
  if (o.kind != Operand::Kind::Address || o.elements.empty())
    l.fail(o, "[map, {coordinates}] is needed here");
  const size_t wanted = four_rows ? 5 : rank;
  if (o.elements.size() != wanted)
    l.fail(o, fmt::format("{} coordinates, {} are needed", o.elements.size(), wanted));
  if (o.value < -32768 || o.value > 32767)
    l.fail(o, "the offset of a tensor map address does not fit 16 bits");
  op.op().aux |=
      rank | (four_rows ? 1u << 6 : 0u) | static_cast<uint32_t>(static_cast<uint16_t>(o.value)) << 16;
  Operand coordinates;
  coordinates.kind = Operand::Kind::Vector;
  coordinates.position = o.position;
  coordinates.elements = o.elements;
  op.list_src(coordinates, Type::S32);
  Operand map = o;
  map.value = 0;
  map.elements.clear();
  const int64_t imm = op.op().imm;
  const uint16_t flags = op.op().flags;
  op.address(1, map, Space::Generic);
  if (!(op.op().flags & kWideAddress)) l.fail(o, "the address of a tensor map has 64 bits");
  op.op().imm = imm;
  op.op().flags = flags;
}

}  // namespace

void lower_tensor_load(Lowering& l, const Match& m) {
  const Operand* mask = optional_mask(l, 3, m.has("multicast"), m.has("hint"));
  auto op = l.emit(handlers::tensor_copy("load"));
  op.op().aux = (m.get("group") == "cta_group::2" ? 2u : m.has("group") ? 1u : 0u) << 4;
  tensor_operand(l, op, m, l.operand(1), m.get("mode") == "tile::gather4");
  op.second_address(2, l.operand(2));
  if (mask) op.src(3, *mask, Type::B16);
  op.address(0, l.operand(0), Space::Shared);
}

void lower_tensor_store(Lowering& l, const Match& m) {
  optional_mask(l, 2, false, m.has("hint"));
  auto op = l.emit(handlers::tensor_copy("store"));
  op.op().aux = static_cast<uint32_t>(reduce_op(m.get("op"))) << 8;
  tensor_operand(l, op, m, l.operand(0), m.get("mode") == "tile::scatter4");
  op.address(0, l.operand(1), Space::Shared);
}

void lower_tensor_prefetch(Lowering& l, const Match& m) {
  optional_mask(l, 1, false, m.has("hint"));
  auto op = l.emit(handlers::tensor_copy("prefetch"));
  op.op().aux = 0;
  tensor_operand(l, op, m, l.operand(0), m.get("mode") == "tile::gather4");
}

namespace {

void emit_bulk(Lowering& l, const Match& m, const char* kind, const Operand& shared, const Operand& other,
               Space other_space, const Operand* barrier, const Operand* mask, uint32_t mask_flag) {
  auto op = l.emit(handlers::bulk_copy(kind));
  op.aux(static_cast<uint32_t>(reduce_op(m.get("op"))) | static_cast<uint32_t>(reduce_type(m.type())) << 4 |
         (mask ? mask_flag : 0));
  op.src(2, l.operand(2), Type::U32);
  if (mask) op.list_src(*mask, Type::B16);
  if (barrier) op.second_address(3, *barrier);
  const uint32_t barrier_offset = op.op().mode;
  op.second_address(1, other, other_space);
  op.op().dst2 = op.op().mode;  // offset of the second address
  op.op().mode = barrier_offset;
  op.address(0, shared, Space::Shared);
}

}  // namespace

// [shared], [global], size, [mbarrier] {, mask} {, policy}
void lower_bulk_load(Lowering& l, const Match& m) {
  const Operand* mask = optional_mask(l, 4, m.has("multicast"), m.has("hint"));
  emit_bulk(l, m, "load", l.operand(0), l.operand(1), Space::Global, &l.operand(3), mask, 0x100);
}

// [shared::cluster], [shared::cta], size, [mbarrier]
void lower_bulk_dsmem(Lowering& l, const Match& m) {
  emit_bulk(l, m, "dsmem", l.operand(0), l.operand(1), Space::Shared, &l.operand(3), nullptr, 0);
}

// [global], [shared], size {, policy} {, byte mask}
void lower_bulk_store(Lowering& l, const Match& m) {
  const size_t extra = l.operands() - 3, need = (m.has("hint") ? 1 : 0) + (m.has("mask") ? 1 : 0);
  if (extra != need) l.fail(fmt::format("{} operands at the end, the modifiers ask for {}", extra, need));
  const Operand* mask = m.has("mask") ? &l.operand(l.operands() - 1) : nullptr;
  emit_bulk(l, m, "store", l.operand(1), l.operand(0), Space::Global, nullptr, mask, 0x200);
}

void lower_bulk_commit(Lowering& l, const Match&) { l.emit(handlers::bulk_commit()); }

void lower_bulk_wait(Lowering& l, const Match& m) {
  const int64_t n = l.integer(l.operand(0), "the number of bulk groups");
  if (n < 0 || n > 0xffffffffll) l.fail(l.operand(0), "this is no number of bulk groups");
  l.emit(handlers::bulk_wait()).imm(n).aux(m.has("read"));
}

// [map], {index,} value: src0 address, src1 value; aux: field, and its index in bits 8-10.
void lower_tensormap_replace(Lowering& l, const Match& m) {
  static constexpr std::string_view kFields[] = {
      "global_address", "rank",     "box_dim",           "global_dim",   "global_stride",
      "element_stride", "elemtype", "interleave_layout", "swizzle_mode", "swizzle_atomicity",
      "fill_mode"};
  uint32_t field = 0;
  while (m.get("field") != kFields[field]) ++field;
  const bool indexed = field >= 2 && field <= 5, constant = field >= 6, wide = field == 0 || field == 4;
  if (l.operands() != (indexed ? 3u : 2u))
    l.fail(fmt::format("'{}' takes {}", l.spelled(), indexed ? "an index and a value" : "a value"));
  if (wide != (m.get("t") == "b64"))
    l.fail(fmt::format(".{} is a .{}", m.get("field"), wide ? "b64" : "b32"));
  const Operand& value = l.operand(l.operands() - 1);
  int64_t index = 0;
  if (indexed) {
    index = l.integer(l.operand(1), "the index of the field");
    if (index < 0 || index > (field == 4 ? 3 : 4)) l.fail(l.operand(1), "there is no such dimension");
  }
  if (constant) l.integer(value, "the value of this field");
  const bool shared = m.get("space") == "shared::cta", generic = !m.has("space");
  auto op = l.emit(handlers::tensormap_replace(generic  ? Space::Generic
                                               : shared ? Space::Shared
                                                        : Space::Global));
  op.aux(field | static_cast<uint32_t>(index) << 8).src(1, value, wide ? Type::B64 : Type::B32);
  op.address(0, l.operand(0), generic ? Space::Generic : shared ? Space::Shared : Space::Global);
}

// [global], [shared], 128
void lower_tensormap_copy(Lowering& l, const Match&) {
  if (l.integer(l.operand(2), "the size of a tensor map") != 128)
    l.fail(l.operand(2), "a tensor map has 128 bytes");
  auto op = l.emit(handlers::tensormap_copy());
  op.second_address(1, l.operand(0), Space::Global);
  op.address(0, l.operand(1), Space::Shared);
}

}  // namespace mxfa::emulator::ptx
