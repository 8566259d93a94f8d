// Integer operations on one lane (PTX ISA 9.7.1, 9.7.2, 9.7.8).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace mxfa::emulator {

template <class T>
using Unsigned = std::make_unsigned_t<T>;
template <class T>
constexpr uint32_t kBits = sizeof(T) * 8;

template <class T>
struct Twice;
template <>
struct Twice<int16_t> {
  using type = int32_t;
};
template <>
struct Twice<uint16_t> {
  using type = uint32_t;
};
template <>
struct Twice<int32_t> {
  using type = int64_t;
};
template <>
struct Twice<uint32_t> {
  using type = uint64_t;
};
template <>
struct Twice<int64_t> {
  using type = __int128;
};
template <>
struct Twice<uint64_t> {
  using type = unsigned __int128;
};
template <class T>
using Wide = typename Twice<T>::type;

template <class T>
T wrap_mul(T a, T b) {
  return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}
template <class T>
T high_mul(T a, T b) {
  return static_cast<T>(static_cast<Wide<T>>(static_cast<Wide<T>>(a) * b) >> kBits<T>);
}
template <class T>
T wrap_add(T a, T b) {
  return static_cast<T>(static_cast<Unsigned<T>>(a) + static_cast<Unsigned<T>>(b));
}
template <class T>
T wrap_sub(T a, T b) {
  return static_cast<T>(static_cast<Unsigned<T>>(a) - static_cast<Unsigned<T>>(b));
}
// Division by zero is unspecified in PTX; all ones is what NVIDIA devices return.  Inactive lanes hold
// anything, so nothing may trap.
template <class T>
T divide(T a, T b) {
  if (b == 0) return static_cast<T>(-1);
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return wrap_sub<T>(0, a);
  return static_cast<T>(a / b);
}
template <class T>
T remainder(T a, T b) {
  if (b == 0) return a;
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
  return static_cast<T>(a % b);
}
inline int32_t saturate(int64_t v) {
  return static_cast<int32_t>(
      std::clamp<int64_t>(v, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()));
}

// Shift counts clamp at the width: everything moves out.
template <class T>
T shift_left(T a, uint32_t n) {
  return n >= kBits<T> ? T{0} : static_cast<T>(a << n);
}
template <class T>
T shift_right(T a, uint32_t n) {
  if (n >= kBits<T>) return std::is_signed_v<T> && a < 0 ? static_cast<T>(-1) : T{0};
  return static_cast<T>(a >> n);
}

// Position and length of a field: the low 8 bits, of 64-bit fields the whole operand (an H200's answers; PTX
// leaves what exceeds 255 open).
template <class T>
uint32_t field_operand(uint32_t v) {
  return kBits<T> == 64 ? std::min(v, 64u) : v & 0xff;
}
template <class T>
T bit_field_extract(T a, uint32_t b, uint32_t c) {
  const uint32_t position = field_operand<T>(b), length = field_operand<T>(c), msb = kBits<T> - 1;
  if (length == 0) return 0;
  const Unsigned<T> u = static_cast<Unsigned<T>>(a);
  const bool sign = std::is_signed_v<T> && ((u >> std::min(position + length - 1, msb)) & 1);
  Unsigned<T> r = position > msb ? 0 : u >> position;
  const uint32_t valid = position > msb ? 0 : std::min(length, kBits<T> - position);
  const Unsigned<T> keep = valid >= kBits<T> ? ~Unsigned<T>{0} : (Unsigned<T>{1} << valid) - 1;
  r &= keep;
  return static_cast<T>(sign ? r | ~keep : r);
}
template <class T>
T bit_field_insert(T a, T b, uint32_t c, uint32_t d) {
  const uint32_t position = field_operand<T>(c), length = field_operand<T>(d);
  if (position >= kBits<T> || length == 0) return b;
  const uint32_t valid = std::min(length, kBits<T> - position);
  const T keep = valid >= kBits<T> ? ~T{0} : ((T{1} << valid) - 1) << position;
  return (b & ~keep) | ((a << position) & keep);
}
// szext: the low n bits of a, extended by the sign of the type; n >= 32 keeps a.
template <class T>
T extend_low_bits(T a, uint32_t n) {
  if (n == 0) return 0;
  if (n >= 32) return a;
  return static_cast<T>(static_cast<T>(static_cast<uint32_t>(a) << (32 - n)) >> (32 - n));
}
// fns: the n-th set bit of the mask from `base`, upwards for n > 0 and downwards for n < 0 (PTX
// ISA 9.7.1.15).
inline uint32_t nth_set_bit(uint32_t mask, uint32_t base, int32_t n) {
  if (base > 31) return 0xffffffffu;
  if (n == 0) return mask >> base & 1 ? base : 0xffffffffu;
  const int step = n > 0 ? 1 : -1;
  for (int i = static_cast<int>(base), left = n > 0 ? n : -n; i >= 0 && i < 32; i += step)
    if (mask >> i & 1)
      if (--left == 0) return static_cast<uint32_t>(i);
  return 0xffffffffu;
}
template <class T>
uint32_t find_leading(T a) {
  const Unsigned<T> u =
      std::is_signed_v<T> && a < 0 ? ~static_cast<Unsigned<T>>(a) : static_cast<Unsigned<T>>(a);
  return u == 0 ? 0xffffffffu : kBits<T> - 1 - static_cast<uint32_t>(std::countl_zero(u));
}
template <class T>
uint32_t find_leading_shift(T a) {
  const uint32_t d = find_leading<T>(a);
  return d == 0xffffffffu ? d : kBits<T> - 1 - d;
}
template <class T>
T reverse(T v) {
  T r = 0;
  for (uint32_t k = 0; k < kBits<T>; ++k) r |= ((v >> k) & 1) << (kBits<T> - 1 - k);
  return r;
}
inline uint32_t pairwise(uint32_t a, uint32_t b, auto f) {
  return (f(a & 0xffff, b & 0xffff) & 0xffff) | (f(a >> 16, b >> 16) & 0xffff) << 16;
}

}  // namespace mxfa::emulator
