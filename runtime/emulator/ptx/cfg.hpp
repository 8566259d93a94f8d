// Control flow of one function: basic blocks, immediate post-dominators (where diverged lanes meet again),
// live-range inputs.
#pragma once

#include <cstdint>
#include <vector>

#include "ptx/ast.hpp"

namespace mxfa::emulator::ptx {

struct Block {
  uint32_t first = 0, last = 0;  // instructions [first, last)
  std::vector<int32_t> successors;
  int32_t post_dominator = -1;  // block number; -1: only the end of the function
  bool leaves = false;          // nothing but ret / exit: lanes that come here need not wait for others
  bool join = false;            // post-dominator of a branch that may diverge
};

struct Cfg {
  std::vector<Block> blocks;
  std::vector<int32_t> block_of;  // instruction -> block, one extra entry for the end
};

// Throws PtxError for a branch operand that is no label.
Cfg build_cfg(const Source& source, const Function& function);

}  // namespace mxfa::emulator::ptx
