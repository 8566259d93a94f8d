#include "host/ptxas_report.hpp"

#include <algorithm>
#include <cstdlib>
#include <sstream>

namespace mxfa {
namespace {

// The number that stands before `unit` in the line: number_before("16 bytes stack frame", " bytes stack
// frame") is 16; 0 if it is not there.
int number_before(const std::string& line, const std::string& unit) {
  const size_t end = line.find(unit);
  if (end == std::string::npos) return 0;
  size_t begin = end;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  return std::atoi(line.c_str() + begin);
}

int number_after(const std::string& line, const std::string& word) {
  const size_t at = line.find(word);
  return at == std::string::npos ? 0 : std::atoi(line.c_str() + at + word.size());
}

bool contains(const std::string& line, const char* text) { return line.find(text) != std::string::npos; }

}  // namespace

PtxasReport parse_ptxas_log(const std::string& log) {
  PtxasReport report;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    if (contains(line, "bytes stack frame")) {
      report.stack_bytes += number_before(line, " bytes stack frame");
      report.spill_stores += number_before(line, " bytes spill stores");
      report.spill_loads += number_before(line, " bytes spill loads");
    } else if (contains(line, "ptxas info") && contains(line, "Used ")) {
      report.registers = std::max(report.registers, number_after(line, "Used "));
      report.barriers = std::max(report.barriers, number_before(line, " barriers"));
      report.static_shared_bytes = std::max(report.static_shared_bytes, number_before(line, " bytes smem"));
    } else if (contains(line, "ptxas info") && contains(line, "(C")) {
      report.warnings.push_back(
          line);  // numbered advisories: "(C7508) Potential Performance Loss: 'setmaxnreg' ignored ..."
    } else if (contains(line, ": warning") || contains(line, "ptxas warning")) {
      report.warnings.push_back(line);  // "ptxas warning : ...", "file(line): warning #177-D: ..."
    }
  }
  return report;
}

}  // namespace mxfa
