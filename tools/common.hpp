// What every subcommand shares: flags, exit codes, messages, the JSON report.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "host/shape_file.hpp"

namespace mxfa::tools {

// The program's exit codes.  2 and 3 are also the C ABI's statuses.
enum ExitCode : int { kPassed = 0, kWrongResult = 1, kBadInput = 2, kDeviceTrouble = 3, kHazard = 4 };

struct CommonFlags {
  std::string device;            // "": MXFA_DEVICE, then auto
  std::string json;              // "": none; "-": stdout instead of the table
  std::optional<uint64_t> seed;  // instead of data.seed of the shape files
  std::string scheduler;         // "": what the shape files say; else instead of kernel.scheduler
  bool verbose = false, quiet = false;

  const char* device_or_null() const { return device.empty() ? nullptr : device.c_str(); }
};

// A subcommand adds itself to the program; `exit_code` is set when it runs.
void add_run(CLI::App& app, CommonFlags& flags, int& exit_code);
void add_check(CLI::App& app, CommonFlags& flags, int& exit_code);
void add_explain(CLI::App& app, CommonFlags& flags, int& exit_code);
void add_compile(CLI::App& app, CommonFlags& flags, int& exit_code);
void add_bench(CLI::App& app, CommonFlags& flags, int& exit_code);
void add_info(CLI::App& app, CommonFlags& flags, int& exit_code);
void add_cache(CLI::App& app, CommonFlags& flags, int& exit_code);

// What a subcommand has of the common flags, each only where it changes something.
void add_json_flag(CLI::App& command, CommonFlags& flags);
void add_device_flag(CLI::App& command, CommonFlags& flags);
void add_seed_flag(CLI::App& command, CommonFlags& flags,
                   const char* meaning = "random seed of the data, instead of the shape file's");
// Of a command that works on shape files: --device, --json, --scheduler, --verbose and --quiet.
void add_shape_flags(CLI::App& command, CommonFlags& flags);

// Loads all shapes of all files before anything is done, and applies --seed and --scheduler.
std::vector<Shape> load_runnable_shapes(const std::vector<std::string>& files, const CommonFlags& flags);

// Warns once for each MXFA_ variable that is unknown or has an unusable value, naming what is used instead;
// applies MXFA_VERBOSE.
void check_environment(CommonFlags& flags);

// One line on stderr: "mxfa: text".  Control characters in it are shown as '?'.
void message(const std::string& text);

// Where --json, or another option, sends a report.  The constructor refuses a place that cannot be written,
// before any work is done; write() replaces a file in one step.
class JsonReport {
 public:
  explicit JsonReport(const std::string& target, std::string option = "--json");
  bool wanted() const { return !target_.empty(); }
  bool on_stdout() const { return target_ == "-"; }
  void write(const nlohmann::ordered_json& report) const;

 private:
  std::string target_, option_;
};

// A table on stdout: columns as wide as their widest cell, the first left-aligned.
void print_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace mxfa::tools
