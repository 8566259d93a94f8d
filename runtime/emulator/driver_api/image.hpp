// What a program hands to cuModuleLoadData: PTX text, a fatbin that holds some, or machine code (refused).
#pragma once

#include <string>
#include <string_view>

#include "core/machine.hpp"

namespace mxfa::emulator::driver_api {

// The PTX text to run on `device`; for a fatbin the newest entry that the device can run.  Throws Refusal.
std::string ptx_of_image(const void* image, const DeviceModel& device);
bool is_fatbin_image(const void* image);

// A module's .target: sm_90 runs on 9.0 and newer, sm_100f on 10.x from 10.0, sm_100a on 10.0 alone (PTX ISA,
// .target).
struct PtxTarget {
  int number = 0;   // 100
  char suffix = 0;  // 0, 'a', 'f'
};
bool runs_on(const PtxTarget& target, const DeviceModel& device);
PtxTarget target_of_ptx(std::string_view text);  // number 0: the text has none

}  // namespace mxfa::emulator::driver_api
