#include "ptx/sync_sites.hpp"

#include <algorithm>

namespace mxfa::emulator::ptx {
namespace {

// Opcode and modifiers up to the first one that only says where or how much.
std::string spelled(const Function& f, const Instruction& i, size_t count) {
  std::string text(i.opcode);
  for (uint32_t k = 0; k < std::min<size_t>(count, i.modifiers); ++k)
    text.append(".").append(f.modifier(i, k));
  return text;
}

bool has(const Function& f, const Instruction& i, std::string_view modifier) {
  for (uint32_t k = 0; k < i.modifiers; ++k)
    if (f.modifier(i, k) == modifier) return true;
  return false;
}

// "" if the instruction does not synchronise.
std::string kind_of(const Function& f, const Instruction& i) {
  const auto first = [&](uint32_t k) { return k < i.modifiers ? f.modifier(i, k) : std::string_view(); };
  const auto begins = [&](uint32_t k, std::string_view text) { return first(k).starts_with(text); };
  if (i.opcode == "mbarrier") {
    if (first(0) == "arrive" || first(0) == "arrive_drop")
      return "mbarrier." + std::string(first(0)) + (has(f, i, "expect_tx") ? ".expect_tx" : "");
    if (first(0) == "expect_tx" || first(0) == "test_wait" || first(0) == "try_wait") return spelled(f, i, 1);
  } else if (i.opcode == "fence" || i.opcode == "membar") {
    return spelled(f, i, first(0) == "proxy" ? 2 : 1);
  } else if (i.opcode == "bar" || i.opcode == "barrier") {
    if (first(0) == "warp" || first(0) == "cluster") return spelled(f, i, 2);
    const uint32_t op = first(0) == "cta" ? 1 : 0;
    if (first(op) == "sync" || first(op) == "arrive") return spelled(f, i, op + 1);
  } else if (i.opcode == "tcgen05") {
    if (begins(0, "fence::") || begins(0, "wait::") || first(0) == "commit") return spelled(f, i, 1);
  } else if (i.opcode == "wgmma") {
    if (first(0) == "fence" || first(0) == "commit_group" || first(0) == "wait_group")
      return spelled(f, i, 1);
  } else if (i.opcode == "cp" && first(0) == "async") {
    const uint32_t at = first(1) == "bulk" ? 2 : 1;
    if (first(at) == "commit_group" || first(at) == "wait_group" || first(at) == "wait_all")
      return spelled(f, i, at + 1 + (first(at + 1) == "read"));
    if (begins(1, "mbarrier")) return "cp.async.mbarrier.arrive";
  }
  return {};
}

Operand integer(int64_t value, uint32_t position) {
  Operand o;
  o.kind = Operand::Kind::Integer;
  o.position = position;
  o.value = value;
  return o;
}

// Guard, place in the text and in the source stay.
void become(Function& f, Instruction& i, std::string_view opcode,
            std::initializer_list<std::string_view> modifiers, std::vector<Operand> operands) {
  i.opcode = opcode;
  i.first_modifier = static_cast<uint32_t>(f.modifiers.size());
  i.modifiers = static_cast<uint32_t>(modifiers.size());
  f.modifiers.insert(f.modifiers.end(), modifiers);
  i.operands = std::move(operands);
}

}  // namespace

std::vector<SyncSite> sync_sites(const Module& module) {
  std::vector<SyncSite> sites;
  for (size_t f = 0; f < module.functions.size(); ++f) {
    const Function& function = module.functions[f];
    for (size_t k = 0; k < function.instructions.size(); ++k) {
      std::string kind = kind_of(function, function.instructions[k]);
      if (kind.empty()) continue;
      const bool bytes = kind.ends_with("arrive.expect_tx");
      sites.push_back({static_cast<int32_t>(f), static_cast<int32_t>(k), std::move(kind), false});
      if (bytes)
        sites.push_back(
            {static_cast<int32_t>(f), static_cast<int32_t>(k), "bytes of arrive.expect_tx", true});
    }
  }
  return sites;
}

void delete_site(Module& module, const SyncSite& site) {
  Function& f = module.functions[static_cast<size_t>(site.function)];
  Instruction& i = f.instructions[static_cast<size_t>(site.instruction)];
  const bool has_result =
      i.opcode == "mbarrier" && !i.operands.empty() && i.operands[0].kind == Operand::Kind::Register;
  if (site.bytes_only) {
    std::vector<std::string_view> kept;
    for (uint32_t k = 0; k < i.modifiers; ++k)
      if (f.modifier(i, k) != "expect_tx") kept.push_back(f.modifier(i, k));
    i.first_modifier = static_cast<uint32_t>(f.modifiers.size());
    i.modifiers = static_cast<uint32_t>(kept.size());
    f.modifiers.insert(f.modifiers.end(), kept.begin(), kept.end());
    i.operands.pop_back();
  } else if (has_result && site.kind.ends_with("_wait")) {
    become(f, i, "setp", {"eq", "u32"}, {i.operands[0], integer(0, i.position), integer(0, i.position)});
  } else if (has_result) {  // the state that an arrive returns: none
    become(f, i, "mov", {"b64"}, {i.operands[0], integer(0, i.position)});
  } else {
    become(f, i, "brkpt", {}, {});  // executes as nothing here
  }
}

}  // namespace mxfa::emulator::ptx
