#include "driver_api/fatbin.hpp"

#include <cstring>

#include "driver_api/driver.hpp"
#include "driver_api/image.hpp"

namespace mxfa::emulator::driver_api {
namespace {

// A header and entries; layout as written by fatbinary of CUDA 13.0.
struct FatbinWrapper {
  uint32_t magic, version;
  const void* data;
  void* file_name;
};
struct FatbinHeader {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes;
};
struct FatbinEntry {
  uint16_t kind, version;
  uint32_t header_bytes;
  uint64_t bytes;  // up to the next entry
  uint32_t compressed_bytes, options_offset, code_version, architecture, unused[2];
  uint64_t flags;
  uint64_t unused2, uncompressed_bytes;
};
static_assert(sizeof(FatbinEntry) == 64);
constexpr uint32_t kWrapperMagic = 0x466243b1, kFatbinMagic = 0xba55ed50;
constexpr uint16_t kKindPtx = 1;
constexpr uint64_t kLz4 = 0x2000, kZstd = 0x8000;
constexpr uint64_t kLargestText = 1ull << 30;

std::string describe(const FatbinEntry& entry) {
  return fmt::format("{} for sm_{}", entry.kind == kKindPtx ? "PTX" : "machine code", entry.architecture);
}

std::string text_of(const FatbinEntry& entry, const uint8_t* payload) {
  if (!(entry.flags & (kLz4 | kZstd))) {
    const char* text = reinterpret_cast<const char*>(payload);
    return std::string(text, strnlen(text, entry.bytes));
  }
  if (entry.compressed_bytes > entry.bytes || entry.uncompressed_bytes > kLargestText) {
    refuse(CUDA_ERROR_INVALID_IMAGE,
           "an entry of the fatbin has {} bytes, compressed from {}, in a place of {}",
           entry.compressed_bytes, entry.uncompressed_bytes, entry.bytes);
  }
  const auto decompress = entry.flags & kLz4 ? decompress_lz4 : decompress_zstd;
  std::string text = decompress(payload, entry.compressed_bytes, entry.uncompressed_bytes);
  text.resize(strnlen(text.data(), text.size()));
  return text;
}

std::string ptx_of_entries(const uint8_t* data, const DeviceModel& device) {
  FatbinHeader header;
  std::memcpy(&header, data, sizeof header);
  if (header.magic != kFatbinMagic || header.version != 1) {
    refuse(CUDA_ERROR_INVALID_IMAGE, "the fatbin has magic {:#x} and version {}, not {:#x} and 1",
           header.magic, header.version, kFatbinMagic);
  }
  std::string best, seen;
  int best_rank = 0;
  for (const uint8_t *at = data + header.header_bytes, *end = at + header.bytes;
       at + sizeof(FatbinEntry) <= end;) {
    FatbinEntry entry;
    std::memcpy(&entry, at, sizeof entry);
    if (entry.header_bytes < sizeof entry || entry.header_bytes > static_cast<uint64_t>(end - at) ||
        entry.bytes > static_cast<uint64_t>(end - at) - entry.header_bytes) {
      refuse(CUDA_ERROR_INVALID_IMAGE, "an entry of the fatbin reaches beyond its end");
    }
    seen += (seen.empty() ? "" : ", ") + describe(entry);
    if (entry.kind == kKindPtx) {
      std::string text = text_of(entry, at + entry.header_bytes);
      const PtxTarget target = target_of_ptx(text);
      const int rank = 4 * target.number + (target.suffix == 'a' ? 2 : target.suffix == 'f' ? 1 : 0);
      if (rank > best_rank && runs_on(target, device)) {
        best = std::move(text);
        best_rank = rank;
      }
    }
    at += entry.header_bytes + entry.bytes;
  }
  if (best_rank == 0) {
    refuse(CUDA_ERROR_NO_BINARY_FOR_GPU,
           "the fatbin holds {}; {} needs PTX it can run: build with -arch=compute_{}{}a",
           seen.empty() ? "nothing" : seen, device.name, device.major, device.minor);
  }
  return best;
}

}  // namespace

bool is_fatbin(uint32_t magic) { return magic == kWrapperMagic || magic == kFatbinMagic; }

std::string ptx_of_fatbin(const void* image, const DeviceModel& device) {
  FatbinWrapper wrapper;
  std::memcpy(&wrapper.magic, image, sizeof wrapper.magic);
  if (wrapper.magic == kFatbinMagic) return ptx_of_entries(static_cast<const uint8_t*>(image), device);
  std::memcpy(&wrapper, image, sizeof wrapper);
  require(wrapper.data, "the data pointer of the fatbin wrapper");
  return ptx_of_entries(static_cast<const uint8_t*>(wrapper.data), device);
}

}  // namespace mxfa::emulator::driver_api
