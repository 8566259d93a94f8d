#include "tensor_operands.hpp"

#include <algorithm>
#include <stdexcept>

namespace mxfa::silicon {

Element element_of(const std::string& name) {
  if (name == "bf16") return {name, 16, 8, 7};
  if (name == "f16") return {name, 16, 5, 10};
  if (name == "tf32") return {name, 32, 8, 10};
  if (name == "e4m3") return {name, 8, 4, 3};
  if (name == "e5m2") return {name, 8, 5, 2};
  if (name == "f32") return {name, 32, 8, 23};
  if (name == "s8") return {name, 8, 0, 0, true, true};
  if (name == "u8") return {name, 8, 0, 0, true, false};
  throw std::runtime_error("no element type: " + name);
}

namespace {

// A tf32 lies in the upper bits of its 32.
int shift_of(const Element& e) { return e.name == "tf32" ? 13 : 0; }
int width_of(const Element& e) { return 1 + e.exponent_bits + e.mantissa_bits; }

int draw(Random& random, int first, int last) {
  return first + static_cast<int>(random.below(static_cast<uint32_t>(last - first + 1)));
}

bool special(const Element& e, uint32_t raw) {  // infinity or NaN
  const uint32_t magnitude = raw >> shift_of(e) & ((1u << (width_of(e) - 1)) - 1);
  if (e.name == "e4m3") return magnitude == 0x7f;
  return magnitude >> e.mantissa_bits == (1u << e.exponent_bits) - 1;
}

uint32_t any_bits(const Element& e, Random& random, bool finite) {
  for (;;) {
    const uint32_t raw = random.word() >> (32 - width_of(e)) << shift_of(e);
    if (!finite || !special(e, raw)) return raw;
  }
}

uint32_t special_value(const Element& e, Random& random) {
  const uint32_t sign = random.below(2) << (width_of(e) - 1);
  const uint32_t infinity = e.name == "e4m3" ? 0x7f : ((1u << e.exponent_bits) - 1) << e.mantissa_bits;
  const uint32_t payload = random.below(4) == 0 ? 1 + random.below((1u << e.mantissa_bits) - 1) : 0;
  return (sign | infinity | payload) << shift_of(e);
}

uint32_t random_mantissa(Random& random) { return random.word(); }

}  // namespace

uint32_t encode(const Element& e, bool negative, int exponent, uint64_t mantissa) {
  mantissa &= (1ull << e.mantissa_bits) - 1;
  const uint32_t sign = negative ? 1u << (width_of(e) - 1) : 0;
  uint32_t magnitude;
  if (exponent > e.largest_exponent()) {
    exponent = e.largest_exponent();
    mantissa = (1ull << e.mantissa_bits) - 1;
  }
  if (e.name == "e4m3" && exponent == 8) mantissa = std::min<uint64_t>(mantissa, 6);
  if (exponent >= 1 - e.bias()) {
    magnitude =
        static_cast<uint32_t>(exponent + e.bias()) << e.mantissa_bits | static_cast<uint32_t>(mantissa);
  } else {
    const int down = 1 - e.bias() - exponent;
    magnitude =
        down > e.mantissa_bits ? 0 : static_cast<uint32_t>((mantissa | 1ull << e.mantissa_bits) >> down);
  }
  return (sign | magnitude) << shift_of(e);
}

uint32_t small_integer(const Element& e, int value) {
  if (e.integer) return static_cast<uint32_t>(e.is_signed ? value : std::abs(value)) & 255;
  const int magnitude = std::abs(value);
  if (magnitude == 0) return 0;
  const int exponent = magnitude >= 4 ? 2 : magnitude >= 2 ? 1 : 0;
  return encode(e, value < 0, exponent,
                static_cast<uint64_t>(magnitude - (1 << exponent)) << (e.mantissa_bits - exponent));
}

uint32_t draw_a(const Element& e, Profile profile, Random& random, int k, uint32_t previous) {
  if (e.integer) {
    const uint32_t pick = random.below(8);
    return pick == 0 ? 0x80 : pick == 1 ? 0x7f : pick == 2 ? 0xff : random.below(256);
  }
  const uint32_t sign_bit = 1u << (width_of(e) - 1 + shift_of(e));
  const bool negative = random.below(2);
  const uint32_t m = random_mantissa(random);
  const int low = 1 - e.bias(), high = e.largest_exponent();
  switch (profile) {
    case Profile::WideExponents:
      return encode(e, negative, draw(random, std::max(low - e.mantissa_bits, -60), std::min(high, 60)), m);
    case Profile::Cancellation:
      if (k & 1) return (previous ^ sign_bit) + (random.below(4) == 0 ? 1u << shift_of(e) : 0);
      return encode(e, negative, draw(random, -2, 3), m);
    case Profile::Denormals:
      return random.below(4) ? encode(e, negative, draw(random, low - e.mantissa_bits, low - 1), m)
                             : encode(e, negative, draw(random, low, low + 3), m);
    case Profile::SignedZeros: {
      const uint32_t pick = random.below(6);
      return pick < 2 ? 0 : pick < 4 ? sign_bit : encode(e, negative, pick == 4 ? 0 : low, 0);
    }
    case Profile::InfinityAndNan:
      return random.below(64) == 0 ? special_value(e, random) : encode(e, negative, draw(random, -2, 2), m);
    case Profile::Truncation:
      return k == 3 ? encode(e, negative, 0, m) : encode(e, negative, draw(random, -30, -8), m);
    case Profile::Overflow:
      return encode(e, random.below(8) == 0, draw(random, high / 2 - 1, high / 2 + 2), m);
    case Profile::Underflow:
      return encode(e, negative, draw(random, std::max(low, -72), std::max(low, -72) + 6), m);
    case Profile::ExactCancellation:
      return k & 1 ? previous ^ sign_bit : encode(e, negative, draw(random, -3, 3), m);
    case Profile::AnyFinite:
      return any_bits(e, random, true);
    case Profile::OneSign:
      return encode(e, false, draw(random, -12, 0), m);
    case Profile::FullMantissas:
      return encode(e, negative, 0, m | 1);
    case Profile::Carries:
      return encode(e, false, draw(random, 0, 1), ~0ull);
    case Profile::AnyBits:
      return any_bits(e, random, random.below(48) != 0);
    default:
      return encode(e, negative, draw(random, -2, 2), m);
  }
}

uint32_t draw_b(const Element& e, Profile profile, Random& random, int k, uint32_t previous) {
  if (e.integer) return draw_a(e, profile, random, k, previous);
  const bool negative = random.below(2);
  const uint32_t m = random_mantissa(random);
  switch (profile) {
    case Profile::Cancellation:
    case Profile::ExactCancellation:
      return k & 1 ? previous : encode(e, negative, draw(random, -2, 2), m);
    case Profile::Denormals:  // some large enough to lift the products of A's denormals
      return random.below(2) ? draw_a(e, profile, random, k, previous)
                             : encode(e, negative, draw(random, 0, std::min(e.largest_exponent(), 30)), m);
    case Profile::Truncation:
      return encode(e, negative, 0, random.below(3) ? 0 : m);
    case Profile::OneSign:
      return encode(e, true, draw(random, -12, 0), m);
    default:
      return draw_a(e, profile, random, k, previous);
  }
}

uint32_t draw_c(const Element& e, Profile profile, Random& random) {
  if (e.integer) {
    const uint32_t pick = random.below(4);
    return pick == 0   ? 0x7fffffff - random.below(100000)
           : pick == 1 ? 0x80000000 + random.below(100000)
           : pick == 2 ? random.below(1000)
                       : random.word();
  }
  const bool negative = random.below(2);
  const uint32_t m = random_mantissa(random);
  const int low = 1 - e.bias(), high = e.largest_exponent();
  switch (profile) {
    case Profile::WideExponents:
      return encode(e, negative, draw(random, std::max(low, -120), std::min(high, 120)), m);
    case Profile::Cancellation:
      return encode(e, negative, draw(random, -26, 0), m);
    case Profile::Denormals:
      return random.below(2) ? encode(e, negative, draw(random, low - e.mantissa_bits, low - 1), m)
                             : encode(e, negative, draw(random, -24, -10), m);
    case Profile::SignedZeros:
    case Profile::ExactCancellation: {
      const uint32_t pick = random.below(4);
      return pick == 0   ? 0
             : pick == 1 ? 1u << (e.bits - 1)
                         : encode(e, negative, pick == 2 ? low - 2 : -14, m);
    }
    case Profile::InfinityAndNan:
      return random.below(24) == 0 ? special_value(e, random) : encode(e, negative, draw(random, -2, 2), m);
    case Profile::Truncation:
      return encode(e, negative, draw(random, -30, 3), m);
    case Profile::LargeAccumulator:
      return encode(e, negative, draw(random, 4, 34), m);
    case Profile::Overflow:
      return encode(e, negative, draw(random, high - 2, high), m);
    case Profile::Underflow:
      return random.below(2) ? encode(e, negative, draw(random, low - e.mantissa_bits, low), m) : 0;
    case Profile::AnyFinite:
    case Profile::AnyBits:
      return any_bits(e, random, profile == Profile::AnyFinite);
    case Profile::Carries:
      return encode(e, true, draw(random, 2, 7), m);
    default:
      return encode(e, negative, draw(random, -4, 4), m);
  }
}

std::string register_list(const std::string& prefix, int count, int first) {
  std::string text = "{";
  for (int i = 0; i < count; ++i) text += (i ? ", " : "") + prefix + std::to_string(first + i);
  return text + "}";
}

}  // namespace mxfa::silicon
