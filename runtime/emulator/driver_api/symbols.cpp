// Addresses of all exported functions.  cuda.h must not be included: only the names matter here.
#include "driver_api/symbols.hpp"

#define SYMBOL(symbol, base, version, per_thread) extern "C" int symbol();
#include "driver_api/api_names.def"
#undef SYMBOL

namespace mxfa::emulator::driver_api {

const Symbol kSymbols[] = {
#define SYMBOL(symbol, base, version, per_thread) \
  {#base, version, per_thread != 0, reinterpret_cast<void*>(&symbol)},
#include "driver_api/api_names.def"
#undef SYMBOL
};
const int kSymbolCount = sizeof kSymbols / sizeof *kSymbols;

}  // namespace mxfa::emulator::driver_api
