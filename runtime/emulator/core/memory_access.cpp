// Addresses to host pointers, with a fast path for the CTA's own shared memory and for the allocations a warp
// touched last.
#include "core/memory_access.hpp"

#include <fmt/format.h>

#include "core/observer.hpp"
#include "core/results.hpp"

namespace mxfa::emulator {
namespace {

void check_alignment(uint64_t address, uint32_t bytes, std::string_view space) {
  if (address & (bytes - 1))
    throw Fault(
        result::kMisalignedAddress,
        fmt::format("{} address {:#x} is not aligned to the access size of {} bytes", space, address, bytes));
}

// Without a sum that could wrap around.
bool holds(uint64_t base, uint64_t size, uint64_t address, uint32_t bytes) {
  const uint64_t offset = address - base;
  return offset < size && bytes <= size - offset;
}

// The cached allocation that holds [address, address + bytes), or null.
const Exec::Range* find_range(Exec& x, uint64_t address, uint32_t bytes) {
  for (const Exec::Range& r : x.global)
    if (holds(r.begin, r.end - r.begin, address, bytes)) return &r;
  uint64_t base = 0, size = 0;
  if (!x.grid->arena->find(address, &base, &size) || !holds(base, size, address, bytes)) return nullptr;
  Exec::Range& r = x.global[x.next_range++ & 3];
  r = {base, base + size};
  return &r;
}

uint8_t* local_pointer(Exec& x, uint32_t lane, uint64_t offset, uint32_t bytes) {
  if (offset + bytes > x.local_bytes)
    throw Fault(result::kIllegalAddress,
                fmt::format("local address {:#x} + {} lies outside the {} bytes of local memory of a thread",
                            offset, bytes, x.local_bytes));
  return x.local_base + static_cast<size_t>(lane) * x.local_bytes + offset;
}

uint8_t* parameter_pointer(Exec& x, uint64_t offset, uint32_t bytes, bool write) {
  auto& p = x.grid->parameters;
  if (write) throw Fault(result::kIllegalAddress, "store to kernel parameters");
  if (offset + bytes > p.size())
    throw Fault(result::kIllegalAddress,
                fmt::format("parameter address {:#x} + {} lies outside the {} bytes of parameters", offset,
                            bytes, p.size()));
  return p.data() + offset;
}

// Shared memory of any CTA of the cluster, as long as that CTA runs.
uint8_t* cluster_pointer(Exec& x, uint32_t address, uint32_t bytes, bool write) {
  uint8_t* p = shared_pointer(*x.cluster, address, bytes, write);
  const uint32_t rank = shared_rank(address);
  if (rank != x.cta->rank && x.cluster->ctas[rank]->live_warps == 0)
    throw Fault(
        result::kIllegalAddress,
        fmt::format("shared address {:#x} belongs to CTA rank {}, all of whose threads have exited: end the "
                    "kernel with a cluster barrier",
                    address, rank));
  return p;
}

}  // namespace

uint8_t* pointer(Exec& x, Space space, uint32_t lane, uint64_t address, uint32_t bytes, bool write) {
  check_alignment(address, bytes, ptx::name(space));
  switch (space) {
    case Space::Shared:
      return cluster_pointer(x, static_cast<uint32_t>(address), bytes, write);
    case Space::Local:
      return local_pointer(x, lane, static_cast<uint32_t>(address), bytes);
    case Space::Param:
      return parameter_pointer(x, static_cast<uint32_t>(address), bytes, write);
    case Space::Global:
    case Space::Const:
      if (find_range(x, address, bytes)) return reinterpret_cast<uint8_t*>(address);
      return global_pointer(*x.grid, address, bytes, write);
    case Space::Generic: {
      const uint64_t window = address & ~uint64_t{0xffffffff};
      const auto offset = static_cast<uint32_t>(address);
      if (window == kSharedWindow) return cluster_pointer(x, offset, bytes, write);
      if (window == kLocalWindow) return local_pointer(x, lane, offset, bytes);
      if (window == kParamWindow) return parameter_pointer(x, offset, bytes, write);
      return pointer(x, Space::Global, lane, address, bytes, write);
    }
  }
  return nullptr;
}

void resolve(Exec& x, const MicroOp& op, Space space, uint32_t bytes, bool write, Pointers& out) {
  const uint32_t mask = x.mask;
  if (space == Space::Shared && !(op.flags & kWideAddress)) {
    const auto* a = lanes<uint32_t>(x.src(op.src[0]));
    const auto offset = static_cast<uint32_t>(op.imm);
    // Own CTA, above the reserved area, inside, aligned: one unsigned comparison and one mask.
    const uint32_t begin = x.shared_rank + x.shared_begin, limit = x.shared_size - x.shared_begin - bytes;
    uint8_t* base = x.shared_base;
    const uint32_t rank = x.shared_rank;
    uint32_t bad = x.observed;  // sends observed accesses past the return
    for (int i = 0; i < kLanes; ++i) {
      const uint32_t address = a[i] + offset;
      const uint32_t wrong = static_cast<uint32_t>(address - begin > limit) | (address & (bytes - 1));
      bad |= (mask >> i) & 1 ? wrong : 0;
      out.lane[i] = base + (address - rank);
    }
    if (bad == 0 && x.shared_size >= x.shared_begin + bytes) return;
    if (bad == kObserved && x.shared_size >= x.shared_begin + bytes)
      return report_access(x, op, space, bytes, write, mask);
  } else if (space == Space::Global && (op.flags & kWideAddress)) {
    const auto* a = lanes<uint64_t>(x.src(op.src[0]));
    const uint64_t offset = static_cast<uint64_t>(op.imm);
    if (const Exec::Range* r = find_range(x, a[x.first_lane()] + offset, bytes)) {
      const uint64_t begin = r->begin, limit = r->end - r->begin - bytes;
      uint64_t bad = x.observed;
      for (int i = 0; i < kLanes; ++i) {
        const uint64_t address = a[i] + offset;
        const uint64_t wrong = static_cast<uint64_t>(address - begin > limit) | (address & (bytes - 1));
        bad |= (mask >> i) & 1 ? wrong : 0;
        out.lane[i] = reinterpret_cast<uint8_t*>(address);
      }
      if (bad == 0) return;
      if (bad == kObserved) return report_access(x, op, space, bytes, write, mask);
    }
  }
  for (uint32_t lane = 0; lane < kLanes; ++lane)
    if (mask >> lane & 1) {
      const uint64_t address = lane_address(x, op, static_cast<int>(lane));
      try {
        out.lane[lane] = pointer(x, space, lane, address, bytes, write);
      } catch (const Fault& f) {
        throw Fault(f.code, fmt::format("lane {}: {}", lane, f.what()));
      }
    }
  if (x.observed) report_access(x, op, space, bytes, write, mask);
}

void report_access(Exec& x, const MicroOp& op, Space space, uint32_t bytes, bool write, uint32_t mask, int k,
                   bool copy_async) {
  if (space == Space::Local || space == Space::Param || space == Space::Const) return;
  x.leave();
  uint64_t address[kLanes];
  uint32_t shared = 0, global = 0;
  for (uint32_t m = mask; m; m &= m - 1) {
    const int lane = std::countr_zero(m);
    address[lane] = lane_address(x, op, lane, k);
    const uint64_t window = address[lane] & ~uint64_t{0xffffffff};
    if (space == Space::Shared || (space == Space::Generic && window == kSharedWindow)) {
      shared |= 1u << lane;
      address[lane] &= 0xffffffff;
    } else if (space == Space::Global || (window != kLocalWindow && window != kParamWindow)) {
      global |= 1u << lane;
    }
  }
  LaneAccess access;
  access.kind = op.flags & kAtomicAccess ? AccessKind::Atomic : write ? AccessKind::Write : AccessKind::Read;
  access.order = decode_order(op.flags);
  access.sum = op.flags & kSumAccess;
  access.copy_async = copy_async;
  access.bytes = bytes;
  access.address = address;
  for (const MemorySpace s : {MemorySpace::Shared, MemorySpace::Global}) {
    access.space = s;
    access.mask = s == MemorySpace::Shared ? shared : global;
    if (access.mask) observe(*x.grid, [&](Observer& o) { o.access(*x.warp, access); });
  }
}

uint32_t to_shared_address(const Exec&, uint64_t address, bool generic) {
  if (generic && (address & ~uint64_t{0xffffffff}) != kSharedWindow)
    throw Fault(result::kIllegalAddress,
                fmt::format("generic address {:#x} does not point to shared memory", address));
  return static_cast<uint32_t>(address);
}

}  // namespace mxfa::emulator
