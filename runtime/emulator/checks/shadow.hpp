// Who touched what: a few records for every cell of memory.  A cell is 16 bytes of shared or global memory,
// or the 32 lanes of one quarter in one column of tensor memory; a record covers some bytes or lanes of it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace mxfa::emulator {

enum RecordFlags : uint16_t {
  kWrites = 1,
  kStrong = 2,  // atomics, and loads and stores with an order: they do not race with each other
  kWork = 4,    // asynchronous: value is the number of the operation
  kAsyncProxy = 8,
  kTensorPipe = 16,    // tcgen05.mma, cp: done in the order of issue
  kTensorAccess = 32,  // of tensor memory by any tcgen05 instruction
  kCopyAsync = 64,     // cp.async: generic, complete at its wait_group
  kBarrierInit = 128,  // mbarrier.init
  kAllocation = 256,   // the address that tcgen05.alloc writes
  kSum = 512           // an atomic addition of floating-point numbers
};

struct Record {
  uint32_t mask = 0;  // 0: none
  uint32_t value = 0;
  uint32_t pc = 0;
  uint32_t cluster : 29 = 0;  // number in the grid
  uint32_t pattern : 3 = 0;   // of the lanes of a warp that touch the cell
  uint16_t component = 0;     // in that cluster
  uint16_t flags : 11 = 0;
  uint16_t lane : 5 = 0;  // of the first byte of the cell, were it part of the access; work: that issued it
};

// Patterns up to 4: 1 << pattern bytes a lane, one lane after the other.
inline constexpr uint32_t kEveryLane = 5;   // each of several lanes touches all of the bytes
inline constexpr uint32_t kOtherLanes = 6;  // neither

// Records that do not fit a cell: by what a new access has to look at.
struct MoreRecords {
  std::vector<Record> writes, strong, reads;  // weak writes, accesses with an order, weak reads
  size_t tidy_at = 32;                        // records of one kind before the next tidying
  bool empty() const { return writes.empty() && strong.empty() && reads.empty(); }
};

class Overflow {
 public:
  MoreRecords& list(uint32_t& handle) {
    if (handle == 0) {
      if (free_.empty()) {
        lists_.emplace_back();
        free_.push_back(static_cast<uint32_t>(lists_.size()));
      }
      handle = free_.back();
      free_.pop_back();
    }
    return lists_[handle - 1];
  }
  void release(uint32_t& handle) {
    lists_[handle - 1] = {};
    free_.push_back(handle);
    handle = 0;
  }

 private:
  std::vector<MoreRecords> lists_;
  std::vector<uint32_t> free_;
};

// A later access of the same warp stands for its earlier ones.
void forget_repeated(std::vector<Record>& records);

struct alignas(64) Cell {
  Record write, read[2];
  uint32_t more = 0;  // handle of further records
};
static_assert(sizeof(Cell) == 64);

// check(old) for every record that a new access conflicts with, then the new record takes its place: a write
// replaces what it covers, a read the reads that came before it (covered(old): they are ordered before it),
// an atomic access the same warp's earlier ones.
template <class Check, class Covered>
inline void touch(Cell& cell, Overflow& overflow, const Record& fresh, Check check, Covered covered) {
  const bool writes = fresh.flags & kWrites, strong = fresh.flags & kStrong;
  const auto visit = [&](Record& old) {
    if (!(old.mask & fresh.mask)) return;
    const bool old_writes = old.flags & kWrites, old_strong = old.flags & kStrong;
    if ((writes || old_writes) && !(strong && old_strong)) check(old);
    const bool gone =
        strong ? old.component == fresh.component && old.cluster == fresh.cluster && old.flags == fresh.flags
               : writes || (!old_writes && !old_strong && covered(old));
    if (gone) old.mask &= ~fresh.mask;
  };
  visit(cell.write);
  visit(cell.read[0]);
  visit(cell.read[1]);
  MoreRecords* more = cell.more ? &overflow.list(cell.more) : nullptr;
  if (more) [[unlikely]] {
    const auto sweep = [&](std::vector<Record>& list) {
      for (Record& old : list) visit(old);
      std::erase_if(list, [](const Record& old) { return old.mask == 0; });
    };
    // Thousands of CTAs may read a table, or count at one address: those that cannot conflict are looked
    // through now and then only.
    const auto tidy = [&](std::vector<Record>& list) {
      if (list.size() < more->tidy_at) return;
      sweep(list);
      forget_repeated(list);
      more->tidy_at = std::max(more->tidy_at, 2 * list.size());
    };
    sweep(more->writes);
    strong ? tidy(more->strong) : sweep(more->strong);
    writes ? sweep(more->reads) : tidy(more->reads);
    if (more->empty()) {
      overflow.release(cell.more);
      more = nullptr;
    }
  }
  if (writes && cell.write.mask == 0) {
    cell.write = fresh;
  } else if (!writes && cell.read[0].mask == 0) {
    cell.read[0] = fresh;
  } else if (!writes && cell.read[1].mask == 0) {
    cell.read[1] = fresh;
  } else {
    if (!more) more = &overflow.list(cell.more);
    (strong ? more->strong : writes ? more->writes : more->reads).push_back(fresh);
  }
}

// Global memory, in pages that exist once they are touched.
class GlobalShadow {
 public:
  static constexpr uint64_t kPageBytes = 4096;
  Cell& cell(uint64_t address) {
    const uint64_t page = address / kPageBytes;
    if (page != last_page_) {
      auto& p = pages_[page];
      if (!p) p = std::make_unique<Page>();
      last_ = p.get();
      last_page_ = page;
    }
    return (*last_)[address % kPageBytes / 16];
  }

 private:
  using Page = std::array<Cell, kPageBytes / 16>;
  std::unordered_map<uint64_t, std::unique_ptr<Page>> pages_;
  Page* last_ = nullptr;
  uint64_t last_page_ = ~uint64_t{0};
};

}  // namespace mxfa::emulator
