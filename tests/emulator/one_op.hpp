// One-instruction tests: a kernel that loads operands, executes one instruction a thread and stores its
// results, run over many operand values and compared with a scalar reference.  The reference never looks at
// the emulator; the same tests pass on an H200 where the instruction exists there (driver_table.hpp says how
// to run them).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "driver_table.hpp"

namespace mxfa::test {

// Operands or results of one execution, each in the low bits of a 64-bit word.
using Words = std::vector<uint64_t>;

struct Form {
  std::string text;  // PTX with inputs %a0 %a1 ..., results %d0 %d1 ..., scratch %t0-3 (b32), %w0-3 (b64),
                     // %q0-3 (pred)
  std::vector<std::string> inputs;  // register types: b16, u32, f32, b64 ...
  std::vector<std::string> results;
};

// Runs a form once for each case.  `target` also chooses the model: sm_90* the h200, others the b200.
std::vector<Words> run_form(const Form& form, const std::vector<Words>& cases,
                            const std::string& target = "sm_90");

// True where the tests can run code for this target.
bool can_run(const std::string& target);

// Runs and compares every result with `expected(operands)`; reports the first few differences.
// `same(operands, got, expected, result index)` decides; by default all bits must agree.
using Reference = std::function<Words(const Words&)>;
using Same = std::function<bool(const Words& operands, uint64_t got, uint64_t expected, size_t result)>;
void check_form(const Form& form, const std::vector<Words>& cases, const Reference& expected,
                const std::string& target = "sm_90", const Same& same = {});

// ---- kernels written out
// ----------------------------------------------------------------------------------------- For what one
// thread cannot show.  A body finds %in and %out (global addresses, 64 bit), %thread, %lane, %warp and %cta
// (32 bit), and has %r<100> (b32), %f<40> (f32), %w<40> (b64), %h<20> (b16) and %p<20> (predicates) to use.
// `out` comes filled with 0xff.
struct Kernel {
  std::string body;
  std::string declarations = {};  // before the kernel: module variables, functions
  std::string target = "sm_90";
  unsigned threads = 32, ctas = 1, cluster = 1, dynamic_shared = 0;
};
std::vector<uint32_t> run_kernel(const Kernel& kernel, const std::vector<uint32_t>& in, size_t out_words);
// The same, with a tensor map as a third parameter `map`.
std::vector<uint32_t> run_kernel(const Kernel& kernel, CUdeviceptr in, size_t out_words,
                                 const CUtensorMap* map);
Driver& driver_for(const std::string& target);

// ---- operand values
// -------------------------------------------------------------------------------------------- Values around
// which implementations go wrong, then seeded random ones.
std::vector<uint64_t> edges16(), edges32(), edges64();
std::vector<uint64_t> float_edges();  // binary32
std::vector<uint64_t> half_edges();   // binary16
std::vector<uint64_t> bfloat_edges();
// Every combination when there are few, else `limit` chosen at random (seeded).
std::vector<Words> combine(const std::vector<std::vector<uint64_t>>& operands, size_t limit = 4000);

inline float as_float(uint64_t bits) {
  const uint32_t low = static_cast<uint32_t>(bits);
  float value;
  __builtin_memcpy(&value, &low, 4);
  return value;
}
inline uint32_t bits_of(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, 4);
  return bits;
}
inline double as_double(uint64_t bits) {
  double value;
  __builtin_memcpy(&value, &bits, 8);
  return value;
}
inline uint64_t bits_of(double value) {
  uint64_t bits;
  __builtin_memcpy(&bits, &value, 8);
  return bits;
}

}  // namespace mxfa::test
