// mma.sync and wgmma: operands are decoded here, the work is done by engines/.  Both belong to whole warps.
#include <fmt/format.h>

#include "core/aligned.hpp"
#include "core/exec.hpp"
#include "core/handlers.hpp"
#include "core/observer.hpp"
#include "core/results.hpp"
#include "engines/warp_mma.hpp"
#include "engines/wgmma.hpp"

namespace mxfa::emulator {
namespace {

Format format_at(uint32_t aux, int bit) { return static_cast<Format>(aux >> bit & 15); }
bool bit(uint32_t aux, int at) { return aux >> at & 1; }

// The tensor core works on all 32 lanes.
void require_full_warp(Exec& x, const char* what) {
  require_whole_warp(x);
  if (!full(x.mask))
    throw Fault(result::kLaunchFailed,
                fmt::format("{} by a warp of which only lanes {:#010x} exist or are left", what, x.mask));
}

template <class T>
T same_in_all(const Exec& x, uint32_t source, const char* what) {
  const T* v = lanes<T>(x.src(source));
  for (int i = 1; i < kLanes; ++i)
    if (v[i] != v[0])
      throw Fault(result::kLaunchFailed, fmt::format("{} differs between the lanes of a warp", what));
  return v[0];
}

// List: D, A, B, C; aux: bits 0-3 type of A, 4-7 of B, 8 as two products of f16,
// 14 f16 result, 15 satfinite, 16-19 registers of A,
// 20-23 of B, 24-27 of C and D.
Step multiply(Exec& x, const MicroOp& op) {
  require_full_warp(x, "mma.sync");
  x.leave();
  const uint32_t* list = x.lists + op.list;
  const uint32_t a_count = op.aux >> 16 & 15, b_count = op.aux >> 20 & 15, d_count = op.aux >> 24 & 15;
  Row* d[4];
  Row sinks[4];
  const Row* s[12];
  for (uint32_t k = 0; k < d_count; ++k) d[k] = list[k] == kNoRow ? &sinks[k] : &x.dst(list[k]);
  for (uint32_t k = 0; k < a_count + b_count + d_count; ++k) s[k] = &x.src(list[d_count + k]);
  const std::span<const Row* const> sources(s, a_count + b_count + d_count);
  warp_mma(*x.warp,
           {format_at(op.aux, 0), format_at(op.aux, 4), bit(op.aux, 14), bit(op.aux, 15), bit(op.aux, 8)},
           std::span<Row* const>(d, d_count), sources.first(a_count), sources.subspan(a_count, b_count),
           sources.last(d_count));
  return Step::Continue;
}

// Operands as lower_wgmma lays them out.
Step multiply_warpgroup(Exec& x, const MicroOp& op) {
  require_full_warp(x, "wgmma.mma_async");
  x.leave();
  const uint32_t* list = x.lists + op.list;
  Wgmma w;
  w.a = format_at(op.aux, 0);
  w.b = format_at(op.aux, 4);
  w.n = static_cast<int>(op.aux >> 8 & 63) * 8;
  w.f16_result = bit(op.aux, 14);
  w.saturate = bit(op.aux, 15);
  w.negate_a = bit(op.aux, 16);
  w.negate_b = bit(op.aux, 17);
  w.a_mn_major = bit(op.aux, 18);
  w.b_mn_major = bit(op.aux, 19);
  w.a_in_registers = bit(op.aux, 20);
  const uint32_t enabled = x.pred(op.src[0]);
  if (enabled != 0 && enabled != kFullMask)
    throw Fault(result::kLaunchFailed,
                "the scale-d predicate of a wgmma differs between the lanes of a warp");
  w.accumulate = enabled != 0;
  Row* d[128];
  for (uint32_t k = 0; k < op.mode; ++k) {
    if (list[k] == kNoRow) throw Fault(result::kLaunchFailed, "'_' is no accumulator register of a wgmma");
    d[k] = &x.dst(list[k]);
  }
  list += op.mode;
  const Row* a[4];
  if (w.a_in_registers)
    for (uint32_t k = 0; k < 4; ++k) a[k] = &x.src(list[k]);
  else
    w.a_descriptor = same_in_all<uint64_t>(x, list[0], "the descriptor of A");
  list += w.a_in_registers ? 4 : 1;
  w.b_descriptor = same_in_all<uint64_t>(x, list[0], "the descriptor of B");
  wgmma_issue(*x.warp, w, std::span<Row* const>(d, op.mode),
              std::span<const Row* const>(a, w.a_in_registers ? 4 : 0));
  ++x.progress;
  return Step::Sync;
}

// Registers are handed over at the issue and given back by the wait, so the fence has nothing to order here.
Step fence_warpgroup(Exec& x, const MicroOp&) {
  require_full_warp(x, "wgmma.fence");
  if (x.observed) {
    x.leave();
    observe(*x.grid, [&](Observer& o) { o.fence(*x.warp, {FenceKind::Wgmma, {}, false, false}); });
  }
  return Step::Continue;
}

Step commit_warpgroup(Exec& x, const MicroOp&) {
  require_full_warp(x, "wgmma.commit_group");
  x.leave();
  wgmma_commit(*x.warp);
  return Step::Continue;
}

Step wait_warpgroup(Exec& x, const MicroOp& op) {
  require_full_warp(x, "wgmma.wait_group");
  x.leave();
  if (!wgmma_wait(*x.warp, static_cast<uint32_t>(op.imm))) return x.block(Wait::Kind::Warpgroup);
  x.current().wait.kind = Wait::Kind::None;
  ++x.progress;
  return Step::Sync;
}

}  // namespace

namespace handlers {

Handler warp_mma() { return &multiply; }
Handler wgmma_multiply() { return &multiply_warpgroup; }
Handler wgmma_fence() { return &fence_warpgroup; }
Handler wgmma_commit() { return &commit_warpgroup; }
Handler wgmma_wait() { return &wait_warpgroup; }

}  // namespace handlers
}  // namespace mxfa::emulator
