// Warps and CTAs: the state that the interpreter and the engines share.
#pragma once

#include <array>
#include <deque>
#include <string>
#include <unordered_map>

#include "core/machine.hpp"
#include "engines/event_queue.hpp"
#include "memory/tensor_memory.hpp"

namespace mxfa::emulator {

// Why a fragment cannot go on.  The blocked instruction is executed again when Cluster::epoch has changed since.
struct Wait {
  enum class Kind { None, Mbarrier, NamedBarrier, ClusterBarrier, BulkGroup, TmemLoad, TmemStore, TmemAlloc, Registers, WarpSync, Other };
  Kind kind = Kind::None;
  uint32_t address = 0;      // mbarrier: shared address; named barrier: id; bulk group: allowed outstanding
  uint32_t parity = 0;       // mbarrier
  std::string detail;        // only filled for reports
};

// Lanes of a warp that share a pc.
struct Fragment {
  uint32_t pc = 0;
  uint32_t mask = 0;
  Wait wait;
  uint64_t blocked_epoch = 0;
  // further members (convergence tokens, call stack) belong to core/
  std::vector<uint32_t> tokens;
  std::vector<uint32_t> calls;
};

// One launch.
struct Grid {
  Arena* arena = nullptr;
  const DeviceModel* device = nullptr;
  const Kernel* kernel = nullptr;
  Schedule schedule;
  std::mt19937_64 random;
  Counters counters;
  std::vector<uint8_t> parameters;
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

  // Tensor-memory loads and stores that are issued but not performed (lazy and random schedules).
  uint32_t pending_tmem_loads = 0, pending_tmem_stores = 0;

  // Bulk-copy groups of each lane that ever issued one: number of committed groups whose reads / writes are not complete, oldest first.
  struct BulkGroup { uint32_t pending_reads = 0, pending_writes = 0; };
  struct BulkState { BulkGroup open; std::deque<std::shared_ptr<BulkGroup>> committed; std::shared_ptr<BulkGroup> current; };
  std::unordered_map<int, BulkState> bulk;
};

struct NamedBarrier {
  uint32_t expected = 0;      // threads, fixed by the first arrival of a generation
  uint32_t arrived = 0;       // threads
  uint64_t generation = 0;
  std::vector<std::string> arrivals;   // for reports
};

struct Cta {
  Cluster* cluster = nullptr;
  uint32_t rank = 0;                       // in the cluster
  Dim3 id;                                 // %ctaid
  uint32_t threads = 0;
  uint32_t live_warps = 0;
  std::vector<uint8_t> shared;             // offset 0 is the reserved area; size = reserved + static + dynamic
  uint8_t* shared_base = nullptr;          // 1024-byte aligned pointer to offset 0
  uint32_t shared_size = 0;
  std::array<NamedBarrier, 16> barriers;
  std::unique_ptr<TensorMemory> tensor_memory;   // only where the device has one
  std::vector<Warp> warps;
  std::vector<Row> register_file;
  std::vector<uint32_t> predicate_file;
  uint32_t register_pool = 0;              // free registers that setmaxnreg.dec returned
  struct TensorQueue { std::vector<uint64_t> tickets; uint64_t issued = 0, done = 0; } tensor_queue;
  // Facts for the deadlock report: shared offset of an mbarrier -> what is known of it.
  struct BarrierFacts { uint32_t init_count = 0; uint32_t init_pc = 0; uint64_t phases = 0; std::vector<std::string> last_arrivals; };
  std::unordered_map<uint32_t, BarrierFacts> mbarriers;
};

struct Cluster {
  Grid* grid = nullptr;
  std::vector<std::unique_ptr<Cta>> ctas;
  EventQueue events;
  uint64_t epoch = 0;         // bumped by whatever can unblock a fragment
  uint32_t cluster_barrier_arrived = 0;
  uint64_t cluster_barrier_generation = 0;
};

// Shared addresses: (CTA rank in the cluster << 24) | offset.  CUTLASS and the generated kernels of cuDNN rely on this form.
inline constexpr uint32_t kRankShift = 24;
inline uint32_t shared_rank(uint32_t address) { return address >> kRankShift; }
inline uint32_t shared_offset(uint32_t address) { return address & 0xffffffu; }
inline uint32_t shared_address(const Cta& cta, uint32_t offset) { return (cta.rank << kRankShift) | offset; }

}  // namespace mxfa::emulator
