// What ptxas said about a kernel, read from the log of `--ptxas-options=-v`.
#pragma once

#include <string>
#include <vector>

namespace mxfa {

struct PtxasReport {
  int registers = 0;  // of the kernel
  int stack_bytes = 0, spill_stores = 0,
      spill_loads = 0;  // bytes, summed over the kernel and the functions it calls
  int static_shared_bytes = 0, barriers = 0;
  std::vector<std::string>
      warnings;  // of the compiler and of ptxas, with notes on lost performance such as an ignored setmaxnreg
};

PtxasReport parse_ptxas_log(const std::string& log);

}  // namespace mxfa
