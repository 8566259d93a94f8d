// cuGetProcAddress: a base name and a CUDA version choose the newest form that version knew.
#include "driver_api/driver.hpp"
#include "driver_api/symbols.hpp"

using namespace mxfa::emulator::driver_api;

namespace {

CUdriverProcAddressQueryResult find(std::string_view name, int version, bool per_thread, void** out) {
  const Symbol* best = nullptr;
  bool known = false;
  for (int i = 0; i < kSymbolCount; ++i) {
    const Symbol& symbol = kSymbols[i];
    if (symbol.base != name) continue;
    known = true;
    if (symbol.version > version || (symbol.per_thread && !per_thread)) continue;
    // A per-thread form wins over a plain one where it was asked for; else the newer one.
    if (!best || symbol.per_thread > best->per_thread ||
        (symbol.per_thread == best->per_thread && symbol.version > best->version)) {
      best = &symbol;
    }
  }
  *out = best ? best->address : nullptr;
  return best    ? CU_GET_PROC_ADDRESS_SUCCESS
         : known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                 : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
}

void get(const char* name, void** out, int version, cuuint64_t flags,
         CUdriverProcAddressQueryResult* status) {
  require(name, "symbol");
  require(out, "pfn");
  if (flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) {
    refuse(CUDA_ERROR_INVALID_VALUE, "flags {} is none of CU_GET_PROC_ADDRESS_*", flags);
  }
  if (version > kDriverVersion) refuse(CUDA_ERROR_INVALID_VALUE);  // how programs ask what a driver has
  // A name that is not there is an answer (null and the status), not an error; so does the driver of
  // CUDA 13.0.
  const auto result = find(name, version, flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, out);
  if (status) *status = result;
}

}  // namespace

CUresult cuGetProcAddress_v2(const char* name, void** out, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  return api(__func__, [&] { get(name, out, version, flags, status); });
}

CUresult cuGetProcAddress(const char* name, void** out, int version, cuuint64_t flags) {
  return api(__func__, [&] { get(name, out, version, flags, nullptr); });
}
