// cvt.pack (PTX ISA 9.7.9.22) and cvt with stochastic rounding (9.7.9.21).
#include <algorithm>
#include <cmath>

#include "core/exec.hpp"
#include "core/formats.hpp"
#include "core/handlers.hpp"

namespace mxfa::emulator {
namespace {

using ptx::Type;

// src0 a, src1 b, src2 c or kNoRow; aux: bits of an element; flags: kOption = signed.  The low half of what
// is packed is b, the next a, above them the low bits of c.
Step pack_integers(Exec& x, const MicroOp& op) {
  const uint32_t width = op.aux;
  const bool is_signed = op.flags & kOption;
  const int32_t low = is_signed ? -(1 << (width - 1)) : 0,
                high = is_signed ? (1 << (width - 1)) - 1 : (1 << width) - 1;
  const uint32_t keep = (1u << width) - 1;
  const auto* a = reinterpret_cast<const int32_t*>(x.src(op.src[0]).lane);
  const auto* b = reinterpret_cast<const int32_t*>(x.src(op.src[1]).lane);
  const uint32_t* c = op.src[2] == kNoRow ? nullptr : x.src(op.src[2]).lane;
  for_lanes<uint32_t>(x.mask, x.dst(op.dst).lane, [=](int i) {
    const auto element = [&](int32_t v) { return static_cast<uint32_t>(std::clamp(v, low, high)) & keep; };
    const uint32_t pair = element(a[i]) << width | element(b[i]);
    return c ? c[i] << 2 * width | pair : pair;
  });
  return Step::Continue;
}

const SmallFormat& format_of(Type t) {
  switch (t) {
    case Type::F16x2:
      return kF16;
    case Type::BF16x2:
      return kBF16;
    case Type::E4M3x4:
      return kE4M3;
    case Type::E5M2x4:
      return kE5M2;
    case Type::E2M3x4:
      return kE2M3;
    case Type::E3M2x4:
      return kE3M2;
    default:
      return kE2M1;
  }
}

// Away from zero when the random bits, added to the bits of the magnitude that the format drops, carry.
uint32_t round_stochastic(float value, const SmallFormat& f, uint32_t random, int random_bits, bool satfinite,
                          bool relu) {
  const uint32_t sign = 1u << (f.exponent_bits + f.mantissa_bits);
  if (value != value) return f.nan;
  if (relu && std::signbit(value)) return 0;
  uint32_t r;
  if (std::isinf(value)) {
    r = satfinite ? f.max_finite : f.infinity;
  } else {
    const int exponent = value == 0 ? 1 - f.bias : std::max(std::ilogb(value), 1 - f.bias);
    const int unit = exponent - f.mantissa_bits;  // exponent of the last place that is kept
    const double scaled = std::ldexp(std::fabs(static_cast<double>(value)), random_bits - unit);
    const double places = std::floor(std::ldexp(std::floor(scaled) + random, -random_bits));
    r = to_small(std::ldexp(places, unit), f, Rounding::NearestEven, satfinite);
  }
  return std::signbit(value) ? r | sign : r;
}

// List: elements, the most significant first, then the random bits.  imm: destination type; flags: kSaturate
// = .satfinite, kOption = .relu.
Step convert_stochastic(Exec& x, const MicroOp& op) {
  x.set_mode(kModeDefault);
  const auto to = static_cast<Type>(op.imm);
  const SmallFormat& f = format_of(to);
  const uint32_t elements = op.count - 1u;
  // Two elements have 16 random bits each (f16 uses 13 of them: what it drops of a normal number), four have
  // 8 each.
  const int width = elements == 2        ? 16
                    : to == Type::E2M1x4 ? 4
                                         : 8,
            share = 32 / static_cast<int>(elements),
            random_bits = to == Type::F16x2 ? 13
                          : elements == 2   ? 16
                                            : 8;
  auto* d = x.dst(op.dst).lane;
  for (uint32_t m = x.mask; m; m &= m - 1) {
    const int i = std::countr_zero(m);
    const uint32_t random = x.src(x.lists[op.list + elements]).lane[i];
    uint32_t result = 0;
    for (uint32_t k = 0; k < elements; ++k) {
      const int place = static_cast<int>(elements - 1 - k);
      const uint32_t own = random >> (share * place) & ((1u << random_bits) - 1);
      result |= round_stochastic(std::bit_cast<float>(x.src(x.lists[op.list + k]).lane[i]), f, own,
                                 random_bits, op.flags & kSaturate, op.flags & kOption)
                << (width * place);
    }
    d[i] = result;
  }
  return Step::Continue;
}

}  // namespace

namespace handlers {

Handler convert_pack_integers() { return &pack_integers; }
Handler convert_stochastic() { return &mxfa::emulator::convert_stochastic; }

}  // namespace handlers
}  // namespace mxfa::emulator
