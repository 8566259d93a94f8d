// The runtime API for those who implement it: documented calls are declared by the toolkit's header, those
// that nvcc's host code makes (crt/host_runtime.h) here.
#pragma once

#include "driver_api/abi.hpp"

#pragma GCC visibility push(default)
#include <cuda_runtime_api.h>

extern "C" {
void** __cudaRegisterFatBinary(void* wrapper);
void __cudaRegisterFatBinaryEnd(void** handle);
void __cudaUnregisterFatBinary(void** handle);
void __cudaRegisterFunction(void** handle, const char* host, char* device, const char* name, int thread_limit,
                            void* thread, void* block, void* block_size, void* grid_size, int* warp_size);
void __cudaRegisterVar(void** handle, char* host, char* address, const char* name, int external, size_t bytes,
                       int constant, int global);
void __cudaRegisterManagedVar(void** handle, void** host, char* address, const char* name, int external,
                              size_t bytes, int constant, int global);
char __cudaInitModule(void** handle);
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st* stream);
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                               cudaStream_t stream);
}
#pragma GCC visibility pop
