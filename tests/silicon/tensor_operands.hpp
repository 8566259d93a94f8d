// Operands of tensor-core instructions: element formats, values that show how a sum is formed, and the places
// of elements in fragments (PTX ISA 9.7.14.5 and 9.7.15.5).
#pragma once

#include <string>

#include "program.hpp"

namespace mxfa::silicon {

struct Element {
  std::string name;  // as in the instruction
  int bits = 16, exponent_bits = 8, mantissa_bits = 7;
  bool integer = false, is_signed = false;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int largest_exponent() const { return name == "e4m3" ? 8 : bias(); }
  int k() const { return 256 / bits; }  // elements of a 32-byte row
  int per_register() const { return 32 / bits; }
};
Element element_of(const std::string& name);  // bf16 f16 tf32 e4m3 e5m2 s8 u8 f32

// (1 + mantissa / 2^n) * 2^exponent in the format; below its range a denormal or zero, above it the largest.
uint32_t encode(const Element& e, bool negative, int exponent, uint64_t mantissa);
uint32_t small_integer(const Element& e, int value);  // |value| < 8

// How the values of one instruction are drawn; the names say what they are after.
enum class Profile {
  Moderate,
  WideExponents,
  Cancellation,
  Denormals,
  SignedZeros,
  InfinityAndNan,
  Truncation,
  LargeAccumulator,
  Overflow,
  Underflow,
  ExactCancellation,
  AnyFinite,
  OneSign,
  FullMantissas,
  Carries,
  AnyBits,
  Count
};
uint32_t draw_a(const Element& e, Profile profile, Random& random, int k, uint32_t previous);
uint32_t draw_b(const Element& e, Profile profile, Random& random, int k, uint32_t previous);
uint32_t draw_c(const Element& e, Profile profile, Random& random);  // e: f32 or f16; integer for s32

// "{%d0, %d1, ...}"
std::string register_list(const std::string& prefix, int count, int first = 0);

}  // namespace mxfa::silicon
