// mbarriers, bulk copies, st.async, cp.async.
#include "one_op_async.hpp"

#include "support/catch.hpp"

using namespace mxfa::test;

// ---- mbarrier
// --------------------------------------------------------------------------------------------------
TEST_CASE("an mbarrier phase ends with its last arrival and the parity flips", "[one_op]") {
  // Two phases of three arrivals; the state before, after two, after three arrivals, and of the next phase.
  const std::string test =
      "  mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r80], 0;\n  "
      "mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r80], 1;\n"
      "  selp.u32 %r1, 1, 0, %p1;\n  selp.u32 %r2, 1, 0, %p2;\n  st.global.v2.u32 [%out], {%r1, %r2};\n  "
      "add.u64 %out, %out, 8;\n";
  const std::string arrive = "  mbarrier.arrive.shared::cta.b64 %w1, [%r80];\n";
  const auto out = run_kernel({kGate + "  mbarrier.init.shared::cta.b64 [%r80], 3;\n" + test + arrive +
                                   arrive + test + arrive + test + arrive + arrive + arrive + test,
                               "", "sm_90", 1},
                              {}, 8);
  // Phase 0 is running: parity 1 (the phase before) counts as complete.
  CHECK(out == std::vector<uint32_t>{0, 1, 0, 1, 1, 0, 0, 1});
}

TEST_CASE("arrive returns the phase it counted in, and its pending count", "[one_op]") {
  const auto out = run_kernel(
      {kGate + "  mbarrier.init.shared::cta.b64 [%r80], 3;\n  mbarrier.arrive.shared::cta.b64 %w1, [%r80];\n"
               "  mbarrier.arrive.shared::cta.b64 %w2, [%r80], 2;\n  mbarrier.test_wait.shared::cta.b64 %p1, "
               "[%r80], %w1;\n"
               "  mbarrier.arrive.shared::cta.b64 %w3, [%r80];\n  mbarrier.test_wait.shared::cta.b64 %p2, "
               "[%r80], %w3;\n"
               "  mbarrier.pending_count.b64 %r1, %w1;\n  mbarrier.pending_count.b64 %r2, %w2;\n  selp.u32 "
               "%r3, 1, 0, %p1;\n"
               "  selp.u32 %r4, 1, 0, %p2;\n  st.global.v4.u32 [%out], {%r1, %r2, %r3, %r4};",
       "", "sm_90", 1},
      {}, 4);
  CHECK(out == std::vector<uint32_t>{3, 2, 1, 0});  // the counts before each arrival
}

TEST_CASE("every thread of a CTA arrives and every thread sees the phase end", "[one_op]") {
  const auto out = run_kernel(
      {kGate + "  .shared .align 4 .b32 sum;\n" + kFirst +
           "  @%p18 mbarrier.init.shared::cta.b64 [%r80], 96;\n  @%p18 st.shared.u32 [sum], 0;\n  bar.sync "
           "0;\n"
           "  red.shared.add.u32 [sum], %thread;\n  mbarrier.arrive.shared::cta.b64 _, [%r80];\n" +
           wait("%r80", 0, "all") +
           "  ld.shared.u32 %r1, [sum];\n  mad.wide.u32 %w1, %thread, 4, %out;\n  st.global.u32 [%w1], %r1;",
       "", "sm_90", 96},
      {}, 96);
  for (const uint32_t value : out) CHECK(value == 95 * 96 / 2);
}

TEST_CASE("arrive.drop lowers the count of later phases", "[one_op]") {
  const auto out = run_kernel({kGate + "  mbarrier.init.shared::cta.b64 [%r80], 2;\n  "
                                       "mbarrier.arrive_drop.shared::cta.b64 %w1, [%r80];\n"
                                       "  mbarrier.arrive.shared::cta.b64 %w1, [%r80];\n  "
                                       "mbarrier.arrive.shared::cta.b64 %w1, [%r80];\n"  // ends phase 1 alone
                                       "  mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r80], 1;\n  "
                                       "selp.u32 %r1, 1, 0, %p1;\n  st.global.u32 [%out], %r1;",
                               "", "sm_90", 1},
                              {}, 1);
  CHECK(out[0] == 1);
}

TEST_CASE("an mbarrier of another CTA of the cluster can be arrived at", "[one_op]") {
  const auto out = run_kernel(
      {kGate + kFirst +
           "  @%p18 mbarrier.init.shared::cta.b64 [%r80], 2;\n  fence.mbarrier_init.release.cluster;\n"
           "  barrier.cluster.arrive;\n  barrier.cluster.wait;\n  mov.u32 %r1, 0;\n  "
           "mapa.shared::cluster.u32 %r2, %r80, %r1;\n"
           "  @%p18 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r2];\n  mov.u32 %r3, "
           "%cluster_ctarank;\n"
           "  setp.ne.u32 %p2, %r3, 0;\n  @%p2 bra done;\n" +
           wait("%r80", 0, "both") +
           "  st.global.u32 [%out], 1;\ndone:\n"
           "  barrier.cluster.arrive;\n  barrier.cluster.wait;",
       "", "sm_90", 32, 2, 2},
      {}, 1);
  CHECK(out[0] == 1);
}

// ---- bulk copies
// -------------------------------------------------------------------------------------------------
TEST_CASE("cp.async.bulk brings bytes in and completes its mbarrier", "[one_op]") {
  const auto in = ramp(64);
  const auto out = run_kernel({kInit1 +
                               "  .shared .align 16 .b8 box[256];\n  mov.u32 %r1, box;\n  @!%p18 bra ready;\n"
                               "  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r80], 256;\n"
                               "  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], "
                               "[%in], 256, [%r80];\nready:\n" +
                               wait("%r80", 0, "data") +
                               "  mad.lo.u32 %r2, %lane, 8, %r1;\n  ld.shared.v2.u32 {%r3, %r4}, [%r2];\n  "
                               "mad.wide.u32 %w1, %lane, 8, %out;\n"
                               "  st.global.v2.u32 [%w1], {%r3, %r4};"},
                              in, 64);
  CHECK(out == in);
}

TEST_CASE("a phase with bytes ends only when the bytes have come", "[one_op]") {
  const auto out = run_kernel(
      {kInit1 +
       "  .shared .align 16 .b8 box[32];\n  mov.u32 %r1, box;\n  @!%p18 bra done;\n"
       "  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r80], 32;\n  "
       "mbarrier.test_wait.parity.shared::cta.b64 %p1, [%r80], 0;\n"
       "  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%in], 16, [%r80];\n"
       "  nanosleep.u32 100000;\n  mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r80], 0;\n"
       "  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+16], [%in+16], 16, "
       "[%r80];\n" +
       wait("%r80", 0, "rest") +
       "  selp.u32 %r2, 1, 0, %p1;\n  selp.u32 %r3, 1, 0, %p2;\n  ld.shared.u32 %r4, [box+28];\n  "
       "st.global.u32 [%out], %r2;\n"
       "  st.global.u32 [%out+4], %r3;\n  st.global.u32 [%out+8], %r4;\ndone:"},
      ramp(8), 3);
  CHECK(out == std::vector<uint32_t>{0, 0, 8});
}

TEST_CASE("cp.async.bulk stores shared memory, and its source may be reused after wait_group.read",
          "[one_op]") {
  const auto out = run_kernel(
      {kFirst +
       "  .shared .align 16 .b8 box[128];\n  mov.u32 %r1, box;\n  mad.lo.u32 %r2, %lane, 4, %r1;\n  add.u32 "
       "%r3, %lane, 7;\n"
       "  st.shared.u32 [%r2], %r3;\n  fence.proxy.async.shared::cta;\n  bar.warp.sync 0xffffffff;\n  @!%p18 "
       "bra done;\n"
       "  cp.async.bulk.global.shared::cta.bulk_group [%out], [%r1], 128;\n  cp.async.bulk.commit_group;\n"
       "  cp.async.bulk.wait_group.read 0;\n  st.shared.u32 [%r1], 0;\n  cp.async.bulk.wait_group 0;\ndone:"},
      {}, 32);
  for (uint32_t i = 0; i < 32; ++i) CHECK(out[i] == i + 7);
}

TEST_CASE("cp.reduce.async.bulk combines shared memory into global memory", "[one_op]") {
  struct Row {
    const char* form;
    uint32_t start, operand, expected;
  };
  for (const Row& row : {Row{"add.u32", 100, 7, 107},
                         {"add.s32", 100, 0xfffffff9, 93},
                         {"min.u32", 100, 7, 7},
                         {"max.s32", 100, 0xfffffff9, 100},
                         {"and.b32", 0xff0, 0x0ff, 0x0f0},
                         {"or.b32", 0xf00, 0x00f, 0xf0f},
                         {"xor.b32", 0xff0, 0x0ff, 0xf0f},
                         {"add.f32", 0x3f800000, 0x40000000, 0x40400000},
                         {"add.noftz.f16", 0x3c003c00, 0x40003c00, 0x42004000},
                         {"add.noftz.bf16", 0x3f803f80, 0x40003f80, 0x40404000}}) {
    CAPTURE(row.form);
    const auto out = run_kernel(
        {kFirst +
         "  .shared .align 16 .b8 box[16];\n  mov.u32 %r1, box;\n  @!%p18 bra done;\n  ld.global.v2.u32 "
         "{%r2, %r3}, [%in];\n"
         "  st.global.v4.u32 [%out], {%r2, %r2, %r2, %r2};\n  st.shared.v4.u32 [%r1], {%r3, %r3, %r3, %r3};\n"
         "  fence.proxy.async;\n  cp.reduce.async.bulk.global.shared::cta.bulk_group." +
         std::string(row.form) +
         " [%out], [%r1], 16;\n  cp.async.bulk.commit_group;\n  cp.async.bulk.wait_group 0;\ndone:"},
        {row.start, row.operand}, 4);
    for (const uint32_t value : out) CHECK(value == row.expected);
  }
}

TEST_CASE("a multicast bulk copy lands in every CTA of its mask", "[one_op]") {
  const auto out = run_kernel(
      {kGate + kFirst +
           "  .shared .align 16 .b8 box[64];\n  mov.u32 %r1, box;\n  @%p18 mbarrier.init.shared::cta.b64 "
           "[%r80], 1;\n"
           "  @%p18 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r80], 64;\n  "
           "fence.mbarrier_init.release.cluster;\n"
           "  barrier.cluster.arrive;\n  barrier.cluster.wait;\n  mov.u32 %r2, %cluster_ctarank;\n  "
           "setp.eq.u32 %p1, %r2, 0;\n"
           "  and.pred %p1, %p1, %p18;\n  mov.u16 %h1, 3;\n"
           "  @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
           "[%r1], [%in], 64, [%r80], %h1;\n" +
           wait("%r80", 0, "data") +
           "  and.b32 %r5, %lane, 15;\n  mad.lo.u32 %r3, %r5, 4, %r1;\n  ld.shared.u32 %r4, [%r3];\n"
           "  mad.lo.u32 %r6, %cta, 16, %r5;\n  mad.wide.u32 %w1, %r6, 4, %out;\n  st.global.u32 [%w1], "
           "%r4;\n"
           "  barrier.cluster.arrive;\n  barrier.cluster.wait;",
       "", "sm_90", 32, 2, 2},
      ramp(16), 32);
  for (uint32_t i = 0; i < 32; ++i) CHECK(out[i] == 1 + i % 16);
}

TEST_CASE("st.async writes a neighbour and completes its mbarrier", "[one_op]") {
  const auto out = run_kernel(
      {kGate + kFirst +
           "  .shared .align 16 .b8 box[16];\n  mov.u32 %r1, box;\n  @%p18 mbarrier.init.shared::cta.b64 "
           "[%r80], 1;\n"
           "  @%p18 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r80], 16;\n  "
           "fence.mbarrier_init.release.cluster;\n"
           "  barrier.cluster.arrive;\n  barrier.cluster.wait;\n  mov.u32 %r2, %cluster_ctarank;\n  xor.b32 "
           "%r3, %r2, 1;\n"
           "  mapa.shared::cluster.u32 %r4, %r1, %r3;\n  mapa.shared::cluster.u32 %r5, %r80, %r3;\n  add.u32 "
           "%r6, %r2, 50;\n"
           "  @%p18 st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.u32 [%r4], {%r6, %r6, %r6, "
           "%r2}, [%r5];\n" +
           wait("%r80", 0, "data") +
           "  ld.shared.v4.u32 {%r7, %r8, %r9, %r10}, [%r1];\n  mad.wide.u32 %w1, %cta, 16, %out;\n"
           "  st.global.v4.u32 [%w1], {%r7, %r8, %r9, %r10};\n  barrier.cluster.arrive;\n  "
           "barrier.cluster.wait;",
       "", "sm_90", 32, 2, 2},
      {}, 8);
  CHECK(out == std::vector<uint32_t>{51, 51, 51, 1, 50, 50, 50, 0});
}

TEST_CASE("cp.async copies 4, 8 and 16 bytes and fills the rest with zeros", "[one_op]") {
  const auto out = run_kernel(
      {kFirst +
       "  .shared .align 16 .b8 box[64];\n  mov.u32 %r1, box;\n  @!%p18 bra done;\n  mov.u32 %r2, "
       "0xffffffff;\n"
       "  st.shared.v4.u32 [%r1], {%r2, %r2, %r2, %r2};\n  st.shared.v4.u32 [%r1+16], {%r2, %r2, %r2, %r2};\n"
       "  st.shared.v4.u32 [%r1+32], {%r2, %r2, %r2, %r2};\n  cp.async.ca.shared.global [%r1], [%in], 4;\n"
       "  cp.async.ca.shared.global [%r1+8], [%in+8], 8;\n  cp.async.commit_group;\n  "
       "cp.async.cg.shared.global [%r1+16], [%in+16], 16;\n"
       "  mov.u32 %r3, 8;\n  cp.async.cg.shared.global [%r1+32], [%in+32], 16, %r3;\n  "
       "cp.async.commit_group;\n  cp.async.wait_group 1;\n"
       "  cp.async.wait_all;\n  ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r1];\n  st.global.v4.u32 [%out], "
       "{%r4, %r5, %r6, %r7};\n"
       "  ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r1+16];\n  st.global.v4.u32 [%out+16], {%r4, %r5, %r6, "
       "%r7};\n"
       "  ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r1+32];\n  st.global.v4.u32 [%out+32], {%r4, %r5, %r6, "
       "%r7};\ndone:"},
      ramp(12), 12);
  CHECK(out == std::vector<uint32_t>{1, 0xffffffff, 3, 4, 5, 6, 7, 8, 9, 10, 0, 0});
}

TEST_CASE("cp.async can arrive at an mbarrier", "[one_op]") {
  const auto out = run_kernel({kGate + kFirst +
                               "  .shared .align 16 .b8 box[128];\n  mov.u32 %r1, box;\n  @%p18 "
                               "mbarrier.init.shared::cta.b64 [%r80], 32;\n  bar.sync 0;\n"
                               "  mad.lo.u32 %r2, %lane, 4, %r1;\n  mad.wide.u32 %w1, %lane, 4, %in;\n  "
                               "cp.async.ca.shared.global [%r2], [%w1], 4;\n"
                               "  cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r80];\n" +
                               wait("%r80", 0, "data") +
                               "  sub.u32 %r3, 31, %lane;\n  mad.lo.u32 %r4, %r3, 4, %r1;\n  ld.shared.u32 "
                               "%r5, [%r4];\n  mad.wide.u32 %w2, %lane, 4, %out;\n"
                               "  st.global.u32 [%w2], %r5;"},
                              ramp(32), 32);
  for (uint32_t i = 0; i < 32; ++i) CHECK(out[i] == 32 - i);
}
