// Every exported name that no other file defines: it says so once on stderr and answers
// cudaErrorNotSupported. The definitions are weak, so a function defined elsewhere takes the place of the one
// here.  The toolkit's header must not be included: a body that ignores its arguments needs no prototype.
#include <atomic>
#include <cstdio>

namespace {

int answer_unsupported(const char* name, std::atomic_flag& said) {
  if (!said.test_and_set()) {
    std::fprintf(stderr, "mxfa emulator: %s is not supported by the CPU driver (cudaErrorNotSupported)\n",
                 name);
  }
  return 801;  // cudaErrorNotSupported
}

}  // namespace

#define NAME(symbol)                                                     \
  extern "C" __attribute__((weak, visibility("default"))) int symbol() { \
    static std::atomic_flag said;                                        \
    return answer_unsupported(#symbol, said);                            \
  }
#include "cudart/api_names.def"
#undef NAME
