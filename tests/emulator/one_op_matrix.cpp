// ldmatrix, stmatrix and movmatrix in every form: where each byte goes (PTX ISA 9.7.14.5).
#include <cstring>

#include "one_op.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;

namespace {

// Shared memory holds rows of 16 bytes at a distance of 48, so that neighbours are not taken for each other;
// byte b of row r is r * 16 + b (mod 256), with some bits turned in the upper 16 rows.
uint8_t byte_at(int row, int b) { return static_cast<uint8_t>((row * 16 + b) ^ (row < 16 ? 0 : 0xa5)); }
const std::string kTile =
    "  .shared .align 16 .b8 tile[1536];\n  mov.u32 %r50, tile;\n  mad.lo.u32 %r51, %lane, 48, %r50;\n";

std::string vector(int first, int count) {
  std::string text = "{";
  for (int i = 0; i < count; ++i) text += (i ? ", %r" : "%r") + std::to_string(first + i);
  return text + "}";
}

// Every lane fills its row, loads through the address of its row, and stores `count` registers.
std::vector<uint32_t> load(const std::string& form, int count, const std::string& target) {
  std::string body =
      kTile + "  mul.lo.u32 %r1, %lane, 16;\n  and.b32 %r1, %r1, 255;\n  mul.lo.u32 %r1, %r1, 0x01010101;\n";
  for (int w = 0; w < 4; ++w)
    body += "  add.u32 %r2, %r1, " + std::to_string(0x03020100u + 0x04040404u * static_cast<uint32_t>(w)) +
            ";\n  shr.u32 %r3, %lane, 4;\n  mul.lo.u32 %r3, %r3, 0xa5a5a5a5;\n  xor.b32 %r2, %r2, %r3;\n  "
            "st.shared.u32 [%r51+" +
            std::to_string(4 * w) + "], %r2;\n";
  body += "  bar.warp.sync 0xffffffff;\n  " + form + " " + vector(10, count) +
          ", [%r51];\n  mad.wide.u32 %w1, %lane, 16, "
          "%out;\n";
  for (int i = 0; i < count; ++i)
    body += "  st.global.u32 [%w1+" + std::to_string(4 * i) + "], %r" + std::to_string(10 + i) + ";\n";
  return run_kernel({body, "", target}, {}, 128);
}

// Every lane holds the words lane * 4 + i; returns the 16 bytes of each row.
std::vector<uint8_t> store(const std::string& form, int count, const std::string& target) {
  std::string body = kTile;
  for (int w = 0; w < 4; ++w) body += "  st.shared.u32 [%r51+" + std::to_string(4 * w) + "], 0xffffffff;\n";
  for (int i = 0; i < count; ++i)
    body += "  mad.lo.u32 %r" + std::to_string(10 + i) + ", %lane, 0x04040404, " +
            std::to_string(0x01010101u * static_cast<uint32_t>(i) + 0xc0804000u) + ";\n";
  body += "  bar.warp.sync 0xffffffff;\n  " + form + " [%r51], " + vector(10, count) +
          ";\n  bar.warp.sync 0xffffffff;\n  ld.shared.v4.u32 {%r20, %r21, %r22, %r23}, [%r51];\n"
          "  mad.wide.u32 %w1, %lane, 16, %out;\n  st.global.v4.u32 [%w1], {%r20, %r21, %r22, %r23};\n";
  const auto words = run_kernel({body, "", target}, {}, 128);
  std::vector<uint8_t> bytes(512);
  std::memcpy(bytes.data(), words.data(), 512);
  return bytes;
}
uint8_t stored(int lane, int i, int e) {  // byte e of register i of a lane
  const uint32_t word =
      static_cast<uint32_t>(lane) * 0x04040404u + 0x01010101u * static_cast<uint32_t>(i) + 0xc0804000u;
  return static_cast<uint8_t>(word >> 8 * e);
}

}  // namespace

TEST_CASE("ldmatrix m8n8.b16, .x1 to .x4, straight and transposed", "[one_op]") {
  if (!can_run("sm_90")) return;
  for (const int count : {1, 2, 4})
    for (const bool transposed : {false, true}) {
      CAPTURE(count, transposed);
      const auto out = load("ldmatrix.sync.aligned.m8n8.x" + std::to_string(count) +
                                (transposed ? ".trans" : "") + ".shared.b16",
                            count, "sm_90");
      int wrong = 0;
      for (int lane = 0; lane < 32; ++lane)
        for (int i = 0; i < count; ++i)
          for (int e = 0; e < 4; ++e) {
            const int major = lane / 4, minor = 2 * (lane % 4) + e / 2;
            const int row = 8 * i + (transposed ? minor : major), column = transposed ? major : minor;
            wrong += static_cast<uint8_t>(out[static_cast<size_t>(lane * 4 + i)] >> 8 * e) !=
                     byte_at(row, 2 * column + e % 2);
          }
      CHECK(wrong == 0);
    }
}

TEST_CASE("ldmatrix m16n16.trans.b8", "[one_op]") {
  if (!can_run("sm_100a")) return;
  for (const int count : {1, 2}) {
    const auto out = load("ldmatrix.sync.aligned.m16n16.x" + std::to_string(count) + ".trans.shared.b8",
                          2 * count, "sm_100a");
    int wrong = 0;
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 2 * count; ++i)
        for (int e = 0; e < 4; ++e)
          wrong += static_cast<uint8_t>(out[static_cast<size_t>(lane * 4 + i)] >> 8 * e) !=
                   byte_at(16 * (i / 2) + 4 * (lane % 4) + e, lane / 4 + 8 * (i % 2));
    CHECK(wrong == 0);
  }
}

TEST_CASE("stmatrix m8n8.b16, .x1 to .x4, straight and transposed", "[one_op]") {
  if (!can_run("sm_90")) return;
  for (const int count : {1, 2, 4})
    for (const bool transposed : {false, true}) {
      CAPTURE(count, transposed);
      const auto bytes = store("stmatrix.sync.aligned.m8n8.x" + std::to_string(count) +
                                   (transposed ? ".trans" : "") + ".shared.b16",
                               count, "sm_90");
      std::vector<uint8_t> expected(512, 0xff);
      for (int lane = 0; lane < 32; ++lane)
        for (int i = 0; i < count; ++i)
          for (int e = 0; e < 4; ++e) {
            const int major = lane / 4, minor = 2 * (lane % 4) + e / 2;
            const int row = 8 * i + (transposed ? minor : major), column = transposed ? major : minor;
            expected[static_cast<size_t>(row * 16 + 2 * column + e % 2)] = stored(lane, i, e);
          }
      CHECK(bytes == expected);
    }
}

TEST_CASE("stmatrix m16n8.trans.b8, .x1 to .x4", "[one_op]") {
  if (!can_run("sm_100a")) return;
  for (const int count : {1, 2, 4}) {
    const auto bytes =
        store("stmatrix.sync.aligned.m16n8.x" + std::to_string(count) + ".trans.shared.b8", count, "sm_100a");
    std::vector<uint8_t> expected(512, 0xff);
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < count; ++i)
        for (int e = 0; e < 4; ++e)
          expected[static_cast<size_t>((8 * i + 2 * (lane % 4) + e % 2) * 16 + lane / 4 + 8 * (e / 2))] =
              stored(lane, i, e);
    CHECK(bytes == expected);
  }
}

TEST_CASE("movmatrix transposes a fragment", "[one_op]") {
  if (!can_run("sm_90")) return;
  // Half e of lane l is element (l / 4, 2 (l % 4) + e), numbered row * 8 + column.
  const auto out =
      run_kernel({"  shl.b32 %r1, %lane, 1;\n  add.u32 %r2, %r1, 1;\n  shl.b32 %r2, %r2, 16;\n  or.b32 %r1, "
                  "%r1, %r2;\n  movmatrix.sync.aligned.m8n8.trans.b16 %r3, %r1;\n"
                  "  mad.wide.u32 %w1, %lane, 4, %out;\n  st.global.u32 [%w1], %r3;\n",
                  "", "sm_90"},
                 {}, 32);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t row = 2 * (lane % 4), column = lane / 4;
    CHECK(out[lane] == (row * 8 + column | ((row + 1) * 8 + column) << 16));
  }
}
