// What the interpreter asks of the asynchronous engines.  The interpreter decodes operands; an engine checks
// them, performs or queues the work through Cluster::events, and bumps Cluster::epoch whenever something may
// have become unblocked.  A function that returns bool and says "blocks" returns false when the instruction
// has to wait; the interpreter then blocks the fragment and tries again later. Errors are Faults.  Addresses:
// shared = 32-bit shared::cluster form (core/warp.hpp), global = 64-bit device address.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "core/observer.hpp"
#include "core/warp.hpp"

namespace mxfa::emulator {

// ---- mbarrier.cpp: the object lives in its 8 bytes of shared memory ------------------------------------
void mbarrier_init(Warp& warp, uint32_t address, uint32_t count);
void mbarrier_inval(Warp& warp, uint32_t address);
// Expect-tx first, then `count` arrivals.  Returns the state token of the phase before (opaque).  drop: also
// lowers the count of later phases.
uint64_t mbarrier_arrive(Warp& warp, uint32_t address, uint32_t count, uint32_t expect_tx, bool drop,
                         bool no_complete, Order order = kReleaseCta);
void mbarrier_expect_tx(Warp& warp, uint32_t address, uint32_t bytes);
// From an engine or st.async: no warp executes it.  `who` is for reports, `ticket` for observers.
void mbarrier_complete_tx(Cluster& cluster, uint32_t address, uint32_t bytes, const std::string& who,
                          uint64_t ticket = 0);
void mbarrier_arrive_async(Cluster& cluster, uint32_t address, uint32_t count, const std::string& who,
                           uint64_t ticket = 0);
void mbarrier_add_pending(Cluster& cluster, uint32_t address, uint32_t count, const std::string& who);
// cp.async.mbarrier.arrive.noinc, or with a count of 0 the form that changes no count.
void mbarrier_arrive_copies(Warp& warp, uint32_t address, uint32_t count);
// True when the phase with this parity has completed / the phase of this token has completed.
bool mbarrier_test_parity(Warp& warp, uint32_t address, uint32_t parity, Order order = kAcquireCta);
bool mbarrier_test_token(Warp& warp, uint32_t address, uint64_t token, Order order = kAcquireCta);
uint32_t mbarrier_pending_count(uint64_t token);
// "arrivals 3/4, tx -16384, phase 5" for reports.
std::string mbarrier_describe(Cluster& cluster, uint32_t address);

// ---- tma.cpp, bulk.cpp ---------------------------------------------------------------------------------
enum class ReduceOp { None, Add, Min, Max, Inc, Dec, And, Or, Xor };
// F32 flushes subnormal numbers, F32Subnormal keeps them.
enum class ReduceType { None, U32, S32, U64, S64, F16, BF16, F32, F64, F32Subnormal };
struct TensorCopy {
  uint64_t map = 0;  // device or parameter address of the 128-byte tensor map
  int rank = 0;
  std::array<int32_t, 5> coordinates{};
  uint32_t shared = 0;                // destination of a load, source of a store
  uint32_t mbarrier = 0;              // loads
  std::optional<uint16_t> multicast;  // loads
  int cta_group = 0;                  // loads: 0 none, 1, 2
  bool gather4 = false;               // tile::gather4 / scatter4: coordinates = column, 4 rows
  ReduceOp reduce = ReduceOp::None;   // stores
};
void tma_load(Warp& warp, int lane, const TensorCopy& copy);
void tma_store(Warp& warp, int lane, const TensorCopy& copy);     // joins the lane's open bulk group
void tma_prefetch(Warp& warp, int lane, const TensorCopy& copy);  // checked, no effect
struct BulkCopy {
  uint64_t global = 0;
  uint32_t shared = 0, shared_source = 0;  // shared_source: shared::cta -> shared::cluster copies
  uint32_t bytes = 0, mbarrier = 0;
  std::optional<uint16_t> multicast, byte_mask;
  ReduceOp reduce = ReduceOp::None;
  ReduceType type = ReduceType::None;
};
void bulk_load(Warp& warp, int lane, const BulkCopy& copy);   // global -> shared, completes on mbarrier
void bulk_store(Warp& warp, int lane, const BulkCopy& copy);  // shared -> global, bulk group
void bulk_shared_to_cluster(Warp& warp, int lane, const BulkCopy& copy);  // completes on mbarrier
void bulk_commit(Warp& warp, int lane);
bool bulk_wait(Warp& warp, int lane, uint32_t outstanding, bool read_only);  // blocks

// ---- copy_async.cpp ------------------------------------------------------------------------------------
// cp.async (PTX ISA 9.7.9.25.3): `take` bytes come from `from`, the rest of `bytes` is zero.
struct LaneCopy {
  int lane = 0;
  uint8_t* to = nullptr;
  const uint8_t* from = nullptr;
  uint32_t take = 0;
};
void copy_async(Warp& warp, uint32_t bytes, std::span<const LaneCopy> copies);
void copy_async_commit(Warp& warp, int lane);
// Blocks.  all: also for copies in no group yet.
bool copy_async_wait(Warp& warp, int lane, uint32_t outstanding, bool all);
// An arrival once all earlier copies of the lane are complete; noinc: it is one of those that mbarrier.init
// counted, otherwise the pending count is raised first.
void copy_async_arrive(Warp& warp, int lane, uint32_t mbarrier, bool noinc);

// ---- cluster_async.cpp ---------------------------------------------------------------------------------
// st.async and red.async: `apply` changes the bytes at `address` when the write is performed, which then
// counts them on the mbarrier.  poison: the old contents are lost at issue.
void shared_async(Warp& warp, int lane, const char* name, uint32_t address, uint32_t bytes, uint32_t mbarrier,
                  bool poison, std::function<void(uint8_t*)> apply);
// clusterlaunchcontrol: grants are the clusters that have not started, in order of launch.
using LaunchResponse =
    std::array<uint32_t, 4>;  // of 16 bytes; its last words are the first CTA of the cluster
void launch_try_cancel(Warp& warp, int lane, uint32_t response, uint32_t mbarrier, bool multicast);
bool launch_is_canceled(Cluster& cluster, const LaunchResponse& response);

// ---- tcgen05.cpp, tcgen05_mma.cpp (issue, order, completion), tensor_numeric.cpp (arithmetic)
// ----------------------------
bool tcgen05_alloc(Warp& warp, uint32_t shared_destination, uint32_t columns, int cta_group);  // blocks
bool tcgen05_dealloc(Warp& warp, uint32_t address, uint32_t columns, int cta_group);  // blocks (pair)
void tcgen05_relinquish(Warp& warp, int cta_group);
enum class TmemShape { S32x32b, S16x64b, S16x128b, S16x256b, S16x32bx2 };
// registers[r] is the row of register r; a load writes active rows of it no later than wait::ld.  Under the
// lazy and random schedules that is after the instruction: until the wait the rows must belong to no other
// register.  Source rows of a store are read at issue.
// tcgen05.ld.red: over the registers of each thread.  f32: a NaN loses unless `nan`; -0 < +0.
struct TmemReduction {
  enum class Type { U32, S32, F32 };
  bool maximum, nan, absolute;
  Type type;
};
// With a reduction the last row takes its value.
void tcgen05_ld(Warp& warp, TmemShape shape, int repeat, bool pack16, uint32_t address, int32_t half_offset,
                std::span<Row* const> registers, const std::optional<TmemReduction>& reduction = {});
void tcgen05_st(Warp& warp, TmemShape shape, int repeat, bool unpack16, uint32_t address, int32_t half_offset,
                std::span<const Row* const> registers);
void tcgen05_load_used(Warp& warp);  // a register of a load is used before wait::ld
bool tcgen05_wait_ld(Warp& warp);    // performs what is pending; never blocks for long
bool tcgen05_wait_st(Warp& warp);
void tcgen05_fence(Warp& warp, bool before_thread_sync);
enum class MmaKind { F16, TF32, F8F6F4, I8, MXF8F6F4, MXF4, MXF4NVF4 };
struct TensorMma {
  MmaKind kind = MmaKind::F16;
  int cta_group = 1;
  bool a_in_tmem = false;
  uint32_t d = 0, a_tmem = 0, scale_a = 0, scale_b = 0, instruction = 0;  // instruction = idesc
  uint64_t a_descriptor = 0, b_descriptor = 0;
  int scale_vector = 0;            // 0 default, 1, 2, 4 (scale_vec::NX)
  bool accumulate = false;         // enable-input-d
  bool weight_stationary = false;  // .ws
  int scale_input_d = 0;
  std::optional<std::array<uint32_t, 8>> disable_lanes;
};
void tcgen05_mma(Warp& warp, int lane, const TensorMma& mma);
enum class TmemCopyShape { S128x256b, S128x128b, S4x256b, S64x128b_02_13, S64x128b_01_23, S32x128b };
// Elements of 4 or 6 bits, 16 in every 16 bytes of the source, become a byte each.
enum class TmemCopyExpansion { None, B6x16P32, B4x16P64 };
void tcgen05_cp(Warp& warp, int lane, TmemCopyShape shape, uint32_t address, uint64_t descriptor,
                int cta_group, TmemCopyExpansion expansion = TmemCopyExpansion::None);
void tcgen05_commit(Warp& warp, int lane, uint32_t mbarrier, std::optional<uint16_t> multicast,
                    int cta_group);

// ---- end of a CTA --------------------------------------------------------------------------------------
// Work still in flight or tensor memory still allocated when the last warp exits: a sentence per finding,
// empty if clean.  Bulk stores may be in flight (the device keeps the shared memory until they have read it),
// and so may stores to tensor memory: public kernels leave out the last wait_group.read and the last
// wait::st.
std::vector<std::string> engines_at_exit(Cta& cta);

}  // namespace mxfa::emulator
