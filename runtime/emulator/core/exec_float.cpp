// IEEE arithmetic (PTX ISA 9.7.3 - 9.7.5).  Rounding and flushing come from MXCSR, so every operation is one
// machine operation per lane.
#include <cmath>

#include "core/exec.hpp"
#include "core/formats.hpp"
#include "core/handlers.hpp"

namespace mxfa::emulator {
namespace {

// .sat: NaN becomes +0, then [0, 1].
inline float saturated(float v) { return v > 0.0f ? (v < 1.0f ? v : 1.0f) : 0.0f; }

inline Step saturate_after(Exec& x, const MicroOp& op, Step step) {
  if (op.flags & kSaturate) {
    auto* d = lanes<float>(x.dst(op.dst));
    for_lanes<float>(x.mask, d, [=](int i) { return saturated(d[i]); });
  }
  return step;
}

template <class F>
Step run_f32(Exec& x, const MicroOp& op) {
  return saturate_after(x, op, detail::run_fpu<F>(x, op));
}
template <class F>
Handler single_op(F) {
  return &run_f32<F>;
}

Handler single_precision(std::string_view op) {
  if (op == "add") return single_op([](float a, float b) { return canonical(a + b); });
  if (op == "sub") return single_op([](float a, float b) { return canonical(a - b); });
  if (op == "mul") return single_op([](float a, float b) { return canonical(a * b); });
  if (op == "fma")
    return single_op([](float a, float b, float c) { return canonical(__builtin_fmaf(a, b, c)); });
  if (op == "div") return single_op([](float a, float b) { return canonical(a / b); });
  // div.approx: for 2^126 < |b| < 2^128 the result is 0, or NaN when a is infinite (PTX ISA 9.7.3.9).
  if (op == "div.approx")
    return single_op([](float a, float b) {
      const float m = std::fabs(b), q = a / b;
      const bool huge = m > 0x1p126f && m < HUGE_VALF;
      const float tiny = std::fabs(a) < HUGE_VALF ? std::copysign(0.0f, q) : std::bit_cast<float>(kNan32);
      return canonical(huge ? tiny : q);
    });
  if (op == "rcp") return single_op([](float a) { return canonical(1.0f / a); });
  if (op == "sqrt") return single_op([](float a) { return canonical(__builtin_sqrtf(a)); });
  // abs and neg are additions on an H200: they make every NaN the canonical one.
  using N = uint32_t;
  static constexpr auto number = [](N a, N r) { return (a & 0x7fffffffu) > 0x7f800000u ? kNan32 : r; };
  if (op == "abs") return alu([](N a) -> N { return number(a, a & 0x7fffffffu); });
  if (op == "neg") return alu([](N a) -> N { return number(a, a ^ 0x80000000u); });
  if (op == "abs.ftz")
    return alu([](N a) -> N { return number(a, (a & 0x7f800000u) == 0 ? 0 : a & 0x7fffffffu); });
  if (op == "neg.ftz")
    return alu(
        [](N a) -> N { return number(a, ((a & 0x7f800000u) == 0 ? a & 0x80000000u : a) ^ 0x80000000u); });
  // copysign d, a, b: the sign of a, the magnitude of b (PTX ISA 9.7.3.2).
  if (op == "copysign") return alu([](N a, N b) -> N { return (a & 0x80000000u) | (b & 0x7fffffffu); });
  return nullptr;
}

Handler double_precision(std::string_view op) {
  if (op == "add") return fpu([](double a, double b) { return with_nan(a + b, b, a); });
  if (op == "sub") return fpu([](double a, double b) { return with_nan(a - b, b, a); });
  if (op == "mul") return fpu([](double a, double b) { return with_nan(a * b, b, a); });
  if (op == "fma")
    return fpu([](double a, double b, double c) { return with_nan(__builtin_fma(a, b, c), b, c, a); });
  if (op == "div") return fpu([](double a, double b) { return with_nan(a / b, a, b); });
  if (op == "rcp") return fpu([](double a) { return with_nan(1.0 / a, a); });
  if (op == "sqrt") return fpu([](double a) { return with_nan(__builtin_sqrt(a), a); });
  using N = uint64_t;
  constexpr N kSign = 0x8000000000000000ull;
  if (op == "abs") return alu([](N a) -> N { return a & ~kSign; });
  if (op == "neg") return alu([](N a) -> N { return a ^ kSign; });
  if (op == "copysign") return alu([](N a, N b) -> N { return (a & kSign) | (b & ~kSign); });
  return nullptr;
}

// f32x2: a row pair is float[64], element 0 of a lane first.
template <class F>
inline void pairs(uint32_t mask, float* d, F f) {
  if (full(mask)) {
#pragma GCC ivdep
    for (int i = 0; i < 2 * kLanes; ++i) d[i] = f(i);
  } else if (single(mask)) {
    const int i = 2 * std::countr_zero(mask);
    const float low = f(i), high = f(i + 1);
    d[i] = low;
    d[i + 1] = high;
  } else {
#pragma GCC ivdep
    for (int i = 0; i < 2 * kLanes; ++i) {
      const float value = f(i), old = d[i];
      d[i] = (mask >> (i >> 1)) & 1 ? value : old;
    }
  }
}
template <class F>
Step run_f32x2(Exec& x, const MicroOp& op) {
  x.set_mode(op.mode);
  const auto* a = lanes<float>(x.src(op.src[0]));
  const auto* b = lanes<float>(x.src(op.src[1]));
  auto* d = lanes<float>(x.dst(op.dst));
  if constexpr (std::is_invocable_v<F, float, float, float>) {
    const auto* c = lanes<float>(x.src(op.src[2]));
    pairs(x.mask, d, [=](int i) { return F{}(a[i], b[i], c[i]); });
  } else {
    pairs(x.mask, d, [=](int i) { return F{}(a[i], b[i]); });
  }
  if (op.flags & kSaturate) pairs(x.mask, d, [=](int i) { return saturated(d[i]); });
  return Step::Continue;
}
template <class F>
Handler packed_op(F) {
  return &run_f32x2<F>;
}
Handler packed_precision(std::string_view op) {
  if (op == "add") return packed_op([](float a, float b) { return canonical(a + b); });
  if (op == "sub") return packed_op([](float a, float b) { return canonical(a - b); });
  if (op == "mul") return packed_op([](float a, float b) { return canonical(a * b); });
  if (op == "fma")
    return packed_op([](float a, float b, float c) { return canonical(__builtin_fmaf(a, b, c)); });
  return nullptr;
}

// ---- 16-bit floats: exact in double, one rounding back (fma: rounded to odd first)
template <bool kBrain>
struct HalfFormat {
  static double widen(uint32_t v) {
    return kBrain ? bf16_to_f32(static_cast<uint16_t>(v)) : f16_to_f32(static_cast<uint16_t>(v));
  }
  static uint32_t narrow(double v) {
    return to_small(v, kBrain ? kBF16 : kF16, Rounding::NearestEven, false);
  }
  static constexpr uint32_t kExponent = kBrain ? 0x7f80 : 0x7c00;
};

template <bool kBrain, class F>
uint32_t half_element(uint32_t a, uint32_t b, uint32_t c, bool sat, bool ftz, bool relu) {
  using H = HalfFormat<kBrain>;
  const auto read = [ftz](uint32_t v) { return ftz && (v & H::kExponent) == 0 ? v & 0x8000u : v & 0xffffu; };
  const double value = F{}(H::widen(read(a)), H::widen(read(b)), H::widen(read(c)));
  uint32_t r = H::narrow(value);
  // Flushed is what would be below the smallest normal number when rounded to as many bits as that has.
  if (ftz && std::fabs(value) < (kBrain ? 0x1p-126 - 0x1p-135 : 0x1p-14 - 0x1p-26)) r &= 0x8000;
  if (sat) r = !(value > 0) ? 0 : value > 1 ? H::narrow(1.0) : r;
  if (relu && !(value != value) && (r & 0x8000)) r = 0;
  return r;
}
template <bool kBrain, bool kPair, class F>
Step run_half(Exec& x, const MicroOp& op) {
  x.set_mode(kModeDefault);
  const auto* a = x.src(op.src[0]).lane;
  const auto* b = x.src(op.src[1] == kNoRow ? op.src[0] : op.src[1]).lane;
  const auto* c = x.src(op.src[2] == kNoRow ? op.src[0] : op.src[2]).lane;
  const bool sat = op.flags & kSaturate, ftz = op.aux & 1, relu = op.aux & 2;
  auto* d = x.dst(op.dst).lane;
  for (uint32_t m = x.mask; m; m &= m - 1) {
    const int i = std::countr_zero(m);
    uint32_t r = half_element<kBrain, F>(a[i], b[i], c[i], sat, ftz, relu);
    if (kPair) r |= half_element<kBrain, F>(a[i] >> 16, b[i] >> 16, c[i] >> 16, sat, ftz, relu) << 16;
    d[i] = r;
  }
  return Step::Continue;
}
template <bool kBrain, class F>
Handler half_op(bool pair, F) {
  return pair ? &run_half<kBrain, true, F> : &run_half<kBrain, false, F>;
}
template <bool kBrain>
Handler half_precision(std::string_view op, bool pair) {
  if (op == "add") return half_op<kBrain>(pair, [](double a, double b, double) { return a + b; });
  if (op == "sub") return half_op<kBrain>(pair, [](double a, double b, double) { return a - b; });
  if (op == "mul") return half_op<kBrain>(pair, [](double a, double b, double) { return a * b; });
  if (op == "fma")
    return half_op<kBrain>(pair, [](double a, double b, double c) { return fma_to_odd(a, b, c); });
  using N = uint32_t;
  // As for f32, every NaN becomes the canonical one.
  static constexpr auto element = [](N a, N r) -> N {
    return (a & 0x7fff) > HalfFormat<kBrain>::kExponent ? 0x7fff : r & 0xffff;
  };
  if (op == "abs")
    return pair ? alu([](N a) -> N {
      return element(a >> 16, a >> 16 & 0x7fff) << 16 | element(a, a & 0x7fff);
    })
                : alu([](N a) -> N { return element(a, a & 0x7fff); });
  if (op == "neg")
    return pair ? alu([](N a) -> N {
      return element(a >> 16, a >> 16 ^ 0x8000) << 16 | element(a, a ^ 0x8000);
    })
                : alu([](N a) -> N { return element(a, a ^ 0x8000); });
  return nullptr;
}

// ---- mixed precision
template <bool kBrain, class F>
Step run_mixed(Exec& x, const MicroOp& op) {
  const auto widen = [](uint32_t v) {
    return kBrain ? bf16_to_f32(static_cast<uint16_t>(v)) : f16_to_f32(static_cast<uint16_t>(v));
  };
  const bool three = op.src[2] != kNoRow;
  x.set_mode(kModeDefault);
  Row wide_a, wide_b;
  const auto* a = x.src(op.src[0]).lane;
  const auto* b = x.src(op.src[1]).lane;
  for (int i = 0; i < kLanes; ++i) wide_a.lane[i] = std::bit_cast<uint32_t>(widen(a[i]));
  for (int i = 0; i < kLanes; ++i) wide_b.lane[i] = three ? std::bit_cast<uint32_t>(widen(b[i])) : 0;
  x.set_mode(op.mode);
  const auto *p = lanes<float>(wide_a), *q = lanes<float>(wide_b);
  const auto* c = lanes<float>(x.src(three ? op.src[2] : op.src[1]));
  for_lanes<float>(x.mask, lanes<float>(x.dst(op.dst)), [=](int i) { return F{}(p[i], q[i], c[i]); });
  return saturate_after(x, op, Step::Continue);
}
template <class F>
Handler mixed_op(bool brain, F) {
  return brain ? &run_mixed<true, F> : &run_mixed<false, F>;
}

// ---- minimum and maximum: a NaN loses unless .NaN; -0 < +0
template <bool kMax, bool kNan>
inline float pick(float a, float b) {
  const uint32_t ua = std::bit_cast<uint32_t>(a), ub = std::bit_cast<uint32_t>(b);
  // Equal values differ at most in the sign of zero: and keeps the plus for max, or the minus for min.
  const float equal = std::bit_cast<float>(kMax ? ua & ub : ua | ub);
  float r = kMax ? (a > b ? a : b) : (a < b ? a : b);
  r = a == b ? equal : r;
  if (kNan) return a == a && b == b ? r : std::bit_cast<float>(kNan32);
  r = a == a ? r : b;
  r = b == b ? r : a;
  return canonical(r);
}
template <bool kFtz, bool kAbs>
inline float prepared(float v) {
  if (kFtz) v = flush(v);
  return kAbs ? std::bit_cast<float>(std::bit_cast<uint32_t>(v) & 0x7fffffffu) : v;
}
template <bool kMax, bool kNan, bool kFtz>
Step min_max_2(Exec& x, const MicroOp& op) {
  x.set_mode(kModeDefault);
  const auto* a = lanes<float>(x.src(op.src[0]));
  const auto* b = lanes<float>(x.src(op.src[1]));
  for_lanes<float>(x.mask, lanes<float>(x.dst(op.dst)), [=](int i) {
    return pick<kMax, kNan>(prepared<kFtz, false>(a[i]), prepared<kFtz, false>(b[i]));
  });
  return Step::Continue;
}
template <bool kMax, bool kNan, bool kFtz>
Step min_max_xorsign(Exec& x, const MicroOp& op) {
  x.set_mode(kModeDefault);
  const auto* a = lanes<float>(x.src(op.src[0]));
  const auto* b = lanes<float>(x.src(op.src[1]));
  for_lanes<float>(x.mask, lanes<float>(x.dst(op.dst)), [=](int i) {
    const uint32_t sign = (std::bit_cast<uint32_t>(static_cast<float>(a[i])) ^
                           std::bit_cast<uint32_t>(static_cast<float>(b[i]))) &
                          0x80000000u;
    const float r = pick<kMax, kNan>(prepared<kFtz, true>(a[i]), prepared<kFtz, true>(b[i]));
    return r == r ? std::bit_cast<float>(std::bit_cast<uint32_t>(r) | sign) : r;
  });
  return Step::Continue;
}
template <bool kMax, bool kNan, bool kFtz, bool kAbs>
Step min_max_3(Exec& x, const MicroOp& op) {
  x.set_mode(kModeDefault);
  const auto* a = lanes<float>(x.src(op.src[0]));
  const auto* b = lanes<float>(x.src(op.src[1]));
  const auto* c = lanes<float>(x.src(op.src[2]));
  for_lanes<float>(x.mask, lanes<float>(x.dst(op.dst)), [=](int i) {
    return pick<kMax, kNan>(pick<kMax, kNan>(prepared<kFtz, kAbs>(a[i]), prepared<kFtz, kAbs>(b[i])),
                            prepared<kFtz, kAbs>(c[i]));
  });
  return Step::Continue;
}
template <bool kMax>
Step min_max_double(Exec& x, const MicroOp& op) {
  x.set_mode(kModeDefault);
  const auto* a = lanes<double>(x.src(op.src[0]));
  const auto* b = lanes<double>(x.src(op.src[1]));
  for_lanes<double>(x.mask, lanes<double>(x.dst(op.dst)), [=](int i) {
    const double u = a[i], v = b[i];
    if (u != u) return v == v ? v : quiet(v);
    if (v != v || (u == v && std::signbit(u) != kMax)) return u;
    return (kMax ? u > v : u < v) ? u : v;
  });
  return Step::Continue;
}
template <bool kMax, bool kNan, bool kBrain, bool kPair>
Step min_max_half(Exec& x, const MicroOp& op) {
  using H = HalfFormat<kBrain>;
  x.set_mode(kModeDefault);
  const bool ftz = op.aux & 1, xorsign = op.aux & 2;
  const auto element = [=](uint32_t a, uint32_t b) {
    const auto read = [=](uint32_t v) { return ftz && (v & H::kExponent) == 0 ? v & 0x8000u : v & 0xffffu; };
    a = read(a), b = read(b);
    const uint32_t sign = (a ^ b) & 0x8000;
    if (xorsign) a &= 0x7fff, b &= 0x7fff;
    const float r = pick<kMax, kNan>(static_cast<float>(H::widen(a)), static_cast<float>(H::widen(b)));
    if (r != r) return uint32_t{0x7fff};
    return H::narrow(r) | (xorsign ? sign : 0);
  };
  const auto* a = x.src(op.src[0]).lane;
  const auto* b = x.src(op.src[1]).lane;
  auto* d = x.dst(op.dst).lane;
  for (uint32_t m = x.mask; m; m &= m - 1) {
    const int i = std::countr_zero(m);
    uint32_t r = element(a[i], b[i]);
    if (kPair) r |= element(a[i] >> 16, b[i] >> 16) << 16;
    d[i] = r;
  }
  return Step::Continue;
}

template <bool kMax, bool kNan>
Handler min_max_for(bool absolute, bool xorsign, bool three, bool ftz, ptx::Type type) {
  using ptx::Type;
  switch (type) {
    case Type::F64:
      return !kNan && !absolute && !ftz ? &min_max_double<kMax> : nullptr;
    case Type::F16:
      return &min_max_half<kMax, kNan, false, false>;
    case Type::F16x2:
      return &min_max_half<kMax, kNan, false, true>;
    case Type::BF16:
      return &min_max_half<kMax, kNan, true, false>;
    case Type::BF16x2:
      return &min_max_half<kMax, kNan, true, true>;
    case Type::F32:
      if (three && absolute)
        return ftz ? &min_max_3<kMax, kNan, true, true> : &min_max_3<kMax, kNan, false, true>;
      if (three) return ftz ? &min_max_3<kMax, kNan, true, false> : &min_max_3<kMax, kNan, false, false>;
      if (xorsign) return ftz ? &min_max_xorsign<kMax, kNan, true> : &min_max_xorsign<kMax, kNan, false>;
      return ftz ? &min_max_2<kMax, kNan, true> : &min_max_2<kMax, kNan, false>;
    default:
      return nullptr;
  }
}

}  // namespace

namespace handlers {

Handler floating(std::string_view op, Type type) {
  switch (type) {
    case Type::F32:
      return single_precision(op);
    case Type::F64:
      return double_precision(op);
    case Type::F32x2:
      return packed_precision(op);
    default:
      return nullptr;
  }
}

Handler half(std::string_view op, Type type) {
  const bool pair = type == Type::F16x2 || type == Type::BF16x2;
  return type == Type::BF16 || type == Type::BF16x2 ? half_precision<true>(op, pair)
                                                    : half_precision<false>(op, pair);
}

Handler mixed(std::string_view op, Type narrow) {
  const bool brain = narrow == Type::BF16;
  if (op == "add") return mixed_op(brain, [](float a, float, float c) { return canonical(a + c); });
  if (op == "sub") return mixed_op(brain, [](float a, float, float c) { return canonical(a - c); });
  return mixed_op(brain, [](float a, float b, float c) { return canonical(__builtin_fmaf(a, b, c)); });
}

Handler min_max(bool maximum, bool nan, bool absolute, bool xorsign, bool three, bool ftz, Type type) {
  if (maximum)
    return nan ? min_max_for<true, true>(absolute, xorsign, three, ftz, type)
               : min_max_for<true, false>(absolute, xorsign, three, ftz, type);
  return nan ? min_max_for<false, true>(absolute, xorsign, three, ftz, type)
             : min_max_for<false, false>(absolute, xorsign, three, ftz, type);
}

}  // namespace handlers
}  // namespace mxfa::emulator
