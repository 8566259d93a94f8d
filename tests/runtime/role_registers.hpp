// Registers that a kernel's warps use behind setmaxnreg, from its machine code as nvdisasm -c prints it.
#pragma once

#include <string>
#include <vector>

namespace mxfa::test {

struct RoleRegisters {
  int budget;   // of setmaxnreg
  int highest;  // number of a register named in what can be reached from there, without another setmaxnreg
};

// One for each setmaxnreg.  Throws where it cannot follow a branch.
std::vector<RoleRegisters> role_registers(const std::string& sass);

}  // namespace mxfa::test
