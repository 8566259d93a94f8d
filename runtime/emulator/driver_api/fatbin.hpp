// Fatbins: what nvcc embeds in a program, a list of PTX texts and machine codes.
#pragma once

#include <string>

#include "core/machine.hpp"

namespace mxfa::emulator::driver_api {

bool is_fatbin(uint32_t magic);  // of a fatbin, or of the wrapper that a program has it in
// The newest PTX text that the device can run.  Throws Refusal.
std::string ptx_of_fatbin(const void* image, const DeviceModel& device);

// Throw Refusal when the data is damaged or the library that reads it is missing.
std::string decompress_lz4(const uint8_t* data, size_t bytes, size_t original);
std::string decompress_zstd(const uint8_t* data, size_t bytes, size_t original);

}  // namespace mxfa::emulator::driver_api
