// The subcommands as a user meets them: usage, refusals of what this version cannot run, and a small shape
// from file to verdict.
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/catch.hpp"
#include "tools/program.hpp"

using mxfa::test::ProgramResult;
using mxfa::test::Workplace;
using nlohmann::json;

namespace {

const std::string kDevice = "emulator:b200";

std::string shape_text(const std::string& dtype, const std::string& more = "") {
  return R"({"op":"attn_fwd","dtype":")" + dtype +
         R"(","head_dim":64,"heads_q":1,"seqlens_q":[3,0,130],"seqlens_k":[5,7,0])" + more + "}";
}

json load(const std::string& path) { return json::parse(std::ifstream(path)); }

}  // namespace

TEST_CASE("wrong usage exits with 2 and says what is right") {
  const Workplace workplace;
  const auto [line, message] = GENERATE(table<std::string, std::string>({
      {"", "subcommand is required"},
      {"measure x",
       "unknown command \"measure\"; the commands are run, check, explain, compile, bench, info, cache"},
      {"explian x", "did you mean \"explain\"?"},
      {"run", "SHAPE is required"},
      {"run x.json --bogus", "--bogus"},
      {"run x.json --seed -1", "--seed"},
      {"run x.json --quiet --verbose", "excludes"},
      {"info --device emulator:b300", "must be auto, gpu, emulator, emulator:b200"},
      {"info --device gpu:x", "device is \"gpu:x\""},
      {"info --json /nonexistent/folder/x", "cannot write this path"},
      // Flags that would do nothing.
      {"explain x.json --seed 1", "--seed"},
      {"compile x.json --seed 1", "--seed"},
      {"info --seed 1", "--seed"},
      {"info --verbose", "--verbose"},
      {"info --quiet", "--quiet"},
      {"cache list --seed 1", "--seed"},
      {"cache verify --device emulator", "--device"},
      {"cache clear --verbose", "--verbose"},
      {"cache list --quiet", "--quiet"},
      {"check x.json --check --no-reference", "excludes"},
      {"check x.json --policy lazy --schedules 3", "--policy names no randomised schedule"},
      {"check x.json --policy lazy --seed 3", "--policy names no randomised schedule"},
      {"check --policy lazy x.json y.json", "x.json: cannot read this path"},
      {"check x.json --policy random --schedules 0", "none is left to run"},
  }));
  std::vector<std::string> arguments;
  std::stringstream words(line);
  for (std::string word; words >> word;) arguments.push_back(word);
  const ProgramResult result = workplace.run(arguments);
  CAPTURE(line, result.err);
  CHECK(result.exit_code == 2);
  CHECK(result.out.empty());
  CHECK(result.err.find(message) != std::string::npos);
}

TEST_CASE("help and version exit with 0 and name the exit codes") {
  const Workplace workplace;
  const ProgramResult help = workplace.run({"--help"});
  CHECK(help.exit_code == 0);
  CHECK(help.out.find("2 bad input or usage") != std::string::npos);
  CHECK(workplace.run({"--version"}).out.starts_with("mxfa "));
}

TEST_CASE("an option this version cannot run is refused by name, with exit code 2 and nothing run") {
  const Workplace workplace;
  const auto [more, name] = GENERATE(table<std::string, std::string>({
      {R"(,"kernel":{"scheduler":7})", "scheduler"},
      {R"(,"kernel":{"no_such_field":1})", "no_such_field"},
  }));
  const std::string dtype = more.find("mxfp8") != std::string::npos ? "mxfp8" : "bf16";
  const ProgramResult result =
      workplace.run({"run", workplace.write("shape.json", shape_text(dtype, more)), "--device", kDevice});
  CAPTURE(result.err);
  CHECK(result.exit_code == 2);
  CHECK(result.out.empty());
  CHECK(result.err.find(name) != std::string::npos);
  CHECK(result.err.find("shape.json") != std::string::npos);
}

TEST_CASE("explain shows the work of the SMs under each scheduler, and draws it") {
  const Workplace workplace;
  const std::string text =
      R"({"op":"attn_fwd","dtype":"bf16","head_dim":64,"heads_q":4,"seqlens_q":[3000],"seqlens_k":[3000],)"
      R"("causal":true,"kernel":{"max_ctas":10}})";
  const std::string svg = workplace.write("loads.svg", "");
  const ProgramResult result =
      workplace.run({"explain", workplace.write("shape.json", text), "--device", kDevice, "--svg", svg});
  CAPTURE(result.err, result.out);
  CHECK(result.exit_code == 0);
  for (const char* line :
       {"static: busiest SM", "zigzag: busiest SM", "lpt (chosen): busiest SM", "clc: busiest SM", " SMs #"})
    CHECK(result.out.find(line) != std::string::npos);
  std::ifstream file(svg);
  const std::string picture(std::istreambuf_iterator<char>(file), {});
  CHECK(picture.starts_with("<svg"));
  size_t cells = 0;
  for (size_t at = 0; (at = picture.find("<rect", at)) != std::string::npos; ++at) ++cells;
  CHECK(cells == 40);  // 10 CTAs, 4 schedulers
  const ProgramResult refused = workplace.run({"explain", workplace.write("shape.json", text), "--device",
                                               kDevice, "--svg", "/no/such/folder/x.svg"});
  CHECK(refused.exit_code == 2);
  CHECK(refused.err.find("/no/such/folder/x.svg") != std::string::npos);
}

TEST_CASE("attn_bwd is refused by name on a device without a kernel for it") {
  const Workplace workplace;
  const std::string text =
      R"({"op":"attn_bwd","dtype":"bf16","head_dim":64,"heads_q":1,"seqlens_q":[3],"seqlens_k":[5]})";
  const ProgramResult result =
      workplace.run({"run", workplace.write("shape.json", text), "--device", kDevice});
  CAPTURE(result.err);
  CHECK(result.exit_code == 2);
  CHECK(result.err.find("attn_bwd") != std::string::npos);
}

TEST_CASE("a shape that no memory holds is refused before anything is allocated") {
  const Workplace workplace;
  const std::string text =
      R"({"op":"attn_fwd","dtype":"bf16","head_dim":128,"heads_q":64,"seqlens_q":[2000000000],)"
      R"("seqlens_k":[1]})";
  const ProgramResult result =
      workplace.run({"run", workplace.write("shape.json", text), "--device", kDevice});
  CAPTURE(result.err);
  CHECK(result.exit_code == 2);
  CHECK(result.err.find("2000000000 query and 1 key tokens need about") != std::string::npos);
}

TEST_CASE("a small jagged shape runs and passes, and the report says how") {
  const std::string dtype = GENERATE("bf16", "mxfp8");
  const Workplace workplace;
  const std::string report = workplace.path("out.json");
  const ProgramResult result = workplace.run(
      {"run", workplace.write("shape.json", shape_text(dtype)), "--device", kDevice, "--json", report});
  CAPTURE(result.err, result.out);
  REQUIRE(result.exit_code == 0);
  CHECK(result.out.find("pass") != std::string::npos);
  const json row = load(report).at("rows").at(0);
  CHECK(row["verdict"] == "pass");
  CHECK(row["dtype"] == dtype);
  CHECK(row["arch"] == "sm_100a");
  // The CPU driver's clock says nothing about a kernel: counts, never a time.
  CHECK_FALSE(row.contains("time_ms"));
  CHECK(row["counters"]["warp_instructions"] > 0);
  CHECK(row["counters"]["mma_instructions"] > 0);
}

TEST_CASE("an H200 runs masks, grouped heads and broadcast queries, and MXFP8 multiplied out") {
  const Workplace workplace;
  const std::string masked =
      R"({"op":"attn_fwd","dtype":"bf16","head_dim":96,"heads_q":2,"heads_kv":1,"seqlens_q":[70],)"
      R"("broadcast_q":true,"seqlens_k":[90,0,5],"causal":true,"window":[40,-1]})";
  const ProgramResult passed =
      workplace.run({"run", workplace.write("masked.json", masked), "--device", "emulator:h200"});
  CAPTURE(passed.err, passed.out);
  CHECK(passed.exit_code == 0);
  CHECK(passed.out.find("attention_fwd_sm90 sm_90a") != std::string::npos);
  const std::string mxfp8 = workplace.write("mxfp8.json", shape_text("mxfp8"));
  const ProgramResult multiplied_out = workplace.run({"run", mxfp8, "--device", "emulator:h200"});
  CAPTURE(multiplied_out.err, multiplied_out.out);
  CHECK(multiplied_out.exit_code == 0);
  CHECK(multiplied_out.out.find("attention_fwd_sm90 sm_90a") != std::string::npos);
  const ProgramResult explained = workplace.run({"explain", mxfp8, "--device", "emulator:h200"});
  CHECK(explained.exit_code == 0);
  for (const char* part : {"attention_fwd_sm90", "mxfp8_expand", "expanded_bytes", "p_scale"}) {
    CAPTURE(part);
    CHECK(explained.out.find(part) != std::string::npos);
  }
}

TEST_CASE("with device_lengths a shape runs from offsets in device memory, as from those of the host") {
  const auto [device, more] = GENERATE(table<std::string, std::string>(
      {{"emulator:b200", R"("op":"attn_fwd","dtype":"bf16","heads_q":2)"},
       {"emulator:b200", R"("op":"attn_fwd","dtype":"mxfp8","heads_q":2,"broadcast_q":true)"},
       {"emulator:h200", R"("op":"attn_fwd","dtype":"mxfp8","heads_q":1)"},
       {"emulator:h200",
        R"("op":"attn_bwd","dtype":"bf16","heads_q":2,"backward":{"deterministic":true})"}}));
  const Workplace workplace;
  const std::string lengths = more.find("broadcast_q") != more.npos ? "[70]" : "[70,0,3]";
  const std::string text = "{" + more +
                           R"(,"head_dim":64,"seqlens_k":[90,5,130],"causal":true,"seqlens_q":)" + lengths +
                           R"(,"device_lengths":true})";
  const std::string file = workplace.write("shape.json", text);
  const ProgramResult passed = workplace.run({"run", file, "--device", device});
  CAPTURE(text, passed.out, passed.err);
  CHECK(passed.exit_code == 0);
  CHECK(passed.out.find("pass") != passed.out.npos);
  const ProgramResult explained = workplace.run({"explain", file, "--device", device});
  CHECK(explained.exit_code == 0);
  CHECK(explained.out.find("attention_lengths") != explained.out.npos);
}

TEST_CASE("device_lengths is refused by name with what is planned from lengths that the host knows") {
  const Workplace workplace;
  const std::string file = workplace.write(
      "shape.json", shape_text("bf16", R"(,"device_lengths":true,"kernel":{"scheduler":"clc"})"));
  const ProgramResult result = workplace.run({"run", file, "--device", kDevice});
  CAPTURE(result.err);
  CHECK(result.exit_code == 2);
  CHECK(result.err.find("kernel.scheduler is clc, but the lengths lie in device memory") != result.err.npos);
}

TEST_CASE("a limit that cannot be met makes the verdict FAIL and the exit code 1") {
  const Workplace workplace;
  const ProgramResult result = workplace.run(
      {"run", workplace.write("shape.json", shape_text("bf16", R"(,"tolerance":{"sqnr_db":500})")),
       "--device", kDevice});
  CAPTURE(result.err, result.out);
  CHECK(result.exit_code == 1);
  CHECK(result.out.find("FAIL") != std::string::npos);
  CHECK(result.err.find("need at least 500") != std::string::npos);
}

TEST_CASE("quantisation is compared byte by byte, in every layout") {
  const std::string block = GENERATE("1x32", "32x32");
  const Workplace workplace;
  const std::string text =
      R"({"op":"mxfp8_quantize","dtype":"mxfp8","head_dim":64,"heads_q":2,"seqlens_q":[33,0,129],)"
      R"("mxfp8":{"block":")" +
      block + R"("},"data":{"distribution":"power_of_two"}})";
  const ProgramResult result =
      workplace.run({"run", workplace.write("shape.json", text), "--device", kDevice, "--json", "-"});
  CAPTURE(result.err, result.out);
  REQUIRE(result.exit_code == 0);
  const json rows = json::parse(result.out).at("rows");
  CHECK(rows.size() == (block == "1x32" ? 2 : 1));
  for (const json& row : rows) CHECK(row["verdict"] == "pass");
}

TEST_CASE("a batch without tokens succeeds without a launch") {
  const Workplace workplace;
  const std::string lengths = GENERATE("[]", "[0,0]");
  const std::string text =
      R"({"op":"attn_fwd","dtype":"bf16","head_dim":64,"heads_q":1,"seqlens_k":"same","seqlens_q":)" +
      lengths + "}";
  const ProgramResult result =
      workplace.run({"run", workplace.write("shape.json", text), "--device", kDevice});
  CAPTURE(result.err, result.out);
  CHECK(result.exit_code == 0);
  CHECK(result.err.find("nothing launched") != std::string::npos);
}

TEST_CASE("explain shows the resolved options and the kernel's tables without running it") {
  const Workplace workplace;
  const std::string file = workplace.write("shape.json", shape_text("mxfp8"));
  const ProgramResult result = workplace.run({"explain", file, "--device", kDevice});
  CAPTURE(result.err, result.out);
  REQUIRE(result.exit_code == 0);
  for (const char* part :
       {"attention_fwd_sm100", "mxfp8_quantize", "grid", "key", "tmem", "barriers", "roles", "smem"}) {
    CAPTURE(part);
    CHECK(result.out.find(part) != std::string::npos);
  }
  const json plans =
      json::parse(workplace.run({"explain", file, "--device", kDevice, "--json", "-"}).out).at("plans");
  CHECK(plans.size() == 4);  // attention, Q, K, V
}

TEST_CASE("compile writes PTX, cubin and report, and no kernel spills") {
  const Workplace workplace;
  const std::string file = workplace.write("shape.json", shape_text("mxfp8"));
  std::filesystem::create_directory(workplace.path("out"));
  const ProgramResult result = workplace.run(
      {"compile", file, "--device", kDevice, "--out", workplace.path("out"), "--strict", "--json", "-"});
  CAPTURE(result.err, result.out);
  REQUIRE(result.exit_code == 0);
  int ptx = 0, cubin = 0;
  for (const std::string& name : workplace.files()) {
    ptx += name.ends_with(".ptx");
    cubin += name.ends_with(".cubin");
  }
  const json kernels = json::parse(result.out).at("kernels");
  CHECK(ptx == static_cast<int>(kernels.size()));
  CHECK(cubin == ptx);
  for (const json& kernel : kernels)
    CHECK(kernel["spill_stores"].get<int>() + kernel["spill_loads"].get<int>() == 0);
  CHECK(workplace.run({"compile", file, "--out", workplace.path("nowhere")}).exit_code == 2);
}

TEST_CASE("info names devices, compiler, cache and kernels") {
  const Workplace workplace;
  const ProgramResult result = workplace.run({"info", "--device", kDevice, "--json", "-"});
  CAPTURE(result.err, result.out);
  REQUIRE(result.exit_code == 0);
  const json info = json::parse(result.out);
  CHECK(info["cpu_driver"]["arch"] == "sm_100a");
  CHECK(info["cpu_driver"]["number"] == 0);
  CHECK(info["cpu_driver"]["devices"] == 1);
  CHECK(info["nvrtc"].contains("version"));
  CHECK(info["kernels"].size() >= 2);
}

TEST_CASE("info shows the device of the number asked for, or how many there are") {
  const Workplace workplace;
  const auto info = [&](const std::string& device) {
    return workplace.run({"info", "--device", device, "--json", "-"}, {{"MXFA_EMU_DEVICES", "2"}});
  };
  const ProgramResult second = info(kDevice + ":1");
  CAPTURE(second.err, second.out);
  REQUIRE(second.exit_code == 0);
  const json part = json::parse(second.out)["cpu_driver"];
  CHECK(part["number"] == 1);
  CHECK(part["devices"] == 2);
  const ProgramResult ninth = info(kDevice + ":9");
  CAPTURE(ninth.err, ninth.out);
  CHECK(ninth.exit_code == 3);
  const std::string result = json::parse(ninth.out)["result"];
  CHECK(result.starts_with("not ready: device 9 was asked for"));
  CHECK(result.find("has 2; choose 0 to 1, or say in MXFA_EMU_DEVICES") != std::string::npos);
}

TEST_CASE("info says what is missing and how to get it, with exit code 3") {
  const Workplace workplace;
  const ProgramResult no_compiler = workplace.run({"info"}, {{"MXFA_NVRTC", "/nonexistent/libnvrtc.so"}});
  CHECK(no_compiler.exit_code == 3);
  CHECK(no_compiler.out.find("/nonexistent/libnvrtc.so") != std::string::npos);
  CHECK(no_compiler.out.find("make setup") != std::string::npos);
  const ProgramResult no_device =
      workplace.run({"info", "--device", "emulator"}, {{"MXFA_EMULATOR_LIBRARY", "/nonexistent/lib.so"}});
  CHECK(no_device.exit_code == 3);
  CHECK(no_device.out.find("not ready: no device") != std::string::npos);
}

TEST_CASE("cache lists, verifies and clears") {
  const Workplace workplace;
  const std::map<std::string, std::string> own = {{"MXFA_CACHE_DIR", workplace.path("cache")}};
  const std::string file = workplace.write("shape.json", shape_text("bf16"));
  REQUIRE(workplace.run({"compile", file, "--device", kDevice}, own).exit_code == 0);
  const json listing = json::parse(workplace.run({"cache", "list", "--json", "-"}, own).out);
  REQUIRE(listing["entries"].size() == 1);
  CHECK(workplace.run({"cache", "verify"}, own).exit_code == 0);

  // One damaged byte in the middle is found, and does not stop a later run.
  const std::string entry = listing["entries"][0]["path"];
  std::fstream damaged(entry, std::ios::in | std::ios::out | std::ios::binary);
  damaged.seekp(static_cast<std::streamoff>(std::filesystem::file_size(entry) / 2));
  damaged.put('\x55').put('\xaa');
  damaged.close();
  CHECK(workplace.run({"cache", "verify"}, own).exit_code == 3);
  CHECK(workplace.run({"compile", file, "--device", kDevice}, own).exit_code == 0);
  CHECK(workplace.run({"cache", "verify"}, own).exit_code == 0);

  CHECK(workplace.run({"cache", "clear"}, own).exit_code == 0);
  CHECK(json::parse(workplace.run({"cache", "list", "--json", "-"}, own).out)["entries"].empty());
}
