// tests/data/cases: what the public cases of the forward and its schedules say.  Those that are a problem and
// a result run here as they stand; those with a twist have tests of their own, which carry their ids.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "kernels/attention_run.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;
using namespace mxfa::reference;
using nlohmann::json;

namespace {

json read_cases(const std::string& name) {
  std::ifstream file(std::string(MXFA_SOURCE_DIR) + "/tests/data/cases/" + name + ".json");
  REQUIRE(file);
  return json::parse(file);
}

std::vector<json> forward_cases() {
  std::vector<json> cases;
  for (const char* name : {"attn_fwd", "mxfp8_attn"})
    for (const json& item : read_cases(name))
      if (item["input"]["op"] == "attn_fwd") cases.push_back(item);
  return cases;
}

// Only lengths, heads, masks, scale and normal data: nothing that a shape file could not say.
bool is_plain(const json& input) {
  return input["special"].empty() && input["seqlens_q"].is_array() && input["head_dim"] != 72;
}

AttentionInputs inputs_of(const json& input) {
  AttentionProblem problem =
      problem_of(input["seqlens_q"], input["seqlens_k"], input["heads_q"], input["head_dim"]);
  problem.heads_kv = input["heads_kv"];
  problem.causal = input["causal"];
  problem.window_left = input["window"][0], problem.window_right = input["window"][1];
  problem.broadcast_q = input["broadcast_q"];
  if (!input["scale"].is_null()) problem.scale = input["scale"];
  return make_inputs(problem, input["dtype"].get<std::string>().starts_with("mxfp8"));
}

// "tokens 0..47" or "sequence 0": rows of O, [first, last].
std::pair<int64_t, int64_t> rows_of(const std::string& text, const AttentionProblem& p) {
  int first = 0, last = 0;
  if (std::sscanf(text.c_str(), "tokens %d..%d", &first, &last) == 2) return {first, last};
  REQUIRE(std::sscanf(text.c_str(), "sequence %d", &first) == 1);
  return {p.first_o(first), p.first_o(first) + p.len_q(first) - 1};
}

}  // namespace

TEST_CASE("The plain public cases of the forward give what they say", "[attention][cases][sm_100]") {
  int ran = 0;
  for (const json& item : forward_cases()) {
    if (!is_plain(item["input"])) continue;
    INFO(item["id"]);
    ++ran;
    const AttentionInputs inputs = inputs_of(item["input"]);
    const AttentionProblem& p = inputs.problem;
    const json& expected = item["expected"];
    const AttentionOutputs outputs = run_attention(inputs);
    if (p.rows_q() > 0) {
      check_kernel_rounding(inputs, outputs);
      check_exact(inputs, outputs);  // finite, and within the tolerance of the format
    }
    if (expected.contains("rows_exact_zero")) {
      const auto [first, last] = rows_of(expected["rows_exact_zero"]["O"], p);
      const int64_t width = int64_t{p.heads_q} * p.head_dim;
      for (int64_t i = first * width; i < (last + 1) * width; ++i) REQUIRE(outputs.o[i] == 0);
    }
    if (expected.contains("lse_neg_inf")) {
      const auto [first, last] = rows_of(expected["lse_neg_inf"], p);
      for (int head = 0; head < p.heads_q; ++head)
        for (int64_t row = first; row <= last; ++row)
          REQUIRE(outputs.lse[head * p.rows_o() + row] == -INFINITY);
    }
  }
  CHECK(ran >= 12);
}

TEST_CASE("Every public case of the forward and its schedules has a test that carries its id", "[cases]") {
  std::string tests;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(std::string(MXFA_SOURCE_DIR) + "/tests"))
    if (entry.path().extension() == ".cpp") {
      std::ostringstream text;
      text << std::ifstream(entry.path()).rdbuf();
      tests += text.str();
    }
  for (const char* name : {"attn_fwd", "mxfp8_attn", "sched"})
    for (const json& item : read_cases(name)) {
      const std::string id = item["id"];
      INFO(id);
      CHECK((tests.find('"' + id + ':') != tests.npos || tests.find('"' + id + ' ') != tests.npos));
    }
}
