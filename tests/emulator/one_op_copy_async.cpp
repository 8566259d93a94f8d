// cp.async (PTX ISA 9.7.9.25.3): what has arrived when a wait or an mbarrier says so, under schedules that
// hold copies back.
#include "core_harness.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;
using mxfa::emulator::Schedule;

namespace {

// %w1: global source of this lane (source[lane] = 100 + lane in words), %r2: shared destination of it.
const std::string kData =
    ".global .align 16 .b32 source[64] = {100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, "
    "113, "
    "114, 115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 130, 131};\n";
const std::string kBegin =
    "  .shared .align 16 .b8 box[1024];\n  .shared .align 8 .b64 gate;\n  mov.u32 %r2, box;\n  mad.lo.u32 "
    "%r2, "
    "%lane, 4, %r2;\n  mov.u64 %w1, source;\n  mad.wide.u32 %w1, %lane, 4, %w1;\n  mov.u32 %r3, gate;\n";
const std::string kEnd = store_word("%tid", "%r1") + "  ret;";

CoreResult run(const std::string& body, Schedule::Kind kind) {
  CoreResult r = run_core({kBegin + body + kEnd, {}, kData}, 32, {kind, 1});
  INFO(r.fault);
  REQUIRE(r.fault.empty());
  return r;
}

}  // namespace

TEST_CASE("cp.async data is there after wait_group, and late before it", "[one_op]") {
  const std::string copy = "  cp.async.ca.shared.global [%r2], [%w1], 4;\n  cp.async.commit_group;\n";
  for (const auto kind : {Schedule::Kind::Functional, Schedule::Kind::Lazy, Schedule::Kind::Random}) {
    const auto waited = run(copy + "  cp.async.wait_group 0;\n  ld.shared.u32 %r1, [%r2];\n", kind);
    const auto all =
        run("  cp.async.ca.shared.global [%r2], [%w1], 4;\n  cp.async.wait_all;\n  ld.shared.u32 %r1, "
            "[%r2];\n",
            kind);
    for (uint32_t i = 0; i < 32; ++i) CHECK((waited.words[i] == 100 + i && all.words[i] == 100 + i));
  }
  const auto early =
      run(copy + "  ld.shared.u32 %r1, [%r2];\n  cp.async.wait_group 0;\n", Schedule::Kind::Lazy);
  CHECK(early.words[3] == 0xffffffff);
}

TEST_CASE("wait_group N leaves the N youngest groups in flight", "[one_op]") {
  const std::string two =
      "  cp.async.ca.shared.global [%r2], [%w1], 4;\n  cp.async.commit_group;\n"
      "  cp.async.ca.shared.global [%r2+512], [%w1], 4;\n  cp.async.commit_group;\n  cp.async.wait_group "
      "1;\n";
  const auto older = run(two + "  ld.shared.u32 %r1, [%r2];\n  cp.async.wait_all;\n", Schedule::Kind::Lazy);
  const auto younger =
      run(two + "  ld.shared.u32 %r1, [%r2+512];\n  cp.async.wait_all;\n", Schedule::Kind::Lazy);
  CHECK(older.words[5] == 105);
  CHECK(younger.words[5] == 0xffffffff);
}

TEST_CASE("an mbarrier completes when the copies before cp.async.mbarrier.arrive have", "[one_op]") {
  const std::string wait =
      "again:\n  mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r3], 0;\n  @!%p1 bra again;\n  "
      "ld.shared.u32 "
      "%r1, [%r2];\n";
  const std::string copy = "  cp.async.ca.shared.global [%r2], [%w1], 4;\n";
  for (const auto kind : {Schedule::Kind::Functional, Schedule::Kind::Lazy, Schedule::Kind::Random}) {
    // .noinc: the 32 arrivals are those of init.
    const auto counted =
        run("  setp.eq.u32 %p2, %tid, 0;\n  @%p2 mbarrier.init.shared::cta.b64 [%r3], 32;\n  "
            "bar.sync 0;\n" +
                copy + "  cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r3];\n" + wait,
            kind);
    // Without it every arrival is announced as it is issued, and the count of init is for somebody else.
    const auto extra =
        run("  setp.eq.u32 %p2, %tid, 0;\n  @%p2 mbarrier.init.shared::cta.b64 [%r3], 32;\n  "
            "bar.sync 0;\n" +
                copy +
                "  cp.async.mbarrier.arrive.shared::cta.b64 [%r3];\n  "
                "mbarrier.arrive.shared::cta.b64 %w2, [%r3];\n" +
                wait,
            kind);
    for (uint32_t i = 0; i < 32; ++i) CHECK((counted.words[i] == 100 + i && extra.words[i] == 100 + i));
  }
}
