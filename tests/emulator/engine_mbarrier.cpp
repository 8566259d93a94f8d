// The life of an mbarrier phase (PTX ISA 9.7.13.15).
#include "emulator/engine_harness.hpp"

using namespace mxfa::emulator;
using namespace mxfa::emulator::test;

TEST_CASE("a phase completes when arrivals and bytes are both done", "[engine][mbarrier]") {
  Machine m;
  const uint32_t bar = m.address(1024);
  mbarrier_init(m.warp(), bar, 2);
  CHECK_FALSE(mbarrier_test_parity(m.warp(), bar, 0));
  CHECK(mbarrier_test_parity(m.warp(), bar, 1));  // the phase before the first counts as complete
  const uint64_t epoch = m.cluster.epoch;
  const uint64_t token = mbarrier_arrive(m.warp(), bar, 1, 4096, false, false);
  CHECK(mbarrier_pending_count(token) == 2);
  mbarrier_arrive(m.warp(1), bar, 1, 0, false, false);
  CHECK_FALSE(mbarrier_test_parity(m.warp(), bar, 0));
  CHECK(m.cluster.epoch == epoch);
  CHECK(mbarrier_describe(m.cluster, bar) ==
        "arrivals 2/2, tx 4096 (4096 bytes expected, 0 arrived), phase 0");
  mbarrier_complete_tx(m.cluster, bar, 4096, "copy");
  CHECK(m.cluster.epoch == epoch + 1);
  CHECK(mbarrier_test_parity(m.warp(), bar, 0));
  CHECK(mbarrier_test_token(m.warp(), bar, token));
  CHECK_FALSE(mbarrier_test_parity(m.warp(), bar, 1));
  CHECK(mbarrier_describe(m.cluster, bar) == "arrivals 0/2, tx 0, phase 1");
}

TEST_CASE("bytes may complete before they are expected", "[engine][mbarrier]") {
  Machine m;
  const uint32_t bar = m.address(1024);
  mbarrier_init(m.warp(), bar, 1);
  mbarrier_complete_tx(m.cluster, bar, 16384, "copy");
  CHECK(mbarrier_describe(m.cluster, bar) == "arrivals 0/1, tx -16384, phase 0");
  mbarrier_arrive(m.warp(), bar, 1, 16384, false, false);
  CHECK(mbarrier_test_parity(m.warp(), bar, 0));
}

TEST_CASE("arrive_drop lowers the count of later phases", "[engine][mbarrier]") {
  Machine m;
  const uint32_t bar = m.address(1024);
  mbarrier_init(m.warp(), bar, 2);
  mbarrier_arrive(m.warp(), bar, 1, 0, true, false);
  mbarrier_arrive(m.warp(), bar, 1, 0, false, false);
  CHECK(mbarrier_describe(m.cluster, bar) == "arrivals 0/1, tx 0, phase 1");
  mbarrier_arrive(m.warp(), bar, 1, 0, false, false);
  CHECK(mbarrier_describe(m.cluster, bar) == "arrivals 0/1, tx 0, phase 2");
}

TEST_CASE("a remote arrive reaches the object of the named CTA", "[engine][mbarrier]") {
  Machine m(2);
  mbarrier_init(m.warp(0, 0), m.address(1024, 0), 1);
  mbarrier_init(m.warp(0, 1), m.address(1024, 1), 1);
  mbarrier_arrive(m.warp(0, 0), m.address(1024, 1), 1, 0, false, false);
  CHECK_FALSE(mbarrier_test_parity(m.warp(0, 0), m.address(1024, 0), 0));
  CHECK(mbarrier_test_parity(m.warp(0, 1), m.address(1024, 1), 0));
  CHECK(has(fault_of([&] { mbarrier_test_parity(m.warp(0, 0), m.address(1024, 1), 0); }), "may be remote"));
  m.cta(1).live_warps = 0;
  CHECK(has(fault_of([&] { mbarrier_arrive(m.warp(0, 0), m.address(1024, 1), 1, 0, false, false); }),
            "have exited"));
}

TEST_CASE("misuse of an mbarrier is a fault with a sentence", "[engine][mbarrier]") {
  Machine m;
  const uint32_t bar = m.address(1024);
  const auto arrive = [&](uint32_t count, uint32_t bytes = 0) {
    mbarrier_arrive(m.warp(), bar, count, bytes, false, false);
  };
  CHECK(has(fault_of([&] { arrive(1); }), "not an initialised mbarrier"));
  std::memset(m.shared(1024), 0, 8);
  CHECK(has(fault_of([&] { mbarrier_test_parity(m.warp(), bar, 0); }), "not an initialised mbarrier"));
  CHECK(has(fault_of([&] { mbarrier_init(m.warp(), bar, 0); }), "count 0"));
  CHECK(has(fault_of([&] { mbarrier_init(m.warp(), bar, 1 << 20); }), "1048576"));
  CHECK(has(fault_of([&] { mbarrier_init(m.warp(), bar + 4, 1); }), "misaligned"));
  mbarrier_init(m.warp(), bar, 2);
  CHECK(has(fault_of([&] { arrive(3); }), "3 arrivals"));
  CHECK(has(fault_of([&] { mbarrier_arrive(m.warp(), bar, 2, 0, false, true); }), "noComplete"));
  mbarrier_expect_tx(m.warp(), bar, (1 << 20) - 1);
  CHECK(has(fault_of([&] { mbarrier_expect_tx(m.warp(), bar, 1); }), "tx-count 1048576"));
  mbarrier_inval(m.warp(), bar);
  CHECK(has(fault_of([&] { arrive(1); }), "not an initialised mbarrier"));
}
