// tcgen05 with elements of 4 and 6 bits, block-scaled E2M1, weight-stationary layouts and expanding copies.
// Operands are chosen so that sums are exact; the expected values come from the formats' definitions.
#include <cmath>
#include <random>

#include "emulator/engine_harness.hpp"
#include "engines/matrix_descriptor.hpp"

using namespace mxfa::emulator;
using namespace mxfa::emulator::test;

namespace {

uint32_t size_field(uint32_t m, uint32_t n) { return n / 8 << 17 | m / 16 << 24; }

// OCP MX: sign, exponent, mantissa; no infinities and no NaN.
double value(uint32_t code, int exponent_bits, int mantissa_bits) {
  const uint32_t exponent = code >> mantissa_bits & ((1u << exponent_bits) - 1),
                 mantissa = code & ((1u << mantissa_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double fraction = mantissa / std::ldexp(1.0, mantissa_bits);
  const double magnitude =
      exponent ? std::ldexp(1 + fraction, static_cast<int>(exponent) - bias) : std::ldexp(fraction, 1 - bias);
  return code >> (exponent_bits + mantissa_bits) ? -magnitude : magnitude;
}

struct Narrow {
  uint32_t code;  // in the instruction descriptor
  int exponent_bits, mantissa_bits;
  int bits() const { return 1 + exponent_bits + mantissa_bits; }
  double of(uint32_t c) const { return value(c, exponent_bits, mantissa_bits); }
};
const Narrow kE2M3{3, 2, 3}, kE3M2{4, 3, 2}, kE2M1{5, 2, 1};

constexpr uint32_t kA = 0x2000,
                   kB = 0x8000;  // 8 rows of 16 bytes, then the next 8 rows; K columns 4096 apart
uint32_t chunk(uint32_t base, uint32_t row, uint32_t k) { return base + row * 16 + k / 16 * 4096; }
const uint64_t kDescA = matrix(kA, 4096, 128), kDescB = matrix(kB, 4096, 128);

// Element k of a row: 16 elements in 16 bytes, packed from the lowest bit.
void put(Machine& m, uint32_t base, uint32_t row, uint32_t k, int bits, uint32_t code) {
  for (int b = 0; b < bits; ++b) {
    const uint32_t at = k % 16 * static_cast<uint32_t>(bits) + static_cast<uint32_t>(b);
    uint8_t& byte = *m.shared(chunk(base, row, k) + at / 8);
    byte = static_cast<uint8_t>((byte & ~(1u << at % 8)) | (code >> b & 1) << at % 8);
  }
}

float result(Machine& m, uint32_t lane, uint32_t column) {
  return std::bit_cast<float>(m.cta().tensor_memory->word(lane, column));
}

}  // namespace

TEST_CASE("products of 4-bit and 6-bit floats, A from either memory", "[engine][tcgen05]") {
  std::mt19937 random(3);
  for (const Narrow& fa : {kE2M3, kE3M2, kE2M1})
    for (const Narrow& fb : {kE2M3, kE3M2, kE2M1})
      for (const bool in_tmem : {false, true}) {
        Machine m;
        REQUIRE(tcgen05_alloc(m.warp(), 1024, 512, 1));
        std::vector<double> a(128 * 32), b(16 * 32);
        for (uint32_t r = 0; r < 128; ++r)
          for (uint32_t k = 0; k < 32; ++k) {
            const uint32_t code = random() & ((1u << fa.bits()) - 1);
            a[r * 32 + k] = fa.of(code);
            put(m, kA, r, k, fa.bits(), code);
            if (in_tmem) {  // a byte an element: 4 bits at [2:6), 6 bits at [1:7); the others are ignored
              uint32_t& word = m.cta().tensor_memory->word(r, 400 + k / 4);
              const uint32_t byte = code << (fa.bits() == 4 ? 2 : 1) | (fa.bits() == 4 ? 0xc3 : 0x81);
              word = (word & ~(255u << k % 4 * 8)) | byte << k % 4 * 8;
            }
          }
        for (uint32_t r = 0; r < 16; ++r)
          for (uint32_t k = 0; k < 32; ++k) {
            const uint32_t code = random() & ((1u << fb.bits()) - 1);
            b[r * 32 + k] = fb.of(code);
            put(m, kB, r, k, fb.bits(), code);
          }
        TensorMma mma;
        mma.kind = MmaKind::F8F6F4;
        mma.instruction = 1u << 4 | fa.code << 7 | fb.code << 10 | size_field(128, 16);
        mma.a_descriptor = kDescA, mma.b_descriptor = kDescB;
        mma.a_in_tmem = in_tmem, mma.a_tmem = 400;
        tcgen05_mma(m.warp(), 0, mma);
        int wrong = 0;
        for (uint32_t i = 0; i < 128; ++i)
          for (uint32_t j = 0; j < 16; ++j) {
            double sum = 0;  // at most 2 * 8 significant bits a product: exact
            for (uint32_t k = 0; k < 32; ++k) sum += a[i * 32 + k] * b[j * 32 + k];
            wrong += result(m, i, j) != static_cast<float>(sum);
          }
        INFO("formats " << fa.code << " " << fb.code << " TS " << in_tmem);
        CHECK(wrong == 0);
      }
}

TEST_CASE("4-bit elements with two or four block scales a row", "[engine][tcgen05]") {
  std::mt19937 random(4);
  const struct {
    MmaKind kind;
    int vector;
    bool ue4m3;
    uint32_t id_a, id_b;
  } forms[] = {{MmaKind::MXF4, 0, false, 0, 2},
               {MmaKind::MXF4, 2, false, 2, 0},
               {MmaKind::MXF4NVF4, 2, false, 0, 0},
               {MmaKind::MXF4NVF4, 4, false, 0, 0},
               {MmaKind::MXF4NVF4, 4, true, 0, 0}};
  for (const auto& f : forms)
    for (const bool in_tmem : {false, true}) {
      Machine m;
      REQUIRE(tcgen05_alloc(m.warp(), 1024, 512, 1));
      TensorMemory& tmem = *m.cta().tensor_memory;
      const uint32_t blocks = f.vector == 4 ? 4 : 2, n = 16;
      std::vector<double> a(128 * 64), b(n * 64), sa(128 * 4), sb(n * 4);
      // Scales near 1: every sum is exact.
      const auto scale = [&](double* real) {
        const uint32_t code = f.ue4m3 ? random() % 3 * 8 + 0x30 + random() % 8 : 126 + random() % 3;
        *real = f.ue4m3 ? std::ldexp(1 + (code & 7) / 8.0, static_cast<int>(code >> 3) - 7)
                        : std::ldexp(1.0, static_cast<int>(code) - 127);
        return code;
      };
      const auto place = [&](uint32_t column, uint32_t r, uint32_t byte, uint32_t code) {
        for (uint32_t quarter = 0; quarter < 4; ++quarter) {
          uint32_t& word = tmem.word(32 * quarter + r % 32, column + r / 32);
          word = (word & ~(255u << byte * 8)) | code << byte * 8;
        }
      };
      const auto fill = [&](uint32_t base, uint32_t rows, std::vector<double>& real,
                            std::vector<double>& scales, uint32_t column, uint32_t id, bool also_tmem) {
        for (uint32_t r = 0; r < rows; ++r) {
          for (uint32_t k = 0; k < 64; ++k) {
            const uint32_t code = random() % 16;
            real[r * 64 + k] = kE2M1.of(code);
            // Two elements a byte, the first low; 32 elements are 16 bytes of K.
            uint8_t& byte = *m.shared(base + r * 16 + k / 32 * 4096 + k % 32 / 2);
            byte = static_cast<uint8_t>(k % 2 ? (byte & 0x0f) | code << 4 : (byte & 0xf0) | code);
            if (also_tmem) {
              uint32_t& word = tmem.word(r, 400 + k / 8);
              word = (word & ~(15u << k % 8 * 4)) | code << k % 8 * 4;
            }
          }
          for (uint32_t s = 0; s < blocks; ++s) place(column, r, id + s, scale(&scales[r * 4 + s]));
        }
      };
      fill(kA, 128, a, sa, 300, f.id_a, in_tmem);
      fill(kB, n, b, sb, 310, f.id_b, false);
      TensorMma mma;
      mma.kind = f.kind, mma.scale_vector = f.vector;
      mma.instruction =
          1u << 7 | 1u << 10 | size_field(128, n) | (f.ue4m3 ? 0 : 1u << 23) | f.id_a << 29 | f.id_b << 4;
      mma.a_descriptor = kDescA, mma.b_descriptor = kDescB;
      mma.a_in_tmem = in_tmem, mma.a_tmem = 400;
      mma.scale_a = 300, mma.scale_b = 310;
      for (uint32_t i = 0; i < 128; ++i)
        for (uint32_t j = 0; j < n; ++j) tmem.word(i, j) = std::bit_cast<uint32_t>(static_cast<float>(i + j));
      mma.accumulate = true;
      tcgen05_mma(m.warp(), 0, mma);
      int wrong = 0;
      for (uint32_t i = 0; i < 128; ++i)
        for (uint32_t j = 0; j < n; ++j) {
          double sum = i + j;
          for (uint32_t k = 0; k < 64; ++k) {
            const uint32_t block = k * blocks / 64;
            sum += a[i * 64 + k] * b[j * 64 + k] * sa[i * 4 + block] * sb[j * 4 + block];
          }
          wrong += result(m, i, j) != static_cast<float>(sum);
        }
      INFO("kind " << static_cast<int>(f.kind) << " vector " << f.vector << " ue4m3 " << f.ue4m3 << " TS "
                   << in_tmem);
      CHECK(wrong == 0);

      place(310, 3, f.id_b + blocks - 1, f.ue4m3 ? 0x7f : 0xff);  // a NaN scale spoils its column alone
      tcgen05_mma(m.warp(), 0, mma);
      CHECK(tmem.word(7, 3) == 0x7fffffff);
      CHECK(std::isfinite(result(m, 7, 4)));
    }
}

TEST_CASE("scale ids and formats that 4-bit kinds do not have are refused", "[engine][tcgen05]") {
  TensorMma mma;
  const auto text = [&](MmaKind kind, int vector, uint32_t extra) {
    mma.kind = kind, mma.scale_vector = vector;
    mma.instruction = 1u << 7 | 1u << 10 | size_field(128, 16) | extra;
    return fault_of([&] { decode_instruction(mma); });
  };
  CHECK(text(MmaKind::MXF4, 2, 1u << 23).empty());
  CHECK(has(text(MmaKind::MXF4, 2, 0), "scales are UE8M0"));
  CHECK(has(text(MmaKind::MXF4, 4, 1u << 23), "scale_vec::4X does not exist"));
  CHECK(has(text(MmaKind::MXF4, 2, 1u << 23 | 1u << 4), "scale id 1"));
  CHECK(has(text(MmaKind::MXF4NVF4, 4, 2u << 4), "scale id 2"));
  CHECK(has(text(MmaKind::MXF4, 2, 1u << 23 | 1u << 8), "1 (E2M1) is needed"));
  CHECK(has(text(MmaKind::MXF4, 2, 1u << 23 | 1u << 16), "always K-major"));
}

TEST_CASE(".ws tiles of 32, 64 and 128 rows lie in four, two and one part", "[engine][tcgen05]") {
  // D[i][j] = i + 128 j with bf16 operands.
  for (const uint32_t rows : {32u, 64u, 128u})
    for (const uint32_t n : {64u, 128u})
      for (const bool in_tmem : {false, true}) {
        Machine m;
        REQUIRE(tcgen05_alloc(m.warp(), 1024, 512, 1));
        const auto bf16 = [](float x) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16); };
        for (uint32_t r = 0; r < 128; ++r) {
          uint16_t a[16] = {bf16(static_cast<float>(r)), bf16(1)}, b[16] = {bf16(1), bf16(128.0f * r)};
          for (uint32_t half = 0; half < 2; ++half) {
            std::memcpy(m.shared(kA + r * 16 + half * 4096), a + 8 * half, 16);
            std::memcpy(m.shared(kB + r * 16 + half * 4096), b + 8 * half, 16);
          }
          if (in_tmem && r < rows)  // every part of the data path reads a copy of its own
            for (uint32_t part = 0; part < 128 / rows; ++part)
              for (uint32_t c = 0; c < 8; ++c)
                std::memcpy(&m.cta().tensor_memory->word(r + rows * part, 400 + c), a + 2 * c, 4);
        }
        TensorMma mma;
        mma.weight_stationary = true;
        mma.instruction = 1u << 4 | 1u << 7 | 1u << 10 | size_field(rows, n);
        mma.a_descriptor = kDescA, mma.b_descriptor = kDescB;
        mma.a_in_tmem = in_tmem, mma.a_tmem = 400;
        mma.d = 32;
        tcgen05_mma(m.warp(), 0, mma);
        const uint32_t width = n * rows / 128;  // columns of tensor memory
        int wrong = 0;
        for (uint32_t i = 0; i < rows; ++i)
          for (uint32_t j = 0; j < n; ++j)
            wrong += result(m, i + rows * (j / width), 32 + j % width) != static_cast<float>(i + 128 * j);
        INFO("M " << rows << " N " << n << " TS " << in_tmem);
        CHECK(wrong == 0);
        CHECK(m.cta().tensor_memory->word(0, 32 + width) == 0xffffffff);
      }
  TensorMma mma;
  mma.weight_stationary = true;
  mma.instruction = 1u << 4 | size_field(128, 96);
  CHECK(has(fault_of([&] { decode_instruction(mma); }), "N is 96: 64, 128 or 256 with .ws"));
}

TEST_CASE("tcgen05.cp gives elements of 4 and 6 bits a byte each", "[engine][tcgen05]") {
  for (const int bits : {4, 6}) {
    Machine m;
    REQUIRE(tcgen05_alloc(m.warp(), 1024, 512, 1));
    for (uint32_t r = 0; r < 128; ++r)
      for (uint32_t k = 0; k < 32; ++k) put(m, kA, r, k, bits, (r * 5 + k * 3) & ((1u << bits) - 1));
    tcgen05_cp(m.warp(), 0, TmemCopyShape::S128x256b, 64, kDescA, 1,
               bits == 4 ? TmemCopyExpansion::B4x16P64 : TmemCopyExpansion::B6x16P32);
    int wrong = 0;
    for (uint32_t r = 0; r < 128; ++r)
      for (uint32_t k = 0; k < 32; ++k) {
        const uint32_t byte = m.cta().tensor_memory->word(r, 64 + k / 4) >> k % 4 * 8 & 255;
        wrong += byte != ((r * 5 + k * 3) & ((1u << bits) - 1)) << (bits == 4 ? 2 : 1);
      }
    CHECK(wrong == 0);
  }
}
