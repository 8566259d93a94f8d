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

void* allocate_host(size_t bytes) {
  require_context();
  if (bytes == 0) refuse(CUDA_ERROR_INVALID_VALUE, "bytesize is 0");
  void* pointer = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (!pointer) refuse(CUDA_ERROR_OUT_OF_MEMORY, "{} bytes of host memory", bytes);
  driver().host_allocations[pointer] = bytes;
  driver().pending.finish();  // it may wait for the device
  return pointer;
}

}  // namespace

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
    *pitch = (width + alignment - 1) / alignment * alignment;
    *out = allocate(*pitch * height, false);
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

// ---- host memory: every host pointer is usable by the device's copies; kernels cannot reach it
// --------------
CUresult cuMemAllocHost_v2(void** out, size_t bytes) {
  return api(__func__, [&] {
    require(out, "pp");
    *out = allocate_host(bytes);
  });
}

CUresult cuMemHostAlloc(void** out, size_t bytes, unsigned flags) {
  return api(__func__, [&] {
    require(out, "pp");
    if (flags & CU_MEMHOSTALLOC_DEVICEMAP) {
      refuse(CUDA_ERROR_NOT_SUPPORTED,
             "CU_MEMHOSTALLOC_DEVICEMAP: kernels of the CPU driver cannot reach host memory");
    }
    if (flags & ~(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_WRITECOMBINED)) {
      refuse(CUDA_ERROR_INVALID_VALUE, "flags {:#x} has unknown bits", flags);
    }
    *out = allocate_host(bytes);
  });
}

CUresult cuMemFreeHost(void* pointer) {
  return api(__func__, [&] {
    require_context();
    require(pointer, "p");
    if (!driver().host_allocations.erase(pointer)) {
      refuse(CUDA_ERROR_INVALID_VALUE, "{} does not come from cuMemAllocHost or cuMemHostAlloc",
             fmt::ptr(pointer));
    }
    std::free(pointer);
    driver().pending.finish();  // it waits for the device
  });
}

// ---- what is behind a pointer
// ----------------------------------------------------------------------------------
namespace {

void pointer_attribute(void* out, CUpointer_attribute attribute, CUdeviceptr address) {
  require(out, "data");
  Driver& state = driver();
  uint64_t base = 0, bytes = 0;
  if (!state.arena->find(address, &base, &bytes))
    refuse(CUDA_ERROR_INVALID_VALUE);  // a host pointer: a plain no
  const auto found = state.allocations.find(base);
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext*>(out) =
          reinterpret_cast<CUcontext>(found == state.allocations.end() ? nullptr : found->second.context);
      return;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(out) = CU_MEMORYTYPE_DEVICE;
      return;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *static_cast<CUdeviceptr*>(out) = address;
      return;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *static_cast<unsigned*>(out) = found != state.allocations.end() && found->second.managed;
      return;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(out) = 0;
      return;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(out) = base;
      return;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<size_t*>(out) = bytes;
      return;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      *static_cast<unsigned*>(out) = 1;
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

// For an address that is no device memory every answer is zero, not an error.
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data,
                                CUdeviceptr address) {
  return api(__func__, [&] {
    require_initialized();
    require(attributes, "attributes");
    require(data, "data");
    uint64_t base = 0, bytes = 0;
    const bool known = driver().arena->find(address, &base, &bytes);
    for (unsigned i = 0; i < count; ++i) {
      if (known) {
        pointer_attribute(data[i], attributes[i], address);
      } else {
        const bool wide = attributes[i] == CU_POINTER_ATTRIBUTE_CONTEXT ||
                          attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_POINTER ||
                          attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER ||
                          attributes[i] == CU_POINTER_ATTRIBUTE_BUFFER_ID ||
                          attributes[i] == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR ||
                          attributes[i] == CU_POINTER_ATTRIBUTE_RANGE_SIZE;
        std::memset(data[i], 0, wide ? 8 : 4);
      }
    }
  });
}
