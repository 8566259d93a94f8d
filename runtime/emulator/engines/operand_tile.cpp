// Fetching operand tiles, 16 bytes at a time: no swizzle splits 16 aligned bytes.
#include "engines/operand_tile.hpp"

#include <cstring>

#include "memory/memory.hpp"

namespace mxfa::emulator {
namespace {

// Reads of 16 bytes from the shared memory of one CTA.
class Reader {
 public:
  Reader(Cluster& cluster, uint32_t rank) : cluster_(cluster), rank_(rank) {
    const Cta& cta = *cluster.ctas[rank];
    base_ = cta.shared_base;
    begin_ = cluster.grid->device->shared_reserved;
    end_ = cta.shared_size;
  }
  const uint8_t* at(uint32_t offset, uint32_t bytes = 16) const {
    if (offset >= begin_ && offset + bytes <= end_) [[likely]]
      return base_ + offset;
    return shared_range(cluster_, rank_ << kRankShift | offset, bytes, false);  // the fault
  }

 private:
  Cluster& cluster_;
  uint32_t rank_, begin_, end_;
  const uint8_t* base_;
};

template <class T>
void turn(const uint8_t* raw, uint32_t rows, uint8_t* turned) {
  constexpr uint32_t kDepth = 32 / sizeof(T);
  for (uint32_t row = 0; row < rows; ++row) {
    T line[kDepth];
    std::memcpy(line, raw + row * 32, 32);
    for (uint32_t k = 0; k < kDepth; ++k)
      std::memcpy(turned + (k * Operands::kM + row) * sizeof(T), &line[k], sizeof(T));
  }
}

// Elements run along M or N in shared memory.
template <class T>
void fetch_mn_major(const Reader& reader, const MatrixDescriptor& d, uint32_t first, uint32_t rows,
                    uint8_t* raw) {
  constexpr uint32_t kDepth = 32 / sizeof(T), kChunk = 16 / sizeof(T);
  for (uint32_t k = 0; k < kDepth; ++k)
    for (uint32_t row = 0; row < rows; row += kChunk) {
      const uint32_t count = std::min(kChunk, rows - row);
      const uint8_t* source =
          reader.at(element_offset(d, 8 * sizeof(T), true, first + row, k), count * sizeof(T));
      for (uint32_t r = 0; r < count; ++r)
        std::memcpy(raw + (row + r) * 32 + k * sizeof(T), source + r * sizeof(T), sizeof(T));
    }
}

}  // namespace

TileWorkspace& tile_workspace() {
  static thread_local std::unique_ptr<TileWorkspace> space;
  if (!space) space = std::make_unique<TileWorkspace>();
  return *space;
}

void fetch_rows(Cluster& cluster, uint32_t rank, const MatrixDescriptor& d, int bits, bool mn_major,
                uint32_t first, uint32_t rows, uint8_t* raw) {
  const Reader reader(cluster, rank);
  if (!mn_major) {
    for (uint32_t row = 0; row < rows; ++row)
      for (uint32_t half = 0; half < 2; ++half)
        std::memcpy(raw + row * 32 + half * 16,
                    reader.at(element_offset(d, 8, false, first + row, half * 16)), 16);
    return;
  }
  if (bits == 8)
    fetch_mn_major<uint8_t>(reader, d, first, rows, raw);
  else if (bits == 16)
    fetch_mn_major<uint16_t>(reader, d, first, rows, raw);
  else
    fetch_mn_major<uint32_t>(reader, d, first, rows, raw);
}

void add_rows(Touches& list, uint32_t rank, const MatrixDescriptor& d, int bits, bool mn_major,
              uint32_t first, uint32_t rows) {
  const auto add = [&](uint32_t offset, uint32_t bytes) {
    if (!list.empty() && list.back().space == MemorySpace::Shared && list.back().rank == rank) {
      Touch& back = list.back();
      if (back.begin + back.count == offset) {
        back.count += bytes;
        return;
      }
      if (offset + bytes == back.begin) {
        back.begin = offset;
        back.count += bytes;
        return;
      }
    }
    list.push_back({MemorySpace::Shared, AccessKind::Read, rank, offset, bytes});
  };
  if (!mn_major) {
    for (uint32_t row = 0; row < rows; ++row)
      for (uint32_t half = 0; half < 2; ++half) add(element_offset(d, 8, false, first + row, half * 16), 16);
    return;
  }
  const uint32_t size = static_cast<uint32_t>(bits) / 8, chunk = 16 / size;
  for (uint32_t k = 0; k < 32 / size; ++k)
    for (uint32_t row = 0; row < rows; row += chunk)
      add(element_offset(d, bits, true, first + row, k), std::min(chunk, rows - row) * size);
}

void expand_sixteen(int bits, uint8_t* chunk) {
  uint8_t elements[16];
  for (int k = 0; k < 16; ++k) {
    const int bit = k * bits;
    const uint32_t pair = chunk[bit / 8] | static_cast<uint32_t>(bit / 8 < 15 ? chunk[bit / 8 + 1] : 0) << 8;
    elements[k] = static_cast<uint8_t>(pair >> bit % 8 & ((1u << bits) - 1));
  }
  std::memcpy(chunk, elements, 16);
}

void expand_narrow(Format format, uint32_t rows, uint8_t* raw) {
  const int bits = narrow_bits(format);
  if (bits == 8) return;
  for (uint32_t chunk = 0; chunk < 2 * rows; ++chunk) expand_sixteen(bits, raw + 16 * chunk);
}

void turn_a(int bits, const uint8_t* raw, uint32_t rows, uint32_t row0, uint8_t* turned) {
  turned += row0 * static_cast<uint32_t>(bits) / 8;
  if (bits == 8)
    turn<uint8_t>(raw, rows, turned);
  else if (bits == 16)
    turn<uint16_t>(raw, rows, turned);
  else
    turn<uint32_t>(raw, rows, turned);
}

}  // namespace mxfa::emulator
