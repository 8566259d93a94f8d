// The opcode table in memory, and matching an instruction against it.
#include "ptx/form.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>
#include <unordered_map>

#include "ptx/lower_families.hpp"

namespace mxfa::emulator::ptx {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    if (end > 0) parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

// "name=a|b|c?" or "word?"
Slot parse_slot(std::string_view text) {
  Slot slot;
  if (text.back() == '?') slot.optional = true, text.remove_suffix(1);
  const size_t equals = text.find('=');
  slot.name = text.substr(0, equals);
  slot.spellings = equals == std::string_view::npos ? std::vector{text} : split(text.substr(equals + 1), '|');
  return slot;
}

// '#' in a spelling matches a run of digits.
bool spelled(std::string_view spelling, std::string_view word) {
  size_t w = 0;
  for (const char c : spelling) {
    if (c == '#') {
      const size_t begin = w;
      while (w < word.size() && word[w] >= '0' && word[w] <= '9') ++w;
      if (w == begin) return false;
    } else if (w >= word.size() || word[w++] != c) {
      return false;
    }
  }
  return w == word.size();
}

// Attributes of a row.
struct Attribute {
  Status status = Status::Exact;
  Availability available = Availability::Any;
  std::string_view note = {};
};
constexpr Attribute approximate(std::string_view bound) {
  return {.status = Status::Approximate, .note = bound};
}
constexpr Attribute no_effect(std::string_view why) { return {.status = Status::NoEffect, .note = why}; }
constexpr Attribute on(Availability a) { return {.available = a}; }
constexpr auto kSm90a = Availability::Sm90a, kSm100 = Availability::Sm100, kSm103 = Availability::Sm103;

struct Table {
  std::vector<Form> forms;
  std::unordered_map<std::string_view, std::vector<const Form*>> by_opcode;
};

std::vector<Form> read_forms() {
  std::vector<Form> forms;
  std::string_view section;
  size_t row = 0;
  const auto add = [&](std::string_view opcodes, std::string_view modifiers, std::string_view operands,
                       Lower lower, std::initializer_list<Attribute> attributes) {
    ++row;
    for (const std::string_view opcode : split(opcodes, ' ')) {
      Form f{.opcode = opcode,
             .slots = {},
             .operands = operands,
             .lower = lower,
             .section = section,
             .note = {},
             .row = row,
             .modifiers = modifiers};
      for (const Attribute& a : attributes) {
        if (a.status != Status::Exact) f.status = a.status, f.note = a.note;
        if (a.available != Availability::Any) f.available = a.available;
      }
      f.any_modifiers = modifiers == "...";
      if (!f.any_modifiers)
        for (const std::string_view slot : split(modifiers, ' ')) f.slots.push_back(parse_slot(slot));
      if (f.slots.size() > kMaxSlots) throw std::logic_error("opcodes.def: too many slots");
      forms.push_back(std::move(f));
    }
  };
#define FORM(opcodes, modifiers, operands, lower, ...) \
  add(opcodes, modifiers, operands, lower, {__VA_ARGS__});
#define REFUSED(opcodes, modifiers, operands, why, ...) \
  add(opcodes, modifiers, operands, lower_refused,      \
      {Attribute{.status = Status::Refused, .note = why} __VA_OPT__(, ) __VA_ARGS__});
#define SECTION(number) section = number;
#include "ptx/opcodes.def"
#undef FORM
#undef REFUSED
#undef SECTION
  return forms;
}

const Table& table() {
  static const Table t = [] {
    Table t;
    t.forms = read_forms();
    for (const Form& f : t.forms) t.by_opcode[f.opcode].push_back(&f);
    return t;
  }();
  return t;
}

// Modifiers take the first free slot that knows them, so their order is free except among slots that share
// spellings (the type lists), as ptxas has it.  Returns the number of modifiers taken; all of them and no
// required slot empty = a match.
struct Attempt {
  Match match;
  uint32_t taken = 0;
  int missing = -1;
  bool ok = false;
};

Attempt attempt(const Form& form, const Function& f, const Instruction& i) {
  Attempt a;
  a.match.form = &form;
  if (form.any_modifiers) {
    a.taken = i.modifiers;
    a.ok = true;
    return a;
  }
  for (; a.taken < i.modifiers; ++a.taken) {
    const std::string_view word = f.modifier(i, a.taken);
    bool placed = false;
    for (size_t s = 0; s < form.slots.size() && !placed; ++s) {
      if (!a.match.values[s].empty()) continue;
      const auto& spellings = form.slots[s].spellings;
      if (std::none_of(spellings.begin(), spellings.end(),
                       [&](std::string_view s) { return spelled(s, word); }))
        continue;
      a.match.values[s] = word;
      placed = true;
    }
    if (!placed) return a;
  }
  for (size_t s = 0; s < form.slots.size(); ++s)
    if (a.match.values[s].empty() && !form.slots[s].optional) {
      a.missing = static_cast<int>(s);
      return a;
    }
  a.ok = true;
  return a;
}

std::string describe(const Slot& slot) { return fmt::format(".{}", fmt::join(slot.spellings, " .")); }

// Smallest and largest operand count of a pattern; spaces separate operands, '?' marks optional ones.
std::pair<size_t, size_t> arity(std::string_view pattern) {
  size_t least = 0, most = 0;
  for (const std::string_view o : split(pattern, ' ')) {
    if (o == "*") return {least, SIZE_MAX};
    ++most;
    if (o.back() != '?') ++least;
  }
  return {least, most};
}

}  // namespace

const std::vector<Form>& all_forms() { return table().forms; }

bool Form::exists_on(const DeviceModel& device) const {
  switch (available) {
    case Availability::Sm90a:
      return device.major == 9;
    case Availability::Sm100:
      return device.major >= 10;
    case Availability::Sm103:
      return device.major > 10 || (device.major == 10 && device.minor >= 3);
    default:
      return true;
  }
}

const char* availability_name(Availability a) {
  static constexpr const char* kNames[] = {"all", "sm_90a only", "sm_100 and newer", "sm_103 and newer"};
  return kNames[static_cast<int>(a)];
}

std::string_view Match::get(std::string_view slot) const {
  for (size_t s = 0; s < form->slots.size(); ++s)
    if (form->slots[s].name == slot && !values[s].empty()) return values[s];
  return {};
}

Type Match::type(std::string_view slot) const {
  const TypeInfo* t = find_type(get(slot));
  return t ? t->type : Type::None;
}

Match match_form(const Source& source, const Function& f, const Instruction& i) {
  const auto it = table().by_opcode.find(i.opcode);
  if (it == table().by_opcode.end())
    source.fail(i.position, fmt::format("unknown instruction '{}'", i.opcode));
  Attempt best;
  bool any = false;
  for (const Form* form : it->second) {
    Attempt a = attempt(*form, f, i);
    if (a.ok) {
      const auto [least, most] = arity(form->operands);
      if (i.operands.size() >= least && i.operands.size() <= most) return a.match;
    }
    if (!any || a.taken > best.taken || (a.taken == best.taken && a.ok && !best.ok))
      best = std::move(a), any = true;
  }
  const Form& form = *best.match.form;
  if (best.ok) {
    const auto [least, most] = arity(form.operands);
    source.fail(i.position,
                fmt::format("'{}' has {} operands, {} takes {}", i.opcode, i.operands.size(), i.opcode,
                            least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most)));
  }
  if (best.taken < i.modifiers) {
    std::vector<std::string> accepted;
    for (size_t s = 0; s < form.slots.size(); ++s)
      if (best.match.values[s].empty()) accepted.push_back(describe(form.slots[s]));
    source.fail(i.position,
                fmt::format("'{}' does not accept the modifier '.{}' here; still accepted: {}", i.opcode,
                            f.modifier(i, best.taken),
                            accepted.empty() ? "nothing" : fmt::format("{}", fmt::join(accepted, " | "))));
  }
  source.fail(i.position, fmt::format("'{}' needs one of {}", i.opcode, describe(form.slots[best.missing])));
}

}  // namespace mxfa::emulator::ptx
