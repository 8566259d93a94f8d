// Tensor-core instructions, end to end: operands through shared memory, results through tensor memory or
// registers. Operands are small integers and powers of two, so every sum is exact in any order and the
// comparison is by bits.
#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "one_op.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;

namespace {

const std::string kDynamic = ".extern .shared .align 1024 .b8 dynamic[];\n";

std::string number(uint64_t value) { return std::to_string(value); }

// `count` words from %in + offset to shared memory at dynamic + offset, by 128 threads.
std::string fill_shared(uint32_t words) {
  return "  mov.u32 %r90, dynamic;\n  mov.u32 %r91, %thread;\nfill:\n  mad.wide.u32 %w39, %r91, 4, %in;\n  "
         "ld.global.u32 %r92, [%w39];\n"
         "  mad.lo.u32 %r93, %r91, 4, %r90;\n  st.shared.u32 [%r93], %r92;\n  add.u32 %r91, %r91, 128;\n  "
         "setp.lt.u32 %p19, %r91, " +
         number(words) + ";\n  @%p19 bra fill;\n  fence.proxy.async.shared::cta;\n  bar.sync 0;\n";
}

// Columns allocated by warp 0; the address is in %r70 of every thread, lanes of this warp's quarter in %r71.
std::string allocate(int columns) {
  return "  .shared .align 8 .b32 slot;\n  .shared .align 8 .b64 gate;\n  mov.u32 %r72, slot;\n  mov.u32 "
         "%r80, gate;\n  setp.eq.u32 %p17, %warp, 0;\n"
         "  setp.eq.u32 %p18, %thread, 0;\n  @!%p17 bra allocated;\n"
         "  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r72], " +
         std::to_string(columns) +
         ";\n"
         "  tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\nallocated:\n  @%p18 "
         "mbarrier.init.shared::cta.b64 [%r80], 1;\n"
         "  fence.mbarrier_init.release.cluster;\n  tcgen05.fence::before_thread_sync;\n  bar.sync 0;\n  "
         "tcgen05.fence::after_thread_sync;\n"
         "  ld.shared.u32 %r70, [%r72];\n  shl.b32 %r71, %warp, 21;\n  add.u32 %r71, %r71, %r70;\n";
}
std::string release(int columns) {
  return "  tcgen05.fence::before_thread_sync;\n  bar.sync 0;\n  @!%p17 bra released;\n  "
         "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r70, " +
         std::to_string(columns) + ";\nreleased:\n";
}
const std::string kCommitAndWait =
    "  tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r80];\nissued:\n"
    "wait_mma:\n  mbarrier.try_wait.parity.shared::cta.b64 %p16, [%r80], 0;\n  @!%p16 bra wait_mma;\n  "
    "tcgen05.fence::after_thread_sync;\n";

// Registers %r1..%rN as a list.
std::string registers(int count) {
  std::string text = "{";
  for (int i = 1; i <= count; ++i) text += (i > 1 ? ", %r" : "%r") + std::to_string(i);
  return text + "}";
}
// Stores %r1..%rN of this thread at out[thread * N].
std::string store_registers(int count) {
  std::string text = "  mad.wide.u32 %w38, %thread, " + std::to_string(4 * count) + ", %out;\n";
  for (int i = 0; i < count; ++i)
    text += "  st.global.u32 [%w38+" + std::to_string(4 * i) + "], %r" + std::to_string(i + 1) + ";\n";
  return text;
}

// Small integers with both signs, exact in bf16 and e4m3.
int element(int row, int k) { return (row * 5 + k * 3) % 7 - 3; }
uint16_t bf16(int value) { return static_cast<uint16_t>(bits_of(static_cast<float>(value)) >> 16); }
uint8_t e4m3(int value) {  // -3..3
  static const uint8_t codes[] = {0x00, 0x38, 0x40, 0x44};
  return static_cast<uint8_t>(codes[std::abs(value)] | (value < 0 ? 0x80 : 0));
}

// K-major without swizzle: core matrices of 8 rows of 16 bytes; those next along K follow each other, then
// those along M or N.
size_t core_offset(int row, int byte, int row_bytes) {
  const int cores_along_k = row_bytes / 16;
  return static_cast<size_t>((row / 8 * cores_along_k + byte / 16) * 128 + row % 8 * 16 + byte % 16);
}
constexpr uint64_t kLeading = 128;                                     // between core matrices along K
uint64_t stride_bytes(int row_bytes) { return row_bytes / 16 * 128; }  // between core matrices along M or N

void put(std::vector<uint8_t>& bytes, size_t offset, const void* data, size_t size) {
  if (bytes.size() < offset + size) bytes.resize(offset + size);
  __builtin_memcpy(bytes.data() + offset, data, size);
}

std::vector<uint32_t> words_of(std::vector<uint8_t> bytes) {
  bytes.resize((bytes.size() + 3) / 4 * 4);
  std::vector<uint32_t> words(bytes.size() / 4);
  __builtin_memcpy(words.data(), bytes.data(), bytes.size());
  return words;
}

// %w<n> = matrix descriptor of shared memory at dynamic + offset.  `high` holds everything but the address.
std::string descriptor(const std::string& reg, uint32_t offset, uint64_t high) {
  return "  add.u32 %r95, %r90, " + number(offset) +
         ";\n  shr.u32 %r95, %r95, 4;\n  and.b32 %r95, %r95, 0x3fff;\n  cvt.u64.u32 " + reg +
         ", %r95;\n  or.b64 " + reg + ", " + reg + ", " + number(high) + ";\n";
}

// A of m rows, and behind it B of n rows, K-major: what wgmma and tcgen05.mma read without a swizzle.
std::vector<uint32_t> bf16_operands(int m, int n, int depth) {
  std::vector<uint8_t> bytes;
  for (int k = 0; k < depth; ++k) {
    for (int row = 0; row < m; ++row) {
      const uint16_t value = bf16(element(row, k));
      put(bytes, core_offset(row, 2 * k, 2 * depth), &value, 2);
    }
    for (int row = 0; row < n; ++row) {
      const uint16_t value = bf16(element(row + 1, 2 * k));
      put(bytes, size_t(m) * depth * 2 + core_offset(row, 2 * k, 2 * depth), &value, 2);
    }
  }
  return words_of(bytes);
}

}  // namespace

TEST_CASE("tensor memory gives back what tcgen05.st put there, each warp in its quarter", "[one_op]") {
  if (!can_run("sm_100a")) return;
  std::string body = allocate(32);
  for (int i = 1; i <= 8; ++i)
    body += "  mad.lo.u32 %r" + std::to_string(i) + ", %thread, 100, " + std::to_string(i) + ";\n";
  body += "  tcgen05.st.sync.aligned.32x32b.x8.b32 [%r71], " + registers(8) +
          ";\n  tcgen05.wait::st.sync.aligned;\n";
  for (int i = 1; i <= 8; ++i) body += "  mov.u32 %r" + std::to_string(i) + ", 0;\n";
  // Two loads of four columns each, the upper ones first.
  body +=
      "  add.u32 %r73, %r71, 4;\n  tcgen05.ld.sync.aligned.32x32b.x4.b32 {%r1, %r2, %r3, %r4}, [%r73];\n"
      "  tcgen05.ld.sync.aligned.32x32b.x4.b32 {%r5, %r6, %r7, %r8}, [%r71];\n  "
      "tcgen05.wait::ld.sync.aligned;\n" +
      store_registers(8) + release(32);
  const auto out = run_kernel({body, "", "sm_100a", 128}, {}, 128 * 8);
  for (uint32_t thread = 0; thread < 128; ++thread) {
    for (uint32_t i = 0; i < 8; ++i) CHECK(out[thread * 8 + i] == thread * 100 + 1 + (i + 4) % 8);
  }
}

TEST_CASE("tcgen05.ld.red reduces the columns of each thread beside the load", "[one_op]") {
  if (!can_run("sm_103a")) return;
  // Columns 0, -0, thread - 40, -thread, as floats; thread 9 has a NaN.
  std::string body = allocate(32);
  body +=
      "  cvt.rn.f32.u32 %f1, %thread;\n  add.f32 %f2, %f1, 0fC2200000;\n  neg.f32 %f3, %f1;\n"
      "  setp.eq.u32 %p1, %thread, 9;\n  selp.f32 %f3, 0f7FC00000, %f3, %p1;\n"
      "  mov.b32 %r1, 0;\n  mov.b32 %r2, 0x80000000;\n  mov.b32 %r3, %f2;\n  mov.b32 %r4, %f3;\n"
      "  tcgen05.st.sync.aligned.32x32b.x4.b32 [%r71], {%r1, %r2, %r3, %r4};\n"
      "  tcgen05.wait::st.sync.aligned;\n"
      "  tcgen05.ld.red.sync.aligned.32x32b.x4.max.NaN.f32 {%f11, %f12, %f13, %f14}, %f15, [%r71];\n"
      "  tcgen05.ld.red.sync.aligned.32x32b.x4.max.f32 {%f11, %f12, %f13, %f14}, %f16, [%r71];\n"
      "  tcgen05.ld.red.sync.aligned.32x32b.x2.min.f32 {%f11, %f12}, %f17, [%r71];\n"
      "  tcgen05.ld.red.sync.aligned.32x32b.x4.max.abs.f32 {%f11, %f12, %f13, %f14}, %f18, [%r71];\n"
      "  tcgen05.ld.red.sync.aligned.32x32b.x4.min.s32 {%r11, %r12, %r13, %r14}, %r16, [%r71];\n"
      "  tcgen05.ld.red.sync.aligned.32x32b.x4.max.u32 {%r11, %r12, %r13, %r14}, %r17, [%r71];\n"
      "  tcgen05.wait::ld.sync.aligned;\n"
      "  mov.b32 %r1, %f15;\n  mov.b32 %r2, %f16;\n  mov.b32 %r3, %f17;\n  mov.b32 %r4, %f18;\n"
      "  mov.b32 %r5, %r16;\n  mov.b32 %r6, %r17;\n  mov.b32 %r7, %r13;\n  mov.b32 %r8, %f14;\n" +
      store_registers(8) + release(32);
  const auto out = run_kernel({body, "", "sm_103a", 128}, {}, 128 * 8);
  for (uint32_t thread = 0; thread < 128; ++thread) {
    CAPTURE(thread);
    const float up = static_cast<float>(thread) - 40.0f, down = -static_cast<float>(thread);
    const auto bits = [](float x) { return std::bit_cast<uint32_t>(x); };
    const uint32_t fourth = thread == 9 ? 0x7fc00000 : bits(down);
    CHECK(out[thread * 8] == (thread == 9 ? 0x7fffffff : bits(std::max(up, 0.0f))));
    CHECK(out[thread * 8 + 1] == bits(std::max(up, 0.0f)));
    CHECK(out[thread * 8 + 2] == 0x80000000);
    CHECK(out[thread * 8 + 3] == bits(thread == 9 ? 31.0f : std::max(std::fabs(up), -down)));
    const uint32_t words[4] = {0, 0x80000000, bits(up), fourth};
    CHECK(out[thread * 8 + 4] == 0x80000000);
    CHECK(out[thread * 8 + 5] == *std::max_element(words, words + 4));
    CHECK(out[thread * 8 + 6] == bits(up));
    CHECK(out[thread * 8 + 7] == fourth);
  }
}

TEST_CASE("tcgen05.mma kind::f16 multiplies, and accumulates where asked", "[one_op]") {
  if (!can_run("sm_100a")) return;
  constexpr int kM = 128, kN = 32, kK = 16;
  const size_t b_offset = kM * kK * 2;
  const auto in = bf16_operands(kM, kN, kK);
  // Version 1 in bits 46-48, no swizzle.
  const uint64_t high = (kLeading >> 4) << 16 | (stride_bytes(2 * kK) >> 4) << 32 | 1ull << 46;
  const uint32_t instruction =
      1 << 4 | 1 << 7 | 1 << 10 | (kN >> 3) << 17 | (kM >> 4) << 24;  // D f32, A and B bf16
  const auto out =
      run_kernel({fill_shared(in.size()) + allocate(32) + descriptor("%w1", 0, high) +
                      descriptor("%w2", b_offset, high) + "  @!%p18 bra issued;\n  mov.u32 %r60, " +
                      number(instruction) +
                      ";\n  setp.ne.u32 %p1, %thread, 0;\n  setp.eq.u32 %p2, %thread, 0;\n"
                      "  tcgen05.mma.cta_group::1.kind::f16 [%r70], %w1, %w2, %r60, %p1;\n"
                      "  tcgen05.mma.cta_group::1.kind::f16 [%r70], %w1, %w2, %r60, %p2;\n" +
                      kCommitAndWait + "  tcgen05.ld.sync.aligned.32x32b.x32.b32 " + registers(32) +
                      ", [%r71];\n  tcgen05.wait::ld.sync.aligned;\n" + store_registers(32) + release(32),
                  kDynamic, "sm_100a", 128, 1, 1, 16384},
                 in, kM * kN);
  int wrong = 0;
  for (int row = 0; row < kM; ++row) {
    for (int column = 0; column < kN; ++column) {
      int sum = 0;
      for (int k = 0; k < kK; ++k) sum += element(row, k) * element(column + 1, 2 * k);
      wrong += out[row * kN + column] !=
               bits_of(static_cast<float>(2 * sum));  // twice the product: the second added to the first
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("block-scaled tcgen05.mma takes the scales that tcgen05.cp brought, by their id", "[one_op]") {
  if (!can_run("sm_100a")) return;
  constexpr int kM = 128, kN = 32, kK = 32;
  for (int id = 0; id < 4; ++id) {
    CAPTURE(id);
    std::vector<uint8_t> bytes;
    const size_t b_offset = kM * kK, a_scales = 8192, b_scales = a_scales + 512;
    for (int k = 0; k < kK; ++k) {
      for (int row = 0; row < kM; ++row) {
        const uint8_t value = e4m3(element(row, k));
        put(bytes, core_offset(row, k, kK), &value, 1);
      }
      for (int row = 0; row < kN; ++row) {
        const uint8_t value = e4m3(element(row + 1, 2 * k));
        put(bytes, b_offset + core_offset(row, k, kK), &value, 1);
      }
    }
    // The 128x4 atom: byte (r % 32) * 16 + (r / 32) * 4 + block.  Every row and block has another power of
    // two; only block `id` counts.
    const auto a_exponent = [](int row, int block) { return (row * 3 + block * 5) % 11 - 5; };
    const auto b_exponent = [](int row, int block) { return (row * 7 + block * 2) % 9 - 4; };
    for (int row = 0; row < 128; ++row) {
      for (int block = 0; block < 4; ++block) {
        const size_t at = static_cast<size_t>(row % 32 * 16 + row / 32 * 4 + block);
        const uint8_t a = static_cast<uint8_t>(127 + a_exponent(row, block)),
                      b = static_cast<uint8_t>(127 + b_exponent(row, block));
        put(bytes, a_scales + at, &a, 1);
        put(bytes, b_scales + at, &b, 1);
      }
    }
    const auto in = words_of(bytes);
    const uint64_t high = (kLeading >> 4) << 16 | (stride_bytes(kK) >> 4) << 32 | 1ull << 46;
    // A scale atom is 32 rows of 16 bytes: four core matrices along M, 128 bytes apart.
    const uint64_t scale_high = 8ull << 16 | 8ull << 32 | 1ull << 46;
    const uint32_t instruction = static_cast<uint32_t>(id) << 4 | (kN >> 3) << 17 | 1 << 23 |
                                 (kM >> 7) << 27 | static_cast<uint32_t>(id) << 29;
    const auto out =
        run_kernel({fill_shared(in.size()) + allocate(64) + descriptor("%w1", 0, high) +
                        descriptor("%w2", b_offset, high) + descriptor("%w3", a_scales, scale_high) +
                        descriptor("%w4", b_scales, scale_high) + "  @!%p18 bra issued;\n  mov.u32 %r60, " +
                        number(instruction) +
                        ";\n  add.u32 %r61, %r70, 32;\n  add.u32 %r62, %r70, 40;\n"
                        "  tcgen05.cp.cta_group::1.32x128b.warpx4 [%r61], %w3;\n  "
                        "tcgen05.cp.cta_group::1.32x128b.warpx4 [%r62], %w4;\n"
                        "  setp.ne.u32 %p1, %thread, 0;\n"
                        "  tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X [%r70], %w1, "
                        "%w2, %r60, [%r61], [%r62], %p1;\n" +
                        kCommitAndWait + "  tcgen05.ld.sync.aligned.32x32b.x32.b32 " + registers(32) +
                        ", [%r71];\n  tcgen05.wait::ld.sync.aligned;\n" + store_registers(32) + release(64),
                    kDynamic, "sm_100a", 128, 1, 1, 16384},
                   in, kM * kN);
    int wrong = 0;
    for (int row = 0; row < kM; ++row) {
      for (int column = 0; column < kN; ++column) {
        int sum = 0;
        for (int k = 0; k < kK; ++k) sum += element(row, k) * element(column + 1, 2 * k);
        const float expected =
            std::ldexp(static_cast<float>(sum), a_exponent(row, id) + b_exponent(column, id));
        wrong += as_float(out[row * kN + column]) != expected;
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("tcgen05.mma takes its first operand from tensor memory", "[one_op]") {
  if (!can_run("sm_100a")) return;
  constexpr int kM = 128, kN = 32, kK = 16;
  std::vector<uint8_t> bytes;
  for (int k = 0; k < kK; ++k) {
    for (int row = 0; row < kN; ++row) {
      const uint16_t value = bf16(element(row + 1, 2 * k));
      put(bytes, core_offset(row, 2 * k, 2 * kK), &value, 2);
    }
  }
  // Behind B: A, row after row; each thread carries its row into tensor memory, two elements a column.
  const size_t a_offset = kN * kK * 2;
  for (int row = 0; row < kM; ++row) {
    for (int k = 0; k < kK; ++k) {
      const uint16_t value = bf16(element(row, k));
      put(bytes, a_offset + (row * kK + k) * 2, &value, 2);
    }
  }
  const auto in = words_of(bytes);
  const uint64_t high = (kLeading >> 4) << 16 | (stride_bytes(2 * kK) >> 4) << 32 | 1ull << 46;
  const uint32_t instruction = 1 << 4 | 1 << 7 | 1 << 10 | (kN >> 3) << 17 | (kM >> 4) << 24;
  std::string load_row = "  mad.lo.u32 %r96, %thread, 32, %r90;\n";
  for (int i = 0; i < 8; ++i)
    load_row += "  ld.shared.u32 %r" + std::to_string(i + 1) + ", [%r96+" + number(a_offset + 4 * i) + "];\n";
  const auto out = run_kernel(
      {fill_shared(in.size()) + allocate(64) + descriptor("%w2", 0, high) + load_row +
           "  add.u32 %r73, %r71, 32;\n  tcgen05.st.sync.aligned.32x32b.x8.b32 [%r73], " + registers(8) +
           ";\n  tcgen05.wait::st.sync.aligned;\n"
           "  tcgen05.fence::before_thread_sync;\n  bar.sync 0;\n  tcgen05.fence::after_thread_sync;\n"
           "  @!%p18 bra issued;\n  mov.u32 %r60, " +
           number(instruction) +
           ";\n  add.u32 %r61, %r70, 32;\n  setp.ne.u32 %p1, %thread, 0;\n"
           "  tcgen05.mma.cta_group::1.kind::f16 [%r70], [%r61], %w2, %r60, %p1;\n" +
           kCommitAndWait + "  tcgen05.ld.sync.aligned.32x32b.x32.b32 " + registers(32) +
           ", [%r71];\n  tcgen05.wait::ld.sync.aligned;\n" + store_registers(32) + release(64),
       kDynamic, "sm_100a", 128, 1, 1, 16384},
      in, kM * kN);
  int wrong = 0;
  for (int row = 0; row < kM; ++row) {
    for (int column = 0; column < kN; ++column) {
      int sum = 0;
      for (int k = 0; k < kK; ++k) sum += element(row, k) * element(column + 1, 2 * k);
      wrong += out[row * kN + column] != bits_of(static_cast<float>(sum));
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("wgmma multiplies from shared memory into registers", "[one_op]") {
  if (!can_run("sm_90a")) return;
  constexpr int kM = 64, kN = 8, kK = 16;
  const size_t b_offset = kM * kK * 2;
  const auto in = bf16_operands(kM, kN, kK);
  const uint64_t high = (kLeading >> 4) << 16 | (stride_bytes(2 * kK) >> 4) << 32;
  const std::string mma =
      "  wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, %w1, %w2, ";
  const auto out = run_kernel(
      {fill_shared(in.size()) + descriptor("%w1", 0, high) + descriptor("%w2", b_offset, high) +
           "  setp.lt.u32 %p1, %thread, 0;\n  setp.ge.u32 %p2, %thread, 0;\n  wgmma.fence.sync.aligned;\n" +
           mma + "%p1, 1, 1, 0, 0;\n" + mma +
           "%p2, 1, 1, 0, 0;\n  wgmma.commit_group.sync.aligned;\n  wgmma.wait_group.sync.aligned 0;\n"
           "  mad.wide.u32 %w5, %thread, 16, %out;\n  st.global.v4.f32 [%w5], {%f1, %f2, %f3, %f4};",
       kDynamic, "sm_90a", 128, 1, 1, 4096},
      in, 128 * 4);
  int wrong = 0;
  for (int thread = 0; thread < 128; ++thread) {
    for (int i = 0; i < 4; ++i) {
      // Warp w holds rows 16 w to 16 w + 15; a lane holds columns 2 (lane % 4), +1 of rows lane / 4 and that
      // + 8.
      const int row = thread / 32 * 16 + thread % 32 / 4 + i / 2 * 8, column = 2 * (thread % 4) + i % 2;
      int sum = 0;
      for (int k = 0; k < kK; ++k) sum += element(row, k) * element(column + 1, 2 * k);
      wrong += out[thread * 4 + i] != bits_of(static_cast<float>(2 * sum));
    }
  }
  CHECK(wrong == 0);
}
