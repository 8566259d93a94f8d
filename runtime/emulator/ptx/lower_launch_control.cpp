// clusterlaunchcontrol: operands for core/exec_launch_control.cpp.
#include "core/handlers.hpp"
#include "ptx/lower.hpp"
#include "ptx/lower_families.hpp"

namespace mxfa::emulator::ptx {

// [response], [mbarrier]
void lower_try_cancel(Lowering& l, const Match& m) {
  const bool generic = !m.has("space");
  auto op = l.emit(handlers::launch_try_cancel());
  op.aux(m.has("multicast"));
  const Space space = generic ? Space::Generic : Space::Shared;
  op.address(1, l.operand(1), space);
  op.mode(static_cast<uint32_t>(op.op().imm));
  op.op().flags = 0;
  op.address(0, l.operand(0), space).flag(kGenericAddress, generic);
}

void lower_query_cancel(Lowering& l, const Match& m) {
  const std::string_view what = m.get("op");
  if (what == "is_canceled") {
    if (m.get("t") != "pred" || m.has("vec")) l.fail("is_canceled gives one predicate");
    l.emit(handlers::launch_is_canceled()).src(0, l.operand(1), Type::B128).dst_pred(l.operand(0));
    return;
  }
  const bool vector = what == "get_first_ctaid";
  if (m.get("t") != "b32" || m.has("vec") != vector)
    l.fail("get_first_ctaid gives .v4.b32, or one .b32 with ::x, ::y, ::z");
  if (vector && l.elements(l.operand(0)).size() != 4) l.fail(l.operand(0), "four registers are needed here");
  auto op = l.emit(handlers::launch_first_cta());
  op.aux(vector ? 0 : static_cast<uint32_t>(what.back() - 'x'));
  op.src(0, l.operand(1), Type::B128);
  op.list_dst(l.operand(0), 32);
}

}  // namespace mxfa::emulator::ptx
