// The list of findings and how it reads.
#include "checks/findings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "core/report.hpp"
#include "ptx/ast.hpp"

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

void Findings::withdraw(const std::string& rule, uint32_t pc) {
  const auto about = [&](const auto& known) {
    const auto& [of, first, second] = known.first;
    return of == rule && (first == pc || second == pc);
  };
  for (auto found = known_.begin(); (found = std::find_if(found, known_.end(), about)) != known_.end();) {
    const size_t place = found->second;
    list_.erase(list_.begin() + static_cast<std::ptrdiff_t>(place));
    const auto forget = [=](auto& places) {
      std::erase_if(places, [=](const auto& entry) { return entry.second == place; });
      for (auto& [key, at] : places) at -= at > place;
    };
    forget(known_);
    forget(lines_);
    found = known_.begin();
  }
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

Site Site::of(const Warp& warp) {
  return {warp.pc, warp.cta->rank, warp.index,
          static_cast<uint32_t>(warp.mask ? std::countr_zero(warp.mask) : 0)};
}

std::string describe_site(const Program& program, const std::string& what, const Site& site) {
  const std::string cuda = program.cuda_line(site.pc), role = role_of(program, site.pc);
  return fmt::format("  {}, cta {} warp {} lane {}{}{}{}\n      PTX line {}: {}", what, site.rank, site.warp,
                     site.lane, role.empty() ? "" : " in " + role, cuda.empty() ? "" : ", ", cuda,
                     program.ptx_line_number(site.pc), program.ptx_line(site.pc));
}

std::string shared_name(const Program& program, const Cta& cta, uint32_t offset) {
  const Kernel& kernel = *cta.cluster->grid->kernel;
  for (size_t v = 0; v < program.module->variables.size(); ++v) {
    const ptx::Variable& variable = program.module->variables[v];
    if (variable.space != ptx::Space::Shared || variable.unsized) continue;
    if (variable.function >= 0) {  // that of another kernel has the same place
      const ptx::Function& owner = program.module->functions[static_cast<size_t>(variable.function)];
      if (owner.entry && owner.name != kernel.info.name) continue;
    }
    const uint64_t begin = program.addresses[v];
    if (offset >= begin && offset < begin + variable.bytes)
      return offset == begin ? fmt::format(" ({})", variable.name)
                             : fmt::format(" ({} + {})", variable.name, offset - begin);
  }
  const uint32_t fixed = program.shared_reserved + kernel.static_shared, alignment = kernel.dynamic_alignment,
                 dynamic = (fixed + alignment - 1) & ~(alignment - 1);
  return offset >= dynamic ? fmt::format(" (dynamic + {:#x})", offset - dynamic) : "";
}

}  // namespace mxfa::emulator
