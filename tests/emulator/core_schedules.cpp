// Schedules change order, never meaning; the same seed gives the same run.
#include <algorithm>

#include "core_harness.hpp"
#include "support/catch.hpp"

using mxfa::emulator::Schedule;
using mxfa::test::CoreKernel;
using mxfa::test::run_core;
using mxfa::test::store_word;

namespace {

constexpr Schedule kLazy{Schedule::Kind::Lazy, 0};
constexpr Schedule kEager{Schedule::Kind::Eager, 0};
Schedule random(uint64_t seed) { return {Schedule::Kind::Random, seed}; }
Schedule pct(uint64_t seed, uint32_t depth) { return {Schedule::Kind::Pct, seed, depth}; }
Schedule split(uint64_t seed) { return {Schedule::Kind::Split, seed}; }

// A ring of two stages: warp 0 copies 64 words a turn from global memory with bulk copies, warp 1 adds them
// up.
CoreKernel ring(bool wait_for_data) {
  const std::string wait_full = wait_for_data ? "full_wait:\n  mbarrier.try_wait.parity.shared::cta.b64 %p4, "
                                                "[%r12], %r6;\n  @!%p4 bra full_wait;\n"
                                              : "";
  return {
      "  .shared .align 16 .b8 box[512];\n  .shared .align 8 .b64 full[2];\n  .shared .align 8 .b64 "
      "empty[2];\n"
      "  mov.u32 %r1, box;\n  mov.u32 %r2, full;\n  mov.u32 %r3, empty;\n  setp.ne.u32 %p1, %tid, 0;\n  @%p1 "
      "bra ready;\n"
      "  mbarrier.init.shared::cta.b64 [%r2], 1;\n  mbarrier.init.shared::cta.b64 [%r2+8], 1;\n"
      "  mbarrier.init.shared::cta.b64 [%r3], 32;\n  mbarrier.init.shared::cta.b64 [%r3+8], 32;\n"
      "ready:\n  bar.sync 0;\n  mov.u32 %r4, 0;\n  mov.u32 %r20, 0;\n  setp.ge.u32 %p2, %tid, 32;\n  @%p2 "
      "bra consumer;\n"
      "  setp.ne.u32 %p1, %tid, 0;\n  @%p1 bra done;\nproducer:\n"
      "  and.b32 %r5, %r4, 1;\n  shr.u32 %r6, %r4, 1;\n  and.b32 %r6, %r6, 1;\n  xor.b32 %r7, %r6, 1;\n"
      "  mad.lo.u32 %r11, %r5, 256, %r1;\n  mad.lo.u32 %r12, %r5, 8, %r2;\n  mad.lo.u32 %r13, %r5, 8, %r3;\n"
      "empty_wait:\n  mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r13], %r7;\n  @!%p3 bra empty_wait;\n"
      "  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r12], 256;\n  mov.u64 %w1, table;\n"
      "  mad.wide.u32 %w1, %r4, 256, %w1;\n"
      "  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r11], [%w1], 256, [%r12];\n"
      "  add.u32 %r4, %r4, 1;\n  setp.lt.u32 %p5, %r4, 8;\n  @%p5 bra producer;\n  bra done;\n"
      "consumer:\n  and.b32 %r5, %r4, 1;\n  shr.u32 %r6, %r4, 1;\n  and.b32 %r6, %r6, 1;\n"
      "  mad.lo.u32 %r11, %r5, 256, %r1;\n  mad.lo.u32 %r12, %r5, 8, %r2;\n  mad.lo.u32 %r13, %r5, 8, "
      "%r3;\n" +
          wait_full +
          "  mad.lo.u32 %r14, %lane, 8, %r11;\n  ld.shared.v2.u32 {%r15, %r16}, [%r14];\n  add.u32 %r20, "
          "%r20, %r15;\n"
          "  add.u32 %r20, %r20, %r16;\n  mbarrier.arrive.shared::cta.b64 _, [%r13];\n  add.u32 %r4, %r4, "
          "1;\n"
          "  setp.lt.u32 %p5, %r4, 8;\n  @%p5 bra consumer;\n" +
          store_word("%lane", "%r20") + "done:\n  ret;",
      {},
      ".global .align 256 .u32 table[512] = {" +
          [] {
            std::string s;
            for (int i = 0; i < 512; ++i) s += (i ? "," : "") + std::to_string(i * 7 + 1);
            return s;
          }() +
          "};\n",
      64};
}

uint32_t expected(uint32_t lane) {
  uint32_t sum = 0;
  for (uint32_t turn = 0; turn < 8; ++turn)
    for (uint32_t k = 0; k < 2; ++k) sum += (turn * 64 + lane * 2 + k) * 7 + 1;
  return sum;
}

}  // namespace

TEST_CASE("a correct pipeline gives the same bits under every schedule", "[core]") {
  std::vector<Schedule> schedules{{}, kLazy, kEager};
  for (uint64_t seed = 0; seed < 12; ++seed) {
    schedules.push_back(random(seed));
    schedules.push_back(pct(seed, 1 + static_cast<uint32_t>(seed % 4)));
    schedules.push_back(split(seed));
  }
  for (const Schedule& s : schedules) {
    CAPTURE(s.name(), s.seed);
    const auto r = run_core(ring(true), 32, s);
    REQUIRE(r.fault == "");
    for (uint32_t lane = 0; lane < 32; ++lane) CHECK(r.words[lane] == expected(lane));
  }
}

TEST_CASE("data read without waiting is wrong under the lazy and eager schedules", "[core]") {
  for (const Schedule& s : {kLazy, kEager}) {
    const auto r = run_core(ring(false), 32, s);
    bool differs = !r.fault.empty();
    for (uint32_t lane = 0; lane < 32; ++lane) differs = differs || r.words[lane] != expected(lane);
    CHECK(differs);
  }
}

TEST_CASE("the same seed runs the same way", "[core]") {
  const auto trace = [](const Schedule& s) { return run_core(ring(true), 32, s).counters.trace; };
  CHECK(trace(kLazy) == trace(kLazy));
  for (const auto& policy :
       {+[](uint64_t seed) { return random(seed); }, +[](uint64_t seed) { return pct(seed, 3); },
        +[](uint64_t seed) { return split(seed); }}) {
    CHECK(trace(policy(7)) == trace(policy(7)));
    CHECK(trace(policy(7)) != trace(policy(8)));
  }
}

TEST_CASE("eager: the destination of a store in flight is lost at once", "[core]") {
  const CoreKernel k{
      "  .shared .align 16 .b8 box[16];\n  mov.u32 %r1, box;\n  setp.ne.u32 %p1, %lane, 0;\n  @%p1 bra "
      "done;\n"
      "  st.global.u32 [%out], 5;\n  st.shared.v4.u32 [%r1], {7, 7, 7, 7};\n  "
      "fence.proxy.async.shared::cta;\n"
      "  cp.async.bulk.global.shared::cta.bulk_group [%out], [%r1], 16;\n  cp.async.bulk.commit_group;\n"
      "  ld.global.u32 %r2, [%out];\n  cp.async.bulk.wait_group 0;\n  st.global.u32 [%out+16], %r2;\n"
      "done:\n  ret;"};
  CHECK(run_core(k, 5, kLazy).words[4] == 5);
  const auto eager = run_core(k, 5, kEager);
  CHECK(eager.words[4] == 0xffffffff);
  CHECK(eager.words[0] == 7);
}

namespace {

// Lanes below 16 write a word each behind a branch, then every lane reads one of them.
CoreKernel exchange(bool synchronise) {
  return {
      "  .shared .align 4 .b8 box[128];\n  mov.u32 %r1, box;\n  mad.lo.u32 %r2, %lane, 4, %r1;\n"
      "  st.shared.u32 [%r2], 0;\n  bar.warp.sync -1;\n  setp.ge.u32 %p1, %lane, 16;\n  @%p1 bra join;\n"
      "  add.u32 %r3, %lane, 100;\n  st.shared.u32 [%r2], %r3;\njoin:\n" +
      std::string(synchronise ? "  bar.warp.sync -1;\n" : "") +
      "  and.b32 %r4, %lane, 15;\n  mad.lo.u32 %r4, %r4, 4, %r1;\n  ld.shared.u32 %r5, [%r4];\n" +
      store_word("%lane", "%r5") + "  bar.sync 0;\n  ret;"};
}

bool exchanged(const mxfa::test::CoreResult& r) {
  REQUIRE(r.fault == "");
  for (uint32_t lane = 0; lane < 32; ++lane)
    if (r.words[lane] != 100 + lane % 16) return false;
  return true;
}

}  // namespace

TEST_CASE("split: lanes that diverged do not meet again by themselves", "[core]") {
  CHECK(exchanged(run_core(exchange(false), 32)));  // as a device that reconverges
  bool all = true;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    all = exchanged(run_core(exchange(false), 32, split(seed))) && all;
    CHECK(exchanged(run_core(exchange(true), 32, split(seed))));
  }
  CHECK(!all);
}

TEST_CASE("pct: between change points one warp runs as long as it can", "[core]") {
  // Two warps write their number into a log four times each.
  const CoreKernel k{
      "  .shared .align 4 .b8 place[4];\n  mov.u32 %r1, place;\n  setp.ne.u32 %p1, %lane, 0;\n"
      "  shr.u32 %r2, %tid, 5;\n  setp.eq.u32 %p2, %tid, 0;\n  @%p2 st.shared.u32 [%r1], 0;\n  bar.sync 0;\n"
      "  @%p1 bra done;\n  mov.u32 %r4, 0;\nagain:\n  atom.shared.add.u32 %r3, [%r1], 1;\n" +
          store_word("%r3", "%r2") +
          "  add.u32 %r4, %r4, 1;\n  setp.lt.u32 %p3, %r4, 4;\n  @%p3 bra again;\ndone:\n  ret;",
      {},
      {},
      64};
  const auto changes = [&](const Schedule& s) {
    const auto r = run_core(k, 8, s);
    REQUIRE(r.fault == "");
    int count = 0;
    for (size_t i = 1; i < 8; ++i) count += r.words[i] != r.words[i - 1];
    return count;
  };
  bool interrupted = false, first = false, second = false;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    CHECK(changes(pct(seed, 1)) == 1);
    (run_core(k, 8, pct(seed, 1)).words[0] == 0 ? first : second) = true;
    const int twice = changes(pct(seed, 2));
    CHECK(twice <= 2);  // one change point
    interrupted = interrupted || twice == 2;
  }
  CHECK(interrupted);
  CHECK(first);
  CHECK(second);
}

TEST_CASE("a seed chooses what PTX leaves open: the elected lane and the order of CTAs", "[core]") {
  const CoreKernel leader{"  elect.sync %r1|%p1, 0xffffffff;\n  elect.sync %r2|%p2, 0xffffffff;\n" +
                          store_word("0", "%r1") + store_word("1", "%r2") + "  ret;"};
  const CoreKernel order{
      "  setp.ne.u32 %p1, %lane, 0;\n  @%p1 bra done;\n  mov.u64 %w1, place;\n"
      "  atom.global.add.u32 %r1, [%w1], 1;\n  mov.u32 %r2, %ctaid.x;\n" +
          store_word("%r1", "%r2") + "done:\n  ret;",
      {},
      ".global .align 4 .u32 place;\n",
      32,
      8};
  CHECK(run_core(leader, 2).words[0] == 0);
  CHECK(run_core(order, 8).words == std::vector<uint32_t>{0, 1, 2, 3, 4, 5, 6, 7});
  bool other_leader = false, other_order = false;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    CHECK(run_core(leader, 2, random(seed)).words[0] == 0);  // as devices do
    const auto elected = run_core(leader, 2, split(seed)).words;
    CHECK(elected[0] == elected[1]);  // PTX: the same for the same members
    other_leader = other_leader || elected[0] != 0;
    auto started = run_core(order, 8, random(seed)).words;
    other_order = other_order || !std::is_sorted(started.begin(), started.end());
    std::sort(started.begin(), started.end());
    CHECK(started == std::vector<uint32_t>{0, 1, 2, 3, 4, 5, 6, 7});
  }
  CHECK(other_leader);
  CHECK(other_order);
}

TEST_CASE("counters count instructions, lanes and bytes", "[core]") {
  const auto r = run_core({"  setp.lt.u32 %p1, %lane, 8;\n  @%p1 add.u32 %r1, %lane, 1;\n  ret;"}, 1);
  // ld.param and two movs of the prologue, setp, add, ret
  CHECK(r.counters.warp_instructions == 6);
  CHECK(r.counters.lane_instructions == 5 * 32 + 8);
  CHECK(run_core(ring(true), 32).counters.bulk_bytes == 8 * 256);
}

TEST_CASE("CTAs of a cluster run together and see each other's shared memory", "[core]") {
  const CoreKernel k{
      "  .shared .align 4 .b8 word[4];\n  mov.u32 %r1, word;\n  mov.u32 %r2, %cluster_ctarank;\n"
      "  add.u32 %r3, %r2, 100;\n  st.shared.u32 [%r1], %r3;\n  barrier.cluster.arrive.release.aligned;\n"
      "  barrier.cluster.wait.acquire.aligned;\n  xor.b32 %r4, %r2, 1;\n  mapa.shared::cluster.u32 %r5, %r1, "
      "%r4;\n"
      "  ld.shared::cluster.u32 %r6, [%r5];\n  barrier.cluster.arrive.release.aligned;\n"
      "  barrier.cluster.wait.acquire.aligned;\n  mov.u32 %r7, %ctaid.x;\n" +
          store_word("%r7", "%r6") + "  ret;",
      {},
      {},
      64,
      4,
      2};
  for (const Schedule& s : {Schedule{}, kLazy, random(1), random(2)}) {
    const auto r = run_core(k, 4, s);
    REQUIRE(r.fault == "");
    CHECK(r.words == std::vector<uint32_t>{101, 100, 101, 100});
  }
}

TEST_CASE("a cluster that polls for a later one is parked", "[core]") {
  // CTA 0 waits for a flag of CTA 3, which waits for one of CTA 1.
  const CoreKernel k{
      "  mov.u32 %r7, %ctaid.x;\n  mov.u64 %w1, flags;\n  setp.eq.u32 %p1, %r7, 0;\n  selp.u32 %r8, 12, 4, "
      "%p1;\n"
      "  setp.eq.u32 %p2, %r7, 3;\n  or.pred %p2, %p2, %p1;\n  cvt.u64.u32 %w2, %r8;\n  add.u64 %w2, %w1, "
      "%w2;\n"
      "  @!%p2 bra set;\npoll:\n  ld.acquire.gpu.global.u32 %r9, [%w2];\n  setp.eq.u32 %p3, %r9, 0;\n  @%p3 "
      "bra poll;\n"
      "set:\n  mad.wide.u32 %w3, %r7, 4, %w1;\n  add.u32 %r10, %r7, 50;\n  st.release.gpu.global.u32 [%w3], "
      "%r10;\n"
      "  selp.u32 %r9, %r9, 0, %p2;\n" +
          store_word("%r7", "%r9") + "  ret;",
      {},
      ".global .align 4 .u32 flags[4];\n",
      1,
      4};
  for (const Schedule& s : {Schedule{}, kLazy, random(1)}) {
    const auto r = run_core(k, 4, s);
    REQUIRE(r.fault == "");
    CHECK(r.words == std::vector<uint32_t>{53, 0, 0, 51});
  }
}

TEST_CASE("clusters that take work as they go share it where the schedule is random", "[core]") {
  // Each counts what it takes of 400, one at a time.
  const CoreKernel taking{
      "  mov.u64 %w1, table;\n  mov.u32 %r1, %ctaid.x;\n  mov.u32 %r3, 0;\n  setp.ne.u32 %p1, %lane, 0;\n"
      "  @%p1 bra done;\ntake:\n  atom.global.add.u32 %r2, [%w1], 1;\n  setp.ge.u32 %p1, %r2, 400;\n"
      "  @%p1 bra taken;\n  add.u32 %r3, %r3, 1;\n  bra take;\ntaken:\n" +
          store_word("%r1", "%r3") + "done:\n  ret;",
      {},
      ".global .align 4 .u32 table[1] = {0};\n",
      32,
      3};
  CHECK(run_core(taking, 3).words == std::vector<uint32_t>{400, 0, 0});
  for (const auto& policy : {random, split}) {
    size_t shared = 0;
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      const auto r = run_core(taking, 3, policy(seed));
      INFO(r.fault);
      CHECK(r.words[0] + r.words[1] + r.words[2] == 400);
      shared += std::count(r.words.begin(), r.words.end(), 0u) < 2;
    }
    CHECK(shared > 0);
  }
}
