// Machine code as text, by the program that MXFA_NVDISASM names.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "runtime/temporary.hpp"
#include "support/catch.hpp"

namespace mxfa::test {

// What nvdisasm -c prints.
inline std::string disassemble(const std::string& disassembler, const std::string& cubin) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/kernel.cubin";
  std::ofstream(file, std::ios::binary) << cubin;
  std::string text;
  FILE* pipe = popen(fmt::format("'{}' -c '{}'", disassembler, file).c_str(), "r");
  REQUIRE(pipe);
  char buffer[4096];
  for (size_t n = 0; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
  REQUIRE(pclose(pipe) == 0);
  return text;
}

}  // namespace mxfa::test
