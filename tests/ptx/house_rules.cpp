// Rules of the house that no compiler checks: where inline assembly lives, what device code includes, that it
// is ASCII, and that ptx/forms.def lists what the wrappers write.
#include <map>
#include <nlohmann/json.hpp>
#include <regex>

#include "forms.hpp"
#include "support/catch.hpp"

using mxfa::test::files_below;
using mxfa::test::Form;
using mxfa::test::forms;
using mxfa::test::read_text;

namespace {

std::string source(const std::string& file) {
  return read_text(std::filesystem::path(MXFA_SOURCE_DIR) / file);
}

bool is_device_header(const std::string& file) { return file.ends_with(".cuh"); }

// Code without comments, line by line; string literals are kept.  Device code writes // comments only.
std::vector<std::string> code_lines(const std::string& file) {
  std::istringstream text(source(file));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) {
    bool quoted = false;
    for (size_t i = 0; i + 1 < line.size(); ++i) {
      if (line[i] == '"') quoted = !quoted;
      if (!quoted && line[i] == '/' && line[i + 1] == '/') line.resize(i);
    }
    lines.push_back(line);
  }
  return lines;
}

// Instructions that a header's string literals spell, up to the first blank:
// "tcgen05.mma.cta_group::1.kind::f16".  Adjacent literals join; a literal that a macro argument interrupts
// counts as far as it goes.
std::vector<std::string> spelled_opcodes(const std::string& file) {
  std::string literals;
  for (std::string line : code_lines(file)) {
    if (line.starts_with("#include")) continue;
    line = std::regex_replace(line, std::regex("\" #N \""), "64");
    static const std::regex literal("\"([^\"]*)\"");
    for (std::sregex_iterator it(line.begin(), line.end(), literal), end; it != end; ++it) {
      literals += (*it)[1].str() + "\n";
    }
  }
  static const std::regex opcode("(?:^|[;{ \n])(?:@p )?([a-z][a-z0-9_]*\\.[A-Za-z0-9_.:%]*)");
  std::vector<std::string> result;
  for (std::sregex_iterator it(literals.begin(), literals.end(), opcode), end; it != end; ++it) {
    result.push_back(std::regex_replace((*it)[1].str(), std::regex("::%[0-9]+"), "::1"));
  }
  return result;
}

// A form as the headers spell it: one text for both CTA groups, and one for every N.
std::string as_spelled(std::string text) {
  text = std::regex_replace(text, std::regex("cta_group::2"), "cta_group::1");
  text = std::regex_replace(text, std::regex("\\.32x32b\\.x[0-9]+\\.b32"), ".32x32b.x64.b32");
  return std::regex_replace(text, std::regex("m64n[0-9]+k16"), "m64n64k16");
}

}  // namespace

TEST_CASE("ptx/house: inline assembly is written in ptx/ only", "[style]") {
  const std::regex assembly("\\b(asm|__asm__)\\b");
  for (const char* folder : {"src", "runtime", "tools"}) {
    for (const std::string& file : files_below(folder)) {
      if (!is_device_header(file) && !file.ends_with(".cpp") && !file.ends_with(".hpp")) continue;
      int number = 0;
      for (const std::string& line : code_lines(file)) {
        ++number;
        const std::string outside = std::regex_replace(line, std::regex("\"[^\"]*\""), "");
        INFO(file << ":" << number << ": " << line);
        CHECK_FALSE(std::regex_search(outside, assembly));
      }
    }
  }
}

TEST_CASE("ptx/house: device code includes ptx/ and src/ only, by path from the root", "[style]") {
  const std::regex include("^\\s*#\\s*include\\s+(.*)$");
  for (const char* folder : {"ptx", "src"}) {
    const std::regex allowed(std::string(folder) == "ptx" ? "\"ptx/[a-z0-9_]+\\.cuh\""
                                                          : "\"(ptx|src/[a-z0-9_]+)/[a-z0-9_]+\\.cuh\"");
    for (const std::string& file : files_below(folder)) {
      for (const std::string& line : code_lines(file)) {
        std::smatch match;
        if (!std::regex_match(line, match, include)) continue;
        INFO(file << ": " << line);
        CHECK(std::regex_match(match[1].str(), allowed));
      }
    }
  }
}

TEST_CASE("ptx/house: device code is ASCII", "[style]") {
  for (const char* folder : {"ptx", "src"}) {
    for (const std::string& file : files_below(folder)) {
      const std::string text = source(file);
      INFO(file);
      CHECK(
          std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 128; }));
    }
  }
}

TEST_CASE("ptx/house: inline assembly has no labels", "[style]") {
  // Loops are C++, so that the compiler and the CPU driver see them.
  for (const std::string& file : files_below("ptx")) {
    for (const std::string& line : code_lines(file)) {
      INFO(file << ": " << line);
      CHECK_FALSE(std::regex_search(line, std::regex("\\bbra\\b|\"[^\"]*[A-Za-z_]+:[^:]")));
    }
  }
}

TEST_CASE("ptx/house: every device function has a caller", "[style]") {
  std::string code;
  for (const char* folder : {"ptx", "src"})
    for (const std::string& file : files_below(folder))
      for (const std::string& line : code_lines(file))
        code += std::regex_replace(line, std::regex("\"[^\"]*\""), "") + "\n";
  const std::regex definition("MXFA_(?:DEVICE|CONSTEXPR)[^;{(]*\\b([a-z]\\w*) *\\(");
  const std::regex name("[a-z]\\w*");
  std::map<std::string, int> defined, said;
  for (std::sregex_iterator it(code.begin(), code.end(), definition), end; it != end; ++it)
    ++defined[(*it)[1].str()];
  for (std::sregex_iterator it(code.begin(), code.end(), name), end; it != end; ++it) ++said[it->str()];
  CHECK(defined.size() > 100);  // the search above still finds the functions
  for (const auto& [function, times] : defined) {
    INFO(function);
    CHECK(said[function] > times);
  }
}

TEST_CASE("ptx/house: forms.def lists every instruction the wrappers write", "[style]") {
  int spelled = 0;
  for (const std::string& file : files_below("ptx")) {
    if (!is_device_header(file)) continue;
    for (const std::string& opcode : spelled_opcodes(file)) {
      ++spelled;
      INFO(file << ": " << opcode);
      CHECK(std::any_of(forms().begin(), forms().end(),
                        [&](const Form& form) { return as_spelled(form.text).starts_with(opcode); }));
    }
  }
  CHECK(spelled > 80);  // the search above still finds the wrappers
}

TEST_CASE("ptx/house: every block of keys that the Hopper kernels may be asked for has a wgmma", "[style]") {
  const std::string wgmma = source("ptx/wgmma.cuh");
  for (const char* kernel : {"attention_fwd_sm90", "attention_bwd_dq_sm90"}) {
    const auto config = nlohmann::json::parse(source(std::string("configs/kernels/") + kernel + ".json"));
    const std::vector<int> limits = config.at("limits").at("tile_n");  // first, last, step
    for (int keys = limits.at(0); keys <= limits.at(1); keys += limits.at(2)) {
      INFO(kernel << ": tile_n " << keys);
      CHECK(wgmma.find("MXFA_WGMMA_BF16(" + std::to_string(keys) + ",") != std::string::npos);
    }
  }
}

TEST_CASE("ptx/house: every form names a header that spells it", "[style]") {
  for (const Form& form : forms()) {
    const std::string file = "ptx/" + form.header + ".cuh";
    const std::string text = as_spelled(form.text), opcode = text.substr(0, text.find_first_of(" ;"));
    INFO(file << ": " << form.text);
    if (opcode.find('.') == std::string::npos) {
      CHECK(source(file).find('"' + opcode + ';') != std::string::npos);
      continue;
    }
    const std::vector<std::string> spelled = spelled_opcodes(file);
    CHECK(std::find(spelled.begin(), spelled.end(), opcode) != spelled.end());
  }
}
