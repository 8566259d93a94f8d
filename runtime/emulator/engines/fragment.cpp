// Transposing register fragments.
#include "engines/fragment.hpp"

#include <cstring>

#ifdef __AVX512F__
// GCC 12 takes the deliberately undefined operands inside its own intrinsics for uninitialised variables (GCC
// bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#endif

namespace mxfa::emulator {
namespace {

// One 32-bit register: four columns (every second one) of eight rows.  Lane 4 g + q is row g of column q.
#ifdef __AVX512F__
void gather_register(const Row& row, uint32_t* words, uint32_t column_pitch) {
  const __m512i low = _mm512_load_si512(row.lane), high = _mm512_load_si512(row.lane + 16);
  for (int pair = 0; pair < 2; ++pair) {
    const int q = 2 * pair;
    const __m512i index = _mm512_setr_epi32(q, q + 4, q + 8, q + 12, q + 16, q + 20, q + 24, q + 28, q + 1,
                                            q + 5, q + 9, q + 13, q + 17, q + 21, q + 25, q + 29);
    const __m512i columns = _mm512_permutex2var_epi32(low, index, high);
    uint32_t* first = words + static_cast<uint32_t>(q) * column_pitch;
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(first), _mm512_castsi512_si256(columns));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(first + column_pitch),
                        _mm512_extracti64x4_epi64(columns, 1));
  }
}

void scatter_register(const uint32_t* words, uint32_t column_pitch, Row& row) {
  const auto column = [&](uint32_t q) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words + q * column_pitch));
  };
  const __m512i first = _mm512_inserti64x4(_mm512_castsi256_si512(column(0)), column(1), 1);
  const __m512i second = _mm512_inserti64x4(_mm512_castsi256_si512(column(2)), column(3), 1);
  for (int half = 0; half < 2; ++half) {
    const int g = 4 * half;
    const __m512i index = _mm512_setr_epi32(g, g + 8, g + 16, g + 24, g + 1, g + 9, g + 17, g + 25, g + 2,
                                            g + 10, g + 18, g + 26, g + 3, g + 11, g + 19, g + 27);
    _mm512_store_si512(row.lane + 16 * half, _mm512_permutex2var_epi32(first, index, second));
  }
}
#else
void gather_register(const Row& row, uint32_t* words, uint32_t column_pitch) {
  for (uint32_t lane = 0; lane < kLanes; ++lane) words[lane % 4 * column_pitch + lane / 4] = row.lane[lane];
}
void scatter_register(const uint32_t* words, uint32_t column_pitch, Row& row) {
  for (uint32_t lane = 0; lane < kLanes; ++lane) row.lane[lane] = words[lane % 4 * column_pitch + lane / 4];
}
#endif

// Columns of element i: 8 * (i >> 2) + (i & 1) + 2 * q; rows from 8 * ((i >> 1) & 1).
uint32_t first_word(uint32_t i, uint32_t pitch) {
  return (8 * (i >> 2) + (i & 1)) * pitch + 8 * (i >> 1 & 1);
}

void gather_rows(std::span<const Row* const> registers, uint32_t rows, uint8_t* raw) {
  std::memset(raw, 0, rows * 32);
  for (uint32_t j = 0; j < registers.size(); ++j) {
    const uint32_t row0 = rows == 16 ? 8 * (j & 1) : 0, byte0 = 16 * (rows == 16 ? j >> 1 : j);
    for (uint32_t g = 0; g < 8; ++g)
      std::memcpy(raw + (row0 + g) * 32 + byte0, &registers[j]->lane[4 * g], 16);
  }
}

}  // namespace

void gather_fragment(std::span<const Row* const> registers, bool f16, uint32_t* words, uint32_t pitch) {
  for (uint32_t r = 0; r < registers.size(); ++r) {
    if (!f16) {
      gather_register(*registers[r], words + first_word(r, pitch), 2 * pitch);
      continue;
    }
    for (uint32_t half = 0; half < 2; ++half) {
      Row element;
      for (int lane = 0; lane < kLanes; ++lane)
        element.lane[lane] = registers[r]->lane[lane] >> (16 * half) & 0xffff;
      gather_register(element, words + first_word(2 * r + half, pitch), 2 * pitch);
    }
  }
}

void scatter_fragment(const uint32_t* words, uint32_t pitch, bool f16, std::span<Row* const> registers) {
  for (uint32_t r = 0; r < registers.size(); ++r) {
    if (!f16) {
      scatter_register(words + first_word(r, pitch), 2 * pitch, *registers[r]);
      continue;
    }
    Row low, high;
    scatter_register(words + first_word(2 * r, pitch), 2 * pitch, low);
    scatter_register(words + first_word(2 * r + 1, pitch), 2 * pitch, high);
    for (int lane = 0; lane < kLanes; ++lane)
      registers[r]->lane[lane] = (low.lane[lane] & 0xffff) | high.lane[lane] << 16;
  }
}

void gather_a(std::span<const Row* const> registers, uint8_t* raw) { gather_rows(registers, 16, raw); }
void gather_b(std::span<const Row* const> registers, uint8_t* raw) { gather_rows(registers, 8, raw); }

}  // namespace mxfa::emulator
