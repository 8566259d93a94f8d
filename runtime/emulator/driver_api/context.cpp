// Contexts: the primary one and those that cuCtxCreate makes.  A context owns modules, streams, events and
// memory.  Devices are alike and share one memory and one address space, so a context is little more than an
// owner and a place for the sticky error.
//
// Unlike hardware, where only the end of the process helps, destroying or resetting a context clears its
// sticky error: a test or a checker can go on to its next case.
#include "driver_api/driver.hpp"

using namespace mxfa::emulator::driver_api;

namespace {

constexpr unsigned kContextFlags = CU_CTX_FLAGS_MASK;

CUcontext handle_of(Context* context) { return reinterpret_cast<CUcontext>(context); }

Context& require_handle(CUcontext handle) {
  auto* context = reinterpret_cast<Context*>(handle);
  if (!context) refuse(CUDA_ERROR_INVALID_VALUE, "the context is null");
  for (const auto& primary : driver().primaries)
    if (context == primary.get()) return *context;
  for (const auto& known : driver().contexts) {
    if (known.get() == context) return *context;
  }
  refuse(CUDA_ERROR_INVALID_CONTEXT, "{} is not a context", fmt::ptr(handle));
}

Context& primary_of(CUdevice device) {
  require_device(device);
  return *driver().primaries[static_cast<size_t>(device)];
}

void create(CUcontext* out, unsigned flags, CUdevice device) {
  require(out, "pctx");
  require_device(device);
  if (flags & ~kContextFlags) refuse(CUDA_ERROR_INVALID_VALUE, "flags {:#x} has unknown bits", flags);
  auto context = std::make_unique<Context>();
  context->device = device;
  context->alive = true;
  context->flags = flags;
  context_stack().push_back(context.get());
  *out = handle_of(context.get());
  driver().contexts.push_back(std::move(context));
}

// What an H200 with CUDA 13.0 answers before anything was set.
const std::map<CUlimit, size_t> kDefaultLimits = {{CU_LIMIT_STACK_SIZE, 1024},
                                                  {CU_LIMIT_PRINTF_FIFO_SIZE, 8650752},
                                                  {CU_LIMIT_MALLOC_HEAP_SIZE, 8388608},
                                                  {CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 2048},
                                                  {CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 64},
                                                  {CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0}};

size_t& limit_of(Context& context, CUlimit limit) {
  const auto found = kDefaultLimits.find(limit);
  if (found == kDefaultLimits.end()) {
    refuse(CUDA_ERROR_UNSUPPORTED_LIMIT, "limit {} is not one of the CPU driver", static_cast<int>(limit));
  }
  return context.limits.try_emplace(limit, found->second).first->second;
}

}  // namespace

// ---- primary context ---------------------------------------------------------------------------------
CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice device) {
  return api(__func__, [&] {
    require_device(device);
    require(out, "pctx");
    Context& primary = primary_of(device);
    if (primary.alive && primary.sticky != CUDA_SUCCESS) refuse(primary.sticky);
    primary.primary = primary.alive = true;
    ++primary.retained;
    *out = handle_of(&primary);
  });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return api(__func__, [&] {
    require_device(device);
    Context& primary = primary_of(device);
    if (!primary.retained) refuse(CUDA_ERROR_INVALID_CONTEXT, "the primary context is not retained");
    if (--primary.retained == 0) destroy_context(primary);
  });
}
MXFA_SAME_FUNCTION(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2)

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return api(__func__, [&] { destroy_context(primary_of(device)); });
}
MXFA_SAME_FUNCTION(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2)

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  return api(__func__, [&] {
    require_device(device);
    require(flags, "flags");
    require(active, "active");
    *flags = primary_of(device).flags;
    *active = primary_of(device).alive;
  });
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
  return api(__func__, [&] {
    require_device(device);
    if (flags & ~kContextFlags) refuse(CUDA_ERROR_INVALID_VALUE, "flags {:#x} has unknown bits", flags);
    primary_of(device).flags = flags;
  });
}
MXFA_SAME_FUNCTION(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2)

// ---- contexts of one's own -----------------------------------------------------------------------------
CUresult cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* parameters, unsigned flags, CUdevice device) {
  return api(__func__, [&] {
    if (parameters && (parameters->numExecAffinityParams || parameters->cigParams)) {
      refuse(CUDA_ERROR_NOT_SUPPORTED, "CUctxCreateParams with execution affinity or CIG; pass null");
    }
    create(context, flags, device);
  });
}

CUresult cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device) {
  return api(__func__, [&] { create(context, flags, device); });
}

CUresult cuCtxDestroy_v2(CUcontext handle) {
  return api(__func__, [&] {
    require_initialized();
    Context& context = require_handle(handle);
    if (context.primary) refuse(CUDA_ERROR_INVALID_CONTEXT, "the primary context is released, not destroyed");
    if (!context.alive) refuse(CUDA_ERROR_CONTEXT_IS_DESTROYED, "the context has been destroyed already");
    destroy_context(context);
    auto& stack = context_stack();
    if (!stack.empty() && stack.back() == &context) stack.pop_back();
  });
}

CUresult cuCtxPushCurrent_v2(CUcontext handle) {
  return api(__func__, [&] {
    require_initialized();
    context_stack().push_back(&require_handle(handle));
  });
}

CUresult cuCtxPopCurrent_v2(CUcontext* out) {
  return api(__func__, [&] {
    require_initialized();
    auto& stack = context_stack();
    if (stack.empty()) refuse(CUDA_ERROR_INVALID_CONTEXT, "no context is current in this thread");
    if (out) *out = handle_of(stack.back());
    stack.pop_back();
  });
}

CUresult cuCtxSetCurrent(CUcontext handle) {
  return api(__func__, [&] {
    require_initialized();
    auto& stack = context_stack();
    Context* context = handle ? &require_handle(handle) : nullptr;
    if (!stack.empty()) stack.pop_back();
    if (context) stack.push_back(context);
  });
}

CUresult cuCtxGetCurrent(CUcontext* out) {
  return api(__func__, [&] {
    require_initialized();
    require(out, "pctx");
    *out = context_stack().empty() ? nullptr : handle_of(context_stack().back());
  });
}

CUresult cuCtxGetDevice(CUdevice* device) {
  return api(__func__, [&] {
    const Context& context = require_context();
    require(device, "device");
    *device = context.device;
  });
}

CUresult cuCtxGetFlags(unsigned* flags) {
  return api(__func__, [&] {
    Context& context = require_context();
    require(flags, "flags");
    *flags = context.flags;
  });
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long* id) {
  return api(__func__, [&] {
    require(id, "ctxId");
    Context& context = handle ? require_handle(handle) : require_context();
    *id = reinterpret_cast<uintptr_t>(&context);
  });
}

CUresult cuCtxGetApiVersion(CUcontext handle, unsigned* version) {
  return api(__func__, [&] {
    require(version, "version");
    handle ? require_handle(handle) : require_context();
    *version = 3020;  // the version of the context interface, not of the driver
  });
}

CUresult cuCtxSynchronize(void) {
  return api(__func__, [&] {  // streams are eager
    require_context();
    driver().pending.finish();
  });
}

CUresult cuCtxGetLimit(size_t* value, CUlimit limit) {
  return api(__func__, [&] {
    Context& context = require_context();
    require(value, "pvalue");
    *value = limit_of(context, limit);
  });
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  return api(__func__, [&] { limit_of(require_context(), limit) = value; });
}

CUresult cuCtxGetCacheConfig(CUfunc_cache* config) {
  return api(__func__, [&] {
    require_context();
    require(config, "pconfig");
    *config = CU_FUNC_CACHE_PREFER_NONE;
  });
}

CUresult cuCtxSetCacheConfig(CUfunc_cache) {
  return api(__func__, [&] { require_context(); });  // a hint
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return api(__func__, [&] {
    require_context();
    if (least) *least = 0;
    if (greatest) *greatest = -5;  // as measured on an H200
  });
}
