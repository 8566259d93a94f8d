// ldmatrix, stmatrix, movmatrix (hopper-async-isa 5.1): 8x8 tiles of 16-bit elements spread over the lanes of
// a warp, and the sm_100a forms for bytes.
#include "core/aligned.hpp"
#include "core/exec.hpp"
#include "core/handlers.hpp"
#include "core/memory_access.hpp"

namespace mxfa::emulator {
namespace {

Space space_of(const MicroOp& op) { return op.mode ? Space::Generic : Space::Shared; }

// Rows are addressed by the first lanes.
void report_rows(Exec& x, const MicroOp& op, uint32_t rows, bool write) {
  if (x.observed) report_access(x, op, space_of(op), 16, write, rows >= 32 ? kFullMask : (1u << rows) - 1);
}

// The 16-byte row whose address lane `lane` holds.
uint8_t* row_pointer(Exec& x, const MicroOp& op, int lane, bool write) {
  return pointer(x, space_of(op), static_cast<uint32_t>(lane), lane_address(x, op, lane), 16, write);
}

// m8n8.b16: matrix i takes its row addresses from lanes 8i..8i+7.
Step load_8x8(Exec& x, const MicroOp& op) {
  require_whole_warp(x);
  const bool transposed = op.flags & kOption;
  report_rows(x, op, 8 * op.aux, false);
  Row out[4];
  for (uint32_t i = 0; i < op.aux; ++i) {
    uint16_t tile[8][8];
    for (int r = 0; r < 8; ++r)
      std::memcpy(tile[r], row_pointer(x, op, static_cast<int>(8 * i) + r, false), 16);
    for (int l = 0; l < kLanes; ++l) {
      const int major = l / 4, minor = 2 * (l % 4);
      const uint32_t low = transposed ? tile[minor][major] : tile[major][minor];
      const uint32_t high = transposed ? tile[minor + 1][major] : tile[major][minor + 1];
      out[i].lane[l] = high << 16 | low;
    }
  }
  for (uint32_t i = 0; i < op.aux; ++i)
    if (x.lists[op.list + i] != kNoRow)
      for_lanes<uint32_t>(x.mask, x.dst(x.lists[op.list + i]).lane, [&](int l) { return out[i].lane[l]; });
  return Step::Continue;
}

// m16n16.trans.b8: 16 row addresses a matrix; register i byte b of lane l is row 4(l%4)+b, byte l/4 + 8i.
Step load_16x16(Exec& x, const MicroOp& op) {
  require_whole_warp(x);
  report_rows(x, op, 16 * op.aux, false);
  Row out[4];
  for (uint32_t i = 0; i < op.aux; ++i) {
    uint8_t tile[16][16];
    for (int r = 0; r < 16; ++r)
      std::memcpy(tile[r], row_pointer(x, op, static_cast<int>(16 * i) + r, false), 16);
    for (uint32_t h = 0; h < 2; ++h)
      for (int l = 0; l < kLanes; ++l) {
        uint32_t v = 0;
        for (int b = 0; b < 4; ++b)
          v |= static_cast<uint32_t>(tile[4 * (l % 4) + b][l / 4 + 8 * static_cast<int>(h)]) << (8 * b);
        out[2 * i + h].lane[l] = v;
      }
  }
  for (uint32_t i = 0; i < 2 * op.aux && i < 4; ++i)
    if (x.lists[op.list + i] != kNoRow)
      for_lanes<uint32_t>(x.mask, x.dst(x.lists[op.list + i]).lane, [&](int l) { return out[i].lane[l]; });
  return Step::Continue;
}

Step store_8x8(Exec& x, const MicroOp& op) {
  require_whole_warp(x);
  ++x.progress;
  report_rows(x, op, 8 * op.aux, true);
  const bool transposed = op.flags & kOption;
  for (uint32_t i = 0; i < op.aux; ++i) {
    const Row& s = x.src(x.lists[op.list + i]);
    uint16_t tile[8][8];
    for (int l = 0; l < kLanes; ++l) {
      const int major = l / 4, minor = 2 * (l % 4);
      for (int e = 0; e < 2; ++e) {
        const auto v = static_cast<uint16_t>(s.lane[l] >> (16 * e));
        if (transposed)
          tile[minor + e][major] = v;
        else
          tile[major][minor + e] = v;
      }
    }
    for (int r = 0; r < 8; ++r)
      std::memcpy(row_pointer(x, op, static_cast<int>(8 * i) + r, true), tile[r], 16);
  }
  return Step::Continue;
}

// m16n8.trans.b8: register i byte e of lane l goes to row 8i + 2(l%4) + (e&1), byte l/4 + 8(e>>1).
Step store_16x8(Exec& x, const MicroOp& op) {
  require_whole_warp(x);
  ++x.progress;
  report_rows(x, op, 8 * op.aux, true);
  for (uint32_t i = 0; i < op.aux; ++i) {
    const Row& s = x.src(x.lists[op.list + i]);
    uint8_t tile[8][16];
    for (int l = 0; l < kLanes; ++l)
      for (int e = 0; e < 4; ++e)
        tile[2 * (l % 4) + (e & 1)][l / 4 + 8 * (e >> 1)] = static_cast<uint8_t>(s.lane[l] >> (8 * e));
    for (int r = 0; r < 8; ++r)
      std::memcpy(row_pointer(x, op, static_cast<int>(8 * i) + r, true), tile[r], 16);
  }
  return Step::Continue;
}

Step transpose_8x8(Exec& x, const MicroOp& op) {
  require_whole_warp(x);
  const Row s = x.src(op.src[0]);
  const auto element = [&](int row, int column) {
    return s.lane[row * 4 + column / 2] >> (16 * (column & 1)) & 0xffff;
  };
  for_lanes<uint32_t>(x.mask, x.dst(op.dst).lane, [&](int l) {
    const int minor = 2 * (l % 4);
    return element(minor + 1, l / 4) << 16 | element(minor, l / 4);
  });
  return Step::Continue;
}

}  // namespace

namespace handlers {

Handler ldmatrix(uint32_t shape) { return shape == 0 ? &load_8x8 : &load_16x16; }
Handler stmatrix(uint32_t shape) { return shape == 0 ? &store_8x8 : &store_16x8; }
Handler movmatrix() { return &transpose_8x8; }

}  // namespace handlers
}  // namespace mxfa::emulator
