// One shape under many schedules: what each found, and whether all wrote the same bits.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "byte_difference.hpp"
#include "check.hpp"

namespace mxfa::tools {

namespace {

using nlohmann::ordered_json;

constexpr const char* kFixed[] = {"functional", "lazy", "eager"};
constexpr const char* kRandomised[] = {"random", "pct:2", "split", "pct:3"};

bool is_fixed(const std::string& policy) {
  for (const char* name : kFixed)
    if (policy == name) return true;
  return false;
}

// FNV-1a.
std::string hash_of(const std::vector<Output>& outputs) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const Output& output : outputs)
    for (const uint8_t byte : output.bytes) hash = (hash ^ byte) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
}

// "" or where the outputs differ.
std::string difference(const std::vector<Output>& got, const std::vector<Output>& want,
                       const std::string& schedule) {
  for (size_t i = 0; i < want.size(); ++i)
    if (std::string text =
            byte_difference(got[i].bytes, want[i].bytes, got[i].name, "those under schedule " + schedule);
        !text.empty())
      return text;
  return {};
}

struct Ran {
  std::vector<Output> outputs;
  std::vector<std::string> failures;
};

}  // namespace

std::string TrialSchedule::text() const { return seed ? fmt::format("{} seed {}", name, *seed) : name; }

bool CheckOptions::randomised() const {
  return policies.empty() || !std::all_of(policies.begin(), policies.end(), is_fixed);
}

std::vector<TrialSchedule> trial_schedules(const CheckOptions& options) {
  std::vector<TrialSchedule> schedules;
  std::vector<std::string> randomised;
  if (options.policies.empty()) {
    for (const char* name : kFixed) schedules.push_back({name, {}});
    randomised.assign(std::begin(kRandomised), std::end(kRandomised));
  }
  for (const std::string& policy : options.policies) {
    if (is_fixed(policy))
      schedules.push_back({policy, {}});
    else
      randomised.push_back(policy);
  }
  for (int k = 0; k < options.schedules && !randomised.empty(); ++k)
    schedules.push_back({randomised[static_cast<size_t>(k) % randomised.size()],
                         options.first_seed + static_cast<uint64_t>(k)});
  return schedules;
}

const char* name_of(Finding finding) {
  switch (finding) {
    case Finding::silent:
      return "silent";
    case Finding::hazard:
      return "hazard";
    case Finding::deadlock:
      return "deadlock";
    case Finding::fault:
      return "fault";
    case Finding::differs:
      return "bits differ";
    case Finding::wrong:
      return "wrong";
  }
  return "";
}

Finding finding_of(const std::string& report) {
  if (report.find("CUDA_ERROR_LAUNCH_TIMEOUT") != report.npos) return Finding::deadlock;
  return report.find("hazard") != report.npos ? Finding::hazard : Finding::fault;
}

const Trial* CheckedShape::first_finding() const {
  for (const Trial& trial : trials)
    if (trial.finding != Finding::silent) return &trial;
  return nullptr;
}

const char* CheckedShape::verdict() const {
  const Trial* found = first_finding();
  return found ? name_of(found->finding) : "silent";
}

CheckedShape check_shape(Reopened& session, const Shape& shape, const CheckOptions& options,
                         const CommonFlags& flags) {
  CheckedShape result;
  result.shape = shape.source;
  result.dtype = name_of(shape.dtype);
  result.device = session.get().device_name();
  const ScopedVariable checks("MXFA_EMU_CHECK", options.strict ? "strict" : "on");
  std::vector<PlannedKernel> plan = plan_shape(session.get(), shape, options.check);
  result.kernel = plan.empty() ? "" : plan[0].description.value("kernel", "");
  result.arch = plan.empty() ? "" : plan[0].description.value("arch", "");
  std::vector<Output> reference;  // of the first schedule that ended well
  std::string reference_schedule;
  for (const TrialSchedule& schedule : trial_schedules(options)) {
    const ScopedVariable name("MXFA_EMU_SCHEDULE", schedule.name),
        seed("MXFA_EMU_SEED", schedule.seed ? std::to_string(*schedule.seed) : "");
    Trial trial{schedule, Finding::silent, {}, {}, 0};
    const auto found = [&](Finding finding, std::string report) {
      if (trial.finding != Finding::silent) return;
      trial.finding = finding;
      trial.report = std::move(report);
      message(fmt::format("{}: {} under schedule {}: {}", shape.source, name_of(finding), schedule.text(),
                          trial.report.substr(0, trial.report.find('\n'))));
    };
    try {
      RunOptions run;
      run.check = options.check;
      run.judge = options.judge && !result.judged;
      run.keep_outputs = true;
      std::vector<Output> outputs;
      for (RunRow& row : run_shape(session.get(), shape, plan, run)) {
        if (row.counters.is_object()) trial.warp_instructions += row.counters.value("warp_instructions", 0.0);
        if (!row.note.empty()) result.note = row.note;
        if (run.judge) result.judged = row.checked;
        for (const std::string& failure : row.failures) found(Finding::wrong, failure);
        std::move(row.outputs.begin(), row.outputs.end(), std::back_inserter(outputs));
      }
      trial.bits = hash_of(outputs);
      if (reference.empty()) {
        reference = std::move(outputs);
        reference_schedule = schedule.text();
      } else if (const std::string text = difference(outputs, reference, reference_schedule); !text.empty()) {
        found(Finding::differs, text);
      }
    } catch (const Error& error) {
      if (error.status() == MXFA_ERROR_INVALID) throw;
      found(finding_of(error.what()), error.what());
      session.close();  // a fault sticks to the context
      plan = plan_shape(session.get(), shape, options.check);
    }
    if (flags.verbose)
      message(fmt::format("{}: {}: {}", shape.source, schedule.text(), name_of(trial.finding)));
    result.trials.push_back(std::move(trial));
    if (options.first && result.first_finding()) break;
  }
  return result;
}

ordered_json json_of(const CheckedShape& shape) {
  ordered_json trials = ordered_json::array();
  for (const Trial& trial : shape.trials) {
    ordered_json out = {{"schedule", trial.schedule.name},
                        {"finding", name_of(trial.finding)},
                        {"bits", trial.bits},
                        {"warp_instructions", trial.warp_instructions}};
    if (trial.schedule.seed) out["seed"] = *trial.schedule.seed;
    if (!trial.report.empty()) out["report"] = trial.report;
    trials.push_back(std::move(out));
  }
  return {{"shape", shape.shape},   {"dtype", shape.dtype},       {"device", shape.device},
          {"kernel", shape.kernel}, {"arch", shape.arch},         {"compared_with_reference", shape.judged},
          {"note", shape.note},     {"verdict", shape.verdict()}, {"schedules", trials}};
}

ScopedVariable::ScopedVariable(std::string name, const std::string& value) : name_(std::move(name)) {
  if (const char* before = std::getenv(name_.c_str())) before_ = before;
  setenv(name_.c_str(), value.c_str(), 1);
}

ScopedVariable::~ScopedVariable() {
  if (before_)
    setenv(name_.c_str(), before_->c_str(), 1);
  else
    unsetenv(name_.c_str());
}

}  // namespace mxfa::tools
