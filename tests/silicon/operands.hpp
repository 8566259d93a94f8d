// Operand values of the one-instruction programs.
#pragma once

#include "program.hpp"

namespace mxfa::silicon {

using Columns = std::vector<std::vector<uint64_t>>;

std::vector<uint64_t> all_halves();  // 0 .. 65535
std::vector<uint64_t> all_pairs(
    int seed);  // every 16-bit value in the lower half, a permutation in the upper
// f32: every upper half once, with lower halves around which roundings turn.
std::vector<uint64_t> every_upper_half();
std::vector<uint64_t> float_edges();
std::vector<uint64_t> half_edges(), bfloat_edges();
std::vector<uint64_t> integer_edges(int bits);
// Every combination when there are few, else `limit` chosen at random.
Columns combine(const std::vector<std::vector<uint64_t>>& operands, size_t limit = 4096);

inline uint32_t bits_of(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, 4);
  return bits;
}
inline uint64_t bits_of(double value) {
  uint64_t bits;
  __builtin_memcpy(&bits, &value, 8);
  return bits;
}

inline void add_form(Programs& programs, const std::string& name, const Form& form, const Columns& columns,
                     Agreement agreement = {}) {
  programs.push_back({name, [=](Machine& machine) { return machine.form(form, columns); }, agreement});
}

}  // namespace mxfa::silicon
