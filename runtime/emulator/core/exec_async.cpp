// mbarriers and bulk copies: operands are decoded per lane here, the work is done by engines/.
#include <fmt/format.h>

#include <optional>

#include "core/aligned.hpp"
#include "core/exec.hpp"
#include "core/handlers.hpp"
#include "core/memory_access.hpp"
#include "core/results.hpp"
#include "engines/engines.hpp"
#include "memory/tensor_map.hpp"

namespace mxfa::emulator {
namespace {

// A shared address operand: src[k] (32 bits, or 64 when generic) plus an offset.
uint32_t shared_operand(const Exec& x, const MicroOp& op, uint32_t lane) {
  const uint64_t a = lane_address(x, op, static_cast<int>(lane));
  return to_shared_address(x, a, op.flags & kGenericAddress);
}
uint32_t value_or(const Exec& x, uint32_t source, uint32_t lane, uint32_t otherwise) {
  return source == kNoRow ? otherwise : x.src(source).lane[lane];
}

template <class F>
Step each_lane(Exec& x, const MicroOp&, F f) {
  x.leave();
  ++x.progress;
  for (uint32_t m = x.mask; m; m &= m - 1) f(static_cast<uint32_t>(std::countr_zero(m)));
  return Step::Sync;
}

Step init_barrier(Exec& x, const MicroOp& op) {
  return each_lane(x, op, [&](uint32_t lane) {
    mbarrier_init(*x.warp, shared_operand(x, op, lane), x.src(op.src[1]).lane[lane]);
  });
}
Step invalidate_barrier(Exec& x, const MicroOp& op) {
  return each_lane(x, op, [&](uint32_t lane) { mbarrier_inval(*x.warp, shared_operand(x, op, lane)); });
}

// src0 address, src1 count or bytes; aux: 1 expect_tx, 2 drop, 4 noComplete; dst state or kNoRow
Step arrive_on_barrier(Exec& x, const MicroOp& op) {
  return each_lane(x, op, [&](uint32_t lane) {
    const bool expect = op.aux & 1;
    const uint32_t value = value_or(x, op.src[1], lane, expect ? 0 : 1);
    const uint64_t state =
        mbarrier_arrive(*x.warp, shared_operand(x, op, lane), expect ? 1 : value, expect ? value : 0,
                        op.aux & 2, op.aux & 4, decode_order(op.flags));
    if (op.dst != kNoRow) lanes<uint64_t>(x.dst(op.dst))[lane] = state;
  });
}
Step expect_bytes(Exec& x, const MicroOp& op) {
  return each_lane(x, op, [&](uint32_t lane) {
    mbarrier_expect_tx(*x.warp, shared_operand(x, op, lane), x.src(op.src[1]).lane[lane]);
  });
}
Step complete_bytes(Exec& x, const MicroOp& op) {
  return each_lane(x, op, [&](uint32_t lane) {
    mbarrier_complete_tx(*x.cluster, shared_operand(x, op, lane), x.src(op.src[1]).lane[lane],
                         "mbarrier.complete_tx");
  });
}

// src0 address, src1 parity or state; dst predicate.  A failed try_wait waits until something changes in the
// cluster; it is told to give up when nothing can change any more, as its time limit allows.  A failed
// test_wait reports false and lets others run.
template <bool kParity, bool kSuspends>
Step wait_on_barrier(Exec& x, const MicroOp& op) {
  x.leave();
  uint32_t done = 0;
  uint64_t last_value = 0;
  uint32_t last_address = 0;
  bool known = false, last = false;
  for (uint32_t m = x.mask; m; m &= m - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(m));
    const uint32_t address = shared_operand(x, op, lane);
    const uint64_t value = kParity ? x.src(op.src[1]).lane[lane] : lanes<uint64_t>(x.src(op.src[1]))[lane];
    if (!known || address != last_address || value != last_value) {
      const Order order = decode_order(op.flags);
      last = kParity ? mbarrier_test_parity(*x.warp, address, static_cast<uint32_t>(value) & 1, order)
                     : mbarrier_test_token(*x.warp, address, value, order);
      last_address = address;
      last_value = value;
      known = true;
    }
    done |= static_cast<uint32_t>(last) << lane;
  }
  Fragment& f = x.current();
  // The time limit of a try_wait is the implementation's: randomised schedules let some end at once.
  const bool expires = done == 0 && kSuspends && x.grid->schedule.randomised() && x.grid->random() % 8 == 0;
  if (done == 0 && kSuspends && !f.give_up && !expires)
    return x.block(Wait::Kind::Mbarrier, last_address,
                   kParity ? static_cast<uint32_t>(last_value) & 1 : static_cast<uint32_t>(last_value >> 63));
  f.give_up = false;
  f.wait.kind = Wait::Kind::None;
  x.set_pred(op.dst, done);
  if (done) ++x.progress;
  return done || expires ? Step::Sync : Step::Yield;
}

Step pending_count(Exec& x, const MicroOp& op) {
  return each_lane(x, op, [&](uint32_t lane) {
    x.dst(op.dst).lane[lane] = mbarrier_pending_count(lanes<uint64_t>(x.src(op.src[0]))[lane]);
  });
}

// cp.async.mbarrier.arrive; aux 1 = .noinc.  Copies that were performed at once leave nothing to wait for.
Step arrive_after_copies(Exec& x, const MicroOp& op) {
  return each_lane(x, op, [&](uint32_t lane) {
    if (x.warp->copies.empty())
      mbarrier_arrive_copies(*x.warp, shared_operand(x, op, lane), op.aux ? 1 : 0);
    else
      copy_async_arrive(*x.warp, static_cast<int>(lane), shared_operand(x, op, lane), op.aux != 0);
  });
}

bool same_store(const TensorCopy& a, const TensorCopy& b) {
  return a.map == b.map && a.shared == b.shared && a.coordinates == b.coordinates;
}

// ---- tensor copies: src0 shared address, src1 map, src2 mbarrier or kNoRow, src3 multicast mask or kNoRow;
// list: coordinates. imm: shared offset; mode: mbarrier offset; aux: bits 0-3 rank, 4-5 cta_group, 6
// gather/scatter, 8-11 reduction; dst2: pool index unused.
// A store that all lanes of a warp execute with the same operands is performed once, as by the device's copy
// unit: CUTLASS's epilogues let a whole warp issue it.
template <int kKind>
Step copy_tensor(Exec& x, const MicroOp& op) {
  std::optional<TensorCopy> first;
  return each_lane(x, op, [&](uint32_t lane) {
    TensorCopy c;
    c.rank = static_cast<int>(op.aux & 15);
    c.cta_group = static_cast<int>(op.aux >> 4 & 3);
    c.gather4 = op.aux >> 6 & 1;
    c.reduce = static_cast<ReduceOp>(op.aux >> 8 & 15);
    c.map = lanes<uint64_t>(x.src(op.src[1]))[lane] +
            static_cast<uint64_t>(static_cast<int64_t>(static_cast<int16_t>(op.aux >> 16)));
    for (uint32_t k = 0; k < op.count; ++k)
      c.coordinates[k] = static_cast<int32_t>(x.src(x.lists[op.list + k]).lane[lane]);
    if (kKind != 2) c.shared = shared_operand(x, op, lane);
    if (kKind == 0) {
      c.mbarrier = x.src(op.src[2]).lane[lane] + op.mode;
      if (op.src[3] != kNoRow) c.multicast = static_cast<uint16_t>(x.src(op.src[3]).lane[lane]);
    }
    const uint64_t map_window = c.map & ~uint64_t{0xffffffff};
    if (map_window == 0) c.map += kParamWindow;  // an address of the .param space
    if (kKind == 1 && c.reduce == ReduceOp::None) {
      if (first && same_store(*first, c)) return;
      if (!first) first = c;
    }
    if (kKind == 0)
      tma_load(*x.warp, static_cast<int>(lane), c);
    else if (kKind == 1)
      tma_store(*x.warp, static_cast<int>(lane), c);
    else
      tma_prefetch(*x.warp, static_cast<int>(lane), c);
  });
}

// ---- bulk copies: src0 shared address (imm), src1 global or shared::cta address (offset in dst2), src2
// size, src3 mbarrier (mode); list: multicast or byte mask; aux: bits 0-3 reduction, 4-7 type, 8 list is a
// multicast mask, 9 list is a byte mask.
template <int kKind>
Step copy_bulk(Exec& x, const MicroOp& op) {
  return each_lane(x, op, [&](uint32_t lane) {
    BulkCopy c;
    c.shared = shared_operand(x, op, lane);
    c.bytes = x.src(op.src[2]).lane[lane];
    c.reduce = static_cast<ReduceOp>(op.aux & 15);
    c.type = static_cast<ReduceType>(op.aux >> 4 & 15);
    const auto offset = static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(op.dst2)));
    if (op.src[3] != kNoRow) c.mbarrier = x.src(op.src[3]).lane[lane] + op.mode;
    if (op.aux & 0x100) c.multicast = static_cast<uint16_t>(x.src(x.lists[op.list]).lane[lane]);
    if (op.aux & 0x200) c.byte_mask = static_cast<uint16_t>(x.src(x.lists[op.list]).lane[lane]);
    if (kKind == 2)
      c.shared_source = x.src(op.src[1]).lane[lane] + static_cast<uint32_t>(offset);
    else
      c.global = lanes<uint64_t>(x.src(op.src[1]))[lane] + offset;
    if (kKind == 0)
      bulk_load(*x.warp, static_cast<int>(lane), c);
    else if (kKind == 1)
      bulk_store(*x.warp, static_cast<int>(lane), c);
    else
      bulk_shared_to_cluster(*x.warp, static_cast<int>(lane), c);
  });
}

Step commit_bulk(Exec& x, const MicroOp& op) {
  return each_lane(x, op, [&](uint32_t lane) { bulk_commit(*x.warp, static_cast<int>(lane)); });
}
Step wait_bulk(Exec& x, const MicroOp& op) {  // imm: groups that may stay outstanding; aux: .read
  x.leave();
  for (uint32_t m = x.mask; m; m &= m - 1)
    if (!bulk_wait(*x.warp, std::countr_zero(m), static_cast<uint32_t>(op.imm), op.aux != 0))
      return x.block(Wait::Kind::BulkGroup, static_cast<uint32_t>(op.imm));
  for (uint32_t m = x.mask; m && x.observed; m &= m - 1)
    observe(*x.grid, [&](Observer& o) {
      o.bulk_waited(*x.warp, std::countr_zero(m), static_cast<uint32_t>(op.imm), op.aux != 0);
    });
  x.current().wait.kind = Wait::Kind::None;
  return Step::Sync;
}

// ---- tensor maps in memory: src0 address, src1 value; aux: field, index in bits 8-10
template <Space kSpace>
Step replace_in_map(Exec& x, const MicroOp& op) {
  return each_lane(x, op, [&](uint32_t lane) {
    const uint64_t address = lane_address(x, op, static_cast<int>(lane));
    if (address % 64 != 0)
      throw Fault(result::kMisalignedAddress,
                  fmt::format("tensormap.replace at {:#x}: a tensor map is 64-byte aligned", address));
    uint8_t* bytes = pointer(x, kSpace, lane, address, 4, true);
    pointer(x, kSpace, lane, address + 124, 4, true);
    const bool wide = op.src[1] != kNoRow && (op.aux & 255) % 4 == 0 && (op.aux & 255) <= 4;
    const uint64_t value = wide ? lanes<uint64_t>(x.src(op.src[1]))[lane] : x.src(op.src[1]).lane[lane];
    replace_field(bytes, static_cast<TensorMapField>(op.aux & 255), op.aux >> 8, value);
  });
}
// src0 shared address (imm), src1 global address (mode).  All lanes name the same places.
Step copy_map(Exec& x, const MicroOp& op) {
  require_whole_warp(x);
  x.leave();
  ++x.progress;
  const auto lane = x.first_lane();
  const uint64_t to = lanes<uint64_t>(x.src(op.src[1]))[lane] +
                      static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(op.mode)));
  const uint64_t from = lane_address(x, op, static_cast<int>(lane));
  if (to % 128 != 0 || from % 128 != 0)
    throw Fault(
        result::kMisalignedAddress,
        fmt::format("tensormap.cp_fenceproxy from {:#x} to {:#x}: both are 128-byte aligned", from, to));
  std::memcpy(global_range(*x.grid, to, 128, true),
              shared_pointer(*x.cluster, static_cast<uint32_t>(from), 128, false), 128);
  return Step::Sync;
}

}  // namespace

namespace handlers {

Handler tensormap_replace(Space space) {
  return space == Space::Global   ? &replace_in_map<Space::Global>
         : space == Space::Shared ? &replace_in_map<Space::Shared>
                                  : &replace_in_map<Space::Generic>;
}
Handler tensormap_copy() { return &copy_map; }
Handler mbarrier_init() { return &init_barrier; }
Handler mbarrier_inval() { return &invalidate_barrier; }
Handler mbarrier_arrive() { return &arrive_on_barrier; }
Handler mbarrier_expect_tx() { return &expect_bytes; }
Handler mbarrier_complete_tx() { return &complete_bytes; }
Handler mbarrier_wait(bool parity, bool suspending) {
  if (parity) return suspending ? &wait_on_barrier<true, true> : &wait_on_barrier<true, false>;
  return suspending ? &wait_on_barrier<false, true> : &wait_on_barrier<false, false>;
}
Handler mbarrier_pending_count() { return &pending_count; }
Handler cp_async_mbarrier_arrive() { return &arrive_after_copies; }
Handler tensor_copy(std::string_view kind) {
  return kind == "load" ? &copy_tensor<0> : kind == "store" ? &copy_tensor<1> : &copy_tensor<2>;
}
Handler bulk_copy(std::string_view kind) {
  return kind == "load" ? &copy_bulk<0> : kind == "store" ? &copy_bulk<1> : &copy_bulk<2>;
}
Handler bulk_commit() { return &commit_bulk; }
Handler bulk_wait() { return &wait_bulk; }

}  // namespace handlers
}  // namespace mxfa::emulator
