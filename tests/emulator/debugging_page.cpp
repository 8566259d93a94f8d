// The reports that docs/debugging.md quotes are those of the kernel it talks about.
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "driver_table.hpp"
#include "host/nvrtc.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;

namespace {

std::string read(const std::string& path) {
  std::ifstream file(path);
  REQUIRE(file.good());
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string ptx_of(int defect) {
  static const MxfaEmbedded kNoHeaders[] = {{nullptr, nullptr}};
  static const mxfa::Nvrtc nvrtc;
  return nvrtc
      .compile(
          "scale_tiles.cu", read(MXFA_TEST_DATA "/debugging/scale_tiles.cu"), kNoHeaders,
          {"--gpu-architecture=sm_100a", "--std=c++17", "-lineinfo", "-DDEFECT=" + std::to_string(defect)})
      .ptx;
}

struct Outcome {
  CUresult result = CUDA_SUCCESS;
  bool right = false;
  std::string report, deadlock;  // deadlock: JSON
};

Outcome run(const std::string& ptx, const std::string& schedule, const std::string& seed, bool checks) {
  constexpr int kTiles = 6;
  Driver& cu = Driver::of("b200");
  setenv("MXFA_EMU_SCHEDULE", schedule.c_str(), 1);
  setenv("MXFA_EMU_SEED", seed.c_str(), 1);
  setenv("MXFA_EMU_CHECK", checks ? "on" : "off", 1);
  Outcome outcome;
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  REQUIRE(cu.cuModuleLoadData(&module, ptx.c_str()) == CUDA_SUCCESS);
  REQUIRE(cu.cuModuleGetFunction(&function, module, "scale_tiles") == CUDA_SUCCESS);
  std::vector<float> in(kTiles * 256), out(in.size());
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i);
  CUdeviceptr from = 0, to = 0;
  REQUIRE(cu.cuMemAlloc_v2(&from, in.size() * 4) == CUDA_SUCCESS);
  REQUIRE(cu.cuMemAlloc_v2(&to, in.size() * 4) == CUDA_SUCCESS);
  REQUIRE(cu.cuMemcpyHtoD_v2(from, in.data(), in.size() * 4) == CUDA_SUCCESS);
  int tiles = kTiles;
  void* parameters[] = {&from, &to, &tiles};
  REQUIRE(cu.cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, nullptr, parameters, nullptr) == CUDA_SUCCESS);
  outcome.result = cu.cuCtxSynchronize();
  outcome.deadlock = reinterpret_cast<const char* (*)()>(cu.symbol("mxfaEmulatorLastDeadlock"))();
  if (outcome.result == CUDA_SUCCESS) {
    REQUIRE(cu.cuMemcpyDtoH_v2(out.data(), to, out.size() * 4) == CUDA_SUCCESS);
    outcome.right = true;
    for (size_t i = 0; i < in.size(); ++i) outcome.right = outcome.right && out[i] == 2 * in[i];
    cu.cuMemFree_v2(from);
    cu.cuMemFree_v2(to);
    cu.cuModuleUnload(module);
  } else {
    outcome.report = cu.last_report();
    cu.ready();
  }
  for (const char* name : {"MXFA_EMU_SCHEDULE", "MXFA_EMU_SEED", "MXFA_EMU_CHECK"}) unsetenv(name);
  return outcome;
}

// Without the numbers that another version of the compiler, or other tests before, would choose otherwise.
std::string plain(std::string text) {
  text = std::regex_replace(text, std::regex("PTX line [0-9]+"), "PTX line N");
  text = std::regex_replace(text, std::regex("0x7[0-9a-f]{11}"), "ADDRESS");
  return std::regex_replace(text, std::regex("%[a-z]+[0-9]+"), "%r");
}

}  // namespace

TEST_CASE("the page on debugging: the kernel without a defect is right under every schedule, with checks",
          "[driver][page][emulator-only]") {
  const std::string ptx = ptx_of(0);
  for (const char* schedule : {"functional", "lazy", "eager", "random", "pct", "split"})
    for (const char* seed : {"1", "2", "3"}) {
      CAPTURE(schedule, seed);
      const Outcome outcome = run(ptx, schedule, seed, true);
      CHECK(outcome.report == "");
      CHECK(outcome.right);
    }
}

TEST_CASE("a deadlock is told as JSON, too: each waiting warp, its line, barrier and counters",
          "[driver][page][emulator-only]") {
  CHECK(run(ptx_of(0), "functional", "0", false).deadlock == "");
  const Outcome outcome = run(ptx_of(1), "functional", "0", false);
  INFO(outcome.deadlock);
  const auto report = nlohmann::json::parse(outcome.deadlock);
  CHECK(report["kind"] == "deadlock");
  CHECK(report["kernel"] == "scale_tiles");
  CHECK(report["schedule"] == "functional");
  CHECK(report["pending_work"].empty());
  REQUIRE(report["warps"].size() == 2);
  const auto &loader = report["warps"][0], &consumer = report["warps"][1];
  CHECK(loader["lanes"] == "0x00000001");
  CHECK(consumer["lanes"] == "0xffffffff");
  for (const auto& warp : {loader, consumer}) {
    CHECK(warp["cta"] == nlohmann::json{0, 0, 0});
    CHECK(warp["role"] == "wait");  // the function of the source; both are in the kernel itself but for it
    CHECK(warp["waits_for"]["kind"] == "mbarrier");
    CHECK(warp["waits_for"]["parity"] == 0);
    CHECK(warp["waits_for"]["phase"] == 0);
    CHECK(warp["waits_for"]["initialised_by"]["source"].get<std::string>().find("in init") !=
          std::string::npos);
  }
  CHECK(consumer["source"].get<std::string>().find("inlined at scale_tiles.cu:71") != std::string::npos);
  const auto& full = consumer["waits_for"];
  CHECK(full["offset"] == 0x1000);
  CHECK(full["expected_arrivals"] == 1);
  CHECK(full["pending_arrivals"] == 0);
  CHECK(full["expected_bytes"] == 2048);
  CHECK(full["pending_bytes"] == 1024);
  CHECK(full["in_this_phase"].size() == 2);
  CHECK(loader["waits_for"]["pending_arrivals"] == 32);
}

TEST_CASE("the page on debugging: its reports are the driver's", "[driver][page][emulator-only]") {
  const std::string page = read(MXFA_SOURCE_DIR "/docs/debugging.md");
  // <!-- scale_tiles DEFECT SCHEDULE SEED on|off --> and a block of text.
  const std::regex mark("<!-- scale_tiles ([0-9]) (\\S+) ([0-9]+) (on|off) -->\\s*```text\\n([^`]*)```");
  int blocks = 0;
  for (std::sregex_iterator at(page.begin(), page.end(), mark), end; at != end; ++at, ++blocks) {
    const std::smatch& m = *at;
    const Outcome outcome = run(ptx_of(std::stoi(m[1])), m[2], m[3], m[4] == "on");
    INFO(outcome.report);
    std::string report = "\n" + plain(outcome.report) + "\n";
    std::stringstream quoted(plain(m[5]));
    for (std::string line; std::getline(quoted, line);) {
      if (line.empty() || line == "...") continue;
      CAPTURE(line);
      CHECK(report.find(line) != std::string::npos);
    }
  }
  CHECK(blocks == 3);
}

TEST_CASE("the page on debugging: what schedules find of the stage that is given back too early",
          "[driver][page][emulator-only]") {
  const std::string early = ptx_of(2), no_fence = ptx_of(3);
  CHECK(run(early, "functional", "0", false).right);
  CHECK(run(early, "lazy", "0", false).right);
  CHECK(!run(early, "random", "1", false).right);
  for (const char* schedule : {"functional", "lazy", "eager", "random", "pct", "split"})
    CHECK(run(no_fence, schedule, "1", false).right);  // no order of events shows it: only the checks do
}
