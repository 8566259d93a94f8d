// Warp instructions: shuffles, votes, matches, reductions, election, and the way threads part and meet again.
#include <algorithm>
#include <bit>
#include <cmath>

#include "one_op.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;

namespace {

using Lanes = std::vector<uint32_t>;  // one word a lane

// Loads word `index` of this thread's record of `size` words into a register, and stores likewise.
std::string load(const std::string& reg, int index, int size) {
  return "  mad.wide.u32 %w0, %thread, " + std::to_string(4 * size) + ", %in;\n  ld.global.b32 " + reg +
         ", [%w0+" + std::to_string(4 * index) + "];\n";
}
std::string store(const std::string& reg, int index, int size) {
  return "  mad.wide.u32 %w1, %thread, " + std::to_string(4 * size) + ", %out;\n  st.global.b32 [%w1+" +
         std::to_string(4 * index) + "], " + reg + ";\n";
}
std::string flag(const std::string& reg, const std::string& predicate) {
  return "  selp.u32 " + reg + ", 1, 0, " + predicate + ";\n";
}

Lanes some_lanes(uint32_t seed, uint32_t modulo) {
  Lanes lanes(32);
  for (uint32_t i = 0; i < 32; ++i) lanes[i] = ((i + seed) * 2654435761u >> 7) % modulo;
  return lanes;
}

uint32_t mask_of(const Lanes& lanes, bool (*is_true)(uint32_t)) {
  uint32_t mask = 0;
  for (int i = 0; i < 32; ++i) mask |= uint32_t{is_true(lanes[i])} << i;
  return mask;
}

}  // namespace

TEST_CASE("shfl.sync moves words between lanes within segments", "[one_op]") {
  struct Mode {
    const char* name;
    bool (*in_range)(int, int);
    int (*source)(int lane, int b, int min_lane, int segment);
  };
  const Mode modes[] = {{"up", [](int j, int max_lane) { return j >= max_lane; },
                         [](int lane, int b, int, int) { return lane - b; }},
                        {"down", [](int j, int max_lane) { return j <= max_lane; },
                         [](int lane, int b, int, int) { return lane + b; }},
                        {"bfly", [](int j, int max_lane) { return j <= max_lane; },
                         [](int lane, int b, int, int) { return lane ^ b; }},
                        {"idx", [](int j, int max_lane) { return j <= max_lane; },
                         [](int, int b, int min_lane, int segment) { return min_lane | (b & ~segment); }}};
  for (const Mode& mode : modes) {
    for (const uint32_t c : {0x1fu, 0u, 0x181fu, 0x1c0fu, 0x1807u, 0x1c03u, 0x100fu}) {
      for (const uint32_t seed : {1u, 9u}) {
        CAPTURE(mode.name, c, seed);
        // Each lane asks for its own distance.
        const Lanes distance = some_lanes(seed, 33);
        std::vector<uint32_t> in;
        for (int i = 0; i < 32; ++i) in.insert(in.end(), {1000u + i, distance[i]});
        const auto out = run_kernel({load("%r1", 0, 2) + load("%r2", 1, 2) + "  shfl.sync." + mode.name +
                                     ".b32 %r3|%p1, %r1, %r2, " + std::to_string(c) + ", 0xffffffff;\n" +
                                     flag("%r4", "%p1") + store("%r3", 0, 2) + store("%r4", 1, 2)},
                                    in, 64);
        for (int lane = 0; lane < 32; ++lane) {
          const int b = distance[lane] & 0x1f, clamp = c & 0x1f, segment = c >> 8 & 0x1f;
          const int max_lane = (lane & segment) | (clamp & ~segment), min_lane = lane & segment;
          const int j = mode.source(lane, b, min_lane, segment);
          const bool ok = mode.in_range(j, max_lane);
          CAPTURE(lane, b);
          CHECK(out[2 * lane] == 1000u + (ok ? j : lane));
          CHECK(out[2 * lane + 1] == ok);
        }
      }
    }
  }
}

TEST_CASE("vote.sync all, any, uni and ballot", "[one_op]") {
  for (const uint32_t pattern : {0u, 0xffffffffu, 1u, 0x80000000u, 0xffff0000u, 0x7fffffffu}) {
    CAPTURE(pattern);
    const auto out = run_kernel(
        {"  ld.global.u32 %r1, [%in];\n  shr.u32 %r2, %r1, %lane;\n  and.b32 %r2, %r2, 1;\n  setp.ne.u32 "
         "%p1, %r2, 0;\n"
         "  vote.sync.all.pred %p2, %p1, 0xffffffff;\n  vote.sync.any.pred %p3, %p1, 0xffffffff;\n"
         "  vote.sync.uni.pred %p4, %p1, 0xffffffff;\n  vote.sync.ballot.b32 %r3, %p1, 0xffffffff;\n"
         "  vote.sync.all.pred %p5, !%p1, 0xffffffff;\n" +
         flag("%r4", "%p2") + flag("%r5", "%p3") + flag("%r6", "%p4") + flag("%r7", "%p5") +
         store("%r4", 0, 5) + store("%r5", 1, 5) + store("%r6", 2, 5) + store("%r3", 3, 5) +
         store("%r7", 4, 5)},
        {pattern}, 160);
    for (int lane : {0, 31}) {
      CHECK(out[5 * lane] == (pattern == 0xffffffff));
      CHECK(out[5 * lane + 1] == (pattern != 0));
      CHECK(out[5 * lane + 2] == (pattern == 0 || pattern == 0xffffffff));
      CHECK(out[5 * lane + 3] == pattern);
      CHECK(out[5 * lane + 4] == (pattern == 0));
    }
  }
}

TEST_CASE("match.sync groups equal values", "[one_op]") {
  for (const uint32_t kinds : {1u, 2u, 5u, 1000u}) {
    CAPTURE(kinds);
    const Lanes values = some_lanes(3, kinds);
    const auto out =
        run_kernel({load("%r1", 0, 1) +
                    "  match.any.sync.b32 %r2, %r1, 0xffffffff;\n"
                    "  match.all.sync.b32 %r3|%p1, %r1, 0xffffffff;\n" +
                    flag("%r4", "%p1") + store("%r2", 0, 3) + store("%r3", 1, 3) + store("%r4", 2, 3)},
                   values, 96);
    const bool all = std::all_of(values.begin(), values.end(), [&](uint32_t v) { return v == values[0]; });
    for (int lane = 0; lane < 32; ++lane) {
      uint32_t same = 0;
      for (int other = 0; other < 32; ++other) same |= uint32_t{values[other] == values[lane]} << other;
      CAPTURE(lane);
      CHECK(out[3 * lane] == same);
      CHECK(out[3 * lane + 1] == (all ? 0xffffffff : 0));
      CHECK(out[3 * lane + 2] == all);
    }
  }
}

TEST_CASE("redux.sync of integers over the lanes of its mask", "[one_op]") {
  const Lanes values = [] {
    Lanes lanes = some_lanes(5, 0xfffffff1);
    lanes[7] = 0x80000000;
    lanes[8] = 0x7fffffff;
    return lanes;
  }();
  struct Op {
    const char* name;
    uint32_t (*combine)(uint32_t, uint32_t);
  };
  for (const Op& op :
       {Op{"add.u32", [](uint32_t a, uint32_t b) { return a + b; }},
        {"add.s32", [](uint32_t a, uint32_t b) { return a + b; }},
        {"min.u32", [](uint32_t a, uint32_t b) { return std::min(a, b); }},
        {"max.u32", [](uint32_t a, uint32_t b) { return std::max(a, b); }},
        {"min.s32",
         [](uint32_t a, uint32_t b) { return static_cast<int32_t>(a) < static_cast<int32_t>(b) ? a : b; }},
        {"max.s32",
         [](uint32_t a, uint32_t b) { return static_cast<int32_t>(a) > static_cast<int32_t>(b) ? a : b; }},
        {"and.b32", [](uint32_t a, uint32_t b) { return a & b; }},
        {"or.b32", [](uint32_t a, uint32_t b) { return a | b; }},
        {"xor.b32", [](uint32_t a, uint32_t b) { return a ^ b; }}}) {
    // Two halves of the warp reduce apart, each under its own mask.
    const auto out = run_kernel({load("%r1", 0, 1) +
                                 "  setp.lt.u32 %p1, %lane, 12;\n  @%p1 bra low;\n"
                                 "  redux.sync." +
                                 op.name +
                                 " %r2, %r1, 0xfffff000;\n  bra done;\nlow:\n"
                                 "  redux.sync." +
                                 op.name + " %r2, %r1, 0x00000fff;\ndone:\n" + store("%r2", 0, 1)},
                                values, 32);
    CAPTURE(op.name);
    uint32_t low = values[0], high = values[12];
    for (int i = 1; i < 12; ++i) low = op.combine(low, values[i]);
    for (int i = 13; i < 32; ++i) high = op.combine(high, values[i]);
    CHECK(out[0] == low);
    CHECK(out[11] == low);
    CHECK(out[12] == high);
    CHECK(out[31] == high);
  }
}

TEST_CASE("redux.sync of f32: .abs, NaN skipped or spread, +0 above -0", "[one_op]") {
  if (!can_run("sm_100a")) return;
  const uint32_t nan = 0x7fc00000, minus_zero = 0x80000000, plus_zero = 0;
  std::vector<Lanes> inputs;
  Lanes lanes(32);
  for (int i = 0; i < 32; ++i) lanes[i] = bits_of(static_cast<float>((i * 7) % 32 - 20));
  inputs.push_back(lanes);
  lanes[3] = nan;
  inputs.push_back(lanes);
  inputs.push_back(Lanes(32, nan));
  lanes.assign(32, minus_zero);
  lanes[30] = plus_zero;
  inputs.push_back(lanes);
  for (const Lanes& values : inputs) {
    for (const bool max : {false, true}) {
      for (const bool abs : {false, true}) {
        for (const bool spread : {false, true}) {
          const std::string name =
              std::string(max ? "max" : "min") + (abs ? ".abs" : "") + (spread ? ".NaN" : "") + ".f32";
          CAPTURE(name, values[3], values[30]);
          const auto out = run_kernel(
              {load("%f1", 0, 1) + "  redux.sync." + name + " %f2, %f1, 0xffffffff;\n" + store("%f2", 0, 1),
               "", "sm_100a"},
              values, 32);
          uint32_t expected = 0x7fffffff;
          bool any_nan = false;
          for (uint32_t bits : values) {
            if (abs) bits &= 0x7fffffff;
            if ((bits & 0x7fffffff) > 0x7f800000) {
              any_nan = true;
              continue;
            }
            const float a = as_float(bits), b = as_float(expected);
            const bool better =
                std::isnan(b) || (a == b ? (max ? bits < expected : bits > expected) : (max ? a > b : a < b));
            if (better) expected = bits;
          }
          if (spread && any_nan) expected = 0x7fffffff;
          CHECK(out[0] == expected);
          CHECK(out[31] == expected);
        }
      }
    }
  }
}

TEST_CASE("elect.sync chooses exactly one lane of the mask and everyone knows which", "[one_op]") {
  const auto out = run_kernel(
      {"  setp.lt.u32 %p1, %lane, 5;\n  @%p1 bra low;\n  elect.sync %r1|%p2, 0xffffffe0;\n  bra done;\nlow:\n"
       "  elect.sync %r1|%p2, 0x0000001f;\ndone:\n" +
       flag("%r2", "%p2") + store("%r1", 0, 2) + store("%r2", 1, 2)},
      {}, 64);
  for (const auto& [first, last] : {std::pair(0, 5), std::pair(5, 32)}) {
    int chosen = 0;
    for (int lane = first; lane < last; ++lane) {
      chosen += out[2 * lane + 1];
      CHECK(out[2 * lane] == out[2 * first]);
      CHECK((out[2 * lane + 1] == 1) == (static_cast<int>(out[2 * lane]) == lane));
    }
    CHECK(chosen == 1);
    CHECK((static_cast<int>(out[2 * first]) >= first && static_cast<int>(out[2 * first]) < last));
  }
}

TEST_CASE("lane special registers", "[one_op]") {
  const char* const names[] = {"%laneid",      "%lanemask_eq", "%lanemask_lt",
                               "%lanemask_le", "%lanemask_gt", "%lanemask_ge"};
  std::string body;
  for (int i = 0; i < 6; ++i) body += "  mov.u32 %r1, " + std::string(names[i]) + ";\n" + store("%r1", i, 6);
  const auto out = run_kernel({body}, {}, 192);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t below = (1u << lane) - 1, self = 1u << lane;
    CHECK((out[6 * lane] == lane && out[6 * lane + 1] == self && out[6 * lane + 2] == below &&
           out[6 * lane + 3] == (below | self)));
    CHECK((out[6 * lane + 4] == ~(below | self) && out[6 * lane + 5] == ~below));
  }
}

TEST_CASE("grid special registers", "[one_op]") {
  const auto out = run_kernel(
      {"  mov.u32 %r1, %nctaid.x;\n  mov.u32 %r2, %ntid.x;\n  mov.u32 %r3, %tid.y;\n  mov.u32 %r4, "
       "%ctaid.x;\n"
       "  mad.lo.u32 %r5, %r4, %r2, %thread;\n  mul.wide.u32 %w1, %r5, 16;\n  add.u64 %w1, %w1, %out;\n"
       "  st.global.v4.u32 [%w1], {%r1, %r2, %r3, %r4};",
       "", "sm_90", 48, 3},
      {}, 48 * 3 * 4);
  for (int i = 0; i < 48 * 3; ++i)
    CHECK((out[4 * i] == 3 && out[4 * i + 1] == 48 && out[4 * i + 2] == 0 && out[4 * i + 3] == i / 48u));
}

// ---- divergence
// -----------------------------------------------------------------------------------------------
TEST_CASE("both sides of a branch run for their lanes, and a vote after it sees everybody", "[one_op]") {
  const auto out = run_kernel(
      {"  and.b32 %r1, %lane, 3;\n  setp.eq.u32 %p1, %r1, 0;\n  mov.u32 %r2, 0;\n  @%p1 bra side;\n"
       "  add.u32 %r2, %lane, 100;\n  bra meet;\nside:\n  add.u32 %r2, %lane, 200;\nmeet:\n"
       "  bar.warp.sync 0xffffffff;\n  vote.sync.ballot.b32 %r3, %p1, 0xffffffff;\n" +
       store("%r2", 0, 2) + store("%r3", 1, 2)},
      {}, 64);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    CHECK(out[2 * lane] == lane + (lane % 4 == 0 ? 200 : 100));
    CHECK(out[2 * lane + 1] == 0x11111111);
  }
}

TEST_CASE("a loop runs as often as each lane asks", "[one_op]") {
  const auto out = run_kernel(
      {"  mov.u32 %r1, 0;\n  mov.u32 %r2, 0;\nagain:\n  setp.ge.u32 %p1, %r1, %lane;\n  @%p1 bra done;\n"
       "  add.u32 %r2, %r2, %r1;\n  add.u32 %r1, %r1, 1;\n  bra again;\ndone:\n  bar.warp.sync 0xffffffff;\n"
       "  shfl.sync.idx.b32 %r3, %r2, 31, 31, 0xffffffff;\n" +
       store("%r2", 0, 2) + store("%r3", 1, 2)},
      {}, 64);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    CHECK(out[2 * lane] == (lane ? lane * (lane - 1) / 2 : 0));
    CHECK(out[2 * lane + 1] == 31 * 30 / 2);
  }
}

TEST_CASE("nested loops and branches keep each lane's own path", "[one_op]") {
  // r2 = sum over i < lane % 5 of (i odd ? 3 : sum over j < i of 2)
  const auto out = run_kernel(
      {"  rem.u32 %r5, %lane, 5;\n  mov.u32 %r1, 0;\n  mov.u32 %r2, 0;\nouter:\n  setp.ge.u32 %p1, %r1, "
       "%r5;\n  @%p1 bra end;\n"
       "  and.b32 %r3, %r1, 1;\n  setp.eq.u32 %p2, %r3, 0;\n  @%p2 bra even;\n  add.u32 %r2, %r2, 3;\n  bra "
       "next;\neven:\n"
       "  mov.u32 %r4, 0;\ninner:\n  setp.ge.u32 %p3, %r4, %r1;\n  @%p3 bra next;\n  add.u32 %r2, %r2, 2;\n"
       "  add.u32 %r4, %r4, 1;\n  bra inner;\nnext:\n  add.u32 %r1, %r1, 1;\n  bra outer;\nend:\n" +
       store("%r2", 0, 1)},
      {}, 32);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    uint32_t expected = 0;
    for (uint32_t i = 0; i < lane % 5; ++i) expected += i % 2 ? 3 : 2 * i;
    CHECK(out[lane] == expected);
  }
}

TEST_CASE("lanes that leave early do not hold up the others", "[one_op]") {
  const auto out = run_kernel(
      {"  setp.lt.u32 %p1, %lane, 20;\n  @%p1 exit;\n  vote.sync.ballot.b32 %r1, 1, 0xfff00000;\n" +
       store("%r1", 0, 1)},
      {}, 32);
  for (uint32_t lane = 0; lane < 32; ++lane) CHECK(out[lane] == (lane < 20 ? 0xffffffff : 0xfff00000));
}

TEST_CASE("a guarded instruction writes only the lanes whose predicate is true", "[one_op]") {
  const auto out = run_kernel({"  mov.u32 %r1, 5;\n  setp.gt.u32 %p1, %lane, 15;\n  @%p1 mov.u32 %r1, 6;\n  "
                               "@!%p1 add.u32 %r1, %r1, %lane;\n" +
                               store("%r1", 0, 1)},
                              {}, 32);
  for (uint32_t lane = 0; lane < 32; ++lane) CHECK(out[lane] == (lane > 15 ? 6 : 5 + lane));
}

TEST_CASE("one lane can wait for another lane of its warp", "[one_op]") {
  // Independent thread scheduling: lane 0 spins on a flag that lane 1 sets on the other side of the branch.
  const auto out = run_kernel(
      {"  .shared .align 4 .b32 flag;\n  setp.eq.u32 %p1, %lane, 0;\n  @%p1 st.shared.u32 [flag], 0;\n  "
       "bar.warp.sync 0xffffffff;\n"
       "  setp.gt.u32 %p2, %lane, 1;\n  @%p2 bra done;\n  @%p1 bra wait;\n  st.volatile.shared.u32 [flag], "
       "7;\n  bra done;\n"
       "wait:\n  ld.volatile.shared.u32 %r1, [flag];\n  setp.ne.u32 %p3, %r1, 7;\n  @%p3 bra wait;\ndone:\n"
       "  bar.warp.sync 0xffffffff;\n  ld.shared.u32 %r2, [flag];\n" +
       store("%r2", 0, 1)},
      {}, 32);
  for (const uint32_t value : out) CHECK(value == 7);
}

TEST_CASE("an indirect branch goes where each lane points", "[one_op]") {
  const auto out = run_kernel(
      {"  rem.u32 %r1, %lane, 3;\ntargets: .branchtargets first, second, third;\n  brx.idx %r1, "
       "targets;\nfirst:\n  mov.u32 %r2, 10;\n"
       "  bra done;\nsecond:\n  mov.u32 %r2, 20;\n  bra done;\nthird:\n  mov.u32 %r2, 30;\ndone:\n" +
       store("%r2", 0, 1)},
      {}, 32);
  for (uint32_t lane = 0; lane < 32; ++lane) CHECK(out[lane] == 10 * (lane % 3 + 1));
}

TEST_CASE("functions are called with parameters and return values, and by a part of the warp", "[one_op]") {
  const std::string twice =
      ".func (.param .b32 result) twice(.param .b32 x)\n{\n  .reg .b32 %a<2>;\n  ld.param.b32 %a1, [x];\n  "
      "add.u32 %a1, %a1, %a1;\n"
      "  st.param.b32 [result], %a1;\n  ret;\n}\n";
  const auto out = run_kernel({"  mov.u32 %r2, %lane;\n  setp.lt.u32 %p1, %lane, 9;\n  @%p1 bra skip;\n  {\n "
                               " .param .b32 argument;\n  .param .b32 answer;\n"
                               "  st.param.b32 [argument], %lane;\n  call (answer), twice, (argument);\n  "
                               "ld.param.b32 %r2, [answer];\n  }\nskip:\n" +
                                   store("%r2", 0, 1),
                               twice},
                              {}, 32);
  for (uint32_t lane = 0; lane < 32; ++lane) CHECK(out[lane] == (lane < 9 ? lane : 2 * lane));
}

TEST_CASE("activemask is the lanes that run together", "[one_op]") {
  const auto out = run_kernel(
      {"  setp.lt.u32 %p1, %lane, 8;\n  mov.u32 %r1, 0;\n  @!%p1 bra done;\n  activemask.b32 %r1;\ndone:\n" +
       store("%r1", 0, 1)},
      {}, 32);
  CHECK(mask_of(Lanes(out.begin(), out.end()), [](uint32_t value) { return value == 0xff; }) == 0xff);
}
