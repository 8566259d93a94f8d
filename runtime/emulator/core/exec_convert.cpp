// cvt (PTX ISA 9.7.9.21): between all integer and float types, one value at a time.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/convert_fast.hpp"
#include "core/exec.hpp"
#include "core/formats.hpp"
#include "core/handlers.hpp"

namespace mxfa::emulator {
namespace {

using handlers::Conversion;
using ptx::Type;

// Parameters in the micro-operation.  imm: bits 0-7 source type, 8-15 destination type, 16-19 rounding, 20
// ftz, 21 sat, 22 relu, 23 satfinite, 24 the source row has 64 bits, 25 the destination row has 64 bits. aux:
// bits to keep of a 32-bit destination row.
struct Parameters {
  Type from, to;
  Rounding rounding;
  bool to_integral, ftz, saturate, relu, satfinite, wide_source, wide_destination;
  explicit Parameters(int64_t imm)
      : from(static_cast<Type>(imm & 0xff)),
        to(static_cast<Type>(imm >> 8 & 0xff)),
        rounding(static_cast<Rounding>(imm >> 16 & 7)),
        to_integral(imm >> 19 & 1),
        ftz(imm >> 20 & 1),
        saturate(imm >> 21 & 1),
        relu(imm >> 22 & 1),
        satfinite(imm >> 23 & 1),
        wide_source(imm >> 24 & 1),
        wide_destination(imm >> 25 & 1) {}
};

bool integer_type(Type t) { return ptx::is_integer(t); }

const SmallFormat* small_format(Type t) {
  switch (t) {
    case Type::F16:
    case Type::F16x2:
      return &kF16;
    case Type::BF16:
    case Type::BF16x2:
      return &kBF16;
    case Type::E4M3x2:
      return &kE4M3;
    case Type::E5M2x2:
      return &kE5M2;
    case Type::E2M1x2:
      return &kE2M1;
    case Type::E2M3x2:
      return &kE2M3;
    case Type::E3M2x2:
      return &kE3M2;
    default:
      return nullptr;
  }
}

// ---- scalar conversion of one value

// Exact value of an integer, or a double rounded to odd when it has more than 53 bits: later rounding to
// fewer bits stays exact.
double integer_to_odd(uint64_t raw, bool is_signed) {
  const bool negative = is_signed && static_cast<int64_t>(raw) < 0;
  const uint64_t magnitude = negative ? 0 - raw : raw;
  const int excess = std::max(0, 53 - std::countl_zero(magnitude | 1) + 11 - 53);
  uint64_t kept = magnitude >> excess;
  if (kept << excess != magnitude) kept |= 1;
  const double value = std::ldexp(static_cast<double>(kept), excess);
  return negative ? -value : value;
}

double round_integral(double v, Rounding r) {
  switch (r) {
    case Rounding::Zero:
      return std::trunc(v);
    case Rounding::Down:
      return std::floor(v);
    case Rounding::Up:
      return std::ceil(v);
    default:
      return std::nearbyint(v);
  }
}

uint64_t to_integer(double v, Type from, Type to, Rounding rounding) {
  const uint32_t width = ptx::bits(to);
  if (v != v) return width == 64 ? 0x8000000000000000ull : from == Type::F64 && width == 32 ? 0x80000000u : 0;
  v = round_integral(v, rounding);
  if (ptx::is_signed(to)) {
    const double limit = std::ldexp(1.0, static_cast<int>(width) - 1);
    if (v >= limit) return (uint64_t{1} << (width - 1)) - 1;
    if (v < -limit) return 0 - (uint64_t{1} << (width - 1));
    return static_cast<uint64_t>(static_cast<int64_t>(v));
  }
  if (v <= 0) return 0;
  if (v >= std::ldexp(1.0, static_cast<int>(width)))
    return width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
  return static_cast<uint64_t>(v);
}

// double to float under any rounding, without touching the machine's mode.
uint32_t to_single(double v, Rounding rounding) {
  static constexpr SmallFormat kSingle{8, 23, 127, 0x7f7fffff, 0x7f800000, kNan32};
  return to_small(v, kSingle, rounding, false);
}

uint32_t to_ue8m0(double v, Rounding rounding, bool satfinite) {
  if (v != v) return 0xff;
  v = std::fabs(v);
  if (v > std::numeric_limits<double>::max()) return satfinite ? 0xfe : 0xff;
  if (v <= 0x1p-127) return 0;
  int exponent;
  const double fraction = std::frexp(v, &exponent);  // v = fraction * 2^exponent, fraction in [0.5, 1)
  int biased = exponent - 1 + 127;
  if (rounding == Rounding::Up && fraction != 0.5) ++biased;
  if (biased > 254) return satfinite ? 0xfe : 0xff;
  return static_cast<uint32_t>(std::max(biased, 0));
}

uint64_t read_row(const Row& row, int lane, bool wide) {
  return wide ? lanes<uint64_t>(row)[lane] : lanes<uint32_t>(row)[lane];
}

double read_float(uint64_t raw, const Parameters& p) {
  switch (p.from) {
    case Type::F32: {
      const float f = std::bit_cast<float>(static_cast<uint32_t>(raw));
      return p.ftz ? flush(f) : f;
    }
    case Type::F64:
      return std::bit_cast<double>(raw);
    case Type::F16:
      return f16_to_f32(static_cast<uint16_t>(raw));
    default:
      return bf16_to_f32(static_cast<uint16_t>(raw));
  }
}

// NaN of conversions that pass the payload on: between f32 and f64 it is made quiet, on the way to tf32 bits
// are cut off, so that a NaN can become infinity (an H200's answers; tests/silicon).
bool keeps_payload(const Parameters& p) {
  if (p.saturate) return false;
  return (p.to == Type::F64 && p.from == Type::F32) || (p.to == Type::F32 && p.from == Type::F64) ||
         p.to == Type::TF32;
}
uint64_t nan_payload(uint64_t raw, const Parameters& p) {
  if (p.to == Type::TF32) return p.rounding == Rounding::NearestAway ? raw & 0xffffe000u : 0x7fffe000u;
  if (p.to == Type::F64) return (raw & 0x80000000u) << 32 | 0x7ff8000000000000ull | (raw & 0x007fffffu) << 29;
  return (raw >> 32 & 0x80000000u) | 0x7fc00000u | (raw >> 29 & 0x007fffffu);
}

uint64_t write_float(double v, const Parameters& p) {
  if (p.saturate) v = v > 0 ? std::min(v, 1.0) : 0.0;
  switch (p.to) {
    case Type::F64:
      return std::bit_cast<uint64_t>(canonical(v));
    case Type::F32: {
      uint32_t r = to_single(v, p.rounding);
      if (p.ftz && (r & 0x7f800000) == 0) r &= 0x80000000;
      return r;
    }
    case Type::TF32: {
      uint32_t r = to_small(v, kTF32, p.rounding, p.satfinite) << 13;
      if (p.relu && v == v && (r >> 31)) r = 0;
      return r;
    }
    default: {
      uint32_t r = to_small(v, *small_format(p.to), p.rounding, p.satfinite);
      if (p.relu && v == v && (r & 0x8000)) r = 0;
      return r;
    }
  }
}

// Everything that has one source value and one result.
Step convert_any(Exec& x, const MicroOp& op) {
  x.set_mode(kModeDefault);
  const Parameters p(op.imm);
  const Row& source = x.src(op.src[0]);
  Row& d = x.dst(op.dst);
  const uint32_t from_bits = ptx::bits(p.from);
  for (uint32_t m = x.mask; m; m &= m - 1) {
    const int i = std::countr_zero(m);
    uint64_t raw = read_row(source, i, p.wide_source), result;
    if (integer_type(p.from)) {
      if (from_bits < 64) {
        raw <<= 64 - from_bits;
        raw = ptx::is_signed(p.from) ? static_cast<uint64_t>(static_cast<int64_t>(raw) >> (64 - from_bits))
                                     : raw >> (64 - from_bits);
      }
      if (integer_type(p.to)) {
        result = raw;
        if (p.saturate) {
          const uint32_t w = ptx::bits(p.to);
          const bool negative = ptx::is_signed(p.from) && static_cast<int64_t>(raw) < 0;
          if (ptx::is_signed(p.to)) {
            const uint64_t high = (uint64_t{1} << (w - 1)) - 1;
            if (!negative && raw > high) result = high;
            if (negative && static_cast<int64_t>(raw) < -static_cast<int64_t>(high) - 1) result = ~high;
          } else {
            const uint64_t high = w == 64 ? ~uint64_t{0} : (uint64_t{1} << w) - 1;
            if (negative)
              result = 0;
            else if (raw > high)
              result = high;
          }
        }
      } else {
        result = write_float(integer_to_odd(raw, ptx::is_signed(p.from)), p);
        if (p.to == Type::F64 && from_bits == 64) {  // 64 bits do not fit: round once, here
          static constexpr int kDirection[] = {0, 3, 1, 2};
          x.set_mode(kModeDefault | static_cast<uint32_t>(kDirection[static_cast<int>(p.rounding) & 3])
                                        << 13);
          const double v = ptx::is_signed(p.from) ? static_cast<double>(static_cast<int64_t>(raw))
                                                  : static_cast<double>(raw);
          result = std::bit_cast<uint64_t>(v);
          x.set_mode(kModeDefault);
        }
      }
    } else {
      double v = read_float(raw, p);
      if (integer_type(p.to)) {
        result = to_integer(v, p.from, p.to, p.rounding);
      } else {
        if (p.to_integral) v = round_integral(v, p.rounding);
        Parameters q = p;
        if (p.to_integral) q.rounding = Rounding::NearestEven;
        result = v != v && keeps_payload(p) ? nan_payload(raw, p) : write_float(v, q);
      }
    }
    if (integer_type(p.to)) {  // extend to the register by the sign of the destination type
      const uint32_t w = ptx::bits(p.to);
      if (w < 64) {
        result <<= 64 - w;
        result = ptx::is_signed(p.to) ? static_cast<uint64_t>(static_cast<int64_t>(result) >> (64 - w))
                                      : result >> (64 - w);
      }
    }
    if (p.wide_destination)
      lanes<uint64_t>(d)[i] = result;
    else
      lanes<uint32_t>(d)[i] = static_cast<uint32_t>(result) & op.aux;
  }
  return Step::Continue;
}

// Two values packed: the first source goes to the upper half.
uint32_t pack_element(double v, const Parameters& p) {
  if (p.to == Type::UE8M0x2) return to_ue8m0(v, p.rounding, p.satfinite);
  const SmallFormat& f = *small_format(p.to);
  uint32_t r = to_small(v, f, p.rounding, p.satfinite);
  const uint32_t sign = 1u << (f.exponent_bits + f.mantissa_bits);
  if (p.relu && v == v && (r & sign)) r = 0;
  return r;
}
Step convert_pack(Exec& x, const MicroOp& op) {
  x.set_mode(kModeDefault);
  const Parameters p(op.imm);
  const uint32_t shift = p.to == Type::F16x2 || p.to == Type::BF16x2 ? 16 : p.to == Type::E2M1x2 ? 4 : 8;
  const auto* a = x.src(op.src[0]).lane;
  const auto* b = op.src[1] == kNoRow ? a : x.src(op.src[1]).lane;
  auto* d = x.dst(op.dst).lane;
  for (uint32_t m = x.mask; m; m &= m - 1) {
    const int i = std::countr_zero(m);
    double high, low;
    if (p.from == Type::F32) {
      high = std::bit_cast<float>(a[i]);
      low = std::bit_cast<float>(b[i]);
      if (p.ftz) high = flush(static_cast<float>(high)), low = flush(static_cast<float>(low));
    } else {  // f16x2 or bf16x2
      const SmallFormat& f = *small_format(p.from);
      high = from_small(a[i] >> 16, f);
      low = from_small(a[i] & 0xffff, f);
    }
    d[i] = pack_element(high, p) << shift | pack_element(low, p);
  }
  return Step::Continue;
}
// f16x2 or bf16x2 from a pair of small floats: exact.
Step convert_unpack(Exec& x, const MicroOp& op) {
  x.set_mode(kModeDefault);
  const Parameters p(op.imm);
  const uint32_t shift = p.from == Type::E2M1x2 ? 4 : 8, keep = (1u << shift) - 1;
  const auto* a = x.src(op.src[0]).lane;
  auto* d = x.dst(op.dst).lane;
  const SmallFormat& to = *small_format(p.to);
  const auto element = [&](uint32_t bits) {
    const double v = p.from == Type::UE8M0x2 ? (bits == 0xff ? std::numeric_limits<double>::quiet_NaN()
                                                             : std::ldexp(1.0, static_cast<int>(bits) - 127))
                                             : from_small(bits, *small_format(p.from));
    uint32_t r = to_small(v, to, Rounding::NearestEven, false);
    if (p.relu && v == v && (r & 0x8000)) r = 0;
    return r;
  };
  for (uint32_t m = x.mask; m; m &= m - 1) {
    const int i = std::countr_zero(m);
    d[i] = element(a[i] >> shift & keep) << 16 | element(a[i] & keep);
  }
  return Step::Continue;
}

Rounding rounding_of(std::string_view r) {
  if (r == "rz" || r == "rzi") return Rounding::Zero;
  if (r == "rm" || r == "rmi") return Rounding::Down;
  if (r == "rp" || r == "rpi") return Rounding::Up;
  if (r == "rna") return Rounding::NearestAway;
  return Rounding::NearestEven;
}

bool packed_small(Type t) { return t >= Type::E4M3x2 && t <= Type::UE8M0x2; }
bool packed_half(Type t) { return t == Type::F16x2 || t == Type::BF16x2; }

}  // namespace

namespace handlers {

std::string check_conversion(const Conversion& c) {
  const bool to_int = integer_type(c.to), from_int = integer_type(c.from);
  const bool integral =
      c.rounding == "rni" || c.rounding == "rzi" || c.rounding == "rmi" || c.rounding == "rpi";
  if (packed_small(c.to) && c.to != Type::UE8M0x2 && !c.satfinite)
    return fmt::format("cvt to .{} needs .satfinite", ptx::name(c.to));
  if (packed_small(c.to) && c.rounding.empty())
    return fmt::format("cvt to .{} needs a rounding modifier", ptx::name(c.to));
  if (c.to == Type::UE8M0x2 && c.rounding != "rz" && c.rounding != "rp")
    return "cvt to .ue8m0x2 rounds with .rz or .rp";
  if (packed_small(c.to) &&
      !(c.from == Type::F32 || (packed_half(c.from) && !(c.from == Type::BF16x2 && c.to != Type::UE8M0x2) &&
                                !(c.from == Type::F16x2 && c.to == Type::UE8M0x2))))
    return fmt::format("cvt from .{} to .{} does not exist", ptx::name(c.from), ptx::name(c.to));
  if (packed_small(c.from) && !((c.to == Type::F16x2 && c.from != Type::UE8M0x2) ||
                                (c.to == Type::BF16x2 && c.from == Type::UE8M0x2)))
    return fmt::format("cvt from .{} to .{} does not exist", ptx::name(c.from), ptx::name(c.to));
  if (packed_half(c.to) && !(c.from == Type::F32 || packed_small(c.from)))
    return fmt::format("cvt from .{} to .{} does not exist", ptx::name(c.from), ptx::name(c.to));
  if (packed_half(c.from) && !packed_small(c.to))
    return fmt::format("cvt from .{} to .{} does not exist", ptx::name(c.from), ptx::name(c.to));
  if (c.to == Type::TF32 && c.from != Type::F32) return "cvt to .tf32 starts from .f32";
  if (!to_int && integral && from_int) return "integer rounding needs a floating-point source";
  if (to_int && !from_int && !integral)
    return "cvt from a float to an integer needs .rni, .rzi, .rmi or .rpi";
  if (!to_int && from_int && c.rounding.empty())
    return "cvt from an integer to a float needs a rounding modifier";
  return {};
}

Handler convert(const Conversion& c) {
  if (packed_small(c.to) || packed_half(c.to)) {
    if (packed_small(c.from)) return &convert_unpack;
    const Handler h = fast_conversion(c);
    return h ? h : &convert_pack;
  }
  return &convert_any;  // widen_conversion chooses the fast path once the register widths are known
}

void fill_conversion(const Conversion& c, MicroOp& op) {
  const bool integral = c.rounding.size() == 3 && c.rounding.back() == 'i';
  op.imm = static_cast<int64_t>(c.from) | static_cast<int64_t>(c.to) << 8 |
           static_cast<int64_t>(rounding_of(c.rounding)) << 16 | static_cast<int64_t>(integral) << 19 |
           static_cast<int64_t>(c.ftz) << 20 | static_cast<int64_t>(c.saturate) << 21 |
           static_cast<int64_t>(c.relu) << 22 | static_cast<int64_t>(c.satfinite) << 23;
  op.mode = kModeDefault;
}

void widen_conversion(const Conversion& c, MicroOp& op, uint32_t source_bits, uint32_t destination_bits) {
  op.imm |= static_cast<int64_t>(source_bits > 32) << 24 | static_cast<int64_t>(destination_bits > 32) << 25;
  op.aux = destination_bits >= 32 ? 0xffffffffu : (1u << destination_bits) - 1;
  if (op.run != &convert_any || !fast_conversion_fits(c, source_bits, destination_bits)) return;
  if (const Handler h = fast_conversion(c)) op.run = h;
}

}  // namespace handlers
}  // namespace mxfa::emulator
