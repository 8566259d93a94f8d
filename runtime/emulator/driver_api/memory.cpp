// Device and host memory: allocation, and questions about pointers.  Device addresses are host addresses
// inside the arena.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "checks/checks.hpp"
#include "driver_api/driver.hpp"

using namespace mxfa::emulator::driver_api;

namespace mxfa::emulator::driver_api {

bool checks_asked_for() {
  const char* value = std::getenv("MXFA_EMU_CHECK");
  const auto mode = check_mode(value && *value ? value : "off");
  return mode && *mode != CheckMode::Off;
}

}  // namespace mxfa::emulator::driver_api

namespace {

uint64_t read_number(const char* path) {
  uint64_t value = UINT64_MAX;  // stays when the file says "max" or is missing
  if (FILE* file = std::fopen(path, "r")) {
    if (std::fscanf(file, "%lu", &value) != 1) value = UINT64_MAX;
    std::fclose(file);
  }
  return value;
}

// What this machine can still give.  Fresh device memory is filled, hence resident: without this check a
// program that takes "80 % of the free memory" of a 180 GB device would be killed instead of being refused.
uint64_t host_available() {
  uint64_t available = UINT64_MAX;
  if (FILE* file = std::fopen("/proc/meminfo", "r")) {
    char line[256];
    uint64_t kib = 0;
    while (std::fgets(line, sizeof line, file)) {
      if (std::sscanf(line, "MemAvailable: %lu kB", &kib) == 1) available = kib << 10;
    }
    std::fclose(file);
  }
  const uint64_t limit = read_number("/sys/fs/cgroup/memory.max");
  const uint64_t used = read_number("/sys/fs/cgroup/memory.current");
  if (limit != UINT64_MAX && used != UINT64_MAX)
    available = std::min(available, limit > used ? limit - used : 0);
  return available;
}

uint64_t free_memory() {
  Driver& state = driver();
  const uint64_t total = state.device.model.memory_bytes;
  return std::min(total > state.memory_used ? total - state.memory_used : 0, host_available());
}

CUdeviceptr allocate(size_t bytes, bool managed) {
  Context& context = require_context();
  Driver& state = driver();
  if (bytes == 0) refuse(CUDA_ERROR_INVALID_VALUE, "bytesize is 0");
  if (bytes > free_memory()) {
    refuse(CUDA_ERROR_OUT_OF_MEMORY,
           "{} bytes asked for, {} are free (device {} bytes, {} allocated, this machine {} available)",
           bytes, free_memory(), state.device.model.memory_bytes, state.memory_used, host_available());
  }
  const uint64_t address = state.arena->allocate(bytes);
  if (!address) refuse(CUDA_ERROR_OUT_OF_MEMORY, "{} bytes asked for, the address range is used up", bytes);
  state.allocations[address] = {bytes, &context, managed};
  // The host writes managed memory without telling.
  if (!managed && checks_asked_for()) state.arena->written.follow(address, bytes);
  state.memory_used += bytes;
  return address;
}

void release(CUdeviceptr address) {
  if (!address) return;  // allowed, as for free()
  Driver& state = driver();
  const auto found = state.allocations.find(address);
  if (found == state.allocations.end()) {
    refuse(CUDA_ERROR_INVALID_VALUE, "{:#x} is not the start of an allocation; {}", address,
           state.arena->describe(address));
  }
  state.pending.forget(address, found->second.bytes);
  state.arena->release(address);
  state.memory_used -= found->second.bytes;
  state.allocations.erase(found);
}

constexpr uint64_t kPage = 4096;

void* allocate_host(size_t bytes, unsigned flags) {
  require_context();
  if (bytes == 0) refuse(CUDA_ERROR_INVALID_VALUE, "bytesize is 0");
  const uint64_t address = bytes <= host_available() ? driver().arena->allocate(bytes, kPage) : 0;
  if (!address) refuse(CUDA_ERROR_OUT_OF_MEMORY, "{} bytes of host memory", bytes);
  driver().host_blocks[address] = {bytes, flags};
  driver().pending.finish();  // it may wait for the device
  return reinterpret_cast<void*>(address);
}

// The start of such a block, or a refusal.
decltype(Driver::host_blocks)::iterator require_host_block(const void* pointer, bool registered,
                                                           CUresult code, const char* origin) {
  require_context();
  require(pointer, "p");
  const auto found = driver().host_blocks.find(reinterpret_cast<uint64_t>(pointer));
  if (found == driver().host_blocks.end() || found->second.registered != registered)
    refuse(code, "{} does not come from {}", fmt::ptr(pointer), origin);
  return found;
}

}  // namespace

namespace mxfa::emulator::driver_api {

const std::pair<const uint64_t, HostBlock>* find_host_block(uint64_t address) {
  const auto& blocks = driver().host_blocks;
  auto block = blocks.upper_bound(address);
  if (block == blocks.begin()) return nullptr;
  --block;
  return address - block->first < block->second.bytes ? &*block : nullptr;
}

}  // namespace mxfa::emulator::driver_api

CUresult cuMemAlloc_v2(CUdeviceptr* out, size_t bytes) {
  return api(__func__, [&] {
    require_context();
    require(out, "dptr");
    *out = allocate(bytes, false);
  });
}

CUresult cuMemAllocManaged(CUdeviceptr* out, size_t bytes, unsigned flags) {
  return api(__func__, [&] {
    require_context();
    require(out, "dptr");
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) {
      refuse(CUDA_ERROR_INVALID_VALUE, "flags {} is neither CU_MEM_ATTACH_GLOBAL nor CU_MEM_ATTACH_HOST",
             flags);
    }
    *out = allocate(bytes, true);
  });
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* out, size_t* pitch, size_t width, size_t height, unsigned element) {
  return api(__func__, [&] {
    require_context();
    require(out, "dptr");
    require(pitch, "pPitch");
    if (element != 4 && element != 8 && element != 16) {
      refuse(CUDA_ERROR_INVALID_VALUE, "ElementSizeBytes {} is not 4, 8 or 16", element);
    }
    if (!width || !height) refuse(CUDA_ERROR_INVALID_VALUE, "{} x {} bytes asked for", width, height);
    const size_t alignment = driver().device.model.attributes[CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT];
    size_t padded = 0, bytes = 0;
    if (__builtin_add_overflow(width, alignment - 1, &padded) ||
        __builtin_mul_overflow(padded / alignment * alignment, height, &bytes))
      refuse(CUDA_ERROR_OUT_OF_MEMORY, "{} rows of {} bytes do not fit the address space", height, width);
    *out = allocate(bytes, false);
    *pitch = padded / alignment * alignment;
  });
}

CUresult cuMemAllocAsync(CUdeviceptr* out, size_t bytes, CUstream stream) {
  return api(__func__, [&] {
    require_context();
    require_stream(stream);
    require(out, "dptr");
    *out = allocate(bytes, false);
  });
}
MXFA_SAME_FUNCTION(cuMemAllocAsync_ptsz, cuMemAllocAsync)

CUresult cuMemFree_v2(CUdeviceptr address) {
  return api(__func__, [&] {
    require_context();
    release(address);
    driver().pending.finish();  // it waits for the device
  });
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  return api(__func__, [&] {
    require_context();
    driver().pending.submit(require_stream(stream));
    if (!address) refuse(CUDA_ERROR_INVALID_VALUE, "dptr is null");
    release(address);
  });
}
MXFA_SAME_FUNCTION(cuMemFreeAsync_ptsz, cuMemFreeAsync)

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  return api(__func__, [&] {
    require_context();
    if (free) *free = free_memory();
    if (total) *total = driver().device.model.memory_bytes;
  });
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr address) {
  return api(__func__, [&] {
    require_context();
    uint64_t start = 0, bytes = 0;
    if (!driver().arena->find(address, &start, &bytes)) {
      refuse(CUDA_ERROR_NOT_FOUND, "{}", driver().arena->describe(address));
    }
    if (base) *base = start;
    if (size) *size = bytes;
  });
}

// ---- host memory -----------------------------------------------------------------------------------------
// Every host pointer is usable by the device's copies.  Kernels reach what is allocated here, by the same
// address, but not what a program registers.
CUresult cuMemAllocHost_v2(void** out, size_t bytes) {
  return api(__func__, [&] {
    require(out, "pp");
    *out = allocate_host(bytes, 0);
  });
}

CUresult cuMemHostAlloc(void** out, size_t bytes, unsigned flags) {
  return api(__func__, [&] {
    require(out, "pp");
    if (flags & ~(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED)) {
      refuse(CUDA_ERROR_INVALID_VALUE, "flags {:#x} has unknown bits", flags);
    }
    *out = allocate_host(bytes, flags);
  });
}

CUresult cuMemFreeHost(void* pointer) {
  return api(__func__, [&] {
    const auto block =
        require_host_block(pointer, false, CUDA_ERROR_INVALID_VALUE, "cuMemAllocHost or cuMemHostAlloc");
    driver().arena->release(block->first);
    driver().host_blocks.erase(block);
    driver().pending.finish();  // it waits for the device
  });
}

CUresult cuMemHostRegister_v2(void* pointer, size_t bytes, unsigned flags) {
  return api(__func__, [&] {
    require_context();
    require(pointer, "p");
    const auto address = reinterpret_cast<uint64_t>(pointer);
    if (bytes == 0 || bytes > UINT64_MAX - address)
      refuse(CUDA_ERROR_INVALID_VALUE, "{} bytes at {}", bytes, fmt::ptr(pointer));
    if (flags & CU_MEMHOSTREGISTER_IOMEMORY) refuse(CUDA_ERROR_NOT_SUPPORTED, "CU_MEMHOSTREGISTER_IOMEMORY");
    if (flags & ~(CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY))
      refuse(CUDA_ERROR_INVALID_VALUE, "flags {:#x} has unknown bits", flags);
    const auto* before = find_host_block(address + bytes - 1);
    const auto next = driver().host_blocks.lower_bound(address);
    if (before || (next != driver().host_blocks.end() && next->first - address < bytes))
      refuse(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "{} bytes at {}: a part of them is pinned already",
             bytes, fmt::ptr(pointer));
    driver().host_blocks[address] = {bytes, flags, true};
  });
}
MXFA_SAME_FUNCTION(cuMemHostRegister, cuMemHostRegister_v2)

CUresult cuMemHostUnregister(void* pointer) {
  return api(__func__, [&] {
    driver().host_blocks.erase(
        require_host_block(pointer, true, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "cuMemHostRegister"));
  });
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* pointer, unsigned flags) {
  return api(__func__, [&] {
    require_context();
    require(out, "pdptr");
    require(pointer, "p");
    if (flags) refuse(CUDA_ERROR_INVALID_VALUE, "flags is {}; it must be 0", flags);
    const auto address = reinterpret_cast<uint64_t>(pointer);
    const auto* block = find_host_block(address);
    if (!block) refuse(CUDA_ERROR_INVALID_VALUE, "{} is not pinned memory", fmt::ptr(pointer));
    if (block->second.registered)
      refuse(CUDA_ERROR_NOT_SUPPORTED,
             "{} was registered; kernels of the CPU driver reach pinned memory of cuMemHostAlloc, not that",
             fmt::ptr(pointer));
    *out = address;
  });
}

CUresult cuMemHostGetFlags(unsigned* out, void* pointer) {
  return api(__func__, [&] {
    require(out, "pFlags");
    *out = require_host_block(pointer, false, CUDA_ERROR_INVALID_VALUE, "cuMemHostAlloc")->second.flags;
  });
}

// ---- what is behind a pointer
// ----------------------------------------------------------------------------------
namespace {

void pointer_attribute(void* out, CUpointer_attribute attribute, CUdeviceptr address) {
  require(out, "data");
  Driver& state = driver();
  uint64_t base = 0, bytes = 0;
  const auto* block = find_host_block(address);
  if (block) {
    base = block->first, bytes = block->second.bytes;
  } else if (!state.arena->find(address, &base, &bytes)) {
    refuse(CUDA_ERROR_INVALID_VALUE);  // pageable memory of the host: a plain no
  }
  const auto found = state.allocations.find(base);
  const Context* context = found == state.allocations.end() ? nullptr : found->second.context;
  const bool reachable = !block || !block->second.registered;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<const Context**>(out) = context;
      return;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(out) = block ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      return;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      if (!reachable) refuse(CUDA_ERROR_INVALID_VALUE);
      *static_cast<CUdeviceptr*>(out) = address;
      return;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!block && !(found != state.allocations.end() && found->second.managed))
        refuse(CUDA_ERROR_INVALID_VALUE);
      *static_cast<CUdeviceptr*>(out) = address;
      return;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *static_cast<unsigned*>(out) = found != state.allocations.end() && found->second.managed;
      return;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(out) = context ? context->device : 0;
      return;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(out) = base;
      return;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<size_t*>(out) = bytes;
      return;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      *static_cast<unsigned*>(out) = reachable;
      return;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      *static_cast<unsigned long long*>(out) = base;
      return;
    default:
      refuse(CUDA_ERROR_NOT_SUPPORTED, "pointer attribute {} is not one of the CPU driver",
             static_cast<int>(attribute));
  }
}

}  // namespace

CUresult cuPointerGetAttribute(void* out, CUpointer_attribute attribute, CUdeviceptr address) {
  return api(__func__, [&] {
    require_initialized();
    pointer_attribute(out, attribute, address);
  });
}

// What does not apply is answered with zero, not with an error.
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data,
                                CUdeviceptr address) {
  return api(__func__, [&] {
    require_initialized();
    require(attributes, "attributes");
    require(data, "data");
    for (unsigned i = 0; i < count; ++i) try {
        pointer_attribute(data[i], attributes[i], address);
      } catch (const Refusal& refusal) {
        if (refusal.code != CUDA_ERROR_INVALID_VALUE || !data[i]) throw;
        const bool wide = attributes[i] == CU_POINTER_ATTRIBUTE_CONTEXT ||
                          attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_POINTER ||
                          attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER ||
                          attributes[i] == CU_POINTER_ATTRIBUTE_BUFFER_ID ||
                          attributes[i] == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR ||
                          attributes[i] == CU_POINTER_ATTRIBUTE_RANGE_SIZE;
        std::memset(data[i], 0, wide ? 8 : 4);
      }
  });
}
