// `mxfa check SHAPE --mutate`: each synchronisation of a kernel is deleted from its PTX in turn, and the
// checks must find it.  A mutant runs in a process of its own (this program again), since anything may happen
// to it.
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "check.hpp"
#include "host/embedded.hpp"

namespace mxfa::tools {

namespace {

using nlohmann::ordered_json;

struct Site {
  size_t number = 0;
  std::string kind, ptx, cuda;
  std::string place;               // in the kernel's source
  std::vector<std::string> lines;  // that line and those it is called from, innermost first; or the PTX
  std::string finding;             // of the mutant; "equivalent": silent, and the reason is known
  std::string shape, found_by, report, reason;
};

// "ptx/a.cuh:12 in f, inlined at src/b.cuh:33": the places, innermost first.
std::vector<std::string> places_of(const std::string& cuda) {
  const std::string mark = ", inlined at ";
  std::vector<std::string> places;
  for (size_t at = 0; at < cuda.size();) {
    const size_t end = std::min(cuda.find(mark, at), cuda.size());
    const std::string place = cuda.substr(at, end - at);
    places.push_back(place.substr(0, place.find(' ')));
    at = end + mark.size();
  }
  return places;
}

std::string source_line(const std::string& place) {
  const size_t colon = place.rfind(':');
  if (colon == place.npos) return {};
  int line = std::atoi(place.c_str() + colon + 1);
  for (const MxfaEmbedded* file = mxfa_embedded_device_sources; file->path; ++file) {
    if (!place.substr(0, colon).ends_with(file->path)) continue;
    std::string_view text = file->text;
    for (; line > 1 && !text.empty(); --line)
      text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
    text = text.substr(0, text.find('\n'));
    text = text.substr(0, text.find("//"));
    const size_t first = text.find_first_not_of(" \t"), last = text.find_last_not_of(" \t");
    return first == text.npos ? std::string() : std::string(text.substr(first, last + 1 - first));
  }
  return {};
}

// A kernel to delete from, and the shapes that run it: numbers of checked shapes.
struct Mutated {
  std::string kernel, key;
  nlohmann::json config;
  std::vector<size_t> shapes;
};

// Those of each shape's operation, or all that its plan launches.
std::vector<Mutated> kernels_of(const std::vector<Shape>& shapes, const CheckOptions& options,
                                const MutateOptions& mutations, const CommonFlags& flags) {
  Reopened session(flags);
  std::vector<Mutated> kernels;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const std::vector<PlannedKernel> plans = plan_shape(session.get(), shapes[i], options.check);
    ordered_json launched = ordered_json::array();
    for (const PlannedKernel& plan : plans) {
      launched.push_back(plan.description);
      if (mutations.all_kernels && plan.description.contains("other_kernels"))
        for (const auto& other : plan.description["other_kernels"]) launched.push_back(other);
      if (shapes[i].op != Op::mxfp8_quantize) break;  // behind an attention come what makes its operands
    }
    for (const ordered_json& one : launched) {
      if (one["grid"] == ordered_json({0, 1, 1}) || one["grid"] == 0) continue;
      auto same =
          std::find_if(kernels.begin(), kernels.end(), [&](const Mutated& m) { return m.key == one["key"]; });
      if (same == kernels.end())
        same = kernels.insert(same,
                              {one["kernel"], one["key"], one.value("config", nlohmann::json::object()), {}});
      same->shapes.push_back(i);
    }
  }
  return kernels;
}

// The synchronisations of a kernel that this shape runs.
std::vector<Site> sites_of(const Shape& shape, const std::string& kernel, const CheckOptions& options,
                           const CommonFlags& flags) {
  const ScopedVariable list("MXFA_EMU_MUTATE", kernel + ":list");
  Reopened session(flags);
  (void)plan_shape(session.get(), shape, options.check);
  // A question of this file alone, so it is no member of the driver's table.
  void* const library = dlopen(session.get().driver().library.c_str(), RTLD_NOW | RTLD_NOLOAD);
  using Ask = const char* (*)(const char*);
  const Ask ask = library ? reinterpret_cast<Ask>(dlsym(library, "mxfaEmulatorSyncSites")) : nullptr;
  const char* text = ask ? ask(kernel.c_str()) : nullptr;
  if (!text) throw Error(MXFA_ERROR_DEVICE, fmt::format("the CPU driver lists no sites of {}", kernel));
  std::vector<Site> sites;
  for (const auto& entry : nlohmann::json::parse(text)) {
    Site site;
    site.number = sites.size();
    site.kind = entry["kind"];
    site.ptx = entry["ptx"];
    site.cuda = entry["cuda"];
    // What the kernel says, not the wrappers that it calls.
    for (const std::string& place : places_of(site.cuda)) {
      const std::string line = source_line(place);
      if (line.empty() || place.find("src/") == place.npos) continue;
      if (site.place.empty()) site.place = place;
      site.lines.push_back(line);
    }
    if (site.lines.empty()) site.place = site.cuda, site.lines = {site.ptx};
    sites.push_back(std::move(site));
  }
  return sites;
}

// The seed's choice of `count` sites, in the order of the text.
void take_sample(std::vector<Site>& sites, int count, uint64_t seed) {
  if (count <= 0 || static_cast<size_t>(count) >= sites.size()) return;
  const auto rank = [seed](const Site& site) {  // splitmix64
    uint64_t x = (seed + site.number + 1) * 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
  };
  std::sort(sites.begin(), sites.end(), [&](const Site& a, const Site& b) { return rank(a) < rank(b); });
  sites.resize(static_cast<size_t>(count));
  std::sort(sites.begin(), sites.end(), [](const Site& a, const Site& b) { return a.number < b.number; });
}

// ---- the mutants' processes
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "mxfa-mutate-XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("cannot make a temporary folder");
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

struct Ended {
  int status = 0;  // as waitpid gives it
  double cpu_seconds = 0;
  ordered_json row;              // null when it wrote none
  std::set<std::string> advice;  // rules of the hazard checks' advice
};

class Child {
 public:
  // `arguments` after the program's name; the report goes to `report`.
  Child(std::vector<std::string> arguments, const std::string& mutation, const std::string& report,
        unsigned cpu_seconds)
      : report_(report), messages_(report + ".messages") {
    arguments.insert(arguments.begin(), "mxfa");
    arguments.insert(arguments.end(), {"--json", report});
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const ScopedVariable variable("MXFA_EMU_MUTATE", mutation);
    pid_ = fork();
    if (pid_ < 0) throw std::runtime_error("cannot start a process");
    if (pid_ > 0) return;
    // A mutant that runs for ever is stopped by the system; time of this process alone counts.
    const rlimit limit{cpu_seconds, cpu_seconds + 1}, no_core{0, 0};
    setrlimit(RLIMIT_CPU, &limit);
    setrlimit(RLIMIT_CORE, &no_core);
    const int nowhere = open("/dev/null", O_RDWR);
    for (int stream = 0; stream < 2; ++stream) dup2(nowhere, stream);
    dup2(open(messages_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
    execv("/proc/self/exe", argv.data());
    _exit(127);
  }
  bool ended(Ended* out) {
    rusage usage{};
    if (wait4(pid_, &out->status, WNOHANG, &usage) != pid_) return false;
    const auto seconds = [](const timeval& t) { return double(t.tv_sec) + 1e-6 * double(t.tv_usec); };
    out->cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    std::ifstream file(report_);
    const ordered_json all = ordered_json::parse(file, nullptr, false);
    if (!all.is_discarded() && all.contains("rows") && !all["rows"].empty()) out->row = all["rows"][0];
    // The driver's reports say "advice RULE (N times)".
    std::ifstream messages(messages_);
    for (std::string line; std::getline(messages, line);)
      if (line.starts_with(kAdvice)) out->advice.insert(line.substr(0, line.find(" (")));
    return true;
  }

 private:
  static constexpr std::string_view kAdvice = "advice ";
  pid_t pid_ = 0;
  std::string report_, messages_;
};

// `whole`: the kernel with nothing deleted.
void judge(const Ended& end, const Ended& whole, Site& site) {
  if (WIFSIGNALED(end.status)) {
    site.finding = WTERMSIG(end.status) == SIGXCPU || WTERMSIG(end.status) == SIGKILL ? "endless" : "crash";
    site.report = fmt::format("the process ended with signal {}", WTERMSIG(end.status));
    return;
  }
  if (end.row.is_null() && WEXITSTATUS(end.status) == kBadInput)
    throw std::runtime_error("mutate: the program does not take its own arguments");
  if (end.row.is_null()) {
    site.finding = "fault";
    site.report = fmt::format("exit code {} before the kernel ran", WEXITSTATUS(end.status));
    return;
  }
  site.finding = end.row["verdict"];
  for (const auto& trial : end.row["schedules"]) {
    std::string by = trial["schedule"];
    if (trial.contains("seed")) by += fmt::format(" seed {}", trial["seed"].get<uint64_t>());
    if (trial["finding"] != "silent") {
      site.found_by = by;
      site.report = trial.value("report", "");
      return;
    }
    if (trial["bits"] != whole.row["schedules"][0]["bits"]) {
      site.finding = "wrong bits";
      site.found_by = by;
      return;
    }
  }
  for (const std::string& rule : end.advice) {
    if (whole.advice.contains(rule)) continue;
    site.finding = "advice";
    site.report = rule;
  }
}

// ---- silent deletions whose reason is known
struct Known {
  std::string kernel, kind, text, verdict, reason;
  std::vector<std::string> called_at;
  nlohmann::json when = nlohmann::json::object();  // fields that the kernel's configuration must have
  int sites = INT_MAX;                             // at most so many of a kernel
  bool used = false;
  // `text` is the line of the kernel, `called_at` (if given) the line that calls its function, or that line,
  // the one that calls the function it stands in, and so on.
  bool is_about(const Mutated& mutated) const {
    for (const auto& [field, value] : when.items())
      if (!mutated.config.contains(field) || mutated.config[field] != value) return false;
    return kernel == mutated.kernel;
  }
  bool fits(const Mutated& mutated, const Site& site) const {
    return is_about(mutated) && kind == site.kind && text == site.lines[0] &&
           site.lines.size() > called_at.size() &&
           std::equal(called_at.begin(), called_at.end(), site.lines.begin() + 1);
  }
};
constexpr const char* kEquivalent = "equivalent";  // the kernel does not need it
// The kernel needs it, but the checks do not look there, or the shape does not get there.
constexpr const char* kGaps[] = {"not modelled", "not reached"};
bool is_gap(const std::string& verdict) { return verdict == kGaps[0] || verdict == kGaps[1]; }

std::vector<Known> load_known(const std::string& file) {
  std::vector<Known> known;
  if (file.empty()) return known;
  std::ifstream in(file);
  const nlohmann::json list = nlohmann::json::parse(in, nullptr, false);
  if (!list.is_array()) throw InputError(fmt::format("--known {}: need a JSON array", file));
  for (const auto& entry : list) {
    Known k;
    if (entry.is_object() && entry.contains("called_at")) {
      const auto& calls = entry["called_at"];
      k.called_at = calls.is_array() ? calls.get<std::vector<std::string>>()
                                     : std::vector<std::string>{calls.get<std::string>()};
    }
    if (entry.is_object()) k.when = entry.value("when", k.when), k.sites = entry.value("sites", k.sites);
    for (const auto& [name, field] : {std::pair{"kernel", &k.kernel},
                                      {"kind", &k.kind},
                                      {"text", &k.text},
                                      {"verdict", &k.verdict},
                                      {"reason", &k.reason}}) {
      if (!entry.is_object() || !entry.contains(name) || !entry[name].is_string() ||
          entry[name].get<std::string>().empty())
        throw InputError(fmt::format("--known {}: entry {} has no \"{}\"", file, known.size() + 1, name));
      *field = entry[name];
    }
    if (k.verdict != kEquivalent && !is_gap(k.verdict))
      throw InputError(fmt::format("--known {}: entry {}: verdict \"{}\" is not \"{}\", \"{}\" or \"{}\"",
                                   file, known.size() + 1, k.verdict, kEquivalent, kGaps[0], kGaps[1]));
    known.push_back(std::move(k));
  }
  return known;
}

struct Tally {
  int found = 0, equivalent = 0, gaps = 0, silent = 0;
  void count(const std::string& finding) {
    ++(finding == "silent" ? silent : finding == kEquivalent ? equivalent : is_gap(finding) ? gaps : found);
  }
};

ordered_json json_of(const Site& site) {
  ordered_json out = {{"site", site.number}, {"kind", site.kind},   {"ptx", site.ptx},
                      {"cuda", site.cuda},   {"lines", site.lines}, {"finding", site.finding},
                      {"shape", site.shape}};
  if (!site.found_by.empty()) out["schedule"] = site.found_by;
  if (!site.report.empty()) out["report"] = site.report;
  if (!site.reason.empty()) out["reason"] = site.reason;
  return out;
}

void print(const std::vector<Site>& sites) {
  std::vector<std::vector<std::string>> table = {{"site", "deleted", "found", "under", "source"}};
  for (const Site& site : sites) {
    table.push_back({std::to_string(site.number), site.kind, site.finding,
                     site.found_by.empty() ? "-" : site.found_by, site.place});
  }
  print_table(table);
}

// Runs the mutants that no shape before has shown, `jobs` at a time.
void run_mutants(std::vector<Site>& sites, const std::string& shape,
                 const std::vector<std::string>& arguments, const std::string& kernel, const Ended& whole,
                 unsigned jobs, const Folder& folder, const CommonFlags& flags, double times = 20) {
  // Mutants do what the kernel does or stop early; what takes many times longer does not end.
  const auto limit = static_cast<unsigned>(5 + std::ceil(times * whole.cpu_seconds));
  struct Running {
    Site* site;
    std::unique_ptr<Child> child;
  };
  std::vector<Running> running;
  for (auto next = sites.begin(); next != sites.end() || !running.empty();) {
    while (next != sites.end() && running.size() < jobs) {
      if (!next->finding.empty() && next->finding != "silent") {
        ++next;
        continue;
      }
      running.push_back(
          {&*next, std::make_unique<Child>(arguments, fmt::format("{}:{}", kernel, next->number),
                                           folder.file(std::to_string(next->number)), limit)});
      ++next;
    }
    std::erase_if(running, [&](Running& r) {
      Ended end;
      if (!r.child->ended(&end)) return false;
      judge(end, whole, *r.site);
      r.site->shape = shape;
      if (flags.verbose)
        message(fmt::format("{} without {} at {}: {}", kernel, r.site->kind, r.site->place, r.site->finding));
      return true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

Ended run_to_end(Child child) {
  Ended end;
  while (!child.ended(&end)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return end;
}

// For silent sites that nothing excuses, as many times the seeds.
constexpr int kPatience = 45;

// Silent sites that the list of known ones names.
void excuse(std::vector<Site>& sites, const Mutated& mutated, std::vector<Known>& known) {
  for (Known& k : known) {
    int left = k.sites;
    for (Site& site : sites) {
      if (left == 0 || site.finding != "silent" || !k.fits(mutated, site)) continue;
      site.finding = k.verdict;
      site.reason = k.reason;
      k.used = true;
      --left;
    }
  }
}

// The arguments with which this program checks a shape of `files` as it has been checked.
std::vector<std::string> arguments_of(const std::vector<std::string>& files, size_t shape,
                                      const CheckOptions& options, const CommonFlags& flags) {
  const size_t number = options.only ? static_cast<size_t>(options.only) : shape + 1;
  std::vector<std::string> arguments = files;
  arguments.insert(arguments.begin(), "check");
  arguments.insert(arguments.end(), {"--quiet", "--no-reference", "--first", "--only", std::to_string(number),
                                     "--device", flags.device});
  if (options.randomised())
    arguments.insert(arguments.end(), {"--schedules", std::to_string(options.schedules), "--seed",
                                       std::to_string(options.first_seed)});
  if (options.strict) arguments.push_back("--strict");
  for (const std::string& policy : options.policies) arguments.insert(arguments.end(), {"--policy", policy});
  return arguments;
}

// Deletes from one kernel, under one of its shapes after the other until a site's loss is found; the silent
// sites that `known` names get its verdicts.  A row of the JSON report.
ordered_json mutate_kernel(const std::vector<std::string>& files, const std::vector<Shape>& shapes,
                           const Mutated& mutated, const CheckOptions& options,
                           const MutateOptions& mutations, const CommonFlags& flags,
                           std::vector<Known>& known, bool printed, Tally& total) {
  const std::string& kernel = mutated.kernel;
  const unsigned jobs = mutations.jobs ? static_cast<unsigned>(mutations.jobs)
                                       : std::max(1u, std::thread::hardware_concurrency());
  std::vector<Site> sites = sites_of(shapes[mutated.shapes[0]], kernel, options, flags);
  const size_t all = sites.size();
  take_sample(sites, mutations.sample, options.first_seed);
  const Folder folder;
  std::vector<std::string> names;
  std::vector<Ended> wholes;
  for (const size_t shape : mutated.shapes) {
    names.push_back(shapes[shape].source);
    const std::vector<std::string> arguments = arguments_of(files, shape, options, flags);
    wholes.push_back(run_to_end(Child(arguments, kernel + ":list", folder.file("whole"), 24 * 3600)));
    const Ended& whole = wholes.back();
    if (whole.row.is_null() || whole.row["verdict"] != "silent")
      throw Error(MXFA_ERROR_DEVICE, fmt::format("{}: the whole kernel does not run in a process of its own "
                                                 "(status {})",
                                                 names.back(), whole.status));
    run_mutants(sites, names.back(), arguments, kernel, whole, jobs, folder, flags);
  }
  excuse(sites, mutated, known);
  // Some orders are rare: those that are left get more of them.
  CheckOptions patient = options;
  patient.schedules *= kPatience;
  patient.policies = {"random", "pct:3", "pct:6", "split"};
  for (size_t i = 0; options.policies.empty() && i < names.size(); ++i)
    run_mutants(sites, names[i], arguments_of(files, mutated.shapes[i], patient, flags), kernel, wholes[i],
                jobs, folder, flags, 4 * kPatience);
  Tally tally;
  ordered_json list = ordered_json::array();
  for (Site& site : sites) {
    tally.count(site.finding);
    total.count(site.finding);
    list.push_back(json_of(site));
  }
  if (printed) {
    fmt::print("{}: {} has {} synchronisations, {} deleted one at a time\n", fmt::join(names, ", "), kernel,
               all, sites.size());
    print(sites);
    fmt::print("{} found, {} equivalent, {} known gaps, {} silent\n", tally.found, tally.equivalent,
               tally.gaps, tally.silent);
    for (const Site& site : sites)
      if (site.finding == "silent")
        fmt::print("  silent: {} at {}: {}\n", site.kind, site.place, fmt::join(site.lines, "  <  "));
  }
  return {{"shapes", names},
          {"kernel", kernel},
          {"synchronisations", all},
          {"found", tally.found},
          {"equivalent", tally.equivalent},
          {"known_gaps", tally.gaps},
          {"silent", tally.silent},
          {"sites", list}};
}

}  // namespace

int mutate(const std::vector<std::string>& files, const std::vector<Shape>& shapes,
           const std::vector<CheckedShape>& checked, const CheckOptions& options,
           const MutateOptions& mutations, const CommonFlags& flags) {
  std::vector<Known> known = load_known(mutations.known);
  const JsonReport report(flags.json);
  ordered_json rows = ordered_json::array(), kernels = ordered_json::array();
  for (const CheckedShape& shape : checked) rows.push_back(json_of(shape));
  Tally total;
  const std::vector<Mutated> mutated = kernels_of(shapes, options, mutations, flags);
  for (const Mutated& kernel : mutated)
    kernels.push_back(
        mutate_kernel(files, shapes, kernel, options, mutations, flags, known, !report.on_stdout(), total));
  // Of the deletions that matter, the share that was found.
  const int matter = total.found + total.gaps + total.silent;
  const double score = matter ? double(total.found) / matter : 1;
  if (!report.on_stdout()) fmt::print("score {:.3f}\n", score);
  if (mutations.sample == 0)
    for (const Known& k : known)
      if (!k.used &&
          std::any_of(mutated.begin(), mutated.end(), [&](const Mutated& m) { return k.is_about(m); }))
        message(fmt::format("{}: no silent deletion is {} at \"{}\"", mutations.known, k.kind, k.text));
  report.write({{"command", "check"}, {"rows", rows}, {"score", score}, {"mutations", kernels}});
  return total.silent ? kWrongResult : kPassed;
}

}  // namespace mxfa::tools
