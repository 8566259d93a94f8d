// `mxfa cache list|verify|clear`: the compiled kernels on disk.
#include "host/cache.hpp"

#include <fmt/format.h>

#include "common.hpp"

namespace mxfa::tools {

namespace {

using nlohmann::ordered_json;

int list(bool verify, const CommonFlags& flags) {
  const JsonReport report(flags.json);
  const auto cache = shared_cache(nullptr);
  const CacheListing listing = cache->list();  // verifies every entry
  std::vector<std::vector<std::string>> table = {{"kernel", "arch", "bytes", "key", "state"}};
  ordered_json entries = ordered_json::array();
  size_t damaged = 0;
  for (const CacheEntry& entry : listing.entries) {
    damaged += !entry.damage.empty();
    table.push_back({entry.kernel.empty() ? "?" : entry.kernel, entry.arch, fmt::format("{}", entry.bytes),
                     entry.key.substr(0, 12), entry.damage.empty() ? "sound" : "damaged: " + entry.damage});
    entries.push_back({{"kernel", entry.kernel},
                       {"arch", entry.arch},
                       {"bytes", entry.bytes},
                       {"key", entry.key},
                       {"path", entry.path},
                       {"damage", entry.damage}});
  }
  if (!report.on_stdout()) {
    const std::string directory = cache->directory();
    fmt::print("{}: {} entries, {} damaged\n", directory.empty() ? "memory only" : directory,
               listing.entries.size(), damaged);
    if (!listing.entries.empty()) print_table(table);
  }
  report.write({{"command", verify ? "cache verify" : "cache list"},
                {"directory", cache->directory()},
                {"entries", entries},
                {"damaged", damaged},
                {"temporary_files", listing.temporary_files}});
  if (!verify || damaged == 0) return kPassed;
  message("damaged entries are rebuilt when they are needed; 'mxfa cache clear' removes everything");
  return kDeviceTrouble;
}

int clear(const CommonFlags& flags) {
  const JsonReport report(flags.json);
  const auto cache = shared_cache(nullptr);
  const std::string directory = cache->directory();
  const size_t removed = cache->clear();
  if (!report.on_stdout())
    fmt::print("{}: removed {} files\n", directory.empty() ? "memory only" : directory, removed);
  report.write({{"command", "cache clear"}, {"directory", directory}, {"removed", removed}});
  return kPassed;
}

}  // namespace

void add_cache(CLI::App& app, CommonFlags& flags, int& exit_code) {
  CLI::App* command = app.add_subcommand("cache", "the compiled kernels on disk");
  command->require_subcommand(1);
  const auto add = [&](const char* name, const char* text, std::function<int()> action) {
    CLI::App* one = command->add_subcommand(name, text);
    add_json_flag(*one, flags);
    one->callback([action = std::move(action), &flags, &exit_code] {
      check_environment(flags);
      exit_code = action();
    });
  };
  add("list", "every entry", [&flags] { return list(false, flags); });
  add("verify", "check every entry; exit 3 if one is damaged", [&flags] { return list(true, flags); });
  add("clear", "remove every entry", [&flags] { return clear(flags); });
}

}  // namespace mxfa::tools
