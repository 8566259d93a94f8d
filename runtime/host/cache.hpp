// The compiled-kernel cache: content-addressed, never waits for another process, never the reason a run
// fails.
//
// An entry is one file <key>.mxfa: header {magic, format, key, payload length, SHA-256 of the payload}, then
// {PTX, cubin, report}.  It is written to a private temporary name, flushed, and renamed; whoever renames
// last wins and all wrote the same.  It is verified whole before it is used; a damaged one costs one warning
// and a rebuild.  No lock files: nothing to be left behind by a killed process.
//
// Writing an entry also keeps the folder in bounds: above kCacheLimitBytes the oldest entries go, and
// temporary files older than an hour, which only killed processes leave.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mxfa {

// What one compilation gave.
struct Artefact {
  std::string ptx, cubin;
  std::string report;  // JSON text: kernel, arch, options, registers, spills, warnings, compile_ms
};

inline constexpr uint64_t kCacheLimitBytes = uint64_t{1} << 30;  // some 2000 kernels

// The system calls whose failure the cache must survive; tests replace them.
struct CacheFileCalls {
  int64_t (*write)(int file, const void* bytes, size_t size);
  int (*rename)(const char* from, const char* to);
};
CacheFileCalls system_file_calls();

struct CacheDirectory {
  std::string path;
  std::string setting;         // what named it, for messages: "MXFA_CACHE_DIR", "HOME", ...
  bool named_by_user = false;  // explicit: entries owned by other users are trusted, and there is no further
                               // place to fall back to
  bool private_only = false;   // must be a directory of ours with mode 0700
};

// In order of preference: `option` or MXFA_CACHE_DIR alone if given; else XDG_CACHE_HOME/mxfa,
// HOME/.cache/mxfa, <temp>/mxfa-<uid>.
std::vector<CacheDirectory> cache_directories(const char* option);

struct CacheEntry {
  std::string path, key, kernel, arch;
  uint64_t bytes = 0;
  std::string damage;  // "" if the entry is sound
};
struct CacheListing {
  std::vector<CacheEntry> entries;  // by file name
  size_t temporary_files = 0;       // being written now, or left by a killed process
};

class Cache {
 public:
  explicit Cache(std::vector<CacheDirectory> directories, CacheFileCalls calls = system_file_calls(),
                 std::function<void(const std::string&)> warn = {}, uint64_t limit_bytes = kCacheLimitBytes);

  enum class Source { kMemory, kDisk };
  struct Hit {
    std::shared_ptr<const Artefact> artefact;
    Source source;
  };
  std::optional<Hit> find(const std::string& key);
  // Keeps the artefact in memory and on disk if it can; failing to write is one warning for the life of this
  // object.
  std::shared_ptr<const Artefact> insert(const std::string& key, Artefact artefact);

  // Of the directory in use; reads and verifies every entry whole.
  CacheListing list() const;
  // Removes entries and temporary files, in memory too; returns how many files.
  size_t clear();

  // Where the next entry goes; "" when it stays in memory.
  std::string directory() const;
  std::string setting() const;  // what named that directory

 private:
  std::optional<Artefact> read(const CacheDirectory& directory, const std::string& key);
  std::string write(const CacheDirectory& directory, const std::string& key,
                    const Artefact& artefact);  // "" or the reason it failed

  void trim(const CacheDirectory& directory, const std::string& newest_key) const;

  mutable std::mutex mutex_;
  std::vector<CacheDirectory> directories_;
  size_t current_ = 0;  // directories_[current_] is in use; directories_.size(): memory only
  CacheFileCalls calls_;
  std::function<void(const std::string&)> warn_;
  uint64_t limit_bytes_;
  std::map<std::string, std::shared_ptr<const Artefact>> memory_;
};

// One Cache a process for each choice of directories, so that contexts share what is kept in memory.
std::shared_ptr<Cache> shared_cache(const char* option);

// The bytes of an entry, and back: throws std::runtime_error with the kind of damage.
std::string encode_entry(const std::string& key, const Artefact& artefact);
Artefact decode_entry(std::string_view bytes, const std::string& key);

}  // namespace mxfa
