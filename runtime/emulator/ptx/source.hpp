// PTX text and positions in it.  Every error of the front end goes through Source::fail, so that all of them
// name line and column and quote the line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mxfa::emulator::ptx {

class Source {
 public:
  explicit Source(std::string text);
  std::string_view text() const { return text_; }
  uint32_t line(uint32_t offset) const;             // 1-based
  uint32_t column(uint32_t offset) const;           // 1-based
  std::string_view line_text(uint32_t line) const;  // without the newline and the surrounding blanks
  // Throws PtxError.
  [[noreturn]] void fail(uint32_t offset, const std::string& message) const;

 private:
  std::string text_;
  std::vector<uint32_t> starts_;  // offset of each line
};

}  // namespace mxfa::emulator::ptx
