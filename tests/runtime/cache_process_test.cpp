// The cache between processes: cold starts at once, a killed writer, a folder that may not be written.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <chrono>
#include <thread>
#include <vector>

#include "host/cache.hpp"
#include "runtime/temporary.hpp"
#include "support/catch.hpp"

using namespace mxfa;
using namespace mxfa::test;

namespace {

const std::string kKey(64, 'c');
Artefact artefact() { return {"ptx", std::string(100000, 'k'), R"({"kernel": "tiny", "arch": "sm_90a"})"}; }

Cache quiet_cache(const std::string& path) {
  return Cache({{path, "MXFA_CACHE_DIR", true, false}}, system_file_calls(),
               [](const std::string&) { _exit(9); });
}

// Exit status of `body` run in a child; a warning of quiet_cache() exits with 9.
template <class Body>
pid_t in_child(Body&& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  return child;
}

int status_of(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

}  // namespace

TEST_CASE(
    "jit-32-cold-processes: 32 processes start cold on one folder: all succeed, one entry, nothing left over",
    "[cache]") {
  const TemporaryFolder folder("new");
  int gate[2];
  REQUIRE(pipe(gate) == 0);
  std::vector<pid_t> children;
  for (int i = 0; i < 32; ++i)
    children.push_back(in_child([&] {
      char go;
      close(gate[1]);
      if (read(gate[0], &go, 1) < 0) return 2;  // until the parent closes its end
      Cache cache = quiet_cache(folder.path());
      if (!cache.find(kKey)) cache.insert(kKey, artefact());
      Cache again = quiet_cache(folder.path());
      const auto hit = again.find(kKey);
      return hit && hit->artefact->cubin == artefact().cubin ? 0 : 1;
    }));
  close(gate[0]), close(gate[1]);
  for (const pid_t child : children) CHECK(status_of(child) == 0);
  CHECK(files_in(folder.path(), ".mxfa") == 1);
  CHECK(files_in(folder.path(), ".tmp") == 0);
}

TEST_CASE("jit-stale-lock: a process killed while writing harms nobody", "[cache]") {
  const TemporaryFolder folder;
  const pid_t child = in_child([&] {
    CacheFileCalls calls = system_file_calls();
    calls.write = [](int file, const void* bytes, size_t) -> int64_t {
      (void)!::write(file, bytes, 1000);
      raise(SIGKILL);
      return -1;
    };
    Cache({{folder.path(), "MXFA_CACHE_DIR", true, false}}, calls).insert(kKey, artefact());
    return 0;
  });
  CHECK(status_of(child) == 128);
  CHECK(files_in(folder.path(), ".tmp") == 1);
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::string> warnings;
  Cache cache({{folder.path(), "MXFA_CACHE_DIR", true, false}}, system_file_calls(),
              [&](const std::string& text) { warnings.push_back(text); });
  CHECK_FALSE(cache.find(kKey));
  cache.insert(kKey, artefact());
  CHECK(quiet_cache(folder.path()).find(kKey));
  CHECK(warnings.empty());
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));  // no lock to wait for
}

TEST_CASE("jit-readonly-dir: a read-only folder is read, and writing to it is one warning", "[cache]") {
  const TemporaryFolder folder("cache");
  quiet_cache(folder.path()).insert(kKey, artefact());
  REQUIRE(chmod(folder.path().c_str(), 0555) == 0);
  REQUIRE(chmod(folder.root().c_str(), 0755) == 0);
  const int status = status_of(in_child([&] {
    if (geteuid() == 0 && seteuid(65534) != 0) return 2;  // permissions do not bind root
    std::vector<std::string> warnings;
    Cache cache({{folder.path(), "MXFA_CACHE_DIR", true, false}}, system_file_calls(),
                [&](const std::string& text) { warnings.push_back(text); });
    if (!cache.find(kKey)) return 3;
    const std::string fresh(64, 'd');
    for (int run = 0; run < 2; ++run)
      if (!cache.find(fresh)) cache.insert(fresh, artefact());
    if (!cache.find(fresh) || cache.find(fresh)->source != Cache::Source::kMemory) return 4;
    if (warnings.size() != 1) return 5;
    return warnings[0].find(folder.path()) != std::string::npos &&
                   warnings[0].find("MXFA_CACHE_DIR") != std::string::npos
               ? 0
               : 6;
  }));
  CHECK(status == 0);
}

TEST_CASE("jit-other-owner: an unreadable entry is a miss", "[cache]") {
  const TemporaryFolder folder;
  quiet_cache(folder.path()).insert(kKey, artefact());
  REQUIRE(chmod((folder.path() + "/" + kKey + ".mxfa").c_str(), 0600) == 0);
  REQUIRE(chmod(folder.root().c_str(), 0777) == 0);
  CHECK(status_of(in_child([&] {
          if (geteuid() == 0 && seteuid(65534) != 0) return 2;
          if (geteuid() != 65534 && chmod((folder.path() + "/" + kKey + ".mxfa").c_str(), 0) != 0) return 3;
          Cache cache = quiet_cache(folder.path());
          if (cache.find(kKey)) return 4;
          cache.insert(kKey, artefact());  // replaces it
          return quiet_cache(folder.path()).find(kKey) ? 0 : 5;
        })) == 0);
}

TEST_CASE("jit-warm-fast: loading one of 300 entries takes milliseconds", "[cache]") {
  const TemporaryFolder folder;
  Cache writer = quiet_cache(folder.path());
  const auto key = [](int i) { return std::string(60, 'e') + std::to_string(1000 + i); };
  for (int i = 0; i < 300; ++i)
    write_bytes(folder.path() + "/" + key(i) + ".mxfa", encode_entry(key(i), artefact()));
  const auto start = std::chrono::steady_clock::now();
  Cache cache = quiet_cache(folder.path());
  for (int i = 0; i < 300; i += 30) CHECK(cache.find(key(i)));
  const auto each = (std::chrono::steady_clock::now() - start) / 10;
  CHECK(each < std::chrono::milliseconds(20));  // a look-up reads one file; it never scans the folder
}
