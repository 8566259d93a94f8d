// Loads, stores, atomics, barriers and clusters.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "one_op.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;

namespace {

std::vector<uint32_t> ramp(size_t words) {
  std::vector<uint32_t> values(words);
  for (size_t i = 0; i < words; ++i) values[i] = static_cast<uint32_t>(i * 0x9e3779b1u + 0x1234567u);
  return values;
}

std::string names(const std::string& prefix, int count) {
  std::string text = "{";
  for (int i = 0; i < count; ++i) text += (i ? ", %" : "%") + prefix + std::to_string(i + 1);
  return text + "}";
}

}  // namespace

TEST_CASE("vector loads and stores keep their elements in order", "[one_op]") {
  struct Row {
    const char* type;
    const char* registers;
    int count, bytes;
    const char* target;
  };
  for (const Row& row : {Row{"u8", "h", 2, 1, "sm_90"},
                         {"u8", "h", 4, 1, "sm_90"},
                         {"b16", "h", 2, 2, "sm_90"},
                         {"b16", "h", 4, 2, "sm_90"},
                         {"b32", "r", 2, 4, "sm_90"},
                         {"u32", "r", 4, 4, "sm_90"},
                         {"f32", "f", 4, 4, "sm_90"},
                         {"b64", "w", 2, 8, "sm_90"},
                         {"b32", "r", 8, 4, "sm_100a"},
                         {"b64", "w", 4, 8, "sm_100a"}}) {
    if (!can_run(row.target)) continue;
    const std::string form = ".v" + std::to_string(row.count) + "." + row.type;
    CAPTURE(form);
    const std::string list =
        row.registers == std::string("w") ? names("w1", row.count) : names(row.registers, row.count);
    const int bytes = row.count * row.bytes;
    const auto in = ramp(32 * bytes / 4 + 1);
    const std::string address = "  mad.wide.u32 %w30, %thread, " + std::to_string(bytes) +
                                ", %in;\n  mad.wide.u32 %w31, %thread, " + std::to_string(bytes) +
                                ", %out;\n";
    const auto out = run_kernel({address + "  ld.global" + form + " " + list + ", [%w30];\n  st.global" +
                                     form + " [%w31], " + list + ";",
                                 "", row.target},
                                in, 32 * bytes / 4);
    CHECK(std::equal(out.begin(), out.end(), in.begin()));
    if (row.bytes * row.count > 16) continue;  // 32-byte forms exist for global memory only
    // Through shared memory.
    const auto through = run_kernel(
        {address + "  .shared .align 16 .b8 box[1024];\n  mov.u32 %r90, box;\n  mad.lo.u32 %r90, %thread, " +
             std::to_string(bytes) + ", %r90;\n  ld.global" + form + " " + list + ", [%w30];\n  st.shared" +
             form + " [%r90], " + list + ";\n  ld.shared" + form + " " + list + ", [%r90];\n  st.global" +
             form + " [%w31], " + list + ";",
         "", row.target},
        in, 32 * bytes / 4);
    CHECK(std::equal(through.begin(), through.end(), in.begin()));
  }
}

TEST_CASE("narrow loads extend by sign or zero", "[one_op]") {
  const std::vector<uint32_t> in = {0x80ff7f01};
  const auto out = run_kernel({"  ld.global.u8 %r1, [%in+2];\n  ld.global.s8 %r2, [%in+2];\n  ld.global.u16 "
                               "%r3, [%in+2];\n  ld.global.s16 %r4, [%in+2];\n"
                               "  st.global.v4.u32 [%out], {%r1, %r2, %r3, %r4};\n  ld.global.s8 %w1, "
                               "[%in+3];\n  st.global.u64 [%out+16], %w1;"},
                              in, 6);
  CHECK(out == std::vector<uint32_t>{0xff, 0xffffffff, 0x80ff, 0xffff80ff, 0xffffff80, 0xffffffff});
}

TEST_CASE("narrow stores write only their bytes", "[one_op]") {
  const auto out = run_kernel({"  mov.u32 %r1, 0x12345678;\n  setp.eq.u32 %p1, %lane, 0;\n  @%p1 "
                               "st.global.u8 [%out+1], %r1;\n  @%p1 st.global.u16 [%out+6], %r1;"},
                              {}, 2);
  CHECK(out == std::vector<uint32_t>{0xffff78ff, 0x5678ffff});
}

TEST_CASE("addresses: offsets, generic windows and their conversion", "[one_op]") {
  const auto out =
      run_kernel({"  .shared .align 8 .b8 box[64];\n  .local .align 8 .b8 stack[64];\n"
                  "  mov.u32 %r1, box;\n  cvta.shared.u64 %w1, box;\n  add.u32 %r2, %lane, 5;\n  setp.eq.u32 "
                  "%p9, %lane, 0;\n  @!%p9 bra done;\n"
                  "  st.shared.u32 [box+8], %r2;\n  ld.u32 %r3, [%w1+8];\n"  // generic read of shared
                  "  cvta.to.shared.u64 %w2, %w1;\n  cvt.u32.u64 %r4, %w2;\n  ld.shared.u32 %r5, [%r4+8];\n"
                  "  isspacep.shared %p1, %w1;\n  isspacep.global %p2, %w1;\n  isspacep.global %p3, %in;\n  "
                  "cvta.local.u64 %w3, stack;\n"
                  "  mov.u32 %r6, 77;\n  st.u32 [%w3+12], %r6;\n  ld.local.u32 %r7, [stack+12];\n  "
                  "isspacep.local %p4, %w3;\n"
                  "  cvta.to.global.u64 %w4, %in;\n  ld.global.u32 %r8, [%w4+-4+4];\n"
                  "  st.global.u32 [%out], %r3;\n  st.global.u32 [%out+4], %r5;\n  st.global.u32 [%out+8], "
                  "%r7;\n  st.global.u32 [%out+12], %r8;\n"
                  "  selp.u32 %r10, 1, 0, %p1;\n  selp.u32 %r11, 1, 0, %p2;\n  selp.u32 %r12, 1, 0, %p3;\n  "
                  "selp.u32 %r13, 1, 0, %p4;\n"
                  "  st.global.v4.u32 [%out+16], {%r10, %r11, %r12, %r13};\ndone:"},
                 {4242}, 8);
  CHECK(out == std::vector<uint32_t>{5, 5, 77, 4242, 1, 0, 1, 1});
}

TEST_CASE("local memory belongs to each thread", "[one_op]") {
  const auto out = run_kernel(
      {"  .local .align 16 .b8 mine[64];\n  mov.u64 %w1, mine;\n  mul.lo.u32 %r1, %thread, 3;\n  "
       "st.local.u32 [%w1+4], %r1;\n  bar.sync 0;\n"
       "  ld.local.u32 %r2, [%w1+4];\n  mad.wide.u32 %w2, %thread, 4, %out;\n  st.global.u32 [%w2], %r2;",
       "", "sm_90", 96},
      {}, 96);
  for (uint32_t i = 0; i < 96; ++i) CHECK(out[i] == 3 * i);
}

TEST_CASE("module variables are initialised: numbers, strings, addresses", "[one_op]") {
  const std::string variables =
      ".const .align 4 .u32 table[4] = {11, 22, 33};\n.global .align 8 .f64 half = 0d3FE0000000000000;\n"
      ".global .align 4 .b8 text[4] = {104, 105, 33, 0};\n.global .align 8 .u64 link = table;\n.global "
      ".align 8 .u64 shifted = generic(text)+2;\n";
  const auto out = run_kernel({"  mov.u64 %w1, table;\n  ld.const.u32 %r1, [%w1+4];\n  ld.const.u32 %r2, "
                               "[table+12];\n  ld.global.u64 %w2, [half];\n"
                               "  ld.global.u64 %w3, [shifted];\n  ld.u8 %r3, [%w3];\n  st.global.v2.u32 "
                               "[%out], {%r1, %r2};\n  st.global.u64 [%out+8], %w2;\n"
                               "  st.global.u32 [%out+16], %r3;",
                               variables},
                              {}, 5);
  CHECK(out == std::vector<uint32_t>{22, 0, 0, 0x3fe00000, 33});
}

// ---- atomics
// ------------------------------------------------------------------------------------------------------
namespace {

struct Atomic {
  const char* op;  // "add.u32"
  int bytes;
  uint64_t start;
  std::vector<uint64_t> operands;  // of 32 lanes
  uint64_t expected;               // in memory afterwards
};

template <class Value>
std::vector<uint64_t> lanes(Value value) {
  std::vector<uint64_t> values;
  for (uint64_t i = 0; i < 32; ++i) values.push_back(value(i));
  return values;
}

}  // namespace

TEST_CASE("atomics on one address combine the operands of all lanes", "[one_op]") {
  const Atomic rows[] = {
      {"add.u32", 4, 5, lanes([](uint64_t i) { return i; }), 5 + 496},
      {"add.s32", 4, 5, lanes([](uint64_t i) { return 0xffffffff - i; }),
       static_cast<uint32_t>(5 - 32 - 496)},
      {"add.u64", 8, 1ull << 40, lanes([](uint64_t i) { return i << 33; }), (1ull << 40) + (496ull << 33)},
      {"min.u32", 4, 0xffffffff, lanes([](uint64_t i) { return 100 - i; }), 69},
      {"max.s32", 4, 0x80000000, lanes([](uint64_t i) { return i - 40; }), 0xfffffff7},
      {"min.s64", 8, 0, lanes([](uint64_t i) { return -i; }), static_cast<uint64_t>(-31)},
      {"max.u64", 8, 0, lanes([](uint64_t i) { return i << 50; }), 31ull << 50},
      {"and.b32", 4, 0xffffffff, lanes([](uint64_t i) { return ~(1ull << i) & 0xffffffff; }), 0},
      {"or.b32", 4, 0, lanes([](uint64_t i) { return 1ull << i; }), 0xffffffff},
      {"xor.b32", 4, 0x0f0f0f0f, lanes([](uint64_t i) { return 1ull << i; }), 0xf0f0f0f0},
      {"or.b64", 8, 0, lanes([](uint64_t i) { return 1ull << (2 * i); }), 0x5555555555555555},
      {"inc.u32", 4, 0, std::vector<uint64_t>(32, 9), 2},  // counts 0..9 and around: 32 steps end at 2
      {"dec.u32", 4, 3, std::vector<uint64_t>(32, 9), 1},  // 3,2,1,0,9,...: 32 steps end at 1
      {"add.f32", 4, 0x3f800000, std::vector<uint64_t>(32, 0x3f000000), 0x41880000},  // 1 + 32 * 0.5
      {"add.f64", 8, 0, std::vector<uint64_t>(32, 0x3ff8000000000000), 0x4048000000000000},
      {"add.noftz.f16x2", 4, 0x3c003c00, std::vector<uint64_t>(32, 0x3c000000),
       0x50203c00},  // (1, 1) + 32 * (0, 1)
      {"add.noftz.bf16x2", 4, 0x3f800000, std::vector<uint64_t>(32, 0x00003f80), 0x3f804200},
  };
  for (const Atomic& row : rows) {
    CAPTURE(row.op);
    std::vector<uint32_t> in = {static_cast<uint32_t>(row.start), static_cast<uint32_t>(row.start >> 32)};
    for (const uint64_t operand : row.operands)
      in.insert(in.end(), {static_cast<uint32_t>(operand), static_cast<uint32_t>(operand >> 32)});
    const bool wide = row.bytes == 8;
    const std::string value = wide ? "%w10" : "%r10", size = wide ? "b64" : "b32";
    for (const std::string space : {"global", "shared"}) {
      for (const std::string kind : {"atom", "red"}) {
        if (space == "shared" && std::string(row.op).find("x2") != std::string::npos)
          continue;  // not an instruction
        const std::string address = space == "global" ? "%out" : "%r50";
        CAPTURE(space, kind);
        const auto out = run_kernel(
            {"  .shared .align 8 .b64 box;\n  mov.u32 %r50, box;\n  mad.wide.u32 %w1, %thread, 8, %in;\n  "
             "ld.global." +
             size + " " + value + ", [%w1+8];\n  setp.eq.u32 %p1, %lane, 0;\n  ld.global." + size + " " +
             (wide ? "%w11" : "%r11") + ", [%in];\n  @%p1 st." + space + "." + size + " [" + address + "], " +
             (wide ? "%w11" : "%r11") + ";\n  membar.cta;\n  bar.sync 0;\n  " + kind + "." + space + "." +
             row.op + " " + (kind == "atom" ? std::string(wide ? "%w12" : "%r12") + ", " : "") + "[" +
             address + "], " + value + ";\n  bar.sync 0;\n" +
             (space == "shared" ? "  @%p1 ld.shared." + size + " " + value + ", [%r50];\n  @%p1 st.global." +
                                      size + " [%out], " + value + ";\n"
                                : "")},
            in, 2);
        CHECK(out[0] == static_cast<uint32_t>(row.expected));
        if (wide) CHECK(out[1] == row.expected >> 32);
      }
    }
  }
}

TEST_CASE("an atomic returns the value before it", "[one_op]") {
  const auto out = run_kernel({"  setp.eq.u32 %p1, %lane, 0;\n  @%p1 st.global.u32 [%out], 100;\n  "
                               "membar.gl;\n  bar.warp.sync 0xffffffff;\n"
                               "  atom.global.add.u32 %r1, [%out], 3;\n  mad.wide.u32 %w1, %lane, 4, %out;\n "
                               " st.global.u32 [%w1+4], %r1;"},
                              {}, 33);
  std::set<uint32_t> seen(out.begin() + 1, out.end()), expected;
  for (uint32_t i = 0; i < 32; ++i) expected.insert(100 + 3 * i);
  CHECK(seen == expected);
  CHECK(out[0] == 196);
}

TEST_CASE("cas succeeds for one lane, exch hands values along", "[one_op]") {
  const auto out = run_kernel(
      {"  .shared .align 8 .b32 box;\n  setp.eq.u32 %p1, %lane, 0;\n  @%p1 st.shared.u32 [box], 0;\n  "
       "bar.warp.sync 0xffffffff;\n"
       "  add.u32 %r2, %lane, 1;\n  atom.shared.cas.b32 %r1, [box], 0, %r2;\n  setp.eq.u32 %p2, %r1, 0;\n"
       "  vote.sync.ballot.b32 %r3, %p2, 0xffffffff;\n  bar.warp.sync 0xffffffff;\n  ld.shared.u32 %r4, "
       "[box];\n"
       "  bar.warp.sync 0xffffffff;\n  atom.shared.exch.b32 %r5, [box], %r2;\n"
       "  mad.wide.u32 %w1, %lane, 12, %out;\n  st.global.u32 [%w1], %r3;\n  st.global.u32 [%w1+4], %r4;\n  "
       "st.global.u32 [%w1+8], %r5;"},
      {}, 96);
  CHECK((out[0] & (out[0] - 1)) == 0);  // exactly one lane
  REQUIRE(out[0] != 0);
  CHECK(1u << (out[1] - 1) == out[0]);  // whose number is in the box
  std::multiset<uint32_t> values;
  for (int lane = 0; lane < 32; ++lane) values.insert(out[3 * lane + 2]);
  CHECK(values.count(out[1]) >= 1);  // the first exchange took it out
}

TEST_CASE("vector atomics add every element", "[one_op]") {
  const auto out =
      run_kernel({"  setp.eq.u32 %p1, %lane, 0;\n  mov.f32 %f1, 0f00000000;\n  @%p1 st.global.v4.f32 [%out], "
                  "{%f1, %f1, %f1, %f1};\n"
                  "  bar.warp.sync 0xffffffff;\n  cvt.rn.f32.u32 %f2, %lane;\n  add.f32 %f3, %f2, %f2;\n  "
                  "mov.f32 %f4, 0f3F800000;\n"
                  "  atom.global.add.v4.f32 {%f5, %f6, %f7, %f8}, [%out], {%f2, %f3, %f4, %f1};"},
                 {}, 4);
  CHECK((as_float(out[0]) == 496 && as_float(out[1]) == 992 && as_float(out[2]) == 32 &&
         as_float(out[3]) == 0));
}

// ---- barriers
// -------------------------------------------------------------------------------------------------------
TEST_CASE("bar.sync makes what every warp wrote visible", "[one_op]") {
  const auto out = run_kernel({"  .shared .align 4 .b8 box[1024];\n  mov.u32 %r1, box;\n  mad.lo.u32 %r2, "
                               "%thread, 4, %r1;\n  st.shared.u32 [%r2], %thread;\n  bar.sync 0;\n"
                               "  sub.u32 %r3, 255, %thread;\n  mad.lo.u32 %r4, %r3, 4, %r1;\n  "
                               "ld.shared.u32 %r5, [%r4];\n  mad.wide.u32 %w1, %thread, 4, %out;\n"
                               "  st.global.u32 [%w1], %r5;",
                               "", "sm_90", 256},
                              {}, 256);
  for (uint32_t i = 0; i < 256; ++i) CHECK(out[i] == 255 - i);
}

TEST_CASE("a named barrier hands work from arriving warps to waiting ones, again and again", "[one_op]") {
  // Warp 0 produces, warp 1 consumes; barrier 1 = full, barrier 2 = empty.
  const auto out =
      run_kernel({"  .shared .align 4 .b32 box;\n  mov.u32 %r1, 0;\n  setp.eq.u32 %p1, %warp, 0;\n  "
                  "setp.eq.u32 %p2, %lane, 0;\n  mov.u32 %r5, 0;\n  @!%p1 bra consumer;\n"
                  "producer:\n  bar.sync 2, 64;\n  mul.lo.u32 %r2, %r1, %r1;\n  @%p2 st.shared.u32 [box], "
                  "%r2;\n  membar.cta;\n  bar.arrive 1, 64;\n"
                  "  add.u32 %r1, %r1, 1;\n  setp.lt.u32 %p3, %r1, 10;\n  @%p3 bra producer;\n  bra done;\n"
                  "consumer:\n  bar.arrive 2, 64;\n  bar.sync 1, 64;\n  ld.shared.u32 %r3, [box];\n  add.u32 "
                  "%r5, %r5, %r3;\n  add.u32 %r1, %r1, 1;\n"
                  "  setp.lt.u32 %p3, %r1, 10;\n  @%p3 bra consumer;\n  st.global.u32 [%out], %r5;\ndone:",
                  "", "sm_90", 64},
                 {}, 1);
  CHECK(out[0] == 285);
}

TEST_CASE("bar.red counts, ands and ors a predicate over the CTA", "[one_op]") {
  const auto out = run_kernel({"  setp.lt.u32 %p1, %thread, 50;\n  bar.red.popc.u32 %r1, 0, %p1;\n  "
                               "bar.red.and.pred %p2, 0, %p1;\n  bar.red.or.pred %p3, 0, %p1;\n"
                               "  selp.u32 %r2, 1, 0, %p2;\n  selp.u32 %r3, 1, 0, %p3;\n  mad.wide.u32 %w1, "
                               "%thread, 12, %out;\n  st.global.u32 [%w1], %r1;\n"
                               "  st.global.u32 [%w1+4], %r2;\n  st.global.u32 [%w1+8], %r3;",
                               "", "sm_90", 96},
                              {}, 288);
  for (int i = 0; i < 96; ++i) CHECK((out[3 * i] == 50 && out[3 * i + 1] == 0 && out[3 * i + 2] == 1));
}

TEST_CASE("ldmatrix and stmatrix move 8x8 tiles of 16-bit elements", "[one_op]") {
  // Rows lie 16 bytes each in shared memory; lane i gives the address of row i.  In register r lane l holds
  // elements 2*(l%4), +1 of row l/4 of tile r.
  const auto in = ramp(128);
  const std::string fill =
      "  .shared .align 16 .b8 box[1024];\n  mov.u32 %r20, box;\n  mad.wide.u32 %w1, %lane, 16, %in;\n  "
      "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%w1];\n"
      "  mad.lo.u32 %r21, %lane, 16, %r20;\n  st.shared.v4.u32 [%r21], {%r1, %r2, %r3, %r4};\n  "
      "bar.warp.sync 0xffffffff;\n";
  const std::string save =
      "  mad.wide.u32 %w2, %lane, 16, %out;\n  st.global.v4.u32 [%w2], {%r5, %r6, %r7, %r8};";
  const auto half = [&](int tile, int row, int column) {
    const uint32_t word = in[(tile * 8 + row) * 4 + column / 2];
    return column % 2 ? word >> 16 : word & 0xffff;
  };
  const auto plain = run_kernel(
      {fill + "  ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r5, %r6, %r7, %r8}, [%r21];\n" + save}, in, 128);
  const auto transposed = run_kernel(
      {fill + "  ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r5, %r6, %r7, %r8}, [%r21];\n" + save}, in,
      128);
  for (int lane = 0; lane < 32; ++lane) {
    for (int tile = 0; tile < 4; ++tile) {
      const int row = lane / 4, column = 2 * (lane % 4);
      CAPTURE(lane, tile);
      CHECK(plain[lane * 4 + tile] == (half(tile, row, column) | half(tile, row, column + 1) << 16));
      CHECK(transposed[lane * 4 + tile] == (half(tile, column, row) | half(tile, column + 1, row) << 16));
    }
  }
  // stmatrix undoes ldmatrix.
  const auto back =
      run_kernel({fill +
                  "  ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r5, %r6, %r7, %r8}, [%r21];\n  bar.warp.sync "
                  "0xffffffff;\n"
                  "  st.shared.v4.u32 [%r21], {%r90, %r90, %r90, %r90};\n  bar.warp.sync 0xffffffff;\n"
                  "  stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r21], {%r5, %r6, %r7, %r8};\n  bar.warp.sync "
                  "0xffffffff;\n"
                  "  ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [%r21];\n" +
                  save},
                 in, 128);
  CHECK(back == in);
}

TEST_CASE("fences and hints execute", "[one_op]") {
  const auto out = run_kernel({"  membar.cta;\n  membar.gl;\n  membar.sys;\n  fence.acq_rel.gpu;\n  "
                               "fence.sc.cta;\n  fence.proxy.async;\n  fence.proxy.async.shared::cta;\n"
                               "  prefetch.global.L2 [%in];\n  nanosleep.u32 20;\n  mov.u32 %r1, %clock;\n  "
                               "mov.u64 %w1, %globaltimer;\n  st.global.u32 [%out], 1;"},
                              {0}, 1);
  CHECK(out[0] == 1);
}

// ---- clusters
// -------------------------------------------------------------------------------------------------------
TEST_CASE("CTAs of a cluster reach each other's shared memory", "[one_op]") {
  // CTA r writes r * 100 + tid into its neighbour, then everyone reads its own box.
  const auto out = run_kernel({"  .shared .align 4 .b8 box[128];\n  mov.u32 %r1, %cluster_ctarank;\n  "
                               "mov.u32 %r2, %cluster_nctarank;\n  add.u32 %r3, %r1, 1;\n"
                               "  rem.u32 %r3, %r3, %r2;\n  mov.u32 %r4, box;\n  mad.lo.u32 %r4, %thread, 4, "
                               "%r4;\n  mapa.shared::cluster.u32 %r5, %r4, %r3;\n"
                               "  mad.lo.u32 %r6, %r1, 100, %thread;\n  barrier.cluster.arrive;\n  "
                               "barrier.cluster.wait;\n  st.shared::cluster.u32 [%r5], %r6;\n"
                               "  barrier.cluster.arrive.release;\n  barrier.cluster.wait.acquire;\n  "
                               "ld.shared.u32 %r7, [%r4];\n  getctarank.shared::cluster.u32 %r8, %r5;\n"
                               "  mad.lo.u32 %r9, %cta, 32, %thread;\n  mad.wide.u32 %w1, %r9, 8, %out;\n  "
                               "st.global.v2.u32 [%w1], {%r7, %r8};",
                               "", "sm_90", 32, 8, 4},
                              {}, 8 * 32 * 2);
  for (uint32_t cta = 0; cta < 8; ++cta) {
    for (uint32_t thread = 0; thread < 32; ++thread) {
      const uint32_t rank = cta % 4;
      CHECK(out[(cta * 32 + thread) * 2] == (rank + 3) % 4 * 100 + thread);
      CHECK(out[(cta * 32 + thread) * 2 + 1] == (rank + 1) % 4);
    }
  }
}
