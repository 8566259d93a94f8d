// configs/devices/*.json, embedded in the library: what a modelled device answers.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/machine.hpp"

namespace mxfa::emulator::driver_api {

struct DeviceFacts {
  DeviceModel model;
  std::vector<bool> has_attribute;     // indexed by CUdevice_attribute
  std::map<int, int> active_clusters;  // cluster size -> clusters resident at once, one CTA an SM
};

// Throws std::runtime_error with a sentence if `key` is not a model or its file is broken.
DeviceFacts load_device(const std::string& key);
std::vector<std::string> device_keys();

}  // namespace mxfa::emulator::driver_api
