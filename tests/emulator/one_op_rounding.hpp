// What the floating-point references share: the host's arithmetic under a rounding mode, and the .ftz and
// .sat rules.
#pragma once

#include <cfenv>
#include <cmath>

#include "one_op.hpp"

namespace mxfa::test {

inline constexpr uint32_t kNan32 = 0x7fffffff;  // the NaN that arithmetic produces

struct Rounding {
  const char* name;
  int mode;
};
inline constexpr Rounding kRoundings[] = {
    {"rn", FE_TONEAREST}, {"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}};

// Evaluates under a rounding mode; volatile keeps the compiler from evaluating elsewhere.
template <class T, class Operation>
T rounded(int mode, Operation operation) {
  std::fesetround(mode);
  const volatile T result = operation();
  std::fesetround(FE_TONEAREST);
  return result;
}

inline bool is_nan32(uint64_t bits) { return (bits & 0x7fffffff) > 0x7f800000; }
inline bool is_nan64(uint64_t bits) { return (bits & ~(1ull << 63)) > 0x7ff0000000000000; }
inline uint32_t canonical(float value) { return std::isnan(value) ? kNan32 : bits_of(value); }

// .ftz: subnormal operands and results become zero of their sign.
inline uint32_t flush(uint32_t bits) { return (bits & 0x7f800000) ? bits : bits & 0x80000000; }
inline uint32_t saturate(uint32_t bits) {
  const float value = as_float(bits);
  return std::isnan(value) || value <= 0 ? 0 : value >= 1 ? 0x3f800000 : bits;
}

}  // namespace mxfa::test
