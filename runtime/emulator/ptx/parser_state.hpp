// The parser's cursor and name tables; its productions are spread over parser.cpp (module and functions),
// parser_data.cpp (variables and initialisers) and parser_body.cpp (statements and operands).
#pragma once

#include <optional>

#include "ptx/ast.hpp"
#include "ptx/lexer.hpp"

namespace mxfa::emulator::ptx {

class Parser {
 public:
  explicit Parser(const Source& source)
      : source_(source), tokens_(tokenize(source)), module_(std::make_unique<Module>()) {}
  std::unique_ptr<Module> run();

 private:
  // ---- cursor
  const Token& here() const { return tokens_[at_]; }
  const Token& ahead(size_t n) const { return tokens_[std::min(at_ + n, tokens_.size() - 1)]; }
  bool is(char c) const { return here().kind == Token::Kind::Punctuation && here().punctuation == c; }
  bool is(Token::Kind kind) const { return here().kind == kind; }
  std::string_view text(const Token& t) const { return source_.text().substr(t.offset, t.length); }
  std::string_view text() const { return text(here()); }
  std::string_view directive() const {
    return is(Token::Kind::DotWord) ? text().substr(1) : std::string_view();
  }
  void advance() {
    if (at_ + 1 < tokens_.size()) ++at_;
  }
  bool accept(char c) { return is(c) ? (advance(), true) : false; }
  bool accept_directive(std::string_view word) { return directive() == word ? (advance(), true) : false; }
  void expect(char c, const char* where);
  std::string_view expect_name(const char* what);
  std::string_view expect_string(const char* what);
  [[noreturn]] void fail(const std::string& message) const { source_.fail(here().offset, message); }
  std::string shown() const;  // the current token, for messages

  // Nested braces, parentheses and signs recurse: garbage must end in an error, not in a stack overflow.
  struct Nesting {
    explicit Nesting(Parser& p) : parser(p) {
      if (++parser.depth_ > 200) parser.fail("nested too deeply");
    }
    ~Nesting() { --parser.depth_; }
    Parser& parser;
  };

  // ---- parser.cpp
  void parse_directive();
  void parse_function(bool entry, bool external);
  std::vector<int32_t> parse_parameters(bool returns);
  void parse_function_directives(Function& f);
  void parse_section();
  void skip_braces();
  uint32_t parse_unsigned();  // a constant expression that fits 32 bits
  void parse_triple(uint32_t (&out)[3]);

  // ---- parser_data.cpp
  void parse_variables(Space space, bool external, bool in_function);
  int32_t declare_variable(Variable v, bool in_function);
  void parse_initialiser(Variable& v, uint64_t& at);
  void parse_initial_value(Variable& v, uint64_t at);
  int64_t parse_constant();  // integer constant expression
  int64_t parse_constant_unary();
  int64_t integer(const Token& t) const;
  uint64_t float_bits(const Token& t) const;  // of a Float32 (32 bits) or Float64 (64 bits) literal

  // ---- parser_body.cpp
  struct Range {
    std::string_view prefix;
    int32_t first;
    uint32_t count;
  };
  struct PendingLabel {
    std::string_view name;
    int32_t number;
    uint32_t position;
  };
  struct Scope {
    std::vector<std::pair<std::string_view, int32_t>> registers;
    std::vector<Range> ranges;
    std::unordered_map<std::string_view, int32_t> variables, labels, prototypes, tables;
    std::vector<PendingLabel> pending;
  };
  void parse_body(Function& f);
  void parse_registers();
  void parse_location();
  void define_label(std::string_view label, uint32_t position);
  int32_t refer_label(std::string_view label, uint32_t position);
  void close_scope();
  void parse_branch_targets(std::string_view label);
  void parse_prototype(std::string_view label);
  void parse_instruction(bool guarded);
  Operand parse_operand();
  Operand parse_simple_operand();
  Operand parse_address();
  Operand resolve(std::string_view word, uint32_t position);
  int32_t find_register(std::string_view word) const;

  const Source& source_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  bool in_call_ = false;  // parentheses group call operands; elsewhere they belong to expressions
  std::unique_ptr<Module> module_;
  Function* function_ = nullptr;
  int32_t function_index_ = -1;
  std::vector<Scope> scopes_;
};

}  // namespace mxfa::emulator::ptx
