// Hangs: every kernel ends, with a report that says who waits for what.
#include "core/results.hpp"
#include "core_harness.hpp"
#include "support/catch.hpp"

using mxfa::emulator::Schedule;
using mxfa::test::CoreKernel;
using mxfa::test::mentions_all;
using mxfa::test::run_core;
using mxfa::test::store_word;
namespace result = mxfa::emulator::result;

namespace {

const std::string kBarrier =
    "  .shared .align 8 .b64 bar;\n  mov.u32 %r30, bar;\n  setp.eq.u32 %p15, %tid, 0;\n";

}  // namespace

TEST_CASE("a missing arrival is reported with the barrier's state", "[core]") {
  const auto r = run_core(
      {kBarrier + "  @%p15 mbarrier.init.shared::cta.b64 [%r30], 2;\n  bar.sync 0;\n"
                  "  @%p15 mbarrier.arrive.shared::cta.b64 _, [%r30];\nwait:\n"
                  "  mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r30], 0;\n  @!%p1 bra wait;\n  ret;",
       {},
       {},
       64},
      1);
  CHECK(r.code == result::kLaunchTimeout);
  CHECK(mentions_all(
      r.fault, {"deadlock", "mbarrier at shared 0x400", "parity 0", "arrivals 1/2", "warp  0", "warp  1",
                "mbarrier.try_wait.parity", "PTX line", "no asynchronous work is pending"}));
}

TEST_CASE("a barrier that a warp never reaches is reported", "[core]") {
  const auto r = run_core({kBarrier + "  @%p15 mbarrier.init.shared::cta.b64 [%r30], 1;\n  setp.lt.u32 %p1, "
                                      "%tid, 32;\n  @%p1 bra first;\n"
                                      "  bar.sync 1, 64;\n  ret;\nfirst:\n  bar.warp.sync -1;\nwait:\n"
                                      "  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r30], 0;\n  @!%p2 "
                                      "bra wait;\n  bar.sync 1, 64;\n  ret;",
                           {},
                           {},
                           64},
                          1);
  CHECK(r.code == result::kLaunchTimeout);
  CHECK(
      mentions_all(r.fault, {"barrier 1: 32 of 64 threads arrived", "bar.sync 1, 64", "mbarrier at shared"}));
}

TEST_CASE("polling that nothing can end is a livelock", "[core]") {
  const auto r =
      run_core({"  .shared .align 4 .b8 flag[4];\n  mov.u32 %r2, flag;\n  st.shared.u32 [%r2], 0;\npoll:\n"
                "  ld.volatile.shared.u32 %r1, [%r2];\n  setp.eq.u32 %p2, %r1, 0;\n  @%p2 bra poll;\n  ret;"},
               1);
  CHECK(r.code == result::kLaunchTimeout);
  CHECK(mentions_all(r.fault, {"livelock", "polls"}));
}

TEST_CASE("a loop that goes on writing ends at the limit of instructions", "[core]") {
  const CoreKernel endless{"again:\n  st.global.u32 [%out], %r1;\n  bra again;"};
  for (const char* schedule : {"functional", "random"}) {
    const auto r = run_core(endless, 1, *mxfa::emulator::parse_schedule(schedule), nullptr, 100000);
    CHECK(r.code == result::kLaunchTimeout);
    CHECK(mentions_all(r.fault, {"endless", "the limit is 100000", "warp  0", "PTX line"}));
  }
}

TEST_CASE("a peek at a barrier that only the peeker can complete is no deadlock", "[core]") {
  // CUTLASS mainloops try_wait for the next stage before they release the current one.
  const auto r =
      run_core({kBarrier +
                "  @%p15 mbarrier.init.shared::cta.b64 [%r30], 32;\n  bar.sync 0;\n"
                "  mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r30], 0;\n  selp.u32 %r1, 1, 0, %p1;\n"
                "  mbarrier.arrive.shared::cta.b64 _, [%r30];\nwait:\n"
                "  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r30], 0;\n  @!%p2 bra wait;\n" +
                store_word("%tid", "%r1") + "  ret;"},
               32);
  REQUIRE(r.fault.empty());
  CHECK(r.words[0] == 0);
}

TEST_CASE("setmaxnreg waits for the pool and reports what it lacks", "[core]") {
  const std::string body =
      "  setp.lt.u32 %p1, %tid, 128;\n  @%p1 bra first;\n  setmaxnreg.inc.sync.aligned.u32 232;\n  "
      "ret;\nfirst:\n"
      "  bar.warp.sync -1;\n";
  // 65536 / 256 threads = 256 registers each, cut to 255 and to a multiple of 8: 248.
  const auto stuck =
      run_core({"  setmaxnreg.dec.sync.aligned.u32 168;\n  setmaxnreg.inc.sync.aligned.u32 176;\n"
                "  bar.sync 0;\n  setmaxnreg.inc.sync.aligned.u32 256;\n  bar.sync 0;\n  ret;",
                ".maxntid 256 .minnctapersm 1",
                {},
                256},
               1);
  CHECK(stuck.code == result::kLaunchTimeout);
  CHECK(mentions_all(stuck.fault, {"setmaxnreg.inc to 256 from 176", "the pool of the CTA has"}));
  // The producers give registers back only after the consumers asked: they wait, then get them.
  const auto moved = run_core({"  setp.lt.u32 %p1, %tid, 128;\n  @%p1 bra first;\n  "
                               "setmaxnreg.inc.sync.aligned.u32 232;\n  bra done;\n"
                               "first:\n  bar.warp.sync -1;\n  setmaxnreg.dec.sync.aligned.u32 24;\ndone:\n" +
                                   store_word("%tid", "1") + "  ret;",
                               ".maxntid 384 .minnctapersm 1",
                               {},
                               384},
                              384);
  CHECK(moved.fault.empty());
}

TEST_CASE("a wait on an mbarrier that was never initialised is a fault, not a hang", "[core]") {
  const auto r =
      run_core({kBarrier + "  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r30], 0;\n  ret;"}, 1);
  CHECK(!r.fault.empty());
  CHECK(r.code != result::kLaunchTimeout);
}

TEST_CASE("a fault names kernel, CTA, warp, lanes and line", "[core]") {
  const auto r = run_core({"  setp.eq.u32 %p1, %tid, 37;\n  @%p1 trap;\n  ret;", {}, {}, 64, 3}, 1);
  CHECK(
      mentions_all(r.fault, {"trap", "kernel k", "CTA (0, 0, 0)", "warp 1", "lanes 0x00000020", "PTX line"}));
}

TEST_CASE("an instruction that is not modelled is refused when it is executed, not when it is loaded",
          "[core]") {
  const std::string shift = "  tcgen05.shift.cta_group::1.down [%r1];\n  ret;";
  const std::string other = ".visible .entry other()\n{\n  .reg .b32 %r<2>;\n" + shift + "\n}\n";
  CHECK(run_core({store_word("%tid", "3") + "  ret;", {}, other}, 32).words[1] == 3);
  const auto r = run_core({shift}, 1);
  CHECK(r.code == result::kNotSupported);
  CHECK(mentions_all(r.fault, {"tcgen05.shift.cta_group::1.down", "not executed", "PTX line"}));
}

TEST_CASE("emu-expect-tx-overcount: the report says which bytes are missing", "[core][cases]") {
  // Every CTA of a cluster of four expects 65536 bytes of two copies, of which one never comes.
  const auto r = run_core(
      {kBarrier + "  .shared .align 128 .b8 box[32768];\n  mov.u32 %r29, box;\n"
                  "  @%p15 mbarrier.init.shared::cta.b64 [%r30], 1;\n  bar.sync 0;\n  @!%p15 bra wait;\n"
                  "  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r30], 65536;\n  mov.u64 %w1, table;\n"
                  "  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r29], [%w1], 32768, "
                  "[%r30];\nwait:\n"
                  "  mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r30], 0;\n  @!%p1 bra wait;\n  ret;",
       {},
       ".global .align 128 .b8 table[32768];\n",
       64,
       4,
       4},
      1);
  CHECK(r.code == result::kLaunchTimeout);
  CHECK(mentions_all(
      r.fault, {"deadlock", "65536 bytes expected, 32768 arrived", "arrivals 1/1", "initialised by PTX line",
                "in this phase: cta 3 warp 0", "in this phase: bulk load of 32768 bytes"}));
}
