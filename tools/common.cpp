#include "common.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

extern char** environ;

namespace mxfa::tools {

namespace {

// Every variable the program, the library and the CPU driver read, for the typing-error check; the README
// describes them.  MXFA_CUDA is tools/setup.sh's.
const std::vector<std::string> kVariables = {
    "MXFA_DEVICE",           "MXFA_CACHE_DIR",   "MXFA_VERBOSE",      "MXFA_NVRTC",
    "MXFA_EMULATOR_LIBRARY", "MXFA_CUDA",        "MXFA_EMU_CHECK",    "MXFA_EMU_CLC",
    "MXFA_EMU_DEVICE",       "MXFA_EMU_DEVICES", "MXFA_EMU_LIMIT",    "MXFA_EMU_MMA",
    "MXFA_EMU_SEED",         "MXFA_EMU_MUTATE",  "MXFA_EMU_SCHEDULE", "MXFA_EMU_THREADS"};

uint64_t parse_seed(const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw InputError(
        fmt::format("--seed: got {}, need an integer from 0 to {}", json_quote(text), UINT64_MAX));
  }
  return value;
}

}  // namespace

void add_json_flag(CLI::App& command, CommonFlags& flags) {
  command.add_option("--json", flags.json,
                     "also write the results as JSON to this file; '-': to stdout instead of the table");
}

void add_device_flag(CLI::App& command, CommonFlags& flags) {
  command.add_option("--device", flags.device,
                     "auto, gpu, emulator, emulator:b200, emulator:gb300 or emulator:h200; gpu:1, "
                     "emulator:b200:1: the second of several (default: MXFA_DEVICE, then auto)");
}

void add_seed_flag(CLI::App& command, CommonFlags& flags, const char* meaning) {
  // As text: CLI11 2.1 turns -1 into a large number.
  command.add_option_function<std::string>(
      "--seed", [&flags](const std::string& text) { flags.seed = parse_seed(text); }, meaning);
}

void add_shape_flags(CLI::App& command, CommonFlags& flags) {
  add_device_flag(command, flags);
  add_json_flag(command, flags);
  command.add_option("--scheduler", flags.scheduler,
                     "who computes which tile of an attention forward on Blackwell: automatic, static, "
                     "zigzag, lpt or clc (default: kernel.scheduler of the shape file, then automatic)");
  CLI::Option* verbose = command.add_flag("-v,--verbose", flags.verbose, "say more");
  command.add_flag("-q,--quiet", flags.quiet, "say nothing but results and errors")->excludes(verbose);
}

std::vector<Shape> load_runnable_shapes(const std::vector<std::string>& files, const CommonFlags& flags) {
  std::vector<Shape> shapes;
  for (const std::string& file : files) {
    for (Shape& shape : load_shapes(file)) {
      if (flags.seed) shape.data.seed = *flags.seed;
      if (!flags.scheduler.empty()) {
        auto kernel = nlohmann::ordered_json::parse(shape.kernel.empty() ? "{}" : shape.kernel);
        kernel["scheduler"] = flags.scheduler;
        shape.kernel = kernel.dump();
      }
      shapes.push_back(std::move(shape));
    }
  }
  return shapes;
}

void check_environment(CommonFlags& flags) {
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text(*entry);
    const std::string name(text.substr(0, text.find('=')));
    if (!name.starts_with("MXFA_") ||
        std::find(kVariables.begin(), kVariables.end(), name) != kVariables.end())
      continue;
    const std::string nearest = nearest_name(name, kVariables);
    message(fmt::format("warning: environment variable {} is not one of mxfa's and is ignored{}", name,
                        nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest)));
  }
  if (const char* value = std::getenv("MXFA_VERBOSE"); value && *value) {
    const std::string_view text(value);
    if (text == "1") {
      flags.verbose = !flags.quiet;
    } else if (text != "0") {
      message(fmt::format("warning: MXFA_VERBOSE={}: need 0 or 1; using 0", text));
    }
  }
}

void message(const std::string& text) {
  std::string line = "mxfa: ";
  for (const char c : text)
    line += (static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7f ? '?' : c;
  line += '\n';
  std::fputs(line.c_str(), stderr);
}

JsonReport::JsonReport(const std::string& target, std::string option)
    : target_(target), option_(std::move(option)) {
  if (!wanted() || on_stdout()) return;
  const std::filesystem::path path(target);
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  if (std::filesystem::is_directory(path)) {
    throw InputError(fmt::format("{} {}: cannot write this path: it is a directory", option_, target));
  }
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    throw InputError(fmt::format("{} {}: cannot write this path: {}: {}", option_, target, folder.string(),
                                 std::strerror(errno)));
  }
}

void JsonReport::write(const nlohmann::ordered_json& report) const {
  if (!wanted()) return;
  const std::string text = report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  if (on_stdout()) {
    std::fputs(text.c_str(), stdout);
    return;
  }
  const std::string temporary = fmt::format("{}.{}", target_, getpid());  // a reader never sees half a report
  std::FILE* file = std::fopen(temporary.c_str(), "wb");
  bool good = file && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file) good = std::fclose(file) == 0 && good;
  if (good) good = std::rename(temporary.c_str(), target_.c_str()) == 0;
  if (good) return;
  const std::string why = std::strerror(errno);
  std::remove(temporary.c_str());
  throw InputError(fmt::format("{} {}: cannot write this path: {}", option_, target_, why));
}

void print_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += i == 0 ? fmt::format("{:<{}}", row[i], widths[i]) : fmt::format("  {:>{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    fmt::print("{}\n", line);
  }
}

}  // namespace mxfa::tools
