// cuda.h for those who implement it: every version of every function is declared under its own symbol, and
// exported when defined.
#pragma once

#define __CUDA_API_VERSION_INTERNAL  // cuda.h maps no plain name to a newer symbol and declares the old ones
                                     // too
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

// A second symbol for a function of this file.  Streams are in-order and eager, so the per-thread default
// stream (_ptds, _ptsz) and the legacy one behave alike.
#define MXFA_SAME_FUNCTION(symbol, target) \
  extern "C" __attribute__((alias(#target), visibility("default"))) decltype(target) symbol;
