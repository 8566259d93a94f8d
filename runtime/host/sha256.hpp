// SHA-256 (FIPS 180-4): cache keys and the checksum of a cache entry.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace mxfa {

class Sha256 {
 public:
  void update(std::string_view bytes);
  // Length first, so that the fields of a record cannot slide into each other.
  void field(std::string_view bytes);
  std::array<uint8_t, 32> digest();  // ends the computation

 private:
  void compress(const uint8_t* block);

  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> block_{};
  size_t filled_ = 0;
  uint64_t total_ = 0;
};

std::array<uint8_t, 32> sha256(std::string_view bytes);
std::string hex(const std::array<uint8_t, 32>& digest);

}  // namespace mxfa
