// cuLaunchKernel and cuLaunchKernelEx: everything is checked before the grid runs, and it has run when the
// call returns.
//
// A fault is reported on stderr at once, but the launch itself succeeds and the next call of the context
// answers the error, as on hardware; with CUDA_LAUNCH_BLOCKING=1 the launch answers it.
#include <cstdlib>
#include <cstring>

#include "checks/checks.hpp"
#include "core/random.hpp"
#include "core/report.hpp"
#include "driver_api/function.hpp"

using namespace mxfa::emulator;
using namespace mxfa::emulator::driver_api;

namespace {

// ---- the schedule, from the environment at every launch
// ----------------------------------------------------
Schedule schedule_from_environment() {
  Schedule schedule;
  if (const char* value = std::getenv("MXFA_EMU_SCHEDULE"); value && *value) {
    const std::optional<Schedule> named = parse_schedule(value);
    if (!named) {
      refuse(CUDA_ERROR_INVALID_VALUE, "MXFA_EMU_SCHEDULE={} is not a schedule; there are {}", value,
             kScheduleNames);
    }
    schedule = *named;
  }
  if (const char* value = std::getenv("MXFA_EMU_SEED"); value && *value) {
    char* end = nullptr;
    schedule.seed = std::strtoull(value, &end, 0);
    if (*end || *value == '-') {
      refuse(CUDA_ERROR_INVALID_VALUE, "MXFA_EMU_SEED={} is not a number from 0 to 2^64-1", value);
    }
  }
  return schedule;
}

uint64_t limit_from_environment() {
  const char* value = std::getenv("MXFA_EMU_LIMIT");
  if (!value || !*value) return UINT64_MAX;
  char* end = nullptr;
  const double limit = std::strtod(value, &end);  // 1e9 is easier to read
  if (*end || !(limit >= 1) || limit > 1e18)
    refuse(CUDA_ERROR_INVALID_VALUE, "MXFA_EMU_LIMIT={}: a number of warp instructions, 1 to 1e18", value);
  return static_cast<uint64_t>(limit);
}

CheckMode checks_from_environment() {
  const char* value = std::getenv("MXFA_EMU_CHECK");
  if (!value || !*value) return CheckMode::Off;
  const std::optional<CheckMode> mode = check_mode(value);
  if (!mode)
    refuse(CUDA_ERROR_INVALID_VALUE,
           "MXFA_EMU_CHECK={} is not a mode of the hazard checks; there are off, on, strict", value);
  return *mode;
}

// ---- launch attributes -----------------------------------------------------------------------------------
const char* attribute_name(int id) {  // of those that are refused
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
      return "PROGRAMMATIC_EVENT";
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
      return "PREFERRED_CLUSTER_DIMENSION";
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
      return "LAUNCH_COMPLETION_EVENT";
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
      return "DEVICE_UPDATABLE_KERNEL_NODE";
    default:
      return nullptr;
  }
}

struct LaunchOptions {
  Dim3 cluster{0, 0, 0};  // 0: not given
  bool cooperative = false;
};

LaunchOptions read_attributes(const CUlaunchConfig& config) {
  LaunchOptions options;
  if (config.numAttrs) require(config.attrs, "config->attrs");
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config.attrs[i];
    switch (raw_number(attribute.id)) {
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        options.cluster = {attribute.value.clusterDim.x, attribute.value.clusterDim.y,
                           attribute.value.clusterDim.z};
        break;
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        options.cooperative = attribute.value.cooperative != 0;
        break;
      // Hints, and promises that in-order eager streams keep anyway.
      case CU_LAUNCH_ATTRIBUTE_IGNORE:
      case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
      case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
        break;
      case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
        if (attribute.value.preferredClusterDim.x == 0) break;  // unset
        [[fallthrough]];
      default:
        const int id = raw_number(attribute.id);
        if (!attribute_name(id))
          refuse(CUDA_ERROR_INVALID_VALUE, "attrs[{}] is {}, no launch attribute of CUDA 13.0", i, id);
        refuse(CUDA_ERROR_NOT_SUPPORTED,
               "launch attribute {} ({}) is not one of the CPU driver; leave it out", id, attribute_name(id));
    }
  }
  return options;
}

// ---- limits
// ------------------------------------------------------------------------------------------------
std::string text_of(const Dim3& dim) { return fmt::format("{}x{}x{}", dim.x, dim.y, dim.z); }
uint64_t volume(const Dim3& dim) { return static_cast<uint64_t>(dim.x) * dim.y * dim.z; }

void check_limits(const char* what, const std::string& kernel, const Dim3& dim, CUdevice_attribute first) {
  const auto& attributes = driver().device.model.attributes;
  const uint32_t values[3] = {dim.x, dim.y, dim.z};
  for (int i = 0; i < 3; ++i) {
    if (values[i] == 0 || values[i] > attributes[first + i]) {
      refuse(CUDA_ERROR_INVALID_VALUE, "{} {} of {}: dimension {} must be 1 to {}", what, text_of(dim),
             kernel, "xyz"[i], attributes[first + i]);
    }
  }
}

void check_shape(const Function& function, const Dim3& grid, const Dim3& block, uint32_t dynamic_shared) {
  const KernelInfo& kernel = *function.kernel;
  const DeviceModel& model = driver().device.model;
  check_limits("grid", kernel.name, grid, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
  check_limits("block", kernel.name, block, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X);
  const uint64_t threads = volume(block);
  const uint64_t device_limit =
      static_cast<uint64_t>(model.attributes[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK]);
  if (threads > device_limit) {
    refuse(CUDA_ERROR_INVALID_VALUE, "block {} of {} has {} threads; {} are possible", text_of(block),
           kernel.name, threads, device_limit);
  }
  if (threads > kernel.max_threads) {
    refuse(CUDA_ERROR_INVALID_VALUE, "block {} has {} threads; the .maxntid of {} allows {}", text_of(block),
           threads, kernel.name, kernel.max_threads);
  }
  const Dim3& required = kernel.required_block;
  if (required.x && (block.x != required.x || block.y != required.y || block.z != required.z)) {
    refuse(CUDA_ERROR_INVALID_VALUE, "block {} asked for, but the .reqntid of {} is {}", text_of(block),
           kernel.name, text_of(required));
  }
  if (dynamic_shared > static_cast<uint32_t>(function.max_dynamic_shared)) {
    refuse(CUDA_ERROR_INVALID_VALUE,
           "{} bytes of dynamic shared memory for {}; it may have {} (set "
           "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES; {} less {} "
           "static bytes are possible)",
           dynamic_shared, kernel.name, function.max_dynamic_shared, model.shared_per_block_optin,
           kernel.static_shared);
  }
}

Dim3 check_cluster(const Function& function, const Dim3& grid, const Dim3& asked) {
  const KernelInfo& kernel = *function.kernel;
  const DeviceModel& model = driver().device.model;
  const bool given = asked.x || asked.y || asked.z;
  const Dim3& required = kernel.required_cluster;
  if (given && volume(asked) == 0)
    refuse(CUDA_ERROR_INVALID_CLUSTER_SIZE, "cluster {} of {}", text_of(asked), kernel.name);
  if (given && required.x && (asked.x != required.x || asked.y != required.y || asked.z != required.z)) {
    refuse(CUDA_ERROR_INVALID_CLUSTER_SIZE, "cluster {} asked for, but the .reqnctapercluster of {} is {}",
           text_of(asked), kernel.name, text_of(required));
  }
  const Dim3 cluster = given ? asked : required.x ? required : Dim3{1, 1, 1};
  const int limit = function.non_portable_cluster ? model.max_cluster_non_portable : model.max_cluster;
  if (volume(cluster) > static_cast<uint64_t>(limit)) {
    refuse(CUDA_ERROR_INVALID_CLUSTER_SIZE, "cluster {} of {} has {} CTAs; {} are possible{}",
           text_of(cluster), kernel.name, volume(cluster), limit,
           function.non_portable_cluster
               ? ""
               : fmt::format(" ({} with CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED)",
                             model.max_cluster_non_portable));
  }
  if (grid.x % cluster.x || grid.y % cluster.y || grid.z % cluster.z) {
    refuse(CUDA_ERROR_INVALID_CLUSTER_SIZE, "grid {} of {} is not a multiple of its cluster {}",
           text_of(grid), kernel.name, text_of(cluster));
  }
  return cluster;
}

// Clusters run one after the other (a cluster that waits for another on global memory is a deadlock here), so
// a grid of which every CTA must be resident is possible only as one cluster.
void check_cooperative(const Function& function, const Dim3& grid, const Dim3& block, const Dim3& cluster,
                       uint32_t dynamic_shared) {
  const int blocks = blocks_per_sm(function, static_cast<int>(volume(block)), dynamic_shared);
  if (volume(grid) > static_cast<uint64_t>(blocks) * driver().device.model.sm_count) {
    refuse(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "grid {} of {}: {} CTAs fit on the device at once",
           text_of(grid), function.kernel->name, blocks * driver().device.model.sm_count);
  }
  if (volume(grid) > volume(cluster)) {
    refuse(CUDA_ERROR_NOT_SUPPORTED,
           "cooperative launch of {} clusters: the CPU driver runs one cluster at a time",
           volume(grid) / volume(cluster));
  }
}

// ---- parameters
// ----------------------------------------------------------------------------------------------
std::vector<uint8_t> pack_parameters(const KernelInfo& kernel, void** parameters, void** extra) {
  // What a program leaves out is NaN or an absurd index, as fresh memory is.
  std::vector<uint8_t> bytes(kernel.parameter_bytes, 0xff);
  if (parameters && extra)
    refuse(CUDA_ERROR_INVALID_VALUE, "both kernelParams and extra are given for {}", kernel.name);
  if (extra) {
    const void* buffer = nullptr;
    const size_t* size = nullptr;
    for (int i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
      if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
        buffer = extra[i + 1];
      } else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
        size = static_cast<const size_t*>(extra[i + 1]);
      } else {
        refuse(CUDA_ERROR_INVALID_VALUE,
               "extra[{}] of {} is neither CU_LAUNCH_PARAM_BUFFER_POINTER nor _SIZE nor _END", i,
               kernel.name);
      }
    }
    require(buffer, "CU_LAUNCH_PARAM_BUFFER_POINTER");
    require(size, "CU_LAUNCH_PARAM_BUFFER_SIZE");
    if (*size > bytes.size()) {
      refuse(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
             "the parameter buffer has {} bytes, the parameters of {} have {}", *size, kernel.name,
             bytes.size());
    }
    std::memcpy(bytes.data(), buffer, *size);
    return bytes;
  }
  if (!kernel.parameters.empty() && !parameters) {
    refuse(CUDA_ERROR_INVALID_VALUE, "{} has {} parameters, but kernelParams is null", kernel.name,
           kernel.parameters.size());
  }
  for (size_t i = 0; i < kernel.parameters.size(); ++i) {
    const ParameterInfo& parameter = kernel.parameters[i];
    if (!parameters[i])
      refuse(CUDA_ERROR_INVALID_VALUE, "kernelParams[{}] ({}) of {} is null", i, parameter.name, kernel.name);
    std::memcpy(bytes.data() + parameter.offset, parameters[i], parameter.size);
  }
  return bytes;
}

// ---- the run
// ---------------------------------------------------------------------------------------------------
void add(Counters& totals, const Counters& counters) {
  totals.warp_instructions += counters.warp_instructions;
  totals.lane_instructions += counters.lane_instructions;
  totals.mma_instructions += counters.mma_instructions;
  totals.mma_macs += counters.mma_macs;
  totals.tma_bytes += counters.tma_bytes;
  totals.bulk_bytes += counters.bulk_bytes;
  totals.trace = mix(totals.trace + counters.trace);
}

bool launch_blocking() {
  const char* value = std::getenv("CUDA_LAUNCH_BLOCKING");
  return value && std::string_view(value) == "1";
}

// The environment that makes this launch, and every other of the program, run the same way again.
std::string replay_line(const Schedule& schedule) {
  std::string line = "MXFA_EMU_SCHEDULE=" + schedule.name();
  if (schedule.randomised()) line += fmt::format(" MXFA_EMU_SEED={}", schedule.seed);
  for (const char* name : {"MXFA_EMU_CLC", "MXFA_EMU_CHECK", "MXFA_EMU_MMA", "MXFA_EMU_MUTATE"})
    if (const char* value = std::getenv(name); value && *value) line += fmt::format(" {}={}", name, value);
  return line;
}

// An error of the hazard checks fails the launch once it has run; advice is printed.
void run(Context& context, Launch& launch, const Stream* stream, CheckMode mode) {
  Driver& state = driver();
  ++state.launches;
  state.pending.submit(stream);
  forget_deadlock();
  std::optional<Checks> checks;
  if (mode != CheckMode::Off)
    launch.observers = checks
                           .emplace(mode, *launch.kernel,
                                    UnorderedOperations{stream_name(stream),
                                                        stream && stream->flags & CU_STREAM_NON_BLOCKING,
                                                        state.pending.unordered(stream)})
                           .observers();
  else
    state.arena->written.forget_all();  // nobody sees what this launch writes
  std::string text;
  try {
    add(state.totals, run_grid(launch, state.device.model, *state.arena));
  } catch (const Fault& fault) {
    context.sticky = static_cast<CUresult>(fault.code);
    text = fmt::format("{}: {}", error_name(context.sticky), fault.what());
  }
  if (checks && !checks->findings().list().empty()) {
    if (context.sticky == CUDA_SUCCESS && checks->findings().count(Severity::Error)) {
      context.sticky = CUDA_ERROR_LAUNCH_FAILED;
      text = error_name(context.sticky);
    }
    text += (text.empty() ? "" : "\n") + checks->report();
  }
  if (context.sticky != CUDA_SUCCESS) text += "\nreplay with " + replay_line(launch.schedule);
  if (!text.empty()) report(text);
  if (!launch_blocking()) return;
  if (context.sticky != CUDA_SUCCESS) refuse(context.sticky);
  state.pending.finish(stream);
}

// The schedule and the checks are those of the time of the run.
void run_now(Context& context, Launch& launch, const Stream* stream) {
  launch.schedule = schedule_from_environment();
  launch.instruction_limit = limit_from_environment();
  run(context, launch, stream, checks_from_environment());
}

const Function& require_function_of(const Context& context, CUfunction handle) {
  const Function& function = require_function(handle);
  if (const Context* owner = function.module->context; owner && owner->device != context.device)
    refuse(
        CUDA_ERROR_INVALID_HANDLE,
        "the kernel belongs to a module of device {}, and a context of device {} is current; load the module "
        "there too",
        owner->device, context.device);
  return function;
}

void launch(const CUlaunchConfig& config, CUfunction handle, void** parameters, void** extra) {
  Context& context = require_context();
  const Function& function = require_function_of(context, handle);
  Stream* stream = find_stream(config.hStream);
  const LaunchOptions options = read_attributes(config);
  Launch launch;
  launch.module = function.module->code.get();
  launch.kernel = function.kernel;
  launch.grid = {config.gridDimX, config.gridDimY, config.gridDimZ};
  launch.block = {config.blockDimX, config.blockDimY, config.blockDimZ};
  launch.dynamic_shared = config.sharedMemBytes;
  check_shape(function, launch.grid, launch.block, launch.dynamic_shared);
  launch.cluster = check_cluster(function, launch.grid, options.cluster);
  if (options.cooperative)
    check_cooperative(function, launch.grid, launch.block, launch.cluster, launch.dynamic_shared);
  launch.parameters = pack_parameters(*function.kernel, parameters, extra);
  if (stream && stream->capture)
    stream->capture->launches.push_back({handle, std::move(launch)});
  else
    run_now(context, launch, stream);
}

CUlaunchConfig plain_config(unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                            unsigned block_y, unsigned block_z, unsigned shared, CUstream stream) {
  CUlaunchConfig config{};
  config.gridDimX = grid_x;
  config.gridDimY = grid_y;
  config.gridDimZ = grid_z;
  config.blockDimX = block_x;
  config.blockDimY = block_y;
  config.blockDimZ = block_z;
  config.sharedMemBytes = shared;
  config.hStream = stream;
  return config;
}

}  // namespace

namespace mxfa::emulator::driver_api {

void run_recorded(const RecordedLaunch& recorded, const Stream* stream) {
  Context& context = require_context();
  // Its module is still loaded, and not another one at the same address.
  const Function& function = require_function_of(context, recorded.function);
  if (function.kernel != recorded.launch.kernel || function.module->code.get() != recorded.launch.module)
    refuse(CUDA_ERROR_INVALID_HANDLE, "the module of a kernel of the graph has been unloaded");
  Launch launch = recorded.launch;
  run_now(context, launch, stream);
}

}  // namespace mxfa::emulator::driver_api

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                        CUstream stream, void** parameters, void** extra) {
  return api(__func__, [&] {
    launch(plain_config(grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream), function,
           parameters, extra);
  });
}
MXFA_SAME_FUNCTION(cuLaunchKernel_ptsz, cuLaunchKernel)

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters,
                          void** extra) {
  return api(__func__, [&] {
    require(config, "config");
    launch(*config, function, parameters, extra);
  });
}
MXFA_SAME_FUNCTION(cuLaunchKernelEx_ptsz, cuLaunchKernelEx)

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                                   CUstream stream, void** parameters) {
  return api(__func__, [&] {
    CUlaunchConfig config = plain_config(grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream);
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attribute.value.cooperative = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    launch(config, function, parameters, nullptr);
  });
}
MXFA_SAME_FUNCTION(cuLaunchCooperativeKernel_ptsz, cuLaunchCooperativeKernel)
