// A cluster without an interpreter: engines are called the way instructions would call them.
#pragma once

#include <cuda.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engines/engines.hpp"
#include "memory/memory.hpp"
#include "support/catch.hpp"

namespace mxfa::emulator::test {

struct Machine {
  DeviceModel device;
  Arena arena{1ull << 28};
  Grid grid;
  Cluster cluster;

  explicit Machine(int ctas = 1, Schedule::Kind kind = Schedule::Kind::Functional,
                   uint32_t shared_bytes = 200 * 1024, uint32_t warps = 4) {
    grid.arena = &arena;
    grid.device = &device;
    grid.schedule.kind = kind;
    cluster.grid = &grid;
    cluster.events.configure(grid.schedule);
    for (int rank = 0; rank < ctas; ++rank) {
      auto cta = std::make_unique<Cta>();
      cta->cluster = &cluster;
      cta->rank = static_cast<uint32_t>(rank);
      cta->threads = 32 * warps;
      cta->live_warps = warps;
      cta->shared.assign(shared_bytes + 1024, 0xff);
      const auto raw = reinterpret_cast<uintptr_t>(cta->shared.data());
      cta->shared_base = cta->shared.data() + ((raw + 1023) / 1024 * 1024 - raw);
      cta->shared_size = shared_bytes;
      cta->tensor_memory = std::make_unique<TensorMemory>();
      cta->warps.resize(warps);
      for (uint32_t w = 0; w < warps; ++w) {
        Warp& warp = cta->warps[w];
        warp.cta = cta.get();
        warp.index = w;
        warp.alive = warp.existing = warp.mask = kFullMask;
      }
      cluster.ctas.push_back(std::move(cta));
    }
  }

  Cta& cta(int rank = 0) { return *cluster.ctas[static_cast<size_t>(rank)]; }
  Warp& warp(int index = 0, int rank = 0) { return cta(rank).warps[static_cast<size_t>(index)]; }
  uint8_t* shared(uint32_t offset, int rank = 0) { return cta(rank).shared_base + offset; }
  uint32_t address(uint32_t offset, int rank = 0) { return shared_address(cta(rank), offset); }
  void fire_all() {
    while (cluster.events.fire_one()) {
    }
  }
};

// The text of the fault that `action` raises; "" if it raises none.
template <class Action>
std::string fault_of(Action&& action) {
  try {
    action();
  } catch (const Fault& fault) {
    return fault.what();
  }
  return "";
}

inline bool has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return true;
  UNSCOPED_INFO("\"" << part << "\" is not in \"" << text << "\"");
  return false;
}

// A matrix descriptor of tcgen05; `mode` is the swizzle.
inline uint64_t matrix(uint32_t start, uint32_t leading, uint32_t stride, uint32_t mode = 0) {
  return uint64_t{(start & 0x3ffff) >> 4} | uint64_t{leading >> 4} << 16 | uint64_t{stride >> 4} << 32 |
         1ull << 46 | uint64_t{mode} << 61;
}

}  // namespace mxfa::emulator::test
