// What the PTX front end refuses, and how it says so.
#include "core_harness.hpp"
#include "support/catch.hpp"

using mxfa::test::blackwell;
using mxfa::test::core_text;
using mxfa::test::mentions_all;
using mxfa::test::test_arena;

namespace {

std::string error_of(const std::string& text) {
  try {
    mxfa::emulator::Module::load(text, blackwell(), test_arena());
  } catch (const mxfa::emulator::PtxError& e) {
    return e.what();
  }
  return {};
}
std::string error_in(const std::string& body) { return error_of(core_text({body})); }

}  // namespace

TEST_CASE("an error gives line and column and quotes the line", "[ptx]") {
  const std::string text =
      ".version 9.0\n.target sm_100a\n.address_size 64\n.visible .entry k()\n{\n  .reg .b32 %r<3>;\n"
      "  mov.u32 %r1, 1; frobnicate.b32 %r1, %r2;\n  ret;\n}\n";
  const std::string error = error_of(text);
  CHECK(error.substr(0, 19) == "line 7, column 19: ");
  CHECK(
      mentions_all(error, {"unknown instruction 'frobnicate'", "mov.u32 %r1, 1; frobnicate.b32 %r1, %r2;"}));
}

TEST_CASE("an unknown modifier is refused with what is accepted", "[ptx]") {
  CHECK(mentions_all(error_in("  add.fancy.u32 %r1, %r2, %r3;\n  ret;"), {"'add'", "'.fancy'", ".u32"}));
  CHECK(mentions_all(error_in("  ld.global.u33 %r1, [%w1];\n  ret;"), {"'ld'", "'.u33'", ".b32"}));
  CHECK(mentions_all(error_in("  ld.global %r1, [%w1];\n  ret;"), {"'ld' needs one of", ".u32"}));
  CHECK(mentions_all(error_in("  fma.f32 %f1, %f2, %f3, %f4;\n  ret;"), {"'fma' needs one of", ".rn"}));
  CHECK(mentions_all(error_in("  tcgen05.mma.cta_group::3.kind::f16 [%r1], %w1, %w2, %r2, %p1;\n  ret;"),
                     {"'tcgen05'", "cta_group::3"}));
}

TEST_CASE("operands are checked for number, kind and width", "[ptx]") {
  CHECK(mentions_all(error_in("  add.u32 %r1, %r2;\n  ret;"), {"2 operands", "takes 3"}));
  CHECK(mentions_all(error_in("  add.u32 %r1, %w2, %r3;\n  ret;"), {"32-bit register", "64 bits"}));
  CHECK(mentions_all(error_in("  add.u32 %r1, %p2, %r3;\n  ret;"), {"predicate"}));
  CHECK(mentions_all(error_in("  selp.b32 %r1, %r2, %r3, %r4;\n  ret;"), {"predicate register is needed"}));
  CHECK(mentions_all(error_in("  ld.global.u32 %r1, [%r2];\n  ret;"), {"global addresses have 64 bits"}));
  CHECK(mentions_all(error_in("  ld.global.v4.u32 {%r1, %r2}, [%w2];\n  ret;"), {"2 values", "moves 4"}));
  CHECK(mentions_all(error_in("  add.f32 %f1, %f2, 3;\n  ret;"), {"floating-point constant"}));
  CHECK(mentions_all(error_in("  mov.b64 %w1, {%r1, %r2, %r3};\n  ret;"), {"do not divide"}));
  CHECK(mentions_all(error_in("  tcgen05.ld.sync.aligned.32x32b.x4.b32 {%r1, %r2}, [%r3];\n  ret;"),
                     {"2 registers", "has 4"}));
  CHECK(mentions_all(error_in("  setmaxnreg.inc.sync.aligned.u32 100;\n  ret;"), {"multiple of 8"}));
  CHECK(mentions_all(error_in("  lop3.b32 %r1, %r2, %r3, %r4, 256;\n  ret;"), {"8 bits"}));
}

TEST_CASE("names must be declared, once, in scope", "[ptx]") {
  CHECK(mentions_all(error_in("  mov.u32 %r1, %r99;\n  ret;"), {"%r99", "neither a declared register"}));
  CHECK(mentions_all(error_in("  bra nowhere;\n  ret;"), {"'nowhere' is not declared"}));
  CHECK(mentions_all(error_in("  { .reg .b32 inner; mov.u32 inner, 1; }\n  mov.u32 %r1, inner;\n  ret;"),
                     {"'inner' is not declared"}));
  CHECK(mentions_all(error_in("  bra inside;\n  { inside: mov.u32 %r1, 1; }\n  ret;"),
                     {"'inside' is not declared"}));
  CHECK(mentions_all(error_in("x: mov.u32 %r1, 1;\nx: ret;"), {"label 'x' is defined twice"}));
  CHECK(mentions_all(error_in("  @%r1 mov.u32 %r1, 1;\n  ret;"), {"'%r1' is no predicate"}));
  CHECK(mentions_all(error_in("  call absent, ();\n  ret;"), {"absent"}));
}

TEST_CASE("malformed text is refused at its place", "[ptx]") {
  CHECK(mentions_all(error_of(""), {".version is missing"}));
  CHECK(mentions_all(error_of("hello"), {"line 1, column 1", "expected a directive"}));
  CHECK(mentions_all(error_of(".version 9.0\n.target sm_100a\n.address_size 32\n.global .u32 g;\n"),
                     {"line 3, column 15", "64-bit"}));
  CHECK(mentions_all(error_of(".version 9.0\n.target sm_100a\n.fancy 3\n"),
                     {"line 3", "unknown directive '.fancy'"}));
  CHECK(mentions_all(error_in("  mov.u32 %r1, 0x;\n  ret;"), {"hexadecimal digits"}));
  CHECK(mentions_all(error_in("  mov.f32 %f1, 0f12;\n  ret;"), {"0f needs 8 hexadecimal digits"}));
  CHECK(mentions_all(error_in("  mov.u32 %r1, 99999999999999999999;\n  ret;"), {"does not fit 64 bits"}));
  CHECK(mentions_all(error_in("  mov.u32 %r1, 1\n  ret;"), {"expected ';'"}));
  CHECK(mentions_all(error_in("  { mov.u32 %r1, 1;\n  ret;"), {"no closing brace"}));
  CHECK(mentions_all(error_in("  mov.u32 %r1, 1 \x01;\n"), {"unexpected character"}));
  CHECK(mentions_all(error_in("/* never closed"), {"comment without */"}));
  CHECK(mentions_all(error_in("  mov.u32 %r1, " + std::string(5000, '(') + "1;\n  ret;"),
                     {"nested too deeply"}));
}

TEST_CASE("PTX for another device is refused by name", "[ptx]") {
  const auto text = [](const std::string& target) {
    return ".version 9.0\n.target " + target + "\n.address_size 64\n.visible .entry k() { ret; }\n";
  };
  CHECK(mentions_all(error_of(text("sm_90a")), {"sm_90a", "does not run on"}));
  CHECK(mentions_all(error_of(text("sm_120")), {"sm_120", "does not run on"}));
  CHECK(error_of(text("sm_80")).empty());
  CHECK(error_of(text("sm_100f")).empty());
}

TEST_CASE("recursion and functions without a body are refused", "[ptx]") {
  const std::string head = ".version 9.0\n.target sm_100a\n.address_size 64\n";
  CHECK(mentions_all(
      error_of(head +
               ".func f()\n{\n  call f, ();\n  ret;\n}\n.visible .entry k()\n{\n  call f, ();\n  ret;\n}\n"),
      {"'f' is recursive"}));
  CHECK(
      mentions_all(error_of(head + ".extern .func g();\n.visible .entry k()\n{\n  call g, ();\n  ret;\n}\n"),
                   {"'g' has no body"}));
}

TEST_CASE("a kernel or module that no device has room for is refused", "[ptx]") {
  CHECK(error_in("  .shared .b8 a[232448];\n  ret;").empty());
  CHECK(mentions_all(error_in("  .shared .b8 a[200000];\n  .shared .b8 b[32449];\n  ret;"),
                     {"line 5, column", "'k' has 232449 bytes of shared memory; a CTA can have 232448"}));
  const auto constants = [](const std::string& variables) {
    return error_of(".version 9.0\n.target sm_100a\n.address_size 64\n" + variables);
  };
  CHECK(constants(".const .b8 a[40000];\n.const .b8 b[25536];\n").empty());
  CHECK(mentions_all(constants(".const .b8 a[40000];\n.const .b8 b[25537];\n"),
                     {"line 5, column", "65537 bytes of constants", "65536"}));
  const auto parameters = [](const std::string& list) {
    return error_of(".version 9.0\n.target sm_100a\n.address_size 64\n.visible .entry k(" + list +
                    ") { ret; }\n");
  };
  CHECK(parameters(".param .b8 a[32764]").empty());
  CHECK(mentions_all(parameters(".param .b8 a[32765]"), {"line 4, column", "32764"}));
  CHECK(mentions_all(parameters(".param .b64 a[65536][65536][65536][65536]"), {"line 4, column", "32764"}));
  CHECK(mentions_all(parameters(".param .b8 a[20000], .param .b8 b[20000]"),
                     {"line 4, column", "'k' has 40000 bytes of parameters; 32764 are possible"}));
}

TEST_CASE("damaged text is refused or loads, and never crashes", "[ptx]") {
  const std::string good =
      core_text({"  .shared .align 16 .b8 s[64];\n  { .reg .pred p; setp.eq.u32 p, %lane, 3; @p bra L; "
                 "add.u32 %r1, %r1, 1; L: mov.b64 {%r1, %r2}, %w1; }\n"
                 "  ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [s+16];\n  shfl.sync.bfly.b32 %r1|%p1, %r2, 1, "
                 "31, -1;\n  ret;",
                 ".maxntid 128, 1, 1 .minnctapersm 1",
                 ".global .align 8 .u64 g[2] = {5, generic(h)};\n.global .u32 h = 0x10;\n"});
  REQUIRE_NOTHROW(mxfa::emulator::Module::load(good, blackwell(), test_arena()));
  // A small generator of its own: the damage must be the same everywhere.
  uint64_t state = 12345;
  const auto next = [&state](uint64_t n) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (state >> 33) % n;
  };
  static const char* const kPieces[] = {"{",  "}",   "(",    ";", ",",      "[", "]",  "@",  "!", "-",
                                        "0x", "%r1", ".b64", "|", "%tid.x", "<", "\"", "/*", ":", "_"};
  size_t refused = 0;
  for (int round = 0; round < 1500; ++round) {
    std::string text = good;
    for (uint64_t k = 0, n = 1 + next(4); k < n && text.size() > 2; ++k) {
      const size_t at = next(text.size());
      switch (next(5)) {
        case 0:
          text.resize(at);
          break;
        case 1:
          text[at] = static_cast<char>(next(128));
          break;
        case 2:
          text.erase(at, next(12));
          break;
        case 3:
          text.insert(at, text.substr(next(text.size()), next(30)));
          break;
        default:
          text.insert(at, kPieces[next(20)]);
          break;
      }
    }
    try {
      mxfa::emulator::Module::load(text, blackwell(), test_arena());
    } catch (const mxfa::emulator::PtxError& e) {
      ++refused;
      CHECK(std::string(e.what()).substr(0, 5) == "line ");
    }
  }
  CHECK(refused > 500);
}
