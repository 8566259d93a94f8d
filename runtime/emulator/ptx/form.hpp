// Instruction forms: which modifiers and operands an opcode accepts, and who lowers it.  The table itself is
// opcodes.def.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "core/machine.hpp"
#include "ptx/ast.hpp"

namespace mxfa::emulator::ptx {

class Lowering;
struct Match;
using Lower = void (*)(Lowering&, const Match&);

// A modifier slot: one of some spellings, under a name.
struct Slot {
  std::string_view name;
  bool optional = false;
  std::vector<std::string_view> spellings;
};

// What becomes of a form when a kernel executes it.
enum class Status : uint8_t { Exact, Approximate, NoEffect, Refused };
// Devices that have it.
enum class Availability : uint8_t { Any, Sm90a, Sm100, Sm103 };

struct Form {
  std::string_view opcode;
  std::vector<Slot> slots;
  std::string_view operands;  // pattern, see opcodes.def
  Lower lower = nullptr;
  std::string_view section;  // of the PTX ISA
  Status status = Status::Exact;
  Availability available = Availability::Any;
  std::string_view note;       // bound of an approximation, or why it is refused or has no effect
  size_t row = 0;              // of opcodes.def
  std::string_view modifiers;  // the text of the row
  bool any_modifiers = false;
  bool exists_on(const DeviceModel& device) const;
};
const std::vector<Form>& all_forms();           // in the order of opcodes.def
const char* availability_name(Availability a);  // "sm_100 and newer"

inline constexpr int kMaxSlots = 18;
struct Match {
  const Form* form = nullptr;
  std::array<std::string_view, kMaxSlots> values{};   // per slot, empty if absent
  std::string_view get(std::string_view slot) const;  // "" if absent or unknown
  bool has(std::string_view slot) const { return !get(slot).empty(); }
  Type type(std::string_view slot = "t") const;  // Type::None if absent
};

// The form of an instruction.  Throws PtxError naming the opcode, the modifier and what is accepted.
Match match_form(const Source& source, const Function& function, const Instruction& instruction);

}  // namespace mxfa::emulator::ptx
