// Integer and bitwise micro-operations (PTX ISA 9.7.1, 9.7.2, 9.7.8).  16- and 8-bit values live
// zero-extended in 32-bit lanes.
#include "core/exec.hpp"
#include "core/handlers.hpp"
#include "core/lane_integer.hpp"

namespace mxfa::emulator {
namespace {

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
}  // namespace handlers
}  // namespace mxfa::emulator
