// PTX as NVRTC and inline assembly write it: scopes, names, literals, data, and what has no effect.
#include "core_harness.hpp"
#include "support/catch.hpp"

using mxfa::test::blackwell;
using mxfa::test::core_text;
using mxfa::test::run_core;
using mxfa::test::store_word;
using mxfa::test::test_arena;

namespace {

uint32_t result_of(const std::string& body, const std::string& declarations = {}) {
  const auto r = run_core({body + store_word("%tid", "%r1") + "  ret;", {}, declarations}, 32);
  INFO(r.fault);
  REQUIRE(r.fault.empty());
  return r.words[0];
}

}  // namespace

TEST_CASE("braces scope registers and labels", "[ptx]") {
  // The same label and register names in sibling and nested scopes, as inline assembly expands them.
  CHECK(result_of("  mov.u32 %r1, 0;\n"
                  "  { .reg .b32 t; .reg .pred P1; mov.u32 t, 5; setp.eq.u32 P1, t, 5; @P1 bra DONE; mov.u32 "
                  "t, 9; DONE: add.u32 %r1, %r1, t; }\n"
                  "  { .reg .b32 t; mov.u32 t, 7; { .reg .b32 t; mov.u32 t, 100; bra DONE; DONE: add.u32 "
                  "%r1, %r1, t; } add.u32 %r1, %r1, t; DONE: }\n") == 112);
}

TEST_CASE("register ranges, prefixes that end in digits and names without a percent sign", "[ptx]") {
  CHECK(result_of("  .reg .b32 %r1_<3>, a1<4>, plain;\n  mov.u32 a10, 3;\n  mov.u32 a13, 4;\n  mov.u32 "
                  "plain, 5;\n  mov.u32 %r1_2, 6;\n"
                  "  add.u32 %r1, a10, a13;\n  add.u32 %r1, %r1, plain;\n  add.u32 %r1, %r1, %r1_2;\n") ==
        18);
}

TEST_CASE("literals in every notation", "[ptx]") {
  CHECK(result_of("  mov.u32 %r1, 0x1fU;\n") == 31);
  CHECK(result_of("  mov.u32 %r1, 017;\n") == 15);
  CHECK(result_of("  mov.u32 %r1, 0b101;\n") == 5);
  CHECK(result_of("  mov.u32 %r1, -1;\n") == 0xffffffffu);
  CHECK(result_of("  mov.u32 %r1, WARP_SZ;\n") == 32);
  CHECK(result_of("  mov.u32 %r1, (3+4)*2;\n") == 14);
  CHECK(result_of("  mov.f32 %f1, 0f40490FDB;\n  mov.b32 %r1, %f1;\n") == 0x40490fdbu);
  CHECK(result_of("  mov.f32 %f1, 1.5;\n  mov.b32 %r1, %f1;\n") == 0x3fc00000u);
  CHECK(result_of("  mov.f32 %f1, 0d4000000000000000;\n  mov.b32 %r1, %f1;\n") == 0x40000000u);
}

TEST_CASE("addresses with negative and doubly signed offsets", "[ptx]") {
  CHECK(result_of("  .shared .align 16 .b8 box[256];\n  mov.u32 %r2, box;\n  add.u32 %r2, %r2, 128;\n  "
                  "st.shared.u32 [box+64], 77;\n"
                  "  ld.shared.u32 %r1, [%r2+-64];\n") == 77);
  CHECK(result_of("  .shared .align 16 .b8 box[256];\n  mov.u64 %w1, box;\n  cvt.u32.u64 %r2, %w1;\n  "
                  "st.shared.u32 [%r2], 5;\n"
                  "  ld.shared.u32 %r1, [box];\n") == 5);
}

TEST_CASE("a CTA's shared variables begin behind the reserved kilobyte and carry its rank", "[ptx]") {
  const auto r =
      run_core({"  .shared .align 16 .b8 box[16];\n  mov.u32 %r1, box;\n  mov.u32 %r2, %ctaid.x;\n" +
                    store_word("%r2", "%r1") + "  ret;",
                {},
                {},
                32,
                2,
                2},
               2);
  CHECK(r.words == std::vector<uint32_t>{0x400, 0x01000400});
}

TEST_CASE("dynamic shared memory follows static memory at its alignment", "[ptx]") {
  const auto r = run_core({"  .shared .align 4 .b8 small[20];\n  mov.u32 %r1, small;\n  mov.u32 %r1, big;\n" +
                               store_word("%tid", "%r1") + "  ret;",
                           {},
                           ".extern .shared .align 128 .b8 big[];\n",
                           32,
                           1,
                           1,
                           256},
                          32);
  REQUIRE(r.fault.empty());
  CHECK(r.words[0] == 0x480);  // 1024 + 20, aligned to 128
}

TEST_CASE("module variables are initialised, trailing zeroes included", "[ptx]") {
  const std::string data =
      ".global .align 4 .b8 text[8] = {104, 105};\n.global .align 8 .u64 pointers[2] = {generic(text), "
      "text+4};\n"
      ".const .align 4 .f32 half = 0f3F000000;\n.global .align 2 .u16 grid[2][3] = {{1, 2, 3}, {4, 5, "
      "6}};\n.global .u32 blank;\n";
  CHECK(result_of("  ld.global.u8 %r1, [text+1];\n  ld.global.u8 %r2, [text+7];\n  shl.b32 %r2, %r2, 8;\n  "
                  "or.b32 %r1, %r1, %r2;\n",
                  data) == 105);
  CHECK(result_of("  ld.global.u64 %w1, [pointers];\n  ld.u8 %r1, [%w1];\n", data) == 104);
  CHECK(result_of("  ld.global.u64 %w1, [pointers+8];\n  mov.u64 %w2, text;\n  sub.u64 %w1, %w1, %w2;\n  "
                  "cvt.u32.u64 %r1, %w1;\n",
                  data) == 4);
  CHECK(result_of("  ld.const.b32 %r1, [half];\n", data) == 0x3f000000u);
  CHECK(result_of("  ld.global.u16 %r1, [grid+8];\n", data) == 5);
  CHECK(result_of("  ld.global.u32 %r1, [blank];\n", data) == 0);
}

TEST_CASE("kernel parameters are reached by name, by address and by generic address", "[ptx]") {
  CHECK(result_of("  mov.b64 %w1, out;\n  ld.param.u64 %w2, [%w1];\n  cvta.param.u64 %w3, %w1;\n  ld.u64 "
                  "%w4, [%w3];\n"
                  "  setp.eq.u64 %p1, %w2, %w4;\n  setp.eq.and.u64 %p1, %w2, %out, %p1;\n  selp.u32 %r1, 1, "
                  "0, %p1;\n") == 1);
}

TEST_CASE("local variables belong to a thread", "[ptx]") {
  const auto r = run_core({"  .local .align 8 .b8 depot[16];\n  mov.u64 %w1, depot;\n  cvta.local.u64 %w2, "
                           "%w1;\n  st.local.u32 [%w1+4], %lane;\n"
                           "  bar.sync 0;\n  ld.u32 %r1, [%w2+4];\n" +
                           store_word("%tid", "%r1") + "  ret;"},
                          32);
  REQUIRE(r.fault.empty());
  for (uint32_t i = 0; i < 32; ++i) CHECK(r.words[i] == i);
}

TEST_CASE("packed registers, sinks and pairs", "[ptx]") {
  CHECK(result_of("  mov.b64 %w1, {%lane, 7};\n  mov.b64 {_, %r1}, %w1;\n") == 7);
  CHECK(result_of("  mov.b32 %r2, {%h1, %h2};\n  mov.b16 %h1, 0x1234;\n  mov.b16 %h2, 0x5678;\n  mov.b32 "
                  "%r1, {%h1, %h2};\n") == 0x56781234);
  CHECK(result_of("  .reg .b128 %q;\n  mov.b64 %w1, 3;\n  mov.b64 %w2, 4;\n  mov.b128 %q, {%w1, %w2};\n  "
                  "mov.b128 {%w3, %w4}, %q;\n"
                  "  cvt.u32.u64 %r1, %w4;\n") == 4);
  CHECK(result_of("  elect.sync _|%p1, -1;\n  selp.u32 %r1, 1, 0, %p1;\n") == 1);
}

TEST_CASE("debug sections, pragmas and unknown hints do not disturb", "[ptx]") {
  const std::string text =
      "//\n// Generated\n//\n.version 9.0\n.target sm_100a, debug\n.address_size 64\n.file 1 \"a b.cu\", 1, "
      "2\n"
      ".visible .entry k(.param .u64 .ptr .global .align 16 out, .param .align 8 .b8 s[16])\n.maxntid 64, 1, "
      "1\n.pragma \"nounroll\";\n"
      "{\n  .loc 1 5 3, function_name $L__info_string0, inlined_at 1 9 1\n  .pragma \"used_bytes_mask 15\"; "
      "ret;\n}\n"
      ".section .debug_str {\n$L__info_string0:\n.b8 102, 111, 111, 0\n}\n.section .debug_loc { }\n";
  const auto module = mxfa::emulator::Module::load(text, blackwell(), test_arena());
  const auto* kernel = module->find_kernel("k");
  REQUIRE(kernel);
  CHECK(kernel->parameter_bytes == 24);
  CHECK(kernel->max_threads == 64);
}

TEST_CASE("a fault names the CUDA line when there is one", "[ptx]") {
  const auto r = run_core(
      {"  .loc 1 41 3\n  mov.u32 %r1, 1;\n  .loc 1 42 7, function_name $L__info_string0, inlined_at 1 99 5\n "
       " trap;\n  ret;",
       {},
       ".file 1 \"attention.cuh\"\n.section .debug_str {\n$L__info_string0:\n.b8 114, 111, 119, 0\n}\n"},
      1);
  CHECK(mxfa::test::mentions_all(r.fault, {"CUDA attention.cuh:42 in row, inlined at attention.cuh:99"}));
}

TEST_CASE("registers of a tensor-memory load stay theirs until the wait", "[ptx]") {
  // Between the load and wait::ld other values are computed; under the lazy schedule the load writes at the
  // wait.
  const std::string body =
      "  .shared .align 4 .b8 slot[4];\n  mov.u32 %r30, slot;\n  "
      "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r30], 32;\n"
      "  bar.sync 0;\n  ld.shared.u32 %r31, [%r30];\n  add.u32 %r2, %lane, 700;\n  add.u32 %r3, %lane, 900;\n"
      "  tcgen05.st.sync.aligned.32x32b.x2.b32 [%r31], {%r2, %r3};\n  tcgen05.wait::st.sync.aligned;\n"
      "  tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r4, %r5}, [%r31];\n"
      "  add.u32 %r10, %lane, 1;\n  add.u32 %r11, %r10, 2;\n  mul.lo.u32 %r12, %r11, %r10;\n  xor.b32 %r13, "
      "%r12, %r11;\n"
      "  tcgen05.wait::ld.sync.aligned;\n  add.u32 %r1, %r5, %r13;\n"
      "  tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r31, 32;\n";
  for (const auto kind : {mxfa::emulator::Schedule::Kind::Functional, mxfa::emulator::Schedule::Kind::Lazy}) {
    const auto r = run_core({body + store_word("%tid", "%r1") + "  ret;"}, 32, {kind, 0});
    REQUIRE(r.fault == "");
    for (uint32_t i = 0; i < 32; ++i) CHECK(r.words[i] == i + 900 + (((i + 3) * (i + 1)) ^ (i + 3)));
  }
}
