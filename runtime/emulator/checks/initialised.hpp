// Reads of bytes that nothing has written: shared memory since its CTA began, tensor memory since its
// allocation, global memory since cuMemAlloc.  A write counts from its issue: whether it is complete is a
// question of order (checks/races.hpp).
#pragma once

#include <array>
#include <unordered_map>

#include "checks/checks.hpp"
#include "memory/tensor_memory.hpp"
#include "memory/written.hpp"

namespace mxfa::emulator {

class Initialised : public Observer {
 public:
  Initialised(CheckMode mode, Findings& findings) : mode_(mode), findings_(findings) {}

  void cluster_begins(Cluster& cluster) override;
  void cluster_ends(Cluster& cluster) override;
  void access(Warp& warp, const LaneAccess& access) override;
  void issue(Warp& warp, const AsyncWork& work, std::span<const Touch> touches) override;
  void mbarrier_init(Warp& warp, uint32_t mbarrier, uint32_t count) override;
  void tmem_alloc(Warp& warp, uint32_t rank, uint32_t column, uint32_t columns, int cta_group,
                  uint32_t destination) override;

 private:
  struct Memory {
    std::vector<ByteMap> shared;  // of each CTA
    // Lanes of each quarter and column, of each CTA.
    std::vector<std::array<std::array<uint32_t, TensorMemory::kColumns>, 4>> tensor;
  };
  Memory& of(Cluster& cluster) {
    if (&cluster != last_) last_ = &cluster, last_memory_ = &memories_[&cluster];
    return *last_memory_;
  }
  void range(Warp& warp, const LaneAccess& access, Memory& memory, int lane, uint64_t begin, uint64_t bytes);
  void tensor(Warp& warp, const AsyncWork& work, const Touch& touch);
  void report(Warp& warp, int lane, MemorySpace space, uint64_t where, const std::string& what, bool harmful);

  const CheckMode mode_;
  Findings& findings_;
  const Program* program_ = nullptr;
  std::unordered_map<Cluster*, Memory> memories_;
  Cluster* last_ = nullptr;
  Memory* last_memory_ = nullptr;
};

}  // namespace mxfa::emulator
