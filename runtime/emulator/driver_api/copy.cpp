// Copies and fills.  Streams are eager, so the asynchronous forms differ only in that they name a stream.
#include <algorithm>
#include <cstring>

#include "driver_api/driver.hpp"

using namespace mxfa::emulator::driver_api;

namespace {

void* host(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

// Zero bytes are allowed and look at nothing, as measured on hardware.
void copy(CUdeviceptr to, bool to_device, CUdeviceptr from, bool from_device, size_t bytes) {
  require_context();
  if (bytes == 0) return;
  if (to_device) require_device_range(to, bytes, "destination");
  if (from_device) require_device_range(from, bytes, "source");
  require(host(to), "the destination");
  require(host(from), "the source");
  std::memmove(host(to), host(from), bytes);
  if (to_device) driver().arena->written.mark(to, bytes);
}

bool on_device(CUdeviceptr address) {
  return driver().arena && driver().arena->find(address, nullptr, nullptr);
}

template <class Word>
void fill(CUdeviceptr address, Word value, size_t count) {
  require_context();
  if (address % sizeof(Word)) {
    refuse(CUDA_ERROR_INVALID_VALUE, "{:#x} is not aligned to the {} bytes of an element", address,
           sizeof(Word));
  }
  if (count == 0) return;
  require_device_range(address, count * sizeof(Word), "destination");
  std::fill_n(static_cast<Word*>(host(address)), count, value);
  driver().arena->written.mark(address, count * sizeof(Word));
}

CUdeviceptr number(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

}  // namespace

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  return api(__func__, [&] { copy(to, true, number(from), false, bytes); });
}
MXFA_SAME_FUNCTION(cuMemcpyHtoD_v2_ptds, cuMemcpyHtoD_v2)

CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  return api(__func__, [&] { copy(number(to), false, from, true, bytes); });
}
MXFA_SAME_FUNCTION(cuMemcpyDtoH_v2_ptds, cuMemcpyDtoH_v2)

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return api(__func__, [&] { copy(to, true, from, true, bytes); });
}
MXFA_SAME_FUNCTION(cuMemcpyDtoD_v2_ptds, cuMemcpyDtoD_v2)

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return api(__func__, [&] { copy(to, on_device(to), from, on_device(from), bytes); });
}
MXFA_SAME_FUNCTION(cuMemcpy_ptds, cuMemcpy)

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return api(__func__, [&] {
    require_stream(stream);
    copy(to, true, number(from), false, bytes);
  });
}
MXFA_SAME_FUNCTION(cuMemcpyHtoDAsync_v2_ptsz, cuMemcpyHtoDAsync_v2)

CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return api(__func__, [&] {
    require_stream(stream);
    copy(number(to), false, from, true, bytes);
  });
}
MXFA_SAME_FUNCTION(cuMemcpyDtoHAsync_v2_ptsz, cuMemcpyDtoHAsync_v2)

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return api(__func__, [&] {
    require_stream(stream);
    copy(to, true, from, true, bytes);
  });
}
MXFA_SAME_FUNCTION(cuMemcpyDtoDAsync_v2_ptsz, cuMemcpyDtoDAsync_v2)

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return api(__func__, [&] {
    require_stream(stream);
    copy(to, on_device(to), from, on_device(from), bytes);
  });
}
MXFA_SAME_FUNCTION(cuMemcpyAsync_ptsz, cuMemcpyAsync)

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
  return api(__func__, [&] { fill<uint8_t>(to, value, count); });
}
MXFA_SAME_FUNCTION(cuMemsetD8_v2_ptds, cuMemsetD8_v2)

CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count) {
  return api(__func__, [&] { fill<uint16_t>(to, value, count); });
}
MXFA_SAME_FUNCTION(cuMemsetD16_v2_ptds, cuMemsetD16_v2)

CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) {
  return api(__func__, [&] { fill<uint32_t>(to, value, count); });
}
MXFA_SAME_FUNCTION(cuMemsetD32_v2_ptds, cuMemsetD32_v2)

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  return api(__func__, [&] {
    require_stream(stream);
    fill<uint8_t>(to, value, count);
  });
}
MXFA_SAME_FUNCTION(cuMemsetD8Async_ptsz, cuMemsetD8Async)

CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
  return api(__func__, [&] {
    require_stream(stream);
    fill<uint16_t>(to, value, count);
  });
}
MXFA_SAME_FUNCTION(cuMemsetD16Async_ptsz, cuMemsetD16Async)

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  return api(__func__, [&] {
    require_stream(stream);
    fill<uint32_t>(to, value, count);
  });
}
MXFA_SAME_FUNCTION(cuMemsetD32Async_ptsz, cuMemsetD32Async)
