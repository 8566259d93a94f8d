// Clusters on several host threads: only where their order cannot be seen, and then with the same results,
// counters and faults.
#include <cstdlib>

#include "core/independence.hpp"
#include "core_harness.hpp"
#include "support/catch.hpp"

namespace mxfa::emulator {
const Kernel* find_lowered_kernel(const Module& module, const KernelInfo& info);
}

using namespace mxfa::test;

namespace {

struct Threads {
  explicit Threads(int n) { setenv("MXFA_EMU_THREADS", std::to_string(n).c_str(), 1); }
  ~Threads() { unsetenv("MXFA_EMU_THREADS"); }
};

bool independent(const std::string& body) {
  const auto module = mxfa::emulator::Module::load(core_text({body + "\n  ret;"}), blackwell(), test_arena());
  return clusters_are_independent(*mxfa::emulator::find_lowered_kernel(*module, *module->find_kernel("k")));
}

// Every thread spins a number of turns of its own and stores what it got.
const std::string kWork =
    "  mov.u32 %r1, %ctaid.x;\n  mad.lo.u32 %r2, %r1, 32, %tid;\n  and.b32 %r3, %r1, 7;\n  add.u32 %r3, %r3, "
    "1;\n"
    "  mov.u32 %r4, %r2;\nagain:\n  mad.lo.u32 %r4, %r4, 1664525, 1013904223;\n  add.u32 %r3, %r3, -1;\n"
    "  setp.ne.u32 %p1, %r3, 0;\n  @%p1 bra again;\n";

}  // namespace

TEST_CASE("what can tell the order of clusters is recognised", "[threads]") {
  CHECK(independent("  ld.global.u32 %r1, [%out];\n  st.global.u32 [%out], %r1;"));
  CHECK(independent("  .shared .b32 x; atom.shared.add.u32 %r1, [x], 1;"));
  CHECK(independent("  fence.proxy.async.shared::cta;\n  fence.acq_rel.cluster;"));
  CHECK(independent(
      "  .shared .b8 b[64]; mov.u32 %r1, b; cp.async.bulk.global.shared::cta.bulk_group [%out], [%r1], 16;"));
  CHECK_FALSE(independent("  atom.global.add.u32 %r1, [%out], 1;"));
  CHECK_FALSE(independent("  red.add.f32 [%out], %f1;"));
  CHECK_FALSE(independent("  ld.volatile.global.u32 %r1, [%out];"));
  CHECK_FALSE(independent("  ld.acquire.gpu.global.u32 %r1, [%out];"));
  CHECK_FALSE(independent("  st.release.gpu.u32 [%out], %r1;"));
  CHECK_FALSE(independent("  fence.acq_rel.gpu;"));
  CHECK_FALSE(independent("  membar.gl;"));
  CHECK_FALSE(independent("  mov.u32 %r1, %clock;"));
  CHECK_FALSE(independent("  nanosleep.u32 20;"));
  CHECK_FALSE(
      independent("  .shared .b8 b[64]; mov.u32 %r1, b; "
                  "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%out], [%r1], 16;"));
}

TEST_CASE("several threads give the results and counters of one", "[threads]") {
  const CoreKernel kernel{kWork + store_word("%r2", "%r4") + "  ret;", {}, {}, 32, 96};
  CoreResult one, four;
  {
    const Threads threads(1);
    one = run_core(kernel, 96 * 32);
  }
  {
    const Threads threads(4);
    four = run_core(kernel, 96 * 32);
  }
  CHECK(one.fault.empty());
  CHECK(four.fault.empty());
  CHECK(one.words == four.words);
  CHECK(one.counters.warp_instructions == four.counters.warp_instructions);
  CHECK(one.counters.lane_instructions == four.counters.lane_instructions);
}

TEST_CASE("CTAs of a cluster stay together on one thread", "[threads]") {
  const Threads threads(3);
  // Each CTA writes into its peer's shared memory and reads its own.
  const std::string body =
      kWork +
      "  .shared .align 4 .b8 box[128];\n  mov.u32 %r5, box;\n  mad.lo.u32 %r5, %lane, 4, %r5;\n"
      "  mov.u32 %r6, %cluster_ctarank;\n  xor.b32 %r6, %r6, 1;\n  mapa.shared::cluster.u32 %r7, %r5, %r6;\n"
      "  barrier.cluster.arrive;\n  barrier.cluster.wait;\n  st.shared::cluster.u32 [%r7], %r2;\n"
      "  barrier.cluster.arrive;\n  barrier.cluster.wait;\n  ld.shared.u32 %r8, [%r5];\n" +
      store_word("%r2", "%r8") + "  ret;";
  const auto r = run_core({body, {}, {}, 32, 40, 2}, 40 * 32);
  REQUIRE(r.fault.empty());
  for (uint32_t i = 0; i < 40 * 32; ++i) CHECK(r.words[i] == (i ^ 32));
}

TEST_CASE("of several faults the one of the lowest cluster is reported", "[threads]") {
  const Threads threads(4);
  for (int turn = 0; turn < 20; ++turn) {
    const auto r =
        run_core({kWork + "  setp.ge.u32 %p2, %r1, 11;\n  @%p2 trap;\n" + store_word("%r2", "%r4") + "  ret;",
                  {},
                  {},
                  32,
                  64},
                 64 * 32);
    CHECK(mentions_all(r.fault, {"CTA (11, 0, 0)"}));
    CHECK(r.words[10 * 32] != 0xffffffff);  // those before it ran
  }
}

TEST_CASE("clusters that poll with plain loads are finished in turn", "[threads]") {
  const Threads threads(2);
  // CTA 0 waits for what CTA 1 stores: no thread may be stuck with it for good.
  const auto r =
      run_core({"  mov.u32 %r1, %ctaid.x;\n  setp.ne.u32 %p1, %r1, 0;\n  @%p1 bra store;\n"
                "poll:\n  ld.global.u32 %r2, [%out+4];\n  setp.eq.u32 %p2, %r2, 0xffffffff;\n  @%p2 bra "
                "poll;\n  st.global.u32 [%out], %r2;\n  ret;\nstore:\n  st.global.u32 [%out+4], 7;\n  ret;",
                {},
                {},
                1,
                2},
               2);
  INFO(r.fault);
  CHECK(r.words == std::vector<uint32_t>{7, 7});
}

TEST_CASE("MXFA_EMU_THREADS is a number", "[threads]") {
  setenv("MXFA_EMU_THREADS", "two", 1);
  const auto r = run_core({kWork + "  ret;", {}, {}, 32, 4}, 1);
  unsetenv("MXFA_EMU_THREADS");
  CHECK(mentions_all(r.fault, {"MXFA_EMU_THREADS=two", "1 to 1024"}));
}
