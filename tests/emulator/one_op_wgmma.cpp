// wgmma end to end: every type, operands in shared memory (K-major and MN-major, every swizzle) and in
// registers, all N. Operands are small integers, so every sum is exact and the comparison is by bits; the
// formulas of layouts and fragments are those of PTX ISA 9.7.15.5, written out again here.
#include <cstring>

#include "one_op_operands.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;

namespace {

int a_value(int row, int k) { return (row * 5 + k * 3) % 7 - 3; }
int b_value(int row, int k) { return (row * 3 + k * 2 + 1) % 5 - 2; }

int bits_of_type(const std::string& type) {
  return type == "tf32" ? 32 : type == "f16" || type == "bf16" ? 16 : 8;
}

struct Tile {
  int swizzle = 128;  // bytes; 0: none
  bool mn_major = false;
  // Strides of the layouts below, chosen with gaps so that a confusion of the two shows.
  uint32_t leading() const { return mn_major ? (swizzle ? 4096 : 512) : 1280; }
  uint32_t stride() const {
    if (!swizzle) return mn_major ? 1152 : 128;
    return mn_major ? 2048 : static_cast<uint32_t>(8 * swizzle);
  }
  // Byte offset of element (row, k) from the tile's start, before the swizzle.
  uint32_t place(int row, int k, int bytes) const {
    const uint32_t w = swizzle ? static_cast<uint32_t>(swizzle) : 16;
    const auto r = static_cast<uint32_t>(row), kk = static_cast<uint32_t>(k),
               n = static_cast<uint32_t>(bytes);
    if (!mn_major) {
      if (swizzle) return r % 8 * w + r / 8 * stride() + kk * n;
      return r % 8 * 16 + r / 8 * stride() + kk * n / 16 * leading() + kk * n % 16;
    }
    const uint32_t per_line = w / n;
    if (swizzle) return n * (r % per_line) + r / per_line * leading() + kk % 8 * w + kk / 8 * stride();
    return n * (r % 8) + r / 8 * stride() + kk % 8 * 16 + kk / 8 * leading();
  }
  uint32_t swizzled(uint32_t address) const {
    const uint32_t keep = swizzle == 128 ? 0x70 : swizzle == 64 ? 0x30 : swizzle == 32 ? 0x10 : 0;
    return address ^ (address >> 3 & keep);
  }
  uint64_t descriptor(uint32_t start) const {
    const uint64_t mode = swizzle == 128 ? 1 : swizzle == 64 ? 2 : swizzle == 32 ? 3 : 0;
    return (start & 0x3ffff) >> 4 | uint64_t{leading() >> 4} << 16 | uint64_t{stride() >> 4} << 32 |
           mode << 62;
  }
};

struct Test {
  std::string d = "f32", a = "bf16", b = "bf16";
  int n = 64;
  bool registers = false;
  Tile a_tile = {}, b_tile = {};
  int sign_a = 1, sign_b = 1;
  int k() const { return 256 / bits_of_type(a); }
  int count() const { return d == "f16" ? n / 4 : n / 2; }
};

constexpr uint32_t kB = 24 * 1024, kShared = 112 * 1024;  // where B lies; what the tiles with their gaps need
// Dynamic shared memory starts at the reserved 1024 bytes, as every alignment asked for here divides them.
constexpr uint32_t kBase = 1024;

std::vector<uint32_t> operands(const Test& t) {
  std::vector<uint8_t> bytes(kShared, 0xff);
  const auto put = [&](const Tile& tile, uint32_t start, int rows, const std::string& type, auto value) {
    const int size = bits_of_type(type) / 8;
    for (int row = 0; row < rows; ++row)
      for (int k = 0; k < t.k(); ++k) {
        const uint32_t raw = encode(type, value(row, k));
        const uint32_t at = tile.swizzled(kBase + start + tile.place(row, k, size)) - kBase;
        REQUIRE(at + 4 <= kShared);
        std::memcpy(&bytes[at], &raw, static_cast<size_t>(size));
      }
  };
  put(t.a_tile, 0, 64, t.a, a_value);
  put(t.b_tile, kB, t.n, t.b, b_value);
  std::vector<uint32_t> words(kShared / 4);
  std::memcpy(words.data(), bytes.data(), kShared);
  return words;
}

std::string list(const std::string& prefix, int count) {
  std::string text = "{";
  for (int i = 0; i < count; ++i) text += (i ? ", " + prefix : prefix) + std::to_string(i);
  return text + "}";
}

const std::string kDynamic = ".extern .shared .align 1024 .b8 dynamic[];\n";

// Shared memory as `in` has it; A registers of the thread from shared memory where wanted.
std::string prologue(const Test& t) {
  std::string text =
      "  .reg .b32 %d<128>, %a<4>;\n  mov.u32 %r90, dynamic;\n  mov.u32 %r91, %thread;\nfill:\n"
      "  mad.wide.u32 %w39, %r91, 4, %in;\n  ld.global.u32 %r92, [%w39];\n"
      "  mad.lo.u32 %r93, %r91, 4, %r90;\n  st.shared.u32 [%r93], %r92;\n  add.u32 %r91, %r91, 128;\n"
      "  setp.lt.u32 %p19, %r91, " +
      std::to_string(kShared / 4) + ";\n  @%p19 bra fill;\n  fence.proxy.async.shared::cta;\n  bar.sync 0;\n";
  text += "  mov.b64 %w1, " + std::to_string(t.a_tile.descriptor(kBase)) + ";\n  mov.b64 %w2, " +
          std::to_string(t.b_tile.descriptor(kBase + kB)) + ";\n";
  if (!t.registers) return text;
  // Register j of a lane: row 16 warp + lane / 4 + 8 (j & 1), bytes 4 (lane % 4) + 16 (j >> 1); the tile of A
  // is K-major without swizzle: row r at (r % 8) * 16 + (r / 8) * 128, its second 16 bytes 1280 further.
  for (int j = 0; j < 4; ++j)
    text +=
        "  shr.u32 %r1, %lane, 2;\n  and.b32 %r2, %lane, 3;\n  shl.b32 %r3, %warp, 1;\n  add.u32 %r3, %r3, " +
        std::to_string(j & 1) +
        ";\n  mad.lo.u32 %r4, %r3, 128, %r90;\n  mad.lo.u32 %r4, %r1, 16, %r4;\n  mad.lo.u32 %r4, %r2, 4, "
        "%r4;\n"
        "  ld.shared.u32 %a" +
        std::to_string(j) + ", [%r4+" + std::to_string(1280 * (j >> 1)) + "];\n";
  return text;
}

std::string mma(const Test& t, const std::string& scale_d, const std::string& prefix = "%d") {
  const bool integer = t.d == "s32", sixteen = bits_of_type(t.a) == 16;
  std::string text = "  wgmma.mma_async.sync.aligned.m64n" + std::to_string(t.n) + "k" +
                     std::to_string(t.k()) + "." + t.d + "." + t.a + "." + t.b + " " +
                     list(prefix, t.count()) + ", " + (t.registers ? list("%a", 4) : "%w1") + ", %w2, " +
                     scale_d;
  if (!integer) text += ", " + std::to_string(t.sign_a) + ", " + std::to_string(t.sign_b);
  if (sixteen && !t.registers) text += t.a_tile.mn_major ? ", 1" : ", 0";
  if (sixteen) text += t.b_tile.mn_major ? ", 1" : ", 0";
  return text + ";\n";
}

std::string store(const Test& t, const std::string& prefix = "%d", int offset = 0) {
  std::string text = "  mad.wide.u32 %w38, %thread, " + std::to_string(4 * t.count()) + ", %out;\n";
  for (int i = 0; i < t.count(); ++i)
    text += "  st.global.b32 [%w38+" + std::to_string(4 * i + offset) + "], " + prefix + std::to_string(i) +
            ";\n";
  return text;
}

const std::string kFence = "  wgmma.fence.sync.aligned;\n", kCommit = "  wgmma.commit_group.sync.aligned;\n";
std::string wait(int n) { return "  wgmma.wait_group.sync.aligned " + std::to_string(n) + ";\n"; }

int dot(const Test& t, int row, int column) {
  int sum = 0;
  for (int k = 0; k < t.k(); ++k) sum += decoded(t.a, a_value(row, k)) * decoded(t.b, b_value(column, k));
  return sum * t.sign_a * t.sign_b;
}

// Result registers that differ from `times` products.
int wrong(const Test& t, const std::vector<uint32_t>& out, int times, size_t first = 0) {
  int count = 0;
  const auto element = [&](int thread, int i) {
    const int lane = thread % 32;
    return times *
           dot(t, 16 * (thread / 32) + lane / 4 + 8 * (i >> 1 & 1), 8 * (i >> 2) + 2 * (lane % 4) + (i & 1));
  };
  for (int thread = 0; thread < 128; ++thread)
    for (int r = 0; r < t.count(); ++r) {
      uint32_t expected;
      if (t.d == "f16")
        expected = half(element(thread, 2 * r)) | static_cast<uint32_t>(half(element(thread, 2 * r + 1)))
                                                      << 16;
      else if (t.d == "s32")
        expected = static_cast<uint32_t>(element(thread, r));
      else
        expected = bits_of(static_cast<float>(element(thread, r)));
      count += out[first + static_cast<size_t>(thread * t.count() + r)] != expected;
    }
  return count;
}

// D = A B, then D += A B in the same group.
void check(const Test& t) {
  CAPTURE(t.d, t.a, t.b, t.n, t.registers, t.a_tile.swizzle, t.a_tile.mn_major, t.b_tile.swizzle,
          t.b_tile.mn_major);
  const auto out = run_kernel({prologue(t) + kFence + mma(t, "0") + "  setp.ge.u32 %p1, %thread, 0;\n" +
                                   mma(t, "%p1") + kCommit + wait(0) + store(t),
                               kDynamic, "sm_90a", 128, 1, 1, kShared},
                              operands(t), static_cast<size_t>(128 * t.count()));
  CHECK(wrong(t, out, 2) == 0);
}

}  // namespace

TEST_CASE("wgmma: every N", "[one_op]") {
  if (!can_run("sm_90a")) return;
  for (int n = 8; n <= 256; n += 8) check({.n = n});
  for (int n : {8, 16, 24, 32, 48, 112, 256}) check({.d = "s32", .a = "s8", .b = "s8", .n = n});
}

TEST_CASE("wgmma: every combination of types, A in shared memory and in registers", "[one_op]") {
  if (!can_run("sm_90a")) return;
  const std::vector<std::vector<std::string>> types = {
      {"f32", "bf16", "bf16"}, {"f32", "f16", "f16"},   {"f16", "f16", "f16"},   {"f32", "tf32", "tf32"},
      {"f32", "e4m3", "e4m3"}, {"f32", "e4m3", "e5m2"}, {"f32", "e5m2", "e4m3"}, {"f32", "e5m2", "e5m2"},
      {"f16", "e4m3", "e4m3"}, {"f16", "e5m2", "e4m3"}, {"s32", "s8", "s8"},     {"s32", "s8", "u8"},
      {"s32", "u8", "s8"},     {"s32", "u8", "u8"}};
  for (const auto& t : types) {
    check({.d = t[0], .a = t[1], .b = t[2], .n = 32});
    check({.d = t[0], .a = t[1], .b = t[2], .n = 32, .registers = true, .a_tile = {0}});
  }
}

TEST_CASE("wgmma: operands in every layout", "[one_op]") {
  if (!can_run("sm_90a")) return;
  for (int swizzle : {0, 32, 64, 128}) {
    for (const char* type : {"tf32", "f16", "e4m3"})
      check({.a = type, .b = type, .n = 40, .a_tile = {swizzle}, .b_tile = {swizzle}});
    check({.n = 96, .a_tile = {swizzle, true}, .b_tile = {128}});
    check({.n = 96, .a_tile = {128}, .b_tile = {swizzle, true}});
    check({.a = "f16", .b = "f16", .n = 136, .a_tile = {swizzle, true}, .b_tile = {swizzle, true}});
  }
}

TEST_CASE("wgmma: imm-scale-a and imm-scale-b change signs", "[one_op]") {
  if (!can_run("sm_90a")) return;
  check({.n = 16, .sign_a = -1});
  check({.n = 16, .registers = true, .a_tile = {0}, .sign_b = -1});
  check({.a = "e4m3", .b = "e4m3", .n = 16, .sign_a = -1, .sign_b = -1});
}

TEST_CASE("wgmma: wait_group N leaves the N youngest groups running", "[one_op]") {
  if (!can_run("sm_90a")) return;
  const Test t{.n = 16};
  // Two accumulators in two groups; the first is stored after wait_group 1, both registers sets are reused
  // later.
  const std::string body = prologue(t) + "  .reg .b32 %e<8>;\n" + kFence + mma(t, "0") + kCommit +
                           mma(t, "0", "%e") + mma(t, "1", "%e") + kCommit + wait(1) + store(t) +
                           "  add.u64 %out, %out, 4096;\n" + wait(0) + store(t, "%e");
  for (const char* schedule : {"functional", "lazy", "eager", "random", "pct", "split"}) {
    setenv("MXFA_EMU_SCHEDULE", schedule, 1);
    const auto out = run_kernel({body, kDynamic, "sm_90a", 128, 1, 1, kShared}, operands(t), 2048);
    unsetenv("MXFA_EMU_SCHEDULE");
    CHECK(wrong(t, out, 1) == 0);
    CHECK(wrong(t, out, 2, 1024) == 0);
  }
}

TEST_CASE("wgmma: accumulators read before their wait are not there", "[one_op][emulator-only]") {
  if (!can_run("sm_90a")) return;
  const Test t{.n = 8};
  for (const char* schedule : {"functional", "lazy"}) {
    setenv("MXFA_EMU_SCHEDULE", schedule, 1);
    const auto out = run_kernel({prologue(t) + kFence + mma(t, "0") + kCommit + wait(1) + store(t) + wait(0),
                                 kDynamic, "sm_90a", 128, 1, 1, kShared},
                                operands(t), 512);
    unsetenv("MXFA_EMU_SCHEDULE");
    for (const uint32_t word : out) CHECK(word == 0xffffffff);
  }
}
