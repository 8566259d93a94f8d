// What the machine tells the hazard checks.  Observers never change state; without one (Grid::observers is
// empty) the machine runs its fast paths and calls nothing.
//
// Warp::pc and Warp::mask name the instruction and its lanes in every event that has a warp.
#pragma once

#include <span>
#include <vector>

#include "core/warp.hpp"

namespace mxfa::emulator {

enum class MemorySpace : uint8_t { Shared, Tensor, Global };
enum class AccessKind : uint8_t { Read, Write, Atomic };

// Memory order and scope of an instruction.  Weak: a plain load or store.
enum class Semantics : uint8_t { Weak, Relaxed, Acquire, Release, AcquireRelease };
enum class Scope : uint8_t { Cta, Cluster, Gpu, Sys };
struct Order {
  Semantics semantics = Semantics::Weak;
  Scope scope = Scope::Cta;
  bool acquires() const { return semantics == Semantics::Acquire || semantics == Semantics::AcquireRelease; }
  bool releases() const { return semantics == Semantics::Release || semantics == Semantics::AcquireRelease; }
};
inline constexpr Order kReleaseCta{Semantics::Release, Scope::Cta};  // PTX ISA 9.7.13.15.13
inline constexpr Order kAcquireCta{Semantics::Acquire, Scope::Cta};  // 9.7.13.15.16
// In MicroOp::flags: kAtomicAccess, kSumAccess, semantics in bits 8-10, scope in bits 11-12.
inline constexpr uint16_t kAtomicAccess = 64, kSumAccess = 128;
inline uint16_t encode_order(Order o) {
  return static_cast<uint16_t>(static_cast<uint32_t>(o.semantics) << 8 | static_cast<uint32_t>(o.scope)
                                                                             << 11);
}
inline Order decode_order(uint16_t flags) {
  return {static_cast<Semantics>(flags >> 8 & 7), static_cast<Scope>(flags >> 11 & 3)};
}

// A load, store or atomic of a warp, in one space.  Addresses: global = device address, shared =
// shared::cluster form.  Local, constant and parameter memory are not reported.
struct LaneAccess {
  MemorySpace space = MemorySpace::Global;
  AccessKind kind = AccessKind::Read;
  Order order;
  bool sum = false;                   // an atomic addition whose result depends on the order of additions
  bool copy_async = false;            // a side of cp.async (not bulk): complete at its wait_group or mbarrier
  uint32_t mask = 0;                  // lanes
  uint32_t bytes = 0;                 // of each lane
  const uint64_t* address = nullptr;  // of each lane
};

// Bytes or cells that an asynchronous operation touches.
struct Touch {
  MemorySpace space = MemorySpace::Shared;
  AccessKind kind = AccessKind::Read;
  uint32_t rank = 0;              // shared and tensor memory: whose
  uint64_t begin = 0;             // shared: offset; global: address; tensor memory: first column
  uint32_t count = 0;             // bytes; tensor memory: columns
  uint8_t lane = 0, lanes = 128;  // tensor memory
  bool updates = false;           // written by adding to what is there
};

enum class AsyncKind : uint8_t {
  TensorLoad,   // cp.async.bulk.tensor towards shared memory
  TensorStore,  // and towards global memory, reductions included
  BulkLoad,
  BulkStore,
  SharedCopy,  // cp(.reduce).async.bulk.shared::cluster.shared::cta
  StoreAsync,  // st.async, red.async
  LaunchResponse,
  Mma,
  TmemCopy,
  TmemLoad,
  TmemStore,
  Wgmma
};
inline constexpr uint32_t kNoBarrier = ~0u;
struct AsyncWork {
  uint64_t ticket = 0;  // names the operation in later events; never 0
  AsyncKind kind = AsyncKind::Mma;
  int lane = -1;                   // that issues it; -1: the whole warp
  uint32_t mbarrier = kNoBarrier;  // shared::cluster address that counts its bytes
  int cta_group = 1;
  uint64_t number = 0;       // wgmma: of the instruction in its warpgroup, from 1
  bool whole_group = false;  // wgmma: what is read for all four warps, once the last has issued it
};

enum class FenceKind : uint8_t {
  Thread,           // fence{.sem}.scope, membar, also .sync_restrict
  MbarrierInit,     // fence.mbarrier_init.release.cluster
  ProxyAsync,       // fence.proxy.async{.space}
  ProxyAsyncOrder,  // fence.proxy.async::generic.sem.sync_restrict: a proxy fence of shared memory with an
                    // order
  ProxyOther,       // alias, tensormap
  TmemBefore,       // tcgen05.fence::before_thread_sync
  TmemAfter,
  Wgmma,
  GridWait,  // griddepcontrol
  GridLaunch
};
struct Fence {
  FenceKind kind = FenceKind::Thread;
  Order order;
  bool shared = true, global = true;  // spaces of a proxy fence
};

// What the machine is about to refuse with a fault, but for three kinds that it takes.
enum class Misuse : uint8_t {
  BarrierNotInitialised,
  TooManyArrivals,     // for the pending count of the mbarrier's phase
  TmemNotAllocated,    // columns
  TmemDealloc,         // of columns that are no allocation
  TmemOtherLanes,      // of another warp
  TmemLaneZero,        // lane 0 by a warp whose lanes begin elsewhere; no fault follows
  TmemAcross,          // columns of more than one allocation; no fault follows
  TmemAlloc,           // after relinquish_alloc_permit, or of more columns than before
  TmemHeld,            // when the CTA ends
  RegistersDirection,  // setmaxnreg.inc to fewer, .dec to more; where: the number asked for
  RegistersIgnored     // setmaxnreg in a kernel without a bound on its threads; no fault follows
};

class Observer {
 public:
  virtual ~Observer() = default;

  // ---- life
  virtual void cluster_begins(Cluster&) {}
  virtual void cluster_ends(Cluster&) {}
  virtual void lanes_exit(Warp&, uint32_t /*lanes*/) {}
  virtual void cta_ends(Cta&) {}  // its last lane has exited
  virtual void blocked(Warp&, const Wait&) {}
  virtual void registers_change(Warp&, uint32_t /*from*/, uint32_t /*to*/) {}  // setmaxnreg, a thread

  // `where`: the mbarrier, or an address in tensor memory.  Null warp: asynchronous work, `who` names it.
  virtual void misuse(Cluster&, const Warp*, Misuse, uint32_t /*where*/, const std::string& /*who*/) {}
  virtual void stuck(Cluster&) {}  // a deadlock: no fragment will run again

  // ---- memory
  virtual void access(Warp&, const LaneAccess&) {}
  // Issued, with everything it will touch.  A wgmma is announced by each of its four warps with that warp's
  // rows of A (if they lie in shared memory), then once more with B.
  virtual void issue(Warp&, const AsyncWork&, std::span<const Touch>) {}
  virtual void performed(Cluster&, uint64_t /*ticket*/) {}
  // Its bytes count in this phase of its mbarrier (phases completed before, since init).
  virtual void landed(Cluster&, uint64_t /*ticket*/, uint32_t /*mbarrier*/, uint32_t /*bytes*/,
                      uint64_t /*phase*/) {}

  // ---- mbarriers, by shared::cluster address; `phase` = phases completed since init
  virtual void mbarrier_init(Warp&, uint32_t /*mbarrier*/, uint32_t /*count*/) {}
  virtual void mbarrier_inval(Warp&, uint32_t /*mbarrier*/) {}
  virtual void mbarrier_expect(Warp&, uint32_t /*mbarrier*/, uint32_t /*bytes*/, uint64_t /*phase*/) {}
  virtual void mbarrier_arrive(Warp&, uint32_t /*mbarrier*/, uint32_t /*count*/, uint64_t /*phase*/, Order) {}
  // The arrival that tcgen05.commit announced under this ticket.
  virtual void mbarrier_arrive_async(Cluster&, uint64_t /*ticket*/, uint32_t /*mbarrier*/,
                                     uint64_t /*phase*/) {}
  // cp.async.mbarrier.arrive: an arrival once the copies before it are complete.
  virtual void mbarrier_arrive_copies(Warp&, uint32_t /*mbarrier*/, uint64_t /*phase*/) {}
  // test_wait or try_wait; `phase` counts completed phases now; done: the phase asked for has completed.
  virtual void mbarrier_test(Warp&, uint32_t /*mbarrier*/, uint32_t /*parity*/, uint64_t /*phase*/,
                             bool /*done*/, Order) {}

  // ---- barriers of CTAs and clusters; a generation is one use of the barrier
  virtual void barrier_arrive(Warp&, uint32_t /*id*/, uint64_t /*generation*/) {}
  virtual void barrier_passed(Warp&, uint32_t /*id*/, uint64_t /*generation*/) {}
  virtual void cluster_arrive(Warp&, uint64_t /*generation*/, bool /*releases*/) {}
  virtual void cluster_passed(Warp&, uint64_t /*generation*/) {}
  virtual void warp_sync(Warp&, uint32_t /*lanes*/) {}  // bar.warp.sync and other .sync instructions

  // ---- order
  virtual void fence(Warp&, const Fence&) {}
  virtual void bulk_commit(Warp&, int /*lane*/) {}
  // The groups but the last `outstanding` are complete; read_only: as far as reading their sources goes.
  virtual void bulk_waited(Warp&, int /*lane*/, uint32_t /*outstanding*/, bool /*read_only*/) {}
  virtual void copy_async_commit(Warp&) {}
  virtual void copy_async_waited(Warp&, uint32_t /*outstanding*/) {}  // wait_all: commit, then 0
  virtual void wgmma_commit(Warp&, uint64_t /*last instruction*/) {}
  virtual void wgmma_waited(Warp&, uint64_t /*through instruction*/) {}

  // ---- tcgen05
  virtual void tmem_alloc(Warp&, uint32_t /*rank*/, uint32_t /*column*/, uint32_t /*columns*/,
                          int /*cta_group*/, uint32_t /*shared destination*/) {
  }  // once for each CTA of a pair
  virtual void tmem_dealloc(Warp&, uint32_t /*rank*/, uint32_t /*column*/, uint32_t /*columns*/) {}
  virtual void tmem_relinquish(Warp&) {}
  virtual void tmem_waited(Warp&, bool /*loads*/) {}  // wait::ld, wait::st
  virtual void tensor_commit(Warp&, uint64_t /*ticket*/, int /*lane*/, int /*cta_group*/,
                             std::span<const uint32_t> /*mbarriers*/) {}
  virtual void tmem_load_used(Warp&) {}  // before wait::ld: the loads of the warp are complete all the same
};

// Calls event(observer) for each observer of a launch.
template <class Event>
inline void observe(const Grid& grid, Event&& event) {
  for (Observer* o : grid.observers) event(*o);
}
inline bool observed(const Grid& grid) { return !grid.observers.empty(); }
// A name for an asynchronous operation; 0 when nobody observes.
inline uint64_t new_ticket(Grid& grid) { return grid.observers.empty() ? 0 : ++grid.tickets; }

}  // namespace mxfa::emulator
