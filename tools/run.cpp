// `mxfa run SHAPE...`: plan, compile, run, check, one row a shape.
#include "run.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <set>

namespace mxfa::tools {

namespace {

using nlohmann::ordered_json;

// "12.3k", "4.56M": counts that a person compares.
std::string short_count(double value) {
  const char* suffix = "";
  for (const char* next : {"k", "M", "G", "T"}) {
    if (value < 1000) break;
    value /= 1000;
    suffix = next;
  }
  return *suffix ? fmt::format("{:.3g}{}", value, suffix) : fmt::format("{:.0f}", value);
}

std::string decibels(double value) {
  return std::isinf(value) && value > 0 ? "exact" : fmt::format("{:.2f}", value);
}

// JSON has no infinity: an exact result has no noise to state.
ordered_json finite_or_null(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr);
}

double counter(const ordered_json& counters, const char* name) {
  return counters.is_object() && counters.contains(name) && counters[name].is_number()
             ? counters[name].get<double>()
             : 0;
}

// Columns of the table.  "exact dB": signal to noise of O, or of the gradients, against the exact reference;
// "aware dB": against the reference that rounds where the kernel rounds.
struct Columns {
  bool times, counts, accuracy;  // real devices have times, the CPU driver has counts
};

std::vector<std::string> header(const Columns& columns) {
  std::vector<std::string> cells = {"shape", "dtype", "device", "kernel", "JIT ms", "load ms"};
  if (columns.times) cells.insert(cells.end(), {"time ms", "rate"});
  if (columns.counts) cells.insert(cells.end(), {"warp instr", "MMA"});
  if (columns.accuracy) {
    for (const char* name : {"exact dB", "cosine", "max |err|", "LSE err", "aware dB"}) cells.push_back(name);
  }
  cells.push_back("verdict");
  return cells;
}

std::vector<std::string> cells_of(const RunRow& row, const Columns& columns) {
  std::vector<std::string> cells = {row.shape,
                                    row.dtype,
                                    row.device,
                                    row.kernel + " " + row.arch,
                                    row.jit == "cold" ? fmt::format("{:.0f}", row.compile_ms) : row.jit,
                                    fmt::format("{:.1f}", row.load_ms)};
  if (columns.times) {
    cells.push_back(row.time_ms > 0 ? fmt::format("{:.4f}", row.time_ms) : "-");
    cells.push_back(row.rate > 0
                        ? fmt::format("{:.1f} {}", row.rate, row.op == "mxfp8_quantize" ? "GB/s" : "TFLOP/s")
                        : "-");
  }
  if (columns.counts) {
    const auto count = [&](const char* name) {
      return row.real_device ? "-" : short_count(counter(row.counters, name));
    };
    cells.push_back(count("warp_instructions"));
    cells.push_back(count("mma_instructions"));
  }
  if (columns.accuracy && row.has_accuracy) {
    cells.insert(cells.end(), {decibels(row.sqnr_db), fmt::format("{:.6f}", row.cosine),
                               fmt::format("{:.2e}", row.max_abs),
                               row.gradients.is_null() ? fmt::format("{:.2e}", row.lse_error) : "-",
                               decibels(row.quantized_sqnr_db)});
  } else if (columns.accuracy) {
    cells.insert(cells.end(), 5, "-");
  }
  cells.push_back(row.verdict());
  return cells;
}

ordered_json json_of(const RunRow& row) {
  ordered_json out = {{"shape", row.shape},
                      {"op", row.op},
                      {"dtype", row.dtype},
                      {"device", row.device},
                      {"real_device", row.real_device},
                      {"kernel", row.kernel},
                      {"arch", row.arch},
                      {"jit", row.jit},
                      {"compile_ms", row.compile_ms},
                      {"load_ms", row.load_ms}};
  if (row.real_device) {
    out["time_ms"] = row.time_ms;
    out[row.op == "mxfp8_quantize" ? "gb_per_s" : "tflops"] = row.rate;
  } else {
    out["counters"] = row.counters;
  }
  if (row.has_accuracy) {
    out["sqnr_db"] = finite_or_null(row.sqnr_db);
    out["cosine"] = row.cosine;
    out["max_abs_error"] = finite_or_null(row.max_abs);
    if (row.gradients.is_null()) out["lse_error"] = finite_or_null(row.lse_error);
    out["quantized_sqnr_db"] = finite_or_null(row.quantized_sqnr_db);
  }
  if (!row.gradients.is_null()) out["gradients"] = row.gradients;
  out["verdict"] = row.verdict();
  out["failures"] = row.failures;
  if (!row.note.empty()) out["note"] = row.note;
  return out;
}

// What a shape takes, before any of it is allocated: an impossible size is a sentence, not a dying machine.
void require_memory(const Shape& shape, const Session& session, bool check) {
  const auto tokens = [](const std::vector<int32_t>& lengths) {
    double total = 0;
    for (const int32_t length : lengths) total += length;
    return total;
  };
  const double elements_q = tokens(shape.seqlens_q) * shape.heads_q * shape.head_dim;
  const double elements_k = tokens(shape.seqlens_k) * shape.heads_kv * shape.head_dim;
  // Q, O; K, V; the backward has the gradient of each as well, and dQ once more in FP32.
  const bool backward = shape.op == Op::attn_bwd;
  const double elements = (backward ? 6 : 2) * elements_q + (backward ? 4 : 2) * elements_k;
  const double device = elements * 4;  // BF16, payload, scales and guards, rounded up
  size_t device_total = 0;
  session.driver().check(session.driver().cuDeviceTotalMem_v2(&device_total, session.driver().device),
                         "cuDeviceTotalMem");
  // The CPU driver's memory is this machine's; a checked result is also held in double precision, twice.
  const double host = elements * 2 + (session.real_device() ? 0 : device) + (check ? elements * 32 : 0);
  const double host_total =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  const auto refuse = [&](const char* where, double need, double have) {
    throw InputError(fmt::format(
        "{}: {:.0f} query and {:.0f} key tokens need about {:.1f} GiB of {} memory, this machine has {:.1f}; "
        "use shorter or fewer sequences",
        shape.source, tokens(shape.seqlens_q), tokens(shape.seqlens_k), need / (1 << 30), where,
        have / (1 << 30)));
  };
  if (device > static_cast<double>(device_total)) refuse("device", device, static_cast<double>(device_total));
  if (host > 0.8 * host_total) refuse("host", host, host_total);
}

// The devices of a command: the one asked for and, where that is "auto" and a GPU, the CPU driver as a B200
// for the shapes that the GPU has no kernel for.
class Devices {
 public:
  explicit Devices(const CommonFlags& flags)
      : flags_(flags),
        first_(flags),
        may_fall_back_(first_.real_device() &&
                       parse_device(flags.device_or_null()).kind == DeviceChoice::Kind::kAuto) {}

  // Plans the shape on the device that will run it, which *session then names.
  std::vector<PlannedKernel> plan(const Shape& shape, bool check, const Session** session) {
    *session = &first_;
    if (!may_fall_back_) return plan_shape(first_, shape, check);
    try {
      return plan_shape(first_, shape, check);
    } catch (const Error& refusal) {
      if (refusal.status() != MXFA_ERROR_INVALID) throw;
      const std::exception_ptr refused = std::current_exception();
      std::vector<PlannedKernel> planned;
      try {
        if (!cpu_driver_) {
          CommonFlags emulator = flags_;
          emulator.device = "emulator:b200";
          cpu_driver_ = std::make_unique<Session>(emulator);
        }
        planned = plan_shape(*cpu_driver_, shape, check);
      } catch (const Error&) {
        std::rethrow_exception(refused);  // not a matter of the device
      }
      if (flags_.verbose) message(refusal.what());
      if (!flags_.quiet)
        message(fmt::format("{}: {} has no kernel for this shape; the CPU driver runs it as a B200",
                            shape.source, first_.device_name()));
      *session = cpu_driver_.get();
      return planned;
    }
  }

 private:
  const CommonFlags& flags_;
  Session first_;
  bool may_fall_back_;
  std::unique_ptr<Session> cpu_driver_;
};

std::vector<RunRow> run_operation(const Session& session, const Shape& shape, const RunOptions& options) {
  switch (shape.op) {
    case Op::attn_fwd:
      return {run_attention(session, shape, options)};
    case Op::attn_bwd:
      return {run_attention_backward(session, shape, options)};
    default:
      return run_quantize(session, shape, options);
  }
}

int run(const std::vector<std::string>& files, const RunOptions& options, const CommonFlags& flags) {
  const std::vector<Shape> shapes = load_runnable_shapes(files, flags);
  const JsonReport report(flags.json);
  Devices devices(flags);
  // Plan everything before anything runs: a shape that is refused must not leave half a list of results.
  std::vector<std::vector<PlannedKernel>> plans;
  std::vector<const Session*> sessions(shapes.size());
  for (size_t i = 0; i < shapes.size(); ++i)
    plans.push_back(devices.plan(shapes[i], options.check, &sessions[i]));
  std::vector<RunRow> done;
  ordered_json rows = ordered_json::array();
  bool all_right = true;
  std::set<std::string> seen;
  for (size_t i = 0; i < shapes.size(); ++i) {
    std::vector<RunRow> shape_rows = run_shape(*sessions[i], shapes[i], plans[i], options);
    for (size_t r = 0; r < shape_rows.size(); ++r) {
      RunRow& row = shape_rows[r];
      // A kernel is compiled and loaded once a process; later rows only reuse it.
      if (!seen.insert(plans[i][r].description.value("key", "")).second)
        row.jit = "reused", row.compile_ms = row.load_ms = 0;
      for (const std::string& failure : row.failures) message(fmt::format("{}: {}", row.shape, failure));
      if (!row.note.empty() && !flags.quiet) message(fmt::format("{}: {}", row.shape, row.note));
      all_right = all_right && row.failures.empty();
      rows.push_back(json_of(row));
      done.push_back(std::move(row));
    }
  }
  if (!report.on_stdout()) {
    const auto any = [&](auto&& has) { return std::any_of(done.begin(), done.end(), has); };
    const Columns columns{any([](const RunRow& row) { return row.real_device; }),
                          any([](const RunRow& row) { return !row.real_device; }),
                          any([](const RunRow& row) { return row.has_accuracy; })};
    std::vector<std::vector<std::string>> table = {header(columns)};
    for (const RunRow& row : done) table.push_back(cells_of(row, columns));
    print_table(table);
  }
  report.write({{"command", "run"}, {"rows", rows}});
  return all_right ? kPassed : kWrongResult;
}

}  // namespace

std::vector<PlannedKernel> plan_shape(const Session& session, const Shape& shape, bool check) {
  try {
    require_memory(shape, session, check);
    return plan_all(session.context(), shape);
  } catch (const Error& error) {
    if (dynamic_cast<const InputError*>(&error)) throw;  // says where it stands
    throw Error(error.status(), fmt::format("{}: {}", shape.source, error.what()));
  }
}

std::vector<RunRow> run_shape(const Session& session, const Shape& shape,
                              const std::vector<PlannedKernel>& plan, const RunOptions& options) {
  std::vector<RunRow> rows = run_operation(session, shape, options);
  for (size_t r = 0; r < rows.size(); ++r) {
    rows[r].device = session.device_name();
    rows[r].real_device = session.real_device();
    describe_into(plan[r].description,
                  rows[r]);  // the operation comes first in its plans, quantisers in order
  }
  return rows;
}

void describe_into(const ordered_json& description, RunRow& row) {
  row.kernel = description.value("kernel", "");
  row.arch = description.value("arch", "");
  row.jit = description["cache"].value("state", "");
  row.compile_ms = row.jit == "cold" ? description.value("build_ms", 0.0) : 0.0;
  row.load_ms = description.value("load_ms", 0.0);
}

void add_run(CLI::App& app, CommonFlags& flags, int& exit_code) {
  CLI::App* command = app.add_subcommand("run", "run shape files and check the results");
  auto files = std::make_shared<std::vector<std::string>>();
  auto options = std::make_shared<RunOptions>();
  command->add_option("SHAPE", *files, "shape files")->required();
  command->add_flag("--check", options->check, "check the result even where the references take long");
  add_shape_flags(*command, flags);
  add_seed_flag(*command, flags);
  command->callback([files, options, &flags, &exit_code] {
    check_environment(flags);
    exit_code = run(*files, *options, flags);
  });
}

}  // namespace mxfa::tools
