#include "host/cache.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

namespace mxfa {
namespace {

namespace fs = std::filesystem;

constexpr char kSuffix[] = ".mxfa", kTemporarySuffix[] = ".tmp";

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool ends_with(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// "" if the directory is there (made if need be) and is one we may use.
std::string make_directory(const CacheDirectory& directory) {
  std::error_code error;
  fs::create_directories(fs::path(directory.path).parent_path(), error);
  const mode_t mode =
      directory.named_by_user ? 0777 : 0700;  // a folder that the user named follows the umask
  if (mkdir(directory.path.c_str(), mode) != 0 && errno != EEXIST) return std::strerror(errno);
  if (!fs::is_directory(directory.path, error)) return "not a directory";
  return {};
}

// A folder in a shared place (/tmp) must be ours alone, or someone else could plant kernels there.
bool usable(const CacheDirectory& directory) {
  if (!directory.private_only) return true;
  struct stat status {};
  return lstat(directory.path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
         status.st_uid == geteuid() && (status.st_mode & 077) == 0;
}

bool read_file(int file, std::string* bytes) {
  struct stat status {};
  if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) return false;
  bytes->resize(size_t(status.st_size));
  size_t at = 0;
  while (at < bytes->size()) {
    const ssize_t got = ::read(file, bytes->data() + at, bytes->size() - at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    at += size_t(got);
  }
  bytes->resize(at);
  return true;
}

std::string temporary_name(const std::string& directory, const std::string& key) {
  std::random_device random;  // two machines may share the directory and the process id
  return fmt::format("{}/.{}.{}.{:08x}{:08x}{}", directory, key, getpid(), random(), random(),
                     kTemporarySuffix);
}

}  // namespace

CacheFileCalls system_file_calls() {
  return {[](int file, const void* bytes, size_t size) -> int64_t { return ::write(file, bytes, size); },
          ::rename};
}

std::vector<CacheDirectory> cache_directories(const char* option) {
  if (option && *option) return {{option, "cache_dir", true, false}};
  if (const std::string path = environment("MXFA_CACHE_DIR"); !path.empty())
    return {{path, "MXFA_CACHE_DIR", true, false}};
  std::vector<CacheDirectory> directories;
  // The XDG base directory specification: a relative path is to be ignored.
  if (const std::string path = environment("XDG_CACHE_HOME"); !path.empty() && path[0] == '/')
    directories.push_back({path + "/mxfa", "XDG_CACHE_HOME", false, false});
  if (const std::string home = environment("HOME"); !home.empty())
    directories.push_back({home + "/.cache/mxfa", "HOME", false, false});
  const std::string temporary = environment("TMPDIR");
  directories.push_back({fmt::format("{}/mxfa-{}", temporary.empty() ? "/tmp" : temporary, geteuid()),
                         "the temporary folder", false, true});
  return directories;
}

Cache::Cache(std::vector<CacheDirectory> directories, CacheFileCalls calls,
             std::function<void(const std::string&)> warn, uint64_t limit_bytes)
    : directories_(std::move(directories)), calls_(calls), warn_(std::move(warn)), limit_bytes_(limit_bytes) {
  if (!warn_)
    warn_ = [](const std::string& text) { std::fprintf(stderr, "mxfa: warning: %s\n", text.c_str()); };
}

std::optional<Cache::Hit> Cache::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  if (const auto found = memory_.find(key); found != memory_.end())
    return Hit{found->second, Source::kMemory};
  for (const CacheDirectory& directory : directories_) {
    if (auto artefact = read(directory, key)) {
      auto shared = std::make_shared<const Artefact>(std::move(*artefact));
      memory_[key] = shared;
      return Hit{shared, Source::kDisk};
    }
  }
  return std::nullopt;
}

std::optional<Artefact> Cache::read(const CacheDirectory& directory, const std::string& key) {
  if (!usable(directory)) return std::nullopt;
  const std::string path = directory.path + "/" + key + kSuffix;
  // An entry that we may not read is a miss, like one that is not there.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return std::nullopt;
  struct stat status {};
  std::string bytes;
  const bool trusted = fstat(file, &status) == 0 && (status.st_uid == geteuid() || directory.named_by_user);
  const bool complete = trusted && read_file(file, &bytes);
  close(file);
  if (!complete) return std::nullopt;  // code of another user is not run from a place nobody vouched for
  try {
    return decode_entry(bytes, key);
  } catch (const std::exception& damage) {
    warn_(fmt::format(
        "the kernel cache entry {} is damaged ({}); the kernel is compiled again and the entry replaced",
        path, damage.what()));
    return std::nullopt;
  }
}

std::shared_ptr<const Artefact> Cache::insert(const std::string& key, Artefact artefact) {
  const std::lock_guard lock(mutex_);
  const auto shared = std::make_shared<const Artefact>(std::move(artefact));
  memory_[key] = shared;
  std::string trouble;
  while (current_ < directories_.size()) {
    const CacheDirectory& directory = directories_[current_];
    const std::string reason = write(directory, key, *shared);
    if (reason.empty()) {
      trim(directory, key);
      break;
    }
    if (!trouble.empty()) trouble += "; ";
    trouble += fmt::format("{} ({}): {}", directory.path, directory.setting, reason);
    ++current_;
  }
  if (!trouble.empty()) {
    const bool memory_only = current_ == directories_.size();
    warn_(
        fmt::format("cannot write the kernel cache: {}. Kernels are kept in {}; set MXFA_CACHE_DIR to a "
                    "folder you can write",
                    trouble, memory_only ? "memory for this process only" : directories_[current_].path));
  }
  return shared;
}

std::string Cache::write(const CacheDirectory& directory, const std::string& key, const Artefact& artefact) {
  if (const std::string reason = make_directory(directory); !reason.empty()) return reason;
  if (!usable(directory)) return "it must belong to this user with mode 0700";
  const std::string temporary = temporary_name(directory.path, key);
  // 0644: a folder that the user named may be shared; the private ones are closed by their own mode.
  const int file =
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, directory.named_by_user ? 0644 : 0600);
  if (file < 0) return std::strerror(errno);
  const std::string bytes = encode_entry(key, artefact);
  std::string reason;
  for (size_t at = 0; at < bytes.size() && reason.empty();) {
    const int64_t put = calls_.write(file, bytes.data() + at, bytes.size() - at);
    if (put > 0)
      at += size_t(put);
    else if (put == 0 || errno != EINTR)
      reason = put == 0 ? "nothing was written" : std::strerror(errno);
  }
  if (reason.empty() && fsync(file) != 0) reason = std::strerror(errno);
  if (close(file) != 0 && reason.empty()) reason = std::strerror(errno);
  const std::string path = directory.path + "/" + key + kSuffix;
  if (reason.empty() && calls_.rename(temporary.c_str(), path.c_str()) != 0) {
    // EEXIST: a file system on which the first one wins.  ENOENT: someone cleared the folder.  The folder is
    // as good as before, and the kernel is in memory, so this process neither needs the entry nor waits to
    // see the winner's.
    if (errno != EEXIST && errno != ENOENT) reason = std::strerror(errno);
    unlink(temporary.c_str());
  } else if (!reason.empty()) {
    unlink(temporary.c_str());
  }
  return reason;
}

void Cache::trim(const CacheDirectory& directory, const std::string& newest_key) const {
  struct File {
    fs::file_time_type time;
    fs::path path;
    uint64_t bytes;
  };
  std::vector<File> entries;
  std::vector<fs::path> leftovers;
  uint64_t total = 0;
  const auto an_hour_ago = fs::file_time_type::clock::now() - std::chrono::hours(1);
  std::error_code error;
  for (auto item = fs::directory_iterator(directory.path, error); item != fs::directory_iterator();
       item.increment(error)) {
    const std::string name = item->path().filename().string();
    std::error_code gone;  // another process may remove it meanwhile
    const File file{item->last_write_time(gone), item->path(), item->file_size(gone)};
    if (gone) continue;
    if (ends_with(name, kTemporarySuffix) && file.time < an_hour_ago) leftovers.push_back(file.path);
    if (!ends_with(name, kSuffix)) continue;
    total += file.bytes;
    if (name != newest_key + kSuffix) entries.push_back(file);
  }
  for (const fs::path& path : leftovers) fs::remove(path, error);
  std::sort(entries.begin(), entries.end(), [](const File& a, const File& b) { return a.time < b.time; });
  for (const File& file : entries) {
    if (total <= limit_bytes_) break;
    if (fs::remove(file.path, error)) total -= file.bytes;
  }
}

CacheListing Cache::list() const {
  const std::lock_guard lock(mutex_);
  CacheListing listing;
  if (current_ == directories_.size()) return listing;
  std::error_code error;
  for (const auto& item : fs::directory_iterator(directories_[current_].path, error)) {
    const std::string name = item.path().filename().string();
    listing.temporary_files += ends_with(name, kTemporarySuffix);
    if (!ends_with(name, kSuffix)) continue;
    CacheEntry entry;
    entry.path = item.path().string();
    entry.key = name.substr(0, name.size() - std::strlen(kSuffix));
    entry.bytes = item.file_size(error);
    const int file = open(entry.path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    std::string bytes;
    try {
      if (file < 0) throw std::runtime_error(std::strerror(errno));
      read_file(file, &bytes);
      const auto report = nlohmann::json::parse(decode_entry(bytes, entry.key).report);
      entry.kernel = report.value("kernel", "");
      entry.arch = report.value("arch", "");
    } catch (const std::exception& damage) {
      entry.damage = damage.what();
    }
    if (file >= 0) close(file);
    listing.entries.push_back(std::move(entry));
  }
  std::sort(listing.entries.begin(), listing.entries.end(),
            [](const auto& a, const auto& b) { return a.path < b.path; });
  return listing;
}

size_t Cache::clear() {
  const std::lock_guard lock(mutex_);
  memory_.clear();
  size_t removed = 0;
  if (current_ == directories_.size()) return removed;
  std::error_code error;
  std::vector<fs::path> doomed;
  for (const auto& item : fs::directory_iterator(directories_[current_].path, error)) {
    const std::string name = item.path().filename().string();
    if (ends_with(name, kSuffix) || ends_with(name, kTemporarySuffix)) doomed.push_back(item.path());
  }
  for (const fs::path& path : doomed) removed += fs::remove(path, error);
  return removed;
}

std::string Cache::directory() const {
  const std::lock_guard lock(mutex_);
  return current_ < directories_.size() ? directories_[current_].path : "";
}

std::string Cache::setting() const {
  const std::lock_guard lock(mutex_);
  return current_ < directories_.size() ? directories_[current_].setting : "";
}

std::shared_ptr<Cache> shared_cache(const char* option) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<Cache>> caches;
  std::vector<CacheDirectory> directories = cache_directories(option);
  std::string name;
  for (const CacheDirectory& directory : directories) name += directory.path + '\n';
  const std::lock_guard lock(mutex);
  std::shared_ptr<Cache>& cache = caches[name];
  if (!cache) cache = std::make_shared<Cache>(std::move(directories));
  return cache;
}

}  // namespace mxfa
