// cta_group::2: allocation by both CTAs, operands from both, layouts of D and of the scales, commit to both.
#include <nlohmann/json.hpp>

#include "emulator/engine_harness.hpp"
#include "engines/matrix_descriptor.hpp"
#include "engines/small_floats.hpp"
#include "support/vectors.hpp"

using namespace mxfa::emulator;
using namespace mxfa::emulator::test;
using mxfa::reference::load_vectors;
using nlohmann::json;

namespace {

uint64_t matrix(uint32_t start) {
  return start >> 4 | 128ull << 16 | 8ull << 32 | 1ull << 46;
}  // LBO 2048, SBO 128
uint32_t place(uint32_t row, uint32_t byte) {
  return row % 8 * 16 + row / 8 * 128 + byte % 16 + byte / 16 * 2048;
}
constexpr uint32_t kA = 0x2000, kB = 0x8000;

bool allocate(Machine& m, int rank, uint32_t columns = 512) {
  return tcgen05_alloc(m.warp(0, rank), m.address(1024, rank), columns, 2);
}
struct Pair : Machine {
  explicit Pair(Schedule::Kind kind = Schedule::Kind::Functional) : Machine(2, kind) {
    allocate(*this, 0);
    allocate(*this, 1);
    REQUIRE(allocate(*this, 0));
  }
  uint32_t& word(int rank, uint32_t lane, uint32_t column) {
    return cta(rank).tensor_memory->word(lane, column);
  }
  void bf16(int rank, uint32_t tile, uint32_t row, uint32_t k, float x) {
    const uint16_t h = float_to_bf16(x);
    std::memcpy(shared(tile + place(row, 2 * k), rank), &h, 2);
  }
  // A[i][k] and B[j][k] of the whole tile, each CTA its share: D[i][j] = i + 256 j.
  void fill(uint32_t m, uint32_t n) {
    for (int rank = 0; rank < 2; ++rank)
      for (uint32_t k = 0; k < 16; ++k) {
        for (uint32_t r = 0; r < m / 2; ++r) {
          const uint32_t i = static_cast<uint32_t>(rank) * m / 2 + r;
          bf16(rank, kA, r, k, k == 0 ? static_cast<float>(i) : k == 1 ? 1.0f : 0.0f);
        }
        for (uint32_t r = 0; r < n / 2; ++r) {
          const uint32_t j = static_cast<uint32_t>(rank) * n / 2 + r;
          bf16(rank, kB, r, k, k == 0 ? 1.0f : k == 1 ? static_cast<float>(256 * j) : 0.0f);
        }
      }
  }
};

TensorMma bf16_mma(uint32_t m, uint32_t n) {
  TensorMma mma;
  mma.cta_group = 2;
  mma.d = 32;
  mma.instruction = 1u << 4 | 1u << 7 | 1u << 10 | n / 8 << 17 | m / 16 << 24;
  mma.a_descriptor = matrix(kA);
  mma.b_descriptor = matrix(kB);
  return mma;
}

struct Place {
  int rank;
  uint32_t lane, column;
};
Place of_d(uint32_t m, uint32_t n, uint32_t i, uint32_t j) {
  if (m == 256) return {static_cast<int>(i / 128), i % 128, j};
  return {static_cast<int>(i / 64), i % 64 + (j >= n / 2 ? 64 : 0), j % (n / 2)};
}

}  // namespace

TEST_CASE("both CTAs of a pair allocate and free together, the same columns", "[engine][pair]") {
  Machine m(2);
  CHECK_FALSE(allocate(m, 0, 64));
  CHECK_FALSE(allocate(m, 0, 64));  // still alone
  const uint64_t epoch = m.cluster.epoch;
  CHECK(allocate(m, 1, 64));
  CHECK(m.cluster.epoch > epoch);
  CHECK(allocate(m, 0, 64));
  CHECK_FALSE(allocate(m, 1, 32));
  CHECK(allocate(m, 0, 32));
  CHECK(allocate(m, 1, 32));
  for (int rank = 0; rank < 2; ++rank) {
    uint32_t base;
    std::memcpy(&base, m.shared(1024, rank), 4);
    CHECK(base == 64);
  }
  CHECK_FALSE(tcgen05_dealloc(m.warp(0, 1), 0, 64, 2));
  CHECK(has(fault_of([&] { tcgen05_dealloc(m.warp(0, 0), 64, 32, 2); }), "both must execute the same"));
  CHECK(tcgen05_dealloc(m.warp(0, 0), 0, 64, 2));
  m.cta(0).live_warps = 0;  // the first to leave need not wait for the other
  CHECK(tcgen05_dealloc(m.warp(0, 1), 0, 64, 2));
  CHECK(
      has(fault_of([&] { tcgen05_dealloc(m.warp(0, 1), 64, 32, 2); }), "CTA rank 0 of the pair has exited"));
}

TEST_CASE("a pair's alloc waits for columns that are free in both", "[engine][pair]") {
  Machine m(2);
  m.cta(1).tensor_memory->owner[0] = 9;
  CHECK_FALSE(allocate(m, 0, 512));
  CHECK_FALSE(allocate(m, 1, 512));
  m.cta(1).tensor_memory->owner[0] = 0;
  CHECK(allocate(m, 0, 512));
  CHECK(allocate(m, 1, 512));
  Machine other(2);
  CHECK_FALSE(allocate(other, 0, 64));
  CHECK(has(fault_of([&] { allocate(other, 1, 128); }), "64 columns"));
}

TEST_CASE("a pair's mma takes A and B from both CTAs and writes D to both", "[engine][pair]") {
  const json& vectors = load_vectors("blackwell_isa.json");
  for (const uint32_t rows : {128u, 256u})
    for (const uint32_t n : {32u, 128u}) {
      CAPTURE(rows, n);
      Pair m;
      m.fill(rows, n);
      tcgen05_mma(m.warp(1, 1), 5, bf16_mma(rows, n));  // either CTA may issue
      int wrong = 0;
      for (uint32_t i = 0; i < rows; ++i)
        for (uint32_t j = 0; j < n; ++j) {
          const Place p = of_d(rows, n, i, j);
          wrong += m.word(p.rank, p.lane, 32 + p.column) !=
                   std::bit_cast<uint32_t>(static_cast<float>(i + 256 * j));
        }
      CHECK(wrong == 0);
      const uint32_t columns = rows == 256 ? n : n / 2;
      for (int rank = 0; rank < 2; ++rank) CHECK(m.word(rank, 0, 32 + columns) == 0xffffffff);
      int checked = 0;
      for (const json& v : vectors["accumulator"])
        if (v["cg"] == 2 && v["M"] == rows && v["N"] == n) {
          INFO(v.dump());
          const auto& p = v["cta_lane_col"];
          CHECK(std::bit_cast<float>(m.word(p[0], p[1], 32 + p[2].get<uint32_t>())) ==
                static_cast<float>(v["i"].get<uint32_t>() + 256 * v["j"].get<uint32_t>()));
          ++checked;
        }
      if (n == 128) CHECK(checked == 6);
    }
}

TEST_CASE("a pair's mma reads A from tensor memory, for M = 128 from both halves of the lanes",
          "[engine][pair]") {
  for (const uint32_t rows : {128u, 256u}) {
    Pair m;
    m.fill(rows, 64);
    TensorMma mma = bf16_mma(rows, 64);
    mma.a_in_tmem = true;
    mma.a_tmem = 256;
    for (int rank = 0; rank < 2; ++rank)
      for (uint32_t lane = 0; lane < 128; ++lane)
        for (uint32_t c = 0; c < 8; ++c) {
          const uint32_t i = static_cast<uint32_t>(rank) * rows / 2 + lane % (rows / 2);
          m.word(rank, lane, 256 + c) =
              c == 0 ? float_to_bf16(static_cast<float>(i)) | static_cast<uint32_t>(float_to_bf16(1.0f)) << 16
                     : 0;
        }
    tcgen05_mma(m.warp(), 0, mma);
    int wrong = 0;
    for (uint32_t i = 0; i < rows; ++i)
      for (uint32_t j = 0; j < 64; ++j) {
        const Place p = of_d(rows, 64, i, j);
        wrong +=
            m.word(p.rank, p.lane, 32 + p.column) != std::bit_cast<uint32_t>(static_cast<float>(i + 256 * j));
      }
    CHECK(wrong == 0);
  }
}

TEST_CASE("block scales of a pair: own rows of A, all columns of B, in the lanes that use them",
          "[engine][pair]") {
  for (const uint32_t rows : {128u, 256u}) {
    CAPTURE(rows);
    Pair m;
    constexpr uint32_t kN = 64;
    for (int rank = 0; rank < 2; ++rank)
      for (uint32_t r = 0; r < 128; ++r)
        for (uint32_t k = 0; k < 32; ++k) {  // one product of 1 x 1
          *m.shared(kA + place(r, k), rank) = k == 3 ? 0x38 : 0;
          if (r < kN / 2) *m.shared(kB + place(r, k), rank) = k == 3 ? 0x38 : 0;
        }
    const auto sfa = [](uint32_t i) { return 100 + i % 61; };
    const auto sfb = [](uint32_t j) { return 90 + j; };
    constexpr uint32_t kScaleA = 256, kScaleB = 260, kByte = 2;
    const auto put = [&](int rank, uint32_t lane, uint32_t column, uint32_t scale) {
      uint32_t& word = m.word(rank, lane, column);
      word = (word & ~(255u << 8 * kByte)) | scale << 8 * kByte;
    };
    const uint32_t local = rows / 2, half = rows == 128 ? kN / 2 : kN;
    for (int rank = 0; rank < 2; ++rank)
      for (uint32_t lane = 0; lane < 128; ++lane) {
        for (uint32_t c = 0; c < local / 32; ++c)
          put(rank, lane, kScaleA + c, sfa(static_cast<uint32_t>(rank) * local + 32 * c + lane % 32));
        for (uint32_t c = 0; c < half / 32; ++c)
          put(rank, lane, kScaleB + c, sfb((rows == 128 && lane >= 64 ? half : 0) + 32 * c + lane % 32));
      }
    TensorMma mma = bf16_mma(rows, kN);
    mma.kind = MmaKind::MXF8F6F4;
    mma.instruction = 1u << 23 | kByte << 4 | kByte << 29 | kN / 8 << 17 | rows / 16 << 24;
    mma.scale_a = kScaleA;
    mma.scale_b = kScaleB;
    tcgen05_mma(m.warp(), 0, mma);
    int wrong = 0;
    for (uint32_t i = 0; i < rows; ++i)
      for (uint32_t j = 0; j < kN; ++j) {
        const Place p = of_d(rows, kN, i, j);
        wrong += m.word(p.rank, p.lane, 32 + p.column) !=
                 std::bit_cast<uint32_t>(std::ldexp(1.0f, static_cast<int>(sfa(i) + sfb(j)) - 254));
      }
    CHECK(wrong == 0);
    m.word(1, 96, kScaleB) ^= 1u << 8 * kByte;
    CHECK(has(fault_of([&] { tcgen05_mma(m.warp(), 0, mma); }), "of B differs between lanes"));
  }
}

TEST_CASE("disabled lanes of a pair: four words a CTA", "[engine][pair]") {
  Pair m;
  m.fill(256, 32);
  TensorMma mma = bf16_mma(256, 32);
  mma.disable_lanes = std::array<uint32_t, 8>{1u << 7, 0, 0, 0, 0, 0, 1u << 3, 0};
  tcgen05_mma(m.warp(), 0, mma);
  CHECK(m.word(0, 7, 32) == 0xffffffff);
  CHECK(m.word(1, 67, 32) == 0xffffffff);
  CHECK(m.word(1, 7, 32) != 0xffffffff);
  CHECK(m.word(0, 67, 32) != 0xffffffff);
}

TEST_CASE("cp and commit of a pair act in both CTAs", "[engine][pair]") {
  Pair m(Schedule::Kind::Lazy);
  for (int rank = 0; rank < 2; ++rank) {
    std::memset(m.shared(kA, rank), 0x10 + rank, 512);
    mbarrier_init(m.warp(0, rank), m.address(2048, rank), 1);
  }
  tcgen05_cp(m.warp(), 0, TmemCopyShape::S32x128b, 64, matrix(kA), 2);
  tcgen05_commit(m.warp(), 0, m.address(2048), uint16_t{3}, 2);
  CHECK(m.word(1, 0, 64) == 0xffffffff);
  CHECK_FALSE(mbarrier_test_parity(m.warp(0, 1), m.address(2048, 1), 0));
  CHECK(has(engines_at_exit(m.cta(1)).at(0), "have not completed"));  // the peer's work uses this CTA
  m.fire_all();
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(m.word(rank, 97, 67) == 0x10101010u + 0x01010101u * static_cast<uint32_t>(rank));
    CHECK(mbarrier_test_parity(m.warp(0, rank), m.address(2048, rank), 0));
  }
}

TEST_CASE("what a pair's instructions refuse", "[engine][pair]") {
  Pair m;
  m.fill(256, 64);
  TensorMma mma = bf16_mma(256, 64);
  mma.d = 16u << 16;
  CHECK(has(fault_of([&] { tcgen05_mma(m.warp(), 0, mma); }), "its lane must be 0"));
  mma.d = 480;
  CHECK(has(fault_of([&] { tcgen05_mma(m.warp(), 0, mma); }), "columns [480, 544)"));
  mma = bf16_mma(128, 64);
  mma.d = 480;
  CHECK(fault_of([&] { tcgen05_mma(m.warp(), 0, mma); }).empty());  // 32 columns hold N = 64
  m.cta(1).tensor_memory->owner[15] = 0;
  CHECK(has(fault_of([&] { tcgen05_mma(m.warp(), 0, mma); }), "not allocated"));
  m.cta(1).live_warps = 0;
  CHECK(has(fault_of([&] { tcgen05_mma(m.warp(), 0, bf16_mma(256, 64)); }),
            "CTA rank 1 of the pair has exited"));
  Machine alone(1);
  CHECK(has(fault_of([&] { tcgen05_relinquish(alone.warp(), 2); }), "no other CTA to pair with"));
}
