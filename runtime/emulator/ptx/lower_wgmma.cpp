// wgmma and mma.sync: operands in the order that core/exec_mma.cpp expects, and how long the registers of a
// wgmma must be kept.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/handlers.hpp"
#include "engines/matrix_descriptor.hpp"
#include "ptx/lower.hpp"
#include "ptx/lower_families.hpp"

namespace mxfa::emulator::ptx {
namespace {

Format format_of(std::string_view type) {
  if (type == "f16") return Format::F16;
  if (type == "bf16") return Format::BF16;
  if (type == "tf32") return Format::TF32;
  if (type == "e4m3") return Format::E4M3;
  if (type == "e5m2") return Format::E5M2;
  return type == "u8" ? Format::U8 : Format::S8;
}
bool is_integer(Format f) { return f == Format::U8 || f == Format::S8; }
bool is_fp8(Format f) { return f == Format::E4M3 || f == Format::E5M2; }

// Which operand types go together: 16-bit floats and tf32 with themselves, fp8 and 8-bit integers in any
// mixture.
bool types_fit(Format a, Format b, std::string_view d) {
  if (is_integer(a)) return is_integer(b) && d == "s32";
  if (is_fp8(a)) return is_fp8(b) && (d == "f32" || d == "f16");
  return a == b && (d == "f32" || (d == "f16" && a == Format::F16));
}

uint32_t number_after(std::string_view text, char letter) {
  uint32_t n = 0;
  for (size_t i = text.find(letter) + 1; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i)
    n = 10 * n + static_cast<uint32_t>(text[i] - '0');
  return n;
}

const Operand& vector_of(Lowering& l, const Operand& o, size_t wanted, const char* what) {
  if (o.kind != Operand::Kind::Vector) l.fail(o, fmt::format("{} is a vector of registers in braces", what));
  if (o.elements.size() != wanted)
    l.fail(o, fmt::format("{} has {} registers here, {} are needed", what, o.elements.size(), wanted));
  return o;
}

bool flag_operand(Lowering& l, size_t k, int64_t off, const char* what) {
  const int64_t v = l.integer(l.operand(k), what);
  if (v != 1 && v != off) l.fail(l.operand(k), fmt::format("{} is 1 or {}", what, off));
  return v == 1;
}

}  // namespace

// List: D, then A (four registers or a descriptor), then the descriptor of B, then D again where it is read;
// src0 the scale-d predicate; mode: registers of D.  aux: bits 0-3 type of A, 4-7 of B, 8-13 N / 8, 14 f16
// result, 15 satfinite, 16 and 17 negate A and B, 18 and 19 A and B MN-major, 20 A in registers.
void lower_wgmma(Lowering& l, const Match& m) {
  const Format a = format_of(m.get("a")), b = format_of(m.get("b"));
  const std::string_view shape = m.get("shape"), d = m.get("d");
  const uint32_t n = number_after(shape, 'n'), k = number_after(shape, 'k');
  if (!types_fit(a, b, d)) l.fail(fmt::format("'{}': these types do not go together", l.spelled()));
  if (k * static_cast<uint32_t>(format_bits(a)) != 256)
    l.fail(fmt::format("K of .{} is {} with these types", shape, 256 / format_bits(a)));
  if (n < 8 || n > 256 || n % 8 != 0 || (is_integer(a) && n % 16 != 0 && n != 8 && n != 24))
    l.fail(fmt::format("N of .{} is not a size of these types", shape));
  const bool satfinite = m.has("satfinite");
  if (satfinite && !is_integer(a)) l.fail(".satfinite goes with integers");

  const bool registers = l.operand(1).kind == Operand::Kind::Vector;
  const bool sixteen = a == Format::F16 || a == Format::BF16;
  const size_t signs = is_integer(a) ? 0 : 2, transposes = sixteen ? (registers ? 1 : 2) : 0;
  if (l.operands() != 4 + signs + transposes)
    l.fail(fmt::format("{} operands, {} are needed with these types", l.operands(), 4 + signs + transposes));
  uint32_t aux = static_cast<uint32_t>(a) | static_cast<uint32_t>(b) << 4 | n / 8 << 8 |
                 (d == "f16" ? 1u << 14 : 0) | (satfinite ? 1u << 15 : 0) | (registers ? 1u << 20 : 0);
  if (signs) {
    if (!flag_operand(l, 4, -1, "imm-scale-a")) aux |= 1u << 16;
    if (!flag_operand(l, 5, -1, "imm-scale-b")) aux |= 1u << 17;
  }
  if (transposes == 2 && flag_operand(l, 6, 0, "imm-trans-a")) aux |= 1u << 18;
  if (transposes && flag_operand(l, 5 + transposes, 0, "imm-trans-b")) aux |= 1u << 19;

  const uint32_t count = d == "f16" ? n / 4 : n / 2;
  const Operand& accumulator = vector_of(l, l.operand(0), count, "D");
  const Operand& scale_d = l.operand(3);
  auto op = l.emit(handlers::wgmma_multiply());
  op.aux(aux).mode(count).imm(l.unfenced());
  op.list_dst(accumulator, 32);
  if (registers)
    op.list_src(vector_of(l, l.operand(1), 4, "A"), Type::B32);
  else
    op.list_src(l.operand(1), Type::B64);
  op.list_src(l.operand(2), Type::B64);
  if (scale_d.kind != Operand::Kind::Integer || scale_d.value != 0) op.list_src(accumulator, Type::B32);
  op.src_pred(0, scale_d);
  l.mark_pending_wgmma(op);
}

void lower_wgmma_order(Lowering& l, const Match& m) {
  const std::string_view word = m.get("op");
  if ((word == "wait_group") != (l.operands() == 1)) l.fail("a number of groups goes with .wait_group");
  if (word == "fence") {
    l.emit(handlers::wgmma_fence());
  } else if (word == "commit_group") {
    auto op = l.emit(handlers::wgmma_commit());
    l.note_wgmma_order(op, -1);
  } else {
    const int64_t n = l.integer(l.operand(0), "the number of groups");
    // A register is followed through as many commits as any wait may leave open.
    if (n < 0 || n > 255) l.fail(l.operand(0), "the number of groups is 0 to 255");
    auto op = l.emit(handlers::wgmma_wait());
    op.imm(n);
    l.note_wgmma_order(op, n);
  }
}

// List: D, A, B, C; aux as core/exec_mma.cpp says.
void lower_warp_mma(Lowering& l, const Match& m) {
  const std::string_view shape = m.get("shape"), d = m.get("d");
  const Format a = format_of(m.get("a")), b = format_of(m.get("b"));
  const uint32_t k_bytes = number_after(shape, 'k') * static_cast<uint32_t>(format_bits(a)) / 8;
  if (!types_fit(a, b, d) || m.get("c") != d)
    l.fail(fmt::format("'{}': these types do not go together", l.spelled()));
  if (k_bytes != 16 && k_bytes != 32) l.fail(fmt::format("shape .{} does not exist for these types", shape));
  if (m.has("satfinite") && !is_integer(a)) l.fail(".satfinite goes with integers");
  const uint32_t a_count = k_bytes / 8, b_count = k_bytes / 16, d_count = d == "f16" ? 2 : 4;
  auto op = l.emit(handlers::warp_mma());
  op.aux(static_cast<uint32_t>(a) | static_cast<uint32_t>(b) << 4 | (d == "f16" ? 1u << 14 : 0) |
         (l.device().major == 9 && (a == Format::E4M3 || a == Format::E5M2) ? 1u << 8 : 0) |
         (m.has("satfinite") ? 1u << 15 : 0) | a_count << 16 | b_count << 20 | d_count << 24);
  op.list_dst(vector_of(l, l.operand(0), d_count, "D"), 32);
  op.list_src(vector_of(l, l.operand(1), a_count, "A"), Type::B32);
  op.list_src(vector_of(l, l.operand(2), b_count, "B"), Type::B32);
  op.list_src(vector_of(l, l.operand(3), d_count, "C"), d == "f32" ? Type::F32 : Type::B32);
}

void Lowering::mark_pending_wgmma(Op& op) {
  PendingLoad pending{op.index(), {}};
  for (auto r = references_.rbegin(); r != references_.rend() && r->op == op.index(); ++r)
    if (r->field == Reference::Field::List) pending.registers.push_back(r->reg);
  pending_wgmmas_.push_back(std::move(pending));
}

void Lowering::note_wgmma_order(Op& op, int64_t outstanding) {
  wgmma_order_.push_back({op.index(), outstanding});
}

// A wgmma reads A and writes D as late as the wait that covers it, on any path: wait_group N covers it once
// its own group and N more have been committed.  Those waits count as uses of the registers.
void Lowering::extend_pending_wgmmas() {
  if (pending_wgmmas_.empty()) return;
  int64_t most = 0;  // groups that any wait leaves outstanding: more commits than that make no difference
  for (const WgmmaOrder& o : wgmma_order_) most = std::max(most, o.outstanding);
  std::vector<std::vector<WgmmaOrder>> order(cfg_.blocks.size());
  for (const WgmmaOrder& o : wgmma_order_) order[block_of_op(o.op)].push_back(o);
  std::vector<Reference> extra;
  for (const PendingLoad& pending : pending_wgmmas_) {
    std::set<std::pair<int32_t, int64_t>> seen;
    struct State {
      int32_t block;
      uint32_t from;
      int64_t commits;
    };
    std::vector<State> work{{block_of_op(pending.op), pending.op, 0}};
    std::set<uint32_t> waits;
    while (!work.empty()) {
      State s = work.back();
      work.pop_back();
      bool covered = false;
      for (const WgmmaOrder& o : order[s.block]) {
        if (o.op < s.from) continue;
        if (o.outstanding < 0) {
          s.commits = std::min(s.commits + 1, most + 1);
        } else if (s.commits > o.outstanding) {
          waits.insert(o.op);
          covered = true;
          break;
        }
      }
      if (covered) continue;
      for (const int32_t next : cfg_.blocks[s.block].successors)
        if (next < static_cast<int32_t>(order.size()) && seen.emplace(next, s.commits).second)
          work.push_back({next, 0, s.commits});
    }
    for (const uint32_t w : waits)
      for (const uint32_t reg : pending.registers)
        extra.push_back({w, Reference::Field::List, false, ~0u, reg});
  }
  references_.insert(references_.end(), extra.begin(), extra.end());
}

}  // namespace mxfa::emulator::ptx
