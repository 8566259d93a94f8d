// Where micro-operations come from.
#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <set>

#include "core/kernel.hpp"
#include "core/report.hpp"
#include "ptx/ast.hpp"
#include "ptx/source.hpp"

namespace mxfa::emulator {

namespace {

// "mxfa::ptx::tcgen05_wait_ld" from the mangled name: namespaces and name, no parameters.
std::string readable(const std::string& mangled) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), std::free);
  if (status != 0 || !text) return mangled;
  std::string name = text.get();
  if (const size_t parameters = name.find('('); parameters != std::string::npos) name.resize(parameters);
  if (const size_t templates = name.find('<'); templates != std::string::npos) name.resize(templates);
  return name.substr(name.rfind(' ') + 1);  // templates carry their return type
}

}  // namespace

Program::Program() = default;
Program::~Program() = default;

uint32_t Program::ptx_line_number(uint32_t pc) const {
  return pc < origins.size() ? source->line(origins[pc].position) : 0;
}

uint32_t Program::ptx_column_number(uint32_t pc) const {
  return pc < origins.size() ? source->column(origins[pc].position) : 0;
}

std::string Program::ptx_line(uint32_t pc) const {
  return pc < origins.size() ? ptx_text(origins[pc].position) : "(end of the code)";
}

std::string Program::ptx_text(uint32_t position) const {
  // The statement, not the whole line: inline assembly puts many on one.
  std::string_view text = source->text().substr(position);
  text = text.substr(0, std::min<size_t>({text.find(';'), text.find('\n'), 120}));
  return std::string(text);
}

std::string Program::cuda_line(uint32_t pc) const {
  return pc < origins.size() ? cuda_line(origins[pc].function, origins[pc].location) : std::string();
}

namespace {
constexpr int32_t kCallDistance = 40;  // .loc directives between a line and the call it was inlined at
constexpr size_t kLongestPlace = 2000;

// visit(number, location) for a location and the calls it was inlined at, while it says true.
// A .loc names the call it was inlined at and no more.  Where that call stands in another inlined function,
// the compiler has written a .loc of the call's own line close by: before, or after when it turned a loop.
// Far away it may be that of another copy of the inlined function: good for names alone.
template <class Visit>
void follow_calls(const std::vector<ptx::Location>& all, int32_t location, int32_t farthest, Visit visit) {
  for (int32_t k = location; all[k].inlined_line;) {
    const ptx::Location& inner = all[k];
    if (!visit(k, inner)) return;
    const auto is_call = [&](int32_t j) {
      return j >= 0 && j < static_cast<int32_t>(all.size()) && all[j].file == inner.inlined_file &&
             all[j].line == inner.inlined_line && all[j].inlined_line;
    };
    int32_t distance = 1;
    while (distance <= farthest && !is_call(k - distance) && !is_call(k + distance)) ++distance;
    if (distance > farthest) return;
    k = is_call(k - distance) ? k - distance : k + distance;
  }
}
}  // namespace

std::string Program::cuda_line(int32_t function, int32_t location) const {
  if (location < 0 || function < 0) return {};
  const std::vector<ptx::Location>& all = module->functions[function].locations;
  const ptx::Location& l = all[location];
  const auto place = [&](uint32_t file, uint32_t line) {
    const auto it = module->files.find(file);
    return fmt::format("{}:{}", it == module->files.end() ? fmt::format("file {}", file) : it->second, line);
  };
  std::string text = place(l.file, l.line);
  if (const auto it = module->debug_strings.find(l.function_label); it != module->debug_strings.end())
    text += " in " + readable(it->second);
  follow_calls(all, location, kCallDistance, [&](int32_t, const ptx::Location& inner) {
    text += ", inlined at " + place(inner.inlined_file, inner.inlined_line);
    return text.size() <= kLongestPlace;  // recursion that the compiler unrolled
  });
  return text;
}

std::vector<std::string> inlined_functions(const Program& program, uint32_t pc) {
  std::vector<std::string> names;
  if (pc >= program.origins.size()) return names;
  const auto [position, function, location] = program.origins[pc];
  if (location < 0 || function < 0) return names;
  const std::vector<ptx::Location>& all = program.module->functions[function].locations;
  follow_calls(all, location, static_cast<int32_t>(all.size()), [&](int32_t k, const ptx::Location&) {
    const auto it = program.module->debug_strings.find(all[k].function_label);
    if (it != program.module->debug_strings.end()) names.push_back(readable(it->second));
    return names.size() < 64;
  });
  std::reverse(names.begin(), names.end());
  return names;
}

std::string role_of(const Program& program, uint32_t pc) {
  const std::vector<std::string> calls = inlined_functions(program, pc);
  if (calls.empty()) return {};
  const int32_t function = program.origins[pc].function;
  const auto [common, unknown] = program.common_calls.try_emplace(function, calls);
  if (unknown) {
    std::set<int32_t> seen;
    for (uint32_t other = 0; other < program.origins.size(); ++other) {
      if (program.origins[other].function != function || !seen.insert(program.origins[other].location).second)
        continue;
      const std::vector<std::string> names = inlined_functions(program, other);
      if (names.empty()) continue;  // the kernel itself
      const auto differ =
          std::mismatch(common->second.begin(), common->second.end(), names.begin(), names.end());
      common->second.erase(differ.first, common->second.end());
    }
  }
  const size_t depth = common->second.size();
  if (calls.size() < depth + 2) return {};
  std::string name = calls[depth];
  if (depth) {  // namespaces that go without saying
    const std::string& around = common->second.back();
    const size_t scope = around.rfind("::");
    if (scope != around.npos && name.starts_with(around.substr(0, scope + 2))) name.erase(0, scope + 2);
  }
  return name;
}

std::string Program::where(uint32_t pc) const {
  const std::string cuda = cuda_line(pc);
  return fmt::format("PTX line {}: {}{}", ptx_line_number(pc), ptx_line(pc),
                     cuda.empty() ? "" : " (" + cuda + ")");
}

}  // namespace mxfa::emulator
