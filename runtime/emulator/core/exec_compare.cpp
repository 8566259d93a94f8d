// Comparisons: setp, set, testp (PTX ISA 9.7.6, 9.7.3).  Ordered comparisons are false on NaN, the "u" forms
// true.
#include <cmath>

#include "core/exec.hpp"
#include "core/formats.hpp"
#include "core/handlers.hpp"

namespace mxfa::emulator {
namespace {

enum Combine : uint32_t { kNone, kAnd, kOr, kXor };

// dst = t op c, dst2 = !t op c
inline Step finish(Exec& x, const MicroOp& op, uint32_t t) {
  uint32_t p = t, q = ~t;
  if (op.aux != kNone) {
    const uint32_t c = x.pred(op.src[2]);
    switch (op.aux) {
      case kAnd:
        p &= c, q &= c;
        break;
      case kOr:
        p |= c, q |= c;
        break;
      default:
        p ^= c, q ^= c;
        break;
    }
  }
  x.set_pred(op.dst, p);
  if (op.dst2 != kNoRow) x.set_pred(op.dst2, q);
  return Step::Continue;
}

template <class T, class F>
Step compare_lanes(Exec& x, const MicroOp& op) {
  const auto* a = lanes<Stored<T>>(x.src(op.src[0]));
  const auto* b = lanes<Stored<T>>(x.src(op.src[1]));
  return finish(x, op,
                mask_lanes(x.mask, [=](int i) { return F{}(static_cast<T>(a[i]), static_cast<T>(b[i])); }));
}

// Floating-point operands, widened (f16, bf16) or flushed (.ftz).
template <class T, bool kFtz>
struct Read {
  static T of(T v) { return v; }
};
template <>
struct Read<float, true> {
  static float of(float v) { return flush(v); }
};
struct HalfTag {};
struct BrainTag {};

template <class T, bool kFtz, class F>
Step compare_floats(Exec& x, const MicroOp& op) {
  x.set_mode(kModeDefault);  // comparisons flush by themselves
  if constexpr (std::is_same_v<T, HalfTag> || std::is_same_v<T, BrainTag>) {
    const auto* a = lanes<uint32_t>(x.src(op.src[0]));
    const auto* b = lanes<uint32_t>(x.src(op.src[1]));
    const auto widen = [](uint32_t v) {
      return std::is_same_v<T, HalfTag> ? f16_to_f32(static_cast<uint16_t>(v))
                                        : bf16_to_f32(static_cast<uint16_t>(v));
    };
    return finish(x, op, mask_lanes(x.mask, [=](int i) { return F{}(widen(a[i]), widen(b[i])); }));
  } else {
    const auto* a = lanes<T>(x.src(op.src[0]));
    const auto* b = lanes<T>(x.src(op.src[1]));
    return finish(x, op, mask_lanes(x.mask, [=](int i) {
                    return F{}(Read<T, kFtz>::of(a[i]), Read<T, kFtz>::of(b[i]));
                  }));
  }
}

#define MXFA_COMPARE(symbol) [](auto a, auto b) { return a symbol b; }
template <class T, class F>
Handler integers(F) {
  return &compare_lanes<T, F>;
}
template <class T>
Handler integer_compare(std::string_view op) {
  if (op == "eq") return integers<T>(MXFA_COMPARE(==));
  if (op == "ne") return integers<T>(MXFA_COMPARE(!=));
  if (op == "lt" || op == "lo") return integers<T>(MXFA_COMPARE(<));
  if (op == "le" || op == "ls") return integers<T>(MXFA_COMPARE(<=));
  if (op == "gt" || op == "hi") return integers<T>(MXFA_COMPARE(>));
  if (op == "ge" || op == "hs") return integers<T>(MXFA_COMPARE(>=));
  return nullptr;
}

template <class T, bool kFtz, class F>
Handler floats(F) {
  return &compare_floats<T, kFtz, F>;
}
template <class T, bool kFtz>
Handler float_compare(std::string_view op) {
  if (op == "eq") return floats<T, kFtz>([](auto a, auto b) { return a == b; });
  if (op == "ne") return floats<T, kFtz>([](auto a, auto b) { return a < b || a > b; });
  if (op == "lt") return floats<T, kFtz>(MXFA_COMPARE(<));
  if (op == "le") return floats<T, kFtz>(MXFA_COMPARE(<=));
  if (op == "gt") return floats<T, kFtz>(MXFA_COMPARE(>));
  if (op == "ge") return floats<T, kFtz>(MXFA_COMPARE(>=));
  if (op == "equ") return floats<T, kFtz>([](auto a, auto b) { return !(a < b || a > b); });
  if (op == "neu") return floats<T, kFtz>([](auto a, auto b) { return !(a == b); });
  if (op == "ltu") return floats<T, kFtz>([](auto a, auto b) { return !(a >= b); });
  if (op == "leu") return floats<T, kFtz>([](auto a, auto b) { return !(a > b); });
  if (op == "gtu") return floats<T, kFtz>([](auto a, auto b) { return !(a <= b); });
  if (op == "geu") return floats<T, kFtz>([](auto a, auto b) { return !(a < b); });
  if (op == "num") return floats<T, kFtz>([](auto a, auto b) { return a == a && b == b; });
  if (op == "nan") return floats<T, kFtz>([](auto a, auto b) { return a != a || b != b; });
  return nullptr;
}
#undef MXFA_COMPARE

// setp.op.f16x2 p|q: one predicate per half.
template <bool kBrain, class F>
Step compare_pair(Exec& x, const MicroOp& op) {
  const auto* a = lanes<uint32_t>(x.src(op.src[0]));
  const auto* b = lanes<uint32_t>(x.src(op.src[1]));
  const auto widen = [](uint32_t v) {
    return kBrain ? bf16_to_f32(static_cast<uint16_t>(v)) : f16_to_f32(static_cast<uint16_t>(v));
  };
  const uint32_t low = mask_lanes(x.mask, [=](int i) { return F{}(widen(a[i]), widen(b[i])); });
  const uint32_t high = mask_lanes(x.mask, [=](int i) { return F{}(widen(a[i] >> 16), widen(b[i] >> 16)); });
  x.set_pred(op.dst, low);
  if (op.dst2 != kNoRow) x.set_pred(op.dst2, high);
  return Step::Continue;
}
template <bool kBrain, class F>
Handler pairs(F) {
  return &compare_pair<kBrain, F>;
}
template <bool kBrain>
Handler pair_compare(std::string_view op) {
  if (op == "eq") return pairs<kBrain>([](float a, float b) { return a == b; });
  if (op == "ne") return pairs<kBrain>([](float a, float b) { return a < b || a > b; });
  if (op == "neu") return pairs<kBrain>([](float a, float b) { return !(a == b); });
  if (op == "lt") return pairs<kBrain>([](float a, float b) { return a < b; });
  if (op == "le") return pairs<kBrain>([](float a, float b) { return a <= b; });
  if (op == "gt") return pairs<kBrain>([](float a, float b) { return a > b; });
  if (op == "ge") return pairs<kBrain>([](float a, float b) { return a >= b; });
  if (op == "equ") return pairs<kBrain>([](float a, float b) { return !(a < b || a > b); });
  if (op == "ltu") return pairs<kBrain>([](float a, float b) { return !(a >= b); });
  if (op == "leu") return pairs<kBrain>([](float a, float b) { return !(a > b); });
  if (op == "gtu") return pairs<kBrain>([](float a, float b) { return !(a <= b); });
  if (op == "geu") return pairs<kBrain>([](float a, float b) { return !(a < b); });
  if (op == "num") return pairs<kBrain>([](float a, float b) { return a == a && b == b; });
  if (op == "nan") return pairs<kBrain>([](float a, float b) { return a != a || b != b; });
  return nullptr;
}

template <bool kFloat>
Step set_word(Exec& x, const MicroOp& op) {
  const uint32_t p = x.pred(op.src[0]);
  for_lanes<uint32_t>(x.mask, lanes<uint32_t>(x.dst(op.dst)),
                      [=](int i) { return (p >> i) & 1 ? (kFloat ? 0x3f800000u : 0xffffffffu) : 0u; });
  return Step::Continue;
}

enum Property : uint32_t { kFinite, kInfinite, kNumber, kNotANumber, kNormal, kSubnormal };
template <class T>
Step test(Exec& x, const MicroOp& op) {
  const auto* a = lanes<T>(x.src(op.src[0]));
  uint32_t result = 0;
  for (int i = 0; i < kLanes; ++i) {
    const int kind = std::fpclassify(static_cast<T>(a[i]));
    bool yes = false;
    switch (op.aux) {
      case kFinite:
        yes = kind != FP_NAN && kind != FP_INFINITE;
        break;
      case kInfinite:
        yes = kind == FP_INFINITE;
        break;
      case kNumber:
        yes = kind != FP_NAN;
        break;
      case kNotANumber:
        yes = kind == FP_NAN;
        break;
      case kNormal:
        yes = kind == FP_NORMAL || kind == FP_ZERO;
        break;  // an H200 counts zero as normal
      default:
        yes = kind == FP_SUBNORMAL;
        break;
    }
    result |= static_cast<uint32_t>(yes) << i;
  }
  x.set_pred(op.dst, result);
  return Step::Continue;
}

}  // namespace

namespace handlers {

Handler compare(std::string_view op, Type type, bool ftz) {
  switch (type) {
    case Type::F32:
      return ftz ? float_compare<float, true>(op) : float_compare<float, false>(op);
    case Type::F64:
      return float_compare<double, false>(op);
    case Type::F16:
      return float_compare<HalfTag, false>(op);
    case Type::BF16:
      return float_compare<BrainTag, false>(op);
    case Type::F16x2:
      return pair_compare<false>(op);
    case Type::BF16x2:
      return pair_compare<true>(op);
    case Type::S16:
      return integer_compare<int16_t>(op);
    case Type::S32:
      return integer_compare<int32_t>(op);
    case Type::S64:
      return integer_compare<int64_t>(op);
    case Type::B16:
    case Type::U16:
      return integer_compare<uint16_t>(op);
    case Type::B32:
    case Type::U32:
      return integer_compare<uint32_t>(op);
    case Type::B64:
    case Type::U64:
      return integer_compare<uint64_t>(op);
    default:
      return nullptr;
  }
}
uint32_t combine_kind(std::string_view op) {
  return op == "and" ? kAnd : op == "or" ? kOr : op == "xor" ? kXor : kNone;
}

Handler set_from_predicate(bool as_float) { return as_float ? &set_word<true> : &set_word<false>; }

Handler test_property(Type type) { return type == Type::F64 ? &test<double> : &test<float>; }
uint32_t property_kind(std::string_view p) {
  return p == "finite"       ? kFinite
         : p == "infinite"   ? kInfinite
         : p == "number"     ? kNumber
         : p == "notanumber" ? kNotANumber
         : p == "normal"     ? kNormal
                             : kSubnormal;
}

}  // namespace handlers
}  // namespace mxfa::emulator
