#include "answers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace mxfa::silicon {
namespace {

uint32_t checksum(const uint32_t* words, size_t count) {  // FNV-1a
  uint32_t hash = 2166136261u;
  for (size_t i = 0; i < count; ++i)
    for (int byte = 0; byte < 4; ++byte) hash = (hash ^ (words[i] >> 8 * byte & 255)) * 16777619u;
  return hash;
}

// Position of a floating-point number among all of its format; -0 and +0 are one.  NaN: none.
bool position(uint32_t bits, int width, uint32_t infinity, int64_t& place) {
  const uint32_t magnitude = bits & ((1u << (width - 1)) - 1);
  if (magnitude > infinity) return false;
  place = bits >> (width - 1) & 1 ? -static_cast<int64_t>(magnitude) : static_cast<int64_t>(magnitude);
  return true;
}

double ulps(uint32_t a, uint32_t b, int width, uint32_t infinity) {
  int64_t x = 0, y = 0;
  const bool number = position(a, width, infinity, x);
  if (number != position(b, width, infinity, y)) return INFINITY;
  return number ? static_cast<double>(std::llabs(x - y)) : 0;
}

double distance(const Agreement& agreement, uint32_t a, uint32_t b) {
  if (a == b) return 0;
  float x, y;
  std::memcpy(&x, &a, 4);
  std::memcpy(&y, &b, 4);
  const double difference = std::fabs(static_cast<double>(x) - y);
  if (agreement.kind == Agreement::Kind::Absolute) {
    if (std::isnan(x) || std::isnan(y)) return std::isnan(x) == std::isnan(y) ? 0 : INFINITY;
    return difference;
  }
  if (agreement.kind != Agreement::Kind::Ulp) return INFINITY;
  if (agreement.format == Agreement::Format::F32)
    return difference <= agreement.absolute ? 0 : ulps(a, b, 32, 0x7f800000);
  const uint32_t infinity = agreement.format == Agreement::Format::F16x2 ? 0x7c00 : 0x7f80;
  return std::max(ulps(a & 0xffff, b & 0xffff, 16, infinity), ulps(a >> 16, b >> 16, 16, infinity));
}

}  // namespace

std::string to_text(const std::string& name, const Answer& answer) {
  if (!answer.failure.empty()) {
    std::string line = answer.failure;
    for (char& c : line)
      if (c == '\n') c = ' ';
    return fmt::format("failed {} {}\n", name, line);
  }
  std::string text = fmt::format("{} {} {}\n", answer.hashed ? "hashed" : "program", name, answer.count);
  for (size_t i = 0; i < answer.words.size(); ++i)
    text += fmt::format("{:08x}{}", answer.words[i], i % 8 == 7 || i + 1 == answer.words.size() ? "\n" : " ");
  return text;
}

void read_text(const std::string& path, Answers& answers, std::string* heading) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream parts(line);
    std::string kind, name;
    parts >> kind >> name;
    if (kind == "#") {
      if (heading) *heading += line + "\n";
      continue;
    }
    Answer answer;
    if (kind == "failed") {
      std::getline(parts, answer.failure);
      answers[name] = answer;
      continue;
    }
    if (kind != "program" && kind != "hashed") throw std::runtime_error(path + ": no answer: " + line);
    parts >> answer.count;
    answer.hashed = kind == "hashed";
    const size_t words =
        answer.hashed ? (answer.count + block_of(answer.count) - 1) / block_of(answer.count) : answer.count;
    while (answer.words.size() < words) {
      uint32_t word;
      if (!(file >> std::hex >> word)) throw std::runtime_error(path + ": " + name + " ends early");
      answer.words.push_back(word);
    }
    file >> std::ws;
    answers[name] = answer;
  }
}

Answer shortened(const Answer& answer) {
  if (answer.hashed || answer.count <= kWhole || !answer.failure.empty()) return answer;
  Answer hashed{answer.count, true, {}, {}};
  const size_t block = block_of(answer.count);
  for (size_t i = 0; i < answer.count; i += block)
    hashed.words.push_back(checksum(&answer.words[i], std::min(block, answer.count - i)));
  return hashed;
}

Verdict compare(const Agreement& agreement, const Answer& stored, const Words& got) {
  Verdict verdict;
  if (!stored.failure.empty() || stored.count != got.size()) {
    verdict.agrees = false;
    verdict.first = stored.failure.empty() ? fmt::format("{} words, not {}", got.size(), stored.count)
                                           : "stored without an answer: " + stored.failure;
    return verdict;
  }
  verdict.compared = got.size();
  if (agreement.kind == Agreement::Kind::Recorded || agreement.kind == Agreement::Kind::Survey)
    return verdict;
  const auto differs = [&](size_t index, const std::string& text) {
    verdict.agrees = false;
    if (verdict.first.empty()) verdict.first = fmt::format("word {}: {}", index, text);
    ++verdict.different;
  };
  if (stored.hashed) {
    const Answer now = shortened({got.size(), false, got, {}});
    const size_t block = block_of(got.size());
    for (size_t i = 0; i < stored.words.size(); ++i)
      if (now.words[i] != stored.words[i])
        differs(i * block, fmt::format("this or one of the {} after it differs; it is {:08x} here", block - 1,
                                       got[i * block]));
    return verdict;
  }
  for (size_t i = 0; i < got.size(); ++i) {
    const double far = distance(agreement, stored.words[i], got[i]);
    verdict.largest = std::max(verdict.largest, far);
    if (far > agreement.bound)
      differs(i, fmt::format("{:08x} here, {:08x} on the device", got[i], stored.words[i]));
  }
  return verdict;
}

}  // namespace mxfa::silicon
