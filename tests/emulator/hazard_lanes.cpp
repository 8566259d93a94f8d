// Lanes of a warp follow each other only where the warp is synchronised; registers of a wgmma are fenced.
#include "hazard_harness.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;
using mxfa::emulator::CheckMode;

namespace {

const std::string kWarp = "  bar.warp.sync 0xffffffff;\n";
const std::string kLaneArrive = "  @%one mbarrier.arrive.shared::cta.b64 _, [%bar];\n";
const std::string kStoreOther =  // to the word that the next lane has stored
    "  add.u32 %r53, %lane, 1;\n  and.b32 %r53, %r53, 31;\n  shl.b32 %r53, %r53, 2;\n"
    "  add.u32 %r53, %r53, %tile;\n  ld.shared.u32 %r54, [%r53];\n";

// Advice where the mode is not strict, as published kernels count on the lanes of a warp.
// where another schedule brings the second access first, the two are a plain race.
void check_lanes(const HazardKernel& broken, const HazardKernel& repaired, bool may_turn = false) {
  for (const auto& schedule : hazard_schedules()) {
    CAPTURE(static_cast<int>(schedule.kind), schedule.seed);
    const HazardResult bad = check_text(hazard_text(broken), broken, schedule);
    INFO("broken: " << bad.fault << "\n" << bad.report);
    CHECK(bad.fault == "");
    const bool turned = may_turn && bad.has("race-");
    CHECK((turned || bad.has("missing-warp-sync")));
    CHECK((turned || bad.errors() == 0));
    const HazardResult strict = check_text(hazard_text(broken), broken, schedule, CheckMode::Strict);
    CHECK((turned || strict.has("missing-warp-sync")));
    CHECK(strict.errors() > 0);
    const HazardResult good = check_text(hazard_text(repaired), repaired, schedule, CheckMode::Strict);
    INFO("repaired: " << good.fault << "\n" << good.report);
    CHECK(good.fault == "");
    CHECK(good.errors() + good.advice() == 0);
  }
}

}  // namespace

TEST_CASE("an elected lane's arrive hands on what the other lanes have done before a warp barrier",
          "[hazard]") {
  check_lanes({{kStoreTile + kLaneArrive, wait_for(0, 0) + kLoadTile}, {1}},
              {{kStoreTile + kWarp + kLaneArrive, wait_for(0, 0) + kLoadTile}, {1}});
}

TEST_CASE("a shuffle, a vote or an .aligned instruction is enough, but not for the letter of the PTX ISA",
          "[hazard]") {
  for (const std::string& sync :
       {std::string("  vote.sync.any.pred %p1, %one, 0xffffffff;\n"),
        std::string("  shfl.sync.idx.b32 %r41, %lane, 0, 31, 0xffffffff;\n"), kWaitStore}) {
    const HazardKernel kernel{{kStoreTile + sync + kLaneArrive, wait_for(0, 0) + kLoadTile}, {1}};
    for (const auto& schedule : hazard_schedules()) {
      const HazardResult r = check_text(hazard_text(kernel), kernel, schedule);
      INFO(r.fault << "\n" << r.report);
      CHECK(r.errors() + r.advice() == 0);
      CHECK(check_text(hazard_text(kernel), kernel, schedule, CheckMode::Strict).has("missing-warp-sync"));
    }
  }
}

TEST_CASE("lanes read what other lanes of their warp have stored after a warp barrier", "[hazard]") {
  check_lanes({{kStoreTile + kStoreOther}}, {{kStoreTile + kWarp + kStoreOther}});
}

TEST_CASE("a lane's own accesses need no warp barrier", "[hazard]") {
  const HazardKernel own{{kStoreTile + kLoadTile + "  @%one st.shared.u32 [%tile+256], 1;\n" + kLaneArrive,
                          wait_for(0, 0) + "  @%one ld.shared.u32 %r41, [%tile+256];\n"},
                         {1}};
  for (const auto& schedule : hazard_schedules()) {
    const HazardResult r = check_text(hazard_text(own), own, schedule, CheckMode::Strict);
    INFO(r.fault << "\n" << r.report);
    CHECK(r.fault == "");
    CHECK(r.errors() + r.advice() == 0);
  }
}

TEST_CASE("what one lane has waited for, the others know after a warp barrier", "[hazard]") {
  // Lane 0 alone waits; the label is behind its branch.
  const std::string wait = "  @!%one bra waited;\n" + wait_for(0, 0) + "waited:\n";
  check_lanes({{kStoreTile + kWarp + kLaneArrive, wait + kLoadTile}, {1}},
              {{kStoreTile + kWarp + kLaneArrive, wait + kWarp + kLoadTile}, {1}}, true);
}

TEST_CASE("a word that all lanes read, in halves of the warp, is handed to the async proxy by one fence each",
          "[hazard]") {
  const std::string read =
      "  setp.lt.u32 %p1, %lane, 16;\n  @%p1 bra apart;\n  add.u32 %r41, %lane, 1;\napart:\n"
      "  ld.shared.u32 %r42, [%tile];\n" +
      kProxyFence + kWarp + kLaneArrive;
  const HazardKernel kernel{{read, wait_for(0, 0) + expect(1, 1024) + bulk_load(1) + wait_for(1, 0)}, {1, 1}};
  for (uint64_t seed = 1; seed < 9; ++seed) {
    const HazardResult r = check_text(hazard_text(kernel), kernel,
                                      {mxfa::emulator::Schedule::Kind::Split, seed}, CheckMode::Strict);
    INFO(seed << r.fault << "\n" << r.report);
    CHECK(r.fault == "");
    CHECK(r.errors() + r.advice() == 0);
  }
}

TEST_CASE("a bulk copy by an elected lane reads what the others have stored after a warp barrier",
          "[hazard]") {
  const std::string store = kBulkStore + kBulkCommit + kBulkWaitRead;
  check_lanes({{kStoreTile + kProxyFence + store}}, {{kStoreTile + kProxyFence + kWarp + store}});
  // And the buffer is refilled by all lanes only when they know that the lane has waited.
  check_lanes({{kStoreTile + kProxyFence + kWarp + store + kStoreTile}},
              {{kStoreTile + kProxyFence + kWarp + store + kWarp + kStoreTile}});
}

namespace {

HazardKernel warpgroup(const std::string& text) {
  HazardKernel k{{text, text, text, text}};
  k.target = "sm_90a";
  return k;
}
const std::string kDescriptors =
    "  shr.u32 %r54, %tile, 4;\n  and.b32 %r54, %r54, 0x3fff;\n  cvt.u64.u32 %w3, %r54;\n"
    "  or.b64 %w3, %w3, 0x1000080000;\n  add.u64 %w4, %w3, 512;\n  setp.eq.u32 %p13, %r54, %r54;\n";
const std::string kFence = "  wgmma.fence.sync.aligned;\n";
const std::string kMultiply =
    "  wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, %w3, %w4, %p13, 1, 1, 0, "
    "0;\n";
const std::string kFromRegisters =
    "  wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, {%r20, %r21, %r22, %r23}, "
    "%w4, %p13, 1, 1, 0;\n";
const std::string kDone = "  wgmma.commit_group.sync.aligned;\n  wgmma.wait_group.sync.aligned 0;\n";

void check_fence(const std::string& broken, const std::string& repaired, bool error = true) {
  const HazardKernel bad = warpgroup(kDescriptors + broken), good = warpgroup(kDescriptors + repaired);
  for (const auto& schedule : hazard_schedules()) {
    const HazardResult b = check_text(hazard_text(bad), bad, schedule);
    INFO("broken: " << b.fault << "\n" << b.report);
    CHECK(b.has("missing-wgmma-fence"));
    CHECK(b.errors() == (error ? 4u : 0u));  // in the text of each warp
    const HazardResult g = check_text(hazard_text(good), good, schedule, CheckMode::Strict);
    INFO("repaired: " << g.fault << "\n" << g.report);
    CHECK(g.fault == "");
    CHECK(g.errors() + g.advice() == 0);
  }
}

}  // namespace

TEST_CASE("wgmma.fence comes before the first wgmma", "[hazard]") {
  check_fence(kMultiply + kDone, kFence + kMultiply + kDone);
}

TEST_CASE("accumulators that a thread has used are fenced before the next wgmma adds to them", "[hazard]") {
  const std::string use = "  add.f32 %f1, %f1, %f2;\n", first = kFence + kMultiply + kDone;
  check_fence(first + use + kMultiply + kDone, first + use + kFence + kMultiply + kDone);
  // Wgmmas alone follow each other.
  check_fence(first + use + kMultiply + kDone, first + kMultiply + kDone);
}

TEST_CASE("registers of A are fenced after they have been written", "[hazard]") {
  const std::string write =
                        "  mov.u32 %r20, 0;\n  mov.u32 %r21, 0;\n  mov.u32 %r22, 0;\n  mov.u32 %r23, 0;\n",
                    first = write + kFence + kFromRegisters + kDone;
  check_fence(first + write + kFromRegisters + kDone, first + write + kFence + kFromRegisters + kDone);
  // A move behind a fence of this very wgmma may be the compiler's.
  check_fence(kFence + write + kFromRegisters + kDone, first, false);
}

TEST_CASE("a fence on one path only is none", "[hazard]") {
  const std::string use = "  add.f32 %f1, %f1, %f2;\n", first = kFence + kMultiply + kDone;
  const auto kernel = [&](const std::string& fence) {
    return first + use + "  setp.ne.u32 %p1, %tile, 0;\n  @%p1 bra around;\n" + kFence + "around:\n" + fence +
           kMultiply + kDone;
  };
  HazardKernel bad = warpgroup(kDescriptors + kernel("")), good = warpgroup(kDescriptors + kernel(kFence));
  for (HazardKernel* k : {&bad, &good})  // one role, so that the label is there once
    k->roles = {k->roles[0]}, k->before = k->roles[0], k->roles = {"", "", "", ""};
  const HazardResult b = check_text(hazard_text(bad), bad, {}), g = check_text(hazard_text(good), good, {});
  INFO(b.report << g.report << b.fault << g.fault);
  CHECK(b.has("missing-wgmma-fence"));
  CHECK(g.errors() + g.advice() == 0);
}

TEST_CASE("an mbarrier's init is fenced before the async proxy uses it", "[hazard]") {
  const auto kernel = [](const std::string& fence) {
    return HazardKernel{{"  @%one mbarrier.init.shared::cta.b64 [%bar+48], 1;\n" + fence + sync(1, 64),
                         sync(1, 64) + expect(6, 1024) + bulk_load(6) + wait_for(6, 0)}};
  };
  const HazardKernel bad = kernel(""), good = kernel("  fence.mbarrier_init.release.cluster;\n");
  for (const auto& schedule : hazard_schedules()) {
    const HazardResult b = check_text(hazard_text(bad), bad, schedule);
    INFO("broken: " << b.fault << "\n" << b.report);
    CHECK(b.has("missing-mbarrier-init-fence"));
    CHECK(b.errors() == 0);
    CHECK(check_text(hazard_text(bad), bad, schedule, CheckMode::Strict).errors() == 1);
    const HazardResult g = check_text(hazard_text(good), good, schedule, CheckMode::Strict);
    INFO("repaired: " << g.fault << "\n" << g.report);
    CHECK(g.errors() + g.advice() == 0);
  }
}

TEST_CASE("strict: thread_sync fences after tcgen05.alloc and before tcgen05.dealloc", "[hazard]") {
  const std::string alloc = "  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%tile], 32;\n",
                    get = "  ld.shared.u32 %r1, [%tile];\n",
                    use = get + "  tcgen05.st.sync.aligned.32x32b.x1.b32 [%r1], {%lane};\n" + kWaitStore,
                    dealloc = get + "  tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 32;\n";
  // Warp 0 allocates and deallocates, warp 4 (of the same lanes) stores.
  const auto kernel = [&](int without) {
    const auto fence = [&](int number, const std::string& text) { return number == without ? "" : text; };
    HazardKernel k{{alloc + fence(1, kBefore) + sync(1, 64) + sync(2, 64) + fence(4, kAfter) + dealloc, "",
                    "", "", sync(1, 64) + fence(2, kAfter) + use + fence(3, kBefore) + sync(2, 64)}};
    return k;
  };
  for (int without = 0; without <= 4; ++without) {
    CAPTURE(without);
    const HazardKernel k = kernel(without);
    const HazardResult strict = check_text(hazard_text(k), k, {}, CheckMode::Strict);
    INFO(strict.fault << "\n" << strict.report);
    CHECK(strict.fault == "");
    CHECK(strict.has("missing-thread-sync-fence") == (without != 0));
    CHECK(strict.errors() == (without ? 1u : 0u));
    CHECK(check_text(hazard_text(k), k, {}).errors() == 0);
  }
}
