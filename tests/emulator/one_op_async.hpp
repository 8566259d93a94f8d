// What the tests of asynchronous instructions share: operands, and pieces of PTX around an mbarrier.
#pragma once

#include <string>
#include <vector>

#include "one_op.hpp"

namespace mxfa::test {

inline std::vector<uint32_t> ramp(size_t words, uint32_t first = 1) {
  std::vector<uint32_t> values(words);
  for (size_t i = 0; i < words; ++i) values[i] = first + static_cast<uint32_t>(i);
  return values;
}

// One thread waits for a parity; labels carry a name so that a body may wait more than once.
inline std::string wait(const std::string& barrier, int parity, const std::string& name) {
  return "wait_" + name + ":\n  mbarrier.try_wait.parity.shared::cta.b64 %p19, [" + barrier + "], " +
         std::to_string(parity) + ";\n  @!%p19 bra wait_" + name + ";\n";
}

inline const std::string kGate = "  .shared .align 8 .b64 gate;\n  mov.u32 %r80, gate;\n";
inline const std::string kFirst = "  setp.eq.u32 %p18, %thread, 0;\n";
inline const std::string kInit1 = kGate + kFirst +
                                  "  @%p18 mbarrier.init.shared::cta.b64 [%r80], 1;\n  "
                                  "fence.mbarrier_init.release.cluster;\n  bar.sync 0;\n";
inline const std::string kDynamic = ".extern .shared .align 1024 .b8 dynamic[];\n";

}  // namespace mxfa::test
