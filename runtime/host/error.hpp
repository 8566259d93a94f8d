// How the host library fails: it throws mxfa::Error, and the C entry points (api.cpp) turn that into a status
// and a sentence. A sentence names the value, the place and the remedy.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "mxfa/mxfa.hpp"

namespace mxfa {

// The caller's argument, option or shape is wrong or not supported.
template <class... Args>
[[noreturn]] void invalid(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(MXFA_ERROR_INVALID, fmt::format(format, std::forward<Args>(args)...));
}

// Device, driver, compiler or cache trouble.
template <class... Args>
[[noreturn]] void device_error(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(MXFA_ERROR_DEVICE, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace mxfa
