// The hazard checks of one launch: observers and what they find.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checks/findings.hpp"
#include "core/grid.hpp"
#include "core/observer.hpp"

namespace mxfa::emulator {

// On: what published, correct kernels satisfy.  Strict: also what only the text of the PTX ISA asks for.
enum class CheckMode { Off, On, Strict };
std::optional<CheckMode> check_mode(std::string_view word);  // "off", "on", "strict"

// A memset or copy that the host has asked for.
struct HostOperation {
  std::string function, stream;  // "cuMemsetD8", "the default stream"
  uint64_t begin = 0, bytes = 0;
  bool writes = true;
};
// Those that the device may not have done when the kernel runs.
struct UnorderedOperations {
  std::string stream;         // of the kernel
  bool non_blocking = false;  // that stream
  std::vector<HostOperation> list;
};

class Checks {
 public:
  Checks(CheckMode mode, const KernelInfo& kernel, UnorderedOperations operations = {});
  ~Checks();
  std::vector<Observer*> observers() const;
  const Findings& findings() const { return findings_; }
  std::string report() const { return findings_.report(kernel_); }

 private:
  std::string kernel_;
  const UnorderedOperations operations_;
  Findings findings_;
  std::vector<std::unique_ptr<Observer>> parts_;
};

}  // namespace mxfa::emulator
