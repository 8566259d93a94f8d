// Address spaces.  Device addresses are host addresses inside one reserved arena; shared and local windows lie at fixed high constants.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/warp.hpp"

namespace mxfa::emulator {

// Global memory of a device: a reserved range, committed by allocation, each allocation followed by a red zone.
class Arena {
 public:
  explicit Arena(uint64_t reserve_bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  uint64_t allocate(uint64_t bytes, uint64_t alignment = 256);   // 0 when exhausted; fresh memory is filled with 0xff
  bool release(uint64_t address);                                 // false: not the start of an allocation
  // The allocation that holds [address, address+bytes), or false.
  bool contains(uint64_t address, uint64_t bytes) const;
  bool find(uint64_t address, uint64_t* base, uint64_t* size) const;
  std::string describe(uint64_t address) const;                   // "0x7f.. is 16 bytes after allocation 0x7f.. of 4096 bytes"
  uint64_t used() const { return used_; }

 private:
  struct Impl;
  Impl* impl_;
  uint64_t used_ = 0;
};

// Windows of the generic address space.
inline constexpr uint64_t kSharedWindow = 0x00007e0000000000ull;   // + shared::cluster address
inline constexpr uint64_t kLocalWindow = 0x00007d0000000000ull;    // + offset in the thread's local memory
inline constexpr uint64_t kParamWindow = 0x00007c0000000000ull;    // + offset in the kernel's parameters

// Host pointers for checked ranges; a Fault (CUDA_ERROR_ILLEGAL_ADDRESS / MISALIGNED_ADDRESS) that names space, address, size and the
// nearest allocation otherwise.
uint8_t* global_pointer(Grid& grid, uint64_t address, uint32_t bytes, bool write);
uint8_t* shared_pointer(Cluster& cluster, uint32_t address, uint32_t bytes, bool write);   // any CTA of the cluster

}  // namespace mxfa::emulator
