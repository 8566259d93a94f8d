// Races and missing proxy fences, by happens-before: an access is reported when nothing orders it after an
// earlier one to the same bytes, whatever order this run happened to take.
#pragma once

#include "checks/checks.hpp"
#include "checks/race_state.hpp"

namespace mxfa::emulator {

// Can be withdrawn, so that it has a name of its own.
inline constexpr const char* kWarpSyncInSum = "missing-warp-sync-in-sum";

class Races : public Observer {
 public:
  Races(CheckMode mode, Findings& findings);

  void cluster_begins(Cluster& cluster) override;
  void cluster_ends(Cluster& cluster) override;
  void access(Warp& warp, const LaneAccess& access) override;
  void issue(Warp& warp, const AsyncWork& work, std::span<const Touch> touches) override;
  void landed(Cluster& cluster, uint64_t ticket, uint32_t mbarrier, uint32_t bytes, uint64_t phase) override;
  void mbarrier_init(Warp& warp, uint32_t mbarrier, uint32_t count) override;
  void mbarrier_inval(Warp& warp, uint32_t mbarrier) override;
  void mbarrier_expect(Warp& warp, uint32_t mbarrier, uint32_t bytes, uint64_t phase) override;
  void mbarrier_arrive(Warp& warp, uint32_t mbarrier, uint32_t count, uint64_t phase, Order order) override;
  void mbarrier_arrive_async(Cluster& cluster, uint64_t ticket, uint32_t mbarrier, uint64_t phase) override;
  void mbarrier_arrive_copies(Warp& warp, uint32_t mbarrier, uint64_t phase) override;
  void mbarrier_test(Warp& warp, uint32_t mbarrier, uint32_t parity, uint64_t phase, bool done,
                     Order order) override;
  void barrier_arrive(Warp& warp, uint32_t id, uint64_t generation) override;
  void barrier_passed(Warp& warp, uint32_t id, uint64_t generation) override;
  void cluster_arrive(Warp& warp, uint64_t generation, bool releases) override;
  void cluster_passed(Warp& warp, uint64_t generation) override;
  void warp_sync(Warp& warp, uint32_t lanes) override;
  void lanes_exit(Warp& warp, uint32_t lanes) override;
  void fence(Warp& warp, const Fence& fence) override;
  void bulk_commit(Warp& warp, int lane) override;
  void bulk_waited(Warp& warp, int lane, uint32_t outstanding, bool read_only) override;
  void copy_async_commit(Warp& warp) override;
  void copy_async_waited(Warp& warp, uint32_t outstanding) override;
  void wgmma_waited(Warp& warp, uint64_t through) override;
  void tmem_alloc(Warp& warp, uint32_t rank, uint32_t column, uint32_t columns, int cta_group,
                  uint32_t destination) override;
  void tmem_dealloc(Warp& warp, uint32_t rank, uint32_t column, uint32_t columns) override;
  void tmem_waited(Warp& warp, bool loads) override;
  // The strict mode asks for wait::ld, as the PTX ISA does; published kernels go without.
  void tmem_load_used(Warp& warp) override {
    if (mode_ != CheckMode::Strict) tmem_waited(warp, true);
  }
  void tensor_commit(Warp& warp, uint64_t ticket, int lane, int cta_group,
                     std::span<const uint32_t> mbarriers) override;

 private:
  // An access about to be checked: its record and what its thread knows.
  struct Access {
    ClusterState* state = nullptr;
    uint32_t warp = 0;
    LaneGroup* group = nullptr;
    Record record;
    const Clock* order = nullptr;
    const Clock* fenced = nullptr;  // of the space accessed
    MemorySpace space = MemorySpace::Shared;
    const char* name = nullptr;  // of an access that is no instruction of its own, for reports
  };
  enum class Problem {
    None,
    InFlight,
    Unordered,
    Fence,
    FenceAfterRead,
    FenceAfterCopy,
    ThreadSyncFence,
    InitFence,
    TmemWait,
    WarpSync,
    WarpSyncInSum
  };

  ClusterState& state_of(Cluster& cluster) {
    if (&cluster == last_cluster_) return *last_state_;
    last_cluster_ = &cluster;
    return *(last_state_ = states_.at(&cluster).get());
  }
  ClusterState& state_of(Warp& warp) { return state_of(*warp.cta->cluster); }

  Access access_by(Warp& warp, MemorySpace space, bool writes, int lane = -1);  // -1: the first of warp.mask
  Problem problem(const Record& old, const Access& now) const;
  bool before(const Record& old, const Access& now) const;  // ordered, fences aside
  bool lacks_thread_sync(const Record& old, const Access& now) const;
  bool through_one_port(const Record& old, const Access& now) const;
  // What would be ordered if the lanes of each warp were.
  bool loosely_before(const Record& old, const Access& now) const;
  uint32_t lane_at(const Record& record, uint32_t byte) const;
  bool same_lanes(const Record& old, const Access& now) const;
  static bool covers(const Clock& clock, const Record& old, uint32_t value, uint32_t bytes);
  void check(const Record& old, const Access& now, uint64_t where);
  void check_sum(Cell& cell, const Access& now, uint64_t where);
  void touch_cell(Cell& cell, Access& now, uint32_t mask, uint64_t where);
  void touch_bytes(Access& now, uint32_t rank, uint64_t begin, uint64_t bytes);
  void touch_columns(Access& now, const Touch& touch);
  // async: by a copy or commit that will arrive there.
  void check_barrier(Warp& warp, uint32_t mbarrier,
                     bool async = false);  // a use of an mbarrier against its init
  // Null outside the shared memory of the cluster: the access itself is a fault then.
  static Cell* shared_cell(ClusterState& s, uint64_t address);

  // What lanes of a warp release; all that are alive: of the whole warp.
  void publish(ClusterState& s, const Warp& warp, uint32_t lanes, Knowledge& into) const;
  void released(ClusterState& s, uint32_t warp, uint32_t pc);  // begins a new epoch of the warp
  // shared_by: the pattern of a cell whose bytes several of the lanes touch.
  void touch_lanes(const LaneAccess& access, Access& now, uint32_t lanes, uint32_t shared_by);
  void synchronise(Warp& warp, const LaneAccess& access);

  // ---- phases of mbarriers (races_phases.cpp)
  Knowledge& released_in(ClusterState& s, uint32_t mbarrier, uint64_t phase);
  void phase_completed(ClusterState& s, uint32_t mbarrier, BarrierState& b, uint64_t phase);
  void waited(Warp& warp, uint32_t mbarrier, uint32_t parity, uint64_t phase, bool done);
  void issued_for(ClusterState& s, const Warp& warp, uint32_t lanes, uint32_t mbarrier);

  void report(Problem why, const Record& old, const Access& now, uint64_t where);
  std::string describe(const Record& record, const ClusterState& s, MemorySpace space) const;
  std::string place(const Access& now, uint64_t where) const;
  std::string remedy(Problem why, const Record& old, const Access& now) const;
  std::string barrier_name(const ClusterState& s, uint32_t component) const;

  const CheckMode mode_;
  Findings& findings_;
  const Program* program_ = nullptr;
  const Grid* grid_ = nullptr;
  std::unordered_map<Cluster*, std::unique_ptr<ClusterState>> states_;
  Cluster* last_cluster_ = nullptr;
  ClusterState* last_state_ = nullptr;
  uint32_t next_number_ = 1;
  std::vector<Work> works_;  // by ticket
  GlobalShadow global_;
  Overflow global_overflow_;
  Overflow& overflow_of(const Access& now) {
    return now.space == MemorySpace::Global ? global_overflow_ : now.state->overflow;
  }
  // By instruction: atomic additions of which two came in no order, so that none is meant.
  std::vector<bool> unordered_sums_;
  // What has been released at an address (strong writes after a release or a release fence), by the cluster
  // that the clocks belong to.
  using Location = std::map<uint32_t, Knowledge>;
  std::unordered_map<uint64_t, Location> locations_;
};

}  // namespace mxfa::emulator
