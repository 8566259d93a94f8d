// The one source of random decisions of a launch, counter-based: the n-th draw of a seed depends on nothing
// but n and the seed, so the same seed runs the same way.
#pragma once

#include <cstdint>

namespace mxfa::emulator {

// The finaliser of splitmix64: every bit of the result depends on every bit of the argument.
inline uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

class Random {
 public:
  explicit Random(uint64_t seed = 0) : key_(mix(seed + kStep)) {}
  uint64_t operator()() { return mix(key_ + kStep * ++draws_); }
  // Of a thing that has a number, whenever it is asked for.
  uint64_t of(uint64_t thing) const { return mix(key_ ^ mix(thing + kStep)); }

 private:
  static constexpr uint64_t kStep = 0x9e3779b97f4a7c15ull;
  uint64_t key_, draws_ = 0;
};

}  // namespace mxfa::emulator
