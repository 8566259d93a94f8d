// Streams and events.  Every stream is in order and eager: work is finished when its call returns, so waiting
// is checking the handle and the context, and an event is the time of day at which it was recorded.
#include "driver_api/driver.hpp"

using namespace mxfa::emulator::driver_api;

namespace {

void create_stream(CUstream* out, unsigned flags, int priority) {
  Context& context = require_context();
  require(out, "phStream");
  if (flags & ~CU_STREAM_NON_BLOCKING)
    refuse(CUDA_ERROR_INVALID_VALUE, "flags {:#x} has unknown bits", flags);
  auto stream = std::make_unique<Stream>(Stream{&context, flags, std::max(-5, std::min(0, priority))});
  *out = reinterpret_cast<CUstream>(stream.get());
  driver().streams[stream.get()] = std::move(stream);
}

void record(CUevent handle, CUstream stream) {
  require_context();
  Event& event = require_event(handle);
  driver().pending.record(&event, require_stream(stream));
  event.recorded = true;
  event.time = std::chrono::steady_clock::now();
}

}  // namespace

CUresult cuStreamCreate(CUstream* out, unsigned flags) {
  return api(__func__, [&] { create_stream(out, flags, 0); });
}

CUresult cuStreamCreateWithPriority(CUstream* out, unsigned flags, int priority) {
  return api(__func__, [&] { create_stream(out, flags, priority); });
}

CUresult cuStreamDestroy_v2(CUstream handle) {
  return api(__func__, [&] {
    require_context();
    if (!find_stream(handle)) refuse(CUDA_ERROR_INVALID_HANDLE, "a default stream cannot be destroyed");
    driver().streams.erase(handle);
  });
}
MXFA_SAME_FUNCTION(cuStreamDestroy, cuStreamDestroy_v2)

CUresult cuStreamSynchronize(CUstream stream) {
  return api(__func__, [&] {
    require_context();
    driver().pending.finish(require_stream(stream));
  });
}
MXFA_SAME_FUNCTION(cuStreamSynchronize_ptsz, cuStreamSynchronize)

CUresult cuStreamQuery(CUstream stream) {
  return api(__func__, [&] {
    require_context();
    driver().pending.finish(require_stream(stream));
  });
}
MXFA_SAME_FUNCTION(cuStreamQuery_ptsz, cuStreamQuery)

CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags) {
  return api(__func__, [&] {
    require_context();
    const Stream* stream = require_stream(handle);
    const Event& awaited = require_event(event);
    if (flags & ~CU_EVENT_WAIT_EXTERNAL)
      refuse(CUDA_ERROR_INVALID_VALUE, "flags {:#x} has unknown bits", flags);
    driver().pending.wait(stream, &awaited);
  });
}
MXFA_SAME_FUNCTION(cuStreamWaitEvent_ptsz, cuStreamWaitEvent)

CUresult cuStreamGetFlags(CUstream handle, unsigned* flags) {
  return api(__func__, [&] {
    require_context();
    require(flags, "flags");
    const Stream* stream = find_stream(handle);
    *flags = stream ? stream->flags : 0;
  });
}
MXFA_SAME_FUNCTION(cuStreamGetFlags_ptsz, cuStreamGetFlags)

CUresult cuStreamGetPriority(CUstream handle, int* priority) {
  return api(__func__, [&] {
    require_context();
    require(priority, "priority");
    const Stream* stream = find_stream(handle);
    *priority = stream ? stream->priority : 0;
  });
}
MXFA_SAME_FUNCTION(cuStreamGetPriority_ptsz, cuStreamGetPriority)

CUresult cuStreamGetCtx(CUstream handle, CUcontext* out) {
  return api(__func__, [&] {
    Context& current = require_context();
    require(out, "pctx");
    const Stream* stream = find_stream(handle);
    *out = reinterpret_cast<CUcontext>(stream ? stream->context : &current);
  });
}
MXFA_SAME_FUNCTION(cuStreamGetCtx_ptsz, cuStreamGetCtx)

CUresult cuStreamGetDevice(CUstream handle, CUdevice* device) {
  return api(__func__, [&] {
    const Context& current = require_context();
    require(device, "device");
    const Stream* stream = require_stream(handle);
    *device = stream ? stream->context->device : current.device;
  });
}
MXFA_SAME_FUNCTION(cuStreamGetDevice_ptsz, cuStreamGetDevice)

// The callback may call no driver function, and the lock of api() is recursive, so it can run inside.
CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* argument) {
  return api(__func__, [&] {
    require_context();
    const Stream* known = require_stream(stream);
    require(reinterpret_cast<const void*>(function), "fn");
    function(argument);
    driver().pending.finish(known);  // it may tell the host
  });
}
MXFA_SAME_FUNCTION(cuLaunchHostFunc_ptsz, cuLaunchHostFunc)

// ---- events
// ------------------------------------------------------------------------------------------------
CUresult cuEventCreate(CUevent* out, unsigned flags) {
  return api(__func__, [&] {
    Context& context = require_context();
    require(out, "phEvent");
    if (flags & CU_EVENT_INTERPROCESS) refuse(CUDA_ERROR_NOT_SUPPORTED, "CU_EVENT_INTERPROCESS");
    if (flags & ~(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING)) {
      refuse(CUDA_ERROR_INVALID_VALUE, "flags {:#x} has unknown bits", flags);
    }
    auto event = std::make_unique<Event>();
    event->context = &context;
    event->flags = flags;
    *out = reinterpret_cast<CUevent>(event.get());
    driver().events[event.get()] = std::move(event);
  });
}

CUresult cuEventDestroy_v2(CUevent handle) {
  return api(__func__, [&] {
    require_context();
    require_event(handle);
    driver().events.erase(handle);
  });
}
MXFA_SAME_FUNCTION(cuEventDestroy, cuEventDestroy_v2)

CUresult cuEventRecord(CUevent handle, CUstream stream) {
  return api(__func__, [&] { record(handle, stream); });
}
MXFA_SAME_FUNCTION(cuEventRecord_ptsz, cuEventRecord)

CUresult cuEventRecordWithFlags(CUevent handle, CUstream stream, unsigned flags) {
  return api(__func__, [&] {
    if (flags & ~CU_EVENT_RECORD_EXTERNAL)
      refuse(CUDA_ERROR_INVALID_VALUE, "flags {:#x} has unknown bits", flags);
    record(handle, stream);
  });
}
MXFA_SAME_FUNCTION(cuEventRecordWithFlags_ptsz, cuEventRecordWithFlags)

// An event that was never recorded counts as complete.
CUresult cuEventQuery(CUevent handle) {
  return api(__func__, [&] {
    require_context();
    driver().pending.finish(&require_event(handle));
  });
}

CUresult cuEventSynchronize(CUevent handle) {
  return api(__func__, [&] {
    require_context();
    driver().pending.finish(&require_event(handle));
  });
}

// The time this machine took to emulate; it says nothing about the modelled device.
CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
  return api(__func__, [&] {
    require_context();
    require(milliseconds, "pMilliseconds");
    for (CUevent handle : {start, end}) {
      const Event& event = require_event(handle);
      if (!event.recorded) refuse(CUDA_ERROR_INVALID_HANDLE, "event {} was never recorded", fmt::ptr(handle));
      if (event.flags & CU_EVENT_DISABLE_TIMING) {
        refuse(CUDA_ERROR_INVALID_HANDLE, "event {} was created with CU_EVENT_DISABLE_TIMING",
               fmt::ptr(handle));
      }
    }
    const auto span = require_event(end).time - require_event(start).time;
    *milliseconds = std::chrono::duration<float, std::milli>(span).count();
  });
}
MXFA_SAME_FUNCTION(cuEventElapsedTime, cuEventElapsedTime_v2)
