// wgmma without an interpreter: order, agreement of the four warps, and the arithmetic of 8-bit floats.
#include <random>

#include "emulator/engine_harness.hpp"
#include "engines/operand_tile.hpp"
#include "engines/wgmma.hpp"

using namespace mxfa::emulator;
using namespace mxfa::emulator::test;

namespace {

constexpr uint32_t kA = 1024, kB = 4096;  // tiles without swizzle: K cores 128 bytes apart, row groups 256
uint64_t descriptor(uint32_t start) { return start >> 4 | 8ull << 16 | 16ull << 32; }

// m64n8 e4m3: the first element of the row of A, and of the column of B, matter; all others are zero.
struct Setup {
  Machine machine;
  std::vector<Row> registers = std::vector<Row>(16);  // 4 of D by warp
  Wgmma wgmma;

  explicit Setup(Schedule::Kind kind = Schedule::Kind::Functional) : machine(1, kind) {
    std::memset(machine.shared(kA), 0, 2048);
    std::memset(machine.shared(kB), 0, 256);
    wgmma.a = wgmma.b = Format::E4M3;
    wgmma.n = 8;
    wgmma.a_descriptor = descriptor(kA);
    wgmma.b_descriptor = descriptor(kB);
  }
  void set(uint32_t tile, uint32_t row, uint32_t k, uint8_t value) {
    *machine.shared(tile + row % 8 * 16 + row / 8 * 256 + k / 16 * 128 + k % 16) = value;
  }
  Row& d(int warp, int i = 0) { return registers[static_cast<size_t>(4 * warp + i)]; }
  void issue(int warp) { issue(warp, wgmma); }
  void issue(int warp, const Wgmma& w) {
    Row* rows[] = {&d(warp, 0), &d(warp, 1), &d(warp, 2), &d(warp, 3)};
    wgmma_issue(machine.warp(warp), w, std::span<Row* const>(rows, w.f16_result ? 2 : 4), {});
  }
  void issue_all() {
    for (int w = 0; w < 4; ++w) issue(w);
  }
  void commit_all() {
    for (int w = 0; w < 4; ++w) wgmma_commit(machine.warp(w));
  }
};

float as_float(uint32_t bits) { return std::bit_cast<float>(bits); }

}  // namespace

TEST_CASE("wgmma of 8-bit floats keeps 13 fractional bits", "[engine]") {
  const auto result = [](std::initializer_list<std::pair<uint8_t, uint8_t>> products, float c) {
    Setup s;
    uint32_t k = 0;
    for (const auto& [a, b] : products) s.set(kA, 0, k, a), s.set(kB, 0, k, b), ++k;
    s.d(0).lane[0] = std::bit_cast<uint32_t>(c);
    s.wgmma.accumulate = true;
    s.issue_all();
    s.commit_all();
    REQUIRE(wgmma_wait(s.machine.warp(0), 0));
    return as_float(s.d(0).lane[0]);
  };
  constexpr uint8_t kOne = 0x38, kMinusOne = 0xb8, k2Minus6 = 0x08, k2Minus7 = 0x04, k2Minus8 = 0x02;
  CHECK(result({{kOne, kOne}, {k2Minus7, k2Minus6}}, 0) == 1 + 0x1p-13f);
  CHECK(result({{kOne, kOne}, {k2Minus7, k2Minus7}}, 0) == 1);  // the second term is cut to nothing
  CHECK(result({{kOne, kOne}, {k2Minus7, k2Minus7}, {k2Minus7, k2Minus7}}, 0) == 1);  // each on its own
  CHECK(result({{kMinusOne, kOne}, {k2Minus8, k2Minus7}}, 0) == -1);                  // toward zero
  CHECK(result({}, 1 + 0x1p-20f) == 1);  // the accumulator is cut as well
  CHECK(result({}, 1 + 0x1p-13f) == 1 + 0x1p-13f);
  CHECK(result({{kOne, kOne}}, 0x1p-14f) == 1);
  CHECK(result({{kOne, kOne}}, 1 + 0x1p-13f) == 2);  // exponent 1 after the sum: 13 bits of the result remain
}

TEST_CASE("short sums: vector code agrees with the integer reference", "[engine]") {
  std::mt19937 random(7);
  auto o = std::make_unique<Operands>();
  for (int round = 0; round < 40; ++round) {
    const Format format = round % 2 ? Format::E4M3 : Format::E5M2;
    std::memset(static_cast<void*>(o.get()), 0, sizeof(Operands));
    o->m = 64, o->n = 16, o->k = 32;
    std::vector<uint8_t> a(Operands::kM * 32), b(Operands::kN * 32);
    for (uint8_t& x : a) x = static_cast<uint8_t>(random() % (round < 30 ? 0x7c : 256) | (random() & 0x80));
    for (uint8_t& x : b) x = static_cast<uint8_t>(random() % 0x7c | (random() & 0x80));
    decode_a(*o, format, false, a.data());
    decode_b(*o, format, false, b.data());
    std::vector<uint32_t> words(64 * 16);
    for (uint32_t& w : words) {
      const uint32_t exponent = round % 5 == 0 ? random() % 256 : 120 + random() % 20;
      w = (random() & 0x807fffff) | exponent << 23;
    }
    const std::vector<uint32_t> before = words;
    Accumulator d;
    d.d = words.data();
    d.pitch = 64;
    for (uint8_t g = 0; g < 4; ++g) d.lane[g] = static_cast<uint8_t>(16 * g), d.enabled[g] = 0xffff;
    d.accumulate = true;
    d.short_sums = true;
    fused_sums(*o, d, Numerics::Exact);
    int wrong = 0;
    for (int j = 0; j < 16; ++j)
      for (int i = 0; i < 64; ++i)
        wrong += words[static_cast<size_t>(j * 64 + i)] !=
                 fused_sum_reference(*o, i, j, true, before[static_cast<size_t>(j * 64 + i)], 0, false, 13);
    CHECK(wrong == 0);
  }
}

TEST_CASE("a wgmma waits for all four warps", "[engine]") {
  Setup s;
  s.set(kA, 0, 0, 0x38);
  s.set(kB, 0, 0, 0x40);
  for (int w = 0; w < 3; ++w) s.issue(w);
  wgmma_commit(s.machine.warp(0));
  CHECK(!wgmma_wait(s.machine.warp(0), 0));
  CHECK(has(wgmma_describe(s.machine.warp(0)), "warps 3 "));
  std::vector<std::string> findings;
  wgmma_at_exit(s.machine.cta(), findings);
  REQUIRE(findings.size() == 1);
  CHECK(has(findings[0], "executed by 3 of its 4 warps"));
  const uint64_t epoch = s.machine.cluster.epoch;
  s.issue(3);
  CHECK(s.machine.cluster.epoch != epoch);  // the waiting warp is tried again
  CHECK(s.d(0).lane[0] == 0xffffffff);      // nothing is in registers before the wait
  CHECK(wgmma_wait(s.machine.warp(0), 0));
  CHECK(as_float(s.d(0).lane[0]) == 2);
  CHECK(as_float(s.d(0).lane[1]) == 0);
}

TEST_CASE("a late wgmma reads shared memory when it is performed", "[engine]") {
  Setup s(Schedule::Kind::Lazy);
  s.set(kA, 0, 0, 0x38);
  s.set(kB, 0, 0, 0x38);
  s.issue_all();
  s.commit_all();
  Wgmma second = s.wgmma;
  second.accumulate = true;
  for (int w = 0; w < 4; ++w) s.issue(w, second);
  s.commit_all();
  s.set(kB, 0, 0, 0x40);  // too early: nobody has waited
  CHECK(wgmma_wait(s.machine.warp(0), 1));
  CHECK(s.d(0).lane[0] == 0xffffffff);  // the second group still owns the accumulator
  s.set(kB, 0, 0, 0x48);
  std::vector<std::string> findings;
  wgmma_at_exit(s.machine.cta(), findings);
  CHECK(findings.size() == 1);
  CHECK(wgmma_wait(s.machine.warp(0), 0));
  CHECK(as_float(s.d(0).lane[0]) == 2 + 4);
}

TEST_CASE("what wgmma refuses", "[engine]") {
  {
    Setup s;
    s.issue(0);
    Wgmma other = s.wgmma;
    other.b_descriptor += 16;
    CHECK(has(fault_of([&] { s.issue(1, other); }), "all four must agree"));
  }
  {
    Setup s;
    s.machine.cta().threads = 96;
    CHECK(has(fault_of([&] { s.issue(0); }), "is not complete"));
  }
  {
    Setup s;  // the registers of a running instruction, for another shape
    s.issue_all();
    Wgmma half = s.wgmma;
    half.f16_result = true;
    CHECK(has(fault_of([&] { s.issue(0, half); }), "instruction in flight"));
  }
  Setup s;
  const auto with = [&](uint64_t bits) {
    Wgmma w = s.wgmma;
    w.b_descriptor |= bits;
    return fault_of([&] { s.issue(0, w); });
  };
  CHECK(has(with(1ull << 46), "belong to tcgen05"));
  CHECK(has(with(1ull << 49), "base offset"));
  CHECK(has(with(1ull << 55), "reserved bit"));
  CHECK(with(1ull << 62 | 0x10).empty());  // any multiple of 16: the swizzle goes by address
}
