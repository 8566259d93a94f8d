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
  // Forgets what `rule` has found at this instruction, as either of the two.
  void withdraw(const std::string& rule, uint32_t pc);
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

// An instruction that a thread executed.
struct Site {
  uint32_t pc = 0;
  uint32_t rank = 0, warp = 0, lane = 0;  // of the CTA in the cluster, in the CTA, in the warp
  static Site of(const Warp& warp);
};
// "  write, cta 0 warp 3 lane 0, file.cuh:34\n      PTX line 12: st.shared..."; `what` is "write".
std::string describe_site(const Program& program, const std::string& what, const Site& site);
// " (variable + 8)" or " (dynamic + 0x400)" of an offset in shared memory.
std::string shared_name(const Program& program, const Cta& cta, uint32_t offset);

}  // namespace mxfa::emulator
