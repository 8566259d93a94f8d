#include "runtime/loop_profile.hpp"

#include <cctype>
#include <map>
#include <string_view>
#include <vector>

namespace mxfa::test {
namespace {

struct Prefix {
  const char* text;
  Pipe pipe;
};
// The first that fits; opcodes of PTX are written small, those of SASS large.
constexpr Prefix kPrefixes[] = {
    {"ex2", Pipe::kMufu},         {"lg2", Pipe::kMufu},        {"rcp", Pipe::kMufu},
    {"cvt", Pipe::kConversion},   {"mov", Pipe::kMove},        {"bra", Pipe::kControl},
    {"bar", Pipe::kControl},      {"elect", Pipe::kControl},   {"vote", Pipe::kControl},
    {"tcgen05", Pipe::kMemory},   {"fence", Pipe::kMemory},    {"ld.", Pipe::kMemory},
    {"st.", Pipe::kMemory},       {"mbarrier", Pipe::kMemory}, {"mapa", Pipe::kMemory},
    {"MUFU", Pipe::kMufu},        {"F2F", Pipe::kConversion},  {"IMAD.MOV", Pipe::kMove},
    {"IMAD", Pipe::kHalfFma},     {"MOV", Pipe::kMove},        {"UMOV", Pipe::kMove},
    {"R2UR", Pipe::kMove},        {"CS2R", Pipe::kMove},       {"FFMA2", Pipe::kHalfFma},
    {"FADD2", Pipe::kHalfFma},    {"FMUL2", Pipe::kHalfFma},   {"FFMA", Pipe::kFma},
    {"FADD", Pipe::kFma},         {"FMUL", Pipe::kFma},        {"LD", Pipe::kMemory},
    {"ST", Pipe::kMemory},        {"ULDC", Pipe::kMemory},     {"SYNCS", Pipe::kMemory},
    {"FENCE", Pipe::kMemory},     {"MEMBAR", Pipe::kMemory},   {"ERRBAR", Pipe::kMemory},
    {"CGAERRBAR", Pipe::kMemory}, {"CCTL", Pipe::kMemory},     {"BRA", Pipe::kControl},
    {"BSSY", Pipe::kControl},     {"BSYNC", Pipe::kControl},   {"BAR", Pipe::kControl},
    {"ELECT", Pipe::kControl},    {"VOTE", Pipe::kControl},    {"NOP", Pipe::kControl},
    {"WARPSYNC", Pipe::kControl}, {"DEPBAR", Pipe::kControl},
};

bool is_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '.';
}

// "$L__BB0_7" or ".L_x_7" in a statement, "" if there is none.
std::string label_in(std::string_view statement) {
  size_t at = statement.find("$L");
  if (at == statement.npos) at = statement.find(".L_");
  if (at == statement.npos) return {};
  size_t end = at;
  while (end < statement.size() && is_name(statement[end])) ++end;
  return std::string(statement.substr(at, end - at));
}

void skip_space(std::string_view& text) {
  while (!text.empty() &&
         (std::isspace(static_cast<unsigned char>(text[0])) || text[0] == '{' || text[0] == '}'))
    text.remove_prefix(1);
}

// The opcode without operands and predicate; "" for what is no instruction.
std::string opcode_of(std::string_view statement) {
  skip_space(statement);
  while (statement.starts_with("/*") && statement.find("*/") != statement.npos) {
    statement.remove_prefix(statement.find("*/") + 2);
    skip_space(statement);
  }
  if (statement.starts_with("@")) {
    statement.remove_prefix(std::min(statement.find(' '), statement.size()));
    skip_space(statement);
  }
  if (statement.empty() || !std::isalpha(static_cast<unsigned char>(statement[0]))) return {};
  size_t end = 0;
  while (end < statement.size() && (is_name(statement[end]) || statement[end] == ':')) ++end;
  return std::string(statement.substr(0, end));
}

}  // namespace

Pipe pipe_of(const std::string& opcode) {
  for (const char* arithmetic : {"fma.", "mul.", "add.", "sub."})
    if (opcode.starts_with(arithmetic)) {
      if (opcode.find("f32x2") != opcode.npos) return Pipe::kHalfFma;
      return opcode.find("f32") != opcode.npos ? Pipe::kFma : Pipe::kAlu;
    }
  for (const Prefix& prefix : kPrefixes)
    if (opcode.starts_with(prefix.text)) return prefix.pipe;
  return Pipe::kAlu;
}

PipeCounts count_softmax_loop(const std::string& text) {
  constexpr int kExponentials = 64;
  std::vector<std::string> opcodes;
  std::map<std::string, size_t> labels;
  size_t first = 0, end = 0;  // of the loop
  for (size_t at = 0; at < text.size();) {
    const size_t newline = std::min(text.find('\n', at), text.size());
    std::string_view line(text.data() + at, newline - at);
    at = newline + 1;
    line = line.substr(0, line.find("//"));
    while (!line.empty()) {
      const size_t semicolon = std::min(line.find(';'), line.size());
      const std::string_view statement = line.substr(0, semicolon);
      line.remove_prefix(std::min(semicolon + 1, line.size()));
      const std::string opcode = opcode_of(statement), label = label_in(statement);
      if (opcode.empty()) {
        if (!label.empty() && statement.find(label + ":") != statement.npos) labels[label] = opcodes.size();
        continue;
      }
      opcodes.push_back(opcode);
      if (!(opcode.starts_with("bra") || opcode.starts_with("BRA")) || !labels.contains(label)) continue;
      const size_t start = labels[label];
      int exponentials = 0;
      for (size_t i = start; i < opcodes.size(); ++i)
        exponentials += opcodes[i].starts_with("ex2") || opcodes[i].starts_with("MUFU.EX2");
      if (exponentials >= kExponentials && (end == 0 || opcodes.size() - start < end - first))
        first = start, end = opcodes.size();
    }
  }
  PipeCounts counts{};
  for (size_t i = first; i < end; ++i) ++counts[size_t(pipe_of(opcodes[i]))];
  return counts;
}

}  // namespace mxfa::test
