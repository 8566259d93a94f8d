// atom, red, red.async (PTX ISA 9.7.13.5, 9.7.13.7).  One host thread runs everything, so each lane's
// read-modify-write is atomic as it is; lanes go in ascending order.  add.f32 on global memory flushes
// subnormals, on shared memory it keeps them; f16 and bf16 keep them (.noftz).
#include <fmt/format.h>

#include <algorithm>

#include "core/exec.hpp"
#include "core/formats.hpp"
#include "core/handlers.hpp"
#include "core/memory_access.hpp"
#include "core/results.hpp"
#include "engines/engines.hpp"

namespace mxfa::emulator {
namespace {

using ptx::Type;

template <class T>
T bits_of(uint64_t v) {
  T r;
  std::memcpy(&r, &v, sizeof r);
  return r;
}
template <class T>
uint64_t raw_of(T v) {
  uint64_t r = 0;
  std::memcpy(&r, &v, sizeof v);
  return r;
}

using Combine = uint64_t (*)(uint64_t old, uint64_t a, bool flush_subnormals);

template <class T, class F>
Combine integer_op(F) {
  return [](uint64_t o, uint64_t a, bool) -> uint64_t {
    return raw_of<T>(static_cast<T>(F{}(bits_of<T>(o), bits_of<T>(a))));
  };
}
template <class U, class S>
Combine integer_combine(std::string_view op, bool is_signed) {
  if (op == "add") return integer_op<U>([](U o, U a) { return o + a; });
  if (op == "and") return integer_op<U>([](U o, U a) { return o & a; });
  if (op == "or") return integer_op<U>([](U o, U a) { return o | a; });
  if (op == "xor") return integer_op<U>([](U o, U a) { return o ^ a; });
  if (op == "exch") return integer_op<U>([](U, U a) { return a; });
  if (op == "inc") return integer_op<U>([](U o, U a) { return o >= a ? U{0} : o + 1; });
  if (op == "dec") return integer_op<U>([](U o, U a) { return o == 0 || o > a ? a : o - 1; });
  if (op == "min")
    return is_signed ? integer_op<S>([](S o, S a) { return std::min(o, a); })
                     : integer_op<U>([](U o, U a) { return std::min(o, a); });
  if (op == "max")
    return is_signed ? integer_op<S>([](S o, S a) { return std::max(o, a); })
                     : integer_op<U>([](U o, U a) { return std::max(o, a); });
  return nullptr;
}

uint64_t add_f32(uint64_t o, uint64_t a, bool ftz) {
  float x = bits_of<float>(o), y = bits_of<float>(a);
  if (ftz) x = flush(x), y = flush(y);
  const float r = canonical(x + y);
  return raw_of(ftz ? flush(r) : r);
}
// Of two NaNs global memory keeps the operand's, shared memory its own (seen on an H200); `ftz` marks global.
uint64_t add_f64(uint64_t o, uint64_t a, bool ftz) {
  const double x = bits_of<double>(o), y = bits_of<double>(a);
  return raw_of(ftz ? with_nan(x + y, y, x) : with_nan(x + y, x, y));
}

template <bool kBrain>
uint64_t half_element(uint64_t o, uint64_t a, int kind) {
  const SmallFormat& f = kBrain ? kBF16 : kF16;
  const double x = from_small(static_cast<uint32_t>(o & 0xffff), f),
               y = from_small(static_cast<uint32_t>(a & 0xffff), f);
  if (kind == 0) return to_small(x + y, f, Rounding::NearestEven, false);
  if (x != x) return a & 0xffff;
  if (y != y) return o & 0xffff;
  return (kind == 1 ? y < x : y > x) ? a & 0xffff : o & 0xffff;
}
template <bool kBrain, bool kPair, int kKind>
uint64_t half_op(uint64_t o, uint64_t a, bool) {
  uint64_t r = half_element<kBrain>(o, a, kKind);
  if (kPair) r |= half_element<kBrain>(o >> 16, a >> 16, kKind) << 16;
  return r;
}
template <bool kBrain, bool kPair>
Combine half_combine(std::string_view op) {
  if (op == "add") return &half_op<kBrain, kPair, 0>;
  if (op == "min") return &half_op<kBrain, kPair, 1>;
  if (op == "max") return &half_op<kBrain, kPair, 2>;
  return nullptr;
}

Combine combine(std::string_view op, Type type) {
  switch (type) {
    case Type::F32:
      return op == "add" ? &add_f32 : op == "exch" ? integer_combine<uint32_t, int32_t>(op, false) : nullptr;
    case Type::F64:
      return op == "add" ? &add_f64 : nullptr;
    case Type::F16:
      return half_combine<false, false>(op);
    case Type::F16x2:
      return half_combine<false, true>(op);
    case Type::BF16:
      return half_combine<true, false>(op);
    case Type::BF16x2:
      return half_combine<true, true>(op);
    case Type::B16:
      return op == "exch" ? integer_combine<uint16_t, int16_t>(op, false) : nullptr;
    default:
      break;
  }
  const uint32_t width = ptx::bits(type);
  if (width == 32) return integer_combine<uint32_t, int32_t>(op, ptx::is_signed(type));
  if (width == 64) return integer_combine<uint64_t, int64_t>(op, ptx::is_signed(type));
  return nullptr;
}

uint64_t row_value(const Row& row, int lane, uint32_t bytes) {
  return bytes == 8 ? lanes<uint64_t>(row)[lane] : lanes<uint32_t>(row)[lane];
}
void set_row(Row& row, int lane, uint32_t bytes, uint64_t v) {
  if (bytes == 8)
    lanes<uint64_t>(row)[lane] = v;
  else
    lanes<uint32_t>(row)[lane] = static_cast<uint32_t>(v);
}

template <Space kSpace, uint32_t kBytes>
Step atomic_lanes(Exec& x, const MicroOp& op) {
  ++x.progress;
  x.set_mode(kModeDefault);
  const auto f = reinterpret_cast<Combine>(x.program->combines[op.mode]);
  const uint32_t n = op.aux;
  const bool returns = op.count > n;
  // Values first: results may share registers with them.
  Pointers p;
  resolve(x, op, kSpace, kBytes * n, true, p);
  for (uint32_t m = x.mask; m; m &= m - 1) {
    const int lane = std::countr_zero(m);
    // Generic addresses of shared memory keep subnormals too, but their window is only known per lane.
    bool ftz = kSpace == Space::Global;
    if (kSpace == Space::Generic) ftz = (lane_address(x, op, lane) & ~uint64_t{0xffffffff}) != kSharedWindow;
    uint64_t values[8], old[8] = {};
    for (uint32_t k = 0; k < n; ++k) values[k] = row_value(x.src(x.lists[op.list + k]), lane, kBytes);
    for (uint32_t k = 0; k < n; ++k) {
      std::memcpy(&old[k], p.lane[lane] + k * kBytes, kBytes);
      const uint64_t next = f(old[k], values[k], ftz);
      std::memcpy(p.lane[lane] + k * kBytes, &next, kBytes);
    }
    for (uint32_t k = 0; returns && k < n; ++k)
      if (x.lists[op.list + n + k] != kNoRow) set_row(x.dst(x.lists[op.list + n + k]), lane, kBytes, old[k]);
  }
  return Step::Sync;
}

template <Space kSpace, uint32_t kBytes>
Step compare_and_swap(Exec& x, const MicroOp& op) {  // list: compare, swap, result
  ++x.progress;
  Pointers p;
  resolve(x, op, kSpace, kBytes, true, p);
  constexpr uint32_t kStride = kBytes < 4 ? 4 : kBytes;
  for (uint32_t m = x.mask; m; m &= m - 1) {
    const int lane = std::countr_zero(m);
    uint8_t old[kBytes];
    std::memcpy(old, p.lane[lane], kBytes);
    const auto* compare = reinterpret_cast<const uint8_t*>(&x.src(x.lists[op.list])) + lane * kStride;
    const auto* swap = reinterpret_cast<const uint8_t*>(&x.src(x.lists[op.list + 1])) + lane * kStride;
    if (std::memcmp(old, compare, kBytes) == 0) std::memcpy(p.lane[lane], swap, kBytes);
    if (op.count > 2 && x.lists[op.list + 2] != kNoRow) {
      auto* d = reinterpret_cast<uint8_t*>(&x.dst(x.lists[op.list + 2])) + lane * kStride;
      if (kBytes < 4) std::memset(d, 0, 4);
      std::memcpy(d, old, kBytes);
    }
  }
  return Step::Sync;
}
template <Space kSpace>
Step exchange_quad(Exec& x, const MicroOp& op) {  // list: value, result; 16 bytes
  ++x.progress;
  Pointers p;
  resolve(x, op, kSpace, 16, true, p);
  for (uint32_t m = x.mask; m; m &= m - 1) {
    const int lane = std::countr_zero(m);
    uint8_t old[16];
    std::memcpy(old, p.lane[lane], 16);
    std::memcpy(p.lane[lane], reinterpret_cast<const uint8_t*>(&x.src(x.lists[op.list])) + 16 * lane, 16);
    if (op.count > 1 && x.lists[op.list + 1] != kNoRow)
      std::memcpy(reinterpret_cast<uint8_t*>(&x.dst(x.lists[op.list + 1])) + 16 * lane, old, 16);
  }
  return Step::Sync;
}

template <Space kSpace>
Handler in_space(std::string_view op, uint32_t bytes) {
  if (op == "cas") {
    switch (bytes) {
      case 2:
        return &compare_and_swap<kSpace, 2>;
      case 4:
        return &compare_and_swap<kSpace, 4>;
      case 8:
        return &compare_and_swap<kSpace, 8>;
      case 16:
        return &compare_and_swap<kSpace, 16>;
      default:
        return nullptr;
    }
  }
  if (op == "exch" && bytes == 16) return &exchange_quad<kSpace>;
  switch (bytes) {
    case 2:
      return &atomic_lanes<kSpace, 2>;
    case 4:
      return &atomic_lanes<kSpace, 4>;
    case 8:
      return &atomic_lanes<kSpace, 8>;
    default:
      return nullptr;
  }
}

// red.async: src0 address, src1 mbarrier (mode is its offset), list: value; the combining function is
// numbered by aux.
template <uint32_t kBytes>
Step reduce_async(Exec& x, const MicroOp& op) {
  ++x.progress;
  x.leave();
  const auto f = reinterpret_cast<Combine>(x.program->combines[op.aux]);
  for (uint32_t m = x.mask; m; m &= m - 1) {
    const int lane = std::countr_zero(m);
    const uint64_t value = row_value(x.src(x.lists[op.list]), lane, kBytes);
    shared_async(*x.warp, lane, "red.async", static_cast<uint32_t>(lane_address(x, op, lane)), kBytes,
                 x.src(op.src[1]).lane[lane] + op.mode, false, [f, value](uint8_t* target) {
                   uint64_t old = 0;
                   std::memcpy(&old, target, kBytes);
                   const uint64_t next = f(old, value, false);
                   std::memcpy(target, &next, kBytes);
                 });
  }
  return Step::Sync;
}

}  // namespace

namespace handlers {

Handler atomic(Space space, std::string_view op, Type type, bool) {
  const uint32_t bytes = ptx::bits(type) / 8;
  if (op == "cas" ? !(ptx::is_untyped(type)) : !(op == "exch" && bytes == 16) && !combine(op, type))
    return nullptr;
  switch (space) {
    case Space::Global:
      return in_space<Space::Global>(op, bytes);
    case Space::Shared:
      return in_space<Space::Shared>(op, bytes);
    case Space::Generic:
      return in_space<Space::Generic>(op, bytes);
    default:
      return nullptr;
  }
}
void* atomic_combine(std::string_view op, Type type) { return reinterpret_cast<void*>(combine(op, type)); }

Handler async_reduce(std::string_view op, Type type) {
  if (!combine(op, type)) return nullptr;
  return ptx::bits(type) == 64 ? &reduce_async<8> : &reduce_async<4>;
}

}  // namespace handlers
}  // namespace mxfa::emulator
