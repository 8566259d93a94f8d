// Memory: allocation, copies, fills, variables by the address of their host shadow, and what is behind a
// pointer.
#include "cudart/runtime.hpp"

using namespace mxfa::emulator::cudart;

namespace {

// Null: the synchronous form.
using AsyncStream = const cudaStream_t*;

CUresult copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, AsyncStream stream = nullptr) {
  switch (static_cast<int>(kind)) {
    case cudaMemcpyHostToDevice:
      return stream ? cuMemcpyHtoDAsync_v2(device(to), from, bytes, *stream)
                    : cuMemcpyHtoD_v2(device(to), from, bytes);
    case cudaMemcpyDeviceToHost:
      return stream ? cuMemcpyDtoHAsync_v2(to, device(from), bytes, *stream)
                    : cuMemcpyDtoH_v2(to, device(from), bytes);
    case cudaMemcpyDeviceToDevice:
      return stream ? cuMemcpyDtoDAsync_v2(device(to), device(from), bytes, *stream)
                    : cuMemcpyDtoD_v2(device(to), device(from), bytes);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
      return stream ? cuMemcpyAsync(device(to), device(from), bytes, *stream)
                    : cuMemcpy(device(to), device(from), bytes);
    default:
      return static_cast<CUresult>(cudaErrorInvalidMemcpyDirection);
  }
}

CUresult copy_rows(char* to, size_t to_pitch, const char* from, size_t from_pitch, size_t width,
                   size_t height, cudaMemcpyKind kind, AsyncStream stream = nullptr) {
  if (width > to_pitch || width > from_pitch) return static_cast<CUresult>(cudaErrorInvalidPitchValue);
  for (size_t row = 0; row < height; ++row) {
    if (const CUresult code = copy(to + row * to_pitch, from + row * from_pitch, width, kind, stream))
      return code;
  }
  return CUDA_SUCCESS;
}

// A variable and a place inside it.
CUresult part_of(const void* symbol, size_t offset, size_t bytes, void** address) {
  CUdeviceptr start = 0;
  size_t size = 0;
  if (const CUresult code = find_variable(symbol, &start, &size)) return code;
  if (offset > size || bytes > size - offset) return CUDA_ERROR_INVALID_VALUE;
  *address = reinterpret_cast<void*>(start + offset);
  return CUDA_SUCCESS;
}

CUresult copy_to_symbol(const void* symbol, const void* from, size_t bytes, size_t offset,
                        cudaMemcpyKind kind, AsyncStream stream = nullptr) {
  void* to = nullptr;
  if (const CUresult code = part_of(symbol, offset, bytes, &to)) return code;
  return copy(to, from, bytes, kind, stream);
}

CUresult copy_from_symbol(void* to, const void* symbol, size_t bytes, size_t offset, cudaMemcpyKind kind,
                          AsyncStream stream = nullptr) {
  void* from = nullptr;
  if (const CUresult code = part_of(symbol, offset, bytes, &from)) return code;
  return copy(to, from, bytes, kind, stream);
}

// Unlike the driver, the runtime gives a null pointer for nothing.
template <class Allocate>
CUresult allocate(void** out, size_t bytes, Allocate&& body) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  *out = nullptr;
  if (bytes == 0) return CUDA_SUCCESS;
  CUdeviceptr address = 0;
  const CUresult code = body(&address);
  *out = reinterpret_cast<void*>(address);
  return code;
}

}  // namespace

// ---- allocation ------------------------------------------------------------------------------------------
cudaError_t cudaMalloc(void** out, size_t bytes) {
  return call([&] { return allocate(out, bytes, [&](CUdeviceptr* a) { return cuMemAlloc_v2(a, bytes); }); });
}

cudaError_t cudaMallocAsync(void** out, size_t bytes, cudaStream_t stream) {
  return call([&] {
    return allocate(out, bytes, [&](CUdeviceptr* a) { return cuMemAllocAsync(a, bytes, stream); });
  });
}
MXFA_PER_THREAD(cudaMallocAsync_ptsz, cudaMallocAsync)

cudaError_t cudaMallocManaged(void** out, size_t bytes, unsigned flags) {
  return call([&] {
    return allocate(out, bytes, [&](CUdeviceptr* a) { return cuMemAllocManaged(a, bytes, flags); });
  });
}

cudaError_t cudaMallocPitch(void** out, size_t* pitch, size_t width, size_t height) {
  return call([&] {
    return allocate(out, width && height,
                    [&](CUdeviceptr* a) { return cuMemAllocPitch_v2(a, pitch, width, height, 16); });
  });
}

cudaError_t cudaFree(void* pointer) {
  return call([&] { return cuMemFree_v2(device(pointer)); });
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  return call([&] { return cuMemFreeAsync(device(pointer), stream); });
}
MXFA_PER_THREAD(cudaFreeAsync_ptsz, cudaFreeAsync)

cudaError_t cudaMallocHost(void** out, size_t bytes) {
  return call([&] { return cuMemAllocHost_v2(out, bytes); });
}

cudaError_t cudaHostAlloc(void** out, size_t bytes, unsigned flags) {
  return call([&] { return cuMemHostAlloc(out, bytes, flags); });
}

cudaError_t cudaFreeHost(void* pointer) {
  return call([&] { return pointer ? cuMemFreeHost(pointer) : CUDA_SUCCESS; });
}

cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned flags) {
  return call([&] { return cuMemHostRegister_v2(pointer, bytes, flags); });  // the flags have the same bits
}

cudaError_t cudaHostUnregister(void* pointer) {
  return call([&] { return cuMemHostUnregister(pointer); });
}

cudaError_t cudaHostGetDevicePointer(void** out, void* pointer, unsigned flags) {
  return call(
      [&] { return cuMemHostGetDevicePointer_v2(reinterpret_cast<CUdeviceptr*>(out), pointer, flags); });
}

cudaError_t cudaHostGetFlags(unsigned* flags, void* pointer) {
  return call([&] { return cuMemHostGetFlags(flags, pointer); });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return call([&] { return cuMemGetInfo_v2(free, total); });
}

// ---- copies ----------------------------------------------------------------------------------------------
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return call([&] { return copy(to, from, bytes, kind); });
}
MXFA_PER_THREAD(cudaMemcpy_ptds, cudaMemcpy)

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return call([&] { return copy(to, from, bytes, kind, &stream); });
}
MXFA_PER_THREAD(cudaMemcpyAsync_ptsz, cudaMemcpyAsync)

cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                         size_t height, cudaMemcpyKind kind) {
  return call([&] {
    return copy_rows(static_cast<char*>(to), to_pitch, static_cast<const char*>(from), from_pitch, width,
                     height, kind);
  });
}
MXFA_PER_THREAD(cudaMemcpy2D_ptds, cudaMemcpy2D)

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  return call([&] {
    return copy_rows(static_cast<char*>(to), to_pitch, static_cast<const char*>(from), from_pitch, width,
                     height, kind, &stream);
  });
}
MXFA_PER_THREAD(cudaMemcpy2DAsync_ptsz, cudaMemcpy2DAsync)

cudaError_t cudaMemset(void* to, int value, size_t count) {
  return call([&] { return cuMemsetD8_v2(device(to), static_cast<unsigned char>(value), count); });
}
MXFA_PER_THREAD(cudaMemset_ptds, cudaMemset)

cudaError_t cudaMemsetAsync(void* to, int value, size_t count, cudaStream_t stream) {
  return call([&] { return cuMemsetD8Async(device(to), static_cast<unsigned char>(value), count, stream); });
}
MXFA_PER_THREAD(cudaMemsetAsync_ptsz, cudaMemsetAsync)

// ---- variables -------------------------------------------------------------------------------------------
cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset,
                               cudaMemcpyKind kind) {
  return call([&] { return copy_to_symbol(symbol, from, bytes, offset, kind); });
}
MXFA_PER_THREAD(cudaMemcpyToSymbol_ptds, cudaMemcpyToSymbol)

cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t bytes, size_t offset,
                                 cudaMemcpyKind kind) {
  return call([&] { return copy_from_symbol(to, symbol, bytes, offset, kind); });
}
MXFA_PER_THREAD(cudaMemcpyFromSymbol_ptds, cudaMemcpyFromSymbol)

cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from, size_t bytes, size_t offset,
                                    cudaMemcpyKind kind, cudaStream_t stream) {
  return call([&] { return copy_to_symbol(symbol, from, bytes, offset, kind, &stream); });
}
MXFA_PER_THREAD(cudaMemcpyToSymbolAsync_ptsz, cudaMemcpyToSymbolAsync)

cudaError_t cudaMemcpyFromSymbolAsync(void* to, const void* symbol, size_t bytes, size_t offset,
                                      cudaMemcpyKind kind, cudaStream_t stream) {
  return call([&] { return copy_from_symbol(to, symbol, bytes, offset, kind, &stream); });
}
MXFA_PER_THREAD(cudaMemcpyFromSymbolAsync_ptsz, cudaMemcpyFromSymbolAsync)

cudaError_t cudaGetSymbolAddress(void** out, const void* symbol) {
  return call([&] { return out ? part_of(symbol, 0, 0, out) : CUDA_ERROR_INVALID_VALUE; });
}

cudaError_t cudaGetSymbolSize(size_t* bytes, const void* symbol) {
  return call([&] {
    CUdeviceptr start = 0;
    return bytes ? find_variable(symbol, &start, bytes) : CUDA_ERROR_INVALID_VALUE;
  });
}

// ---- pointers --------------------------------------------------------------------------------------------
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* pointer) {
  return call([&] {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = {};
    unsigned type = 0, managed = 0;
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                        CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                        CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void* values[] = {&type, &managed, &out->device, &out->devicePointer, &out->hostPointer};
    const CUresult code = cuPointerGetAttributes(5, attributes, values, device(pointer));
    if (!type) out->device = cudaInvalidDeviceId;
    out->type = managed                        ? cudaMemoryTypeManaged
                : type == CU_MEMORYTYPE_HOST   ? cudaMemoryTypeHost
                : type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice
                                               : cudaMemoryTypeUnregistered;
    return code;
  });
}
