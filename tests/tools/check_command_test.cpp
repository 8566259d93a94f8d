// `mxfa check`: schedules, their comparison, and the deletion of synchronisations.
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "support/catch.hpp"
#include "tools/program.hpp"

using mxfa::test::ProgramResult;
using mxfa::test::Workplace;
using nlohmann::json;

namespace {

const std::string kShape =
    R"({"op":"attn_fwd","dtype":"bf16","head_dim":64,"heads_q":1,"seqlens_q":[3,0,130],"seqlens_k":[5,7,0]})";

json load(const std::string& path) { return json::parse(std::ifstream(path)); }

}  // namespace

TEST_CASE("check runs every schedule and finds the same bits") {
  const Workplace workplace;
  const ProgramResult result = workplace.run({"check", workplace.write("shape.json", kShape), "--schedules",
                                              "4", "--seed", "7", "--json", workplace.path("report.json")});
  CAPTURE(result.out, result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(result.out.find("silent") != std::string::npos);
  CHECK(result.out.find("compared") != std::string::npos);
  const json row = load(workplace.path("report.json")).at("rows").at(0);
  CHECK(row.at("verdict") == "silent");
  std::vector<std::string> names;
  std::set<std::string> bits;
  for (const json& trial : row.at("schedules")) {
    names.push_back(trial.at("schedule"));
    if (trial.contains("seed")) names.back() += " " + std::to_string(trial["seed"].get<int>());
    bits.insert(trial.at("bits").get<std::string>());
  }
  CHECK(names == std::vector<std::string>{"functional", "lazy", "eager", "random 7", "pct:2 8", "split 9",
                                          "pct:3 10"});
  CHECK(bits.size() == 1);
}

TEST_CASE("check compares dQ as well where the backward is deterministic") {
  const Workplace workplace;
  // Three tiles of keys add to one dQ: the sum of two has the same bits in any order.
  const auto bits = [&](const char* deterministic) {
    const std::string shape = std::string(R"({"op":"attn_bwd","dtype":"bf16","head_dim":64,"heads_q":1,)"
                                          R"("seqlens_q":[40],"seqlens_k":[300],)"
                                          R"("backward":{"deterministic":)") +
                              deterministic + "}}";
    const ProgramResult result =
        workplace.run({"check", workplace.write("shape.json", shape), "--device", "emulator:h200",
                       "--schedules", "2", "--no-reference", "--json", workplace.path("report.json")});
    CAPTURE(result.out, result.err);
    REQUIRE(result.exit_code == 0);
    std::set<std::string> found;
    const json report = load(workplace.path("report.json"));
    for (const json& trial : report.at("rows").at(0).at("schedules"))
      found.insert(trial.at("bits").get<std::string>());
    return found;
  };
  const std::set<std::string> without = bits("false"), with = bits("true");
  CHECK(without.size() == 1);  // of dK and dV
  CHECK(with.size() == 1);     // and of dQ
  CHECK(without != with);
}

TEST_CASE("check refuses a GPU, an unknown schedule and a shape that is not there") {
  const Workplace workplace;
  const std::string shape = workplace.write("shape.json", kShape);
  const auto refused = [&](std::vector<std::string> arguments, const std::string& text) {
    arguments.insert(arguments.begin(), {"check", shape});
    const ProgramResult result = workplace.run(arguments);
    CAPTURE(result.err);
    CHECK(result.exit_code == 2);
    CHECK(result.out.empty());
    CHECK(result.err.find(text) != std::string::npos);
  };
  refused({"--device", "gpu"}, "CPU driver only");
  refused({"--policy", "greedy"}, "functional, lazy, eager");
  refused({"--only", "2"}, "there are 1 shapes");
  refused({"--sample", "3"}, "--mutate");
}

TEST_CASE("a kernel without one of its synchronisations: check says what happens and how to see it again") {
  const Workplace workplace;
  const ProgramResult result = workplace.run({"check", workplace.write("shape.json", kShape), "--schedules",
                                              "0", "--first", "--json", workplace.path("report.json")},
                                             {{"MXFA_EMU_MUTATE", "attention_fwd_sm100:2"}});
  CAPTURE(result.out, result.err);
  CHECK(result.exit_code == 4);
  CHECK(result.err.find("is loaded without synchronisation 2 of ") != std::string::npos);
  CHECK(result.err.find("MXFA_EMU_MUTATE=attention_fwd_sm100:2") != std::string::npos);
  CHECK(load(workplace.path("report.json")).at("rows").at(0).at("verdict") != "silent");
}
