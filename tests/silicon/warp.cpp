// Instructions of a warp: shuffles, votes, matches, reductions, elections, 8x8 matrices, barriers with
// reductions.
#include <fmt/format.h>

#include "operands.hpp"

namespace mxfa::silicon {
namespace {

// Each lane: values of `in` at [4 * lane ..], results stored at [columns * lane ..].
std::string store_words(int columns, int first) {
  std::string text = fmt::format("  mad.wide.u32 %w10, %thread, {}, %out;\n", 4 * columns);
  for (int i = 0; i < columns; ++i)
    text += fmt::format("  st.global.b32 [%w10+{}], %r{};\n", 4 * i, first + i);
  return text;
}
const std::string kLoadWord = "  mad.wide.u32 %w1, %thread, 4, %in;\n  ld.global.b32 %r1, [%w1];\n";

Words random_words(uint64_t seed, size_t count, uint32_t below = 0) {
  Random random(seed);
  Words words(count);
  for (uint32_t& word : words) word = below ? random.below(below) : random.word();
  return words;
}

void add(Programs& programs, const std::string& name, const Kernel& kernel, const Words& in, size_t out,
         Agreement agreement = {}) {
  programs.push_back(
      {"warp/" + name, [=](Machine& machine) { return machine.run(kernel, in, out); }, agreement});
}

void add_shuffles(Programs& programs) {
  for (const char* mode : {"up", "down", "bfly", "idx"}) {
    // Every distance with several clamps and segments, in one kernel: 2 words a lane and case.
    std::string body = kLoadWord + "  mad.wide.u32 %w10, %thread, 8, %out;\n";
    int cases = 0;
    for (const int distance : {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 63})
      for (const int clamp : {0x1f, 0, 0x1c1f, 0x181f, 0x1807, 0x1018, 0x0f1f}) {
        body += fmt::format(
            "  shfl.sync.{}.b32 %r2|%p1, %r1, {}, {}, 0xffffffff;\n  selp.u32 %r3, 1, 0, %p1;\n"
            "  st.global.v2.u32 [%w10+{}], {{%r2, %r3}};\n",
            mode, distance, clamp, cases * 256);
        ++cases;
      }
    add(programs, fmt::format("shfl.{}", mode), {body}, random_words(5, 32), static_cast<size_t>(cases) * 64);
    // The distance of each lane its own.
    add(programs, fmt::format("shfl.{}.own", mode),
        {kLoadWord +
         fmt::format("  and.b32 %r4, %r1, 63;\n  shfl.sync.{}.b32 %r2|%p1, %lane, %r4, 0x1f, 0xffffffff;\n"
                     "  selp.u32 %r3, 1, 0, %p1;\n",
                     mode) +
         store_words(2, 2)},
        random_words(6, 32), 64);
  }
}

void add_masks(Programs& programs) {
  const std::vector<uint32_t> masks = {0xffffffff, 0x1,        0x80000000, 0x00ff00ff, 0x55555555,
                                       0xfffffffe, 0x00010000, 0x7ffffff0, 0xaaaa0000};
  // For each mask its lanes take part in one of each; the others write nothing.
  std::string body = kLoadWord +
                     "  mad.wide.u32 %w10, %thread, 64, %out;\n  and.b32 %r9, %r1, 1;\n"
                     "  setp.ne.u32 %p2, %r9, 0;\n  and.b32 %r8, %r1, 6;\n  cvt.u64.u32 %w2, %r8;\n"
                     "  shl.b64 %w2, %w2, 33;\n";
  int part = 0;
  for (const uint32_t mask : masks) {
    body += fmt::format(
        "  mov.u32 %r2, {0};\n  shr.u32 %r3, %r2, %lane;\n  and.b32 %r3, %r3, 1;\n  setp.eq.u32 %p1, %r3, "
        "0;\n"
        "  @%p1 bra past{1};\n"
        "  elect.sync %r10|%p3, %r2;\n  selp.u32 %r11, 1, 0, %p3;\n  vote.sync.ballot.b32 %r12, %p2, %r2;\n"
        "  vote.sync.all.pred %p4, %p2, %r2;\n  vote.sync.any.pred %p5, %p2, %r2;\n  vote.sync.uni.pred %p6, "
        "%p2, %r2;\n"
        "  selp.u32 %r13, 1, 0, %p4;\n  @%p5 or.b32 %r13, %r13, 2;\n  @%p6 or.b32 %r13, %r13, 4;\n"
        "  match.any.sync.b32 %r14, %r8, %r2;\n  match.all.sync.b32 %r15|%p7, %r8, %r2;\n"
        "  match.any.sync.b64 %r16, %w2, %r2;\n  selp.u32 %r17, 1, 0, %p7;\n  redux.sync.add.s32 %r18, %r1, "
        "%r2;\n"
        "  redux.sync.min.s32 %r19, %r1, %r2;\n  redux.sync.max.u32 %r20, %r1, %r2;\n  redux.sync.and.b32 "
        "%r21, %r1, %r2;\n"
        "  redux.sync.or.b32 %r22, %r1, %r2;\n  redux.sync.xor.b32 %r23, %r1, %r2;\n  redux.sync.max.s32 "
        "%r24, %r1, %r2;\n"
        "  redux.sync.min.u32 %r25, %r1, %r2;\n",
        mask, part);
    for (int i = 0; i < 16; ++i)
      body += fmt::format("  st.global.b32 [%w10+{}], %r{};\n", part * 2048 + 4 * i, 10 + i);
    body += fmt::format("past{}:\n  bar.warp.sync 0xffffffff;\n", part++);
  }
  add(programs, "elect_vote_match_redux", {body}, random_words(8, 32), masks.size() * 512);
  add(programs, "match.all.equal",
      {"  mov.u32 %r1, 7;\n  match.all.sync.b32 %r2|%p1, %r1, 0xffffffff;\n  selp.u32 %r3, 1, 0, %p1;\n" +
       store_words(2, 2)},
      {}, 64);
  add(programs, "lane_registers",
      {"  mov.u32 %r2, %laneid;\n  mov.u32 %r3, %lanemask_eq;\n  mov.u32 %r4, %lanemask_lt;\n  mov.u32 %r5, "
       "%lanemask_le;\n"
       "  mov.u32 %r6, %lanemask_gt;\n  mov.u32 %r7, %lanemask_ge;\n  mov.u32 %r8, %ntid.x;\n  mov.u32 %r9, "
       "%nctaid.x;\n" +
           store_words(8, 2),
       64},
      {}, 512);
  // Which lanes run together after a branch is the machine's choice.
  add(programs, "activemask",
      {kLoadWord +
       "  and.b32 %r2, %r1, 1;\n  setp.eq.u32 %p1, %r2, 0;\n  @%p1 bra even;\n  activemask.b32 %r3;\n  bra "
       "join;\neven:\n  activemask.b32 %r3;\njoin:\n  activemask.b32 %r4;\n  bar.warp.sync 0xffffffff;\n  "
       "activemask.b32 %r5;\n" +
       store_words(3, 3)},
      random_words(9, 32), 96, {Agreement::Kind::Recorded});
  // 96 threads; the predicate of each from `in`.
  add(programs, "bar.red",
      {kLoadWord +
           "  and.b32 %r9, %r1, 1;\n  setp.ne.u32 %p1, %r9, 0;\n  bar.red.popc.u32 %r2, 0, %p1;\n"
           "  bar.red.and.pred %p2, 0, %p1;\n  bar.red.or.pred %p3, 0, %p1;\n  bar.red.popc.u32 %r3, 1, 96, "
           "!%p1;\n"
           "  selp.u32 %r4, 1, 0, %p2;\n  selp.u32 %r5, 1, 0, %p3;\n" +
           store_words(4, 2),
       96},
      random_words(10, 96), 384);
}

void add_matrices(Programs& programs) {
  const std::string fill =
      "  .shared .align 16 .b8 tile[2048];\n  mov.u32 %r90, tile;\n  mad.wide.u32 %w1, %lane, 64, %in;\n"
      "  mad.lo.u32 %r91, %lane, 64, %r90;\n";
  std::string load = fill;
  for (int i = 0; i < 16; ++i)
    load += fmt::format("  ld.global.b32 %r1, [%w1+{0}];\n  st.shared.b32 [%r91+{0}], %r1;\n", 4 * i);
  load += "  bar.warp.sync 0xffffffff;\n";
  // Row addresses: 16-byte rows in a scrambled order.
  const std::string address =
      "  mul.lo.u32 %r2, %lane, 13;\n  add.u32 %r2, %r2, 5;\n  and.b32 %r2, %r2, 127;\n"
      "  mad.lo.u32 %r2, %r2, 16, %r90;\n";
  for (const char* trans : {"", ".trans"})
    for (const int n : {1, 2, 4}) {
      std::string registers;
      for (int i = 0; i < n; ++i) registers += fmt::format("{}%r{}", i ? ", " : "", 10 + i);
      const std::string shape = fmt::format("m8n8.x{}{}.shared.b16", n, trans);
      add(programs, "ldmatrix." + shape,
          {load + address + fmt::format("  ldmatrix.sync.aligned.{} {{{}}}, [%r2];\n", shape, registers) +
           store_words(n, 10)},
          random_words(12, 512), static_cast<size_t>(32 * n));
      std::string store = load + address + "  mad.wide.u32 %w2, %lane, 16, %in;\n";
      for (int i = 0; i < n; ++i) store += fmt::format("  ld.global.b32 %r{}, [%w2+{}];\n", 10 + i, 4 * i);
      store += fmt::format(
          "  stmatrix.sync.aligned.{} [%r2], {{{}}};\n  bar.warp.sync 0xffffffff;\n"
          "  mad.wide.u32 %w3, %lane, 64, %out;\n",
          shape, registers);
      for (int i = 0; i < 16; ++i)
        store += fmt::format("  ld.shared.b32 %r1, [%r91+{0}];\n  st.global.b32 [%w3+{0}], %r1;\n", 4 * i);
      add(programs, "stmatrix." + shape, {store}, random_words(13, 512), 512);
    }
  add(programs, "movmatrix",
      {kLoadWord + "  movmatrix.sync.aligned.m8n8.trans.b16 %r2, %r1;\n" + store_words(1, 2)},
      random_words(14, 32), 32);
}

}  // namespace

void add_warp(Programs& programs) {
  add_shuffles(programs);
  add_masks(programs);
  add_matrices(programs);
}

}  // namespace mxfa::silicon
