// `mxfa check`: shapes on the CPU driver under many schedules with its hazard checks on, and the same with
// one synchronisation deleted at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "run.hpp"

namespace mxfa::tools {

struct CheckOptions {
  int schedules = 6;                  // randomised ones
  uint64_t first_seed = 1;            // their seeds count up from here
  std::vector<std::string> policies;  // none: functional, lazy, eager, then random, pct and split in turn
  bool strict = false;                // hazard checks by the letter of the PTX ISA
  bool check = false;                 // compare with the references even where they take long
  bool judge = true;                  // compare with the references at all
  bool first = false;                 // a shape is done at its first finding
  int only = 0;                       // the only shape to be looked at, counted from 1; 0: all

  bool randomised() const;  // whether `schedules` and `first_seed` mean anything
};

// One schedule, as the CPU driver's environment variables have it.
struct TrialSchedule {
  std::string name;
  std::optional<uint64_t> seed;
  std::string text() const;  // "lazy", "pct:3 seed 5"
};
std::vector<TrialSchedule> trial_schedules(const CheckOptions& options);

// What one schedule found.  silent: nothing.
enum class Finding { silent, hazard, deadlock, fault, differs, wrong };
const char* name_of(Finding finding);
// From the text of a failed launch.
Finding finding_of(const std::string& report);

struct Trial {
  TrialSchedule schedule;
  Finding finding = Finding::silent;
  std::string report;  // of a finding
  std::string bits;    // hash of all outputs, empty where there are none
  double warp_instructions = 0;
};

struct CheckedShape {
  std::string shape, dtype, device, kernel, arch, note;
  bool judged = false;  // compared with the references
  std::vector<Trial> trials;

  const Trial* first_finding() const;
  const char* verdict() const;
};

// A session that is opened when it is needed, and anew after a fault has spoiled the device's context.
class Reopened {
 public:
  explicit Reopened(const CommonFlags& flags) : flags_(flags) {}
  const Session& get() {
    if (!session_) session_ = std::make_unique<Session>(flags_);
    return *session_;
  }
  void close() { session_.reset(); }

 private:
  const CommonFlags& flags_;
  std::unique_ptr<Session> session_;
};

CheckedShape check_shape(Reopened& session, const Shape& shape, const CheckOptions& options,
                         const CommonFlags& flags);
nlohmann::ordered_json json_of(const CheckedShape& shape);

struct MutateOptions {
  bool wanted = false;
  int sample = 0;            // sites a kernel; 0: all
  std::string known;         // file of deletions that change nothing, each with its reason
  bool all_kernels = false;  // that a shape launches, not that of its operation alone
  int jobs = 0;              // processes at a time; 0: one a core
};
// The shapes have been checked and are silent: deletes synchronisations of their kernels.  An exit code.
int mutate(const std::vector<std::string>& files, const std::vector<Shape>& shapes,
           const std::vector<CheckedShape>& checked, const CheckOptions& options,
           const MutateOptions& mutations, const CommonFlags& flags);

// Sets an environment variable for a scope.
class ScopedVariable {
 public:
  ScopedVariable(std::string name, const std::string& value);
  ~ScopedVariable();
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  std::string name_;
  std::optional<std::string> before_;
};

}  // namespace mxfa::tools
