// CUresult values that faults carry (cuda.h).
#pragma once

namespace mxfa::emulator::result {

inline constexpr int kInvalidValue = 1, kIllegalAddress = 700, kLaunchTimeout = 702, kAssert = 710,
                     kIllegalInstruction = 715, kMisalignedAddress = 716, kLaunchFailed = 719,
                     kNotSupported = 801;

}  // namespace mxfa::emulator::result
