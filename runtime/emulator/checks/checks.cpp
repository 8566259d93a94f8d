// Which checks a launch gets.
#include "checks/checks.hpp"

#include "checks/barriers.hpp"
#include "checks/host_order.hpp"
#include "checks/initialised.hpp"
#include "checks/races.hpp"
#include "checks/registers.hpp"
#include "checks/resources.hpp"

namespace mxfa::emulator {

std::optional<CheckMode> check_mode(std::string_view word) {
  if (word == "off") return CheckMode::Off;
  if (word == "on") return CheckMode::On;
  if (word == "strict") return CheckMode::Strict;
  return std::nullopt;
}

Checks::Checks(CheckMode mode, const KernelInfo& kernel, UnorderedOperations operations)
    : kernel_(kernel.name), operations_(std::move(operations)) {
  parts_.push_back(std::make_unique<Races>(mode, findings_));
  parts_.push_back(std::make_unique<Barriers>(findings_));
  parts_.push_back(std::make_unique<Initialised>(mode, findings_));
  parts_.push_back(std::make_unique<Resources>(mode, findings_));
  parts_.push_back(std::make_unique<Registers>(mode, findings_));
  if (!operations_.list.empty()) parts_.push_back(std::make_unique<HostOrder>(operations_, findings_));
}
Checks::~Checks() = default;

std::vector<Observer*> Checks::observers() const {
  std::vector<Observer*> list;
  for (const auto& part : parts_) list.push_back(part.get());
  return list;
}

}  // namespace mxfa::emulator
