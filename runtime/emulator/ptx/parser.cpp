// Module level of PTX: directives, functions, parameters, debug sections.
#include "ptx/parser.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ptx/parser_state.hpp"

namespace mxfa::emulator::ptx {

void Parser::expect(char c, const char* where) {
  if (!accept(c)) fail(fmt::format("expected '{}' {}, found {}", c, where, shown()));
}

std::string Parser::shown() const {
  if (is(Token::Kind::End)) return "the end of the text";
  return fmt::format("'{}'", text().substr(0, 60));
}

std::string_view Parser::expect_name(const char* what) {
  if (!is(Token::Kind::Identifier)) fail(fmt::format("expected {}, found {}", what, shown()));
  const std::string_view word = text();
  advance();
  return word;
}

std::string_view Parser::expect_string(const char* what) {
  if (!is(Token::Kind::String)) fail(fmt::format("expected {} in quotes, found {}", what, shown()));
  std::string_view word = text();
  advance();
  return word.substr(1, word.size() - 2);
}

uint32_t Parser::parse_unsigned() {
  const uint32_t position = here().offset;
  const int64_t value = parse_constant();
  if (value < 0 || value > 0xffffffffll)
    source_.fail(position, fmt::format("{} is not an unsigned 32-bit number", value));
  return static_cast<uint32_t>(value);
}

void Parser::parse_triple(uint32_t (&out)[3]) {
  out[0] = parse_unsigned();
  out[1] = out[2] = 1;
  if (accept(',')) out[1] = parse_unsigned();
  if (accept(',')) out[2] = parse_unsigned();
}

std::unique_ptr<Module> Parser::run() {
  while (!is(Token::Kind::End)) {
    if (accept(';')) continue;
    if (!is(Token::Kind::DotWord)) fail(fmt::format("expected a directive, found {}", shown()));
    parse_directive();
  }
  if (module_->version.empty()) source_.fail(0, ".version is missing: this is no PTX module");
  uint64_t constants = 0;
  for (const Variable& v : module_->variables) {
    if (v.space != Space::Const || v.external) continue;
    constants = (constants + v.alignment - 1) / v.alignment * v.alignment + v.bytes;
    if (constants > kMaxConstants)
      source_.fail(v.position, fmt::format("{} bytes of constants up to here; a module can have {}",
                                           constants, kMaxConstants));
  }
  for (const Function& f : module_->functions)
    if (f.entry && !f.defined) source_.fail(f.position, fmt::format("entry '{}' has no body", f.name));
  return std::move(module_);
}

void Parser::parse_directive() {
  const std::string_view word = directive();
  if (word == "version") {
    advance();
    module_->version = text();
    if (!is(Token::Kind::Float64)) fail("expected a version such as 9.0");
    advance();
  } else if (word == "target") {
    advance();
    module_->target = expect_name("a target such as sm_100a");
    while (accept(',')) expect_name("a target option");
  } else if (word == "address_size") {
    advance();
    const uint32_t position = here().offset;
    if (parse_unsigned() != 64)
      source_.fail(position, "only 64-bit addresses are supported (.address_size 64)");
  } else if (word == "file") {
    advance();
    const uint32_t number = parse_unsigned();
    module_->files[number] = std::string(expect_string("a file name"));
    while (accept(',')) parse_constant();
  } else if (word == "section") {
    parse_section();
  } else if (word == "alias") {
    advance();
    const std::string_view alias = expect_name("an alias");
    expect(',', "between alias and function");
    const uint32_t position = here().offset;
    const auto it = module_->function_names.find(expect_name("a function"));
    if (it == module_->function_names.end()) source_.fail(position, ".alias names an undeclared function");
    module_->function_names[alias] = it->second;
    expect(';', "after .alias");
  } else if (word == "pragma") {
    advance();
    do expect_string("a pragma");
    while (accept(','));
    expect(';', "after .pragma");
  } else {
    bool external = false;
    for (;;) {
      if (accept_directive("extern"))
        external = true;
      else if (!(accept_directive("visible") || accept_directive("weak") || accept_directive("common")))
        break;
    }
    if (accept_directive("entry"))
      parse_function(true, external);
    else if (accept_directive("func"))
      parse_function(false, external);
    else if (accept_directive("global"))
      parse_variables(Space::Global, external, false);
    else if (accept_directive("const"))
      parse_variables(Space::Const, external, false);
    else if (accept_directive("shared"))
      parse_variables(Space::Shared, external, false);
    else
      fail(fmt::format("unknown directive {}", shown()));
  }
}

// Debug data.  Only .debug_str is kept: .loc names functions by labels in it.
void Parser::parse_section() {
  advance();
  if (!is(Token::Kind::DotWord) && !is(Token::Kind::Identifier)) fail("expected a section name");
  const bool strings = directive() == "debug_str";
  advance();
  if (!strings) return skip_braces();
  expect('{', "after .section .debug_str");
  std::string_view label;
  while (!is('}')) {
    if (is(Token::Kind::End)) fail(".section .debug_str has no closing brace");
    if (is(Token::Kind::Identifier) && ahead(1).kind == Token::Kind::Punctuation &&
        ahead(1).punctuation == ':') {
      label = text();
      advance();
      advance();
    } else if (accept_directive("b8")) {
      do {
        const int64_t byte = parse_constant();
        if (byte != 0 && !label.empty()) module_->debug_strings[label].push_back(static_cast<char>(byte));
      } while (accept(','));
    } else {
      advance();
    }
  }
  advance();
}

void Parser::skip_braces() {
  if (!accept('{')) fail(fmt::format("expected '{{', found {}", shown()));
  for (int depth = 1; depth > 0; advance()) {
    if (is(Token::Kind::End)) fail("a brace is not closed");
    if (is('{')) ++depth;
    if (is('}')) --depth;
  }
}

// "( .param .b32 a, .param .align 8 .b8 b[16] )" or nothing.
std::vector<int32_t> Parser::parse_parameters(bool returns) {
  std::vector<int32_t> parameters;
  if (!accept('(')) return parameters;
  while (!accept(')')) {
    if (directive() == "reg") fail("register parameters (.reg) of functions are not supported; use .param");
    if (!accept_directive("param")) fail(fmt::format("expected .param, found {}", shown()));
    Variable v;
    v.space = Space::Param;
    v.position = here().offset;
    const TypeInfo* type = nullptr;
    uint32_t alignment = 0;
    while (is(Token::Kind::DotWord)) {
      if (accept_directive("align")) {
        alignment = parse_unsigned();
      } else if (accept_directive("ptr")) {
        // .ptr{.space}{.align N} describes the pointee
        if (directive() == "global" || directive() == "const" || directive() == "shared" ||
            directive() == "local")
          advance();
        if (accept_directive("align")) parse_unsigned();
      } else if ((type = find_type(directive()))) {
        advance();
      } else {
        fail(fmt::format("unknown parameter attribute {}", shown()));
      }
    }
    if (!type) fail("a parameter needs a type");
    v.type = type->type;
    const uint32_t element = std::max<uint32_t>(1, type->bits / 8);
    v.bytes = element;
    if (is(Token::Kind::Identifier)) v.name = expect_name("a parameter name");
    while (accept('[')) {
      if (is(']')) fail("parameter arrays need a size");
      const uint64_t count = parse_unsigned();
      if (count && v.bytes > kMaxParameters / count)
        source_.fail(v.position, fmt::format("kernel parameters are limited to {} bytes", kMaxParameters));
      v.bytes *= count;
      expect(']', "after the array size");
    }
    v.alignment = alignment ? alignment : element;
    if (v.alignment > 128 || (v.alignment & (v.alignment - 1)))
      source_.fail(v.position, fmt::format("alignment {} is not a power of two up to 128", v.alignment));
    parameters.push_back(declare_variable(std::move(v), true));
    if (!accept(',') && !is(')'))
      fail(fmt::format("expected ',' or ')' in the parameter list, found {}", shown()));
  }
  if (returns && parameters.size() > 1) fail("functions return at most one parameter");
  return parameters;
}

void Parser::parse_function_directives(Function& f) {
  for (;;) {
    if (accept_directive("maxntid"))
      parse_triple(f.max_threads);
    else if (accept_directive("reqntid"))
      parse_triple(f.required_threads);
    else if (accept_directive("reqnctapercluster"))
      parse_triple(f.required_cluster);
    else if (accept_directive("minnctapersm"))
      f.min_ctas = parse_unsigned();
    else if (accept_directive("maxnctapersm"))
      parse_unsigned();
    else if (accept_directive("maxnreg"))
      f.max_registers = parse_unsigned();
    else if (accept_directive("maxclusterrank"))
      parse_unsigned();
    else if (accept_directive("explicitcluster"))
      f.explicit_cluster = true;
    else if (accept_directive("noreturn")) {
    } else if (accept_directive("pragma")) {
      do expect_string("a pragma");
      while (accept(','));
      expect(';', "after .pragma");
    } else if (is(Token::Kind::DotWord))
      fail(fmt::format("unknown function directive {}", shown()));
    else
      return;
  }
}

void Parser::parse_function(bool entry, bool external) {
  scopes_.clear();
  scopes_.emplace_back();
  function_index_ = static_cast<int32_t>(module_->functions.size());
  Function f;
  f.entry = entry;
  f.external = external;
  if (!entry) f.returns = parse_parameters(true);
  f.position = here().offset;
  f.name = expect_name(entry ? "the entry's name" : "the function's name");
  f.parameters = parse_parameters(false);
  parse_function_directives(f);

  // A second declaration replaces the first, keeping its number: calls refer to numbers.
  const auto known = module_->function_names.find(f.name);
  if (known == module_->function_names.end()) {
    module_->function_names.emplace(f.name, function_index_);
    module_->functions.push_back(std::move(f));
  } else {
    function_index_ = known->second;
    Function& old = module_->functions[function_index_];
    if (old.defined && is('{')) source_.fail(f.position, fmt::format("'{}' is defined twice", f.name));
    for (const auto& list : {f.returns, f.parameters})
      for (const int32_t v : list) module_->variables[v].function = function_index_;
    if (is('{')) old = std::move(f);
  }
  if (accept(';')) return;
  expect('{', "to open the function body");
  function_ = &module_->functions[function_index_];
  function_->defined = true;
  parse_body(*function_);
  function_ = nullptr;
}

std::unique_ptr<Module> parse(const Source& source) { return Parser(source).run(); }

}  // namespace mxfa::emulator::ptx
