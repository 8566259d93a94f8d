#include "driver_api/driver.hpp"

#include <cstdio>

#include "core/report.hpp"

namespace mxfa::emulator::driver_api {

Driver& driver() {
  static Driver* const instance =
      new Driver;  // never destroyed: programs call the driver from their own static destructors
  return *instance;
}

std::vector<Context*>& context_stack() {
  // Never destroyed, like the driver: thread-local objects go before a program's static ones.
  thread_local std::vector<Context*>* const stack = new std::vector<Context*>;
  return *stack;
}

void report(const std::string& text) {
  driver().last_report = text;
  std::fprintf(stderr, "mxfa emulator: %s\n", text.c_str());
  std::fflush(stderr);
}

CUresult finish_refusal(const char* function, const Refusal& refusal) {
  if (!refusal.text.empty())
    report(fmt::format("{}: {} ({})", function, refusal.text, error_name(refusal.code)));
  return refusal.code;
}

CUresult finish_exception(const char* function, const std::exception& exception) {
  return finish_refusal(function, {CUDA_ERROR_UNKNOWN, fmt::format("inner error: {}", exception.what())});
}

void require_initialized() {
  if (!driver().initialized) refuse(CUDA_ERROR_NOT_INITIALIZED, "call cuInit first");
}

void require_device(CUdevice device) {
  require_initialized();
  const auto devices = static_cast<int>(driver().primaries.size());
  if (device < 0 || device >= devices)
    refuse(CUDA_ERROR_INVALID_DEVICE, "device {} does not exist; there {} {} (MXFA_EMU_DEVICES)", device,
           devices == 1 ? "is only" : "are", devices == 1 ? "device 0" : fmt::format("{}", devices));
}

Context& require_context() {
  require_initialized();
  const auto& stack = context_stack();
  if (stack.empty() || !stack.back()) {
    refuse(CUDA_ERROR_INVALID_CONTEXT,
           "no context is current in this thread; call cuCtxSetCurrent or cuCtxCreate");
  }
  Context& context = *stack.back();
  if (!context.alive)
    refuse(CUDA_ERROR_CONTEXT_IS_DESTROYED, "the current context has been destroyed or reset");
  if (context.sticky != CUDA_SUCCESS) refuse(context.sticky);  // reported when it happened
  return context;
}

void require(const void* pointer, const char* name) {
  if (!pointer) refuse(CUDA_ERROR_INVALID_VALUE, "{} is null", name);
}

Function& require_function(void* handle) {
  if (!handle) refuse(CUDA_ERROR_INVALID_HANDLE, "the function handle is null");
  if (!driver().functions.contains(handle)) {
    refuse(CUDA_ERROR_INVALID_HANDLE, "{} is not a function of a loaded module or library", fmt::ptr(handle));
  }
  return *static_cast<Function*>(handle);
}

LoadedModule& require_module(CUmodule handle) {
  Driver& state = driver();
  for (auto* table : {&state.modules, &state.libraries}) {  // cuLibraryGetModule hands out the library itself
    if (const auto found = table->find(handle); found != table->end()) return *found->second;
  }
  refuse(CUDA_ERROR_INVALID_HANDLE, "{} is not a loaded module", fmt::ptr(handle));
}

Stream* find_stream(CUstream handle) {
  if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) return nullptr;
  const auto found = driver().streams.find(handle);
  if (found == driver().streams.end())
    refuse(CUDA_ERROR_INVALID_HANDLE, "{} is not a stream", fmt::ptr(handle));
  return found->second.get();
}

Stream* require_stream(CUstream handle) {
  Stream* stream = find_stream(handle);
  if (stream && stream->capture) {
    stream->capture->invalid = true;
    refuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
           "stream {} is being captured; the CPU driver captures kernel launches and nothing else",
           fmt::ptr(handle));
  }
  return stream;
}

std::string stream_name(const Stream* stream) {
  return !stream ? "the default stream"
                 : fmt::format("stream {}{}", fmt::ptr(stream),
                               stream->flags & CU_STREAM_NON_BLOCKING ? " (CU_STREAM_NON_BLOCKING)" : "");
}

Event& require_event(CUevent handle) {
  const auto found = driver().events.find(handle);
  if (found == driver().events.end())
    refuse(CUDA_ERROR_INVALID_HANDLE, "{} is not an event", fmt::ptr(handle));
  return *found->second;
}

void require_device_range(CUdeviceptr address, uint64_t bytes, const char* what) {
  if (!driver().arena->contains(address, bytes)) {
    refuse(CUDA_ERROR_INVALID_VALUE, "{}: {} bytes at {:#x} are not inside one allocation; {}", what, bytes,
           address, driver().arena->describe(address));
  }
}

void destroy_context(Context& context) {
  Driver& state = driver();
  state.pending.finish();
  const auto forget_functions = [&](LoadedModule& module) {
    for (auto& [name, function] : module.functions) state.functions.erase(function.get());
  };
  std::erase_if(state.modules, [&](auto& entry) {
    const bool owned = entry.second->context == &context;
    if (owned) forget_functions(*entry.second);
    return owned;
  });
  std::erase_if(state.streams, [&](const auto& entry) { return entry.second->context == &context; });
  std::erase_if(state.events, [&](const auto& entry) { return entry.second->context == &context; });
  std::erase_if(state.allocations, [&](const auto& entry) {
    if (entry.second.context != &context) return false;
    state.arena->release(entry.first);
    state.memory_used -= entry.second.bytes;
    return true;
  });
  context.alive = false;
  context.sticky = CUDA_SUCCESS;
  context.limits.clear();
}

}  // namespace mxfa::emulator::driver_api

// ---- the emulator's own exports ------------------------------------------------------------------------
using mxfa::emulator::driver_api::driver;

// The text of the last refusal or fault; empty if there was none.  Valid until the next call that reports.
extern "C" __attribute__((visibility("default"))) const char* mxfaEmulatorLastReport(void) {
  std::lock_guard lock(driver().mutex);
  return driver().last_report.c_str();
}

// The deadlock or livelock that the last launch ended in, as JSON (docs/debugging.md); empty if it did not.
// Valid until the next launch.
extern "C" __attribute__((visibility("default"))) const char* mxfaEmulatorLastDeadlock(void) {
  std::lock_guard lock(driver().mutex);
  return mxfa::emulator::last_deadlock().c_str();
}

// The synchronisation sites of a kernel's module as JSON, an array of {"function", "kind", "ptx", "line",
// "cuda"}; null unless MXFA_EMU_MUTATE was set when it was loaded.  Valid until the next load.
extern "C" __attribute__((visibility("default"))) const char* mxfaEmulatorSyncSites(const char* kernel) {
  if (!kernel) return nullptr;
  std::lock_guard lock(driver().mutex);
  const auto found = driver().sync_sites.find(kernel);
  return found == driver().sync_sites.end() ? nullptr : found->second.c_str();
}

// Totals since start: launches, warp instructions, lane instructions, MMA instructions, MMA MACs, TMA bytes,
// bulk bytes, hash of the schedule (what ran when).
extern "C" __attribute__((visibility("default"))) int mxfaEmulatorCounters(uint64_t out[8]) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(driver().mutex);
  const auto& totals = driver().totals;
  const uint64_t values[8] = {
      driver().launches, totals.warp_instructions, totals.lane_instructions, totals.mma_instructions,
      totals.mma_macs,   totals.tma_bytes,         totals.bulk_bytes,        totals.trace};
  std::copy(std::begin(values), std::end(values), out);
  return CUDA_SUCCESS;
}
