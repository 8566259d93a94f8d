// Answers as text: per program a line "program NAME N" and its words in hex, eight a line.  A long answer is
// stored as one checksum per block of 64 or 512 words ("hashed"): enough to find where a difference lies.
#pragma once

#include <map>
#include <string>

#include "program.hpp"

namespace mxfa::silicon {

struct Answer {
  size_t count = 0;     // words of the answer
  bool hashed = false;  // `words` are checksums of blocks
  Words words;
  std::string failure;  // why there is no answer
};
using Answers = std::map<std::string, Answer>;

inline constexpr size_t kWhole = 256;  // words of the longest answer that is kept whole
inline size_t block_of(size_t count) { return count > 4096 ? 512 : 64; }

std::string to_text(const std::string& name, const Answer& answer);
void read_text(const std::string& path, Answers& answers, std::string* heading = nullptr);
Answer shortened(const Answer& answer);  // hashed where long

struct Verdict {
  bool agrees = true;
  size_t compared = 0, different = 0;
  double largest = 0;  // difference, in the unit of the agreement
  std::string first;   // the first difference
};
Verdict compare(const Agreement& agreement, const Answer& stored, const Words& got);

}  // namespace mxfa::silicon
