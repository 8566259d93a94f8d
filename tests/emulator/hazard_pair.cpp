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
    const std::string store =
        "  add.u32 %r58, %tmem, %r1;\n  tcgen05.st.sync.aligned.32x32b.x1.b32 [%r58], {%lane};\n";
    return pair_of_ctas(kAlloc + kRelaxedSync + kRelaxedSync + kDealloc,
                        kRelaxedSync + kAddress + store + wait + kRelaxedSync);
  };
  check_both("race-with-init-or-dealloc", kernel(""), kernel(kWaitStore));
}
