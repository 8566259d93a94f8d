// The file format of a cache entry (cache.hpp).
#include <cstring>
#include <stdexcept>

#include "host/cache.hpp"
#include "host/sha256.hpp"

namespace mxfa {
namespace {

constexpr char kMagic[8] = {'m', 'x', 'f', 'a', 'k', 'e', 'r', 'n'};
constexpr uint32_t kFormat = 1;

struct Header {
  char magic[8];
  uint32_t format, header_bytes;
  char key[64];
  uint64_t payload_bytes;
  uint8_t payload_sha256[32];
};
static_assert(sizeof(Header) == 120, "written as it lies in memory; a hole would carry stray bytes");

}  // namespace

std::string encode_entry(const std::string& key, const Artefact& artefact) {
  std::string payload;
  for (const std::string* part : {&artefact.ptx, &artefact.cubin, &artefact.report}) {
    const uint64_t length = part->size();
    payload.append(reinterpret_cast<const char*>(&length), sizeof(length));
    payload += *part;
  }
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.format = kFormat;
  header.header_bytes = sizeof(Header);
  std::memcpy(header.key, key.data(), std::min(key.size(), sizeof(header.key)));
  header.payload_bytes = payload.size();
  const auto digest = sha256(payload);
  std::memcpy(header.payload_sha256, digest.data(), digest.size());
  return std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + payload;
}

Artefact decode_entry(std::string_view bytes, const std::string& key) {
  Header header;
  if (bytes.size() < sizeof(header)) throw std::runtime_error("it is shorter than its header");
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0 || header.format != kFormat ||
      header.header_bytes != sizeof(header))
    throw std::runtime_error("its header is not ours");
  if (std::string_view(header.key, sizeof(header.key)) != key)
    throw std::runtime_error("it holds another key");
  std::string_view payload = bytes.substr(sizeof(header));
  if (payload.size() != header.payload_bytes)
    throw std::runtime_error("its length is " + std::to_string(bytes.size()) + " bytes, expected " +
                             std::to_string(sizeof(header) + header.payload_bytes));
  const auto digest = sha256(payload);
  if (std::memcmp(header.payload_sha256, digest.data(), digest.size()) != 0)
    throw std::runtime_error("its checksum differs");

  Artefact artefact;
  for (std::string* part : {&artefact.ptx, &artefact.cubin, &artefact.report}) {
    uint64_t length = 0;
    if (payload.size() < sizeof(length)) throw std::runtime_error("its parts do not fill it");
    std::memcpy(&length, payload.data(), sizeof(length));
    payload.remove_prefix(sizeof(length));
    if (payload.size() < length) throw std::runtime_error("its parts do not fill it");
    *part = payload.substr(0, length);
    payload.remove_prefix(length);
  }
  return artefact;
}

}  // namespace mxfa
