// Branches, calls, barriers, warp collectives.
#include <fmt/format.h>

#include "core/handlers.hpp"
#include "core/observer.hpp"
#include "ptx/lower.hpp"
#include "ptx/lower_families.hpp"

namespace mxfa::emulator::ptx {

// The guard of a branch is its condition: the branch itself sees all lanes of the fragment.
void lower_bra(Lowering& l, const Match& m) {
  const Instruction& in = l.in();
  const bool conditional = in.guard >= 0;
  auto op = l.emit_unguarded(handlers::branch(conditional, m.has("uni")));
  if (conditional) {
    Operand p;
    p.kind = Operand::Kind::Register;
    p.index = in.guard;
    p.negated = in.guard_negated;
    p.position = in.position;
    op.src_pred(0, p);
  }
  op.aux(static_cast<uint32_t>(l.join_of_branch()));
  l.branch_to(op, l.operand(0).index);
}

void lower_brx(Lowering& l, const Match&) {
  if (l.in().guard >= 0) return l.refuse("a predicated brx.idx");
  const auto& targets = l.function().branch_targets[l.operand(1).index];
  if (targets.size() > 0xffff) l.fail(fmt::format("{} branch targets: at most 65535", targets.size()));
  auto op = l.emit(handlers::branch_table());
  op.src(0, l.operand(0), Type::U32);
  auto& lists = l.program().lists;
  op.op().list = static_cast<uint32_t>(lists.size());
  op.op().count = static_cast<uint16_t>(targets.size());
  for (const int32_t label : targets) {
    l.table_branch_to(op, static_cast<uint32_t>(lists.size()), label);
    lists.push_back(0);
  }
  op.aux(static_cast<uint32_t>(l.join_of_branch()));
  l.join_fixup(op);
}

// call (results), function, (arguments);  call (results), register, (arguments), prototype;
void lower_call(Lowering& l, const Match&) {
  if (l.in().guard >= 0) return l.refuse("a predicated call");
  size_t k = 0;
  const Operand *results = nullptr, *arguments = nullptr;
  if (l.operands() > k && l.operand(k).kind == Operand::Kind::List) results = &l.operand(k++);
  const Operand& target = l.operand(k++);
  if (l.operands() > k && l.operand(k).kind == Operand::Kind::List) arguments = &l.operand(k++);
  Program::Slots slots;
  const auto collect = [&](const Operand* list, std::vector<LoweredFunction::Slot>& out) {
    if (!list) return;
    for (const Operand& o : list->elements) {
      if (o.kind != Operand::Kind::Variable || l.module().variables[o.index].space != Space::Param)
        l.fail(o, "arguments and results of calls are .param variables");
      out.push_back(l.slot_of(o.index));
    }
  };
  collect(results, slots.results);
  collect(arguments, slots.arguments);
  const auto number = static_cast<uint32_t>(l.program().calls.size());
  l.program().calls.push_back(std::move(slots));
  if (target.kind == Operand::Kind::Function) {
    const Function& f = l.module().functions[target.index];
    if (f.name == "vprintf") {
      l.emit(handlers::vprintf_call()).aux(number);
      return;
    }
    if (f.name == "__assertfail") {
      l.emit(handlers::assert_fail_call()).aux(number);
      return;
    }
    if (!f.defined)
      l.fail(target, fmt::format("'{}' has no body: only vprintf and __assertfail are built in", f.name));
    l.note_call(target.index);
    l.emit(handlers::call()).aux(number).imm(target.index);
  } else if (target.kind == Operand::Kind::Register) {
    // Any function may be the target: the caller's rows lie behind those of all functions.
    for (size_t f = 0; f < l.module().functions.size(); ++f)
      if (!l.module().functions[f].entry && l.module().functions[f].defined &&
          static_cast<int32_t>(f) != l.function_index())
        l.note_call(static_cast<int32_t>(f));
    l.emit(handlers::call_indirect()).aux(number).src(0, target, Type::U64);
  } else {
    l.fail(target, "this cannot be called");
  }
  l.emit(handlers::join());  // where the lanes of the call meet again
}

void lower_ret(Lowering& l, const Match&) { l.emit(handlers::leave(l.is_entry())); }
void lower_exit(Lowering& l, const Match&) { l.emit(handlers::exit_lanes()); }
void lower_trap(Lowering& l, const Match&) { l.emit(handlers::trap()); }
void lower_nanosleep(Lowering& l, const Match&) { l.emit(handlers::nanosleep()); }

void lower_barrier(Lowering& l, const Match& m) {
  const bool arrive = m.get("op") == "arrive";
  if (arrive && l.operands() < 2) l.fail("an arrival needs a thread count");
  auto op = l.emit(handlers::barrier(arrive ? handlers::BarrierOp::Arrive : handlers::BarrierOp::Sync));
  op.flag(kAligned, l.in().opcode == "bar" || m.has("aligned"));  // bar.X is barrier.X.aligned
  op.src(0, l.operand(0), Type::U32);
  if (l.operands() > 1) op.src(1, l.operand(1), Type::U32);
}

void lower_barrier_red(Lowering& l, const Match& m) {
  const std::string_view kind = m.get("op");
  const bool popc = kind == "popc";
  if (popc != (m.type() == Type::U32))
    l.fail("bar.red.popc counts into .u32, bar.red.and and .or into .pred");
  auto op = l.emit(handlers::barrier(popc            ? handlers::BarrierOp::RedPopc
                                     : kind == "and" ? handlers::BarrierOp::RedAnd
                                                     : handlers::BarrierOp::RedOr));
  op.flag(kAligned, l.in().opcode == "bar" || m.has("aligned"));
  op.src(0, l.operand(1), Type::U32);
  if (l.operands() == 4) op.src(1, l.operand(2), Type::U32);
  op.src_pred(2, l.operand(l.operands() - 1));
  if (popc)
    op.dst(l.operand(0), 32);
  else
    op.dst_pred(l.operand(0));
}

void lower_warp_sync(Lowering& l, const Match&) {
  l.emit(handlers::warp_sync()).src(0, l.operand(0), Type::U32);
}

void lower_cluster_barrier(Lowering& l, const Match& m) {
  l.emit(m.get("op") == "arrive" ? handlers::cluster_arrive() : handlers::cluster_wait())
      .aux(m.get("sem") == "relaxed")
      .flag(kAligned, m.has("aligned"));
}

// Fences, griddepcontrol (without dependent launches both halves are no-operations) and membar.
void lower_fence(Lowering& l, const Match& m) {
  const std::string_view opcode = l.in().opcode, sem = m.get("sem"), scope = m.get("scope"),
                         space = m.get("space");
  Order order{sem == "acquire"   ? Semantics::Acquire
              : sem == "release" ? Semantics::Release
                                 : Semantics::AcquireRelease,
              scope == "cta" || m.get("level") == "cta"  ? Scope::Cta
              : scope == "cluster"                       ? Scope::Cluster
              : scope == "gpu" || m.get("level") == "gl" ? Scope::Gpu
                                                         : Scope::Sys};
  const bool async = m.get("kind") == "async";
  const FenceKind kind = opcode == "griddepcontrol"
                             ? m.get("op") == "wait" ? FenceKind::GridWait : FenceKind::GridLaunch
                         : m.form->modifiers.starts_with("mbarrier_init")        ? FenceKind::MbarrierInit
                         : m.form->modifiers.starts_with("proxy async::generic") ? FenceKind::ProxyAsyncOrder
                         : async                                                 ? FenceKind::ProxyAsync
                         : m.form->modifiers.starts_with("proxy")                ? FenceKind::ProxyOther
                                                                                 : FenceKind::Thread;
  const bool shared = space.empty() || space.starts_with("shared"),
             global = space.empty() || space == "global";
  l.emit(handlers::fence())
      .aux(static_cast<uint32_t>(kind))
      .mode((shared ? 1u : 0u) | (global && kind != FenceKind::ProxyAsyncOrder ? 2u : 0u))
      .flag(encode_order(order));
}

void lower_setmaxnreg(Lowering& l, const Match& m) {
  const int64_t n = l.integer(l.operand(0), "the register count");
  if (n < 24 || n > 256 || n % 8) l.fail(l.operand(0), "setmaxnreg takes a multiple of 8 from 24 to 256");
  l.emit(handlers::set_max_registers(m.get("op") == "inc")).imm(n);
}

void lower_vote(Lowering& l, const Match& m) {
  auto op = l.emit(handlers::vote(m.get("mode")));
  op.src_pred(0, l.operand(1)).src(1, l.operand(2), Type::U32);
  if (m.get("mode") == "ballot")
    op.dst(l.operand(0), 32);
  else
    op.dst_pred(l.operand(0));
}

void lower_match(Lowering& l, const Match& m) {
  const bool all = m.get("mode") == "all";
  auto op = l.emit(handlers::match(all, bits(m.type()) == 64));
  op.src(0, l.operand(1), m.type()).src(1, l.operand(2), Type::U32);
  const Operand& d = l.operand(0);
  if (d.kind == Operand::Kind::Pair) {
    if (!all) l.fail(d, "match.any has no predicate");
    op.dst(d.elements[0], 32).dst2_pred(d.elements[1]);
  } else {
    op.dst(d, 32);
  }
}

void lower_activemask(Lowering& l, const Match&) { l.emit(handlers::active_mask()).dst(l.operand(0), 32); }

void lower_redux(Lowering& l, const Match& m) {
  const Handler h = handlers::reduce(m.get("op"), m.type(), m.has("abs"), m.has("NaN"));
  if (!h) l.fail(fmt::format("'{}' does not exist", l.spelled()));
  l.emit(h).src(0, l.operand(1), m.type()).src(1, l.operand(2), Type::U32).dst(l.operand(0), 32);
}

void lower_shfl(Lowering& l, const Match& m) {
  auto op = l.emit(handlers::shuffle(m.get("mode")));
  op.src(0, l.operand(1), Type::B32)
      .src(1, l.operand(2), Type::U32)
      .src(2, l.operand(3), Type::U32)
      .src(3, l.operand(4), Type::U32);
  const Operand& d = l.operand(0);
  if (d.kind == Operand::Kind::Pair)
    op.dst(d.elements[0], 32).dst2_pred(d.elements[1]);
  else
    op.dst(d, 32);
}

void lower_elect(Lowering& l, const Match&) {
  const Operand& d = l.operand(0);
  if (d.kind != Operand::Kind::Pair) l.fail(d, "elect.sync needs d|p");
  l.emit(handlers::elect()).src(0, l.operand(1), Type::U32).dst(d.elements[0], 32).dst2_pred(d.elements[1]);
}

}  // namespace mxfa::emulator::ptx
