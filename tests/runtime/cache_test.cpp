#include "host/cache.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <vector>

#include "runtime/temporary.hpp"
#include "support/catch.hpp"

using namespace mxfa;
using namespace mxfa::test;

namespace {

const std::string kKey(64, 'a'), kOtherKey(64, 'b');

Artefact artefact(const std::string& cubin = std::string("\x7f"
                                                         "ELF\0cubin",
                                                         10)) {
  return {"// ptx\n", cubin, R"({"kernel": "tiny", "arch": "sm_100a"})"};
}

// A cache on one named folder that notes its warnings.
struct NotingCache {
  explicit NotingCache(const std::string& path, CacheFileCalls calls = system_file_calls(), bool named = true)
      : cache({{path, "MXFA_CACHE_DIR", named, false}}, calls,
              [this](const std::string& text) { warnings.push_back(text); }) {}
  std::vector<std::string> warnings;
  Cache cache;
};

std::string entry_path(const TemporaryFolder& folder, const std::string& key = kKey) {
  return folder.path() + "/" + key + ".mxfa";
}

}  // namespace

TEST_CASE("An entry comes back with all its parts", "[cache]") {
  const TemporaryFolder folder("made/on/demand");
  NotingCache(folder.path()).cache.insert(kKey, artefact());
  NotingCache fresh(folder.path());
  const auto hit = fresh.cache.find(kKey);
  REQUIRE(hit);
  CHECK(hit->source == Cache::Source::kDisk);
  CHECK(hit->artefact->ptx == artefact().ptx);
  CHECK(hit->artefact->cubin == artefact().cubin);
  CHECK(hit->artefact->report == artefact().report);
  CHECK(fresh.cache.find(kKey)->source == Cache::Source::kMemory);
  CHECK_FALSE(fresh.cache.find(kOtherKey));
  CHECK(fresh.warnings.empty());
  CHECK(files_in(folder.path(), ".tmp") == 0);
}

TEST_CASE("A damaged entry costs one warning and is replaced", "[cache]") {
  const TemporaryFolder folder;
  NotingCache(folder.path()).cache.insert(kKey, artefact());
  const std::string sound = read_bytes(entry_path(folder));

  std::string damaged = sound;
  SECTION("jit-truncated-cubin: cut to 100 bytes") { damaged.resize(100); }
  SECTION("cut by one byte") { damaged.pop_back(); }
  SECTION("one byte longer") { damaged += 'x'; }
  SECTION("empty") { damaged.clear(); }
  SECTION("a bit of the payload flipped") { damaged[damaged.size() / 2 + 40] ^= 1; }
  SECTION("a bit of the checksum flipped") { damaged[119] ^= 1; }
  SECTION("another format") { damaged[8] ^= 1; }
  SECTION("not ours at all") { damaged = std::string(500, 'z'); }
  SECTION("the entry of another key") { damaged = encode_entry(kOtherKey, artefact()); }
  write_bytes(entry_path(folder), damaged);

  NotingCache cache(folder.path());
  CHECK_FALSE(cache.cache.find(kKey));
  REQUIRE(cache.warnings.size() == 1);
  CHECK(cache.warnings[0].find(entry_path(folder)) != std::string::npos);
  cache.cache.insert(kKey, artefact());
  CHECK(read_bytes(entry_path(folder)) == sound);
  CHECK(cache.warnings.size() == 1);
}

TEST_CASE("jit-quota: a full disk leaves no partial file and the kernel in memory", "[cache]") {
  const TemporaryFolder folder;
  CacheFileCalls calls = system_file_calls();
  calls.write = [](int file, const void* bytes, size_t size) -> int64_t {
    static size_t left = 4096;
    if (left == 0) return errno = ENOSPC, -1;
    const size_t now = std::min(size, left);
    left -= now;
    return ::write(file, bytes, now);
  };
  NotingCache cache(folder.path(), calls);
  cache.cache.insert(kKey, artefact(std::string(20000, 'c')));
  REQUIRE(cache.warnings.size() == 1);
  CHECK(cache.warnings[0].find(folder.path()) != std::string::npos);
  CHECK(cache.warnings[0].find("MXFA_CACHE_DIR") != std::string::npos);
  CHECK(files_in(folder.path(), "") == 0);
  CHECK(cache.cache.find(kKey)->source == Cache::Source::kMemory);
  cache.cache.insert(kOtherKey, artefact());
  CHECK(cache.warnings.size() == 1);  // one for the life of the cache
  CHECK(cache.cache.directory().empty());
}

TEST_CASE("jit-rename-loser: the loser of a rename uses what it built and does not wait", "[cache]") {
  const TemporaryFolder folder;
  CacheFileCalls calls = system_file_calls();
  calls.rename = [](const char*, const char*) { return errno = EEXIST, -1; };
  NotingCache cache(folder.path(), calls);
  const auto kept = cache.cache.insert(kKey, artefact());
  CHECK(kept->cubin == artefact().cubin);
  CHECK(cache.cache.find(kKey)->source == Cache::Source::kMemory);
  CHECK(cache.warnings.empty());
  CHECK(files_in(folder.path(), "") == 0);
  CHECK(cache.cache.directory() == folder.path());  // the folder is still good
}

TEST_CASE("A folder that cannot be made is one warning that names it and the setting", "[cache]") {
  NotingCache cache("/dev/null/x");
  cache.cache.insert(kKey, artefact());
  cache.cache.insert(kOtherKey, artefact());
  REQUIRE(cache.warnings.size() == 1);
  CHECK(cache.warnings[0].find("/dev/null/x") != std::string::npos);
  CHECK(cache.warnings[0].find("MXFA_CACHE_DIR") != std::string::npos);
  CHECK(cache.warnings[0].find("memory") != std::string::npos);
  CHECK(cache.cache.find(kOtherKey));
}

TEST_CASE("jit-unicode-dir: folders with spaces and letters of any script work", "[cache]") {
  const TemporaryFolder folder("кэш_ü_测试 with space");
  NotingCache(folder.path()).cache.insert(kKey, artefact());
  NotingCache fresh(folder.path());
  CHECK(fresh.cache.find(kKey));
  CHECK(fresh.warnings.empty());
}

TEST_CASE("Without a setting the next usable folder of the list is taken", "[cache]") {
  const TemporaryFolder folder;
  std::vector<std::string> warnings;
  Cache cache({{"/dev/null/home", "HOME", false, false},
               {folder.path() + "/private", "the temporary folder", false, true}},
              system_file_calls(), [&](const std::string& text) { warnings.push_back(text); });
  cache.insert(kKey, artefact());
  CHECK(cache.directory() == folder.path() + "/private");
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].find("HOME") != std::string::npos);
  struct stat status {};
  REQUIRE(stat((folder.path() + "/private").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0700);
  CHECK(files_in(folder.path() + "/private", ".mxfa") == 1);
}

TEST_CASE("A private folder that others can write is not used", "[cache]") {
  const TemporaryFolder folder("shared");
  REQUIRE(mkdir(folder.path().c_str(), 0777) == 0);
  REQUIRE(chmod(folder.path().c_str(), 0777) == 0);
  write_bytes(entry_path(folder), encode_entry(kKey, artefact("planted")));
  std::vector<std::string> warnings;
  Cache cache({{folder.path(), "the temporary folder", false, true}}, system_file_calls(),
              [&](const std::string& text) { warnings.push_back(text); });
  CHECK_FALSE(cache.find(kKey));
  cache.insert(kKey, artefact());
  CHECK(warnings.size() == 1);
  CHECK(cache.directory().empty());
}

TEST_CASE("jit-other-owner: an entry of another user is a miss unless the folder was named", "[cache]") {
  if (geteuid() != 0) return;  // only root can give a file away
  const TemporaryFolder folder;
  write_bytes(entry_path(folder), encode_entry(kKey, artefact()));
  REQUIRE(chown(entry_path(folder).c_str(), 65534, 65534) == 0);
  NotingCache defaulted(folder.path(), system_file_calls(), false);
  CHECK_FALSE(defaulted.cache.find(kKey));
  CHECK(defaulted.warnings.empty());
  CHECK(NotingCache(folder.path()).cache.find(kKey));
}

TEST_CASE("List finds damage, clear removes entries and leftovers of killed processes and nothing else",
          "[cache]") {
  const TemporaryFolder folder;
  NotingCache cache(folder.path());
  cache.cache.insert(kKey, artefact());
  cache.cache.insert(kOtherKey, artefact());
  write_bytes(entry_path(folder, kOtherKey), "short");
  write_bytes(folder.path() + "/." + kKey + ".123.abc.tmp", "half");
  write_bytes(folder.path() + "/notes.txt", "mine");
  CHECK(NotingCache(folder.path()).cache.find(kKey));  // a leftover does not disturb
  const CacheListing listing = cache.cache.list();
  REQUIRE(listing.entries.size() == 2);
  CHECK(listing.temporary_files == 1);
  CHECK(listing.entries[0].damage.empty());
  CHECK(listing.entries[0].kernel == "tiny");
  CHECK(listing.entries[0].arch == "sm_100a");
  CHECK_FALSE(listing.entries[1].damage.empty());
  CHECK(cache.cache.clear() == 3);
  CHECK(files_in(folder.path(), "") == 1);
  CHECK_FALSE(cache.cache.find(kKey));
}

TEST_CASE("Writing removes the oldest entries above the limit and leftovers of an hour ago", "[cache]") {
  namespace fs = std::filesystem;
  const TemporaryFolder folder;
  const uint64_t entry_bytes = encode_entry(kKey, artefact()).size();
  Cache cache({{folder.path(), "MXFA_CACHE_DIR", true, false}}, system_file_calls(), {}, 3 * entry_bytes);
  const auto key = [](char letter) { return std::string(64, letter); };
  const auto now = fs::file_time_type::clock::now();
  for (const char letter : {'2', '0', '1'}) {
    cache.insert(key(letter), artefact());
    fs::last_write_time(entry_path(folder, key(letter)), now - std::chrono::hours(10 - (letter - '0')));
  }
  write_bytes(folder.path() + "/.old.tmp", "half");
  write_bytes(folder.path() + "/.new.tmp", "half");
  fs::last_write_time(folder.path() + "/.old.tmp", now - std::chrono::hours(2));
  cache.insert(key('3'), artefact());
  CHECK_FALSE(fs::exists(entry_path(folder, key('0'))));
  CHECK(files_in(folder.path(), ".mxfa") == 3);
  CHECK_FALSE(fs::exists(folder.path() + "/.old.tmp"));
  CHECK(fs::exists(folder.path() + "/.new.tmp"));  // may be another process at work
  CHECK(cache.find(key('0'))->source == Cache::Source::kMemory);
}

TEST_CASE("The folder is the option, then the variable, then XDG, HOME and a private temporary one",
          "[cache]") {
  const Environment variable("MXFA_CACHE_DIR", "/v"), xdg("XDG_CACHE_HOME", "/x"), home("HOME", "/h"),
      temporary("TMPDIR", "/t");
  REQUIRE(cache_directories("/o").size() == 1);
  CHECK(cache_directories("/o")[0].path == "/o");
  REQUIRE(cache_directories(nullptr).size() == 1);
  CHECK(cache_directories(nullptr)[0].path == "/v");
  const Environment none("MXFA_CACHE_DIR", nullptr);
  auto all = cache_directories(nullptr);
  REQUIRE(all.size() == 3);
  CHECK(all[0].path == "/x/mxfa");
  CHECK(all[1].path == "/h/.cache/mxfa");
  CHECK(all[2].path == "/t/mxfa-" + std::to_string(geteuid()));
  CHECK(all[2].private_only);
  const Environment relative("XDG_CACHE_HOME", "relative"), homeless("HOME", nullptr);
  CHECK(cache_directories(nullptr).size() == 1);
}
