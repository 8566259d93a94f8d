// Divergence: lanes part at branches, meet at the post-dominator, exit, call, and wait for each other.
#include "core_harness.hpp"
#include "support/catch.hpp"

using mxfa::test::core_text;
using mxfa::test::CoreKernel;
using mxfa::test::mentions_all;
using mxfa::test::run_core;
using mxfa::test::store_word;

namespace {

const std::string kStoreR1 = store_word("%tid", "%r1") + "  ret;";

}  // namespace

TEST_CASE("both sides of a branch run and the lanes meet again", "[core]") {
  // After the meeting point all 32 lanes take part in a vote, which a still divergent warp could not do.
  const auto r = run_core(
      {"  setp.lt.u32 %p1, %lane, 10;\n  @%p1 bra low;\n  add.u32 %r1, %lane, 1000;\n  bra meet;\n"
       "low:\n  add.u32 %r1, %lane, 2000;\nmeet:\n  activemask.b32 %r2;\n  and.b32 %r2, %r2, 0xff000000;\n"
       "  xor.b32 %r1, %r1, %r2;\n" +
       kStoreR1},
      32);
  REQUIRE(r.fault == "");
  for (uint32_t i = 0; i < 32; ++i) CHECK(r.words[i] == ((i + (i < 10 ? 2000 : 1000)) ^ 0xff000000));
}

TEST_CASE("lanes leave a loop one by one and meet behind it", "[core]") {
  const auto r =
      run_core({"  mov.u32 %r1, 0;\nagain:\n  add.u32 %r1, %r1, 3;\n  mad.lo.u32 %r3, %lane, 3, 3;\n"
                "  setp.lt.u32 %p1, %r1, %r3;\n  @%p1 bra again;\n  bar.sync 0;\n  shfl.sync.idx.b32 %r2, "
                "%r1, 31, 31, -1;\n"
                "  add.u32 %r1, %r1, %r2;\n" +
                kStoreR1},
               32);
  REQUIRE(r.fault == "");
  for (uint32_t i = 0; i < 32; ++i) CHECK(r.words[i] == 3 * (i + 1) + 96);
}

TEST_CASE("branches nest and break out of two loops at once", "[core]") {
  const auto r = run_core(
      {"  mov.u32 %r1, 0;\n  mov.u32 %r2, 0;\nouter:\n  mov.u32 %r3, 0;\ninner:\n  add.u32 %r1, %r1, 1;\n"
       "  setp.ge.u32 %p1, %r1, %lane;\n  @%p1 bra done;\n  add.u32 %r3, %r3, 1;\n  and.b32 %r4, %lane, 3;\n"
       "  setp.le.u32 %p2, %r3, %r4;\n  @%p2 bra inner;\n  add.u32 %r2, %r2, 1;\n  setp.lt.u32 %p3, %r2, 5;\n"
       "  @%p3 bra outer;\ndone:\n  bar.warp.sync -1;\n  shl.b32 %r2, %r2, 8;\n  or.b32 %r1, %r1, %r2;\n" +
       kStoreR1},
      32);
  REQUIRE(r.fault == "");
  for (uint32_t lane = 0; lane < 32; ++lane) {
    uint32_t count = 0, rounds = 0;
    for (bool left = false; !left && rounds < 5;) {
      uint32_t inner = 0;
      do {
        if (++count >= lane)
          left = true;
        else
          ++inner;
      } while (!left && inner <= (lane & 3));
      if (!left) ++rounds;
    }
    CHECK(r.words[lane] == (count | rounds << 8));
  }
}

TEST_CASE("a jump table sends each lane to its own target", "[core]") {
  const auto r =
      run_core({"  and.b32 %r2, %lane, 3;\ntargets: .branchtargets a, b, c, d;\n  brx.idx %r2, targets;\n"
                "a:\n  mov.u32 %r1, 10;\n  bra meet;\nb:\n  mov.u32 %r1, 11;\n  bra meet;\nc:\n  mov.u32 "
                "%r1, 12;\n  bra meet;\n"
                "d:\n  mov.u32 %r1, 13;\nmeet:\n  bar.sync 0;\n" +
                kStoreR1},
               32);
  REQUIRE(r.fault == "");
  for (uint32_t i = 0; i < 32; ++i) CHECK(r.words[i] == 10 + i % 4);
}

TEST_CASE("lanes that return early do not hold up a barrier", "[core]") {
  const auto r =
      run_core({"  setp.ge.u32 %p1, %tid, 40;\n  @%p1 bra leave;\n  bar.sync 0;\n  mov.u32 %r1, 7;\n" +
                    store_word("%tid", "%r1") + "leave:\n  ret;",
                {},
                {},
                64},
               64);
  REQUIRE(r.fault == "");
  for (uint32_t i = 0; i < 64; ++i) CHECK(r.words[i] == (i < 40 ? 7 : 0xffffffff));
}

TEST_CASE("functions are called by diverged lanes and return to each", "[core]") {
  const std::string functions =
      ".func (.param .b32 result) twice(.param .b32 value)\n{\n  .reg .b32 %r<4>;\n  .reg .pred %p;\n"
      "  ld.param.u32 %r1, [value];\n  and.b32 %r2, %r1, 1;\n  setp.eq.u32 %p, %r2, 0;\n  @%p bra even;\n"
      "  mul.lo.u32 %r1, %r1, 3;\n  st.param.b32 [result], %r1;\n  ret;\neven:\n  shl.b32 %r1, %r1, 1;\n"
      "  st.param.b32 [result], %r1;\n  ret;\n}\n"
      ".func (.param .b32 result) outer(.param .b32 value)\n{\n  .reg .b32 %r<4>;\n  ld.param.u32 %r1, "
      "[value];\n"
      "  {\n  .param .b32 a; .param .b32 b;\n  st.param.b32 [a], %r1;\n  call.uni (b), twice, (a);\n"
      "  ld.param.b32 %r2, [b];\n  }\n  add.u32 %r2, %r2, 1;\n  st.param.b32 [result], %r2;\n  ret;\n}\n";
  const std::string call =
      "  {\n  .param .b32 a; .param .b32 b;\n  st.param.b32 [a], %lane;\n  call.uni (b), ";
  const auto r =
      run_core({"  setp.lt.u32 %p1, %lane, 16;\n  @%p1 bra low;\n" + call +
                    "outer, (a);\n  ld.param.b32 %r1, [b];\n  }\n  bra meet;\nlow:\n" + call +
                    "twice, (a);\n  ld.param.b32 %r1, [b];\n  }\nmeet:\n  bar.sync 0;\n" + kStoreR1,
                {},
                functions},
               32);
  REQUIRE(r.fault == "");
  for (uint32_t i = 0; i < 32; ++i) CHECK(r.words[i] == (i & 1 ? 3 * i : 2 * i) + (i >= 16));
}

TEST_CASE("an indirect call reaches the function a table names", "[core]") {
  const std::string declarations =
      ".func (.param .b32 r) one(.param .b32 v)\n{\n  st.param.b32 [r], 111;\n  ret;\n}\n"
      ".func (.param .b32 r) two(.param .b32 v)\n{\n  st.param.b32 [r], 222;\n  ret;\n}\n"
      ".global .align 8 .u64 table[2] = {one, two};\n";
  const auto r = run_core(
      {"  ld.global.u64 %w1, [table+8];\n  {\n  .param .b32 a; .param .b32 b;\n  st.param.b32 [a], 0;\n"
       "proto : .callprototype (.param .b32 _) _ (.param .b32 _);\n  call (b), %w1, (a), proto;\n"
       "  ld.param.b32 %r1, [b];\n  }\n" +
           kStoreR1,
       {},
       declarations},
      32);
  REQUIRE(r.fault == "");
  CHECK(r.words[5] == 222);
}

TEST_CASE("a lane may wait for another lane of its warp", "[core]") {
  // Independent thread scheduling: lane 0 polls a flag that lane 1 sets on the other side of the branch.
  const auto r =
      run_core({"  .shared .align 4 .b8 flag[4];\n  mov.u32 %r2, flag;\n  setp.eq.u32 %p1, %lane, 0;\n"
                "  @%p1 st.shared.u32 [%r2], 0;\n  bar.warp.sync -1;\n  @!%p1 bra setter;\n"
                "poll:\n  ld.volatile.shared.u32 %r1, [%r2];\n  setp.eq.u32 %p2, %r1, 0;\n  @%p2 bra poll;\n "
                " bra meet;\n"
                "setter:\n  mov.u32 %r1, 5;\n  st.volatile.shared.u32 [%r2], 9;\nmeet:\n" +
                kStoreR1},
               32);
  REQUIRE(r.fault == "");
  CHECK(r.words[0] == 9);
  CHECK(r.words[1] == 5);
}

TEST_CASE("lanes that wait at the meeting point go on when the others wait for them", "[core]") {
  // Lane 0 loops until lane 1 sets the flag behind the post-dominator of the loop's branch.
  const auto r =
      run_core({"  .shared .align 4 .b8 flag[4];\n  mov.u32 %r2, flag;\n  setp.eq.u32 %p1, %lane, 0;\n"
                "  @%p1 st.shared.u32 [%r2], 0;\n  bar.warp.sync -1;\n"
                "poll:\n  ld.volatile.shared.u32 %r1, [%r2];\n  setp.eq.u32 %p2, %r1, 0;\n  and.pred %p2, "
                "%p2, %p1;\n  @%p2 bra poll;\n"
                "  setp.eq.u32 %p3, %lane, 1;\n  @%p3 st.volatile.shared.u32 [%r2], 9;\n" +
                kStoreR1},
               32);
  REQUIRE(r.fault == "");
  CHECK(r.words[0] == 9);
}

TEST_CASE("diverged halves of a warp meet in a collective", "[core]") {
  const auto r = run_core(
      {"  setp.lt.u32 %p1, %lane, 16;\n  @%p1 bra low;\n  bar.warp.sync -1;\n  mov.u32 %r1, 1;\n  bra meet;\n"
       "low:\n  bar.warp.sync -1;\n  mov.u32 %r1, 2;\nmeet:\n  redux.sync.add.u32 %r1, %r1, -1;\n" +
       kStoreR1},
      32);
  REQUIRE(r.fault == "");
  CHECK(r.words[31] == 16 * 1 + 16 * 2);
}

TEST_CASE("an aligned instruction in a divergent warp names both places", "[core]") {
  const auto r = run_core(
      {"  setp.lt.u32 %p1, %lane, 4;\n  @%p1 bra low;\n  bar.sync 0;\n  bra meet;\nlow:\n  mov.u32 %r1, 1;\n"
       "meet:\n" +
       kStoreR1},
      32);
  CHECK(mentions_all(r.fault, {".aligned", "0xfffffff0", "0x0000000f", "bar.sync 0", "kernel k", "warp 0"}));
  CHECK(mentions_all(r.fault, {"wait to reconverge"}));
}

TEST_CASE("tiles of a warp take part in one collective with masks of their own", "[core]") {
  const std::string masks = "  shr.u32 %r2, %lane, 4;\n  shl.b32 %r2, %r2, 4;\n  shl.b32 %r2, 0xffff, %r2;\n";
  const auto whole = run_core({masks + "  redux.sync.add.u32 %r1, %lane, %r2;\n" + kStoreR1}, 32);
  REQUIRE(whole.fault == "");
  CHECK(whole.words[3] == 120);
  CHECK(whole.words[20] == 376);
  // Diverged, with tiles that cut across the branch.
  const auto split = run_core({masks +
                               "  and.b32 %r3, %lane, 1;\n  setp.eq.u32 %p1, %r3, 0;\n  @%p1 bra even;\n  "
                               "bar.warp.sync %r2;\n  bra meet;\n"
                               "even:\n  bar.warp.sync %r2;\nmeet:\n  redux.sync.add.u32 %r1, %lane, %r2;\n" +
                               kStoreR1},
                              32);
  REQUIRE(split.fault == "");
  CHECK(split.words[3] == 120);
  CHECK(split.words[20] == 376);
}

TEST_CASE("a collective refuses lanes that its member mask does not name", "[core]") {
  const auto r = run_core({"  vote.sync.ballot.b32 %r1, 1, 0xffff;\n" + kStoreR1}, 32);
  CHECK(mentions_all(r.fault, {"member mask", "0xffff", "vote.sync.ballot"}));
}

TEST_CASE("bra.uni must be uniform", "[core]") {
  const auto r = run_core({"  setp.lt.u32 %p1, %lane, 4;\n  @%p1 bra.uni leave;\nleave:\n  ret;"}, 32);
  CHECK(mentions_all(r.fault, {"bra.uni", "not uniform"}));
}

TEST_CASE("a register keeps its value in lanes that a loop has left", "[core]") {
  // %r5 is dead in the loop for lanes that still run; a row shared with it must not clobber the lanes that
  // left.
  const auto r = run_core(
      {"  add.u32 %r5, %lane, 500;\n  mov.u32 %r1, 0;\nagain:\n  add.u32 %r6, %r1, 17;\n  mul.lo.u32 %r7, "
       "%r6, 3;\n"
       "  add.u32 %r8, %r7, %r6;\n  add.u32 %r1, %r1, 1;\n  setp.lt.u32 %p1, %r1, %lane;\n  @%p1 bra again;\n"
       "  add.u32 %r1, %r5, %r8;\n" +
       kStoreR1},
      32);
  REQUIRE(r.fault == "");
  for (uint32_t i = 0; i < 32; ++i) CHECK(r.words[i] == i + 500 + 4 * ((i ? i - 1 : 0) + 17));
}
