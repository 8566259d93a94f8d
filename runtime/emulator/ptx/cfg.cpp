// Basic blocks and post-dominators (Cooper, Harvey, Kennedy: "A Simple, Fast Dominance Algorithm", on the
// reversed graph).
#include "ptx/cfg.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace mxfa::emulator::ptx {
namespace {

enum class Flow { Next, Branch, Table, Leave, Trap };

Flow flow(const Instruction& i) {
  if (i.opcode == "bra") return Flow::Branch;
  if (i.opcode == "brx") return Flow::Table;
  if (i.opcode == "ret" || i.opcode == "exit") return Flow::Leave;
  if (i.opcode == "trap") return Flow::Trap;
  return Flow::Next;
}

std::vector<int32_t> targets(const Source& source, const Function& f, const Instruction& i) {
  std::vector<int32_t> out;
  if (flow(i) == Flow::Branch) {
    if (i.operands.size() != 1 || i.operands[0].kind != Operand::Kind::Label)
      source.fail(i.position, "bra needs one label");
    out.push_back(f.label_targets[i.operands[0].index]);
  } else {
    const bool table = i.operands.size() == 2 && i.operands[1].kind == Operand::Kind::Prototype;
    if (!table || static_cast<size_t>(i.operands[1].index) >= f.branch_targets.size())
      source.fail(i.position, "brx.idx needs a register and a .branchtargets label");
    for (const int32_t label : f.branch_targets[i.operands[1].index]) out.push_back(f.label_targets[label]);
  }
  return out;
}

// Immediate post-dominators.  Blocks that never reach the end (traps, endless loops) do not take part: a path
// that ends in trap must not keep the other lanes from meeting.
void post_dominators(std::vector<Block>& blocks) {
  const auto n = static_cast<int32_t>(blocks.size());
  const int32_t exit = n;
  std::vector<std::vector<int32_t>> predecessors(n + 1);
  for (int32_t b = 0; b < n; ++b)
    for (const int32_t s : blocks[b].successors) predecessors[s].push_back(b);
  // Post-order of the reversed graph, from the exit.
  std::vector<int32_t> order, rank(n + 1, -1);
  std::vector<std::pair<int32_t, size_t>> stack{{exit, 0}};
  std::vector<bool> seen(n + 1);
  seen[exit] = true;
  while (!stack.empty()) {
    auto& [node, next] = stack.back();
    if (next < predecessors[node].size()) {
      const int32_t p = predecessors[node][next++];
      if (!seen[p]) seen[p] = true, stack.emplace_back(p, 0);
    } else {
      rank[node] = static_cast<int32_t>(order.size());
      order.push_back(node);
      stack.pop_back();
    }
  }
  std::vector<int32_t> dominator(n + 1, -1);
  dominator[exit] = exit;
  const auto intersect = [&](int32_t a, int32_t b) {
    while (a != b) {
      while (rank[a] < rank[b]) a = dominator[a];
      while (rank[b] < rank[a]) b = dominator[b];
    }
    return a;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (auto it = order.rbegin(); it != order.rend(); ++it) {
      if (*it == exit) continue;
      int32_t meet = -1;
      for (const int32_t s : blocks[*it].successors)
        if (rank[s] >= 0 && dominator[s] >= 0) meet = meet < 0 ? s : intersect(meet, s);
      if (meet != dominator[*it]) dominator[*it] = meet, changed = true;
    }
  }
  for (int32_t b = 0; b < n; ++b) blocks[b].post_dominator = dominator[b] == exit ? -1 : dominator[b];
}

}  // namespace

Cfg build_cfg(const Source& source, const Function& f) {
  Cfg cfg;
  const auto count = static_cast<uint32_t>(f.instructions.size());
  std::vector<bool> starts(count + 1);
  starts[0] = true;
  for (const int32_t target : f.label_targets)
    if (target >= 0) starts[target] = true;
  for (uint32_t k = 0; k < count; ++k)
    if (flow(f.instructions[k]) != Flow::Next) starts[k + 1] = true;
  cfg.block_of.assign(count + 1, 0);
  for (uint32_t k = 0; k < count; ++k) {
    if (starts[k]) cfg.blocks.push_back({.first = k, .last = k, .successors = {}});
    cfg.block_of[k] = static_cast<int32_t>(cfg.blocks.size()) - 1;
    cfg.blocks.back().last = k + 1;
  }
  const auto end = static_cast<int32_t>(cfg.blocks.size());
  cfg.block_of[count] = end;
  for (Block& b : cfg.blocks) {
    const Instruction& i = f.instructions[b.last - 1];
    const Flow kind = flow(i);
    b.leaves = true;
    for (uint32_t k = b.first; k < b.last; ++k) b.leaves = b.leaves && flow(f.instructions[k]) == Flow::Leave;
    if (kind == Flow::Branch || kind == Flow::Table)
      for (const int32_t t : targets(source, f, i)) b.successors.push_back(cfg.block_of[t]);
    if (kind == Flow::Leave) b.successors.push_back(end);
    if (kind == Flow::Next ||
        ((kind == Flow::Branch || kind == Flow::Leave || kind == Flow::Trap) && i.guard >= 0))
      b.successors.push_back(cfg.block_of[b.last]);
    std::sort(b.successors.begin(), b.successors.end());
    b.successors.erase(std::unique(b.successors.begin(), b.successors.end()), b.successors.end());
  }
  post_dominators(cfg.blocks);
  for (Block& b : cfg.blocks) {
    if (b.successors.size() < 2 || b.post_dominator < 0) continue;
    if (cfg.blocks[b.post_dominator].leaves)
      b.post_dominator = -1;
    else
      cfg.blocks[b.post_dominator].join = true;
  }
  return cfg;
}

}  // namespace mxfa::emulator::ptx
