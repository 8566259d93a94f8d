// From PTX text to a finished launch: what driver_api/ asks of the core.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/machine.hpp"

namespace mxfa::emulator {

class Arena;
class Observer;

// A PTX error: syntax, an unknown instruction form, an unresolved name.  The text starts with "line L, column
// C:" and quotes the line.
struct PtxError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct ParameterInfo {
  std::string name;
  uint32_t offset = 0, size = 0, alignment = 0;
};
struct KernelInfo {
  std::string name;
  std::vector<ParameterInfo> parameters;
  uint32_t parameter_bytes = 0;
  uint32_t static_shared = 0, local_bytes = 0;
  uint32_t max_threads = 1024;  // .maxntid product, else 1024
  uint32_t registers = 0;  // .maxnreg, else derived from .maxntid/.minnctapersm: what setmaxnreg starts from
  Dim3 required_block{0, 0, 0};    // .reqntid; 0 = none
  Dim3 required_cluster{0, 0, 0};  // .reqnctapercluster / .explicitcluster; 0 = none
};

// One place of a module where threads, or threads and asynchronous work, synchronise.
struct SyncSite {
  std::string function, kind, ptx, cuda;  // ptx: the instruction; cuda: "file:line", empty without -lineinfo
  uint32_t line = 0;                      // of the PTX
};
// A module to be loaded without one of its synchronisations (by number; none: complete).
struct Mutation {
  std::optional<size_t> site;
};

// A loaded module: kernels and module-scope variables (already placed in the arena and initialised).
class Module {
 public:
  // PTX text for this device.  `arena` holds .global and .const variables.  Throws PtxError.
  // OnFirstUse: find_kernel lowers a kernel when it is asked for; a module of nvcc has many that never are.
  enum class Lowering { AtOnce, OnFirstUse };
  static std::unique_ptr<Module> load(std::string_view ptx, const DeviceModel& device, Arena& arena,
                                      const Mutation* mutation = nullptr,
                                      Lowering lowering = Lowering::AtOnce);
  virtual ~Module() = default;
  virtual const KernelInfo* find_kernel(std::string_view name) = 0;  // throws PtxError
  virtual std::vector<std::string> kernel_names() const = 0;
  virtual bool find_global(std::string_view name, uint64_t* address, uint64_t* bytes) const = 0;
  // In the order of the text; none unless the module was loaded with a Mutation.
  virtual const std::vector<SyncSite>& sync_sites() const = 0;
};

struct Launch {
  const Module* module = nullptr;
  const KernelInfo* kernel = nullptr;
  Dim3 grid, block, cluster;
  uint32_t dynamic_shared = 0;
  std::vector<uint8_t> parameters;  // parameter_bytes, laid out as the kernel's .param list
  Schedule schedule;
  uint64_t instruction_limit = UINT64_MAX;  // warp instructions (of a host thread) that count as a hang
  std::vector<Observer*> observers;         // told of everything that happens (core/observer.hpp)
};

// Runs the whole grid.  Throws Fault (with the full report as text).  A hang is a Fault with
// CUDA_ERROR_LAUNCH_TIMEOUT and the report.
Counters run_grid(const Launch& launch, const DeviceModel& device, Arena& arena);

}  // namespace mxfa::emulator
