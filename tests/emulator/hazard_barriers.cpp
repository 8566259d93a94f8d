// The life cycle of mbarriers: each broken kernel has one finding, under every schedule, its repaired twin
// none.
#include "hazard_harness.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;

namespace {

// `words`: what the report has to say besides the rule.
void check_life(const std::string& rule, const std::vector<std::string>& words, const HazardKernel& broken,
                const HazardKernel& repaired) {
  for (const auto& schedule : hazard_schedules()) {
    CAPTURE(static_cast<int>(schedule.kind), schedule.seed);
    const HazardResult bad = check_text(hazard_text(broken), broken, schedule);
    INFO("broken: " << bad.fault << "\n" << bad.report);
    CHECK(bad.has(rule));
    CHECK(bad.errors() == 1);
    for (const std::string& word : words) CHECK(bad.report.find(word) != std::string::npos);
    const HazardResult good = check_text(hazard_text(repaired), repaired, schedule);
    INFO("repaired: " << good.fault << "\n" << good.report);
    CHECK(good.fault == "");
    CHECK(good.errors() == 0);
  }
}

std::string init(int barrier, int count = 1) {
  return "  @%one mbarrier.init.shared::cta.b64 [%bar+" + std::to_string(8 * barrier) + "], " +
         std::to_string(count) + ";\n";
}
std::string inval(int barrier) {
  return "  @%one mbarrier.inval.shared::cta.b64 [%bar+" + std::to_string(8 * barrier) + "];\n";
}
const std::string kWarp = "  bar.warp.sync 0xffffffff;\n";
// 16 bytes of the table over mbarriers 0 and 1, counted by mbarrier 6.
const std::string kCopyOver =
    expect(6, 16) +
    "  mov.u64 %w1, table;\n  add.u32 %r51, %bar, 48;\n"
    "  @%one cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%bar], [%w1], "
    "16, [%r51];\n" +
    wait_for(6, 0);

}  // namespace

TEST_CASE("emu-mbarrier-reuse: a bulk copy over an mbarrier that has not been invalidated", "[hazard]") {
  const auto kernel = [](const std::string& end) {
    return HazardKernel{{init(6) + arrive(0) + wait_for(0, 0) + kWarp + end + kProxyFence + kCopyOver}, {1}};
  };
  check_life("mbarrier-overwritten", {"mbarrier", "inval"}, kernel(""), kernel(inval(0)));
}

TEST_CASE("a store over an mbarrier that has not been invalidated", "[hazard]") {
  const auto kernel = [](const std::string& end) {
    return HazardKernel{{arrive(0) + wait_for(0, 0) + kWarp + end + "  @%one st.shared.u32 [%bar+4], 7;\n"},
                        {1}};
  };
  check_life("mbarrier-overwritten", {"mbarrier.init", "st.shared"}, kernel(""), kernel(inval(0)));
}

TEST_CASE("an mbarrier is initialised again only after it has been invalidated", "[hazard]") {
  const auto kernel = [](const std::string& end) {
    return HazardKernel{{arrive(0) + wait_for(0, 0) + kWarp + end + init(0)}, {1}};
  };
  check_life("mbarrier-init-twice", {"first mbarrier.init", "second mbarrier.init"}, kernel(""),
             kernel(inval(0)));
}

TEST_CASE("an mbarrier is used between its init and its inval", "[hazard]") {
  check_life("mbarrier-not-initialised", {"no mbarrier.init"}, {{arrive(3)}}, {{init(3) + arrive(3)}});
  check_life("mbarrier-not-initialised", {"invalidated", "mbarrier.inval"}, {{inval(0) + arrive(0)}, {1}},
             {{arrive(0) + inval(0)}, {1}});
}

TEST_CASE("an mbarrier is not invalidated while somebody waits", "[hazard]") {
  // Warp 1 arrives only after the inval, so warp 0 is still waiting, whatever the schedule.
  const auto kernel = [&](bool early) {
    return HazardKernel{{wait_for(0, 0) + (early ? "" : sync(1, 64)),
                         (early ? inval(0) : arrive(0) + sync(1, 64) + inval(0))},
                        {1}};
  };
  for (const auto& schedule : hazard_schedules()) {
    const HazardResult good = check_text(hazard_text(kernel(false)), kernel(false), schedule);
    INFO("repaired: " << good.fault << "\n" << good.report);
    CHECK(good.fault == "");
    CHECK(good.errors() == 0);
    const HazardResult bad = check_text(hazard_text(kernel(true)), kernel(true), schedule);
    INFO("broken: " << bad.fault << "\n" << bad.report);
    // Where the inval comes first, the wait finds no mbarrier.
    CHECK((bad.has("mbarrier-inval-with-waiters") || bad.has("mbarrier-not-initialised")));
  }
}

TEST_CASE("no more arrivals than announced", "[hazard]") {
  // The bytes keep the first phase open while the second arrival comes.
  const auto kernel = [](int count) {
    return HazardKernel{{init(6, count) +
                         "  @%one mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%bar+48], 16;\n" +
                         arrive(6) + arrive(6) +
                         "  @%one mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%bar+48], 16;\n"}};
  };
  check_life("mbarrier-over-arrival", {"init for 1", "arrival before"}, kernel(1), kernel(2));
}

TEST_CASE("the bytes announced and the bytes copied agree when the kernel ends", "[hazard]") {
  const auto kernel = [](int bytes) {
    return HazardKernel{{init(6) + "  @%one mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%bar+48], " +
                         std::to_string(bytes) +
                         ";\n  @%one mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%bar+48], 1024;\n"}};
  };
  check_life("mbarrier-bytes-at-exit", {"1024 bytes that its current phase expects"}, kernel(2048),
             kernel(1024));
  check_life("mbarrier-bytes-at-exit", {"512 bytes were copied"}, kernel(512), kernel(1024));
}

TEST_CASE("a wait comes before the phase after next is complete", "[hazard]") {
  // The producer goes on without hearing of the consumer, or waits for it.
  const auto kernel = [](bool answers) {
    std::string produce, consume;
    for (int turn = 0; turn < 3; ++turn) {
      produce += (answers && turn ? wait_for(1, (turn - 1) & 1) : "") + arrive(0);
      consume += wait_for(0, turn & 1) + (answers ? arrive(1) : "");
    }
    return HazardKernel{{produce, consume}, {1, 1}};
  };
  for (const auto& schedule : hazard_schedules()) {
    CAPTURE(static_cast<int>(schedule.kind), schedule.seed);
    const HazardResult bad = check_text(hazard_text(kernel(false)), kernel(false), schedule);
    INFO("broken: " << bad.fault << "\n" << bad.report);
    CHECK(bad.has("mbarrier-lapped"));
    const HazardResult good = check_text(hazard_text(kernel(true)), kernel(true), schedule);
    INFO("repaired: " << good.fault << "\n" << good.report);
    CHECK(good.fault == "");
    CHECK(good.errors() + good.advice() == 0);
  }
}
