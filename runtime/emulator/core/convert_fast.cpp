// The conversions that kernels live on, vectorised: bfloat16, half, FP8 and 32-bit integers.
#include "core/convert_fast.hpp"

#include "core/exec.hpp"
#include "core/formats.hpp"

namespace mxfa::emulator {
namespace {

using handlers::Conversion;
using ptx::Type;

bool integer_type(Type t) { return ptx::is_integer(t); }

template <class F>
Step default_mode(Exec& x, const MicroOp& op) {
  x.set_mode(kModeDefault);
  return detail::run_alu<F>(x, op);
}
template <class F>
Handler fast(F) {
  return &default_mode<F>;
}
template <class F>
Step by_mode(Exec& x, const MicroOp& op) {
  return detail::run_fpu<F>(x, op);
}
template <class F>
Handler rounded(F) {
  return &by_mode<F>;
}

inline uint32_t half_from_single(
    float v) {  // RNE, vectorisable: normals by integer rounding, subnormals by a magic addition
  const uint32_t u = std::bit_cast<uint32_t>(v), sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffff;
  const uint32_t normal = (magnitude + 0xfff + (magnitude >> 13 & 1) - (112u << 23)) >> 13;
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;  // ulp of 0.5 is 2^-24
  uint32_t r = magnitude < 0x38800000u ? subnormal : normal;
  r = magnitude >= 0x477ff000u ? 0x7c00u : r;
  r = magnitude > 0x7f800000u ? 0x7fffu : r | sign;
  return r;
}
inline uint32_t e4m3_from_single(float v) {
  const uint32_t u = std::bit_cast<uint32_t>(v), sign = u >> 24 & 0x80, magnitude = u & 0x7fffffff;
  const uint32_t normal = ((magnitude + 0x7ffff + (magnitude >> 20 & 1)) >> 20) - (120u << 3);
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 16384.0f) -
                             0x46800000u;  // ulp of 2^14 is 2^-9
  uint32_t r = magnitude < 0x3c800000u ? subnormal : normal;
  r = magnitude >= 0x43e00000u ? 0x7eu : r;  // 448 and above
  r = r > 0x7eu ? 0x7eu : r;
  return magnitude > 0x7f800000u ? 0x7fu : r | sign;
}
inline uint32_t e5m2_from_single(float v) {
  const uint32_t u = std::bit_cast<uint32_t>(v), sign = u >> 24 & 0x80, magnitude = u & 0x7fffffff;
  const uint32_t normal = ((magnitude + 0xfffff + (magnitude >> 21 & 1)) >> 21) - (112u << 2);
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 128.0f) - 0x43000000u;  // ulp of 2^7 is 2^-16
  uint32_t r = magnitude < 0x38800000u ? subnormal : normal;
  r = magnitude >= 0x47600000u ? 0x7bu : r;  // 57344 and above
  r = r > 0x7bu ? 0x7bu : r;
  return magnitude > 0x7f800000u ? 0x7fu : r | sign;
}

}  // namespace

Handler fast_conversion(const Conversion& c) {
  using N = uint32_t;
  using W = uint64_t;
  const bool plain = !c.ftz && !c.saturate && !c.relu && !c.satfinite;
  if (plain && c.to == Type::F32 && c.from == Type::BF16)
    return alu([](N a) -> N { return a << 16; });  // NaN too keeps its bits
  if (plain && c.to == Type::F32 && c.from == Type::F16)
    return fast([](N a) -> float { return canonical(f16_to_f32(static_cast<uint16_t>(a))); });
  const bool rn = c.rounding == "rn";
  if (plain && rn && c.from == Type::F32) {
    if (c.to == Type::BF16) return alu([](float a) -> N { return f32_to_bf16(a); });
    if (c.to == Type::BF16x2)
      return alu([](float a, float b) -> N { return static_cast<N>(f32_to_bf16(a)) << 16 | f32_to_bf16(b); });
    if (c.to == Type::F16) return fast([](float a) -> N { return half_from_single(a); });
    if (c.to == Type::F16x2)
      return fast([](float a, float b) -> N { return half_from_single(a) << 16 | half_from_single(b); });
  }
  if (rn && c.from == Type::F32 && c.satfinite && !c.relu && !c.ftz && !c.saturate) {
    if (c.to == Type::E4M3x2)
      return fast([](float a, float b) -> N { return e4m3_from_single(a) << 8 | e4m3_from_single(b); });
    if (c.to == Type::E5M2x2)
      return fast([](float a, float b) -> N { return e5m2_from_single(a) << 8 | e5m2_from_single(b); });
  }
  if (plain && rn) {
    if (c.to == Type::F32 && c.from == Type::S32)
      return rounded([](int32_t a) -> float { return static_cast<float>(a); });
    if (c.to == Type::F32 && c.from == Type::U32)
      return rounded([](N a) -> float { return static_cast<float>(static_cast<double>(a)); });
    if (c.to == Type::F32 && c.from == Type::F64)
      return rounded([](double a) -> float { return static_cast<float>(a); });  // NaN keeps its payload
  }
  if (plain && c.to == Type::F64 && c.from == Type::F32)
    return fast([](float a) -> double { return static_cast<double>(a); });
  if (!c.saturate && integer_type(c.to) && integer_type(c.from)) {
    const uint32_t to = ptx::bits(c.to), from = ptx::bits(c.from);
    if (to == 64 && from == 32)
      return c.from == Type::S32 ? alu([](int32_t a) -> W { return static_cast<W>(static_cast<int64_t>(a)); })
                                 : alu([](N a) -> W { return a; });
    if (to == 32 && from == 64) return alu([](W a) -> N { return static_cast<N>(a); });
    if (to == 32 && from == 32) return alu([](N a) -> N { return a; });
    if (to == 32 && from == 16)
      return ptx::is_signed(c.from)
                 ? alu([](int16_t a) -> N { return static_cast<N>(static_cast<int32_t>(a)); })
                 : alu([](uint16_t a) -> N { return a; });
    if (to == 16 && from == 32) return alu([](N a) -> N { return a & 0xffff; });
  }
  // Saturating to the integer range is what the conversion does anyway, so .sat changes nothing for floats.
  if (c.from == Type::F32 && c.to == Type::S32 && !c.ftz)
    if (c.rounding == "rzi")
      return fast([](float a) -> int32_t {
        const double v = a == a ? static_cast<double>(a) : 0.0;
        return static_cast<int32_t>(v < -0x1p31 ? -0x1p31 : v > 0x1.fffffffcp30 ? 0x1.fffffffcp30 : v);
      });
  return nullptr;
}

bool fast_conversion_fits(const Conversion& c, uint32_t source_bits, uint32_t destination_bits) {
  return (source_bits > 32) == (ptx::bits(c.from) > 32) &&
         (destination_bits > 32) == (ptx::bits(c.to) > 32) &&
         (!integer_type(c.to) || destination_bits == ptx::bits(c.to));
}

}  // namespace mxfa::emulator
