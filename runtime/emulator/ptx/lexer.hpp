// PTX tokens.  A dot starts a word of its own (".b32", ".shared::cta", ".2d"), so an opcode is an identifier
// followed by dot words.
#pragma once

#include <string_view>
#include <vector>

#include "ptx/source.hpp"

namespace mxfa::emulator::ptx {

struct Token {
  enum class Kind : uint8_t { Identifier, DotWord, Integer, Float32, Float64, String, Punctuation, End };
  Kind kind = Kind::End;
  char punctuation = 0;
  uint32_t offset = 0, length = 0;
};

// The last token is End.  Throws PtxError on a character or a literal that cannot start or end a token.
std::vector<Token> tokenize(const Source& source);

}  // namespace mxfa::emulator::ptx
