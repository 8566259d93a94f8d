// Streams and events: the driver's, under the runtime's names.
#include "cudart/runtime.hpp"

using namespace mxfa::emulator::cudart;

cudaError_t cudaStreamCreate(cudaStream_t* out) {
  return call([&] { return cuStreamCreate(out, 0); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned flags) {
  return call([&] { return cuStreamCreate(out, flags); });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned flags, int priority) {
  return call([&] { return cuStreamCreateWithPriority(out, flags, priority); });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return call([&] { return cuStreamDestroy_v2(stream); });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return call([&] { return cuStreamSynchronize(stream); });
}
MXFA_PER_THREAD(cudaStreamSynchronize_ptsz, cudaStreamSynchronize)

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return call([&] { return cuStreamQuery(stream); });
}
MXFA_PER_THREAD(cudaStreamQuery_ptsz, cudaStreamQuery)

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return call([&] { return cuStreamWaitEvent(stream, event, flags); });
}
MXFA_PER_THREAD(cudaStreamWaitEvent_ptsz, cudaStreamWaitEvent)

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  return call([&] { return cuStreamGetFlags(stream, flags); });
}
MXFA_PER_THREAD(cudaStreamGetFlags_ptsz, cudaStreamGetFlags)

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return call([&] { return cuStreamGetPriority(stream, priority); });
}
MXFA_PER_THREAD(cudaStreamGetPriority_ptsz, cudaStreamGetPriority)

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return call([&] {
    CUstreamCaptureStatus answer{};
    if (!status) return CUDA_ERROR_INVALID_VALUE;
    const CUresult code = cuStreamIsCapturing(stream, &answer);
    *status = static_cast<cudaStreamCaptureStatus>(answer);
    return code;
  });
}
MXFA_PER_THREAD(cudaStreamIsCapturing_ptsz, cudaStreamIsCapturing)

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  return call([&] { return cuLaunchHostFunc(stream, function, argument); });
}
MXFA_PER_THREAD(cudaLaunchHostFunc_ptsz, cudaLaunchHostFunc)

// ---- events ----------------------------------------------------------------------------------------------
cudaError_t cudaEventCreate(cudaEvent_t* out) {
  return call([&] { return cuEventCreate(out, 0); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) {
  return call([&] { return cuEventCreate(out, flags); });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call([&] { return cuEventDestroy_v2(event); });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call([&] { return cuEventRecord(event, stream); });
}
MXFA_PER_THREAD(cudaEventRecord_ptsz, cudaEventRecord)

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return call([&] { return cuEventRecordWithFlags(event, stream, flags); });
}
MXFA_PER_THREAD(cudaEventRecordWithFlags_ptsz, cudaEventRecordWithFlags)

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call([&] { return cuEventQuery(event); });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call([&] { return cuEventSynchronize(event); });
}

// The time this machine took to emulate; it says nothing about the modelled device.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return call([&] { return cuEventElapsedTime_v2(milliseconds, start, end); });
}
