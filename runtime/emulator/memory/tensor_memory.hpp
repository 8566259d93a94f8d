// Tensor memory of one CTA: 128 lanes x 512 columns x 32 bit, and who holds which columns.
#pragma once

#include <cstdint>
#include <vector>

namespace mxfa::emulator {

struct TensorMemory {
  static constexpr uint32_t kLanes = 128, kColumns = 512;
  // Column-major: word(lane, column) = words[column * 128 + lane]; a 32x32b load of one register is one
  // contiguous row of 32 words.
  std::vector<uint32_t> words =
      std::vector<uint32_t>(kLanes * kColumns, 0xffffffffu);  // 0xff.. is NaN in every float format
  std::vector<uint32_t> owner =
      std::vector<uint32_t>(kColumns / 32, 0);  // allocation id per 32 columns, 0 = free
  uint32_t next_id = 1, last_size = 512;
  bool relinquished = false;
  // An alloc or dealloc with cta_group::2 that a warp of this CTA is at, until the other CTA of the pair has
  // come.
  struct PairStep {
    enum class Kind { None, Alloc, Dealloc } kind = Kind::None;
    uint32_t warp = 0, columns = 0, address = 0, destination = 0;
    bool done = false;
  } pair_step;
  uint32_t& word(uint32_t lane, uint32_t column) { return words[column * kLanes + lane]; }
  uint32_t word(uint32_t lane, uint32_t column) const { return words[column * kLanes + lane]; }
};

}  // namespace mxfa::emulator
