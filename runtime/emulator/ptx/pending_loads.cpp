#include "ptx/pending_loads.hpp"

#include <algorithm>

namespace mxfa::emulator::ptx {
namespace {

template <class F>
void for_registers(const Instruction& i, F&& f) {
  if (i.guard >= 0) f(i.guard);
  for (const Operand& o : i.operands) for_registers(o, f);
}

class Pending {
 public:
  Pending(const Function& function, const Cfg& cfg) : function_(function), cfg_(cfg) {
    number_.assign(function.registers.size(), -1);
    for (const Instruction& i : function.instructions) {
      if (!is(i, "ld")) continue;
      for_destinations(i, [&](int32_t r) {
        if (number_[r] < 0) number_[r] = count_++;
      });
    }
  }

  std::vector<bool> run() {
    if (count_ == 0) return {};
    std::vector<Set> at_entry(cfg_.blocks.size(), Set(count_));
    std::vector<bool> seen(cfg_.blocks.size());
    std::vector<int32_t> work{0};
    seen[0] = true;
    while (!work.empty()) {
      const int32_t b = work.back();
      work.pop_back();
      Set set = at_entry[b];
      walk(b, set, nullptr);
      for (const int32_t s : cfg_.blocks[b].successors) {
        if (s >= static_cast<int32_t>(cfg_.blocks.size())) continue;  // the end of the function
        bool grown = !seen[s];
        seen[s] = true;
        for (int32_t k = 0; k < count_; ++k)
          if (set[k] && !at_entry[s][k]) at_entry[s][k] = grown = true;
        if (grown) work.push_back(s);
      }
    }
    std::vector<bool> uses(function_.instructions.size());
    for (size_t b = 0; b < cfg_.blocks.size(); ++b) walk(static_cast<int32_t>(b), at_entry[b], &uses);
    if (std::find(uses.begin(), uses.end(), true) == uses.end()) uses.clear();
    return uses;
  }

 private:
  using Set = std::vector<bool>;  // by number of a loaded register

  bool is(const Instruction& i, std::string_view operation) const {
    return i.opcode == "tcgen05" && i.modifiers && function_.modifier(i, 0) == operation;
  }

  // The destination vector, and for .red the register of the reduced value: operands before the address.
  template <class F>
  static void for_destinations(const Instruction& i, F&& f) {
    for (const Operand& o : i.operands) {
      if (o.kind == Operand::Kind::Address) return;
      for_registers(o, f);
    }
  }

  void walk(int32_t block, Set& set, std::vector<bool>* uses) const {
    for (uint32_t n = cfg_.blocks[block].first; n < cfg_.blocks[block].last; ++n) {
      const Instruction& i = function_.instructions[n];
      bool touches = false;
      for_registers(i, [&](int32_t r) { touches = touches || (number_[r] >= 0 && set[number_[r]]); });
      // A wait of all lanes, or the completion before a use: nothing is pending.
      if (touches || (i.guard < 0 && is(i, "wait::ld"))) std::fill(set.begin(), set.end(), false);
      if (touches && uses) (*uses)[n] = true;
      if (is(i, "ld")) for_destinations(i, [&](int32_t r) { set[number_[r]] = true; });
    }
  }

  const Function& function_;
  const Cfg& cfg_;
  std::vector<int32_t> number_;  // register -> number, -1: never loaded
  int32_t count_ = 0;
};

}  // namespace

std::vector<bool> uses_of_pending_loads(const Function& function, const Cfg& cfg) {
  if (function.instructions.empty()) return {};
  return Pending(function, cfg).run();
}

}  // namespace mxfa::emulator::ptx
