// A sample of the synchronisations of the shipped kernels, deleted one at a time: every deletion is found, or
// tests/data/mutate/known.json says why not.  `make check` deletes all of them.
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "support/catch.hpp"
#include "tools/program.hpp"

using mxfa::test::ProgramResult;
using mxfa::test::Workplace;
using nlohmann::json;

namespace {

const std::string kFolder = MXFA_TEST_DATA "/mutate/";

json load(const std::string& path) { return json::parse(std::ifstream(path)); }

}  // namespace

TEST_CASE("the loss of a synchronisation is found: a sample of each kernel") {
  const auto [file, only, sample] =
      GENERATE(table<std::string, std::string, int>({{"sm100.json", "1", 10},
                                                     {"sm100.json", "2", 10},
                                                     {"sm100.json", "3", 10},
                                                     {"sm100_pair.json", "1", 10},
                                                     {"quantize.json", "1", 2},
                                                     {"sm90_bwd.json", "1", 4},
                                                     {"sm90_bwd.json", "5", 4},
                                                     {"sm90_bwd.json", "7", 4}}));
  const Workplace workplace;
  const ProgramResult result =
      workplace.run({"check", kFolder + file, "--only", only, "--device",
                     file.starts_with("sm90") ? "emulator:h200" : "emulator:b200", "--strict", "--schedules",
                     "1", "--mutate", "--sample", std::to_string(sample), "--jobs", "1", "--known",
                     kFolder + "known.json", "--json", workplace.path("report.json")});
  CAPTURE(file, only, result.out, result.err);
  CHECK(result.exit_code == 0);
  const json kernel = load(workplace.path("report.json")).at("mutations").at(0);
  CHECK(kernel.at("sites").size() == static_cast<size_t>(sample));
  CHECK(kernel.at("silent") == 0);
  CHECK(kernel.at("found") > 0);
}

TEST_CASE(
    "every loss of a synchronisation of the Hopper forward is found, the fence of its mbarriers by advice") {
  // Not --strict: the kernel departs from the letter as published ones do, without a proxy fence between
  // reading a slot and the load that refills it.
  const Workplace workplace;
  const ProgramResult result = workplace.run(
      {"check", kFolder + "sm90.json", "--only", "1", "--device", "emulator:h200", "--schedules", "1",
       "--mutate", "--known", kFolder + "known.json", "--json", workplace.path("report.json")});
  CAPTURE(result.out, result.err);
  CHECK(result.exit_code == 0);
  const json kernel = load(workplace.path("report.json")).at("mutations").at(0);
  CHECK(kernel.at("silent") == 0);
  CHECK(kernel.at("known_gaps") == 0);
  for (const json& site : kernel.at("sites")) {
    if (site.at("kind") != "fence.mbarrier_init") continue;
    CHECK(site.at("finding") == "advice");
    CHECK(site.at("report") == "advice missing-mbarrier-init-fence");
  }
}

TEST_CASE("all kernels that a backward launches lose synchronisations in turn") {
  const Workplace workplace;
  const ProgramResult result =
      workplace.run({"check", kFolder + "sm90_bwd.json", "--only", "5", "--device", "emulator:h200",
                     "--strict", "--schedules", "1", "--mutate", "--all-kernels", "--sample", "2", "--jobs",
                     "1", "--known", kFolder + "known.json", "--json", workplace.path("report.json")});
  CAPTURE(result.out, result.err);
  CHECK(result.exit_code == 0);
  std::set<std::string> kernels;
  const json report = load(workplace.path("report.json"));
  for (const json& kernel : report.at("mutations")) {
    kernels.insert(kernel.at("kernel"));
    CHECK(kernel.at("silent") == 0);
  }
  CHECK(kernels ==
        std::set<std::string>{"attention_bwd_sm90", "attention_bwd_prepare", "attention_bwd_finish"});
}

TEST_CASE("a list of known deletions must say what they are and why") {
  const Workplace workplace;
  const auto [text, message] = GENERATE(table<std::string, std::string>({
      {"{}", "need a JSON array"},
      {R"([{"kernel":"k","kind":"bar.sync","text":"x","verdict":"equivalent"}])",
       "entry 1 has no \"reason\""},
      {R"([{"kernel":"k","kind":"bar.sync","text":"x","verdict":"fine","reason":"r"}])",
       "verdict \"fine\" is not \"equivalent\""},
  }));
  const ProgramResult result = workplace.run({"check", kFolder + "quantize.json", "--policy", "functional",
                                              "--mutate", "--known", workplace.write("known.json", text)});
  CAPTURE(result.err);
  CHECK(result.exit_code == 2);
  CHECK(result.err.find(message) != std::string::npos);
}
