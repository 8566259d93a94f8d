// Data flow over the registers of wgmmas.
#include "ptx/wgmma_fences.hpp"

#include <algorithm>

#include "core/unfenced.hpp"

namespace mxfa::emulator::ptx {
namespace {

constexpr int32_t kClean = -1, kEntry = -2;  // else the instruction of the last access since the fence

class Fences {
 public:
  Fences(const Function& function, const Cfg& cfg) : function_(function), cfg_(cfg) {
    number_.assign(function.registers.size(), -1);
    for (const Instruction& i : function.instructions)
      if (is(i, "mma_async"))
        for_fragments(i, [&](int32_t r) {
          if (number_[r] < 0) number_[r] = count_++;
        });
  }

  std::vector<int64_t> run() {
    if (count_ == 0) return {};
    std::vector<State> at_entry(cfg_.blocks.size(), State{std::vector<int32_t>(count_, kClean), false});
    std::vector<bool> seen(cfg_.blocks.size());
    at_entry[0] = {std::vector<int32_t>(count_, kEntry), true};
    seen[0] = true;
    std::vector<int32_t> work{0};
    while (!work.empty()) {
      const int32_t b = work.back();
      work.pop_back();
      State state = at_entry[b];
      walk(b, state, nullptr);
      for (const int32_t s : cfg_.blocks[b].successors) {
        if (s >= static_cast<int32_t>(cfg_.blocks.size())) continue;  // the end of the function
        bool grown = !seen[s];
        seen[s] = true;
        State& there = at_entry[s];
        if (state.stale && !there.stale) there.stale = grown = true;
        for (int32_t k = 0; k < count_; ++k)
          if (state.access[k] != kClean && there.access[k] == kClean)
            there.access[k] = state.access[k], grown = true;
        if (grown) work.push_back(s);
      }
    }
    std::vector<int64_t> found(function_.instructions.size());
    for (size_t b = 0; b < cfg_.blocks.size(); ++b) {
      if (!seen[b]) continue;
      State state = at_entry[b];
      walk(static_cast<int32_t>(b), state, &found);
    }
    if (std::all_of(found.begin(), found.end(), [](int64_t f) { return f == 0; })) found.clear();
    return found;
  }

 private:
  struct State {
    std::vector<int32_t> access;  // of each register of a wgmma, since the last fence
    bool stale = false;           // no fence since the last commit_group, or none at all
  };

  bool is(const Instruction& i, std::string_view operation) const {
    return i.opcode == "wgmma" && i.modifiers && function_.modifier(i, 0) == operation;
  }

  // Registers of D and, unless it is a descriptor, A.
  template <class F>
  static void for_fragments(const Instruction& i, F&& f) {
    for (size_t k = 0; k < 2 && k < i.operands.size(); ++k)
      if (i.operands[k].kind == Operand::Kind::Vector) for_registers(i.operands[k], f);
  }

  void walk(int32_t block, State& state, std::vector<int64_t>* found) const {
    for (uint32_t n = cfg_.blocks[block].first; n < cfg_.blocks[block].last; ++n) {
      const Instruction& i = function_.instructions[n];
      if (is(i, "fence")) {
        std::fill(state.access.begin(), state.access.end(), kClean);
        state.stale = false;
      } else if (is(i, "commit_group")) {
        state.stale = true;
      } else if (is(i, "mma_async")) {
        int32_t access = kClean;
        for_fragments(i, [&](int32_t r) {
          const int32_t last = state.access[number_[r]];
          if (last >= 0) access = std::max(access, last);
          if (last == kEntry && access == kClean) access = kEntry;
        });
        if (access == kClean || !found) continue;
        const int64_t position = access == kEntry ? -1 : int64_t{function_.instructions[access].position};
        (*found)[n] = UnfencedAccess{position, state.stale}.code();
      } else {
        for (const Operand& o : i.operands)
          for_registers(o, [&](int32_t r) {
            if (number_[r] >= 0) state.access[number_[r]] = static_cast<int32_t>(n);
          });
      }
    }
  }

  const Function& function_;
  const Cfg& cfg_;
  std::vector<int32_t> number_;  // register -> number, -1: of no wgmma
  int32_t count_ = 0;
};

}  // namespace

std::vector<int64_t> unfenced_wgmmas(const Function& function, const Cfg& cfg) {
  if (function.instructions.empty()) return {};
  return Fences(function, cfg).run();
}

}  // namespace mxfa::emulator::ptx
