// Integer and bitwise micro-operations (PTX ISA 9.7.1, 9.7.2, 9.7.8).  16- and 8-bit values live
// zero-extended in 32-bit lanes.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "core/exec.hpp"
#include "core/handlers.hpp"

namespace mxfa::emulator {
namespace {

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
int32_t saturate(int64_t v) {
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

template <class T>
T bit_field_extract(T a, uint32_t b, uint32_t c) {
  const uint32_t position = b & 0xff, length = c & 0xff, msb = kBits<T> - 1;
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
  const uint32_t position = c & 0xff, length = d & 0xff;
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
uint32_t nth_set_bit(uint32_t mask, uint32_t base, int32_t n) {
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
uint32_t pairwise(uint32_t a, uint32_t b, auto f) {
  return (f(a & 0xffff, b & 0xffff) & 0xffff) | (f(a >> 16, b >> 16) & 0xffff) << 16;
}

// Operations that do not care about the sign, on an unsigned type.
template <class T>
Handler signless(std::string_view op) {
  using N = uint32_t;
  if (op == "add") return alu([](T a, T b) -> T { return wrap_add<T>(a, b); });
  if (op == "sub") return alu([](T a, T b) -> T { return wrap_sub<T>(a, b); });
  if (op == "mul.lo") return alu([](T a, T b) -> T { return wrap_mul<T>(a, b); });
  if (op == "mad.lo") return alu([](T a, T b, T c) -> T { return wrap_add<T>(wrap_mul<T>(a, b), c); });
  if (op == "and") return alu([](T a, T b) -> T { return a & b; });
  if (op == "or") return alu([](T a, T b) -> T { return a | b; });
  if (op == "xor") return alu([](T a, T b) -> T { return a ^ b; });
  if (op == "not") return alu([](T a) -> T { return static_cast<T>(~a); });
  if (op == "cnot") return alu([](T a) -> T { return a == 0; });
  if (op == "neg") return alu([](T a) -> T { return wrap_sub<T>(0, a); });
  if (op == "shl") return alu([](T a, N n) -> T { return shift_left<T>(a, n); });
  if constexpr (sizeof(T) >= 4) {
    if (op == "popc") return alu([](T a) -> N { return static_cast<N>(std::popcount(a)); });
    if (op == "clz") return alu([](T a) -> N { return static_cast<N>(std::countl_zero(a)); });
    if (op == "brev") return alu([](T a) -> T { return reverse<T>(a); });
  }
  return nullptr;
}

template <class T>
Handler signed_or_unsigned(std::string_view op) {
  using N = uint32_t;
  using W = Wide<T>;
  if (op == "mul.hi") return alu([](T a, T b) -> T { return high_mul<T>(a, b); });
  if (op == "mad.hi") return alu([](T a, T b, T c) -> T { return wrap_add<T>(high_mul<T>(a, b), c); });
  if (op == "div") return alu([](T a, T b) -> T { return divide<T>(a, b); });
  if (op == "rem") return alu([](T a, T b) -> T { return remainder<T>(a, b); });
  if (op == "min") return alu([](T a, T b) -> T { return a < b ? a : b; });
  if (op == "max") return alu([](T a, T b) -> T { return a > b ? a : b; });
  if (op == "shr") return alu([](T a, N n) -> T { return shift_right<T>(a, n); });
  if (op == "sad")
    return alu(
        [](T a, T b, T c) -> T { return wrap_add<T>(c, a < b ? wrap_sub<T>(b, a) : wrap_sub<T>(a, b)); });
  if constexpr (sizeof(T) <= 4) {
    if (op == "mul.wide") return alu([](T a, T b) -> W { return static_cast<W>(a) * static_cast<W>(b); });
    if (op == "mad.wide")
      return alu([](T a, T b, W c) -> W { return wrap_add<W>(static_cast<W>(a) * static_cast<W>(b), c); });
  }
  if constexpr (std::is_signed_v<T>) {
    if (op == "abs") return alu([](T a) -> T { return a < 0 ? wrap_sub<T>(0, a) : a; });
  }
  if constexpr (sizeof(T) >= 4) {
    if (op == "bfe") return alu([](T a, N b, N c) -> T { return bit_field_extract<T>(a, b, c); });
    if (op == "bfind") return alu([](T a) -> N { return find_leading<T>(a); });
    if (op == "bfind.shiftamt") return alu([](T a) -> N { return find_leading_shift<T>(a); });
  }
  if constexpr (sizeof(T) == 4) {
    if (op == "mul24.lo")
      return alu([](T a, T b) -> T {
        return wrap_mul<T>(static_cast<T>(static_cast<N>(a) << 8) >> 8,
                           static_cast<T>(static_cast<N>(b) << 8) >> 8);
      });
    if (op == "mad24.lo")
      return alu([](T a, T b, T c) -> T {
        return wrap_add<T>(wrap_mul<T>(static_cast<T>(static_cast<N>(a) << 8) >> 8,
                                       static_cast<T>(static_cast<N>(b) << 8) >> 8),
                           c);
      });
  }
  if constexpr (sizeof(T) == 4) {
    if (op == "szext.clamp") return alu([](T a, N b) -> T { return extend_low_bits<T>(a, b); });
    if (op == "szext.wrap") return alu([](T a, N b) -> T { return extend_low_bits<T>(a, b & 31); });
  }
  if constexpr (std::is_same_v<T, int32_t>) {
    if (op == "min.relu") return alu([](T a, T b) -> T { return std::max(std::min(a, b), 0); });
    if (op == "max.relu") return alu([](T a, T b) -> T { return std::max(std::max(a, b), 0); });
    if (op == "add.sat") return alu([](T a, T b) -> T { return saturate(static_cast<int64_t>(a) + b); });
    if (op == "sub.sat") return alu([](T a, T b) -> T { return saturate(static_cast<int64_t>(a) - b); });
    if (op == "mad.hi.sat")
      return alu([](T a, T b, T c) -> T { return saturate(static_cast<int64_t>(high_mul<T>(a, b)) + c); });
  }
  if constexpr (std::is_unsigned_v<T> && sizeof(T) == 4) {
    if (op == "shf.l.wrap")
      return alu([](N a, N b, N c) -> N {
        return static_cast<N>(((static_cast<uint64_t>(b) << 32 | a) << (c & 31)) >> 32);
      });
    if (op == "shf.l.clamp")
      return alu([](N a, N b, N c) -> N {
        return c >= 32 ? a : static_cast<N>(((static_cast<uint64_t>(b) << 32 | a) << c) >> 32);
      });
    if (op == "shf.r.wrap")
      return alu([](N a, N b, N c) -> N {
        return static_cast<N>((static_cast<uint64_t>(b) << 32 | a) >> (c & 31));
      });
    if (op == "shf.r.clamp")
      return alu([](N a, N b, N c) -> N {
        return c >= 32 ? b : static_cast<N>((static_cast<uint64_t>(b) << 32 | a) >> c);
      });
    if (op == "fns") return alu([](N a, N b, int32_t c) -> N { return nth_set_bit(a, b, c); });
    if (op == "bmsk.clamp")
      return alu([](N a, N b) -> N { return a >= 32 || b == 0 ? 0u : (b >= 32 ? ~0u : (1u << b) - 1) << a; });
    if (op == "bmsk.wrap") return alu([](N a, N b) -> N { return ((1u << (b & 31)) - 1) << (a & 31); });
  }
  return nullptr;
}

// src0..src2 are read as 32-bit counts or values of T: bfi has the 64-bit value second.
template <class T>
Step insert_field(Exec& x, const MicroOp& op) {
  const auto* a = lanes<T>(x.src(op.src[0]));
  const auto* b = lanes<T>(x.src(op.src[1]));
  const auto* c = lanes<uint32_t>(x.src(op.src[2]));
  const auto* d = lanes<uint32_t>(x.src(op.src[3]));
  for_lanes<T>(x.mask, lanes<T>(x.dst(op.dst)),
               [=](int i) { return bit_field_insert<T>(a[i], b[i], c[i], d[i]); });
  return Step::Continue;
}

Handler packed(std::string_view op, bool is_signed) {
  using N = uint32_t;
  if (op == "add") return alu([](N a, N b) -> N { return pairwise(a, b, [](N p, N q) { return p + q; }); });
  if (op == "sub") return alu([](N a, N b) -> N { return pairwise(a, b, [](N p, N q) { return p - q; }); });
  if (op == "min.relu")
    return alu([](N a, N b) -> N {
      return pairwise(a, b, [](N p, N q) {
        return static_cast<N>(std::max<int>(std::min(static_cast<int16_t>(p), static_cast<int16_t>(q)), 0));
      });
    });
  if (op == "max.relu")
    return alu([](N a, N b) -> N {
      return pairwise(a, b, [](N p, N q) {
        return static_cast<N>(std::max<int>(std::max(static_cast<int16_t>(p), static_cast<int16_t>(q)), 0));
      });
    });
  if (op == "min") {
    if (is_signed)
      return alu([](N a, N b) -> N {
        return pairwise(a, b,
                        [](N p, N q) { return static_cast<int16_t>(p) < static_cast<int16_t>(q) ? p : q; });
      });
    return alu([](N a, N b) -> N { return pairwise(a, b, [](N p, N q) { return p < q ? p : q; }); });
  }
  if (op == "max") {
    if (is_signed)
      return alu([](N a, N b) -> N {
        return pairwise(a, b,
                        [](N p, N q) { return static_cast<int16_t>(p) > static_cast<int16_t>(q) ? p : q; });
      });
    return alu([](N a, N b) -> N { return pairwise(a, b, [](N p, N q) { return p > q ? p : q; }); });
  }
  return nullptr;
}

// add.cc, addc, sub.cc, subc, mad.cc, madc: imm selects (0 add, 1 sub, 2 mad.lo, 3 mad.hi); flags: carry in,
// carry out.
template <class T>
Step with_carry(Exec& x, const MicroOp& op) {
  const auto* a = lanes<T>(x.src(op.src[0]));
  const auto* b = lanes<T>(x.src(op.src[1]));
  const auto* c = lanes<T>(x.src(op.imm >= 2 ? op.src[2] : op.src[1]));
  const bool in = op.aux & 1, out = op.aux & 2;
  const uint32_t carry = in ? x.pred(op.src[3]) : 0;
  auto* d = lanes<T>(x.dst(op.dst));
  uint32_t carries = 0;
  for (int i = 0; i < kLanes; ++i) {
    if (!(x.mask >> i & 1)) continue;
    using W = unsigned __int128;
    const W k = carry >> i & 1;
    W sum;
    if (op.imm == 1) {
      // subc subtracts the borrow; CC.CF holds the borrow-out.
      sum = static_cast<W>(a[i]) - b[i] - k;
    } else {
      const W product = static_cast<W>(a[i]) * b[i];
      const T term = op.imm == 0 ? b[i] : static_cast<T>(op.imm == 2 ? product : product >> kBits<T>);
      sum = static_cast<W>(op.imm == 0 ? a[i] : c[i]) + term + k;
    }
    carries |= static_cast<uint32_t>(sum >> kBits<T> & 1) << i;
    d[i] = static_cast<T>(sum);
  }
  if (out) x.set_pred(op.dst2, carries);
  return Step::Continue;
}
template <class T>
Step with_carry_signed_high(Exec& x, const MicroOp& op) {  // mad.hi on signed operands
  using S = std::make_signed_t<T>;
  const auto* a = lanes<T>(x.src(op.src[0]));
  const auto* b = lanes<T>(x.src(op.src[1]));
  const auto* c = lanes<T>(x.src(op.src[2]));
  const uint32_t carry = op.aux & 1 ? x.pred(op.src[3]) : 0;
  auto* d = lanes<T>(x.dst(op.dst));
  uint32_t carries = 0;
  for (int i = 0; i < kLanes; ++i) {
    if (!(x.mask >> i & 1)) continue;
    const T term = static_cast<T>(high_mul<S>(static_cast<S>(a[i]), static_cast<S>(b[i])));
    const unsigned __int128 sum = static_cast<unsigned __int128>(term) + c[i] + (carry >> i & 1);
    carries |= static_cast<uint32_t>(sum >> kBits<T> & 1) << i;
    d[i] = static_cast<T>(sum);
  }
  if (op.aux & 2) x.set_pred(op.dst2, carries);
  return Step::Continue;
}

// d = F(a, b, c) with F given by its truth table: bit k of the table is F for a = k>>2, b = k>>1, c = k
// (PTX 9.7.8.6).
inline uint32_t lookup(uint32_t table, uint32_t a, uint32_t b, uint32_t c) {
  const auto all = [table](int k) { return 0u - (table >> k & 1); };
  const uint32_t c0 = (~c & all(0)) | (c & all(1)), c1 = (~c & all(2)) | (c & all(3));
  const uint32_t c2 = (~c & all(4)) | (c & all(5)), c3 = (~c & all(6)) | (c & all(7));
  const uint32_t b0 = (~b & c0) | (b & c1), b1 = (~b & c2) | (b & c3);
  return (~a & b0) | (a & b1);
}

template <bool kPredicate>
Step lop3_lanes(Exec& x, const MicroOp& op) {
  const auto* a = x.src(op.src[0]).lane;
  const auto* b = x.src(op.src[1]).lane;
  const auto* c = x.src(op.src[2]).lane;
  const uint32_t table = op.aux;
  Row result;
  for_lanes<uint32_t>(kFullMask, lanes<uint32_t>(result),
                      [=](int i) { return lookup(table, a[i], b[i], c[i]); });
  if (kPredicate) {
    const uint32_t nonzero = mask_lanes(x.mask, [&](int i) { return result.lane[i] != 0; });
    const uint32_t q = x.pred(op.src[3]);
    x.set_pred(op.dst2, op.imm ? nonzero & q : nonzero | q);
  }
  const auto* r = lanes<uint32_t>(result);
  for_lanes<uint32_t>(x.mask, lanes<uint32_t>(x.dst(op.dst)), [=](int i) { return r[i]; });
  return Step::Continue;
}

template <class F>
Step predicate_logic(Exec& x, const MicroOp& op) {
  x.set_pred(op.dst, F{}(x.pred(op.src[0]), x.pred(op.src[1])));
  return Step::Continue;
}
template <class F>
Handler predicates(F) {
  return &predicate_logic<F>;
}

template <bool kTwo, bool kASigned, bool kBSigned, bool kHigh>
uint32_t dot(uint32_t a, uint32_t b, uint32_t c) {
  int64_t sum = 0;
  for (int k = 0; k < (kTwo ? 2 : 4); ++k) {
    const uint32_t u = kTwo ? a >> (16 * k) & 0xffff : a >> (8 * k) & 0xff;
    const uint32_t v = b >> (8 * (k + (kTwo && kHigh ? 2 : 0))) & 0xff;
    const int64_t p =
        kASigned ? (kTwo ? static_cast<int16_t>(u) : static_cast<int8_t>(u)) : static_cast<int64_t>(u);
    const int64_t q = kBSigned ? static_cast<int8_t>(v) : static_cast<int64_t>(v);
    sum += p * q;
  }
  return c + static_cast<uint32_t>(sum);
}
template <bool kTwo, bool kHigh>
Handler dot_by_sign(bool a_signed, bool b_signed) {
  if (a_signed)
    return b_signed
               ? alu([](uint32_t a, uint32_t b, uint32_t c) { return dot<kTwo, true, true, kHigh>(a, b, c); })
               : alu([](uint32_t a, uint32_t b, uint32_t c) {
                   return dot<kTwo, true, false, kHigh>(a, b, c);
                 });
  return b_signed
             ? alu([](uint32_t a, uint32_t b, uint32_t c) { return dot<kTwo, false, true, kHigh>(a, b, c); })
             : alu([](uint32_t a, uint32_t b, uint32_t c) {
                 return dot<kTwo, false, false, kHigh>(a, b, c);
               });
}

}  // namespace

namespace handlers {

Handler integer(std::string_view op, Type type) {
  if (type == Type::U16x2 || type == Type::S16x2) return packed(op, type == Type::S16x2);
  const uint32_t width = ptx::bits(type);
  if (op == "bfi")
    return width == 32 ? &insert_field<uint32_t> : width == 64 ? &insert_field<uint64_t> : nullptr;
  Handler h = width == 16   ? signless<uint16_t>(op)
              : width == 32 ? signless<uint32_t>(op)
              : width == 64 ? signless<uint64_t>(op)
                            : nullptr;
  if (h) return h;
  const bool is_signed = ptx::is_signed(type);
  switch (width) {
    case 16:
      return is_signed ? signed_or_unsigned<int16_t>(op) : signed_or_unsigned<uint16_t>(op);
    case 32:
      return is_signed ? signed_or_unsigned<int32_t>(op) : signed_or_unsigned<uint32_t>(op);
    case 64:
      return is_signed ? signed_or_unsigned<int64_t>(op) : signed_or_unsigned<uint64_t>(op);
    default:
      return nullptr;
  }
}

Handler carry(std::string_view op, Type type) {
  const bool wide = ptx::bits(type) == 64;
  if (op == "mad.hi" && ptx::is_signed(type))
    return wide ? &with_carry_signed_high<uint64_t> : &with_carry_signed_high<uint32_t>;
  return wide ? &with_carry<uint64_t> : &with_carry<uint32_t>;
}

Handler logic_predicate(std::string_view op) {
  if (op == "and") return predicates([](uint32_t a, uint32_t b) { return a & b; });
  if (op == "or") return predicates([](uint32_t a, uint32_t b) { return a | b; });
  if (op == "xor") return predicates([](uint32_t a, uint32_t b) { return a ^ b; });
  if (op == "not") return predicates([](uint32_t a, uint32_t) { return ~a; });
  return nullptr;
}

Handler lop3() { return &lop3_lanes<false>; }
Handler lop3_predicate() { return &lop3_lanes<true>; }

Handler dot_product(bool two_way, bool a_signed, bool b_signed, bool high) {
  if (!two_way) return dot_by_sign<false, false>(a_signed, b_signed);
  return high ? dot_by_sign<true, true>(a_signed, b_signed) : dot_by_sign<true, false>(a_signed, b_signed);
}

}  // namespace handlers
}  // namespace mxfa::emulator
