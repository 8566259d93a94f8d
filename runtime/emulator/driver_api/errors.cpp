// cuGetErrorName and cuGetErrorString.
#include <string_view>

#include "driver_api/driver.hpp"

namespace mxfa::emulator::driver_api {
namespace {

struct ErrorName {
  CUresult code;
  const char* name;
  const char* text;
};
constexpr ErrorName kErrorNames[] = {
#define ERROR_NAME(code, text) {code, #code, text},
#include "driver_api/error_names.def"
#undef ERROR_NAME
};

const ErrorName* find(CUresult code) {
  for (const ErrorName& entry : kErrorNames) {
    if (entry.code == code) return &entry;
  }
  return nullptr;
}

CUresult answer(CUresult code, const char** out, const char* ErrorName::*field) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  const ErrorName* entry = find(code);
  *out = entry ? entry->*field : nullptr;
  return entry ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

const char* error_name(CUresult code) {
  const ErrorName* entry = find(code);
  return entry ? entry->name : nullptr;
}

}  // namespace mxfa::emulator::driver_api

using namespace mxfa::emulator::driver_api;

CUresult cuGetErrorName(CUresult error, const char** text) { return answer(error, text, &ErrorName::name); }
CUresult cuGetErrorString(CUresult error, const char** text) { return answer(error, text, &ErrorName::text); }
