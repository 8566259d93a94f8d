// The exported functions by name, for cuGetProcAddress.
#pragma once

#include <string_view>

namespace mxfa::emulator::driver_api {

struct Symbol {
  std::string_view base;  // "cuMemAlloc"
  int version;            // first CUDA version of this form
  bool per_thread;        // takes the per-thread default stream
  void* address;
};
extern const Symbol kSymbols[];
extern const int kSymbolCount;

}  // namespace mxfa::emulator::driver_api
