// Text to tokens: one pass, no allocation but the token array.
#include "ptx/lexer.hpp"

#include <fmt/format.h>

namespace mxfa::emulator::ptx {
namespace {

bool digit(char c) { return c >= '0' && c <= '9'; }
bool hex(char c) { return digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool word(char c) { return letter(c) || digit(c); }
bool name_start(char c) { return letter(c) || c == '$' || c == '%'; }
bool name_part(char c) { return word(c) || c == '$'; }

class Lexer {
 public:
  explicit Lexer(const Source& source) : source_(source), text_(source.text()) {}

  std::vector<Token> run() {
    tokens_.reserve(text_.size() / 5 + 16);
    while (skip_blanks(), at_ < text_.size()) next();
    push(Token::Kind::End, text_.size());
    return std::move(tokens_);
  }

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  void push(Token::Kind kind, size_t begin, char punctuation = 0) {
    tokens_.push_back({kind, punctuation, static_cast<uint32_t>(begin), static_cast<uint32_t>(at_ - begin)});
  }

  void skip_blanks() {
    for (; at_ < text_.size();) {
      const char c = text_[at_];
      if (c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v') {
        ++at_;
      } else if (c == '/' && peek(1) == '/') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (c == '/' && peek(1) == '*') {
        const size_t end = text_.find("*/", at_ + 2);
        if (end == std::string_view::npos) source_.fail(static_cast<uint32_t>(at_), "comment without */");
        at_ = end + 2;
      } else if (c == '\0') {
        text_ = text_.substr(0, at_);  // a driver image ends at its NUL
      } else {
        return;
      }
    }
  }

  void next() {
    const size_t begin = at_;
    const char c = text_[at_];
    if (name_start(c)) {
      ++at_;
      while (name_part(peek())) ++at_;
      if (at_ == begin + 1 && c == '%')
        source_.fail(static_cast<uint32_t>(begin), "a register name must follow %");
      push(Token::Kind::Identifier, begin);
    } else if (c == '.') {
      ++at_;
      while (word(peek()) || (peek() == ':' && peek(1) == ':' && word(peek(2)))) at_ += peek() == ':' ? 2 : 1;
      if (at_ == begin + 1) source_.fail(static_cast<uint32_t>(begin), "a name must follow the dot");
      push(Token::Kind::DotWord, begin);
    } else if (digit(c)) {
      number();
    } else if (c == '"') {
      for (++at_; at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n'; ++at_)
        if (text_[at_] == '\\') ++at_;
      if (peek() != '"') source_.fail(static_cast<uint32_t>(begin), "string without closing quote");
      ++at_;
      push(Token::Kind::String, begin);
    } else {
      static constexpr std::string_view kPunctuation = "{}[]()<>,;:|@!+-*/%=~&^?#";
      if (kPunctuation.find(c) == std::string_view::npos)
        source_.fail(static_cast<uint32_t>(begin),
                     fmt::format("unexpected character (byte {:#04x})", static_cast<unsigned char>(c)));
      ++at_;
      push(Token::Kind::Punctuation, begin, c);
    }
  }

  void number() {
    const size_t begin = at_;
    Token::Kind kind = Token::Kind::Integer;
    const char second = peek(1);
    if (peek() == '0' && (second == 'f' || second == 'F' || second == 'd' || second == 'D')) {
      const bool single = second == 'f' || second == 'F';
      at_ += 2;
      while (hex(peek())) ++at_;
      const size_t want = single ? 10 : 18;
      if (at_ - begin != want)
        source_.fail(static_cast<uint32_t>(begin),
                     fmt::format("0{} needs {} hexadecimal digits", second, want - 2));
      kind = single ? Token::Kind::Float32 : Token::Kind::Float64;
    } else if (peek() == '0' && (second == 'x' || second == 'X')) {
      at_ += 2;
      while (hex(peek())) ++at_;
      if (at_ == begin + 2) source_.fail(static_cast<uint32_t>(begin), "hexadecimal digits must follow 0x");
    } else if (peek() == '0' && (second == 'b' || second == 'B')) {
      at_ += 2;
      while (peek() == '0' || peek() == '1') ++at_;
      if (at_ == begin + 2) source_.fail(static_cast<uint32_t>(begin), "binary digits must follow 0b");
    } else {
      while (digit(peek())) ++at_;
      if (peek() == '.' && digit(peek(1))) {
        kind = Token::Kind::Float64;
        ++at_;
        while (digit(peek())) ++at_;
      }
      if ((peek() == 'e' || peek() == 'E') &&
          (digit(peek(1)) || ((peek(1) == '-' || peek(1) == '+') && digit(peek(2))))) {
        kind = Token::Kind::Float64;
        at_ += 2;
        while (digit(peek())) ++at_;
      }
    }
    if (kind == Token::Kind::Integer && (peek() == 'U' || peek() == 'u')) ++at_;
    if (name_part(peek())) source_.fail(static_cast<uint32_t>(begin), "malformed number");
    push(kind, begin);
  }

  const Source& source_;
  std::string_view text_;
  size_t at_ = 0;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(const Source& source) { return Lexer(source).run(); }

}  // namespace mxfa::emulator::ptx
