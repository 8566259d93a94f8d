// Loads and stores of every state space, and the copies that use plain addresses (cp.async,
// st.async, st.bulk).
#include <fmt/format.h>

#include <array>

#include "core/exec.hpp"
#include "core/handlers.hpp"
#include "core/memory_access.hpp"
#include "core/observer.hpp"
#include "core/results.hpp"
#include "engines/engines.hpp"

namespace mxfa::emulator {
namespace {

// Both sides of a cp.async (not bulk).  `taken`: bytes read by each lane.
void report_copy(Exec& x, const MicroOp& op, const uint32_t* taken) {
  x.leave();
  uint64_t to[kLanes], from[kLanes];
  LaneAccess access;
  access.copy_async = true;
  for (uint32_t m = x.mask; m; m &= m - 1) {
    const int lane = std::countr_zero(m);
    to[lane] = lane_address(x, op, lane);
    from[lane] = lanes<uint64_t>(x.src(op.src[1]))[lane] +
                 static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(op.mode)));
    if (taken[lane] == op.aux) access.mask |= 1u << lane;
  }
  access.bytes = op.aux;
  access.address = from;
  if (access.mask) observe(*x.grid, [&](Observer& o) { o.access(*x.warp, access); });
  access.space = MemorySpace::Shared;
  access.kind = AccessKind::Write;
  access.mask = x.mask;
  access.address = to;
  observe(*x.grid, [&](Observer& o) { o.access(*x.warp, access); });
}

template <uint32_t kBytes>
struct Raw;
template <>
struct Raw<1> {
  using u = uint8_t;
  using s = int8_t;
};
template <>
struct Raw<2> {
  using u = uint16_t;
  using s = int16_t;
};
template <>
struct Raw<4> {
  using u = uint32_t;
  using s = int32_t;
};
template <>
struct Raw<8> {
  using u = uint64_t;
  using s = int64_t;
};

template <class T>
inline T fetch(const uint8_t* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

template <class D>
inline D keep_mask(uint32_t keep) {
  return sizeof(D) == 4 ? static_cast<D>(keep) : ~D{0};
}

// A signed load into a 16-bit register keeps 16 bits of the extension (aux = 0xffff): such registers are
// zero-extended in their row.
template <uint32_t kBytes, bool kSigned, class D>
inline void load_element(Exec& x, const Pointers& p, uint32_t offset, uint32_t row, uint32_t keep) {
  using T = std::conditional_t<kSigned, typename Raw<kBytes>::s, typename Raw<kBytes>::u>;
  auto* d = lanes<D>(x.dst(row));
  const uint32_t mask = x.mask;
  if (full(mask)) {
    for (int i = 0; i < kLanes; ++i) d[i] = static_cast<D>(fetch<T>(p.lane[i] + offset)) & keep_mask<D>(keep);
  } else {
    for (uint32_t m = mask; m; m &= m - 1) {
      const int i = std::countr_zero(m);
      d[i] = static_cast<D>(fetch<T>(p.lane[i] + offset)) & keep_mask<D>(keep);
    }
  }
}

template <Space kSpace, uint32_t kBytes, bool kSigned, class D>
Step load_lanes(Exec& x, const MicroOp& op) {
  Pointers p;
  resolve(x, op, kSpace, kBytes * op.count, false, p);
  for (uint32_t k = 0; k < op.count; ++k) {
    const uint32_t row = x.lists[op.list + k];
    if (row != kNoRow) load_element<kBytes, kSigned, D>(x, p, k * kBytes, row, op.aux);
  }
  return Step::Continue;
}
template <Space kSpace>
Step load_quads(Exec& x, const MicroOp& op) {
  Pointers p;
  resolve(x, op, kSpace, 16 * op.count, false, p);
  for (uint32_t k = 0; k < op.count; ++k) {
    const uint32_t row = x.lists[op.list + k];
    if (row == kNoRow) continue;
    auto* d = reinterpret_cast<uint8_t*>(&x.dst(row));
    for (uint32_t m = x.mask; m; m &= m - 1)
      std::memcpy(d + 16 * std::countr_zero(m), p.lane[std::countr_zero(m)] + 16 * k, 16);
  }
  return Step::Continue;
}

template <Space kSpace, uint32_t kBytes>
Step store_lanes(Exec& x, const MicroOp& op) {
  ++x.progress;
  Pointers p;
  resolve(x, op, kSpace, kBytes * op.count, true, p);
  constexpr uint32_t kStride = kBytes < 4 ? 4 : kBytes;
  for (uint32_t k = 0; k < op.count; ++k) {
    const auto* s = reinterpret_cast<const uint8_t*>(&x.src(x.lists[op.list + k]));
    if (full(x.mask)) {
      for (int i = 0; i < kLanes; ++i) std::memcpy(p.lane[i] + k * kBytes, s + i * kStride, kBytes);
    } else {
      for (uint32_t m = x.mask; m; m &= m - 1) {
        const int i = std::countr_zero(m);
        std::memcpy(p.lane[i] + k * kBytes, s + i * kStride, kBytes);
      }
    }
  }
  return Step::Continue;
}
// Source registers wider than the stored type: the low bytes, rows of 64 bits.
template <Space kSpace, uint32_t kBytes>
Step store_low_bytes(Exec& x, const MicroOp& op) {
  ++x.progress;
  Pointers p;
  resolve(x, op, kSpace, kBytes * op.count, true, p);
  for (uint32_t k = 0; k < op.count; ++k) {
    const auto* s = reinterpret_cast<const uint8_t*>(&x.src(x.lists[op.list + k]));
    for (uint32_t m = x.mask; m; m &= m - 1) {
      const int i = std::countr_zero(m);
      std::memcpy(p.lane[i] + k * kBytes, s + i * 8, kBytes);
    }
  }
  return Step::Continue;
}

template <Space kSpace, uint32_t kBytes, bool kSigned>
Handler load_width(bool wide) {
  return wide ? &load_lanes<kSpace, kBytes, kSigned, uint64_t>
              : &load_lanes<kSpace, kBytes, kSigned, uint32_t>;
}
template <Space kSpace>
Handler load_space(uint32_t bytes, bool is_signed, bool wide) {
  switch (bytes) {
    case 1:
      return is_signed ? load_width<kSpace, 1, true>(wide) : load_width<kSpace, 1, false>(wide);
    case 2:
      return is_signed ? load_width<kSpace, 2, true>(wide) : load_width<kSpace, 2, false>(wide);
    case 4:
      return is_signed && wide ? load_width<kSpace, 4, true>(wide) : load_width<kSpace, 4, false>(wide);
    case 8:
      return load_width<kSpace, 8, false>(true);
    case 16:
      return &load_quads<kSpace>;
    default:
      return nullptr;
  }
}
template <Space kSpace>
Handler store_space(uint32_t bytes, bool wide) {
  switch (bytes) {
    case 1:
      return wide ? &store_low_bytes<kSpace, 1> : &store_lanes<kSpace, 1>;
    case 2:
      return wide ? &store_low_bytes<kSpace, 2> : &store_lanes<kSpace, 2>;
    case 4:
      return wide ? &store_low_bytes<kSpace, 4> : &store_lanes<kSpace, 4>;
    case 8:
      return &store_lanes<kSpace, 8>;
    case 16:
      return &store_lanes<kSpace, 16>;
    default:
      return nullptr;
  }
}

// cp.async: src0 shared address (imm), src1 global address, src2 source size or predicate.  aux: bytes;
// flags: kOption = src2 is the "ignore source" predicate.
Step copy_async_lanes(Exec& x, const MicroOp& op) {
  ++x.progress;
  const uint32_t bytes = op.aux;
  uint32_t taken[kLanes];
  std::array<LaneCopy, kLanes> copies;
  size_t count = 0;
  for (uint32_t m = x.mask; m; m &= m - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(m));
    const uint64_t to = lane_address(x, op, static_cast<int>(lane));
    const uint64_t from = lanes<uint64_t>(x.src(op.src[1]))[lane] +
                          static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(op.mode)));
    LaneCopy& c = copies[count++];
    c.lane = static_cast<int>(lane);
    c.take = bytes;
    if (op.flags & kOption)
      c.take = x.pred(op.src[2]) >> lane & 1 ? 0 : bytes;
    else if (op.src[2] != kNoRow)
      c.take = std::min(bytes, x.src(op.src[2]).lane[lane]);
    taken[lane] = c.take;
    c.to = pointer(x, Space::Shared, lane, to, bytes, true);
    c.from = c.take ? pointer(x, Space::Global, lane, from, c.take == bytes ? bytes : 1, false) : nullptr;
  }
  if (x.observed) report_copy(x, op, taken);
  x.leave();
  copy_async(*x.warp, bytes, std::span<const LaneCopy>(copies.data(), count));
  return Step::Continue;
}

// cp.async.commit_group (aux 0), wait_group imm (1), wait_all (2): a commit and a wait for all groups.
Step order_copies(Exec& x, const MicroOp& op) {
  x.leave();
  for (uint32_t m = x.mask; m; m &= m - 1) {
    const int lane = std::countr_zero(m);
    if (op.aux == 0)
      copy_async_commit(*x.warp, lane);
    else if (!copy_async_wait(*x.warp, lane, static_cast<uint32_t>(op.imm), op.aux == 2))
      return x.block(Wait::Kind::CopyGroup, static_cast<uint32_t>(op.imm));
  }
  x.current().wait.kind = Wait::Kind::None;
  if (x.observed)
    observe(*x.grid, [&](Observer& o) {
      if (op.aux != 1) o.copy_async_commit(*x.warp);
      if (op.aux != 0) o.copy_async_waited(*x.warp, static_cast<uint32_t>(op.imm));
    });
  return Step::Continue;
}

// st.async: list of values, src0 address (imm), src1 mbarrier (mode: its offset); aux: element bytes.
Step store_async(Exec& x, const MicroOp& op) {
  ++x.progress;
  x.leave();
  for (uint32_t m = x.mask; m; m &= m - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(m));
    std::array<uint8_t, 16> value{};
    for (uint32_t k = 0; k < op.count; ++k) {
      const auto* s = reinterpret_cast<const uint8_t*>(&x.src(x.lists[op.list + k])) +
                      lane * std::max<uint32_t>(4, op.aux);
      std::memcpy(value.data() + k * op.aux, s, op.aux);
    }
    const uint32_t bytes = op.aux * op.count;
    shared_async(*x.warp, static_cast<int>(lane), "st.async",
                 static_cast<uint32_t>(lane_address(x, op, static_cast<int>(lane))), bytes,
                 x.src(op.src[1]).lane[lane] + op.mode, true,
                 [value, bytes](uint8_t* target) { std::memcpy(target, value.data(), bytes); });
  }
  return Step::Sync;
}

// st.bulk: src0 address (imm), src1 size (64-bit); the value is always zero.
Step store_zeroes(Exec& x, const MicroOp& op) {
  ++x.progress;
  for (uint32_t m = x.mask; m; m &= m - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(m));
    const auto to = static_cast<uint32_t>(lane_address(x, op, static_cast<int>(lane)));
    const uint64_t bytes = lanes<uint64_t>(x.src(op.src[1]))[lane];
    if (bytes % 8 || to % 8)
      throw Fault(result::kMisalignedAddress, "st.bulk needs an address and a size that are multiples of 8");
    std::memset(shared_pointer(*x.cluster, to, static_cast<uint32_t>(bytes), true), 0, bytes);
    if (x.observed) report_access(x, op, Space::Shared, static_cast<uint32_t>(bytes), true, 1u << lane);
  }
  return Step::Continue;
}

}  // namespace

namespace handlers {

Handler load(Space space, uint32_t bytes, bool sign_extend, bool wide) {
  switch (space) {
    case Space::Generic:
      return load_space<Space::Generic>(bytes, sign_extend, wide);
    case Space::Global:
      return load_space<Space::Global>(bytes, sign_extend, wide);
    case Space::Const:
      return load_space<Space::Const>(bytes, sign_extend, wide);
    case Space::Shared:
      return load_space<Space::Shared>(bytes, sign_extend, wide);
    case Space::Local:
      return load_space<Space::Local>(bytes, sign_extend, wide);
    case Space::Param:
      return load_space<Space::Param>(bytes, sign_extend, wide);
  }
  return nullptr;
}
Handler store(Space space, uint32_t bytes, bool wide) {
  switch (space) {
    case Space::Generic:
      return store_space<Space::Generic>(bytes, wide);
    case Space::Global:
      return store_space<Space::Global>(bytes, wide);
    case Space::Shared:
      return store_space<Space::Shared>(bytes, wide);
    case Space::Local:
      return store_space<Space::Local>(bytes, wide);
    default:
      return nullptr;
  }
}
Handler cp_async() { return &copy_async_lanes; }
Handler cp_async_order() { return &order_copies; }
Handler async_store() { return &store_async; }
Handler store_bulk() { return &store_zeroes; }

}  // namespace handlers
}  // namespace mxfa::emulator
