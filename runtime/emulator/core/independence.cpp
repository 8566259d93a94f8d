#include "core/independence.hpp"

#include <cuda.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "ptx/ast.hpp"

namespace mxfa::emulator {
namespace {

using ptx::Function;
using ptx::Instruction;
using ptx::Operand;
using ptx::SpecialRegister;

bool reads_clock(const Operand& o) {
  if (o.kind == Operand::Kind::Special) {
    const auto id = static_cast<SpecialRegister>(o.index);
    return id >= SpecialRegister::Clock && id <= SpecialRegister::GlobaltimerHi;
  }
  return std::any_of(o.elements.begin(), o.elements.end(), reads_clock);
}

bool sees_other_clusters(const Function& f, const Instruction& i) {
  const auto any_of = [&](auto... words) {
    for (uint32_t k = 0; k < i.modifiers; ++k)
      if (((f.modifier(i, k) == words) || ...)) return true;
    return false;
  };
  const bool shared = any_of("shared", "shared::cta", "shared::cluster");
  if (i.opcode == "atom" || i.opcode == "red") return !shared;
  if (i.opcode == "ld" || i.opcode == "st")
    return !shared && any_of("volatile", "relaxed", "acquire", "release", "mmio", "cv");
  if (i.opcode == "fence" || i.opcode == "membar")
    return any_of("gpu", "sys", "gl") && !any_of("tensormap::generic");
  if (i.opcode == "cp") return any_of("reduce") && any_of("global");
  if (i.opcode == "clusterlaunchcontrol" || i.opcode == "call" || i.opcode == "nanosleep") return true;
  return std::any_of(i.operands.begin(), i.operands.end(), reads_clock);
}

}  // namespace

bool clusters_are_independent(const Kernel& kernel) {
  for (const Function& f : kernel.program->module->functions) {
    if (f.name != kernel.info.name) continue;
    return std::none_of(f.instructions.begin(), f.instructions.end(),
                        [&](const Instruction& i) { return sees_other_clusters(f, i); });
  }
  return false;
}

unsigned threads_for_clusters() {
  const char* text = std::getenv("MXFA_EMU_THREADS");
  if (!text || !*text) return std::max(1u, std::thread::hardware_concurrency());
  char* end = nullptr;
  const long n = std::strtol(text, &end, 10);
  if (*end || n < 1 || n > 1024)
    throw Fault(CUDA_ERROR_INVALID_VALUE, fmt::format("MXFA_EMU_THREADS={}: a number from 1 to 1024", text));
  return static_cast<unsigned>(n);
}

}  // namespace mxfa::emulator
