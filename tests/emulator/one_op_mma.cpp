// mma.sync end to end: every type the CPU driver has, against the fragments of PTX ISA 9.7.14.5 written out
// here. Operands are small integers, so sums are exact.
#include <cstring>

#include "one_op_operands.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;

namespace {

int a_value(int row, int k) { return (row * 5 + k * 3) % 7 - 3; }
int b_value(int column, int k) { return (column * 3 + k * 2 + 1) % 5 - 2; }
int c_value(int row, int column) { return row * 8 + column - 60; }

struct Test {
  const char *d, *a, *b;
  int k;
  const char* extra = "";
};

std::string list(const char* prefix, int first, int count) {
  std::string text = "{";
  for (int i = 0; i < count; ++i) text += (i ? ", " : "") + std::string(prefix) + std::to_string(first + i);
  return text + "}";
}

void check(const Test& t) {
  CAPTURE(t.d, t.a, t.b, t.k);
  const std::string type = t.a, d = t.d;
  const int bytes = type == "tf32" ? 4 : type == "f16" || type == "bf16" ? 2 : 1, per_register = 4 / bytes;
  const int a_count = t.k * bytes / 8, b_count = a_count / 2, d_count = d == "f16" ? 2 : 4;
  std::vector<uint32_t> in(32 * 12);
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, q = lane % 4;
    for (int j = 0; j < a_count; ++j) {
      // A register j: rows g and g + 8 in turn; then the second half of K.
      uint32_t word = 0;
      for (int e = 0; e < per_register; ++e)
        word |= encode(t.a, a_value(g + 8 * (j % 2), q * per_register + e + 4 * per_register * (j / 2)))
                << (8 * bytes * e);
      in[static_cast<size_t>(lane * 12 + j)] = word;
    }
    for (int j = 0; j < b_count; ++j) {
      uint32_t word = 0;
      for (int e = 0; e < per_register; ++e)
        word |= encode(t.b, b_value(g, q * per_register + e + 4 * per_register * j)) << (8 * bytes * e);
      in[static_cast<size_t>(lane * 12 + 4 + j)] = word;
    }
    for (int i = 0; i < 4; ++i) {
      const int c = c_value(g + 8 * (i / 2), 2 * q + i % 2);
      if (d == "f16")
        in[static_cast<size_t>(lane * 12 + 6 + i / 2)] |= static_cast<uint32_t>(half(c)) << (16 * (i % 2));
      else
        in[static_cast<size_t>(lane * 12 + 6 + i)] =
            d == "f32" ? bits_of(static_cast<float>(c)) : static_cast<uint32_t>(c);
    }
  }
  std::string body = "  mad.wide.u32 %w1, %lane, 48, %in;\n";
  for (int i = 0; i < 10; ++i)
    body += "  ld.global.b32 %r" + std::to_string(i) + ", [%w1+" + std::to_string(4 * i) + "];\n";
  body += std::string("  mma.sync.aligned.m16n8k") + std::to_string(t.k) + ".row.col" + t.extra + "." + t.d +
          "." + t.a + "." + t.b + "." + t.d + " " + list("%r", 20, d_count) + ", " + list("%r", 0, a_count) +
          ", " + list("%r", 4, b_count) + ", " + list("%r", 6, d_count) +
          ";\n  mad.wide.u32 %w2, %lane, 16, %out;\n";
  for (int i = 0; i < d_count; ++i)
    body += "  st.global.b32 [%w2+" + std::to_string(4 * i) + "], %r" + std::to_string(20 + i) + ";\n";
  const auto out = run_kernel({body, "", "sm_90"}, in, 128);
  int wrong = 0;
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
      int sum = c_value(row, column);
      for (int k = 0; k < t.k; ++k) sum += decoded(t.a, a_value(row, k)) * decoded(t.b, b_value(column, k));
      if (d == "f16")
        wrong += (out[static_cast<size_t>(lane * 4 + i / 2)] >> (16 * (i % 2)) & 0xffff) != half(sum);
      else
        wrong += out[static_cast<size_t>(lane * 4 + i)] !=
                 (d == "f32" ? bits_of(static_cast<float>(sum)) : static_cast<uint32_t>(sum));
    }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("mma.sync: every type and depth", "[one_op]") {
  if (!can_run("sm_90")) return;
  for (const int k : {8, 16}) {
    check({"f32", "bf16", "bf16", k});
    check({"f32", "f16", "f16", k});
    check({"f16", "f16", "f16", k});
  }
  for (const int k : {4, 8}) check({"f32", "tf32", "tf32", k});
  for (const char* a : {"e4m3", "e5m2"})
    for (const char* b : {"e4m3", "e5m2"}) check({"f32", a, b, 32});
  for (const int k : {16, 32})
    for (const char* a : {"s8", "u8"})
      for (const char* b : {"s8", "u8"}) check({"s32", a, b, k});
  check({"s32", "s8", "s8", 32, ".satfinite"});
}

TEST_CASE("mma.sync may write its accumulator in place", "[one_op]") {
  if (!can_run("sm_90")) return;
  // 1 + 16 * 1 * 1, twice.
  std::string mma =
      "  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r1, %r1, %r1}, "
      "{%r1, %r1}, "
      "{%f1, %f2, %f3, %f4};\n";
  const auto out = run_kernel(
      {"  mov.b32 %r1, 0x3f803f80;\n  mov.f32 %f1, 0f3f800000;\n  mov.f32 %f2, %f1;\n  mov.f32 %f3, %f1;\n  "
       "mov.f32 %f4, "
       "%f1;\n" +
           mma + mma +
           "  add.f32 %f1, %f1, %f4;\n  mad.wide.u32 %w1, %lane, 4, %out;\n  st.global.f32 [%w1], %f1;\n",
       "", "sm_90"},
      {}, 32);
  for (const uint32_t word : out) CHECK(word == bits_of(66.0f));
}
