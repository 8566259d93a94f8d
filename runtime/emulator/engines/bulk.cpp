// One-dimensional bulk copies and reductions (PTX ISA 9.7.9.25), and bulk groups.
#include "engines/bulk.hpp"

#include <cuda.h>
#include <fmt/format.h>

#include <cstring>

#include "engines/reduce.hpp"
#include "memory/memory.hpp"

namespace mxfa::emulator {
namespace {

[[noreturn]] void refuse(int code, const std::string& text) { throw Fault(code, "cp.async.bulk: " + text); }

void require_aligned(const char* what, uint64_t address) {
  if (address % 16 != 0)
    refuse(CUDA_ERROR_MISALIGNED_ADDRESS,
           fmt::format("the {} address {:#x} is not a multiple of 16", what, address));
}

void require_size(uint32_t bytes) {
  if (bytes % 16 != 0)
    refuse(CUDA_ERROR_ILLEGAL_INSTRUCTION, fmt::format("a size of {} bytes is not a multiple of 16", bytes));
}

void require_own(const Warp& warp, const char* what, uint32_t address) {
  if (shared_rank(address) != warp.cta->rank)
    refuse(CUDA_ERROR_ILLEGAL_ADDRESS,
           fmt::format("the {} {:#x} lies in CTA rank {}, but CTA rank {} issues the copy and only its own "
                       "shared memory may be a source",
                       what, address, shared_rank(address), warp.cta->rank));
}

void require_reduction(const BulkCopy& copy) {
  if (copy.reduce == ReduceOp::None) return;
  if (const std::string error = reduce_check(copy.reduce, copy.type); !error.empty())
    refuse(CUDA_ERROR_ILLEGAL_INSTRUCTION, error);
}

}  // namespace

std::string issuer(const Warp& warp, int lane) {
  return fmt::format("cta {} warp {} lane {} pc {}", warp.cta->rank, warp.index, lane, warp.pc);
}

std::vector<uint32_t> destinations(Warp& warp, uint32_t shared, const std::optional<uint16_t>& multicast) {
  if (!multicast) return {shared};
  const size_t ctas = warp.cta->cluster->ctas.size();
  if (*multicast == 0 || (ctas < 16 && *multicast >> ctas != 0))
    throw Fault(CUDA_ERROR_ILLEGAL_INSTRUCTION,
                fmt::format("a multicast mask of {:#x} in a cluster of {} CTAs: every bit must name a CTA "
                            "and one must be set",
                            *multicast, ctas));
  std::vector<uint32_t> result;
  for (uint32_t rank = 0; rank < ctas; ++rank)
    if (*multicast >> rank & 1) result.push_back(rank << kRankShift | shared_offset(shared));
  return result;
}

void submit_load(Warp& warp, const std::string& what, uint32_t destination, uint32_t bytes, uint32_t mbarrier,
                 std::function<void()> data, uint64_t ticket) {
  Cluster& cluster = *warp.cta->cluster;
  uint8_t* target = shared_range(cluster, destination, bytes, true);
  if (!cluster.events.immediate()) std::memset(target, 0xff, bytes);
  cluster.events.submit(0, what, [&cluster, what, bytes, mbarrier, data = std::move(data), ticket] {
    data();
    report_performed(cluster, ticket);
    mbarrier_complete_tx(cluster, mbarrier, bytes, what, ticket);
  });
}

void submit_store(Warp& warp, int lane, const std::string& what, std::function<void(Buffer&)> read,
                  std::function<void(const Buffer&)> write, uint64_t ticket) {
  Cluster& cluster = *warp.cta->cluster;
  auto& current = warp.bulk[lane].current;
  if (!current) current = std::make_shared<Warp::BulkGroup>();
  ++current->pending_reads;
  ++current->pending_writes;
  cluster.events.submit(
      0, what + ", reading its source",
      [&cluster, what, group = current, read = std::move(read), write = std::move(write), ticket] {
        auto buffer = std::make_shared<Buffer>();
        read(*buffer);
        --group->pending_reads;
        ++cluster.epoch;
        cluster.events.submit(0, what + ", writing", [&cluster, group, buffer, write, ticket] {
          write(*buffer);
          report_performed(cluster, ticket);
          --group->pending_writes;
          ++cluster.epoch;
        });
      });
}

void bulk_load(Warp& warp, int lane, const BulkCopy& copy) {
  Cluster& cluster = *warp.cta->cluster;
  require_aligned("global", copy.global);
  require_aligned("shared", copy.shared);
  require_size(copy.bytes);
  Grid& grid = *cluster.grid;
  for (const uint32_t destination : destinations(warp, copy.shared, copy.multicast)) {
    const uint32_t barrier =
        copy.multicast ? (destination & ~0xffffffu) | shared_offset(copy.mbarrier) : copy.mbarrier;
    if (shared_rank(barrier) != shared_rank(destination))
      refuse(CUDA_ERROR_ILLEGAL_ADDRESS,
             fmt::format("the destination {:#x} and the mbarrier {:#x} lie in different CTAs", destination,
                         barrier));
    const std::string what = fmt::format("bulk load of {} bytes from {:#x} to shared {:#x} by {}", copy.bytes,
                                         copy.global, destination, issuer(warp, lane));
    grid.counters.bulk_bytes += copy.bytes;
    const uint64_t ticket = announce(warp, {0, AsyncKind::BulkLoad, lane, barrier}, [&] {
      return Touches{shared_bytes(destination, copy.bytes, AccessKind::Write),
                     global_bytes(copy.global, copy.bytes, AccessKind::Read)};
    });
    submit_load(
        warp, what, destination, copy.bytes, barrier,
        [&cluster, &grid, destination, global = copy.global, bytes = copy.bytes] {
          if (bytes == 0) return;
          std::memcpy(shared_range(cluster, destination, bytes, true),
                      global_range(grid, global, bytes, false), bytes);
        },
        ticket);
  }
}

void bulk_store(Warp& warp, int lane, const BulkCopy& copy) {
  Cluster& cluster = *warp.cta->cluster;
  require_aligned("global", copy.global);
  require_aligned("shared", copy.shared);
  require_size(copy.bytes);
  require_own(warp, "source", copy.shared);
  require_reduction(copy);
  Grid& grid = *cluster.grid;
  shared_range(cluster, copy.shared, copy.bytes, false);
  if (cluster.events.overwrites_at_issue() && copy.reduce == ReduceOp::None && !copy.byte_mask && copy.bytes)
    std::memset(global_range(grid, copy.global, copy.bytes, true), 0xff, copy.bytes);
  grid.counters.bulk_bytes += copy.bytes;
  const std::string what = fmt::format("bulk {} of {} bytes from shared {:#x} to {:#x} by {}",
                                       copy.reduce == ReduceOp::None ? "store" : reduce_name(copy.reduce),
                                       copy.bytes, copy.shared, copy.global, issuer(warp, lane));
  const uint64_t ticket = announce(warp, {0, AsyncKind::BulkStore, lane}, [&] {
    const AccessKind kind = copy.reduce == ReduceOp::None ? AccessKind::Write : AccessKind::Atomic;
    Touches list{shared_bytes(copy.shared, copy.bytes, AccessKind::Read)};
    if (!copy.byte_mask) list.push_back(global_bytes(copy.global, copy.bytes, kind));
    for (uint32_t i = 0; copy.byte_mask && i < copy.bytes; ++i)
      if (*copy.byte_mask >> (i % 16) & 1) list.push_back(global_bytes(copy.global + i, 1, kind));
    return list;
  });
  submit_store(
      warp, lane, what,
      [&cluster, copy](Buffer& buffer) {
        const uint8_t* source = shared_range(cluster, copy.shared, copy.bytes, false);
        buffer.assign(source, source + copy.bytes);
      },
      [&grid, copy](const Buffer& buffer) {
        if (copy.bytes == 0) return;
        uint8_t* target = global_range(grid, copy.global, copy.bytes, true);
        if (copy.reduce != ReduceOp::None) {
          reduce_elements(copy.reduce, copy.type, target, buffer.data(), copy.bytes);
        } else if (copy.byte_mask) {
          for (uint32_t i = 0; i < copy.bytes; ++i)  // .cp_mask: bit i covers byte i of every 16
            if (*copy.byte_mask >> (i % 16) & 1) target[i] = buffer[i];
        } else {
          std::memcpy(target, buffer.data(), copy.bytes);
        }
      },
      ticket);
}

void bulk_shared_to_cluster(Warp& warp, int lane, const BulkCopy& copy) {
  Cluster& cluster = *warp.cta->cluster;
  require_aligned("destination", copy.shared);
  require_aligned("source", copy.shared_source);
  require_size(copy.bytes);
  require_own(warp, "source", copy.shared_source);
  require_reduction(copy);
  if (shared_rank(copy.mbarrier) != shared_rank(copy.shared))
    refuse(CUDA_ERROR_ILLEGAL_ADDRESS,
           fmt::format("the destination {:#x} and the mbarrier {:#x} lie in different CTAs", copy.shared,
                       copy.mbarrier));
  cluster.grid->counters.bulk_bytes += copy.bytes;
  const std::string what = fmt::format("bulk copy of {} bytes from shared {:#x} to shared {:#x} by {}",
                                       copy.bytes, copy.shared_source, copy.shared, issuer(warp, lane));
  const AccessKind kind = copy.reduce == ReduceOp::None ? AccessKind::Write : AccessKind::Atomic;
  const uint64_t ticket = announce(warp, {0, AsyncKind::SharedCopy, lane, copy.mbarrier}, [&] {
    return Touches{shared_bytes(copy.shared_source, copy.bytes, AccessKind::Read),
                   shared_bytes(copy.shared, copy.bytes, kind)};
  });
  const auto data = [&cluster, copy] {
    uint8_t* target = shared_range(cluster, copy.shared, copy.bytes, true);
    const uint8_t* source = shared_range(cluster, copy.shared_source, copy.bytes, false);
    if (copy.reduce == ReduceOp::None)
      std::memmove(target, source, copy.bytes);
    else
      reduce_elements(copy.reduce, copy.type, target, source, copy.bytes);
  };
  if (copy.reduce == ReduceOp::None) {
    submit_load(warp, what, copy.shared, copy.bytes, copy.mbarrier, data, ticket);
  } else {  // a reduction's destination holds live data: nothing to poison
    cluster.events.submit(0, what, [&cluster, what, data, copy, ticket] {
      data();
      report_performed(cluster, ticket);
      mbarrier_complete_tx(cluster, copy.mbarrier, copy.bytes, what, ticket);
    });
  }
}

void bulk_commit(Warp& warp, int lane) {
  observe(*warp.cta->cluster->grid, [&](Observer& o) { o.bulk_commit(warp, lane); });
  Warp::BulkState& state = warp.bulk[lane];
  state.committed.push_back(state.current ? state.current : std::make_shared<Warp::BulkGroup>());
  state.current.reset();
}

// Groups complete in the order of their commits: all but the youngest `outstanding` must be done.
bool bulk_wait(Warp& warp, int lane, uint32_t outstanding, bool read_only) {
  const auto found = warp.bulk.find(lane);
  if (found == warp.bulk.end()) return true;
  auto& committed = found->second.committed;
  while (!committed.empty() && committed.front()->pending_reads == 0 &&
         committed.front()->pending_writes == 0)
    committed.pop_front();
  for (size_t i = 0; i + outstanding < committed.size(); ++i)
    if (committed[i]->pending_reads != 0 || (!read_only && committed[i]->pending_writes != 0)) return false;
  return true;
}

}  // namespace mxfa::emulator
