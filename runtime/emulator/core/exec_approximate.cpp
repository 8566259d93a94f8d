// Approximate functions (PTX ISA 9.7.3.16 and following).  Their bit patterns are not public; these return
// the (nearly) correctly rounded value, which every documented error bound allows.
#include <algorithm>
#include <cmath>

#include "core/exec.hpp"
#include "core/formats.hpp"
#include "core/handlers.hpp"

namespace mxfa::emulator {
namespace {

inline double multiply_add(double a, double b, double c) {
#ifdef __FMA__
  return __builtin_fma(a, b, c);
#else
  return a * b + c;
#endif
}

// 2^x through double: x = n + r, |r| <= 1/2, Taylor series of 2^r to degree 10 (relative error below 2^-42).
// Limits and NaN go by the bits: gcc makes branches of floating-point conditions, and then no vectors.
inline float exp2_lane(float x) {
  constexpr double kMagic =
      0x1.8p52;  // adding it rounds to an integer and leaves that integer in the low bits
  const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & 0x7fffffffu;
  // Beyond 200 the result is 0 or infinity anyway; that of a NaN is replaced below.
  const uint32_t limited = std::min(magnitude, std::bit_cast<uint32_t>(200.0f)) | (bits & 0x80000000u);
  double t = std::bit_cast<float>(limited);
  // An H200 cuts the argument to 23 fractional bits first: 2^x is 1 for |x| below 2^-23 (tests/silicon).
  t = static_cast<double>(static_cast<int32_t>(t * 0x1p23)) * 0x1p-23;  // 200 * 2^23 < 2^31
  const double shifted = t + kMagic, n = shifted - kMagic, r = t - n;
  double p = 7.0549116208011233e-9;  // ln(2)^10 / 10!
  p = multiply_add(p, r, 1.0178086009239699e-7);
  p = multiply_add(p, r, 1.3215486790144307e-6);
  p = multiply_add(p, r, 1.5252733804059841e-5);
  p = multiply_add(p, r, 1.5403530393381608e-4);
  p = multiply_add(p, r, 1.3333558146428443e-3);
  p = multiply_add(p, r, 9.6181291076284772e-3);
  p = multiply_add(p, r, 5.5504108664821580e-2);
  p = multiply_add(p, r, 2.4022650695910072e-1);
  p = multiply_add(p, r, 6.9314718055994531e-1);
  p = multiply_add(p, r, 1.0);
  const uint64_t exponent = (std::bit_cast<uint64_t>(shifted) + 1023)
                            << 52;  // the low bits of `shifted` are n
  const float result = static_cast<float>(p * std::bit_cast<double>(exponent));
  const uint32_t nan = 0u - static_cast<uint32_t>(magnitude > 0x7f800000u);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(result) | (nan & kNan32));  // of 0 or infinity
}

template <bool kFtz, class F>
Step run(Exec& x, const MicroOp& op) {
  x.set_mode(kModeDefault);
  const auto* a = lanes<float>(x.src(op.src[0]));
  for_lanes<float>(x.mask, lanes<float>(x.dst(op.dst)), [=](int i) {
    const float r = F{}(kFtz ? flush(a[i]) : static_cast<float>(a[i]));
    return kFtz ? flush(r) : r;
  });
  return Step::Continue;
}
// Functions of the C library: only for the lanes that need them.
template <bool kFtz, class F>
Step run_scalar(Exec& x, const MicroOp& op) {
  x.set_mode(kModeDefault);
  const auto* a = lanes<float>(x.src(op.src[0]));
  auto* d = lanes<float>(x.dst(op.dst));
  for (uint32_t m = x.mask; m; m &= m - 1) {
    const int i = std::countr_zero(m);
    const float r = canonical(
        static_cast<float>(F{}(static_cast<double>(kFtz ? flush(a[i]) : static_cast<float>(a[i])))));
    d[i] = kFtz ? flush(r) : r;
  }
  return Step::Continue;
}
template <class F>
Handler vectorised(bool ftz, F) {
  return ftz ? &run<true, F> : &run<false, F>;
}
template <class F>
Handler scalar(bool ftz, F) {
  return ftz ? &run_scalar<true, F> : &run_scalar<false, F>;
}

// The approximate double forms give the upper 32 bits of the result; the lower are zero (PTX ISA 9.7.3.12).
template <class F>
Step run_double(Exec& x, const MicroOp& op) {
  x.set_mode(kModeDefault | kModeFtz);
  const auto* a = lanes<double>(x.src(op.src[0]));
  auto* d = lanes<double>(x.dst(op.dst));
  for (uint32_t m = x.mask; m; m &= m - 1) {
    const int i = std::countr_zero(m);
    d[i] = std::bit_cast<double>(std::bit_cast<uint64_t>(canonical(F{}(a[i]))) & 0xffffffff00000000ull);
  }
  return Step::Continue;
}
template <class F>
Handler double_op(F) {
  return &run_double<F>;
}

template <bool kBrain, bool kPair, bool kExp>
Step run_half(Exec& x, const MicroOp& op) {
  x.set_mode(kModeDefault);
  const auto element = [](uint32_t v) {
    float in = kBrain ? bf16_to_f32(static_cast<uint16_t>(v)) : f16_to_f32(static_cast<uint16_t>(v));
    if (kBrain && kExp) in = flush(in);  // ex2.approx.ftz.bf16
    const float r = kExp ? exp2_lane(in) : std::tanh(in);
    // An H200 cuts the bits off that do not fit (tests/silicon); what is too large for f16 is infinite.
    const auto rounding = !kBrain && r >= 0x1p16f ? Rounding::NearestEven : Rounding::Zero;
    const uint32_t bits = to_small(r, kBrain ? kBF16 : kF16, rounding, false);
    return kBrain && kExp && (bits & 0x7f80) == 0 ? bits & 0x8000 : bits;
  };
  const auto* a = x.src(op.src[0]).lane;
  auto* d = x.dst(op.dst).lane;
  for (uint32_t m = x.mask; m; m &= m - 1) {
    const int i = std::countr_zero(m);
    uint32_t r = element(a[i] & 0xffff);
    if (kPair) r |= element(a[i] >> 16) << 16;
    d[i] = r;
  }
  return Step::Continue;
}

}  // namespace

namespace handlers {

Handler approximate(std::string_view op, Type type, bool ftz) {
  const bool exponential = op == "ex2";
  switch (type) {
    case Type::F16:
      return ftz ? nullptr : exponential ? &run_half<false, false, true> : &run_half<false, false, false>;
    case Type::F16x2:
      return ftz ? nullptr : exponential ? &run_half<false, true, true> : &run_half<false, true, false>;
    case Type::BF16:
      return exponential != ftz ? nullptr
             : exponential      ? &run_half<true, false, true>
                                : &run_half<true, false, false>;
    case Type::BF16x2:
      return exponential != ftz ? nullptr
             : exponential      ? &run_half<true, true, true>
                                : &run_half<true, true, false>;
    case Type::F64:
      if (op == "rcp" && ftz) return double_op([](double v) { return 1.0 / v; });
      if (op == "rsqrt") return double_op([](double v) { return 1.0 / std::sqrt(v); });
      return nullptr;
    case Type::F32:
      break;
    default:
      return nullptr;
  }
  if (op == "ex2") return vectorised(ftz, [](float v) { return exp2_lane(v); });
  if (op == "rcp")
    return vectorised(ftz,
                      [](float v) { return canonical(static_cast<float>(1.0 / static_cast<double>(v))); });
  if (op == "sqrt")
    return vectorised(
        ftz, [](float v) { return canonical(static_cast<float>(__builtin_sqrt(static_cast<double>(v)))); });
  if (op == "rsqrt")
    return vectorised(ftz, [](float v) {
      return canonical(static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(v))));
    });
  if (op == "lg2") return scalar(ftz, [](double v) { return std::log2(v); });
  if (op == "sin") return scalar(ftz, [](double v) { return std::sin(v); });
  if (op == "cos") return scalar(ftz, [](double v) { return std::cos(v); });
  if (op == "tanh") return ftz ? nullptr : scalar(false, [](double v) { return std::tanh(v); });
  return nullptr;
}

}  // namespace handlers
}  // namespace mxfa::emulator
