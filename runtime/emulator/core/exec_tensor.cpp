// tcgen05: operands are decoded here, the work is done by engines/.  MicroOp::aux holds the cta_group unless
// a handler says otherwise.  Allocation, loads, stores and waits belong to whole warps; mma, cp and commit to
// single threads.
#include <fmt/format.h>

#include "core/aligned.hpp"
#include "core/exec.hpp"
#include "core/handlers.hpp"
#include "core/memory_access.hpp"
#include "core/results.hpp"
#include "engines/engines.hpp"

namespace mxfa::emulator {
namespace {

uint32_t same_in_all(const Exec& x, uint32_t source, const char* what) {
  const uint32_t* v = x.src(source).lane;
  const uint32_t value = v[x.first_lane()];
  for (uint32_t m = x.mask; m; m &= m - 1)
    if (v[std::countr_zero(m)] != value)
      throw Fault(result::kLaunchFailed, fmt::format("{} differs between the lanes of a warp", what));
  return value;
}

Step unblocked(Exec& x) {
  x.current().wait.kind = Wait::Kind::None;
  ++x.progress;
  return Step::Sync;
}

Step allocate(Exec& x, const MicroOp& op) {
  require_whole_warp(x);
  x.leave();
  const uint32_t columns = same_in_all(x, op.src[1], "the number of tensor-memory columns");
  const uint64_t to = lane_address(x, op, static_cast<int>(x.first_lane()));
  if (!tcgen05_alloc(*x.warp, to_shared_address(x, to, op.flags & kGenericAddress), columns,
                     static_cast<int>(op.aux)))
    return x.block(Wait::Kind::TmemAlloc, columns);
  return unblocked(x);
}

Step deallocate(Exec& x, const MicroOp& op) {
  require_whole_warp(x);
  x.leave();
  const uint32_t address = same_in_all(x, op.src[0], "the tensor-memory address"),
                 columns = same_in_all(x, op.src[1], "the number of columns");
  if (!tcgen05_dealloc(*x.warp, address, columns, static_cast<int>(op.aux)))
    return x.block(Wait::Kind::TmemAlloc, columns);
  return unblocked(x);
}

Step relinquish(Exec& x, const MicroOp& op) {
  require_whole_warp(x);
  x.leave();
  tcgen05_relinquish(*x.warp, static_cast<int>(op.aux));
  return Step::Sync;
}

// Of tcgen05.ld.red; the layout of aux is that of lower_tcgen05_ld_red.
std::optional<TmemReduction> reduction_of(uint32_t aux) {
  if (!(aux & 32)) return std::nullopt;
  return TmemReduction{(aux & 64) != 0, (aux & 128) != 0, (aux >> 16 & 1) != 0,
                       static_cast<TmemReduction::Type>(aux >> 17 & 3)};
}

Step load_tmem(Exec& x, const MicroOp& op) {
  require_whole_warp(x);
  x.leave();
  const uint32_t address =
      same_in_all(x, op.src[0], "the tensor-memory address") + static_cast<uint32_t>(op.imm);
  Row* rows[129];
  static thread_local Row sink;  // outlives the instruction: a late load may still write it
  for (uint32_t k = 0; k < op.count; ++k) {
    const uint32_t row = x.lists[op.list + k];
    rows[k] = row == kNoRow ? &sink : &x.dst(row);
  }
  tcgen05_ld(*x.warp, static_cast<TmemShape>(op.aux & 15), static_cast<int>(op.aux >> 8 & 255), op.aux & 16,
             address, static_cast<int32_t>(op.mode), std::span<Row* const>(rows, op.count),
             reduction_of(op.aux));
  return Step::Sync;
}

Step store_tmem(Exec& x, const MicroOp& op) {
  require_whole_warp(x);
  x.leave();
  const uint32_t address =
      same_in_all(x, op.src[0], "the tensor-memory address") + static_cast<uint32_t>(op.imm);
  const Row* rows[128];
  for (uint32_t k = 0; k < op.count; ++k) rows[k] = &x.src(x.lists[op.list + k]);
  tcgen05_st(*x.warp, static_cast<TmemShape>(op.aux & 15), static_cast<int>(op.aux >> 8 & 255), op.aux & 16,
             address, static_cast<int32_t>(op.mode), std::span<const Row* const>(rows, op.count));
  return Step::Sync;
}

template <bool kLoad>
Step wait(Exec& x, const MicroOp&) {
  require_whole_warp(x);
  x.leave();
  const bool done = kLoad ? tcgen05_wait_ld(*x.warp) : tcgen05_wait_st(*x.warp);
  if (!done) return x.block(kLoad ? Wait::Kind::TmemLoad : Wait::Kind::TmemStore);
  return unblocked(x);
}

Step load_use(Exec& x, const MicroOp&) {
  x.leave();
  tcgen05_load_used(*x.warp);
  return Step::Continue;
}

Step fence_tmem(Exec& x, const MicroOp& op) {
  x.leave();
  tcgen05_fence(*x.warp, op.aux != 0);
  return Step::Continue;
}

template <class F>
Step each_lane(Exec& x, F f) {
  x.leave();
  ++x.progress;
  for (uint32_t m = x.mask; m; m &= m - 1) f(static_cast<uint32_t>(std::countr_zero(m)));
  return Step::Sync;
}

// aux: bits 0-3 shape, 4-5 cta_group, 6-7 expansion
Step copy(Exec& x, const MicroOp& op) {
  return each_lane(x, [&](uint32_t lane) {
    tcgen05_cp(*x.warp, static_cast<int>(lane), static_cast<TmemCopyShape>(op.aux & 15),
               x.src(op.src[0]).lane[lane] + static_cast<uint32_t>(op.imm),
               lanes<uint64_t>(x.src(op.src[1]))[lane], static_cast<int>(op.aux >> 4 & 3),
               static_cast<TmemCopyExpansion>(op.aux >> 6));
  });
}

Step commit(Exec& x, const MicroOp& op) {
  return each_lane(x, [&](uint32_t lane) {
    const uint32_t barrier =
        to_shared_address(x, lane_address(x, op, static_cast<int>(lane)), op.flags & kGenericAddress);
    std::optional<uint16_t> multicast;
    if (op.src[1] != kNoRow) multicast = static_cast<uint16_t>(x.src(op.src[1]).lane[lane]);
    tcgen05_commit(*x.warp, static_cast<int>(lane), barrier, multicast, static_cast<int>(op.aux));
  });
}

// Operands as lower_tcgen05_mma lays them out.
Step multiply(Exec& x, const MicroOp& op) {
  return each_lane(x, [&](uint32_t lane) {
    const uint32_t* list = x.lists + op.list;
    const uint32_t* offset = x.lists + op.imm;
    const auto word = [&](uint32_t k) { return x.src(list[k]).lane[lane]; };
    const auto wide = [&](uint32_t k) { return lanes<uint64_t>(x.src(list[k]))[lane]; };
    TensorMma mma;
    mma.kind = static_cast<MmaKind>(op.aux & 15);
    mma.cta_group = op.aux & 64 ? 2 : 1;
    mma.a_in_tmem = op.aux & 16;
    mma.weight_stationary = op.aux & 128;
    mma.d = word(0) + offset[0];
    if (mma.a_in_tmem)
      mma.a_tmem = word(1) + offset[1];
    else
      mma.a_descriptor = wide(1);
    mma.b_descriptor = wide(2);
    mma.instruction = word(3);
    uint32_t next = 4;
    if (op.aux & 32) {
      mma.scale_a = word(4) + offset[2];
      mma.scale_b = word(5) + offset[3];
      next = 6;
    }
    mma.scale_vector = static_cast<int>(op.aux >> 8 & 15);
    if (const uint32_t words = op.aux >> 12 & 15) {
      mma.disable_lanes.emplace();
      mma.disable_lanes->fill(0);
      for (uint32_t k = 0; k < words; ++k) (*mma.disable_lanes)[k] = word(next + k);
    }
    mma.accumulate = x.pred(op.src[0]) >> lane & 1;
    mma.scale_input_d = static_cast<int>(op.mode);
    tcgen05_mma(*x.warp, static_cast<int>(lane), mma);
  });
}

}  // namespace

namespace handlers {

Handler tcgen05_alloc() { return &allocate; }
Handler tcgen05_dealloc() { return &deallocate; }
Handler tcgen05_relinquish() { return &relinquish; }
Handler tcgen05_load() { return &load_tmem; }
Handler tcgen05_store() { return &store_tmem; }
Handler tcgen05_load_use() { return &load_use; }
Handler tcgen05_wait(bool load_side) { return load_side ? &wait<true> : &wait<false>; }
Handler tcgen05_fence() { return &fence_tmem; }
Handler tcgen05_copy() { return &copy; }
Handler tcgen05_mma() { return &multiply; }
Handler tcgen05_commit() { return &commit; }

}  // namespace handlers
}  // namespace mxfa::emulator
