// What the hazard checks of one launch have found.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "core/kernel.hpp"
#include "core/warp.hpp"

namespace mxfa::emulator {

enum class Severity { Error, Advice };  // an error fails the launch

struct Finding {
  std::string rule;  // a few words with hyphens: "missing-proxy-fence"
  Severity severity = Severity::Error;
  std::string text;    // resource, both accesses, the missing edge, what to do
  uint64_t count = 1;  // times it happened
};

class Findings {
 public:
  // Unrolled code has many instructions of one source line: findings at the same two lines count as one.
  void name_lines(const Program& program) { program_ = &program; }
  // The same rule at the same two instructions is kept once and counted; `text` is called for the first only.
  // pc: of the instruction that shows it; other: of the one it conflicts with, or any number that tells
  // findings apart.
  void add(const char* rule, Severity severity, uint32_t pc, uint32_t other,
           const std::function<std::string()>& text);
  const std::vector<Finding>& list() const { return list_; }
  size_t count(Severity severity) const;  // of different findings
  // All of them, errors first; empty if there are none.
  std::string report(const std::string& kernel) const;

 private:
  std::vector<Finding> list_;
  std::map<std::tuple<std::string, uint32_t, uint32_t>, size_t> known_;
  std::map<std::string, size_t> lines_;  // rule and both source lines
  const Program* program_ = nullptr;
};

// "cta 0 warp 3 lanes 0x1, file.cuh:34, PTX line 12: st.shared..." of an instruction.
std::string describe_access(const Program& program, uint32_t pc, uint32_t cta_rank, uint32_t warp,
                            uint32_t lanes);

}  // namespace mxfa::emulator
