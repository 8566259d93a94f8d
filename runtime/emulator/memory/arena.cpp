// The arena: one reserved range of host address space whose pages become accessible as they are allocated.
// Allocations keep a red zone on both sides, so that an overrun is a Fault with a name and not a write into
// the neighbour.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <stdexcept>

#include "memory/memory.hpp"

namespace mxfa::emulator {
namespace {

uint64_t round_up(uint64_t value, uint64_t multiple) { return (value + multiple - 1) / multiple * multiple; }
uint64_t round_down(uint64_t value, uint64_t multiple) { return value / multiple * multiple; }

// A range that no window of the generic space overlaps: asked for well below them, because mmap's own choice
// (just below the stack) may come down to 0x7e.. when much is reserved.
void* reserve(uint64_t bytes) {
  for (uint64_t hint = 0x700000000000ull; hint + bytes < kParamWindow; hint += round_up(bytes, 1ull << 36)) {
    void* at = mmap(reinterpret_cast<void*>(hint), bytes, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (at == MAP_FAILED) continue;
    if (reinterpret_cast<uint64_t>(at) == hint) return at;
    munmap(at, bytes);  // a kernel without MAP_FIXED_NOREPLACE takes the hint as a wish
  }
  throw std::runtime_error(fmt::format("cannot reserve {} bytes of address space for device memory", bytes));
}

}  // namespace

struct Arena::Impl {
  struct Block {
    uint64_t size;
    Range* range;
  };
  struct Released {
    uint64_t base, size;
  };

  mutable std::mutex mutex;
  uint64_t start = 0, reserved = 0, limit = 0, page = 4096;
  std::map<uint64_t, Block> blocks;   // base -> block
  std::map<uint64_t, uint64_t> gaps;  // base -> bytes, red zones included
  std::deque<Range> ranges;           // stable addresses
  std::deque<Range*> spare;
  std::deque<Released> released;  // the most recent ones, for messages

  std::map<uint64_t, Block>::const_iterator holder(uint64_t address) const {
    auto it = blocks.upper_bound(address);
    if (it == blocks.begin()) return blocks.end();
    --it;
    return address - it->first < it->second.size ? it : blocks.end();
  }
};

Arena::Arena(uint64_t reserve_bytes) : impl_(new Impl) {
  impl_->page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  impl_->limit = reserve_bytes;
  // Twice the capacity in address space: red zones and fragmentation must not make a device look smaller than
  // it says it is.
  impl_->reserved = round_up(2 * reserve_bytes + (1ull << 26), impl_->page);
  try {
    impl_->start = reinterpret_cast<uint64_t>(reserve(impl_->reserved));
  } catch (...) {
    delete impl_;
    throw;
  }
  impl_->gaps[impl_->start] = impl_->reserved;
  impl_->ranges.emplace_back();  // an empty range: recent_ never holds null
  for (auto& entry : recent_) entry.store(&impl_->ranges.front(), std::memory_order_relaxed);
}

Arena::~Arena() {
  munmap(reinterpret_cast<void*>(impl_->start), impl_->reserved);
  delete impl_;
}

uint64_t Arena::allocate(uint64_t bytes, uint64_t alignment) {
  std::lock_guard lock(impl_->mutex);
  if (bytes == 0 || bytes > impl_->limit || used_ > impl_->limit - bytes) return 0;
  if (alignment < 256) alignment = 256;  // what cuMemAlloc promises
  for (auto gap = impl_->gaps.begin(); gap != impl_->gaps.end(); ++gap) {
    const uint64_t base = round_up(gap->first + kRedZone, alignment);
    const uint64_t end = round_up(base + bytes, 256) + kRedZone;
    const uint64_t gap_end = gap->first + gap->second;
    if (end > gap_end) continue;
    const uint64_t first_page = round_down(base, impl_->page);
    const uint64_t last_page = round_up(base + bytes, impl_->page);
    if (mprotect(reinterpret_cast<void*>(first_page), last_page - first_page, PROT_READ | PROT_WRITE) != 0)
      return 0;
    std::memset(reinterpret_cast<void*>(base), 0xff,
                bytes);  // NaN in every float format, an absurd index in integers

    const uint64_t gap_start = gap->first;
    impl_->gaps.erase(gap);
    // The gap keeps its start up to the new block and its end after it; both ends of the block keep a red
    // zone of their own.
    if (base - kRedZone > gap_start) impl_->gaps[gap_start] = base - kRedZone - gap_start;
    if (gap_end > end) impl_->gaps[end] = gap_end - end;

    Range* range = nullptr;
    if (impl_->spare.empty()) {
      range = &impl_->ranges.emplace_back();
    } else {
      range = impl_->spare.front();
      impl_->spare.pop_front();
    }
    range->base.store(base, std::memory_order_relaxed);
    range->size.store(bytes, std::memory_order_relaxed);
    impl_->blocks[base] = {bytes, range};
    used_ += bytes;
    return base;
  }
  return 0;
}

bool Arena::release(uint64_t address) {
  std::lock_guard lock(impl_->mutex);
  const auto it = impl_->blocks.find(address);
  if (it == impl_->blocks.end()) return false;
  const uint64_t bytes = it->second.size;
  written.forget(address);
  it->second.range->size.store(0, std::memory_order_relaxed);
  impl_->spare.push_back(it->second.range);
  impl_->blocks.erase(it);
  used_ -= bytes;

  // Whole pages go back to the host; a page shared with a neighbour stays.
  const uint64_t first_page = round_up(address, impl_->page),
                 last_page = round_down(address + bytes, impl_->page);
  if (last_page > first_page)
    madvise(reinterpret_cast<void*>(first_page), last_page - first_page, MADV_DONTNEED);

  uint64_t start = address - kRedZone, end = round_up(address + bytes, 256) + kRedZone;
  auto next = impl_->gaps.lower_bound(start);
  if (next != impl_->gaps.end() && next->first == end) {
    end += next->second;
    next = impl_->gaps.erase(next);
  }
  if (next != impl_->gaps.begin()) {
    auto previous = std::prev(next);
    if (previous->first + previous->second == start) {
      start = previous->first;
      impl_->gaps.erase(previous);
    }
  }
  impl_->gaps[start] = end - start;

  impl_->released.push_back({address, bytes});
  if (impl_->released.size() > 64) impl_->released.pop_front();
  return true;
}

bool Arena::contains_slow(uint64_t address, uint64_t bytes) const {
  std::lock_guard lock(impl_->mutex);
  const auto it = impl_->holder(address);
  if (it == impl_->blocks.end() || bytes > it->second.size - (address - it->first)) return false;
  recent_[slot(address)].store(it->second.range, std::memory_order_relaxed);
  return true;
}

bool Arena::find(uint64_t address, uint64_t* base, uint64_t* size) const {
  std::lock_guard lock(impl_->mutex);
  const auto it = impl_->holder(address);
  if (it == impl_->blocks.end()) return false;
  if (base) *base = it->first;
  if (size) *size = it->second.size;
  return true;
}

std::string Arena::describe(uint64_t address) const {
  std::lock_guard lock(impl_->mutex);
  if (const auto it = impl_->holder(address); it != impl_->blocks.end())
    return fmt::format("{:#x} is at byte {} of allocation {:#x} of {} bytes", address, address - it->first,
                       it->first, it->second.size);
  for (auto it = impl_->released.rbegin(); it != impl_->released.rend(); ++it)
    if (address - it->base < it->size)
      return fmt::format("{:#x} is at byte {} of {:#x}, {} bytes that were released", address,
                         address - it->base, it->base, it->size);
  if (impl_->blocks.empty()) return fmt::format("{:#x} belongs to no allocation; there is none", address);

  auto after = impl_->blocks.upper_bound(address);
  const auto before = after == impl_->blocks.begin() ? impl_->blocks.end() : std::prev(after);
  const uint64_t above =
      before == impl_->blocks.end() ? ~0ull : address - (before->first + before->second.size);
  const uint64_t below = after == impl_->blocks.end() ? ~0ull : after->first - address;
  if (above <= below)
    return fmt::format("{:#x} is {} bytes after allocation {:#x} of {} bytes", address, above, before->first,
                       before->second.size);
  return fmt::format("{:#x} is {} bytes before allocation {:#x} of {} bytes", address, below, after->first,
                     after->second.size);
}

}  // namespace mxfa::emulator
