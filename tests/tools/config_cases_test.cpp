// Cases from public bug reports about configuration files and command lines
// (tests/data/cases/config_cli.json): the exit code is the documented one, the message has the parts that the
// case asks for, and nothing is written.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "support/catch.hpp"
#include "tools/program.hpp"

using mxfa::test::ProgramResult;
using mxfa::test::Workplace;
using nlohmann::json;

namespace {

json load_cases() { return json::parse(std::ifstream(MXFA_TEST_DATA "/cases/config_cli.json")); }

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// The case's text once for each variant: the first variant is what the text contains.
std::vector<std::string> texts_of(const json& input) {
  const std::string text = input.at("config_text");
  if (!input.contains("variants")) return {text};
  const std::string first = input["variants"][0];
  const size_t at = text.rfind(first);
  REQUIRE(at != std::string::npos);
  std::vector<std::string> texts;
  for (const std::string variant : input["variants"])
    texts.push_back(std::string(text).replace(at, first.size(), variant));
  return texts;
}

void check_refused(const ProgramResult& result, const json& expected) {
  CAPTURE(result.err, result.out);
  CHECK(result.exit_code == 2);
  CHECK(result.out.empty());
  CHECK_FALSE(mxfa::test::looks_like_a_stack_trace(result.err));
  for (const std::string part : expected.at("message_has")) {
    CAPTURE(part);
    CHECK(lower(result.err).find(lower(part)) != std::string::npos);
  }
}

}  // namespace

TEST_CASE("bad shape files from public bug reports are refused with exit code 2") {
  for (const json& one : load_cases()) {
    if (one["input"]["op"] != "cli_run" || !one["input"].contains("config_text") ||
        !one["expected"].contains("reject"))
      continue;
    CAPTURE(one["id"].get<std::string>());
    for (const std::string& text : texts_of(one["input"])) {
      CAPTURE(text);
      for (const char* command : {"run", "explain", "compile"}) {
        const Workplace workplace;
        const std::string file = workplace.write("shape.json", text);
        const ProgramResult result = workplace.run({command, file, "--json", workplace.path("out.json")},
                                                   {{"MXFA_CACHE_DIR", workplace.path("cache")}});
        check_refused(result, one["expected"]);
        CHECK(workplace.files() == std::vector<std::string>{"shape.json"});
      }
    }
  }
}

TEST_CASE("cfg-missing-file: a path that is missing, a directory or unreadable") {
  const json expected = {{"message_has", {"path"}}};
  const Workplace workplace;
  check_refused(workplace.run({"run", "/nonexistent.json"}), expected);
  check_refused(workplace.run({"run", workplace.path("")}), expected);
  if (geteuid() == 0) return;  // root may read anything
  const std::string file = workplace.write("secret.json", "{}");
  chmod(file.c_str(), 0);
  check_refused(workplace.run({"run", file}), expected);
}

TEST_CASE("one bad file among good ones stops everything before anything runs") {
  const Workplace workplace;
  const std::string good = workplace.write(
      "good.json",
      R"({"op":"attn_fwd","dtype":"bf16","head_dim":128,"heads_q":1,"seqlens_q":[4],"seqlens_k":[4]})");
  const ProgramResult result = workplace.run({"run", good, workplace.write("bad.json", "{")});
  CHECK(result.exit_code == 2);
  CHECK(result.out.empty());
  CHECK(result.err.find("bad.json") != std::string::npos);
}

TEST_CASE("cfg-env-typo: each unusable variable costs one warning that names it and what is used instead") {
  const Workplace workplace;
  const std::string file = workplace.write(
      "shape.json",
      R"({"op":"attn_fwd","dtype":"bf16","head_dim":128,"heads_q":2,"seqlens_q":[4],"seqlens_k":[4]})");
  const ProgramResult result =
      workplace.run({"run", file, "--device", "emulator:b200"}, {{"MXFA_CACHE_DIR", "/dev/null/x"},
                                                                 {"MXFA_VERBOSE", "verry"},
                                                                 {"MXFA_CACHEDIR", "/x"},
                                                                 {"MXFA_EMU_SHEDULE", "lazy"},
                                                                 {"MXFA_EMU_SEED", "1"}});
  CAPTURE(result.err, result.out);
  CHECK(result.exit_code == 0);
  const auto lines_with = [&](const std::string& part) {
    std::stringstream lines(result.err);
    int count = 0;
    for (std::string line; std::getline(lines, line);) count += line.find(part) != std::string::npos;
    return count;
  };
  CHECK(lines_with("MXFA_CACHE_DIR=") + lines_with("(MXFA_CACHE_DIR") + lines_with("MXFA_CACHE_DIR)") >= 1);
  CHECK(lines_with("/dev/null/x") == 1);
  CHECK(lines_with("MXFA_VERBOSE=verry: need 0 or 1; using 0") == 1);
  CHECK(lines_with("MXFA_CACHEDIR is not one of mxfa's and is ignored; did you mean MXFA_CACHE_DIR?") == 1);
  CHECK(lines_with("MXFA_EMU_SHEDULE is not one of mxfa's and is ignored; did you mean MXFA_EMU_SCHEDULE?") ==
        1);
  CHECK(lines_with("MXFA_EMU_SEED") == 0);
}

TEST_CASE("no variable that the library or the CPU driver reads is taken for a typing error") {
  std::map<std::string, std::string> variables;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(MXFA_SOURCE_DIR "/runtime")) {
    if (entry.path().extension() != ".cpp") continue;
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    const std::string code = text.str();
    static const std::regex read("getenv\\(\"(MXFA_[A-Z_]+)\"\\)");
    for (std::sregex_iterator it(code.begin(), code.end(), read), end; it != end; ++it)
      variables[(*it)[1].str()] = "";
  }
  CHECK(variables.size() > 10);
  const Workplace workplace;
  CHECK(workplace.run({"cache", "list"}, variables).err.find("not one of mxfa's") == std::string::npos);
}
