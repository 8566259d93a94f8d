// The real NVRTC with a tiny kernel.
#include "host/jit.hpp"

#include <sys/wait.h>

#include <nlohmann/json.hpp>

#include "host/error.hpp"
#include "runtime/temporary.hpp"
#include "support/catch.hpp"

using namespace mxfa;
using namespace mxfa::test;
using mxfa::test::Contains;

namespace {

const char* const kTiny = R"(#include "ptx/five.cuh"
extern "C" __global__ void __launch_bounds__(64, 1) tiny(int* out) { *out = five() + Config::add; }
)";
const char* const kFive = "#pragma once\n__device__ inline int five() { return 5; }\n";

// The device sources of a product: what #include can reach.
struct Sources {
  explicit Sources(const char* tiny = kTiny, const char* five = kFive)
      : files{{"src/tiny.cuh", tiny}, {"ptx/five.cuh", five}, {nullptr, nullptr}} {}
  MxfaEmbedded files[3];
};

KernelConfig tiny_config(const char* arch, int add = 1) {
  return {"tiny", "src/tiny.cuh", arch, {{"add", add, false}}, {}};
}

const Nvrtc& nvrtc() {
  static const Nvrtc the_nvrtc;
  return the_nvrtc;
}

std::string key(const KernelConfig& config, const Sources& sources = Sources()) {
  return kernel_key(config, sources.files, "13.0", "build");
}

}  // namespace

TEST_CASE("One compile gives PTX, a cubin and the ptxas report", "[jit]") {
  for (const char* arch : {"sm_90a", "sm_100a", "sm_103a"}) {
    INFO(arch);
    const Artefact artefact = compile_kernel(nvrtc(), tiny_config(arch), Sources().files);
    CHECK_THAT(artefact.ptx, Contains(std::string(".target ") + arch) && Contains(".entry tiny"));
    CHECK_THAT(artefact.ptx, Contains("\"src/tiny.cuh\"") && Contains(".loc"));
    CHECK(artefact.cubin.substr(0, 4) ==
          "\x7f"
          "ELF");
    const auto report = nlohmann::json::parse(artefact.report);
    CHECK(report["kernel"] == "tiny");
    CHECK(report["arch"] == arch);
    CHECK(report["registers"] > 0);
    CHECK(report["spill_stores"] == 0);
    CHECK(report["warnings"].empty());
    CHECK(report["compile_ms"] > 0);
  }
}

TEST_CASE("jitc-error-log: a compile error shows the compiler's log, the line and the options", "[jit]") {
  const Sources broken("extern \"C\" __global__ void tiny() {\n  missing_name = 1;\n}\n");
  try {
    compile_kernel(nvrtc(), tiny_config("sm_100a"), broken.files);
    FAIL("compiled");
  } catch (const Error& error) {
    CHECK(error.status() == MXFA_ERROR_DEVICE);
    CHECK_THAT(error.what(), Contains("src/tiny.cuh(2)") && Contains("\"missing_name\" is undefined"));
    CHECK_THAT(error.what(), Contains("--gpu-architecture=sm_100a --std=c++20"));
  }
}

TEST_CASE("A configuration that a kernel's static_assert refuses is the caller's mistake", "[jit]") {
  const Sources strict(
      "static_assert(Config::add < 10, \"add leaves no room\");\nextern \"C\" __global__ void tiny() {}\n");
  try {
    compile_kernel(nvrtc(), tiny_config("sm_90a", 12), strict.files);
    FAIL("compiled");
  } catch (const Error& error) {
    CHECK(error.status() == MXFA_ERROR_INVALID);
    CHECK_THAT(error.what(), Contains("tiny") && Contains("add=12") && Contains("add leaves no room"));
  }
}

TEST_CASE("A failed compile stores nothing", "[jit]") {
  const TemporaryFolder folder;
  Cache cache({{folder.path(), "MXFA_CACHE_DIR", true, false}});
  const Sources broken("#error no\n");
  CHECK_THROWS_AS(build_kernel(nvrtc(), cache, tiny_config("sm_90a"), broken.files, false), Error);
  CHECK(files_in(folder.path(), "") == 0);
}

TEST_CASE("An architecture the compiler does not know is refused by name", "[jit]") {
  CHECK_THROWS_WITH(nvrtc().require_arch("sm_999a"),
                    Contains("sm_999a") && Contains(nvrtc().version()) && Contains("MXFA_NVRTC"));
}

TEST_CASE("A missing compiler is a sentence", "[jit]") {
  const Environment variable("MXFA_NVRTC", "/nonexistent/libnvrtc.so");
  CHECK_THROWS_WITH(
      Nvrtc(), Contains("/nonexistent/libnvrtc.so") && Contains("MXFA_NVRTC") && Contains("libnvrtc.so.13"));
}

TEST_CASE("A warning of ptxas is kept with the kernel", "[jit]") {
  // Without __launch_bounds__ ptxas ignores setmaxnreg.
  const Sources sources(
      "extern \"C\" __global__ void tiny(int* p) { asm volatile(\"setmaxnreg.inc.sync.aligned.u32 192;\"); "
      "*p = 1; }");
  const auto report =
      nlohmann::json::parse(compile_kernel(nvrtc(), tiny_config("sm_100a"), sources.files).report);
  REQUIRE(report["warnings"].size() == 1);
  CHECK_THAT(report["warnings"][0].get<std::string>(), Contains("setmaxnreg"));
}

TEST_CASE("Headers come from memory, never from the working directory", "[jit]") {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder.path() + "/src");
  std::filesystem::create_directories(folder.path() + "/ptx");
  write_bytes(folder.path() + "/src/tiny.cuh", "#error from disk\n");
  write_bytes(folder.path() + "/ptx/five.cuh", "#error from disk\n");
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  CHECK_NOTHROW(compile_kernel(nvrtc(), tiny_config("sm_90a"), Sources().files));
  std::filesystem::current_path(before);
}

TEST_CASE(
    "jit-key-install-path: the key changes with everything that changes the code, and with nothing else",
    "[jit]") {
  const std::string base = key(tiny_config("sm_100a"));
  CHECK(base.size() == 64);
  CHECK(key(tiny_config("sm_100a")) == base);
  CHECK(key(tiny_config("sm_100")) != base);  // the suffix names another target
  CHECK(key(tiny_config("sm_100f")) != base);
  CHECK(key(tiny_config("sm_90a")) != base);
  CHECK(key(tiny_config("sm_100a", 2)) != base);
  // Any header, included or not, by one byte; and its name.
  CHECK(key(tiny_config("sm_100a"),
            Sources(kTiny, "#pragma once\n__device__ inline int five() { return 6; }\n")) != base);
  const MxfaEmbedded renamed[] = {{"src/tiny.cuh", kTiny}, {"ptx/six.cuh", kFive}, {nullptr, nullptr}};
  CHECK(kernel_key(tiny_config("sm_100a"), renamed, "13.0", "build") != base);
  CHECK(kernel_key(tiny_config("sm_100a"), Sources().files, "13.1", "build") != base);
  CHECK(kernel_key(tiny_config("sm_100a"), Sources().files, "13.0", "other build") != base);
  // Not the place it runs in.
  const TemporaryFolder folder("инструмент");
  std::filesystem::create_directories(folder.path());
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  const Environment cache("MXFA_CACHE_DIR", folder.path().c_str()), home("HOME", folder.path().c_str());
  CHECK(key(tiny_config("sm_100a")) == base);
  std::filesystem::current_path(before);
}

TEST_CASE("Two builds of one version of NVRTC are told apart", "[jit]") {
  CHECK(nvrtc().build_id().size() == 40);  // the linker's SHA-1
}

TEST_CASE("A kernel is compiled once, then found on disk, then in memory", "[jit]") {
  const TemporaryFolder folder("кэш_ü_测试");
  const std::vector<CacheDirectory> place = {{folder.path(), "MXFA_CACHE_DIR", true, false}};
  Cache first(place);
  const BuiltKernel cold = build_kernel(nvrtc(), first, tiny_config("sm_100a"), Sources().files, false);
  CHECK(cold.state == "cold");
  CHECK(build_kernel(nvrtc(), first, tiny_config("sm_100a"), Sources().files, false).state == "memory");
  Cache second(place);
  const BuiltKernel warm = build_kernel(nvrtc(), second, tiny_config("sm_100a"), Sources().files, false);
  CHECK(warm.state == "warm");
  CHECK(warm.key == cold.key);
  CHECK(warm.artefact->cubin == cold.artefact->cubin);
  CHECK(warm.artefact->ptx == cold.artefact->ptx);
  CHECK(files_in(folder.path(), ".mxfa") == 1);
}

TEST_CASE("jit-key-arch-suffix: one source for three targets is three entries", "[jit]") {
  const TemporaryFolder folder;
  const std::vector<CacheDirectory> place = {{folder.path(), "MXFA_CACHE_DIR", true, false}};
  for (const char* state : {"cold", "warm"}) {
    Cache cache(place);
    for (const char* arch : {"sm_90a", "sm_100a", "sm_100f"}) {
      INFO(state << " " << arch);
      const BuiltKernel built = build_kernel(nvrtc(), cache, tiny_config(arch), Sources().files, false);
      CHECK(built.state == state);
      CHECK_THAT(built.artefact->ptx, Contains(std::string(".target ") + arch));
    }
  }
  CHECK(files_in(folder.path(), ".mxfa") == 3);
}

TEST_CASE("jit-truncated-cubin: a truncated entry is compiled again and replaced, with one warning",
          "[jit]") {
  const TemporaryFolder folder;
  const std::vector<CacheDirectory> place = {{folder.path(), "MXFA_CACHE_DIR", true, false}};
  std::vector<std::string> warnings;
  // A new cache stands for a new process: it remembers nothing.
  const auto build = [&] {
    Cache cache(place, system_file_calls(), [&](const std::string& text) { warnings.push_back(text); });
    return build_kernel(nvrtc(), cache, tiny_config("sm_100a"), Sources().files, false);
  };
  const BuiltKernel sound = build();
  const std::string entry = folder.path() + "/" + sound.key + ".mxfa";
  write_bytes(entry, read_bytes(entry).substr(0, 100));
  const BuiltKernel again = build();
  CHECK(again.state == "cold");
  CHECK(again.artefact->cubin == sound.artefact->cubin);
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], Contains(entry));
  CHECK(build().state == "warm");
  CHECK(warnings.size() == 1);
}

// Fewer rounds than the report's 20: each child's first round already starts at the same moment.
TEST_CASE(
    "jitc-pch-race: processes compiling different kernels under the same names do not disturb each other",
    "[jit]") {
  const TemporaryFolder folder;
  std::vector<pid_t> children;
  for (int i = 0; i < 16; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      int failures = 0;
      try {
        const Nvrtc own;
        for (int round = 0; round < 3; ++round) {
          Cache cache({{folder.path(), "MXFA_CACHE_DIR", true, false}});
          const int add = 100 * i + round;
          const auto built = build_kernel(own, cache, tiny_config("sm_90a", add), Sources().files, false);
          failures += built.artefact->ptx.find(std::to_string(5 + add)) == std::string::npos;
        }
      } catch (const std::exception&) {
        failures = 100;
      }
      _exit(failures);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(status == 0);
  }
  CHECK(files_in(folder.path(), ".mxfa") == 16 * 3);
}
