// Fatbins as fatbinary writes them, for tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mxfa::test {

struct FatbinEntry {
  enum Kind : uint16_t { Ptx = 1, MachineCode = 2 } kind = Ptx;
  uint32_t architecture = 100;
  std::string payload;
  enum Compression : uint64_t { None = 0x11, Lz4 = 0x2011, Zstd = 0x8011 } compression = None;
  uint64_t original_bytes = 0;  // of a compressed payload
};

// A header, then entries of a 64-byte header and a padded payload.
inline std::string fatbin(const std::vector<FatbinEntry>& entries) {
  std::string body;
  const auto put = [](std::string& out, auto value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  for (const FatbinEntry& entry : entries) {
    std::string payload = entry.payload;
    payload.resize((payload.size() + 8) / 8 * 8);
    put(body, static_cast<uint16_t>(entry.kind));
    put(body, uint16_t{0x101});
    put(body, uint32_t{64});
    put(body, uint64_t{payload.size()});
    put(body, static_cast<uint32_t>(entry.compression == FatbinEntry::None ? 0 : entry.payload.size()));
    put(body, uint32_t{0});
    put(body, uint32_t{0x90000});
    put(body, entry.architecture);
    put(body, uint64_t{0});
    put(body, static_cast<uint64_t>(entry.compression));
    put(body, uint64_t{0});
    put(body, entry.original_bytes);
    body += payload;
  }
  std::string out;
  put(out, uint32_t{0xba55ed50});
  put(out, uint16_t{1});
  put(out, uint16_t{16});
  put(out, uint64_t{body.size()});
  return out + body;
}

// What nvcc's host code hands to __cudaRegisterFatBinary.
struct FatbinWrapper {
  uint32_t magic = 0x466243b1, version = 1;
  const void* data = nullptr;
  void* name = nullptr;
};

}  // namespace mxfa::test
