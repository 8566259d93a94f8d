// The two compressions of fatbins: LZ4 blocks, which are simple enough to read here, and zstd (what nvcc of
// CUDA 13 uses by default), which the system's library reads.
#include <dlfcn.h>

#include "driver_api/driver.hpp"
#include "driver_api/fatbin.hpp"

namespace mxfa::emulator::driver_api {
namespace {

[[noreturn]] void damaged(const char* format, size_t at) {
  refuse(CUDA_ERROR_INVALID_IMAGE, "the {} data of a fatbin entry is damaged (byte {})", format, at);
}

// A length continues while its bytes are 255 (LZ4 block format).
size_t more_length(const uint8_t* data, size_t bytes, size_t& at) {
  size_t length = 0;
  for (;;) {
    if (at == bytes) damaged("LZ4", at);
    length += data[at];
    if (data[at++] != 255) return length;
  }
}

}  // namespace

std::string decompress_lz4(const uint8_t* data, size_t bytes, size_t original) {
  std::string out;
  out.reserve(original);
  for (size_t at = 0; at < bytes;) {
    const uint8_t token = data[at++];
    size_t literals = token >> 4;
    if (literals == 15) literals += more_length(data, bytes, at);
    if (literals > bytes - at || literals > original - out.size()) damaged("LZ4", at);
    out.append(reinterpret_cast<const char*>(data + at), literals);
    at += literals;
    if (at == bytes) break;  // the last sequence is literals alone
    if (bytes - at < 2) damaged("LZ4", at);
    const size_t distance = data[at] | data[at + 1] << 8;
    at += 2;
    size_t match = token & 15;
    if (match == 15) match += more_length(data, bytes, at);
    match += 4;
    if (distance == 0 || distance > out.size() || match > original - out.size()) damaged("LZ4", at);
    for (; match; --match) out.push_back(out[out.size() - distance]);  // the two may overlap
  }
  if (out.size() != original) damaged("LZ4", bytes);
  return out;
}

// Every Debian system has the library; its headers need not be there, since its interface is stable.
std::string decompress_zstd(const uint8_t* data, size_t bytes, size_t original) {
  using Decompress = size_t (*)(void* out, size_t capacity, const void* in, size_t bytes);
  static void* const library = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
  static const auto decompress =
      library ? reinterpret_cast<Decompress>(dlsym(library, "ZSTD_decompress")) : nullptr;
  if (!decompress) {
    refuse(
        CUDA_ERROR_NO_BINARY_FOR_GPU,
        "the PTX of the fatbin is compressed with zstd and libzstd.so.1 is not there: install libzstd1, or "
        "build with -no-compress");
  }
  std::string out(original, 0);
  if (decompress(out.data(), out.size(), data, bytes) != original) damaged("zstd", 0);
  return out;
}

}  // namespace mxfa::emulator::driver_api
