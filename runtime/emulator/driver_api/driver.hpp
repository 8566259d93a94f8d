// The state behind the driver ABI: a device or several alike, their contexts, and everything a handle can
// name.  driver_api/ owns all of it.  Every entry point runs inside api(): one lock (streams are eager, so
// calls are serial anyway) and one place that turns refusals and exceptions into a CUresult and a sentence on
// stderr.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/grid.hpp"
#include "driver_api/abi.hpp"
#include "driver_api/device_model.hpp"
#include "driver_api/pending.hpp"
#include "memory/memory.hpp"

namespace mxfa::emulator::driver_api {

// A call that is answered with an error.  `text` names the value, the place and the remedy; without text
// nothing is printed, which is meant for questions whose answer may be no (is this a device pointer, is there
// such a symbol).
struct Refusal {
  CUresult code;
  std::string text;
};
[[noreturn]] inline void refuse(CUresult code) { throw Refusal{code, {}}; }
template <class... Arguments>
[[noreturn]] void refuse(CUresult code, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  throw Refusal{code, fmt::format(format, std::forward<Arguments>(arguments)...)};
}

inline constexpr int kDriverVersion = 13000;  // the interface of CUDA 13.0

struct Context;

// A CUmodule; also what a CUlibrary holds.  CUfunction and CUkernel are both a Function, as programs cast one
// to the other.
struct Function;
struct LoadedModule {
  Context* context = nullptr;  // null: loaded as a library, usable from every context
  std::unique_ptr<Module> code;
  std::map<std::string, std::unique_ptr<Function>, std::less<>> functions;
};
struct Function {
  LoadedModule* module = nullptr;
  const KernelInfo* kernel = nullptr;  // null until a program asks for the function (hand_out)
  int max_dynamic_shared = 0;          // 48 KiB less static, then
  int carveout = -1;
  bool non_portable_cluster = false;
};

// What a stream captured: kernel launches, one after the other.  A CUgraph, and a CUgraphExec.
struct RecordedLaunch {
  CUfunction function = nullptr;
  Launch launch;
};
struct Graph {
  std::vector<RecordedLaunch> launches;
  bool invalid = false;  // while it is captured: something that is none was asked of the stream
};

struct Stream {
  Context* context = nullptr;
  unsigned flags = 0;
  int priority = 0;
  std::unique_ptr<Graph> capture = nullptr;  // set: launches go there
};
struct Event {
  Context* context = nullptr;
  unsigned flags = 0;
  bool recorded = false;
  std::chrono::steady_clock::time_point time;
};

struct Context {
  CUdevice device = 0;
  bool primary = false;
  unsigned retained = 0;  // primary: cuDevicePrimaryCtxRetain less Release
  unsigned flags = 0;
  bool alive = false;
  CUresult sticky = CUDA_SUCCESS;  // a kernel faulted: every later call answers this, as on hardware
  std::map<CUlimit, size_t> limits;
};

struct Allocation {
  uint64_t bytes = 0;
  Context* context = nullptr;
  bool managed = false;
};

// Memory of the host that is pinned.  What this driver allocated lies in the arena, where kernels reach it.
struct HostBlock {
  uint64_t bytes = 0;
  unsigned flags = 0;
  bool registered = false;  // the program's own memory
};

struct Driver {
  std::recursive_mutex mutex;
  bool initialized = false;
  DeviceFacts device;
  std::unique_ptr<Arena> arena;
  uint64_t memory_used = 0;
  Counters totals;
  uint64_t launches = 0;
  PendingOperations pending;
  std::string last_report;
  std::map<std::string, std::string> sync_sites;  // by kernel, as JSON; of modules loaded for MXFA_EMU_MUTATE

  std::vector<std::unique_ptr<Context>> primaries;  // of each device
  std::vector<std::unique_ptr<Context>> contexts;   // never freed, so that a stale handle is recognised
  std::map<uint64_t, Allocation> allocations;
  std::map<uint64_t, HostBlock> host_blocks;
  std::unordered_map<void*, std::unique_ptr<LoadedModule>> modules, libraries;
  std::unordered_map<void*, std::unique_ptr<Stream>> streams;
  std::unordered_map<void*, std::unique_ptr<Event>> events;
  std::unordered_map<void*, std::unique_ptr<Graph>> graphs, graph_execs;
  std::unordered_set<void*> functions;
};

// The number in an enumeration that a program filled in.  It may be none of the enumerators, so it must not
// be read as one.
template <class Enumeration>
int raw_number(const Enumeration& value) {
  int number;
  static_assert(sizeof number == sizeof value);
  std::memcpy(&number, &value, sizeof number);
  return number;
}

Driver& driver();
std::vector<Context*>& context_stack();  // of the calling thread

void require_initialized();
void require_device(CUdevice device);
Context& require_context();                           // current, alive and without a sticky error
void require(const void* pointer, const char* name);  // an argument that must not be null
Function& require_function(void* handle);
LoadedModule& require_module(CUmodule handle);
Stream* find_stream(CUstream handle);  // null for the default streams
// The same for what cannot be captured: refused, and the capture is invalid, while the stream is capturing.
Stream* require_stream(CUstream handle);
// "the default stream", or what is known of it.
std::string stream_name(const Stream* stream);
// Runs a launch of a graph in the current context.
void run_recorded(const RecordedLaunch& recorded, const Stream* stream);
Event& require_event(CUevent handle);
// [address, address + bytes) must lie in one allocation of the device.
void require_device_range(CUdeviceptr address, uint64_t bytes, const char* what);

// The block of pinned memory that holds an address, with its start; null if none does.
const std::pair<const uint64_t, HostBlock>* find_host_block(uint64_t address);

bool checks_asked_for();  // MXFA_EMU_CHECK

// Frees what a context owns.
void destroy_context(Context& context);
// What the program is told: kept for mxfaEmulatorLastReport and printed on stderr.
void report(const std::string& text);
const char* error_name(CUresult code);  // "CUDA_ERROR_..."; null for a number that is none

CUresult finish_refusal(const char* function, const Refusal& refusal);
CUresult finish_exception(const char* function, const std::exception& exception);

template <class Body>
CUresult api(const char* function, Body&& body) {
  std::lock_guard lock(driver().mutex);
  try {
    body();
    return CUDA_SUCCESS;
  } catch (const Refusal& refusal) {
    return finish_refusal(function, refusal);
  } catch (const std::bad_alloc&) {
    return finish_refusal(function, {CUDA_ERROR_OUT_OF_MEMORY, "this machine has no memory left"});
  } catch (const std::exception& exception) {
    return finish_exception(function, exception);
  }
}

}  // namespace mxfa::emulator::driver_api
