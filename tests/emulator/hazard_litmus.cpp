// The pairs of the happens-before specification as PTX: the broken kernel is reported under every schedule,
// the repaired one is not, in any.
#include "hazard_harness.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;
using mxfa::emulator::CheckMode;

namespace {

struct Pair {
  const char* name;
  std::string rule;  // that the broken kernel breaks
  HazardKernel broken, repaired;
  CheckMode mode = CheckMode::On;
};

std::string ring(int turns, const std::string& producer, const std::string& consumer, bool produces) {
  std::string text;
  for (int i = 0; i < turns; ++i) {
    const std::string& turn = produces ? producer : consumer;
    std::string step = turn;
    // PARITY: of the phase of this turn, OTHER: of the one before.
    for (const auto& [word, value] :
         {std::pair<std::string, int>{"<PARITY>", i & 1}, {"<OTHER>", (i + 1) & 1}})
      for (size_t at; (at = step.find(word)) != std::string::npos;)
        step.replace(at, word.size(), std::to_string(value));
    for (size_t at; (at = step.find("<TURN>")) != std::string::npos;) step.replace(at, 6, std::to_string(i));
    text += step;
  }
  return text;
}
std::string wait_in_ring(int barrier, const std::string& parity, const std::string& role) {
  const std::string label = "ring_" + role + std::to_string(barrier) + "_<TURN>";
  return label + ":\n  mbarrier.try_wait.parity.shared::cta.b64 %p14, [%bar+" + std::to_string(8 * barrier) +
         "], " + parity + ";\n  @!%p14 bra " + label + ";\n";
}

// Barriers: 0 full, 1 empty.
HazardKernel refill(bool guarded, const std::string& consume) {
  const std::string load = (guarded ? wait_in_ring(1, "<OTHER>", "l") : "") + expect(0, 1024) + bulk_load(0);
  const std::string use = wait_in_ring(0, "<PARITY>", "m") + consume;
  return {{ring(3, load, use, true), ring(3, load, use, false)}, {1, 1}};
}

const std::string kMmaS = mma() + commit(0);

std::vector<Pair> pairs() {
  const std::string load = expect(0, 1024) + bulk_load(0);
  return {
      {"data of a copy read without a wait",
       "race-",
       {{load, kLoadTile}, {1}},
       {{load, wait_for(0, 0) + kLoadTile}, {1}}},
      {"refill while the tensor core reads",
       "race-",
       {{load + wait_for(2, 0) + load + wait_for(0, 1),
         wait_for(0, 0) + mma() + arrive(2) + commit(1) + wait_for(1, 0)},
        {1, 1, 1}},
       {{load + wait_for(1, 0) + load + wait_for(0, 1), wait_for(0, 0) + mma() + commit(1) + wait_for(1, 0)},
        {1, 1}}},
      {"arrive before the read", "race-", refill(true, arrive(1) + kLoadTile),
       refill(true, kLoadTile + arrive(1))},
      {"emu-fence-async-missing: bulk store without a proxy fence",
       "missing-proxy-fence",
       {{kStoreTile + sync(1, 64), sync(1, 64) + kBulkStore + kBulkCommit + kBulkWaitRead}},
       {{kStoreTile + kProxyFence + sync(1, 64), sync(1, 64) + kBulkStore + kBulkCommit + kBulkWaitRead}}},
      {"the issuer fences before the barrier",
       "missing-proxy-fence",
       {{kStoreTile + sync(1, 64), kProxyFence + sync(1, 64) + kBulkStore + kBulkCommit + kBulkWaitRead}},
       {{kStoreTile + sync(1, 64), sync(1, 64) + kProxyFence + kBulkStore + kBulkCommit + kBulkWaitRead}}},
      {"source of a bulk store reused",
       "race-",
       {{kStoreTile + kProxyFence + kBulkStore + kBulkCommit + kStoreTile + kBulkWaitRead}},
       {{kStoreTile + kProxyFence + kBulkStore + kBulkCommit + kBulkWaitRead +
         "  bar.warp.sync 0xffffffff;\n" + kStoreTile}}},
      {"wait_group by the wrong warp",
       "race-",
       {{kStoreTile + kProxyFence + kBulkStore + kBulkCommit + sync(1, 64) + kBulkWaitRead,
         kBulkWaitRead + sync(1, 64) + kStoreTile}},
       {{kStoreTile + kProxyFence + kBulkStore + kBulkCommit + kBulkWaitRead + sync(1, 64),
         sync(1, 64) + kStoreTile}}},
      {"accumulator read before the commit",
       "race-",
       {{kMmaS + wait_for(0, 0), tmem_load() + kWaitLoad}, {1}},
       {{kMmaS + wait_for(0, 0), wait_for(0, 0) + kAfter + tmem_load() + kWaitLoad}, {1}}},
      {"wait::ld missing before the arrive",
       "race-",
       {{kMmaS + wait_for(1, 0) + kAfter + mma() + commit(2) + wait_for(2, 0),
         wait_for(0, 0) + kAfter + tmem_load() + kBefore + arrive(1) + kWaitLoad},
        {1, 1, 1}},
       {{kMmaS + wait_for(1, 0) + kAfter + mma() + commit(2) + wait_for(2, 0),
         wait_for(0, 0) + kAfter + tmem_load() + kWaitLoad + kBefore + arrive(1)},
        {1, 1, 1}}},
      {"wait::st missing before the arrive",
       "race-",
       {{wait_for(0, 0) + kAfter + mma("[%r57]") + commit(1) + wait_for(1, 0),
         tmem_store(64) + kBefore + arrive(0) + kWaitStore},
        {1, 1}},
       {{wait_for(0, 0) + kAfter + mma("[%r57]") + commit(1) + wait_for(1, 0),
         tmem_store(64) + kWaitStore + kBefore + arrive(0)},
        {1, 1}}},
      {"emu-tmem-alias-warps: two warps share columns that one still reads",
       "race-",
       {{kMmaS + wait_for(0, 0) + kAfter + tmem_load() + kWaitLoad, "", "", "",
         wait_for(0, 0) + kAfter + tmem_store() + kWaitStore},
        {1}},
       {{kMmaS + wait_for(0, 0) + kAfter + tmem_load() + kWaitLoad + kBefore + sync(1, 64), "", "", "",
         wait_for(0, 0) + sync(1, 64) + kAfter + tmem_store() + kWaitStore},
        {1}}},
      {"thread_sync fences, strictly",
       "missing-thread-sync-fence",
       {{wait_for(0, 0) + mma("[%r57]") + commit(1) + wait_for(1, 0),
         tmem_store(64) + kWaitStore + arrive(0)},
        {1, 1}},
       {{wait_for(0, 0) + kAfter + mma("[%r57]") + commit(1) + wait_for(1, 0),
         tmem_store(64) + kWaitStore + kBefore + arrive(0)},
        {1, 1}},
       CheckMode::Strict},
  };
}

}  // namespace

TEST_CASE("broken synchronisation is reported under every schedule, repaired is not", "[hazard]") {
  for (const Pair& p : pairs()) {
    DYNAMIC_SECTION(p.name) {
      for (const auto& schedule : hazard_schedules()) {
        CAPTURE(static_cast<int>(schedule.kind), schedule.seed);
        const HazardResult broken = check_text(hazard_text(p.broken), p.broken, schedule, p.mode);
        INFO("broken: " << broken.fault << "\n" << broken.report);
        CHECK(broken.has(p.rule));
        const HazardResult good = check_text(hazard_text(p.repaired), p.repaired, schedule, p.mode);
        INFO("repaired: " << good.fault << "\n" << good.report);
        CHECK(good.fault == "");
        CHECK(good.errors() == 0);
      }
    }
  }
}
