// What a micro-operation sees: the warp's registers, the active lanes, and the way to the rest of the
// machine.
#pragma once

#include <xmmintrin.h>

#include <atomic>
#include <bit>
#include <cstring>
#include <string>
#include <type_traits>

#include "core/kernel.hpp"
#include "core/warp.hpp"

namespace mxfa::emulator {

inline constexpr uint32_t kObserved = 0x80000000u;  // a bit that no check of an address sets

// MXCSR: rounding in bits 13-14 (nearest, down, up, to zero), flush-to-zero bit 15, denormals-are-zero bit 6,
// exceptions masked.
inline constexpr uint32_t kModeDefault = 0x1f80, kModeDown = 0x2000, kModeUp = 0x4000, kModeZero = 0x6000,
                          kModeFtz = 0x8040;

struct Exec {
  // ---- hot
  const Row* base[2] = {nullptr, nullptr};  // registers, constants
  Row* rows = nullptr;
  uint32_t* predicates = nullptr;
  uint32_t mask = 0;             // lanes that execute the current micro-operation
  uint32_t active = 0;           // lanes of the fragment
  uint32_t pc = 0, at = 0;       // next and current micro-operation
  int32_t budget = 0;            // backward branches until the fragment must let others run
  uint32_t mode = kModeDefault;  // current MXCSR
  const uint32_t* lists = nullptr;
  uint64_t progress = 0;  // bumped by everything another fragment could see
  // ---- memory fast paths
  uint8_t* shared_base = nullptr;
  uint32_t shared_begin = 0, shared_size = 0, shared_rank = 0;
  struct Range {
    uint64_t begin = 0, end = 0;
  } global[4];
  uint32_t next_range = 0;
  uint32_t observed = 0;          // kObserved when somebody wants to know of every access
  uint8_t* local_base = nullptr;  // of lane 0 of this warp
  uint32_t local_bytes = 0;
  // ---- cold
  uint32_t fragment = 0;  // index in warp->fragments
  uint32_t token = ~0u;   // innermost reconvergence token
  bool strict = false;    // an .aligned instruction of a partial warp is a fault, not a reason to wait
  Warp* warp = nullptr;
  Cta* cta = nullptr;
  Cluster* cluster = nullptr;
  Grid* grid = nullptr;
  const Kernel* kernel = nullptr;
  const Program* program = nullptr;

  const Row& src(uint32_t s) const { return base[s >> 31][s & ~kConstantBit]; }
  Row& dst(uint32_t d) const { return rows[d]; }
  uint32_t pred(uint32_t encoded) const { return predicates[encoded >> 1] ^ (0u - (encoded & 1)); }
  void set_pred(uint32_t number, uint32_t value) {
    predicates[number] = (predicates[number] & ~mask) | (value & mask);
  }
  void set_mode(uint32_t wanted) {
    if (mode != wanted) {
      _mm_setcsr(wanted);
      mode = wanted;
    }
    std::atomic_signal_fence(
        std::memory_order_seq_cst);  // arithmetic on rows must not move above the mode change
  }
  // Before anything outside the interpreter runs: standard rounding, and pc and lanes for its reports.
  void leave() {
    set_mode(kModeDefault);
    warp->pc = at;
    warp->mask = mask;
  }
  Fragment& current() const { return warp->fragments[fragment]; }
  Step block(Wait::Kind kind, uint32_t address = 0, uint32_t parity = 0);
  uint32_t first_lane() const { return static_cast<uint32_t>(std::countr_zero(mask)); }
};

// ---- lanes as typed arrays (the build has type-based alias analysis off)
template <class T>
inline T* lanes(Row& r) {
  return reinterpret_cast<T*>(&r);
}
template <class T>
inline const T* lanes(const Row& r) {
  return reinterpret_cast<const T*>(&r);
}

// Of a mask that is not empty.
inline int lowest_lane(uint32_t mask) { return __builtin_ctz(mask); }

inline bool full(uint32_t mask) { return mask == kFullMask; }
inline bool single(uint32_t mask) { return (mask & (mask - 1)) == 0; }

// d[i] = f(i) for the lanes of the mask.  Three bodies: all lanes, one lane, some lanes.  f must be defined
// for every lane: the third body computes all and blends.  Destinations never overlap sources partially
// (register allocation sees to it), so iterations are independent.
template <class T, class F>
inline void for_lanes(uint32_t mask, T* d, F f) {
  if (full(mask)) {
#pragma GCC ivdep
    for (int i = 0; i < kLanes; ++i) d[i] = f(i);
  } else if (single(mask)) {
    const int i = std::countr_zero(mask);
    d[i] = f(i);
  } else {
#pragma GCC ivdep
    for (int i = 0; i < kLanes; ++i) {
      const T value = f(i), old = d[i];
      d[i] = (mask >> i) & 1 ? value : old;
    }
  }
}

// A predicate per lane, as a mask.
template <class F>
inline uint32_t mask_lanes(uint32_t mask, F f) {
  if (single(mask)) return static_cast<uint32_t>(f(std::countr_zero(mask))) << std::countr_zero(mask);
  uint8_t bits[kLanes];
#pragma GCC ivdep
  for (int i = 0; i < kLanes; ++i) bits[i] = f(i) ? 1 : 0;
  uint32_t result = 0;
  for (int b = 0; b < 4; ++b) {
    uint64_t chunk;
    std::memcpy(&chunk, bits + 8 * b, 8);
    result |= static_cast<uint32_t>((chunk * 0x0102040810204080ull) >> 56)
              << (8 * b);  // gathers the low bits of 8 bytes
  }
  return result & mask;
}

// How a value of type T lies in its row: 16- and 8-bit values zero-extended in 32 bits.
template <class T>
struct StoredAs {
  using type = T;
};
template <class T>
requires(sizeof(T) < 4) struct StoredAs<T> {
  using type = uint32_t;
};
template <class T>
using Stored = typename StoredAs<T>::type;
template <class T>
inline Stored<T> to_stored(T value) {
  if constexpr (sizeof(T) < 4)
    return static_cast<std::make_unsigned_t<T>>(value);
  else
    return value;
}

namespace detail {
template <class F, class R, class A>
inline Step alu(Exec& x, const MicroOp& op, R (F::*)(A) const) {
  const auto* a = lanes<Stored<A>>(x.src(op.src[0]));
  for_lanes<Stored<R>>(x.mask, lanes<Stored<R>>(x.dst(op.dst)),
                       [=](int i) { return to_stored<R>(F{}(static_cast<A>(a[i]))); });
  return Step::Continue;
}
template <class F, class R, class A, class B>
inline Step alu(Exec& x, const MicroOp& op, R (F::*)(A, B) const) {
  const auto* a = lanes<Stored<A>>(x.src(op.src[0]));
  const auto* b = lanes<Stored<B>>(x.src(op.src[1]));
  for_lanes<Stored<R>>(x.mask, lanes<Stored<R>>(x.dst(op.dst)),
                       [=](int i) { return to_stored<R>(F{}(static_cast<A>(a[i]), static_cast<B>(b[i]))); });
  return Step::Continue;
}
template <class F, class R, class A, class B, class C>
inline Step alu(Exec& x, const MicroOp& op, R (F::*)(A, B, C) const) {
  const auto* a = lanes<Stored<A>>(x.src(op.src[0]));
  const auto* b = lanes<Stored<B>>(x.src(op.src[1]));
  const auto* c = lanes<Stored<C>>(x.src(op.src[2]));
  for_lanes<Stored<R>>(x.mask, lanes<Stored<R>>(x.dst(op.dst)), [=](int i) {
    return to_stored<R>(F{}(static_cast<A>(a[i]), static_cast<B>(b[i]), static_cast<C>(c[i])));
  });
  return Step::Continue;
}
template <class F>
Step run_alu(Exec& x, const MicroOp& op) {
  return alu(x, op, &F::operator());
}
template <class F>
Step run_fpu(Exec& x, const MicroOp& op) {
  x.set_mode(op.mode);
  return alu(x, op, &F::operator());
}
}  // namespace detail

// The handler of an operation given as a function of one lane; its signature says how the rows are read.
template <class F>
Handler alu(F) {
  return &detail::run_alu<F>;
}
// The same under the rounding and flush mode of the instruction (MicroOp::mode).
template <class F>
Handler fpu(F) {
  return &detail::run_fpu<F>;
}

}  // namespace mxfa::emulator
