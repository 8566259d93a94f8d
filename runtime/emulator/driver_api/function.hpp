// Attributes and resources of a kernel, shared by cuFunc*, cuKernel*, the occupancy calls and the launch.
#pragma once

#include "driver_api/driver.hpp"

namespace mxfa::emulator::driver_api {

int function_attribute(const Function& function, CUfunction_attribute attribute);
void set_function_attribute(Function& function, CUfunction_attribute attribute, int value);
void parameter_info(const Function& function, size_t index, size_t* offset, size_t* size);

// CTAs of `threads` threads and this much dynamic shared memory that one SM holds; 0 when not even one fits.
int blocks_per_sm(const Function& function, int threads, size_t dynamic_shared);

}  // namespace mxfa::emulator::driver_api
