// Variables and their initial values; constant expressions and literals.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ptx/parser_state.hpp"

namespace mxfa::emulator::ptx {
namespace {

constexpr uint64_t kMaxVariable = uint64_t{1} << 34;  // larger than any device; stops overflow of sizes

}

int64_t Parser::integer(const Token& t) const {
  std::string_view digits = text(t);
  if (!digits.empty() && (digits.back() == 'U' || digits.back() == 'u')) digits.remove_suffix(1);
  uint64_t base = 10, value = 0;
  if (digits.size() > 2 && digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X'))
    base = 16, digits.remove_prefix(2);
  else if (digits.size() > 2 && digits[0] == '0' && (digits[1] == 'b' || digits[1] == 'B'))
    base = 2, digits.remove_prefix(2);
  else if (digits.size() > 1 && digits[0] == '0')
    base = 8, digits.remove_prefix(1);
  for (const char c : digits) {
    const uint64_t d = c <= '9' ? c - '0' : (c | 32) - 'a' + 10;
    if (d >= base) source_.fail(t.offset, "malformed number");
    if (value > (~uint64_t{0} - d) / base) source_.fail(t.offset, "number does not fit 64 bits");
    value = value * base + d;
  }
  return static_cast<int64_t>(value);
}

uint64_t Parser::float_bits(const Token& t) const {
  const std::string_view word = text(t);
  if (word.size() > 2 && word[0] == '0' && (word[1] | 32) >= 'd' && (word[1] | 32) <= 'f' && word[1] != 'e' &&
      word[1] != 'E')
    return std::strtoull(std::string(word.substr(2)).c_str(), nullptr, 16);
  const double value = std::strtod(std::string(word).c_str(), nullptr);
  uint64_t raw;
  std::memcpy(&raw, &value, 8);
  return raw;
}

int64_t Parser::parse_constant_unary() {
  const Nesting nesting(*this);
  if (accept('-')) return static_cast<int64_t>(0 - static_cast<uint64_t>(parse_constant_unary()));
  if (accept('+')) return parse_constant_unary();
  if (accept('~')) return ~parse_constant_unary();
  if (accept('!')) return !parse_constant_unary();
  if (accept('(')) {
    const int64_t value = parse_constant();
    expect(')', "after the expression");
    return value;
  }
  if (is(Token::Kind::Identifier) && text() == "WARP_SZ") return advance(), 32;
  if (!is(Token::Kind::Integer)) fail(fmt::format("expected an integer, found {}", shown()));
  const int64_t value = integer(here());
  advance();
  return value;
}

// Sums and products, left to right by precedence: enough for what inline assembly writes.
int64_t Parser::parse_constant() {
  const auto product = [&] {
    uint64_t value = static_cast<uint64_t>(parse_constant_unary());
    for (;;) {
      const uint32_t position = here().offset;
      if (accept('*')) {
        value *= static_cast<uint64_t>(parse_constant_unary());
      } else if (is('/') || is('%')) {
        const bool remainder = is('%');
        advance();
        const int64_t divisor = parse_constant_unary();
        if (divisor == 0) source_.fail(position, "division by zero");
        const int64_t dividend = static_cast<int64_t>(value);
        if (divisor == -1)
          value = remainder ? 0 : 0 - value;
        else
          value = static_cast<uint64_t>(remainder ? dividend % divisor : dividend / divisor);
      } else {
        return value;
      }
    }
  };
  uint64_t value = product();
  for (;;) {
    if (accept('+'))
      value += product();
    else if (accept('-'))
      value -= product();
    else
      return static_cast<int64_t>(value);
  }
}

int32_t Parser::declare_variable(Variable v, bool in_function) {
  v.function = in_function ? function_index_ : -1;
  const auto number = static_cast<int32_t>(module_->variables.size());
  auto& names = in_function ? scopes_.back().variables : module_->variable_names;
  if (!v.name.empty() && v.name != "_") {
    const auto [it, fresh] = names.emplace(v.name, number);
    if (!fresh) {
      // ".extern .shared x[]" may be repeated, and an extern declaration may be followed by the definition.
      Variable& old = module_->variables[it->second];
      if (in_function || !(old.external || v.external))
        source_.fail(v.position, fmt::format("'{}' is declared twice", v.name));
      if (old.external) {
        const uint32_t alignment = std::max(old.alignment, v.alignment);
        old = std::move(v);
        old.alignment = alignment;
      }
      return it->second;
    }
  }
  module_->variables.push_back(std::move(v));
  return number;
}

// After ".global" and the like: attributes, then one or more declarators up to ';'.
void Parser::parse_variables(Space space, bool external, bool in_function) {
  const TypeInfo* type = nullptr;
  uint32_t alignment = 0, lanes = 1;
  while (is(Token::Kind::DotWord)) {
    if (accept_directive("align")) {
      alignment = parse_unsigned();
      if (alignment == 0 || (alignment & (alignment - 1)) || alignment > 65536)
        fail("alignment is not a power of two");
    } else if (accept_directive("attribute")) {
      expect('(', "after .attribute");
      while (!accept(')')) {
        if (is(Token::Kind::End)) fail(".attribute has no closing parenthesis");
        advance();
      }
    } else if (accept_directive("ptr")) {
      if (accept_directive("global") || accept_directive("shared") || accept_directive("const") ||
          accept_directive("local")) {
      }
    } else if (accept_directive("v2")) {
      lanes = 2;
    } else if (accept_directive("v4")) {
      lanes = 4;
    } else if ((type = find_type(directive())) && type->type != Type::Pred) {
      advance();
    } else {
      fail(fmt::format("unknown variable attribute {}", shown()));
    }
  }
  if (!type) fail("a variable needs a type");
  do {
    Variable v;
    v.space = space;
    v.type = type->type;
    v.external = external;
    v.position = here().offset;
    v.name = expect_name("a variable name");
    const uint32_t element = std::max<uint32_t>(1, type->bits / 8) * lanes;
    v.alignment = alignment ? alignment : element;
    v.bytes = element;
    while (accept('[')) {
      if (accept(']')) {
        v.unsized = true;
        v.bytes = 0;
        continue;
      }
      const uint64_t count = parse_unsigned();
      if (count && v.bytes > kMaxVariable / count) source_.fail(v.position, "variable is too large");
      v.bytes *= count;
      expect(']', "after the array size");
    }
    if (accept('=')) {
      if (space != Space::Global && space != Space::Const)
        fail("only .global and .const variables can have initial values");
      uint64_t at = 0;
      const bool unsized = v.unsized;
      if (unsized) v.bytes = kMaxVariable;
      parse_initialiser(v, at);
      if (unsized) v.bytes = at, v.unsized = false;
    }
    declare_variable(std::move(v), in_function);
  } while (accept(','));
  expect(';', "after the variable");
}

void Parser::parse_initialiser(Variable& v, uint64_t& at) {
  const Nesting nesting(*this);
  const uint32_t element = std::max<uint32_t>(1, bits(v.type) / 8);
  if (accept('{')) {
    while (!accept('}')) {
      parse_initialiser(v, at);
      if (!accept(',') && !is('}'))
        fail(fmt::format("expected ',' or '}}' in the initial values, found {}", shown()));
    }
    return;
  }
  if (at + element > v.bytes) fail("more initial values than the variable holds");
  if (v.data.size() < at + element) v.data.resize(at + element);
  parse_initial_value(v, at);
  at += element;
}

void Parser::parse_initial_value(Variable& v, uint64_t at) {
  const uint32_t element = std::max<uint32_t>(1, bits(v.type) / 8);
  const auto store = [&](uint64_t value) {
    std::memcpy(v.data.data() + at, &value, std::min<uint32_t>(element, 8));
  };
  const bool negative =
      is('-') && (ahead(1).kind == Token::Kind::Float32 || ahead(1).kind == Token::Kind::Float64);
  if (negative) advance();
  if (is(Token::Kind::Float32) || is(Token::Kind::Float64)) {
    uint64_t raw = float_bits(here());
    const bool single = is(Token::Kind::Float32);
    if (single && element == 8) {
      const auto narrow = static_cast<uint32_t>(raw);
      float f;
      std::memcpy(&f, &narrow, 4);
      const double d = f;
      std::memcpy(&raw, &d, 8);
    } else if (!single && element == 4) {
      double d;
      std::memcpy(&d, &raw, 8);
      const auto f = static_cast<float>(d);
      raw = 0;
      std::memcpy(&raw, &f, 4);
    }
    if (negative) raw ^= uint64_t{1} << (std::min(element, 8u) * 8 - 1);
    advance();
    return store(raw);
  }
  if (is(Token::Kind::Identifier) && text() != "WARP_SZ") {
    Relocation r;
    r.offset = at;
    r.size = element;
    r.position = here().offset;
    if (text() == "generic") {
      advance();
      expect('(', "after generic");
      r.symbol = expect_name("a variable");
      if (accept('+')) r.addend = parse_constant();
      expect(')', "after generic(...)");
    } else {
      r.symbol = expect_name("a variable");
    }
    if (accept('+'))
      r.addend += parse_constant();
    else if (is('-'))
      r.addend += parse_constant();
    v.relocations.push_back(r);
    return;
  }
  // "0xFF(sym)" takes one byte of an address: nothing in our reach emits it.
  store(static_cast<uint64_t>(parse_constant()));
  if (is('(')) fail("masked address initialisers such as 0xFF(symbol) are not supported");
}

}  // namespace mxfa::emulator::ptx
