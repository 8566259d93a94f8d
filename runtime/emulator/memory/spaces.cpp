// The sentences for accesses that no space allows.
#include <cuda.h>
#include <fmt/format.h>

#include "memory/memory.hpp"

namespace mxfa::emulator {

void throw_global_fault(const Grid& grid, uint64_t address, uint64_t bytes, bool write, bool aligned) {
  const char* action = write ? "write" : "read";
  if (!aligned)
    throw Fault(
        CUDA_ERROR_MISALIGNED_ADDRESS,
        fmt::format("misaligned global {} of {} bytes at {:#x}: the address must be a multiple of {}; {}",
                    action, bytes, address, bytes, grid.arena->describe(address)));
  if (address >= kParamWindow && address < kSharedWindow + kWindowBytes)
    throw Fault(
        CUDA_ERROR_INVALID_ADDRESS_SPACE,
        fmt::format("global {} of {} bytes at {:#x}, which lies in the window of {}", action, bytes, address,
                    address >= kSharedWindow  ? "shared memory"
                    : address >= kLocalWindow ? "local memory"
                                              : "kernel parameters"));
  throw Fault(CUDA_ERROR_ILLEGAL_ADDRESS, fmt::format("illegal global {} of {} bytes at {:#x}: {}", action,
                                                      bytes, address, grid.arena->describe(address)));
}

void throw_shared_fault(const Cluster& cluster, uint32_t address, uint64_t bytes, bool write, bool aligned) {
  const char* action = write ? "write" : "read";
  const uint32_t rank = shared_rank(address), offset = shared_offset(address);
  if (!aligned)
    throw Fault(CUDA_ERROR_MISALIGNED_ADDRESS,
                fmt::format("misaligned shared {} of {} bytes at {:#x}: the address must be a multiple of {}",
                            action, bytes, address, bytes));
  if (rank >= cluster.ctas.size())
    throw Fault(
        CUDA_ERROR_ILLEGAL_ADDRESS,
        fmt::format("illegal shared {} of {} bytes at {:#x}: CTA rank {} in bits [24:32), the cluster has {}",
                    action, bytes, address, rank, cluster.ctas.size()));
  const uint32_t reserved = cluster.grid->device->shared_reserved;
  if (offset < reserved)
    throw Fault(CUDA_ERROR_ILLEGAL_ADDRESS,
                fmt::format("illegal shared {} of {} bytes at {:#x}: offset {} lies in the first {} bytes, "
                            "which the system reserves",
                            action, bytes, address, offset, reserved));
  throw Fault(CUDA_ERROR_ILLEGAL_ADDRESS, fmt::format("illegal shared {} of {} bytes at {:#x}: bytes [{}, "
                                                      "{}) of CTA rank {}, whose shared memory ends at {}",
                                                      action, bytes, address, offset, offset + bytes, rank,
                                                      cluster.ctas[rank]->shared_size));
}

}  // namespace mxfa::emulator
