#include "host/driver.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "host/error.hpp"
#include "host/paths.hpp"

namespace mxfa {
namespace {

constexpr char kSupported[] = "9.0a (sm_90a), 10.0a (sm_100a) and 10.3a (sm_103a)";

// What this process has already initialised: cuInit reads the emulated model once, and a forked child
// inherits a dead driver.
struct Process {
  std::mutex mutex;
  std::atomic<pid_t> initialised_in = 0;
  bool emulator = false;
  std::string model;
};
Process& process() {
  static Process the_process;
  return the_process;
}

void resolve(void* handle, Driver& driver) {
  std::string missing;
#define MXFA_DRIVER_LOAD(name)                                                 \
  driver.name = reinterpret_cast<decltype(driver.name)>(dlsym(handle, #name)); \
  if (!driver.name) missing += missing.empty() ? #name : ", " #name;
  MXFA_DRIVER_FUNCTIONS(MXFA_DRIVER_LOAD)
#undef MXFA_DRIVER_LOAD
  if (!missing.empty())
    device_error("{} lacks {}; mxfa needs a driver for CUDA 12 or newer", driver.library, missing);
  driver.mxfaEmulatorLastReport =
      reinterpret_cast<decltype(driver.mxfaEmulatorLastReport)>(dlsym(handle, "mxfaEmulatorLastReport"));
  driver.mxfaEmulatorCounters =
      reinterpret_cast<decltype(driver.mxfaEmulatorCounters)>(dlsym(handle, "mxfaEmulatorCounters"));
  driver.loads_ptx = driver.mxfaEmulatorCounters != nullptr;
}

// Takes the device asked for, or else the first we have kernels for.  False: there is no device at all, or
// *refusal says why none will do.
bool find_device(Driver& driver, const DeviceChoice& choice, std::string* refusal) {
  int count = 0;
  driver.check(driver.cuDeviceGetCount(&count), "cuDeviceGetCount");
  const bool any = choice.ordinal < 0;
  if (!any && count > 0 && choice.ordinal >= count)
    device_error("device {} was asked for, but {} has {}; choose {}{}", choice.ordinal, driver.library, count,
                 count == 1 ? "0" : fmt::format("0 to {}", count - 1),
                 driver.loads_ptx ? ", or say in MXFA_EMU_DEVICES how many there are, 8 at most" : "");
  const int end = any ? count : std::min(count, choice.ordinal + 1);
  for (int ordinal = any ? 0 : choice.ordinal; ordinal < end; ++ordinal) {
    CUdevice device = 0;
    char name[256] = "";
    driver.check(driver.cuDeviceGet(&device, ordinal), "cuDeviceGet");
    driver.check(driver.cuDeviceGetName(name, sizeof(name), device), "cuDeviceGetName");
    driver.device = device;
    const int major = driver.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    const int minor = driver.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    driver.arch = arch_of(major, minor);
    if (!driver.arch.empty()) {
      driver.device_name = name, driver.compute_major = major, driver.compute_minor = minor;
      return true;
    }
    if (refusal->empty()) *refusal = refuse_device(name, major, minor);
  }
  return false;
}

CUresult initialise(Driver& driver, const DeviceChoice& choice, bool emulator) {
  Process& state = process();
  const std::lock_guard lock(state.mutex);
  if (emulator && state.emulator && !choice.model.empty() && state.model != choice.model)
    device_error(
        "device emulator:{}: this process already uses the CPU driver as \"{}\", and a driver is initialised "
        "once; use one model a process",
        choice.model, state.model.empty() ? "its default" : state.model);
  // The CPU driver reads its model when it is initialised.
  if (emulator && !choice.model.empty()) setenv("MXFA_EMU_DEVICE", choice.model.c_str(), 1);
  const CUresult result = driver.cuInit(0);
  if (result != CUDA_SUCCESS) return result;
  state.initialised_in = getpid();
  if (emulator && !choice.model.empty()) state.model = choice.model;
  state.emulator |= emulator;
  return CUDA_SUCCESS;
}

Driver load_emulator(const DeviceChoice& choice) {
  std::vector<std::string> candidates;
  const char* given = std::getenv("MXFA_EMULATOR_LIBRARY");
  if (given && *given) {
    candidates = {given};
  } else {
    const std::string own = own_directory();
    candidates = {own + "/libmxfa_emulator.so", own + "/../lib/libmxfa_emulator.so", "libmxfa_emulator.so"};
  }
  Driver driver;
  std::string why;
  void* handle = open_first(candidates, &driver.library, &why);
  if (!handle)
    device_error(
        "the CPU driver libmxfa_emulator.so was not found ({}); build it, or name the file in "
        "MXFA_EMULATOR_LIBRARY",
        why);
  resolve(handle, driver);
  driver.check(initialise(driver, choice, true), driver.library + ": cuInit");
  std::string refusal;
  if (!find_device(driver, choice, &refusal))
    device_error("{}", refusal.empty() ? driver.library + " offers no device" : refusal);
  return driver;
}

// True: *driver is ready.  False: no driver or no device here, and *why says so; any other trouble is thrown.
bool load_gpu(const DeviceChoice& choice, Driver* driver, std::string* why) {
  void* handle = open_first({"libcuda.so.1"}, &driver->library, why);
  if (!handle) return false;
  resolve(handle, *driver);
  const CUresult result = initialise(*driver, choice, false);
  // A driver package, or a stub to link against, on a machine without a GPU.
  if (result == CUDA_ERROR_NO_DEVICE || result == CUDA_ERROR_STUB_LIBRARY) {
    *why = driver->describe(result);
    return false;
  }
  driver->check(result, "libcuda.so.1: cuInit");
  std::string refusal;
  if (find_device(*driver, choice, &refusal)) return true;
  if (!refusal.empty()) device_error("{}", refusal);
  *why = "libcuda.so.1 reports no device";
  return false;
}

// "0" to "999": a longer number is a mistake, and might not fit an int.
bool is_ordinal(std::string_view text) {
  return !text.empty() && text.size() <= 3 && text.find_first_not_of("0123456789") == text.npos;
}

}  // namespace

std::string arch_of(int major, int minor) {
  if (major == 9 && minor == 0) return "sm_90a";
  if (major == 10 && minor == 0) return "sm_100a";
  if (major == 10 && minor == 3) return "sm_103a";
  return {};
}

std::string refuse_device(const std::string& name, int major, int minor) {
  return fmt::format(
      "{} has compute capability {}.{}; mxfa has kernels for {} only. Use another GPU, or the CPU driver "
      "(--device emulator, MXFA_DEVICE=emulator)",
      name, major, minor, kSupported);
}

DeviceChoice parse_device(const char* option) {
  const bool given = option && *option;
  const char* variable = std::getenv("MXFA_DEVICE");
  const std::string text = given ? option : variable && *variable ? variable : "auto";
  if (text == "auto") return {DeviceChoice::Kind::kAuto, {}};
  std::string name = text;
  int ordinal = -1;
  if (const size_t colon = text.rfind(':'); colon != text.npos && is_ordinal(text.substr(colon + 1))) {
    name = text.substr(0, colon);
    std::from_chars(text.data() + colon + 1, text.data() + text.size(), ordinal);
  }
  if (name == "gpu") return {DeviceChoice::Kind::kGpu, {}, ordinal};
  if (name == "emulator") return {DeviceChoice::Kind::kEmulator, {}, ordinal};
  for (const char* model : {"b200", "gb300", "h200"})
    if (name == std::string("emulator:") + model) return {DeviceChoice::Kind::kEmulator, model, ordinal};
  invalid(
      "{} is \"{}\"; it must be auto, gpu, emulator, emulator:b200, emulator:gb300 or emulator:h200, and all "
      "but auto may end in the number of a device, 0 to 999, as in gpu:1",
      given ? "device" : "MXFA_DEVICE", text);
}

Driver load_driver(const DeviceChoice& choice) {
  refuse_after_fork();
  if (choice.kind == DeviceChoice::Kind::kEmulator) return load_emulator(choice);
  Driver driver;
  std::string why;
  if (load_gpu(choice, &driver, &why)) return driver;
  if (choice.kind == DeviceChoice::Kind::kGpu)
    device_error("no GPU to use: {}. The CPU driver is --device emulator", why);
  return load_emulator(choice);
}

void refuse_after_fork() {
  Process& state = process();
  if (state.initialised_in != 0 && state.initialised_in != getpid())
    device_error(
        "this is a forked child of process {}, which had already initialised the CUDA driver, and a driver "
        "does not survive fork(); start a fresh process (spawn, exec), or fork before the first mxfa_create",
        state.initialised_in.load());
}

bool refused_before_running(CUresult result) {
  // A list of refusals and not of failures: a code that is not known here must count as a failure.
  switch (result) {
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_INVALID_CLUSTER_SIZE:
    case CUDA_ERROR_OUT_OF_MEMORY:
    case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES:
    case CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE:
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_NOT_PERMITTED:
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
    case CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD:
      return true;
    default:
      return false;
  }
}

std::string Driver::describe(CUresult result) const {
  const char *name = nullptr, *text = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS || !name)
    return fmt::format("CUDA error {}", int(result));
  if (cuGetErrorString(result, &text) != CUDA_SUCCESS || !text) return name;
  return fmt::format("{} ({})", name, text);
}

void Driver::check(CUresult result, std::string_view what) const {
  if (result == CUDA_SUCCESS) return;
  const char* report = mxfaEmulatorLastReport ? mxfaEmulatorLastReport() : nullptr;
  throw DriverError(result, fmt::format("{}: {}{}{}", what, describe(result), report && *report ? "\n" : "",
                                        report ? report : ""));
}

int Driver::attribute(CUdevice_attribute attribute) const {
  int value = 0;
  check(cuDeviceGetAttribute(&value, attribute, device), "cuDeviceGetAttribute");
  return value;
}

std::string Driver::counters() const {
  uint64_t totals[8] = {};
  if (!mxfaEmulatorCounters || mxfaEmulatorCounters(totals) != 0) return {};
  const char* names[7] = {"launches", "warp_instructions", "lane_instructions", "mma_instructions",
                          "mma_macs", "tma_bytes",         "bulk_bytes"};
  std::string text;
  for (int i = 0; i < 7; ++i) text += fmt::format("{}\"{}\": {}", i ? ", " : "{", names[i], totals[i]);
  return text + "}";
}

std::string Driver::version() const {
  int number = 0;
  check(cuDriverGetVersion(&number), "cuDriverGetVersion");
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

}  // namespace mxfa
