// Address spaces.  Device addresses are host addresses inside one reserved arena; shared and local windows
// lie at fixed high constants.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/warp.hpp"
#include "memory/written.hpp"

namespace mxfa::emulator {

// Global memory of a device: a reserved range, committed by allocation, each allocation followed by a red
// zone. allocate, release and describe may be called from any thread; contains and find are free of locks on
// their fast path.
class Arena {
 public:
  static constexpr uint64_t kRedZone = 256;  // bytes around each allocation that belong to none

  explicit Arena(uint64_t reserve_bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  uint64_t allocate(uint64_t bytes,
                    uint64_t alignment = 256);  // 0 when exhausted; fresh memory is filled with 0xff
  bool release(uint64_t address);               // false: not the start of an allocation
  // True when one allocation holds all of [address, address+bytes).
  bool contains(uint64_t address, uint64_t bytes) const {
    const Range* range = recent_[slot(address)].load(std::memory_order_relaxed);
    if (range->holds(address, bytes)) [[likely]]
      return true;
    return contains_slow(address, bytes);
  }
  bool find(uint64_t address, uint64_t* base, uint64_t* size) const;
  std::string describe(uint64_t address) const;  // "0x7f.. is 16 bytes after allocation 0x7f.. of 4096 bytes"
  uint64_t used() const { return used_; }

  WrittenBytes written;  // for the checks of uninitialised reads

 private:
  // A range object lives as long as the arena, so that a stale entry of recent_ is harmless; a released one
  // has size 0.
  struct Range {
    std::atomic<uint64_t> base{0}, size{0};
    bool holds(uint64_t address, uint64_t bytes) const {
      const uint64_t offset = address - base.load(std::memory_order_relaxed);
      const uint64_t length = size.load(std::memory_order_relaxed);
      return offset < length && bytes <= length - offset;
    }
  };
  struct Impl;
  static size_t slot(uint64_t address) { return (address >> 16) & 7; }
  bool contains_slow(uint64_t address, uint64_t bytes) const;

  Impl* impl_;
  mutable std::array<std::atomic<const Range*>, 8>
      recent_;  // the last allocation hit, by address bits [16:19)
  uint64_t used_ = 0;
};

// Windows of the generic address space.
inline constexpr uint64_t kSharedWindow = 0x00007e0000000000ull;  // + shared::cluster address
inline constexpr uint64_t kLocalWindow = 0x00007d0000000000ull;   // + offset in the thread's local memory
inline constexpr uint64_t kParamWindow = 0x00007c0000000000ull;   // + offset in the kernel's parameters
inline constexpr uint64_t kWindowBytes = 1ull << 32;              // each window at most

[[noreturn]] void throw_global_fault(const Grid& grid, uint64_t address, uint64_t bytes, bool write,
                                     bool aligned);
[[noreturn]] void throw_shared_fault(const Cluster& cluster, uint32_t address, uint64_t bytes, bool write,
                                     bool aligned);

// PTX accesses are naturally aligned (ISA 6.4.1); other sizes are ranges of an engine.
inline bool naturally_aligned(uint64_t address, uint32_t bytes) {
  return (bytes & (bytes - 1)) != 0 || bytes > 32 || (address & (bytes - 1)) == 0;
}

// Host pointers for checked accesses; a Fault (CUDA_ERROR_ILLEGAL_ADDRESS / MISALIGNED_ADDRESS) that names
// space, address, size and the nearest allocation otherwise.  An access of 1, 2, 4, 8, 16 or 32 bytes must be
// naturally aligned.
inline uint8_t* global_pointer(Grid& grid, uint64_t address, uint32_t bytes, bool write) {
  if (!naturally_aligned(address, bytes)) throw_global_fault(grid, address, bytes, write, false);
  if (!grid.arena->contains(address, bytes)) throw_global_fault(grid, address, bytes, write, true);
  return reinterpret_cast<uint8_t*>(address);
}

inline uint8_t* shared_pointer(Cluster& cluster, uint32_t address, uint64_t bytes, bool write, bool aligned) {
  const uint32_t rank = shared_rank(address), offset = shared_offset(address);
  if (aligned && rank < cluster.ctas.size()) [[likely]] {
    const Cta& cta = *cluster.ctas[rank];
    if (offset >= cluster.grid->device->shared_reserved && offset + bytes <= cta.shared_size) [[likely]]
      return cta.shared_base + offset;
  }
  throw_shared_fault(cluster, address, bytes, write, aligned);
}
inline uint8_t* shared_pointer(Cluster& cluster, uint32_t address, uint32_t bytes,
                               bool write) {  // any CTA of the cluster
  return shared_pointer(cluster, address, bytes, write, naturally_aligned(address, bytes));
}

// The same for byte ranges that an engine touches: no alignment rule of their own.
inline uint8_t* global_range(Grid& grid, uint64_t address, uint64_t bytes, bool write) {
  if (!grid.arena->contains(address, bytes)) throw_global_fault(grid, address, bytes, write, true);
  return reinterpret_cast<uint8_t*>(address);
}
inline uint8_t* shared_range(Cluster& cluster, uint32_t address, uint64_t bytes, bool write) {
  return shared_pointer(cluster, address, bytes, write, true);
}

}  // namespace mxfa::emulator
