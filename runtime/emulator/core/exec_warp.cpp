// Warp-level collectives: shfl, vote, match, redux, elect, bar.warp.sync, activemask (PTX ISA 9.7.9, 9.7.13).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/exec.hpp"
#include "core/formats.hpp"
#include "core/handlers.hpp"
#include "core/observer.hpp"
#include "core/results.hpp"
#include "core/simt.hpp"

namespace mxfa::emulator {
namespace {

uint32_t executing(const Exec& x, const Fragment& f) {
  const MicroOp& op = x.program->code[f.pc];
  return f.mask & (x.predicates[op.guard] ^ op.guard_xor);
}

// Lanes of `lanes` whose member mask is the one of the lowest.
uint32_t same_members(const Row& members, uint32_t lanes) {
  const uint32_t mask = members.lane[lowest_lane(lanes)];
  uint32_t same = 0;
  for (uint32_t m = lanes; m; m &= m - 1)
    if (members.lane[lowest_lane(m)] == mask) same |= m & (0 - m);
  return same;
}

// Runs `body` once all live lanes of the member mask execute the instruction.  Lanes with different member
// masks (tiles of a warp) form groups of their own.  Diverged fragments wait for each other; the last one to
// come executes for all.  same_pc: the instruction must be the same one (bar.warp.sync may be reached at
// different places).
template <class Body>
Step collective(Exec& x, uint32_t members_register, bool same_pc, Body body) {
  Warp& warp = *x.warp;
  const Row members_of = x.src(members_register);  // a copy: the body may write the register
  const uint32_t executing_lanes = x.mask;
  bool complete = true;
  for (uint32_t rest = executing_lanes; rest;) {
    const uint32_t group = same_members(members_of, rest), members = members_of.lane[lowest_lane(group)];
    if (group & ~members)
      throw Fault(result::kLaunchFailed,
                  fmt::format("lanes {:#x} execute a collective whose member mask {:#x} does not name them",
                              group & ~members, members));
    complete = complete && !(members & warp.alive & ~group);
    rest &= ~group;
  }
  if (complete) {
    x.current().wait.kind = Wait::Kind::None;
    for (uint32_t rest = executing_lanes; rest; rest &= ~x.mask) {
      x.mask = same_members(members_of, rest);
      body();
    }
    if (x.observed) {
      x.leave();
      observe(*x.grid, [&](Observer& o) { o.warp_sync(warp, executing_lanes); });
    }
    return Step::Continue;
  }
  // Some group waits for lanes elsewhere: groups go on as fragments of their own.
  const uint32_t group = same_members(members_of, executing_lanes);
  if (group != executing_lanes) {
    const std::vector<uint32_t> calls = x.current().calls;
    simt::add_fragment(warp, x.at, executing_lanes & ~group, x.token, calls);
    x.active &= ~(executing_lanes & ~group);
    x.mask = group;
  }
  const uint32_t members = members_of.lane[lowest_lane(group)], needed = members & warp.alive;
  uint32_t together = group;
  std::vector<uint32_t> others;
  for (uint32_t k = 0; k < warp.fragments.size(); ++k) {
    const Fragment& f = warp.fragments[k];
    if (k == x.fragment || !f.mask || f.wait.kind != Wait::Kind::WarpSync || f.wait.address != members)
      continue;
    if (same_pc && f.pc != x.at) continue;
    together |= executing(x, f);
    others.push_back(k);
  }
  if (needed & ~together) return x.block(Wait::Kind::WarpSync, members);
  x.mask = together;
  body();
  if (x.observed) {
    x.leave();
    observe(*x.grid, [&](Observer& o) { o.warp_sync(warp, together); });
  }
  for (const uint32_t k : others) {
    ++warp.fragments[k].pc;
    warp.fragments[k].wait.kind = Wait::Kind::None;
  }
  x.current().wait.kind = Wait::Kind::None;
  ++x.cluster->epoch;
  ++x.progress;
  return Step::Sync;
}

enum Mode : uint32_t { kUp, kDown, kButterfly, kIndex };

// src0 value, src1 b, src2 c, src3 member mask; dst value, dst2 predicate or kNoRow.
template <Mode kMode>
Step shuffle_lanes(Exec& x, const MicroOp& op) {
  return collective(x, op.src[3], true, [&] {
    const Row value = x.src(op.src[0]);  // a copy: destination may be the source
    const uint32_t* b = x.src(op.src[1]).lane;
    const uint32_t* c = x.src(op.src[2]).lane;
    auto* d = x.dst(op.dst).lane;
    uint32_t in_range = 0, inactive = 0;
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      if (!(x.mask >> lane & 1)) continue;
      const uint32_t distance = b[lane] & 31, clamp = c[lane] & 31, segment = c[lane] >> 8 & 31;
      const uint32_t highest = (lane & segment) | (clamp & ~segment), lowest = lane & segment;
      int32_t from;
      bool ok;
      switch (kMode) {
        case kUp:
          from = static_cast<int32_t>(lane - distance), ok = from >= static_cast<int32_t>(highest);
          break;
        case kDown:
          from = static_cast<int32_t>(lane + distance), ok = from <= static_cast<int32_t>(highest);
          break;
        case kButterfly:
          from = static_cast<int32_t>(lane ^ distance), ok = from <= static_cast<int32_t>(highest);
          break;
        default:
          from = static_cast<int32_t>(lowest | (distance & ~segment)),
          ok = from <= static_cast<int32_t>(highest);
          break;
      }
      if (!ok) from = static_cast<int32_t>(lane);
      in_range |= static_cast<uint32_t>(ok) << lane;
      if (!(x.mask >> from & 1)) inactive |= 1u << lane;
      d[lane] = value.lane[from];
    }
    if (inactive)
      throw Fault(result::kLaunchFailed,
                  fmt::format("shfl.sync: lanes {:#x} read lanes that do not take part (executing: {:#x})",
                              inactive, x.mask));
    if (op.dst2 != kNoRow) x.set_pred(op.dst2, in_range);
  });
}

enum VoteMode : uint32_t { kAll, kAny, kUni, kBallot };
template <VoteMode kMode>
Step vote_lanes(Exec& x, const MicroOp& op) {  // src0 predicate, src1 member mask
  return collective(x, op.src[1], true, [&] {
    const uint32_t votes = x.pred(op.src[0]) & x.mask;
    if (kMode == kBallot) {
      for_lanes<uint32_t>(x.mask, lanes<uint32_t>(x.dst(op.dst)), [=](int) { return votes; });
      return;
    }
    const bool result = kMode == kAll   ? votes == x.mask
                        : kMode == kAny ? votes != 0
                                        : votes == 0 || votes == x.mask;
    x.set_pred(op.dst, result ? ~0u : 0u);
  });
}

template <class T, bool kMatchAll>
Step match_lanes(Exec& x, const MicroOp& op) {  // src0 value, src1 member mask
  return collective(x, op.src[1], true, [&] {
    const auto* a = lanes<T>(x.src(op.src[0]));
    Row result{};
    bool all = true;
    for (uint32_t i = 0; i < kLanes; ++i) {
      if (!(x.mask >> i & 1)) continue;
      for (uint32_t k = 0; k < kLanes; ++k)
        if ((x.mask >> k & 1) && a[k] == a[i]) result.lane[i] |= 1u << k;
      all = all && result.lane[i] == x.mask;
    }
    const uint32_t mask = x.mask;
    const auto* r = result.lane;
    if (kMatchAll) {
      const uint32_t value = all ? mask : 0;
      for_lanes<uint32_t>(mask, lanes<uint32_t>(x.dst(op.dst)), [=](int) { return value; });
      if (op.dst2 != kNoRow) x.set_pred(op.dst2, all ? ~0u : 0u);
    } else {
      for_lanes<uint32_t>(mask, lanes<uint32_t>(x.dst(op.dst)), [=](int i) { return r[i]; });
    }
  });
}

Step active(Exec& x, const MicroOp& op) {
  const uint32_t value = x.mask;
  for_lanes<uint32_t>(x.mask, lanes<uint32_t>(x.dst(op.dst)), [=](int) { return value; });
  return Step::Continue;
}

template <class T, class F>
Step reduce_lanes(Exec& x, const MicroOp& op) {  // src0 value, src1 member mask
  return collective(x, op.src[1], true, [&] {
    const auto* a = lanes<T>(x.src(op.src[0]));
    uint32_t m = x.mask;
    T value = a[std::countr_zero(m)];
    for (m &= m - 1; m; m &= m - 1) value = F{}(value, static_cast<T>(a[std::countr_zero(m)]));
    for_lanes<T>(x.mask, lanes<T>(x.dst(op.dst)), [=](int) { return value; });
  });
}
template <class T, class F>
Handler reduction(F) {
  return &reduce_lanes<T, F>;
}

// min/max of floats: NaN is skipped unless .NaN; +0 > -0; the result of nothing but NaN is canonical.
template <bool kMax, bool kAbs, bool kNan>
Step reduce_floats(Exec& x, const MicroOp& op) {
  return collective(x, op.src[1], true, [&] {
    x.set_mode(kModeDefault);
    const auto* a = lanes<float>(x.src(op.src[0]));
    bool any = false, nan = false;
    float best = 0;
    for (uint32_t m = x.mask; m; m &= m - 1) {
      const float v = kAbs ? std::fabs(a[std::countr_zero(m)]) : static_cast<float>(a[std::countr_zero(m)]);
      if (v != v) {
        nan = true;
        continue;
      }
      const bool better =
          kMax ? v > best || (v == best && !std::signbit(v)) : v < best || (v == best && std::signbit(v));
      if (!any || better) best = v;
      any = true;
    }
    const float value = !any || (kNan && nan) ? std::bit_cast<float>(kNan32) : best;
    for_lanes<float>(x.mask, lanes<float>(x.dst(op.dst)), [=](int) { return value; });
  });
}
template <bool kMax>
Handler float_reduction(bool absolute, bool nan) {
  if (absolute) return nan ? &reduce_floats<kMax, true, true> : &reduce_floats<kMax, true, false>;
  return nan ? &reduce_floats<kMax, false, true> : &reduce_floats<kMax, false, false>;
}

// PTX promises one deterministic leader per member mask, not which.  Devices take the lowest lane
// (docs/silicon.md) and FlashAttention-3 relies on it; Split, one that depends on the seed.
uint32_t leader_of(const Exec& x, uint32_t members) {
  uint32_t lanes = x.mask;
  if (x.grid->schedule.kind == Schedule::Kind::Split) {
    const uint64_t skip = x.grid->random.of(members) % static_cast<uint32_t>(std::popcount(lanes));
    for (uint64_t k = 0; k < skip; ++k) lanes &= lanes - 1;
  }
  return static_cast<uint32_t>(lowest_lane(lanes));
}
Step elect_lane(Exec& x, const MicroOp& op) {  // src0 member mask; dst lane number, dst2 predicate
  return collective(x, op.src[0], true, [&] {
    const uint32_t leader = leader_of(x, x.src(op.src[0]).lane[x.first_lane()]);
    for_lanes<uint32_t>(x.mask, lanes<uint32_t>(x.dst(op.dst)), [=](int) { return leader; });
    x.set_pred(op.dst2, 1u << leader);
  });
}

Step sync_lanes(Exec& x, const MicroOp& op) {
  return collective(x, op.src[0], false, [] {});
}

}  // namespace

namespace handlers {

Handler shuffle(std::string_view mode) {
  if (mode == "up") return &shuffle_lanes<kUp>;
  if (mode == "down") return &shuffle_lanes<kDown>;
  return mode == "bfly" ? &shuffle_lanes<kButterfly> : &shuffle_lanes<kIndex>;
}
Handler vote(std::string_view mode) {
  if (mode == "all") return &vote_lanes<kAll>;
  if (mode == "any") return &vote_lanes<kAny>;
  return mode == "uni" ? &vote_lanes<kUni> : &vote_lanes<kBallot>;
}
Handler match(bool all, bool wide) {
  if (all) return wide ? &match_lanes<uint64_t, true> : &match_lanes<uint32_t, true>;
  return wide ? &match_lanes<uint64_t, false> : &match_lanes<uint32_t, false>;
}
Handler active_mask() { return &active; }
Handler reduce(std::string_view op, Type type, bool absolute, bool nan) {
  if (type == Type::F32) {
    if (op == "min") return float_reduction<false>(absolute, nan);
    return op == "max" ? float_reduction<true>(absolute, nan) : nullptr;
  }
  if (op == "add") return reduction<uint32_t>([](uint32_t a, uint32_t b) { return a + b; });
  if (op == "and") return reduction<uint32_t>([](uint32_t a, uint32_t b) { return a & b; });
  if (op == "or") return reduction<uint32_t>([](uint32_t a, uint32_t b) { return a | b; });
  if (op == "xor") return reduction<uint32_t>([](uint32_t a, uint32_t b) { return a ^ b; });
  if (type == Type::S32) {
    if (op == "min") return reduction<int32_t>([](int32_t a, int32_t b) { return std::min(a, b); });
    return reduction<int32_t>([](int32_t a, int32_t b) { return std::max(a, b); });
  }
  if (op == "min") return reduction<uint32_t>([](uint32_t a, uint32_t b) { return std::min(a, b); });
  return reduction<uint32_t>([](uint32_t a, uint32_t b) { return std::max(a, b); });
}
Handler elect() { return &elect_lane; }
Handler warp_sync() { return &sync_lanes; }

}  // namespace handlers
}  // namespace mxfa::emulator
