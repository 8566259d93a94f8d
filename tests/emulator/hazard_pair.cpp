// Allocation and deallocation of tensor memory by two CTAs together: whose accesses they are, and what a
// relaxed cluster barrier is enough for.  DeepGEMM's and CUTLASS's kernels of two CTAs rely on both.
#include "hazard_harness.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;

namespace {

const std::string kAlloc = "  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%tile], 32;\n",
                  kAddress = "  ld.shared.u32 %r1, [%tile];\n",
                  kDealloc = kAddress + "  tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 32;\n",
                  kRelaxedSync =
                      "  barrier.cluster.arrive.relaxed.aligned;\n  barrier.cluster.wait.aligned;\n";

HazardKernel pair_of_ctas(const std::string& first, const std::string& second) {
  HazardKernel k{{first, second}};
  k.ctas = k.cluster = k.cta_group = 2;
  return k;
}

void check_both(const std::string& rule, const HazardKernel& broken, const HazardKernel& repaired) {
  for (const auto& schedule : hazard_schedules()) {
    CAPTURE(static_cast<int>(schedule.kind), schedule.seed);
    const HazardResult bad = check_text(hazard_text(broken), broken, schedule);
    INFO("broken: " << bad.fault << "\n" << bad.report);
    CHECK(bad.has(rule));
    const HazardResult good = check_text(hazard_text(repaired), repaired, schedule);
    INFO("repaired: " << good.fault << "\n" << good.report);
    CHECK(good.fault == "");
    CHECK(good.errors() == 0);
  }
}

}  // namespace

TEST_CASE("the address that a pair allocates is handed on within each CTA", "[hazard]") {
  check_both("race-", pair_of_ctas(kAlloc + kDealloc + sync(1, 64), kAddress + sync(1, 64)),
             pair_of_ctas(kAlloc + sync(1, 64) + kDealloc, sync(1, 64) + kAddress));
}

TEST_CASE("a relaxed cluster barrier comes after an allocation, but orders no store", "[hazard]") {
  check_both("race-read-after-write",
             pair_of_ctas("  @%one st.shared.u32 [%tile], %lane;\n" + kRelaxedSync, kRelaxedSync + kAddress),
             pair_of_ctas(kAlloc + kRelaxedSync + kDealloc, kRelaxedSync + kAddress));
}

TEST_CASE("a relaxed cluster barrier is enough before the deallocation of columns that nobody uses any more",
          "[hazard]") {
  const auto kernel = [](const std::string& wait) {
    const std::string load =
        "  add.u32 %r58, %tmem, %r1;\n  tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r40}, [%r58];\n";
    return pair_of_ctas(kAlloc + kRelaxedSync + kRelaxedSync + kDealloc,
                        kRelaxedSync + kAddress + load + wait + kRelaxedSync);
  };
  check_both("race-with-init-or-dealloc", kernel(""), kernel(kWaitLoad));
}

// Row statistics go from one warp to another of the same lane quarter in CUTLASS's attention.
TEST_CASE("loads and stores of one lane quarter are in order without wait::st, which is advice", "[hazard]") {
  const auto kernel = [](const std::string& wait, const std::string& fetch) {
    return HazardKernel{
        {tmem_store() + wait + kBefore + arrive(0), "", "", "", fetch + kAfter + tmem_load() + kWaitLoad},
        {1}};
  };
  const HazardKernel unordered = kernel("", ""), in_order = kernel("", wait_for(0, 0)),
                     letter = kernel(kWaitStore, wait_for(0, 0));
  for (const auto& schedule : hazard_schedules()) {
    CAPTURE(static_cast<int>(schedule.kind), schedule.seed);
    CHECK(check_text(hazard_text(unordered), unordered, schedule).has("race-"));
    const HazardResult result = check_text(hazard_text(in_order), in_order, schedule);
    INFO(result.fault << result.report);
    CHECK(result.fault == "");
    CHECK(result.errors() == 0);
    CHECK(result.has("missing-tmem-wait"));
    CHECK(check_text(hazard_text(in_order), in_order, schedule, mxfa::emulator::CheckMode::Strict).errors() >
          0);
    CHECK(check_text(hazard_text(letter), letter, schedule, mxfa::emulator::CheckMode::Strict).errors() == 0);
  }
}

TEST_CASE("a write is found after the reads of thousands of warps", "[hazard]") {
  const auto kernel = [](const std::string& write) {
    HazardKernel k{
        {"  mov.u32 %r1, 0;\nagain:\n  ld.global.u32 %r2, [%out];\n  add.u32 %r1, %r1, 1;\n"
         "  setp.lt.u32 %p1, %r1, 20;\n  @%p1 bra again;\n" +
         write}};
    k.target = "sm_90a";
    k.ctas = 2000;
    return k;
  };
  const HazardKernel
      reads = kernel(""),
      writes = kernel(
          "  mov.u32 %r3, %ctaid.x;\n  setp.eq.u32 %p2, %r3, 1999;\n  @%p2 st.global.u32 [%out], 1;\n");
  const mxfa::emulator::Schedule functional{mxfa::emulator::Schedule::Kind::Functional, 0};
  CHECK(check_text(hazard_text(reads), reads, functional).findings.empty());
  CHECK(check_text(hazard_text(writes), writes, functional).has("race-write-after-read"));
}
