// The life cycle of mbarriers (PTX ISA 9.7.13.15): initialised once, used, invalidated before the memory is
// anything else; as many arrivals and bytes as announced.
#pragma once

#include <map>
#include <unordered_map>

#include "checks/checks.hpp"

namespace mxfa::emulator {

class Barriers : public Observer {
 public:
  explicit Barriers(Findings& findings) : findings_(findings) {}

  void cluster_begins(Cluster& cluster) override;
  void cluster_ends(Cluster& cluster) override;
  void misuse(Cluster& cluster, const Warp* warp, Misuse misuse, uint32_t where,
              const std::string& who) override;
  void access(Warp& warp, const LaneAccess& access) override;
  void issue(Warp& warp, const AsyncWork& work, std::span<const Touch> touches) override;
  void landed(Cluster& cluster, uint64_t ticket, uint32_t mbarrier, uint32_t bytes, uint64_t phase) override;
  void mbarrier_init(Warp& warp, uint32_t mbarrier, uint32_t count) override;
  void mbarrier_inval(Warp& warp, uint32_t mbarrier) override;
  void mbarrier_expect(Warp& warp, uint32_t mbarrier, uint32_t bytes, uint64_t phase) override;
  void mbarrier_arrive(Warp& warp, uint32_t mbarrier, uint32_t count, uint64_t phase, Order order) override;

 private:
  struct Life {
    enum class State { Live, Invalid, Overwritten } state = State::Live;
    Site init, end;  // end: of what made it Invalid or Overwritten
    uint32_t count = 0;
    int64_t bytes = 0;  // announced and not arrived
    Site expect, arrival;
    bool expected = false, arrived = false;  // expect and arrival are known
  };
  // By shared::cluster address.  All of them lie at offsets [low, high) of their CTAs.
  struct Lives {
    std::map<uint32_t, Life> list;
    uint32_t low = ~0u, high = 0;
  };
  void written(Cluster& cluster, uint32_t address, uint32_t bytes, const Site& site, const char* how);
  Life* find(Cluster& cluster, uint32_t mbarrier);
  std::string name(const Cluster& cluster, uint32_t mbarrier) const;

  Findings& findings_;
  const Program* program_ = nullptr;
  std::unordered_map<Cluster*, Lives> lives_;
};

}  // namespace mxfa::emulator
