// Which bytes have been written, a bit each: what the checks of uninitialised reads ask.
#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace mxfa::emulator {

class ByteMap {
 public:
  explicit ByteMap(uint64_t bytes = 0) : words_((bytes + 63) / 64) {}
  // Bytes beyond the end are nobody's business here: their access is a fault.
  void mark(uint64_t begin, uint64_t count) {
    visit(begin, count, [&](uint64_t word, uint64_t mask, uint64_t) {
      words_[word] |= mask;
      return true;
    });
  }
  bool all(uint64_t begin, uint64_t count) const {
    const uint64_t shift = begin % 64, word = begin / 64;
    if (shift + count < 64 && word < words_.size())
      return !(((uint64_t{1} << count) - 1) << shift & ~words_[word]);
    return begin + count <= words_.size() * 64 && !first_clear(begin, count);
  }
  // The first byte of the range that has not been marked.
  std::optional<uint64_t> first_clear(uint64_t begin, uint64_t count) const {
    std::optional<uint64_t> first;
    visit(begin, count, [&](uint64_t word, uint64_t mask, uint64_t at) {
      if (const uint64_t clear = mask & ~words_[word])
        first = at + static_cast<uint64_t>(std::countr_zero(clear));
      return !first;
    });
    return first;
  }

 private:
  // use(word, its bits of the range, number of its first bit) while it says true.
  template <class Use>
  void visit(uint64_t begin, uint64_t count, Use use) const {
    for (const uint64_t end = begin + count; begin < end && begin / 64 < words_.size();) {
      const uint64_t shift = begin % 64, bits = end - begin < 64 - shift ? end - begin : 64 - shift;
      const uint64_t mask = (bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1) << shift;
      if (!use(begin / 64, mask, begin - shift)) return;
      begin += bits;
    }
  }
  std::vector<uint64_t> words_;
};

// Allocations of global memory whose bytes are followed from their birth: by copies of the host and by
// launches with checks.  Nothing is known of any other.
class WrittenBytes {
 public:
  void follow(uint64_t base, uint64_t bytes) { ranges_.insert_or_assign(base, Range{bytes, ByteMap(bytes)}); }
  void forget(uint64_t base) { ranges_.erase(base); }
  void forget_all() { ranges_.clear(); }
  bool empty() const { return ranges_.empty(); }
  void mark(uint64_t address, uint64_t bytes) {
    const auto it = holder(address);
    if (it != ranges_.end()) ranges_.find(it->first)->second.map.mark(address - it->first, bytes);
  }
  std::optional<uint64_t> first_unwritten(uint64_t address, uint64_t bytes) const {
    const auto it = holder(address);
    if (it == ranges_.end()) return std::nullopt;
    const auto clear = it->second.map.first_clear(address - it->first, bytes);
    return clear ? std::optional(it->first + *clear) : std::nullopt;
  }

 private:
  struct Range {
    uint64_t bytes;
    ByteMap map;
  };
  std::map<uint64_t, Range>::const_iterator holder(uint64_t address) const {
    auto it = ranges_.upper_bound(address);
    if (it == ranges_.begin()) return ranges_.end();
    --it;
    return address - it->first < it->second.bytes ? it : ranges_.end();
  }
  std::map<uint64_t, Range> ranges_;
};

}  // namespace mxfa::emulator
