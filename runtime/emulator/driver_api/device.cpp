// cuInit and the questions about the device.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "driver_api/driver.hpp"

using namespace mxfa::emulator;
using namespace mxfa::emulator::driver_api;

namespace {

// Room for red zones and module variables beside the memory that programs may allocate.
constexpr uint64_t kArenaSlack = 64ull << 30;

// MXFA_EMU_DEVICES: how many devices there are, all alike; read by every cuInit, which may add some.
int device_count() {
  const char* text = std::getenv("MXFA_EMU_DEVICES");
  if (!text || !*text) return 1;
  char* end = nullptr;
  const long count = std::strtol(text, &end, 10);
  if (*end || count < 1 || count > 8)
    refuse(CUDA_ERROR_INVALID_VALUE, "MXFA_EMU_DEVICES={}: 1 to 8 are allowed", text);
  return static_cast<int>(count);
}

void initialize() {
  Driver& state = driver();
  for (int k = static_cast<int>(state.primaries.size()); k < device_count(); ++k) {
    state.primaries.push_back(std::make_unique<Context>());
    state.primaries.back()->device = k;
  }
  if (state.initialized) return;
  const char* key = std::getenv("MXFA_EMU_DEVICE");
  try {
    state.device = load_device(key && *key ? key : "b200");
  } catch (const std::exception& error) {
    refuse(CUDA_ERROR_INVALID_VALUE, "{}", error.what());
  }
  state.arena = std::make_unique<mxfa::emulator::Arena>(state.device.model.memory_bytes + kArenaSlack);
  state.initialized = true;
}

// Distinct for every model and stable over runs.
CUuuid device_uuid(CUdevice device) {
  CUuuid uuid{};
  const std::string text = "mxfa-" + driver().device.model.key;
  std::memcpy(uuid.bytes, text.data(), std::min(text.size(), sizeof uuid.bytes - 1));
  uuid.bytes[sizeof uuid.bytes - 1] = static_cast<char>(device);
  return uuid;
}

}  // namespace

CUresult cuInit(unsigned flags) {
  return api(__func__, [&] {
    if (flags) refuse(CUDA_ERROR_INVALID_VALUE, "flags is {}; it must be 0", flags);
    initialize();
  });
}

CUresult cuDriverGetVersion(int* version) {
  return api(__func__, [&] {
    require(version, "driverVersion");
    *version = kDriverVersion;
  });
}

CUresult cuDeviceGetCount(int* count) {
  return api(__func__, [&] {
    require_initialized();
    require(count, "count");
    *count = static_cast<int>(driver().primaries.size());
  });
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return api(__func__, [&] {
    require_initialized();
    require(device, "device");
    require_device(ordinal);
    *device = ordinal;
  });
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  return api(__func__, [&] {
    require_device(device);
    require(name, "name");
    if (length <= 0) refuse(CUDA_ERROR_INVALID_VALUE, "length {} is not positive", length);
    std::snprintf(name, length, "%s", driver().device.model.name.c_str());
  });
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  return api(__func__, [&] {
    require_device(device);
    require(uuid, "uuid");
    *uuid = device_uuid(device);
  });
}
MXFA_SAME_FUNCTION(cuDeviceGetUuid, cuDeviceGetUuid_v2)

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  return api(__func__, [&] {
    require_device(device);
    require(bytes, "bytes");
    *bytes = driver().device.model.memory_bytes;
  });
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return api(__func__, [&] {
    require(value, "pi");
    require_device(device);
    const DeviceFacts& facts = driver().device;
    const auto index = static_cast<unsigned>(raw_number(attribute));
    if (index >= facts.has_attribute.size() || !facts.has_attribute[index]) {
      refuse(CUDA_ERROR_INVALID_VALUE, "attribute {} is not one of CUDA 13.0", raw_number(attribute));
    }
    *value = static_cast<int>(facts.model.attributes[index]);
  });
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
  return api(__func__, [&] {
    require_device(device);
    require(major, "major");
    require(minor, "minor");
    *major = driver().device.model.major;
    *minor = driver().device.model.minor;
  });
}

CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
  return api(__func__, [&] {
    require_device(device);
    require(text, "pciBusId");
    if (length < 13) refuse(CUDA_ERROR_INVALID_VALUE, "length {} is too short for a PCI bus id (13)", length);
    std::snprintf(text, length, "0000:%02x:00.0", static_cast<unsigned>(device));
  });
}

CUresult cuDeviceCanAccessPeer(int* can_access, CUdevice device, CUdevice peer) {
  return api(__func__, [&] {
    require(can_access, "canAccessPeer");
    require_device(device);
    require_device(peer);
    *can_access = 0;  // peer access is not modelled
  });
}

// The private tables are undocumented; a program that needs them (the CUDA run-time library) cannot run on
// this driver.
CUresult cuGetExportTable(const void** table, const CUuuid*) {
  if (table) *table = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}
