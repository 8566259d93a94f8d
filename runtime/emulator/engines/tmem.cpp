// Tensor memory: allocation (PTX ISA 9.7.16.7), loads and stores of warps (9.7.16.8).
#include "engines/tmem.hpp"

#include <cuda.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "engines/bulk.hpp"
#include "memory/memory.hpp"

namespace mxfa::emulator {
namespace {

constexpr uint32_t kGroup = 32;  // columns per allocation unit
constexpr uint32_t kColumnGroups = TensorMemory::kColumns / kGroup;

[[noreturn]] void refuse(const std::string& text, int code = CUDA_ERROR_ILLEGAL_INSTRUCTION) {
  throw Fault(code, "tcgen05." + text);
}

void report_misuse(const Warp& warp, Misuse misuse, uint32_t address, const std::string& who) {
  Cluster& cluster = *warp.cta->cluster;
  observe(*cluster.grid, [&](Observer& o) { o.misuse(cluster, &warp, misuse, address, who); });
}

TensorMemory& memory(const Warp& warp, const char* what) {
  if (!warp.cta->tensor_memory) refuse(fmt::format("{}: this device has no tensor memory", what));
  return *warp.cta->tensor_memory;
}

void require_size(uint32_t columns, const char* what) {
  if (columns < 32 || columns > 512 || (columns & (columns - 1)) != 0)
    refuse(fmt::format("{} of {} columns: 32, 64, 128, 256 or 512 are allowed", what, columns));
}

// A load or store whose address has been checked.
struct Access {
  TmemShape shape;
  uint32_t lane, column;
  int32_t half_offset;
  bool pack;
  uint32_t width;  // columns

  // Lane and first column of register r of thread t (the table of PTX ISA 9.7.16.2.3).  Packing uses two
  // columns a register, so it doubles the distance from the start; the immediate of .16x32bx2 is an address
  // distance and is not doubled.
  void place(uint32_t r, uint32_t t, uint32_t* lane_out, uint32_t* column_out) const {
    uint32_t l = 0, c = 0;
    int32_t extra = 0;
    switch (shape) {
      case TmemShape::S32x32b:
        l = t, c = r;
        break;
      case TmemShape::S16x64b:
        l = (t >> 2) + 8 * (t & 1), c = 2 * r + ((t >> 1) & 1);
        break;
      case TmemShape::S16x128b:
        l = (t >> 2) + 8 * (r & 1), c = 4 * (r >> 1) + (t & 3);
        break;
      case TmemShape::S16x256b:
        l = (t >> 2) + 8 * ((r >> 1) & 1), c = 8 * (r >> 2) + 2 * (t & 3) + (r & 1);
        break;
      case TmemShape::S16x32bx2:
        l = t & 15, c = r, extra = static_cast<int32_t>(t >> 4) * half_offset;
        break;
    }
    *lane_out = lane + l;
    *column_out = column + (pack ? 2 * c : c) + static_cast<uint32_t>(extra);
  }
};

int registers_per_repeat(TmemShape shape) {
  return shape == TmemShape::S16x128b ? 2 : shape == TmemShape::S16x256b ? 4 : 1;
}
int columns_per_repeat(TmemShape shape) {
  return shape == TmemShape::S16x64b    ? 2
         : shape == TmemShape::S16x128b ? 4
         : shape == TmemShape::S16x256b ? 8
                                        : 1;
}

Access check(const Warp& warp, const char* what, TmemShape shape, int repeat, bool pack, uint32_t address,
             int32_t half_offset, size_t registers) {
  memory(warp, what);
  const int limit = shape == TmemShape::S16x128b ? 64 : shape == TmemShape::S16x256b ? 32 : 128;
  if (repeat < 1 || repeat > limit || (repeat & (repeat - 1)) != 0)
    refuse(fmt::format("{}: .x{} does not exist for this shape", what, repeat));
  if (registers != static_cast<size_t>(repeat) * static_cast<size_t>(registers_per_repeat(shape)))
    refuse(fmt::format("{}.x{} with {} registers", what, repeat, registers));

  const uint32_t field = tmem_lane(address), quarter = warp.index % 4, within = field % 32;
  // A warp reaches its own 32 lanes; hardware takes the lane field modulo 32.  Lane 0 is the common way to
  // say "mine"; a field that names another quarter is undefined by PTX and always a mistake.
  if (field >= TensorMemory::kLanes || (field / 32 != 0 && field / 32 != quarter)) {
    report_misuse(warp, Misuse::TmemOtherLanes, address, what);
    refuse(
        fmt::format("{}: lane {} of address {:#010x} belongs to another warp: warp {} reaches lanes {} to {}",
                    what, field, address, warp.index, 32 * quarter, 32 * quarter + 31));
  }
  if (field / 32 != quarter) report_misuse(warp, Misuse::TmemLaneZero, address, what);
  if (within != 0 && (within != 16 || shape == TmemShape::S32x32b))
    refuse(fmt::format("{}: lane {} of address {:#010x}: {} is needed", what, field, address,
                       shape == TmemShape::S32x32b ? "a multiple of 32" : "a multiple of 16"));
  const int64_t width = int64_t{repeat} * columns_per_repeat(shape) * (pack ? 2 : 1);
  const std::string sentence = fmt::format("tcgen05.{} at {:#010x}", what, address);
  require_columns(*warp.cta, tmem_column(address), width, sentence, &warp);
  if (shape == TmemShape::S16x32bx2)
    require_columns(*warp.cta, int64_t{tmem_column(address)} + half_offset, width, sentence, &warp);
  return {shape, 32 * quarter + within,       tmem_column(address), half_offset,
          pack,  static_cast<uint32_t>(width)};
}

Touches touches_of(const Warp& warp, const Access& access, AccessKind kind) {
  const uint8_t lanes = access.shape == TmemShape::S32x32b ? 32 : 16;
  Touches list{{MemorySpace::Tensor, kind, warp.cta->rank, access.column, access.width,
                static_cast<uint8_t>(access.lane), lanes}};
  if (access.shape == TmemShape::S16x32bx2) {
    list.push_back(list.front());
    list.back().begin += static_cast<uint64_t>(static_cast<int64_t>(access.half_offset));
  }
  return list;
}

void load(const TensorMemory& tmem, const Access& access, uint32_t mask, std::span<Row* const> registers) {
  for (uint32_t r = 0; r < registers.size(); ++r) {
    Row& row = *registers[r];
    if (access.shape == TmemShape::S32x32b && !access.pack && mask == kFullMask) {
      std::memcpy(row.lane, &tmem.words[(access.column + r) * TensorMemory::kLanes + access.lane],
                  sizeof(row.lane));
      continue;
    }
    for (uint32_t t = 0; t < kLanes; ++t) {
      if (!(mask >> t & 1)) continue;
      uint32_t lane, column;
      access.place(r, t, &lane, &column);
      row.lane[t] = access.pack ? (tmem.word(lane, column) & 0xffff) | tmem.word(lane, column + 1) << 16
                                : tmem.word(lane, column);
    }
  }
}

void store(TensorMemory& tmem, const Access& access, uint32_t mask, std::span<const Row* const> registers) {
  for (uint32_t r = 0; r < registers.size(); ++r) {
    const Row& row = *registers[r];
    if (access.shape == TmemShape::S32x32b && !access.pack && mask == kFullMask) {
      std::memcpy(&tmem.words[(access.column + r) * TensorMemory::kLanes + access.lane], row.lane,
                  sizeof(row.lane));
      continue;
    }
    for (uint32_t t = 0; t < kLanes; ++t) {
      if (!(mask >> t & 1)) continue;
      uint32_t lane, column;
      access.place(r, t, &lane, &column);
      if (access.pack) {  // the upper halves are unspecified afterwards: poison
        tmem.word(lane, column) = (row.lane[t] & 0xffff) | 0xffff0000;
        tmem.word(lane, column + 1) = row.lane[t] >> 16 | 0xffff0000;
      } else {
        tmem.word(lane, column) = row.lane[t];
      }
    }
  }
}

}  // namespace

void require_columns(const Cta& cta, int64_t first, int64_t count, const std::string& what,
                     const Warp* warp) {
  if (!cta.tensor_memory)
    throw Fault(CUDA_ERROR_ILLEGAL_INSTRUCTION, what + ": this device has no tensor memory");
  if (first < 0 || first + count > TensorMemory::kColumns)
    throw Fault(CUDA_ERROR_ILLEGAL_ADDRESS, fmt::format("{}: tensor-memory columns [{}, {}), there are {}",
                                                        what, first, first + count, TensorMemory::kColumns));
  for (int64_t group = first / kGroup; group * kGroup < first + count; ++group)
    if (cta.tensor_memory->owner[static_cast<size_t>(group)] == 0) {
      if (warp)
        report_misuse(*warp, Misuse::TmemNotAllocated, static_cast<uint32_t>(std::max(first, group * kGroup)),
                      what);
      throw Fault(CUDA_ERROR_ILLEGAL_ADDRESS,
                  fmt::format("{}: tensor-memory columns [{}, {}), of which [{}, {}) are not allocated", what,
                              first, first + count, group * kGroup, (group + 1) * kGroup));
    }
  // Nothing promises that two allocations are neighbours.
  const auto owner_of = [&](int64_t column) {
    return cta.tensor_memory->owner[static_cast<size_t>(column / kGroup)];
  };
  if (warp && count > 0 && owner_of(first) != owner_of(first + count - 1))
    report_misuse(*warp, Misuse::TmemAcross, static_cast<uint32_t>(first), what);
}

CtaGroup cta_group_of(Cta& cta, int group, const char* what) {
  if (!cta.tensor_memory) refuse(fmt::format("{}: this device has no tensor memory", what));
  if (group == 1) return {{&cta, nullptr}, 1, tensor_queue(cta.rank)};
  Cluster& cluster = *cta.cluster;
  const uint32_t even = cta.rank & ~1u;
  if (even + 1 >= cluster.ctas.size())
    refuse(fmt::format("{}.cta_group::2 by CTA rank {} of a cluster of {}: it has no other CTA to pair with",
                       what, cta.rank, cluster.ctas.size()));
  CtaGroup pair{{cluster.ctas[even].get(), cluster.ctas[even + 1].get()}, 2, pair_queue(cta.rank)};
  for (const Cta* member : pair.ctas())
    if (member->live_warps == 0)
      refuse(fmt::format(
          "{}.cta_group::2: CTA rank {} of the pair has exited: end the kernel with a cluster barrier", what,
          member->rank));
  return pair;
}

namespace {

// The first columns that are free in every CTA of the group; false if there are none.
bool find_free(const CtaGroup& group, uint32_t groups, uint32_t* first) {
  const size_t limit = kColumnGroups;
  for (*first = 0; *first + groups <= limit; ++*first) {
    bool free = true;
    for (const Cta* cta : group.ctas())
      for (uint32_t g = 0; g < groups; ++g) free &= cta->tensor_memory->owner[*first + g] == 0;
    if (free) return true;
  }
  return false;
}

void take(Warp& warp, Cta& cta, uint32_t first, uint32_t groups, int cta_group, uint32_t shared_destination) {
  TensorMemory& tmem = *cta.tensor_memory;
  for (uint32_t g = 0; g < groups; ++g) tmem.owner[first + g] = tmem.next_id;
  ++tmem.next_id;
  tmem.last_size = groups * kGroup;
  const uint32_t base = first * kGroup;
  std::memcpy(shared_pointer(*cta.cluster, shared_destination, 4u, true), &base, 4);
  observe(*cta.cluster->grid, [&](Observer& o) {
    o.tmem_alloc(warp, cta.rank, base, groups * kGroup, cta_group, shared_destination);
  });
}

void give(Warp& warp, Cta& cta, uint32_t first, uint32_t groups) {
  TensorMemory& tmem = *cta.tensor_memory;
  observe(*cta.cluster->grid,
          [&](Observer& o) { o.tmem_dealloc(warp, cta.rank, first * kGroup, groups * kGroup); });
  for (uint32_t g = 0; g < groups; ++g) tmem.owner[first + g] = 0;
  std::memset(&tmem.words[size_t{first} * kGroup * TensorMemory::kLanes], 0xff,
              size_t{groups} * kGroup * TensorMemory::kLanes * 4);
  ++cta.cluster->epoch;  // an alloc may be waiting
}

void require_allocation(const Warp& warp, uint32_t address, uint32_t columns) {
  const TensorMemory& tmem = *warp.cta->tensor_memory;
  const uint32_t first = tmem_column(address) / kGroup, groups = columns / kGroup;
  bool exact =
      tmem_lane(address) == 0 && tmem_column(address) % kGroup == 0 && first + groups <= tmem.owner.size();
  if (exact) {
    const uint32_t id = tmem.owner[first];
    uint32_t held = 0;
    for (const uint32_t owner : tmem.owner) held += owner == id;
    exact = id != 0 && held == groups && (first == 0 || tmem.owner[first - 1] != id);
  }
  if (!exact) {
    report_misuse(warp, Misuse::TmemDealloc, address, "tcgen05.dealloc");
    refuse(fmt::format("dealloc of {} columns at {:#010x}: no allocation has this base and size", columns,
                       address));
  }
}

// The other CTA of the pair has come meanwhile and done the work (and may even have exited since).
bool done_by_other(Warp& warp) {
  TensorMemory::PairStep& mine = warp.cta->tensor_memory->pair_step;
  if (!mine.done || mine.warp != warp.index) return false;
  mine = {};
  ++warp.cta->cluster->epoch;
  return true;
}

// alloc and dealloc of a pair: one warp of each CTA executes it; the first waits for the second, which does
// the work for both.  False while this CTA has to wait, or another warp of it is at such an instruction.
// `work` is false when it cannot be done yet.
template <class Work>
bool rendezvous(Warp& warp, const CtaGroup& group, const TensorMemory::PairStep& step, Work work) {
  TensorMemory::PairStep& mine = warp.cta->tensor_memory->pair_step;
  TensorMemory::PairStep& other = group.cta[1 - (warp.cta->rank & 1)]->tensor_memory->pair_step;
  if (mine.kind != TensorMemory::PairStep::Kind::None && mine.warp != step.warp) return false;
  mine = step;
  if (other.kind == TensorMemory::PairStep::Kind::None || other.done) return false;
  if (other.kind != step.kind || other.columns != step.columns ||
      (step.kind == TensorMemory::PairStep::Kind::Dealloc && other.address != step.address))
    refuse(fmt::format(
        "{}.cta_group::2 of {} columns meets {}.cta_group::2 of {} columns in the other CTA: both must "
        "execute the same (PTX ISA 9.7.16.7.1)",
        step.kind == TensorMemory::PairStep::Kind::Alloc ? "alloc" : "dealloc", step.columns,
        other.kind == TensorMemory::PairStep::Kind::Alloc ? "alloc" : "dealloc", other.columns));
  if (!work(other)) return false;
  mine = {};
  other.done = true;
  ++warp.cta->cluster->epoch;
  return true;
}

// The warp of `cta` that takes part: this one, or the one that waits in the other CTA.
Warp& warp_of(Warp& warp, Cta& cta, const TensorMemory::PairStep& other) {
  return &cta == warp.cta ? warp : cta.warps[other.warp];
}

}  // namespace

bool tcgen05_alloc(Warp& warp, uint32_t shared_destination, uint32_t columns, int cta_group) {
  TensorMemory& tmem = memory(warp, "alloc");
  if (done_by_other(warp)) return true;
  const CtaGroup group = cta_group_of(*warp.cta, cta_group, "alloc");
  require_size(columns, "alloc");
  if (tmem.relinquished || columns > tmem.last_size)
    report_misuse(warp, Misuse::TmemAlloc, shared_destination, "tcgen05.alloc");
  if (tmem.relinquished) refuse("alloc after relinquish_alloc_permit");
  if (columns > tmem.last_size)
    refuse(fmt::format(
        "alloc of {} columns after one of {}: sizes must not grow within a CTA (PTX ISA 9.7.16.7)", columns,
        tmem.last_size));
  shared_pointer(*warp.cta->cluster, shared_destination, 4u, true);
  const uint32_t groups = columns / kGroup;
  uint32_t first = 0;
  if (cta_group == 1) {
    if (!find_free(group, groups, &first)) return false;
    take(warp, *warp.cta, first, groups, 1, shared_destination);
    return true;
  }
  const TensorMemory::PairStep step{TensorMemory::PairStep::Kind::Alloc, warp.index, columns, 0,
                                    shared_destination};
  return rendezvous(warp, group, step, [&](const TensorMemory::PairStep& other) {
    if (!find_free(group, groups, &first)) return false;
    for (Cta* cta : group.ctas())  // both get the same columns
      take(warp_of(warp, *cta, other), *cta, first, groups, 2,
           cta == warp.cta ? shared_destination : other.destination);
    return true;
  });
}

bool tcgen05_dealloc(Warp& warp, uint32_t address, uint32_t columns, int cta_group) {
  memory(warp, "dealloc");
  if (done_by_other(warp)) return true;
  const CtaGroup group = cta_group_of(*warp.cta, cta_group, "dealloc");
  require_size(columns, "dealloc");
  require_allocation(warp, address, columns);
  const uint32_t first = tmem_column(address) / kGroup, groups = columns / kGroup;
  if (cta_group == 1) {
    give(warp, *warp.cta, first, groups);
    return true;
  }
  const TensorMemory::PairStep step{TensorMemory::PairStep::Kind::Dealloc, warp.index, columns, address, 0};
  return rendezvous(warp, group, step, [&](const TensorMemory::PairStep& other) {
    for (Cta* cta : group.ctas()) give(warp_of(warp, *cta, other), *cta, first, groups);
    return true;
  });
}

void tcgen05_relinquish(Warp& warp, int cta_group) {
  cta_group_of(*warp.cta, cta_group, "relinquish_alloc_permit");
  memory(warp, "relinquish_alloc_permit").relinquished = true;
  observe(*warp.cta->cluster->grid, [&](Observer& o) { o.tmem_relinquish(warp); });
}

namespace {

uint32_t combine(const TmemReduction& r, uint32_t a, uint32_t b) {
  if (r.type == TmemReduction::Type::U32) return (a < b) == r.maximum ? b : a;
  if (r.type == TmemReduction::Type::S32)
    return (static_cast<int32_t>(a) < static_cast<int32_t>(b)) == r.maximum ? b : a;
  const float x = std::bit_cast<float>(a), y = std::bit_cast<float>(b);
  if (std::isnan(x) || std::isnan(y)) {
    if (r.nan || (std::isnan(x) && std::isnan(y))) return 0x7fffffff;
    return std::isnan(x) ? b : a;
  }
  const bool less = x < y || (x == y && std::signbit(x) && !std::signbit(y));
  return less == r.maximum ? b : a;
}

// The load, and with a reduction its value into the last row.
void load_and_reduce(const TensorMemory& tmem, const Access& access, uint32_t mask,
                     std::span<Row* const> rows, const std::optional<TmemReduction>& reduction) {
  if (!reduction) return load(tmem, access, mask, rows);
  const auto loaded = rows.first(rows.size() - 1);
  load(tmem, access, mask, loaded);
  const uint32_t value_mask = reduction->absolute ? 0x7fffffff : 0xffffffff;
  for (uint32_t t = 0; t < kLanes; ++t) {
    if (!(mask >> t & 1)) continue;
    uint32_t value = loaded[0]->lane[t] & value_mask;
    for (const Row* row : loaded.subspan(1)) value = combine(*reduction, value, row->lane[t] & value_mask);
    rows.back()->lane[t] = value;
  }
}

void finish_loads(Warp& warp) {
  while (warp.pending_tmem_loads)
    warp.cta->cluster->events.drain(tmem_port_queue(warp.cta->rank, warp.index), 1);
}

}  // namespace

void tcgen05_ld(Warp& warp, TmemShape shape, int repeat, bool pack16, uint32_t address, int32_t half_offset,
                std::span<Row* const> registers, const std::optional<TmemReduction>& reduction) {
  const Access access = check(warp, reduction ? "ld.red" : "ld", shape, repeat, pack16, address, half_offset,
                              registers.size() - (reduction ? 1 : 0));
  EventQueue& events = warp.cta->cluster->events;
  TensorMemory& tmem = *warp.cta->tensor_memory;
  const uint64_t ticket =
      announce(warp, {0, AsyncKind::TmemLoad}, [&] { return touches_of(warp, access, AccessKind::Read); });
  if (events.immediate()) {
    load_and_reduce(tmem, access, warp.mask, registers, reduction);
    return report_performed(*warp.cta->cluster, ticket);
  }
  // Registers are undefined until wait::ld, or the use that completes the load (ptx/pending_loads.hpp).
  std::vector<Row*> rows(registers.begin(), registers.end());
  for (Row* row : rows)
    for (int t = 0; t < kLanes; ++t)
      if (warp.mask >> t & 1) row->lane[t] = 0xffffffff;
  ++warp.pending_tmem_loads;
  events.submit(tmem_port_queue(warp.cta->rank, warp.index),
                fmt::format("tcgen05.ld at {:#010x} by cta {} warp {} pc {}", address, warp.cta->rank,
                            warp.index, warp.pc),
                [&warp, &tmem, access, mask = warp.mask, rows = std::move(rows), reduction, ticket] {
                  load_and_reduce(tmem, access, mask, rows, reduction);
                  report_performed(*warp.cta->cluster, ticket);
                  --warp.pending_tmem_loads;
                });
}

void tcgen05_st(Warp& warp, TmemShape shape, int repeat, bool unpack16, uint32_t address, int32_t half_offset,
                std::span<const Row* const> registers) {
  const Access access = check(warp, "st", shape, repeat, unpack16, address, half_offset, registers.size());
  EventQueue& events = warp.cta->cluster->events;
  TensorMemory& tmem = *warp.cta->tensor_memory;
  const uint64_t ticket =
      announce(warp, {0, AsyncKind::TmemStore}, [&] { return touches_of(warp, access, AccessKind::Write); });
  if (events.immediate()) {
    store(tmem, access, warp.mask, registers);
    return report_performed(*warp.cta->cluster, ticket);
  }
  // The port is in order: older loads of the quarter read what was there before.
  for (Warp& other : warp.cta->warps)
    if (other.index % 4 == warp.index % 4) finish_loads(other);
  // Source registers are read at issue; the cells are undefined until wait::st.
  std::vector<Row> values;
  for (const Row* row : registers) values.push_back(*row);
  Row poison;
  std::memset(&poison, 0xff, sizeof(poison));
  store(tmem, access, warp.mask, std::vector<const Row*>(registers.size(), &poison));
  ++warp.pending_tmem_stores;
  events.submit(tmem_port_queue(warp.cta->rank, warp.index),
                fmt::format("tcgen05.st at {:#010x} by cta {} warp {} pc {}", address, warp.cta->rank,
                            warp.index, warp.pc),
                [&warp, &tmem, access, mask = warp.mask, values = std::move(values), ticket] {
                  std::vector<const Row*> rows;
                  for (const Row& value : values) rows.push_back(&value);
                  store(tmem, access, mask, rows);
                  report_performed(*warp.cta->cluster, ticket);
                  --warp.pending_tmem_stores;
                });
}

void tcgen05_load_used(Warp& warp) {
  finish_loads(warp);
  observe(*warp.cta->cluster->grid, [&](Observer& o) { o.tmem_load_used(warp); });
}

bool tcgen05_wait_ld(Warp& warp) {
  finish_loads(warp);
  observe(*warp.cta->cluster->grid, [&](Observer& o) { o.tmem_waited(warp, true); });
  return true;
}

bool tcgen05_wait_st(Warp& warp) {
  while (warp.pending_tmem_stores)
    warp.cta->cluster->events.drain(tmem_port_queue(warp.cta->rank, warp.index), 1);
  observe(*warp.cta->cluster->grid, [&](Observer& o) { o.tmem_waited(warp, false); });
  return true;
}

// Fences order, they move no data; the hazard checks look at them.
void tcgen05_fence(Warp& warp, bool before) {
  observe(*warp.cta->cluster->grid, [&](Observer& o) {
    o.fence(warp, {before ? FenceKind::TmemBefore : FenceKind::TmemAfter, {}, false, false});
  });
}

}  // namespace mxfa::emulator
