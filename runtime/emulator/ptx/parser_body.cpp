// Function bodies: scopes, labels, declarations, instructions and operands.
#include <fmt/format.h>

#include <algorithm>

#include "ptx/parser_state.hpp"

namespace mxfa::emulator::ptx {
namespace {

constexpr uint32_t kMaxRegisters = 1u << 20;  // per declaration: "%r<4000000000>" must not exhaust memory

}

void Parser::parse_body(Function& f) {
  const size_t outer = scopes_.size();
  for (;;) {
    if (accept('}')) {
      if (scopes_.size() == outer) break;
      close_scope();
      continue;
    }
    if (accept(';')) continue;
    if (accept('{')) {
      if (scopes_.size() > 1000) fail("nested too deeply");
      scopes_.emplace_back();
      continue;
    }
    if (is(Token::Kind::End)) fail(fmt::format("the body of '{}' has no closing brace", f.name));
    if (is(Token::Kind::Identifier) && ahead(1).kind == Token::Kind::Punctuation &&
        ahead(1).punctuation == ':') {
      const std::string_view label = text();
      const uint32_t position = here().offset;
      advance();
      advance();
      if (directive() == "branchtargets" || directive() == "calltargets")
        parse_branch_targets(label);
      else if (directive() == "callprototype")
        parse_prototype(label);
      else
        define_label(label, position);
      continue;
    }
    if (is(Token::Kind::DotWord)) {
      if (accept_directive("reg"))
        parse_registers();
      else if (accept_directive("loc"))
        parse_location();
      else if (accept_directive("local"))
        parse_variables(Space::Local, false, true);
      else if (accept_directive("shared"))
        parse_variables(Space::Shared, false, true);
      else if (accept_directive("param"))
        parse_variables(Space::Param, false, true);
      else if (accept_directive("global"))
        parse_variables(Space::Global, false, true);
      else if (accept_directive("const"))
        parse_variables(Space::Const, false, true);
      else if (accept_directive("extern")) {
        if (accept_directive("shared"))
          parse_variables(Space::Shared, true, true);
        else
          fail("only .shared variables can be .extern inside a function");
      } else if (accept_directive("pragma")) {
        do expect_string("a pragma");
        while (accept(','));
        expect(';', "after .pragma");
      } else {
        fail(fmt::format("unknown directive {}", shown()));
      }
      continue;
    }
    if (accept('@')) {
      parse_instruction(true);
      continue;
    }
    if (!is(Token::Kind::Identifier)) fail(fmt::format("expected an instruction, found {}", shown()));
    parse_instruction(false);
  }
  close_scope();
}

void Parser::parse_registers() {
  const TypeInfo* type = nullptr;
  while (is(Token::Kind::DotWord)) {
    const TypeInfo* t = find_type(directive());
    if (!t) fail(fmt::format("unknown register type {}", shown()));
    type = t;
    advance();
  }
  if (!type) fail("a register needs a type");
  do {
    const std::string_view word = expect_name("a register name");
    const auto first = static_cast<int32_t>(function_->registers.size());
    if (accept('<')) {
      const uint32_t count = parse_unsigned();
      if (count > kMaxRegisters) fail(fmt::format("{} registers in one declaration", count));
      expect('>', "after the register count");
      scopes_.back().ranges.push_back({word, first, count});
      function_->registers.resize(first + count, {word, type->type});
    } else {
      scopes_.back().registers.emplace_back(word, first);
      function_->registers.push_back({word, type->type});
    }
    if (function_->registers.size() > 8 * kMaxRegisters) fail("too many registers");
  } while (accept(','));
  expect(';', "after .reg");
}

int32_t Parser::find_register(std::string_view word) const {
  // "%r57" of ".reg .b32 %r<100>"
  size_t digits = word.size();
  uint64_t number = 0, scale = 1;
  while (digits > 0 && word[digits - 1] >= '0' && word[digits - 1] <= '9' && word.size() - digits < 8) {
    number += scale * (word[--digits] - '0');
    scale *= 10;
  }
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    for (auto r = scope->registers.rbegin(); r != scope->registers.rend(); ++r)
      if (r->first == word) return r->second;
    for (const Range& range : scope->ranges) {
      if (word.size() <= range.prefix.size() || word.substr(0, range.prefix.size()) != range.prefix) continue;
      // A prefix may itself end in digits ("%r1<4>" declares %r10..%r13).
      uint64_t n = number;
      if (range.prefix.size() > digits) {
        n = 0;
        for (const char c : word.substr(range.prefix.size())) n = n * 10 + (c - '0');
      } else if (range.prefix.size() < digits) {
        continue;
      }
      const std::string_view suffix = word.substr(range.prefix.size());
      if (suffix.size() > 1 && suffix[0] == '0') continue;
      if (n < range.count) return range.first + static_cast<int32_t>(n);
    }
  }
  return -1;
}

// .loc file line column {, function_name label{+offset}, inlined_at file line column}
void Parser::parse_location() {
  Location l;
  l.file = parse_unsigned();
  l.line = parse_unsigned();
  parse_unsigned();
  while (accept(',')) {
    const std::string_view word = expect_name("function_name or inlined_at");
    if (word == "function_name") {
      l.function_label = expect_name("a debug label");
      if (accept('+')) parse_constant();
    } else if (word == "inlined_at") {
      l.inlined_file = parse_unsigned();
      l.inlined_line = parse_unsigned();
      parse_unsigned();
    } else {
      fail(fmt::format("unknown .loc attribute '{}'", word));
    }
  }
  function_->locations.push_back(l);
}

void Parser::define_label(std::string_view label, uint32_t position) {
  Scope& scope = scopes_.back();
  const auto number = static_cast<int32_t>(function_->label_targets.size());
  if (!scope.labels.emplace(label, number).second)
    source_.fail(position, fmt::format("label '{}' is defined twice", label));
  function_->label_targets.push_back(static_cast<int32_t>(function_->instructions.size()));
  function_->label_names.push_back(label);
}

// A label may be used before it is defined: references are numbered now and bound when their scope closes.
int32_t Parser::refer_label(std::string_view label, uint32_t position) {
  const auto number = static_cast<int32_t>(function_->label_targets.size());
  function_->label_targets.push_back(-1);
  function_->label_names.push_back(label);
  scopes_.back().pending.push_back({label, number, position});
  return number;
}

void Parser::close_scope() {
  Scope scope = std::move(scopes_.back());
  scopes_.pop_back();
  for (const PendingLabel& p : scope.pending) {
    const auto it = scope.labels.find(p.name);
    if (it != scope.labels.end())
      function_->label_targets[p.number] = function_->label_targets[it->second];
    else if (!scopes_.empty())
      scopes_.back().pending.push_back(p);
    else
      source_.fail(p.position,
                   fmt::format("'{}' is not declared: no register, variable, function or label has this name",
                               p.name));
  }
}

void Parser::parse_branch_targets(std::string_view label) {
  advance();
  std::vector<int32_t> targets;
  do {
    const uint32_t position = here().offset;
    targets.push_back(refer_label(expect_name("a label"), position));
  } while (accept(','));
  expect(';', "after .branchtargets");
  scopes_.back().tables[label] = static_cast<int32_t>(function_->branch_targets.size());
  function_->branch_targets.push_back(std::move(targets));
}

// Only the shape of an indirect call: the callee's own declaration has everything that execution needs.
void Parser::parse_prototype(std::string_view label) {
  while (!is(';')) {
    if (is(Token::Kind::End)) fail(".callprototype has no end");
    advance();
  }
  advance();
  scopes_.back().prototypes[label] = 0;
}

void Parser::parse_instruction(bool guarded) {
  Instruction i;
  i.position = here().offset;
  if (guarded) {
    i.guard_negated = accept('!');
    const uint32_t position = here().offset;
    const std::string_view word = expect_name("a predicate register");
    i.guard = find_register(word);
    if (i.guard < 0) source_.fail(position, fmt::format("predicate '{}' is not declared", word));
    if (function_->registers[i.guard].type != Type::Pred)
      source_.fail(position, fmt::format("'{}' is no predicate", word));
    i.position = here().offset;
  }
  i.opcode = expect_name("an opcode");
  in_call_ = i.opcode == "call";
  i.first_modifier = static_cast<uint32_t>(function_->modifiers.size());
  for (; is(Token::Kind::DotWord); advance()) function_->modifiers.push_back(directive());
  i.modifiers = static_cast<uint32_t>(function_->modifiers.size()) - i.first_modifier;
  i.location = static_cast<int32_t>(function_->locations.size()) - 1;
  if (!is(';')) {
    do i.operands.push_back(parse_operand());
    while (accept(','));
  }
  expect(';', "after the instruction");
  function_->instructions.push_back(std::move(i));
}

Operand Parser::parse_operand() {
  const Nesting nesting(*this);
  Operand first = parse_simple_operand();
  if (!is('|')) return first;
  Operand pair;
  pair.kind = Operand::Kind::Pair;
  pair.position = first.position;
  pair.elements.push_back(std::move(first));
  advance();
  pair.elements.push_back(parse_simple_operand());
  return pair;
}

Operand Parser::parse_simple_operand() {
  Operand o;
  o.position = here().offset;
  if (is('{') || (is('(') && in_call_)) {
    const bool braces = is('{');
    const char close = braces ? '}' : ')';
    o.kind = braces ? Operand::Kind::Vector : Operand::Kind::List;
    advance();
    while (!accept(close)) {
      o.elements.push_back(parse_operand());
      if (!accept(',') && !is(close)) fail(fmt::format("expected ',' or '{}', found {}", close, shown()));
    }
    return o;
  }
  if (is('[')) return parse_address();
  if (is('!') && ahead(1).kind == Token::Kind::Identifier) {
    advance();
    o = parse_simple_operand();
    o.negated = !o.negated;
    return o;
  }
  const bool minus =
      is('-') && (ahead(1).kind == Token::Kind::Float32 || ahead(1).kind == Token::Kind::Float64);
  if (minus) advance();
  if (is(Token::Kind::Float32) || is(Token::Kind::Float64)) {
    o.kind = is(Token::Kind::Float32) ? Operand::Kind::Float32 : Operand::Kind::Float64;
    o.value = static_cast<int64_t>(float_bits(here()));
    if (minus) o.value ^= o.kind == Operand::Kind::Float32 ? int64_t{0x80000000} : INT64_MIN;
    advance();
    return o;
  }
  if (is(Token::Kind::Identifier) && text() != "WARP_SZ") {
    const std::string_view word = text();
    advance();
    o = resolve(word, o.position);
    if ((o.kind == Operand::Kind::Variable) && (is('+') || is('-'))) {
      accept('+');
      o.value = parse_constant();
    }
    return o;
  }
  o.kind = Operand::Kind::Integer;
  o.value = parse_constant();
  return o;
}

// [base], [base+imm], [imm], [map, {c0, c1}]
Operand Parser::parse_address() {
  Operand o;
  o.kind = Operand::Kind::Address;
  o.position = here().offset;
  advance();
  if (is(Token::Kind::Identifier)) {
    const uint32_t position = here().offset;
    const std::string_view word = text();
    advance();
    const Operand base = resolve(word, position);
    if (base.kind != Operand::Kind::Register && base.kind != Operand::Kind::Variable)
      source_.fail(position, fmt::format("'{}' cannot be an address", word));
    o.base = base.kind;
    o.index = base.index;
    if (accept('+') || is('-')) o.value = parse_constant();  // "+-1024" too
  } else {
    o.base = Operand::Kind::Integer;
    o.value = parse_constant();
  }
  if (accept(',')) {
    if (!is('{')) fail("expected coordinates in braces");
    const Operand coordinates = parse_operand();
    o.elements = coordinates.elements;
  }
  expect(']', "after the address");
  return o;
}

Operand Parser::resolve(std::string_view word, uint32_t position) {
  Operand o;
  o.position = position;
  if (word == "_") {
    o.kind = Operand::Kind::Sink;
    return o;
  }
  // "%tid.x" is a special register even where a register is called %tid.
  if (word[0] == '%') {
    const bool component = is(Token::Kind::DotWord);
    const std::string full = component ? std::string(word) + std::string(text()) : std::string(word);
    const int32_t declared = find_register(word);
    const SpecialInfo* special = component || declared < 0 ? find_special(full) : nullptr;
    if (special) {
      if (component) advance();
      o.kind = Operand::Kind::Special;
      o.index = static_cast<int32_t>(special->id);
      return o;
    }
    if (declared < 0)
      source_.fail(position, fmt::format("'{}' is neither a declared register nor a special register", full));
  }
  if ((o.index = find_register(word)) >= 0) {
    o.kind = Operand::Kind::Register;
    if (is(Token::Kind::DotWord))
      fail(fmt::format("register components such as {} are not supported", shown()));
    return o;
  }
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (const auto v = scope->variables.find(word); v != scope->variables.end()) {
      o.kind = Operand::Kind::Variable;
      o.index = v->second;
      return o;
    }
    if (const auto t = scope->tables.find(word); t != scope->tables.end()) {
      o.kind = Operand::Kind::Prototype;
      o.index = t->second;
      return o;
    }
    if (const auto p = scope->prototypes.find(word); p != scope->prototypes.end()) {
      o.kind = Operand::Kind::Prototype;
      return o;
    }
  }
  if (const auto v = module_->variable_names.find(word); v != module_->variable_names.end()) {
    o.kind = Operand::Kind::Variable;
    o.index = v->second;
    return o;
  }
  if (const auto f = module_->function_names.find(word); f != module_->function_names.end()) {
    o.kind = Operand::Kind::Function;
    o.index = f->second;
    return o;
  }
  o.kind = Operand::Kind::Label;
  o.index = refer_label(word, position);
  return o;
}

}  // namespace mxfa::emulator::ptx
