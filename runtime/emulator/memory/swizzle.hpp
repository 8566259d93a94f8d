// Shared-memory swizzles as XORs of absolute byte addresses inside the CTA's shared window (PTX ISA 5.5.7;
// CUDA programming guide, table 11 of the asynchronous copies chapter).  Every one is its own inverse.
#pragma once

#include <cstdint>

namespace mxfa::emulator {

// The numbers of CUtensorMapSwizzle.
enum class Swizzle : uint8_t {
  None = 0,
  B32 = 1,
  B64 = 2,
  B128 = 3,
  B128Atom32 = 4,
  B128Atom32Flip8 = 5,
  B128Atom64 = 6
};

inline uint32_t swizzle(Swizzle mode, uint32_t a) {
  switch (mode) {
    case Swizzle::None:
      return a;
    case Swizzle::B32:
      return a ^ ((a >> 3) & 0x10);  // bit 4 ^= bit 7
    case Swizzle::B64:
      return a ^ ((a >> 3) & 0x30);  // bits [4:6) ^= bits [7:9)
    case Swizzle::B128:
      return a ^ ((a >> 3) & 0x70);  // bits [4:7) ^= bits [7:10)
    case Swizzle::B128Atom32:
      return a ^ ((a >> 2) & 0x60);  // bits [5:7) ^= bits [7:9)
    case Swizzle::B128Atom32Flip8:
      return a ^ ((a >> 2) & 0x60) ^ ((a >> 4) & 0x08);  // and halves of 16 bytes on odd 128-byte lines
    case Swizzle::B128Atom64:
      return a ^ ((a >> 1) & 0x40);  // bit 6 ^= bit 7
  }
  return a;
}

// Bytes of one row of the pattern, and after how many bytes the pattern repeats.
inline uint32_t swizzle_span(Swizzle mode) {
  return mode == Swizzle::None ? 16 : mode == Swizzle::B32 ? 32 : mode == Swizzle::B64 ? 64 : 128;
}
inline uint32_t swizzle_repeat(Swizzle mode) {
  switch (mode) {
    case Swizzle::None:
      return 16;
    case Swizzle::B32:
    case Swizzle::B128Atom64:
      return 256;
    case Swizzle::B64:
    case Swizzle::B128Atom32:
    case Swizzle::B128Atom32Flip8:
      return 512;
    case Swizzle::B128:
      return 1024;
  }
  return 16;
}
// Largest aligned run of bytes that the swizzle moves as one piece.
inline uint32_t swizzle_chunk(Swizzle mode) { return mode == Swizzle::B128Atom32Flip8 ? 8 : 16; }

// The swizzle field of a shared-memory matrix descriptor, bits [61:64) (PTX ISA 9.7.16.4.1).  False: no such
// mode.
inline bool swizzle_of_descriptor(uint32_t field, Swizzle* mode) {
  switch (field) {
    case 0:
      *mode = Swizzle::None;
      return true;
    case 1:
      *mode = Swizzle::B128Atom32;
      return true;
    case 2:
      *mode = Swizzle::B128;
      return true;
    case 4:
      *mode = Swizzle::B64;
      return true;
    case 6:
      *mode = Swizzle::B32;
      return true;
    default:
      return false;
  }
}

}  // namespace mxfa::emulator
