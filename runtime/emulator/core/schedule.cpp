// Names of schedules.
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <utility>

#include "core/machine.hpp"

namespace mxfa::emulator {
namespace {

using Kind = Schedule::Kind;
constexpr std::array<std::pair<Kind, std::string_view>, 6> kNames = {{{Kind::Functional, "functional"},
                                                                      {Kind::Lazy, "lazy"},
                                                                      {Kind::Eager, "eager"},
                                                                      {Kind::Random, "random"},
                                                                      {Kind::Pct, "pct"},
                                                                      {Kind::Split, "split"}}};

constexpr uint32_t kMaxDepth = 64;

}  // namespace

const char* const kScheduleNames = "functional, lazy, eager, random, pct, pct:DEPTH, split";

std::optional<Schedule> parse_schedule(std::string_view text) {
  Schedule schedule;
  const size_t colon = text.find(':');
  for (const auto& [kind, name] : kNames) {
    if (text.substr(0, colon) != name) continue;
    schedule.kind = kind;
    if (colon == text.npos) return schedule;
    const std::string depth(text.substr(colon + 1));
    char* end = nullptr;
    const unsigned long value = std::strtoul(depth.c_str(), &end, 10);
    if (kind != Kind::Pct || depth.empty() || *end || value < 1 || value > kMaxDepth) return std::nullopt;
    schedule.depth = static_cast<uint32_t>(value);
    return schedule;
  }
  return std::nullopt;
}

std::string Schedule::name() const {
  if (kind == Kind::Pct) return fmt::format("pct:{}", depth);
  for (const auto& [known, text] : kNames)
    if (known == kind) return std::string(text);
  return {};
}

}  // namespace mxfa::emulator
