// `mxfa bench SUITE...`: timed runs of shape files on a GPU, beside a yardstick, compared with a baseline.
#include "bench.hpp"

#include <dlfcn.h>
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <map>
#include <optional>

namespace mxfa::tools {

namespace {

using nlohmann::ordered_json;

struct BenchOptions {
  MeasureOptions measure;
  std::string baseline, save;
  bool fail_on_regression = false;
};

// Of the kernel module, "580.95.05"; "" where the management library is not there.  cuDriverGetVersion only
// says which CUDA version a driver is for.
std::string kernel_driver_version() {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return "";
  const auto init = reinterpret_cast<int (*)()>(dlsym(library, "nvmlInit_v2"));
  const auto version =
      reinterpret_cast<int (*)(char*, unsigned)>(dlsym(library, "nvmlSystemGetDriverVersion"));
  char text[96] = "";  // NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE is 80
  return init && version && init() == 0 && version(text, sizeof text) == 0 ? text : "";
}

ordered_json describe_device(const Session& session) {
  const Driver& driver = session.driver();
  size_t memory = 0;
  driver.check(driver.cuDeviceTotalMem_v2(&memory, driver.device), "cuDeviceTotalMem");
  return {{"name", driver.device_name},
          {"compute_capability", fmt::format("{}.{}", driver.compute_major, driver.compute_minor)},
          {"arch", driver.arch},
          {"multiprocessors", driver.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)},
          {"clock_khz", driver.attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE)},
          {"memory_clock_khz", driver.attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)},
          {"memory_bytes", memory},
          {"l2_bytes", driver.attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)},
          {"driver_library", driver.library},
          {"driver_version", driver.version()},
          {"kernel_driver_version", kernel_driver_version()}};
}

ordered_json describe_method(const MeasureOptions& options) {
  return {{"repeats", options.repeats},
          {"warm_up_ms", options.warm_up_ms},
          {"rest_ms", options.rest_ms},
          {"sample_ms", options.sample_ms},
          {"timing",
           "CUDA events around `launches` launches on one stream, after one untimed launch; repeats of "
           "the shape and of the yardstick alternate; caches are left as the launch before left them"},
          {"flop",
           "4 * head_dim * heads_q * sum(len_q * len_k), backward 10; half when causal; visible pairs with a "
           "window"},
          {"bytes", "BF16 input read, payload and scales written"},
          {"fraction", "rate over the yardstick's rate of the same repeat"},
          {"inputs", "N(0, std): a random block of 64 MiB, copied over the operands from different places"}};
}

ordered_json load_baseline(const std::string& path) {
  const ordered_json baseline = ordered_json::parse(read_text_file(path), nullptr, false);
  if (baseline.is_discarded())
    throw InputError(path + ": not JSON; a baseline is a file that 'mxfa bench' wrote");
  require_bench_report(baseline, path);
  return baseline;
}

void refuse_cpu_driver(const Session& session) {
  if (session.real_device()) return;
  throw InputError(
      fmt::format("bench: the device is the CPU driver ({}), and the time an emulator takes says "
                  "nothing about a kernel's; use a machine with a supported GPU, or 'mxfa run', "
                  "which counts instructions instead",
                  session.device_name()));
}

void require_same_conditions(const ordered_json& baseline, const Session& session,
                             const BenchOptions& options) {
  const std::string device = baseline["device"]["name"];
  if (device != session.device_name()) {
    throw InputError(
        fmt::format("--baseline {}: was measured on {}, this is {}; use a baseline of this device",
                    options.baseline, device, session.device_name()));
  }
  const ordered_json method = baseline.value("method", ordered_json::object());
  const ordered_json rest = method.value("rest_ms", ordered_json(0));
  if (rest != options.measure.rest_ms) {
    throw InputError(
        fmt::format("--baseline {}: was measured with --rest-ms {}, this run has {}; clocks differ",
                    options.baseline, rest.dump(), options.measure.rest_ms));
  }
}

std::string progress(const BenchRow& row) {
  if (!row.refused.empty()) return fmt::format("{}: not served: {}", row.shape, row.refused);
  if (!row.timed()) return fmt::format("{}: {}", row.shape, row.note);
  const std::string fraction =
      row.measurement.yardstick.ms.empty()
          ? ""
          : fmt::format(", {:.3f} of {}", summarize(row.fractions()).median, row.yardstick->name);
  return fmt::format("{}: {:.4f} ms, {:.1f} {}{}, {}", row.shape, summarize(row.measurement.work.ms).median,
                     row.rate(), row.rate_unit(), fraction, row.verdict());
}

std::vector<std::vector<std::string>> table_of(const std::vector<BenchRow>& rows,
                                               const std::map<std::string, Comparison>& comparisons) {
  std::vector<std::vector<std::string>> table = {
      {"shape", "D", "kernel", "ms", "min", "max", "rate", "yardstick", "fraction", "spread", "check"}};
  if (!comparisons.empty()) table[0].push_back("vs baseline");
  for (const BenchRow& row : rows) {
    std::vector<std::string> cells = {row.shape, std::to_string(row.head_dim),
                                      row.plan.is_object() ? row.plan.value("kernel", "-") : "-"};
    if (row.timed()) {
      const Summary time = summarize(row.measurement.work.ms);
      const std::vector<double> fractions = row.fractions();
      cells.insert(cells.end(),
                   {fmt::format("{:.4f}", time.median), fmt::format("{:.4f}", time.min),
                    fmt::format("{:.4f}", time.max), fmt::format("{:.1f} {}", row.rate(), row.rate_unit())});
      if (fractions.empty()) {
        cells.insert(cells.end(), {row.yardstick && !row.yardstick->missing.empty() ? "not found" : "-", "-",
                                   fmt::format("{:.1f} %", 100 * time.relative_spread())});
      } else {
        const Summary fraction = summarize(fractions);
        cells.insert(cells.end(), {fmt::format("{:.1f} {}", row.yardstick_rate(), row.rate_unit()),
                                   fmt::format("{:.3f}", fraction.median),
                                   fmt::format("{:.1f} %", 100 * fraction.relative_spread())});
      }
    } else {
      cells.insert(cells.end(), 7, "-");
    }
    cells.push_back(row.verdict());
    if (!comparisons.empty()) {
      const auto found = comparisons.find(row.shape);
      const bool compared = found != comparisons.end() && found->second.change != Change::kIncomparable &&
                            found->second.change != Change::kNew;
      cells.push_back(compared ? fmt::format("{:+.1f} %", 100 * (1 / (1 + found->second.slowdown) - 1))
                               : "-");
    }
    table.push_back(std::move(cells));
  }
  return table;
}

// What a process that is killed, or a device that dies, has measured so far is not lost.
class BenchReport {
 public:
  BenchReport(const BenchOptions& options, const std::string& json) : target_(json), options_(options) {}
  void start(const Session& session) {
    std::time_t now = std::time(nullptr);
    report_ = {{"command", "bench"},
               {"format", kBenchFormat},
               {"version", MXFA_VERSION},
               {"started", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now))},
               {"device", describe_device(session)},
               {"method", describe_method(options_.measure)},
               {"complete", false},
               {"rows", ordered_json::array()}};
  }
  void add(const BenchRow& row) {
    report_["rows"].push_back(json_of(row));
    if (!target_.on_stdout()) target_.write(report_);
  }
  ordered_json& json() { return report_; }
  const JsonReport& target() const { return target_; }

 private:
  JsonReport target_;
  const BenchOptions& options_;
  ordered_json report_;
};

int bench(const std::vector<std::string>& suite, const BenchOptions& options, const CommonFlags& flags) {
  if (options.fail_on_regression && options.baseline.empty())
    throw InputError("--fail-on-regression: needs --baseline FILE to compare with");
  const std::vector<Shape> shapes = load_runnable_shapes(suite_files(suite), flags);
  std::optional<ordered_json> baseline;
  if (!options.baseline.empty()) baseline = load_baseline(options.baseline);
  BenchReport report(options, flags.json);
  const JsonReport saved(options.save, "--save");
  const Session session(flags);
  refuse_cpu_driver(session);
  if (baseline) require_same_conditions(*baseline, session, options);

  report.start(session);
  BenchMachine machine(session, options.measure);
  std::vector<BenchRow> rows;
  for (const Shape& shape : shapes) {
    for (BenchRow& row : bench_shape(machine, shape)) {
      for (const std::string& failure : row.failures) message(fmt::format("{}: {}", row.shape, failure));
      if (!flags.quiet || !row.refused.empty()) message(progress(row));
      report.add(row);
      rows.push_back(std::move(row));
    }
  }
  report.json()["complete"] = true;

  std::map<std::string, Comparison> comparisons;
  bool slower = false;
  if (baseline) {
    ordered_json& list =
        report.json()["baseline"] = {{"file", options.baseline}, {"rows", ordered_json::array()}};
    for (Comparison& comparison : compare_reports(*baseline, report.json())) {
      static const char* const kNames[] = {"same", "faster", "slower", "new", "missing", "incomparable"};
      list["rows"].push_back({{"shape", comparison.shape},
                              {"change", kNames[static_cast<int>(comparison.change)]},
                              {"slowdown", comparison.slowdown},
                              {"spread", comparison.spread},
                              {"sentence", comparison.sentence}});
      const bool worse = comparison.change == Change::kSlower;
      slower = slower || worse;
      if (worse) message("regression: " + comparison.sentence);
      if (!worse && comparison.change != Change::kSame && !flags.quiet) message(comparison.sentence);
      comparisons.emplace(comparison.shape, std::move(comparison));
    }
    if (!slower && !flags.quiet) message("no row is slower than the baseline by more than the spread");
  }
  if (!report.target().on_stdout()) {
    print_table(table_of(rows, comparisons));
    for (const BenchRow& row : rows) {
      if (!row.yardstick || row.yardstick->missing.empty()) continue;
      message(fmt::format("no yardstick {}: {}", row.yardstick->name, row.yardstick->missing));
      break;
    }
  }
  report.target().write(report.json());

  const auto any = [&](auto&& is) { return std::any_of(rows.begin(), rows.end(), is); };
  if (any([](const BenchRow& row) { return !row.failures.empty(); })) {
    if (saved.wanted())
      message(fmt::format("--save {}: not written, because a result was wrong", options.save));
    return kWrongResult;
  }
  saved.write(report.json());
  if (any([](const BenchRow& row) { return !row.refused.empty(); })) return kBadInput;
  return slower && options.fail_on_regression ? kWrongResult : kPassed;
}

}  // namespace

std::vector<std::string> suite_files(const std::vector<std::string>& suite) {
  namespace fs = std::filesystem;
  std::vector<std::string> files;
  for (const std::string& entry : suite) {
    std::error_code error;
    if (!fs::is_directory(entry, error)) {
      files.push_back(entry);  // what is wrong with a file is said where it is read
      continue;
    }
    std::vector<std::string> found;
    for (const fs::directory_entry& file : fs::directory_iterator(entry, error))
      if (file.path().extension() == ".json") found.push_back(file.path().string());
    if (error) throw InputError(fmt::format("{}: cannot read this folder: {}", entry, error.message()));
    if (found.empty()) throw InputError(fmt::format("{}: this folder holds no shape file (*.json)", entry));
    std::sort(found.begin(), found.end());
    files.insert(files.end(), found.begin(), found.end());
  }
  std::map<std::string, std::string> names;
  for (const std::string& file : files) {
    const auto [known, inserted] = names.emplace(fs::path(file).filename().string(), file);
    if (!inserted) {
      throw InputError(
          fmt::format("{} and {}: two shape files of one name; rows are known by the file's name, so "
                      "that a baseline fits in any folder",
                      known->second, file));
    }
  }
  return files;
}

void add_bench(CLI::App& app, CommonFlags& flags, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "bench", "time shape files on a GPU, beside cuBLAS or a copy, and check the results");
  auto suite = std::make_shared<std::vector<std::string>>();
  auto options = std::make_shared<BenchOptions>();
  command->add_option("SUITE", *suite, "shape files, or folders of them")->required();
  command->add_option("--repeats", options->measure.repeats, "timed repeats of each row (default 15)")
      ->check(CLI::Range(3, 10000));
  command
      ->add_option("--rest-ms", options->measure.rest_ms,
                   "idle milliseconds before every repeat, so that the device stays cool (default 0)")
      ->check(CLI::Range(0.0, 10000.0));
  command->add_option("--baseline", options->baseline, "report the rows that are slower than in this file");
  command->add_option("--save", options->save, "write a baseline, unless a result is wrong");
  command->add_flag("--fail-on-regression", options->fail_on_regression,
                    "exit with 1 when a row is slower than the baseline by more than the spread");
  add_shape_flags(*command, flags);
  add_seed_flag(*command, flags);
  command->callback([suite, options, &flags, &exit_code] {
    check_environment(flags);
    exit_code = bench(*suite, *options, flags);
  });
}

}  // namespace mxfa::tools
