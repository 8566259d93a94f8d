// `mxfa bench` as a user meets it on a machine without a GPU: what it refuses, and in which order.
#include <nlohmann/json.hpp>

#include "support/catch.hpp"
#include "tools/program.hpp"

using mxfa::test::ProgramResult;
using mxfa::test::Workplace;

namespace {

const char* const kShape =
    R"({"op":"attn_fwd","dtype":"bf16","head_dim":64,"heads_q":1,"seqlens_q":[3],"seqlens_k":[5]})";

}  // namespace

TEST_CASE("bench refuses the CPU driver: an emulator's time is not a kernel's") {
  const Workplace workplace;
  const std::string report = workplace.path("report.json");
  const ProgramResult result = workplace.run(
      {"bench", workplace.write("shape.json", kShape), "--device", "emulator:h200", "--json", report});
  CAPTURE(result.err);
  CHECK(result.exit_code == 2);
  CHECK(result.out.empty());
  CHECK(result.err.find("says nothing about a kernel's") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(report));
}

TEST_CASE("bench names what is wrong with a suite, a baseline or an option before it looks at the device") {
  const Workplace workplace;
  const std::string shape = workplace.write("shape.json", kShape);
  std::filesystem::create_directory(workplace.path("empty"));
  std::filesystem::create_directory(workplace.path("suite"));
  workplace.write("suite/broken.json", R"({"op":"attn_fwd","dtype":"bf16","head_dimension":64})");
  const std::string report = R"({"command":"bench","format":1,"device":{"name":"NVIDIA H200"},"rows":)";
  struct Refusal {
    std::vector<std::string> arguments;
    std::string message;
  };
  const std::vector<Refusal> refusals = {
      {{workplace.path("empty")}, "holds no shape file"},
      {{workplace.path("nowhere.json")}, "nowhere.json"},
      {{workplace.path("suite")}, "head_dimension"},
      {{shape, "--repeats", "2"}, "--repeats"},
      {{shape, "--fail-on-regression"}, "needs --baseline"},
      {{shape, "--save", workplace.path("no/folder/x")}, "--save"},
      {{shape, "--baseline", workplace.write("text", "hello")}, "not JSON"},
      {{shape, "--baseline", shape}, "not a report of bench"},
      {{shape, "--baseline", workplace.write("old", R"({"command":"bench","format":0})")}, "format 0"},
      {{shape, "--baseline",
        workplace.write(
            "short", report + R"([{"shape":"a","op":"","dtype":"","head_dim":1,"work":1,"time_ms":{}}]})")},
       "a: time_ms lacks"},
  };
  for (const auto& [arguments, message] : refusals) {
    std::vector<std::string> line = {"bench", "--device", "emulator:h200"};
    line.insert(line.end(), arguments.begin(), arguments.end());
    const ProgramResult result = workplace.run(line);
    CAPTURE(message, result.err);
    CHECK(result.exit_code == 2);
    CHECK(result.err.find(message) != std::string::npos);
    CHECK(result.err.find("emulator takes") == std::string::npos);
  }
}

TEST_CASE("every file of the H200 suite is a shape file") {
  const Workplace workplace;
  const ProgramResult result =
      workplace.run({"bench", MXFA_SOURCE_DIR "/configs/shapes/h200", "--device", "emulator:h200"});
  CAPTURE(result.err);
  CHECK(result.exit_code == 2);
  // Refused for the device, which comes after all files were read.
  CHECK(result.err.find("says nothing about a kernel's") != std::string::npos);
}
