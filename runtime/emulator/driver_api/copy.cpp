// Copies and fills.  Streams are eager, so the asynchronous forms differ only in that they name a stream, and
// in what the hazard checks take for pending once the call has returned.
#include <algorithm>
#include <cstring>

#include "driver_api/driver.hpp"

using namespace mxfa::emulator::driver_api;

namespace {

void* host(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

// The function that asks, and where it puts the work.
struct Request {
  const char* function;
  const Stream* stream = nullptr;
  bool async = false;
};

bool pinned(CUdeviceptr address) { return find_host_block(address); }

// Copies and fills of managed memory may wait for the host.
void pend(const Request& request, CUdeviceptr address, uint64_t bytes, bool writes) {
  Driver& state = driver();
  uint64_t base = 0;
  state.arena->find(address, &base, nullptr);
  if (const auto found = state.allocations.find(base);
      found != state.allocations.end() && found->second.managed)
    return;
  state.pending.add({request.function, stream_name(request.stream), address, bytes, writes}, request.stream);
}

// When a copy has returned (CUDA driver API, "API synchronization behavior").  A synchronous copy from the
// host waits for its stream and then for pinned memory to be read, but for pageable memory only until it is
// staged; one to the host is done, an asynchronous one too if the memory is pageable; one inside the device
// never waits.
void follow(const Request& request, CUdeviceptr to, bool to_device, CUdeviceptr from, bool from_device,
            size_t bytes) {
  PendingOperations& pending = driver().pending;
  pending.submit(request.stream);
  const bool done = !to_device ? !request.async || !pinned(to) : !from_device && !request.async;
  if (done) pending.finish(request.stream);
  if (from_device && !done) pend(request, from, bytes, false);
  if (to_device && !(done && pinned(from))) pend(request, to, bytes, true);
}

// Zero bytes are allowed and look at nothing, as measured on hardware.
void copy(const Request& request, CUdeviceptr to, bool to_device, CUdeviceptr from, bool from_device,
          size_t bytes) {
  require_context();
  if (bytes == 0) return;
  if (to_device) require_device_range(to, bytes, "destination");
  if (from_device) require_device_range(from, bytes, "source");
  require(host(to), "the destination");
  require(host(from), "the source");
  std::memmove(host(to), host(from), bytes);
  if (to_device) driver().arena->written.mark(to, bytes);
  follow(request, to, to_device, from, from_device, bytes);
}

bool on_device(CUdeviceptr address) {
  return driver().arena && driver().arena->find(address, nullptr, nullptr) && !pinned(address);
}

template <class Word>
void fill(const Request& request, CUdeviceptr address, Word value, size_t count) {
  require_context();
  if (address % sizeof(Word)) {
    refuse(CUDA_ERROR_INVALID_VALUE, "{:#x} is not aligned to the {} bytes of an element", address,
           sizeof(Word));
  }
  if (count == 0) return;
  const uint64_t bytes = count <= UINT64_MAX / sizeof(Word) ? count * sizeof(Word) : UINT64_MAX;
  require_device_range(address, bytes, "destination");
  std::fill_n(static_cast<Word*>(host(address)), count, value);
  driver().arena->written.mark(address, bytes);
  driver().pending.submit(request.stream);
  pend(request, address, bytes, true);
}

CUdeviceptr number(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

// One side of a copy of rows.
struct Rows {
  CUdeviceptr first = 0;
  uint64_t pitch = 0;
  bool on_device = false;
};

Rows rows_of(const char* what, CUmemorytype type, const void* on_host, CUdeviceptr device, uint64_t x,
             uint64_t y, uint64_t pitch, const CUDA_MEMCPY2D& copy) {
  Rows rows;
  rows.pitch = pitch;
  switch (raw_number(type)) {
    case CU_MEMORYTYPE_HOST:
      rows.first = number(on_host);
      break;
    case CU_MEMORYTYPE_DEVICE:
      rows.first = device, rows.on_device = true;
      break;
    case CU_MEMORYTYPE_UNIFIED:
      rows.first = device, rows.on_device = on_device(device);
      break;
    case CU_MEMORYTYPE_ARRAY:
      refuse(CUDA_ERROR_NOT_SUPPORTED, "{}: arrays are not emulated", what);
    default:
      refuse(CUDA_ERROR_INVALID_VALUE, "{}: memory type {} does not exist", what, raw_number(type));
  }
  require(host(rows.first), what);
  uint64_t width = 0, before = 0, after = 0, bytes = 0;
  if (__builtin_add_overflow(x, copy.WidthInBytes, &width) || (copy.Height > 1 && width > pitch))
    refuse(CUDA_ERROR_INVALID_VALUE, "{}: rows of {} bytes from byte {} on do not fit a pitch of {}", what,
           copy.WidthInBytes, x, pitch);
  if (__builtin_mul_overflow(y, pitch, &before) || __builtin_mul_overflow(copy.Height - 1, pitch, &after) ||
      __builtin_add_overflow(before, x, &before) ||
      __builtin_add_overflow(after, copy.WidthInBytes, &bytes) ||
      __builtin_add_overflow(rows.first, before, &rows.first))
    refuse(CUDA_ERROR_INVALID_VALUE, "{}: {} rows with a pitch of {} reach beyond the address space", what,
           copy.Height, pitch);
  if (rows.on_device) require_device_range(rows.first, bytes, what);
  return rows;
}

// Nothing is copied before everything is known to have its place.
void copy_rows(const Request& request, const CUDA_MEMCPY2D* wanted) {
  require_context();
  require(wanted, "pCopy");
  const CUDA_MEMCPY2D& c = *wanted;
  if (!c.WidthInBytes || !c.Height) return;
  const Rows from = rows_of("source", c.srcMemoryType, c.srcHost, c.srcDevice, c.srcXInBytes, c.srcY,
                            c.srcPitch, c),
             to = rows_of("destination", c.dstMemoryType, c.dstHost, c.dstDevice, c.dstXInBytes, c.dstY,
                          c.dstPitch, c);
  for (uint64_t row = 0; row < c.Height; ++row)
    copy(request, to.first + row * to.pitch, to.on_device, from.first + row * from.pitch, from.on_device,
         c.WidthInBytes);
}

}  // namespace

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  return api(__func__, [&] { copy(Request{"cuMemcpyHtoD"}, to, true, number(from), false, bytes); });
}
MXFA_SAME_FUNCTION(cuMemcpyHtoD_v2_ptds, cuMemcpyHtoD_v2)

CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  return api(__func__, [&] { copy(Request{"cuMemcpyDtoH"}, number(to), false, from, true, bytes); });
}
MXFA_SAME_FUNCTION(cuMemcpyDtoH_v2_ptds, cuMemcpyDtoH_v2)

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return api(__func__, [&] { copy(Request{"cuMemcpyDtoD"}, to, true, from, true, bytes); });
}
MXFA_SAME_FUNCTION(cuMemcpyDtoD_v2_ptds, cuMemcpyDtoD_v2)

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return api(__func__, [&] { copy(Request{"cuMemcpy"}, to, on_device(to), from, on_device(from), bytes); });
}
MXFA_SAME_FUNCTION(cuMemcpy_ptds, cuMemcpy)

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* copy) {
  return api(__func__, [&] { copy_rows(Request{"cuMemcpy2D"}, copy); });
}
MXFA_SAME_FUNCTION(cuMemcpy2D_v2_ptds, cuMemcpy2D_v2)
MXFA_SAME_FUNCTION(cuMemcpy2DUnaligned_v2, cuMemcpy2D_v2)
MXFA_SAME_FUNCTION(cuMemcpy2DUnaligned_v2_ptds, cuMemcpy2D_v2)

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* copy, CUstream stream) {
  return api(__func__, [&] { copy_rows(Request{"cuMemcpy2DAsync", require_stream(stream), true}, copy); });
}
MXFA_SAME_FUNCTION(cuMemcpy2DAsync_v2_ptsz, cuMemcpy2DAsync_v2)

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return api(__func__, [&] {
    const Request request{"cuMemcpyHtoDAsync", require_stream(stream), true};
    copy(request, to, true, number(from), false, bytes);
  });
}
MXFA_SAME_FUNCTION(cuMemcpyHtoDAsync_v2_ptsz, cuMemcpyHtoDAsync_v2)

CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return api(__func__, [&] {
    const Request request{"cuMemcpyDtoHAsync", require_stream(stream), true};
    copy(request, number(to), false, from, true, bytes);
  });
}
MXFA_SAME_FUNCTION(cuMemcpyDtoHAsync_v2_ptsz, cuMemcpyDtoHAsync_v2)

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return api(__func__, [&] {
    const Request request{"cuMemcpyDtoDAsync", require_stream(stream), true};
    copy(request, to, true, from, true, bytes);
  });
}
MXFA_SAME_FUNCTION(cuMemcpyDtoDAsync_v2_ptsz, cuMemcpyDtoDAsync_v2)

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return api(__func__, [&] {
    const Request request{"cuMemcpyAsync", require_stream(stream), true};
    copy(request, to, on_device(to), from, on_device(from), bytes);
  });
}
MXFA_SAME_FUNCTION(cuMemcpyAsync_ptsz, cuMemcpyAsync)

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
  return api(__func__, [&] { fill<uint8_t>(Request{"cuMemsetD8"}, to, value, count); });
}
MXFA_SAME_FUNCTION(cuMemsetD8_v2_ptds, cuMemsetD8_v2)

CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count) {
  return api(__func__, [&] { fill<uint16_t>(Request{"cuMemsetD16"}, to, value, count); });
}
MXFA_SAME_FUNCTION(cuMemsetD16_v2_ptds, cuMemsetD16_v2)

CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) {
  return api(__func__, [&] { fill<uint32_t>(Request{"cuMemsetD32"}, to, value, count); });
}
MXFA_SAME_FUNCTION(cuMemsetD32_v2_ptds, cuMemsetD32_v2)

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  return api(__func__, [&] {
    const Request request{"cuMemsetD8Async", require_stream(stream), true};
    fill<uint8_t>(request, to, value, count);
  });
}
MXFA_SAME_FUNCTION(cuMemsetD8Async_ptsz, cuMemsetD8Async)

CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
  return api(__func__, [&] {
    const Request request{"cuMemsetD16Async", require_stream(stream), true};
    fill<uint16_t>(request, to, value, count);
  });
}
MXFA_SAME_FUNCTION(cuMemsetD16Async_ptsz, cuMemsetD16Async)

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  return api(__func__, [&] {
    const Request request{"cuMemsetD32Async", require_stream(stream), true};
    fill<uint32_t>(request, to, value, count);
  });
}
MXFA_SAME_FUNCTION(cuMemsetD32Async_ptsz, cuMemsetD32Async)
