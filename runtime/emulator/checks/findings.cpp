// The list of findings and how it reads.
#include "checks/findings.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace mxfa::emulator {

void Findings::add(const char* rule, Severity severity, uint32_t pc, uint32_t other,
                   const std::function<std::string()>& text) {
  const auto [place, fresh] = known_.try_emplace({rule, pc, other}, list_.size());
  if (fresh && program_) {
    const std::string line = program_->cuda_line(pc), other_line = program_->cuda_line(other);
    if (!line.empty() && !other_line.empty())
      place->second =
          lines_.try_emplace(fmt::format("{}|{}|{}", rule, line, other_line), list_.size()).first->second;
  }
  if (place->second == list_.size())
    list_.push_back({rule, severity, text()});
  else
    ++list_[place->second].count;
}

size_t Findings::count(Severity severity) const {
  return static_cast<size_t>(
      std::count_if(list_.begin(), list_.end(), [=](const Finding& f) { return f.severity == severity; }));
}

std::string Findings::report(const std::string& kernel) const {
  if (list_.empty()) return {};
  const size_t errors = count(Severity::Error), advice = count(Severity::Advice);
  const auto plural = [](size_t n, const char* word) {
    return fmt::format("{} {}{}", n, word, n == 1 ? "" : "s");
  };
  std::string text = fmt::format("hazard checks of kernel {}: {}, {}", kernel, plural(errors, "error"),
                                 plural(advice, "piece") + " of advice");
  for (const Severity severity : {Severity::Error, Severity::Advice})
    for (const Finding& f : list_)
      if (f.severity == severity)
        text += fmt::format("\n{} {}{}\n{}", severity == Severity::Error ? "error" : "advice", f.rule,
                            f.count > 1 ? fmt::format(" ({} times)", f.count) : "", f.text);
  return text;
}

std::string describe_access(const Program& program, uint32_t pc, uint32_t cta_rank, uint32_t warp,
                            uint32_t lanes) {
  const std::string cuda = program.cuda_line(pc);
  return fmt::format("cta {} warp {} lanes {:#x}{}{}\n      PTX line {}: {}", cta_rank, warp, lanes,
                     cuda.empty() ? "" : ", ", cuda, program.ptx_line_number(pc), program.ptx_line(pc));
}

}  // namespace mxfa::emulator
