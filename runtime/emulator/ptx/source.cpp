// Positions in PTX text, and the one way to report an error in it.
#include "ptx/source.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/grid.hpp"

namespace mxfa::emulator::ptx {

Source::Source(std::string text) : text_(std::move(text)) {
  starts_.push_back(0);
  for (size_t i = 0; i < text_.size(); ++i)
    if (text_[i] == '\n') starts_.push_back(static_cast<uint32_t>(i + 1));
}

uint32_t Source::line(uint32_t offset) const {
  return static_cast<uint32_t>(std::upper_bound(starts_.begin(), starts_.end(), offset) - starts_.begin());
}

uint32_t Source::column(uint32_t offset) const { return offset - starts_[line(offset) - 1] + 1; }

std::string_view Source::line_text(uint32_t line) const {
  if (line == 0 || line > starts_.size()) return {};
  const size_t begin = starts_[line - 1];
  const size_t end = line < starts_.size() ? starts_[line] - 1 : text_.size();
  std::string_view view = std::string_view(text_).substr(begin, end - begin);
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!view.empty() && blank(view.front())) view.remove_prefix(1);
  while (!view.empty() && blank(view.back())) view.remove_suffix(1);
  return view;
}

void Source::fail(uint32_t offset, const std::string& message) const {
  offset = std::min<uint32_t>(offset, static_cast<uint32_t>(text_.size()));
  // Lines of generated PTX can hold 128-register vectors or 100 kB tables: quote a readable part.
  std::string quoted(line_text(line(offset)).substr(0, 160));
  for (char& c : quoted)
    if (static_cast<unsigned char>(c) < 32 || static_cast<unsigned char>(c) > 126) c = '?';
  throw PtxError(
      fmt::format("line {}, column {}: {}\n    {}", line(offset), column(offset), message, quoted));
}

}  // namespace mxfa::emulator::ptx
