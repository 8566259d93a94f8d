// Every exported name that no other file defines: it says so once on stderr and answers
// CUDA_ERROR_NOT_SUPPORTED.  The definitions are weak, so a function defined elsewhere in this library takes
// the place of the one here.  cuda.h must not be included: a body that ignores its arguments needs no
// prototype (integer and pointer arguments are the caller's business on every ABI this builds for).
#include <atomic>
#include <cstdio>

namespace {

int answer_unsupported(const char* name, std::atomic_flag& said) {
  if (!said.test_and_set()) {
    std::fprintf(stderr, "mxfa emulator: %s is not supported by the CPU driver (CUDA_ERROR_NOT_SUPPORTED)\n",
                 name);
  }
  return 801;  // CUDA_ERROR_NOT_SUPPORTED
}

}  // namespace

#define SYMBOL(symbol, base, version, per_thread)                        \
  extern "C" __attribute__((weak, visibility("default"))) int symbol() { \
    static std::atomic_flag said;                                        \
    return answer_unsupported(#symbol, said);                            \
  }
#include "driver_api/api_names.def"
#undef SYMBOL
