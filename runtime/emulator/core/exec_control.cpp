// Control flow: branches, calls, exits, refusals, and the two built-in functions (vprintf, __assertfail).
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "core/exec.hpp"
#include "core/handlers.hpp"
#include "core/observer.hpp"
#include "core/results.hpp"
#include "core/simt.hpp"
#include "memory/memory.hpp"

namespace mxfa::emulator {
namespace {

// A fragment that branches backwards too often without blocking lets the others run: it may be polling
// memory.
inline Step after_branch(Exec& x, uint32_t target) {
  if (target > x.at) return Step::Continue;
  return --x.budget > 0 ? Step::Continue : Step::Yield;
}

Step join_lanes(Exec& x, const MicroOp&) { return simt::arrive(x); }

Step branch_always(Exec& x, const MicroOp& op) {
  x.pc = static_cast<uint32_t>(op.imm);
  return after_branch(x, x.pc);
}

Step branch_if(Exec& x, const MicroOp& op) {
  const uint32_t taken = x.active & x.pred(op.src[0]);
  const auto target = static_cast<uint32_t>(op.imm);
  if (taken == 0) return Step::Continue;
  if (taken == x.active) {
    x.pc = target;
    return after_branch(x, target);
  }
  simt::diverge(x, taken, target, op.aux);
  return after_branch(x, x.pc);
}

Step branch_uniform(Exec& x, const MicroOp& op) {
  const uint32_t taken = x.active & x.pred(op.src[0]);
  if (taken != 0 && taken != x.active)
    throw Fault(result::kLaunchFailed,
                fmt::format("bra.uni is taken by lanes {:#x} of {:#x} only: the branch is not uniform", taken,
                            x.active));
  if (taken) x.pc = static_cast<uint32_t>(op.imm);
  return taken ? after_branch(x, x.pc) : Step::Continue;
}

Step branch_by_table(Exec& x, const MicroOp& op) {
  const Row index = x.src(op.src[0]);
  // Peel off one target after the other; the last one continues in place.
  for (;;) {
    const uint32_t lane = static_cast<uint32_t>(std::countr_zero(x.active));
    const uint32_t choice = index.lane[lane];
    if (choice >= op.count)
      throw Fault(result::kLaunchFailed,
                  fmt::format("brx.idx: lane {} chooses target {} of {}", lane, choice, op.count));
    uint32_t same = 0;
    for (int i = 0; i < kLanes; ++i)
      if ((x.active >> i & 1) && index.lane[i] == choice) same |= 1u << i;
    const uint32_t target = x.lists[op.list + choice];
    if (same == x.active) {
      x.pc = target;
      return after_branch(x, target);
    }
    x.pc = kNoPc;  // there is no falling through
    simt::diverge(x, same, target, op.aux);
  }
}

Step exit_all(Exec& x, const MicroOp&) {
  const uint32_t gone = x.mask;
  x.active &= ~gone;
  if (x.observed) {
    x.leave();
    observe(*x.grid, [&](Observer& o) { o.lanes_exit(*x.warp, gone); });
  }
  ++x.progress;
  ++x.cluster->epoch;
  simt::exit_lanes(x, gone);
  return x.active ? Step::Continue : Step::Gone;
}

uint8_t* local_of(Exec& x, uint32_t lane) { return x.local_base + static_cast<size_t>(lane) * x.local_bytes; }

void copy_slots(Exec& x, const std::vector<LoweredFunction::Slot>& from,
                const std::vector<LoweredFunction::Slot>& to, uint32_t mask) {
  for (size_t k = 0; k < from.size() && k < to.size(); ++k)
    for (uint32_t lane = 0; lane < kLanes; ++lane)
      if (mask >> lane & 1)
        std::memcpy(local_of(x, lane) + to[k].offset, local_of(x, lane) + from[k].offset,
                    std::min(from[k].bytes, to[k].bytes));
}

// Call and return copy parameters between the places of caller and callee.  The frame remembers the return
// address, which is a meeting point: its micro-operation is a join.
Step call_function(Exec& x, const MicroOp& op, uint32_t function) {
  const LoweredFunction& callee = x.program->functions[function];
  const Program::Slots& slots = x.program->calls[op.aux];
  if (!callee.lowered)
    throw Fault(result::kLaunchFailed, fmt::format("call of '{}', which has no body", callee.name));
  copy_slots(x, slots.arguments, callee.parameters, x.active);
  simt::open_region(x, x.pc);
  Fragment& f = x.current();
  if (f.calls.size() > 64) throw Fault(result::kLaunchFailed, "call stack deeper than 64");
  f.calls.push_back(x.pc);
  f.calls.push_back(function);
  f.calls.push_back(op.aux);
  x.pc = callee.start;
  return Step::Continue;
}
Step call_direct(Exec& x, const MicroOp& op) { return call_function(x, op, static_cast<uint32_t>(op.imm)); }
Step call_by_address(Exec& x, const MicroOp& op) {
  const auto* a = lanes<uint64_t>(x.src(op.src[0]));
  const uint64_t address = a[std::countr_zero(x.active)];
  for (int i = 0; i < kLanes; ++i)
    if ((x.active >> i & 1) && a[i] != address)
      throw Fault(result::kLaunchFailed,
                  "an indirect call with different targets in a warp is not supported");
  const uint64_t number = address - kFunctionWindow;
  if (number >= x.program->functions.size())
    throw Fault(result::kLaunchFailed, fmt::format("indirect call to {:#x}, which is no function", address));
  return call_function(x, op, static_cast<uint32_t>(number));
}
Step return_lanes(Exec& x, const MicroOp& op) {
  Fragment& f = x.current();
  if (f.calls.empty()) return exit_all(x, op);
  if (x.mask != x.active)
    throw Fault(result::kLaunchFailed, "a predicated ret inside a function is not supported");
  const uint32_t slots = f.calls.back(), function = f.calls[f.calls.size() - 2],
                 pc = f.calls[f.calls.size() - 3];
  f.calls.resize(f.calls.size() - 3);
  copy_slots(x, x.program->functions[function].returns, x.program->calls[slots].results, x.active);
  x.pc = pc;
  return Step::Continue;
}

Step trap_lanes(Exec& x, const MicroOp&) {
  throw Fault(result::kLaunchFailed, fmt::format("trap executed by lanes {:#x}", x.mask));
}

Step no_operation(Exec&, const MicroOp&) { return Step::Continue; }
Step sleep(Exec&, const MicroOp&) { return Step::Yield; }

Step refused(Exec& x, const MicroOp& op) { throw Fault(result::kNotSupported, x.program->texts[op.aux]); }

// Host pointer of a string or buffer that the kernel passes by generic address.
const uint8_t* readable(Exec& x, uint32_t lane, uint64_t address, uint32_t bytes) {
  const uint64_t window = address & ~uint64_t{0xffffffff};
  if (window == kLocalWindow) {
    const auto offset = static_cast<uint32_t>(address);
    if (uint64_t{offset} + bytes > x.local_bytes)
      throw Fault(result::kIllegalAddress, "local address out of range");
    return local_of(x, lane) + offset;
  }
  if (window == kSharedWindow)
    return shared_pointer(*x.cluster, static_cast<uint32_t>(address), bytes, false);
  return global_pointer(*x.grid, address, bytes, false);
}
std::string text_at(Exec& x, uint32_t lane, uint64_t address) {
  std::string s;
  while (s.size() < 4096) {
    const char c = static_cast<char>(*readable(x, lane, address + s.size(), 1));
    if (!c) break;
    s.push_back(c);
  }
  return s;
}

// printf with the C conversions; arguments lie packed in a buffer, each at its own alignment (floats as
// double).
std::string formatted(Exec& x, uint32_t lane, const std::string& format, uint64_t arguments) {
  std::string out;
  uint64_t at = 0;
  const auto fetch = [&](uint32_t bytes) {
    at = (at + bytes - 1) & ~uint64_t{bytes - 1};
    uint64_t value = 0;
    std::memcpy(&value, readable(x, lane, arguments + at, bytes), bytes);
    at += bytes;
    return value;
  };
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out.push_back(format[i]);
      continue;
    }
    std::string spec = "%";
    int longs = 0;
    for (++i; i < format.size(); ++i) {
      const char c = format[i];
      if (c == 'l' || c == 'j' || c == 'z' || c == 't')
        ++longs;
      else if (c == 'h') {
      } else if (c == '*')
        spec += std::to_string(static_cast<int32_t>(fetch(4)));
      else if (std::strchr("0123456789.+- #", c))
        spec.push_back(c);
      else
        break;
    }
    if (i >= format.size()) break;
    const char c = format[i];
    char buffer[512];
    buffer[0] = 0;
    if (c == '%') {
      out.push_back('%');
      continue;
    } else if (std::strchr("diuoxXc", c)) {
      const bool is_signed = c == 'd' || c == 'i' || c == 'c';
      const uint64_t raw = fetch(longs ? 8 : 4);
      const auto value = longs || !is_signed ? static_cast<int64_t>(raw) : static_cast<int32_t>(raw);
      if (c == 'c')
        std::snprintf(buffer, sizeof buffer, (spec + c).c_str(), static_cast<int>(value));
      else
        std::snprintf(buffer, sizeof buffer, (spec + "ll" + c).c_str(), static_cast<long long>(value));
    } else if (std::strchr("eEfFgGaA", c)) {
      std::snprintf(buffer, sizeof buffer, (spec + c).c_str(), std::bit_cast<double>(fetch(8)));
    } else if (c == 'p') {
      std::snprintf(buffer, sizeof buffer, "%#llx", static_cast<unsigned long long>(fetch(8)));
    } else if (c == 's') {
      out += text_at(x, lane, fetch(8));
    } else {
      out += spec + c;
    }
    out += buffer;
  }
  return out;
}

uint64_t argument(Exec& x, const Program::Slots& slots, size_t k, uint32_t lane) {
  uint64_t value = 0;
  if (k < slots.arguments.size())
    std::memcpy(&value, local_of(x, lane) + slots.arguments[k].offset,
                std::min<uint32_t>(8, slots.arguments[k].bytes));
  return value;
}

Step print(Exec& x, const MicroOp& op) {
  const Program::Slots& slots = x.program->calls[op.aux];
  x.leave();
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    if (!(x.mask >> lane & 1)) continue;
    const std::string format = text_at(x, lane, argument(x, slots, 0, lane));
    x.grid->printf_output += formatted(x, lane, format, argument(x, slots, 1, lane));
    const int32_t count = static_cast<int32_t>(std::count(format.begin(), format.end(), '%'));
    if (!slots.results.empty()) std::memcpy(local_of(x, lane) + slots.results[0].offset, &count, 4);
  }
  return Step::Continue;
}

Step assertion(Exec& x, const MicroOp& op) {
  const Program::Slots& slots = x.program->calls[op.aux];
  x.leave();
  const uint32_t lane = x.first_lane();
  throw Fault(result::kAssert,
              fmt::format("{}:{}: {}: assertion `{}` failed", text_at(x, lane, argument(x, slots, 1, lane)),
                          static_cast<uint32_t>(argument(x, slots, 2, lane)),
                          text_at(x, lane, argument(x, slots, 3, lane)),
                          text_at(x, lane, argument(x, slots, 0, lane))));
}

}  // namespace

Step Exec::block(Wait::Kind kind, uint32_t address, uint32_t parity) {
  Wait& w = current().wait;
  w.kind = kind;
  w.address = address;
  w.parity = parity;
  return Step::Blocked;
}

namespace handlers {

Handler join() { return &join_lanes; }
Handler leave(bool entry) { return entry ? &exit_all : &return_lanes; }
Handler exit_lanes() { return &exit_all; }
Handler branch(bool conditional, bool uniform) {
  return !conditional ? &branch_always : uniform ? &branch_uniform : &branch_if;
}
Handler branch_table() { return &branch_by_table; }
Handler call() { return &call_direct; }
Handler call_indirect() { return &call_by_address; }
Handler trap() { return &trap_lanes; }
Handler nop() { return &no_operation; }
Handler nanosleep() { return &sleep; }
Handler refuse() { return &refused; }
Handler vprintf_call() { return &print; }
Handler assert_fail_call() { return &assertion; }

}  // namespace handlers
}  // namespace mxfa::emulator
