// Warps and CTAs: the state that the interpreter and the engines share.
#pragma once

#include <array>
#include <deque>
#include <string>
#include <unordered_map>

#include "core/machine.hpp"
#include "core/random.hpp"
#include "engines/event_queue.hpp"
#include "memory/tensor_memory.hpp"

namespace mxfa::emulator {

// Why a fragment cannot go on.  The blocked instruction is executed again when Cluster::epoch has changed
// since.
struct Wait {
  enum class Kind {
    None,
    Mbarrier,
    NamedBarrier,
    ClusterBarrier,
    BulkGroup,
    CopyGroup,
    TmemLoad,
    TmemStore,
    TmemAlloc,
    Warpgroup,
    Registers,
    WarpSync,
    Aligned,
    Other
  };
  Kind kind = Kind::None;
  uint32_t address = 0;  // mbarrier: shared address; named barrier: id; bulk group: allowed outstanding
  uint32_t parity = 0;   // mbarrier
  std::string detail;    // only filled for reports
};

struct WgmmaGroup;  // engines/wgmma.cpp: warpgroup MMAs in flight
class Observer;     // core/observer.hpp

// Lanes of a warp that share a pc.
struct Fragment {
  uint32_t pc = 0;
  uint32_t mask = 0;           // 0: the slot is free
  Wait wait;                   // kind None: it can run
  uint64_t blocked_epoch = 0;  // Cluster::epoch at the last failed attempt
  uint64_t generation = 0;     // of the barrier waited for
  bool give_up =
      false;  // the next failed try_wait reports false instead of waiting on (its time limit has passed)
  bool released = false;        // a rendezvous of fragments (bar.warp.sync) is complete
  uint32_t token = ~0u;         // innermost convergence token
  std::vector<uint32_t> calls;  // return addresses
};

// Lanes that diverged at a branch meet again at its immediate post-dominator.  A fragment that reaches `pc`
// waits there until every lane of `expected` has arrived or exited.
struct ConvergenceToken {
  uint32_t pc = 0, expected = 0, arrived = 0, parent = ~0u;
  bool used = false;
  std::vector<uint32_t>
      calls;  // call stack of the branch: the same pc in another invocation is another place
};

// One launch.
struct Grid {
  Arena* arena = nullptr;
  const DeviceModel* device = nullptr;
  const Kernel* kernel = nullptr;
  Dim3 size, block, cluster;  // in CTAs, threads, CTAs
  uint32_t dynamic_shared = 0;
  bool explicit_cluster = false;
  uint64_t clock = 0;                       // warp instructions executed: what %clock and %globaltimer count
  uint64_t next_cluster = 0, clusters = 0;  // clusters that have started, and all
  std::vector<uint32_t> order;              // in which they start; empty: as numbered
  uint64_t only_granted = UINT64_MAX;       // MXFA_EMU_CLC=one: the cluster that is granted others
  uint64_t cluster_at(uint64_t position) const { return order.empty() ? position : order[position]; }
  std::string printf_output;  // flushed at the end of the launch
  Schedule schedule;
  uint64_t instruction_limit = UINT64_MAX;
  Random random;
  Counters counters;
  std::vector<uint8_t> parameters;
  std::vector<Observer*> observers;  // of the hazard checks; empty: none
  uint64_t tickets = 0;              // of asynchronous operations, for observers
};

struct Warp {
  Cta* cta = nullptr;
  uint32_t index = 0;                 // in the CTA
  uint32_t alive = 0;                 // lanes that have not exited
  uint32_t existing = 0;              // lanes that ever existed (block size need not be a multiple of 32)
  uint32_t pc = 0;                    // of the instruction being executed, for reports
  uint32_t mask = 0;                  // active lanes of the instruction being executed
  uint32_t registers_per_thread = 0;  // setmaxnreg
  Row* rows = nullptr;                // register file, owned by the CTA
  uint32_t* predicates = nullptr;     // one bit per lane
  std::vector<Fragment> fragments;
  std::vector<ConvergenceToken> tokens;
  uint8_t* local = nullptr;         // local memory of lane 0, owned by the CTA
  uint32_t local_bytes = 0;         // per lane
  uint32_t cluster_arrived = 0;     // lanes that arrived at the cluster barrier in its current phase
  uint32_t cluster_pending = 0;     // lanes that arrived and have not waited yet
  uint64_t cluster_generation = 0;  // phase of the last arrival

  // Tensor-memory loads and stores that are issued but not performed (lazy and random schedules).
  uint32_t pending_tmem_loads = 0, pending_tmem_stores = 0;

  // Bulk-copy groups of each lane that ever issued one: number of committed groups whose reads / writes are
  // not complete, oldest first.
  struct BulkGroup {
    uint32_t pending_reads = 0, pending_writes = 0;
  };
  struct BulkState {
    BulkGroup open;
    std::deque<std::shared_ptr<BulkGroup>> committed;
    std::shared_ptr<BulkGroup> current;
  };
  std::unordered_map<int, BulkState> bulk;
  // Of cp.async, where copies are performed later than they are issued; only writes are counted.
  std::unordered_map<int, BulkState> copies;
};

struct NamedBarrier {
  uint32_t expected = 0;  // threads, fixed by the first arrival of a generation; 0: all threads of the CTA
                          // that have not exited
  uint32_t arrived = 0;   // threads
  uint64_t generation = 0;
  bool open = false;                                   // somebody has arrived in this generation
  uint32_t popc = 0, all = 0, any = 0;                 // bar.red of this generation
  uint32_t last_popc = 0, last_all = 0, last_any = 0;  // and of the one before
  std::vector<uint32_t> lanes;                         // per warp: lanes that arrived
  std::vector<std::string> arrivals;                   // for reports
};

struct Cta {
  Cluster* cluster = nullptr;
  uint32_t rank = 0;  // in the cluster
  Dim3 id;            // %ctaid
  uint32_t threads = 0;
  uint32_t live_warps = 0;
  std::vector<uint8_t> shared;     // offset 0 is the reserved area; size = reserved + static + dynamic
  uint8_t* shared_base = nullptr;  // 1024-byte aligned pointer to offset 0
  uint32_t shared_size = 0;
  std::array<NamedBarrier, 16> barriers;
  std::unique_ptr<TensorMemory> tensor_memory;  // only where the device has one
  std::vector<Warp> warps;
  std::vector<Row> register_file;
  std::vector<uint32_t> predicate_file;
  std::vector<uint8_t> local_memory;
  uint32_t index = 0;          // linear index in the grid
  bool finished = false;       // all warps have exited
  uint32_t register_pool = 0;  // free registers that setmaxnreg.dec returned
  struct TensorQueue {
    std::vector<uint64_t> tickets;
    uint64_t issued = 0, done = 0;
  } tensor_queue;
  std::vector<std::shared_ptr<WgmmaGroup>> wgmma;  // by warpgroup, null until used
  // Facts for the deadlock report: shared offset of an mbarrier -> what is known of it.
  struct BarrierFacts {
    uint32_t init_count = 0;
    uint32_t init_pc = 0;
    uint64_t phases = 0;
    std::vector<std::string> last_arrivals;
    int64_t expected_bytes = 0;  // announced in the current phase
  };
  std::unordered_map<uint32_t, BarrierFacts> mbarriers;
};

struct Cluster {
  Grid* grid = nullptr;
  std::vector<std::unique_ptr<Cta>> ctas;
  EventQueue events;
  uint64_t epoch = 0;           // bumped by whatever can unblock a fragment
  Dim3 id;                      // %clusterid
  uint64_t progress = 0;        // bumped by stores, arrivals, exits: what a polling loop could be waiting for
  bool launch_refused = false;  // a refusal of cluster launch control has been seen
  uint32_t cluster_barrier_arrived = 0;
  uint64_t cluster_barrier_generation = 0;
};

// Shared addresses: (CTA rank in the cluster << 24) | offset.  CUTLASS and the generated kernels of cuDNN
// rely on this form.
inline constexpr uint32_t kRankShift = 24;
inline uint32_t shared_rank(uint32_t address) { return address >> kRankShift; }
inline uint32_t shared_offset(uint32_t address) { return address & 0xffffffu; }
inline uint32_t shared_address(const Cta& cta, uint32_t offset) { return (cta.rank << kRankShift) | offset; }

}  // namespace mxfa::emulator
