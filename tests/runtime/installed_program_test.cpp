// The program and its CPU driver, copied to other folders: what a compiled kernel must not depend on.
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "runtime/temporary.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;

namespace {

namespace fs = std::filesystem;

// bin/mxfa and lib/libmxfa_emulator.so, as they are installed.
std::string install(const std::string& prefix) {
  fs::create_directories(prefix + "/bin");
  fs::create_directories(prefix + "/lib");
  fs::copy_file(MXFA_PROGRAM, prefix + "/bin/mxfa");
  fs::copy_file(MXFA_EMULATOR_LIBRARY, prefix + "/lib/libmxfa_emulator.so");
  return prefix;
}

// How the only kernel of the shape was found: "cold", "warm"; or what went wrong.
std::string state_of_kernel(const std::string& prefix, const std::string& cache, const std::string& folder) {
  const std::string out = folder + "/out", err = folder + "/err";
  const std::string command = "env -u MXFA_EMULATOR_LIBRARY MXFA_CACHE_DIR='" + cache + "' '" + prefix +
                              "/bin/mxfa' explain '" + folder +
                              "/shape.json' --device emulator:b200 --json - >'" + out + "' 2>'" + err + "'";
  if (std::system(command.c_str()) != 0) return read_bytes(err);
  return nlohmann::json::parse(read_bytes(out))["plans"][0]["plan"]["cache"]["state"];
}

}  // namespace

TEST_CASE(
    "jit-key-install-path, jit-unicode-dir: a moved program finds its kernel, whatever the folders' names",
    "[jit]") {
  const TemporaryFolder folder;
  // Square blocks: one kernel writes both layouts of scales.
  write_bytes(folder.root() + "/shape.json", R"({
    "op": "mxfp8_quantize", "dtype": "mxfp8", "head_dim": 64, "heads_q": 1, "seqlens_q": [5],
    "mxfp8": {"block": "32x32"}})");
  const std::string cache = folder.root() + "/кэш_ü_测试";
  const std::string here = install(folder.root() + "/инструмент"),
                    there = install(folder.root() + "/moved tool");
  CHECK(state_of_kernel(here, cache, folder.root()) == "cold");
  CHECK(state_of_kernel(here, cache, folder.root()) == "warm");
  CHECK(state_of_kernel(there, cache, folder.root()) == "warm");
  CHECK(files_in(cache, ".mxfa") == 1);
}
