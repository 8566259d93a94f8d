// Tensor memory and registers as resources: who allocated what, who gave back too much or too little, what a
// CTA leaves behind.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>

#include "checks/checks.hpp"

namespace mxfa::emulator {

class Resources : public Observer {
 public:
  Resources(CheckMode mode, Findings& findings) : mode_(mode), findings_(findings) {}

  void cluster_begins(Cluster& cluster) override;
  void cluster_ends(Cluster& cluster) override { ctas_of(cluster).clear(); }
  void cta_ends(Cta& cta) override;
  void stuck(Cluster& cluster) override;
  void misuse(Cluster& cluster, const Warp* warp, Misuse misuse, uint32_t where,
              const std::string& who) override;
  void issue(Warp& warp, const AsyncWork& work, std::span<const Touch> touches) override;
  void bulk_commit(Warp& warp, int lane) override;
  void bulk_waited(Warp& warp, int lane, uint32_t outstanding, bool read_only) override;
  void access(Warp& warp, const LaneAccess& access) override;
  void copy_async_commit(Warp& warp) override;
  void copy_async_waited(Warp& warp, uint32_t outstanding) override;
  void mbarrier_arrive_copies(Warp& warp, uint32_t mbarrier, uint64_t phase) override;
  void registers_change(Warp& warp, uint32_t from, uint32_t to) override;
  void tmem_alloc(Warp& warp, uint32_t rank, uint32_t column, uint32_t columns, int cta_group,
                  uint32_t destination) override;
  void tmem_dealloc(Warp& warp, uint32_t rank, uint32_t column, uint32_t columns) override;
  void tmem_relinquish(Warp& warp) override;

 private:
  struct Block {
    uint32_t columns = 0;
    Site alloc, dealloc;
    bool freed = false;
  };
  struct Change {
    Site site;
    uint32_t to = 0;
    bool gives = false;
  };
  // Stores of a thread whose sources may still be read, or the cp.async of a warp: those that no commit
  // covers, and the groups from the first with any in it.
  struct Unfinished {
    uint32_t open = 0, groups = 0;
    Site last;
    void commit() {
      groups += open || groups;  // empty groups count for those before them
      open = 0;
    }
    void waited(uint32_t outstanding) { groups = std::min(groups, outstanding); }
  };
  struct CtaState {
    std::map<uint32_t, Block> blocks;                             // by first column
    std::unordered_map<uint32_t, std::vector<Change>> registers;  // by warp
    std::map<std::pair<uint32_t, int>, Unfinished> bulk;          // by warp and lane
    std::map<uint32_t, Unfinished> copies;                        // by warp
    Site relinquish;
    bool relinquished = false;
  };
  std::vector<CtaState>& ctas_of(Cluster& cluster) { return states_[&cluster]; }
  CtaState& cta_of(Warp& warp) { return ctas_of(*warp.cta->cluster)[warp.cta->rank]; }
  Unfinished& bulk_of(Warp& warp, int lane) { return cta_of(warp).bulk[{warp.index, lane}]; }
  Unfinished& copies_of(Warp& warp) { return cta_of(warp).copies[warp.index]; }
  const Block* block_at(const CtaState& cta, uint32_t column) const;

  const CheckMode mode_;
  Findings& findings_;
  const Program* program_ = nullptr;
  std::unordered_map<Cluster*, std::vector<CtaState>> states_;
};

}  // namespace mxfa::emulator
