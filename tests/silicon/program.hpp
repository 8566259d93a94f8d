// What is compared: small programs, each about one subject, with inputs that follow from a seed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "machine.hpp"

namespace mxfa::silicon {

// How an answer of the CPU driver must agree with the stored answer of the device.
struct Agreement {
  enum class Kind {
    Identical,  // every bit
    Ulp,        // ordered distance of f32, f16x2 or bf16x2 words
    Absolute,   // difference of f32 words
    Recorded,   // kept to be read; not compared, since it may differ from run to run or is not specified
    Survey      // measured on the device when asked for; not kept in the repository
  };
  enum class Format { F32, F16x2, Bf16x2 };
  Kind kind = Kind::Identical;
  double bound = 0;
  Format format = Format::F32;
  double absolute = 0;  // Ulp of f32: or this difference, where a function passes zero
};

struct Program {
  std::string name;  // subject/what
  std::function<Words(Machine&)> run;
  Agreement agreement = {};
};
using Programs = std::vector<Program>;

// One a subject.
void add_conversions(Programs& programs);
void add_arithmetic(Programs& programs);
void add_integers(Programs& programs);
void add_approximate(Programs& programs);
void add_warp(Programs& programs);
void add_memory(Programs& programs);
void add_barriers(Programs& programs);
void add_clusters(Programs& programs);
void add_tensor_copies(Programs& programs);
void add_wgmma_layouts(Programs& programs);
void add_tensor_sums(Programs& programs);

// The same numbers on every machine (splitmix64).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
  }
  uint32_t word() { return static_cast<uint32_t>(next() >> 32); }
  uint32_t below(uint32_t n) { return static_cast<uint32_t>((next() >> 32) * n >> 32); }

 private:
  uint64_t state_;
};

}  // namespace mxfa::silicon
