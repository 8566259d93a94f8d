// clusterlaunchcontrol: a running cluster takes over the work of one that has not started.
#include "core/exec.hpp"
#include "core/handlers.hpp"
#include "core/memory_access.hpp"
#include "core/results.hpp"
#include "engines/engines.hpp"

namespace mxfa::emulator {
namespace {

// src0 response (imm), src1 mbarrier (mode: its offset); aux: multicast; kGenericAddress: both have 64 bits.
Step try_cancel(Exec& x, const MicroOp& op) {
  x.leave();
  ++x.progress;
  const bool generic = op.flags & kGenericAddress;
  for (uint32_t m = x.mask; m; m &= m - 1) {
    const int lane = std::countr_zero(m);
    const uint32_t response = to_shared_address(x, lane_address(x, op, lane), generic);
    const uint64_t barrier = generic ? lanes<uint64_t>(x.src(op.src[1]))[lane] : x.src(op.src[1]).lane[lane];
    launch_try_cancel(*x.warp, lane, response, to_shared_address(x, barrier + op.mode, generic), op.aux != 0);
  }
  return Step::Sync;
}

LaunchResponse response_of(const Exec& x, const MicroOp& op, int lane) {
  LaunchResponse r;
  std::memcpy(r.data(), reinterpret_cast<const uint8_t*>(&x.src(op.src[0])) + 16 * lane, sizeof r);
  return r;
}

Step is_canceled(Exec& x, const MicroOp& op) {
  x.leave();
  uint32_t granted = 0;
  for (uint32_t m = x.mask; m; m &= m - 1) {
    const int lane = std::countr_zero(m);
    granted |= static_cast<uint32_t>(launch_is_canceled(*x.cluster, response_of(x, op, lane))) << lane;
  }
  x.set_pred(op.dst, granted);
  return Step::Continue;
}

// List: registers of x, y, z (and one that is left alone), or one register and aux = which.
Step first_cta(Exec& x, const MicroOp& op) {
  x.leave();
  for (uint32_t m = x.mask; m; m &= m - 1) {
    const int lane = std::countr_zero(m);
    const LaunchResponse r = response_of(x, op, lane);
    if (!launch_is_canceled(*x.cluster, r))
      throw Fault(
          result::kIllegalInstruction,
          "clusterlaunchcontrol.query_cancel.get_first_ctaid of a refused request: the result is undefined "
          "(PTX ISA 9.7.13.18)");
    for (uint32_t k = 0; k < op.count; ++k) {
      const uint32_t row = x.lists[op.list + k], which = op.aux + k;
      if (row != kNoRow) x.dst(row).lane[lane] = which < 3 ? r[1 + which] : 0;
    }
  }
  return Step::Continue;
}

}  // namespace

namespace handlers {

Handler launch_try_cancel() { return &try_cancel; }
Handler launch_is_canceled() { return &is_canceled; }
Handler launch_first_cta() { return &first_cta; }

}  // namespace handlers
}  // namespace mxfa::emulator
