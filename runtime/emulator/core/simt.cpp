// Divergence and reconvergence of the lanes of a warp.
#include "core/simt.hpp"

namespace mxfa::emulator::simt {
namespace {

constexpr uint32_t kNoToken = ~0u;

uint32_t new_token(Warp& warp, uint32_t pc, uint32_t expected, uint32_t parent,
                   const std::vector<uint32_t>& calls) {
  auto& tokens = warp.tokens;
  uint32_t t = 0;
  while (t < tokens.size() && tokens[t].used) ++t;
  if (t == tokens.size()) tokens.emplace_back();
  tokens[t].pc = pc;
  tokens[t].expected = expected;
  tokens[t].arrived = 0;
  tokens[t].parent = parent;
  tokens[t].used = true;
  tokens[t].calls = calls;
  return t;
}

// PTX promises no reconvergence at a join: under this schedule there is none.
bool splits(const Exec& x) { return x.grid->schedule.kind == Schedule::Kind::Split; }

bool same_place(const ConvergenceToken& t, uint32_t pc, const std::vector<uint32_t>& calls) {
  return t.pc == pc && t.calls == calls;
}

}  // namespace

uint32_t add_fragment(Warp& warp, uint32_t pc, uint32_t mask, uint32_t token,
                      const std::vector<uint32_t>& calls) {
  size_t k = 0;
  while (k < warp.fragments.size() && warp.fragments[k].mask != 0) ++k;
  if (k == warp.fragments.size()) warp.fragments.emplace_back();
  Fragment& f = warp.fragments[k];
  f = Fragment{};
  f.pc = pc;
  f.mask = mask;
  f.token = token;
  f.calls = calls;
  return static_cast<uint32_t>(k);
}

Step arrive(Exec& x) {
  Warp& warp = *x.warp;
  while (x.token != kNoToken && same_place(warp.tokens[x.token], x.at, x.current().calls)) {
    ConvergenceToken& t = warp.tokens[x.token];
    t.arrived |= x.active;
    if (t.arrived != t.expected) return Step::Gone;
    x.active = t.arrived;
    x.token = t.parent;
    t.used = false;
  }
  return Step::Continue;
}

void diverge(Exec& x, uint32_t taken, uint32_t target, uint32_t join) {
  Warp& warp = *x.warp;
  const std::vector<uint32_t>& calls = x.current().calls;
  const uint32_t other = x.active & ~taken, next = x.pc;
  if (join != kNoPc && !splits(x)) {
    // A loop that lanes leave one by one keeps meeting at the same place: one token serves.
    if (x.token == kNoToken || !same_place(warp.tokens[x.token], join, calls))
      x.token = new_token(warp, join, x.active, x.token, calls);
    ConvergenceToken& t = warp.tokens[x.token];
    if (target == join) {
      t.arrived |= taken;
      x.active = other;
      return;
    }
    if (next == join) {
      t.arrived |= other;
      x.active = taken;
      x.pc = target;
      return;
    }
  }
  const std::vector<uint32_t> copy = calls;                  // adding a fragment may move the current one
  if (splits(x) && x.grid->random() % 2 && next != kNoPc) {  // the other side goes first
    add_fragment(warp, next, other, x.token, copy);
    x.active = taken;
    x.pc = target;
    return;
  }
  add_fragment(warp, target, taken, x.token, copy);
  x.active = other;
}

void open_region(Exec& x, uint32_t pc) {
  if (splits(x)) return;
  x.token = new_token(*x.warp, pc, x.active, x.token, x.current().calls);
}

void exit_lanes(Exec& x, uint32_t lanes) {
  Warp& warp = *x.warp;
  warp.alive &= ~lanes;
  for (size_t k = 0; k < warp.tokens.size(); ++k) {
    ConvergenceToken& t = warp.tokens[k];
    if (!t.used || !(t.expected & lanes)) continue;
    t.expected &= ~lanes;
    if (t.expected == 0) {
      t.used = false;
    } else if (t.arrived == t.expected) {
      t.used = false;
      add_fragment(warp, t.pc, t.arrived, t.parent, std::vector<uint32_t>(t.calls));
    }
  }
}

uint32_t gather(Exec& x) {
  Warp& warp = *x.warp;
  if (!splits(x)) return x.mask;
  const MicroOp& op = x.program->code[x.at];
  const auto executing = [&](const Fragment& f) { return f.mask & (x.predicates[op.guard] ^ op.guard_xor); };
  const auto waits_here = [&](const Fragment& f) {
    return &f != &x.current() && f.mask && f.wait.kind == Wait::Kind::Aligned && f.pc == x.at &&
           f.calls == x.current().calls;
  };
  uint32_t together = x.mask;
  for (const Fragment& f : warp.fragments)
    if (waits_here(f)) together |= executing(f);
  if (together != warp.alive) return x.mask;
  for (Fragment& f : warp.fragments) {
    if (!waits_here(f)) continue;
    x.active |= f.mask;
    f.mask = 0;
  }
  return x.mask = together;
}

bool break_one(Warp& warp) {
  for (size_t k = 0; k < warp.tokens.size(); ++k) {
    ConvergenceToken& t = warp.tokens[k];
    if (!t.used || t.arrived == 0) continue;
    const uint32_t released = t.arrived;
    t.expected &= ~released;
    t.arrived = 0;
    add_fragment(warp, t.pc, released, t.parent, std::vector<uint32_t>(t.calls));
    return true;
  }
  return false;
}

}  // namespace mxfa::emulator::simt
