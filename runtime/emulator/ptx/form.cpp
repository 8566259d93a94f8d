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

using Table = std::unordered_map<std::string_view, std::vector<Form>>;

const Table& table() {
  static const Table forms = [] {
    Table t;
    const auto add = [&t](std::string_view opcodes, std::string_view modifiers, std::string_view operands,
                          Lower lower) {
      for (const std::string_view opcode : split(opcodes, ' ')) {
        Form f{opcode, {}, operands, lower, modifiers};
        for (const std::string_view slot : split(modifiers, ' ')) f.slots.push_back(parse_slot(slot));
        if (f.slots.size() > kMaxSlots) throw std::logic_error("opcodes.def: too many slots");
        t[opcode].push_back(std::move(f));
      }
    };
#define FORM(opcodes, modifiers, operands, lower) add(opcodes, modifiers, operands, lower);
#include "ptx/opcodes.def"
#undef FORM
    return t;
  }();
  return forms;
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
  const auto it = table().find(i.opcode);
  if (it == table().end()) source.fail(i.position, fmt::format("unknown instruction '{}'", i.opcode));
  Attempt best;
  bool any = false;
  for (const Form& form : it->second) {
    Attempt a = attempt(form, f, i);
    if (a.ok) {
      const auto [least, most] = arity(form.operands);
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
