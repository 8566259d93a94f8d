// The hazard checks of one launch: observers and what they find.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "checks/findings.hpp"
#include "core/grid.hpp"
#include "core/observer.hpp"

namespace mxfa::emulator {

// On: what published, correct kernels satisfy.  Strict: also what only the text of the PTX ISA asks for.
enum class CheckMode { Off, On, Strict };
std::optional<CheckMode> check_mode(std::string_view word);  // "off", "on", "strict"

class Checks {
 public:
  Checks(CheckMode mode, const KernelInfo& kernel);
  ~Checks();
  std::vector<Observer*> observers() const;
  const Findings& findings() const { return findings_; }
  std::string report() const { return findings_.report(kernel_); }

 private:
  std::string kernel_;
  Findings findings_;
  std::vector<std::unique_ptr<Observer>> parts_;
};

}  // namespace mxfa::emulator
