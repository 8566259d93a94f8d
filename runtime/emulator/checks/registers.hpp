// Registers that belong to wgmma: an access of them that no wgmma.fence separates from it.  Which accesses
// these are is known from the code (ptx/wgmma_fences.hpp); a finding needs that the wgmma is executed.
#pragma once

#include "checks/checks.hpp"

namespace mxfa::emulator {

class Registers : public Observer {
 public:
  Registers(CheckMode mode, Findings& findings) : mode_(mode), findings_(findings) {}
  void issue(Warp& warp, const AsyncWork& work, std::span<const Touch> touches) override;

 private:
  const CheckMode mode_;
  Findings& findings_;
};

}  // namespace mxfa::emulator
