#include "runtime/role_registers.hpp"

#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>

namespace mxfa::test {
namespace {

struct Line {
  std::string text;
  std::string target;  // label of a branch
  bool falls_through = true;
  int budget = 0;  // setmaxnreg
};

int highest_register(const std::string& text) {
  static const std::regex kRegister(R"(\bR(\d+)\b)");
  int highest = -1;
  for (std::sregex_iterator i(text.begin(), text.end(), kRegister), end; i != end; ++i)
    highest = std::max(highest, std::stoi((*i)[1]));
  return highest;
}

}  // namespace

std::vector<RoleRegisters> role_registers(const std::string& sass) {
  static const std::regex kInstruction(R"(/\*[0-9a-f]+\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*);)"),
      kLabel(R"(^(\.L_x_\d+):)"), kTarget(R"(`\((\.L_x_\d+)\))");
  std::vector<Line> lines;
  std::map<std::string, size_t> labels;
  std::istringstream in(sass);
  for (std::string text; std::getline(in, text);) {
    std::smatch m;
    if (std::regex_search(text, m, kLabel)) labels[m[1]] = lines.size();
    if (!std::regex_search(text, m, kInstruction)) continue;
    Line line{m[3]};
    const std::string opcode = m[2];
    const bool predicated = m[1].matched;
    std::smatch target;
    const std::string operands = m[3];
    // A BSSY names where the warp joins again, which branches reach.
    if (opcode.starts_with("BRA") && std::regex_search(operands, target, kTarget)) line.target = target[1];
    if (opcode == "BRA" || opcode == "EXIT") line.falls_through = predicated;
    if (opcode.starts_with("BRX") || opcode.starts_with("JM") || opcode.starts_with("CALL") ||
        (opcode.starts_with("BRA") && line.target.empty()))
      throw std::runtime_error("a branch that is not followed: " + text);
    if (opcode.starts_with("USETMAXREG"))
      line.budget = std::stoi(operands.substr(operands.rfind("0x")), nullptr, 16);
    lines.push_back(line);
  }
  std::vector<RoleRegisters> roles;
  for (size_t start = 0; start < lines.size(); ++start) {
    if (lines[start].budget == 0) continue;
    RoleRegisters role{lines[start].budget, -1};
    std::set<size_t> seen;
    std::vector<size_t> todo{start + 1};
    while (!todo.empty()) {
      const size_t at = todo.back();
      todo.pop_back();
      if (at >= lines.size() || !seen.insert(at).second) continue;
      if (lines[at].budget != 0) continue;
      role.highest = std::max(role.highest, highest_register(lines[at].text));
      if (!lines[at].target.empty()) todo.push_back(labels.at(lines[at].target));
      if (lines[at].falls_through) todo.push_back(at + 1);
    }
    roles.push_back(role);
  }
  return roles;
}

}  // namespace mxfa::test
