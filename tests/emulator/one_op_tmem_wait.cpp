// Waits for tensor-memory accesses under the lazy schedule: a store without wait::st lands after the mma that
// should have read it.  A load without wait::ld is complete where its registers are used, as on hardware
// (public kernels wait only before they give the columns back), but comes after a store that overtakes it.
#include <cstring>

#include "one_op.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;

namespace {

// D = A B with A (128 x 16 bf16, all ones) stored to tensor memory from registers and B (8 x 16, all ones) in
// shared memory: every element of D is 16.  The waits stand where they belong, or only at the end.
std::vector<uint32_t> run(bool wait_store, bool wait_load, const char* schedule) {
  const std::string store_wait = "  tcgen05.wait::st.sync.aligned;\n",
                    load_wait = "  tcgen05.wait::ld.sync.aligned;\n";
  const uint64_t high = 8ull << 16 | 8ull << 32 | 1ull << 46;  // B: cores along K 128 bytes apart
  const std::string body =
      "  .shared .align 8 .b32 slot;\n  .shared .align 8 .b64 gate;\n  .shared .align 1024 .b8 tile[256];\n"
      "  mov.u32 %r72, slot;\n  mov.u32 %r80, gate;\n  mov.u32 %r90, tile;\n"
      "  setp.lt.u32 %p1, %thread, 64;\n  mad.lo.u32 %r1, %thread, 4, %r90;\n  @%p1 st.shared.u32 [%r1], "
      "0x3f803f80;\n"
      "  fence.proxy.async.shared::cta;\n  setp.eq.u32 %p17, %warp, 0;\n  setp.eq.u32 %p18, %thread, 0;\n"
      "  @!%p17 bra allocated;\n  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r72], 32;\n"
      "allocated:\n  @%p18 mbarrier.init.shared::cta.b64 [%r80], 1;\n  fence.mbarrier_init.release.cluster;\n"
      "  tcgen05.fence::before_thread_sync;\n  bar.sync 0;\n  tcgen05.fence::after_thread_sync;\n"
      "  ld.shared.u32 %r70, [%r72];\n  shl.b32 %r71, %warp, 21;\n  add.u32 %r71, %r71, %r70;\n"
      "  mov.u32 %r2, 0x3f803f80;\n"
      "  tcgen05.st.sync.aligned.32x32b.x8.b32 [%r71+16], {%r2, %r2, %r2, %r2, %r2, %r2, %r2, %r2};\n" +
      (wait_store ? store_wait : "") +
      "  tcgen05.fence::before_thread_sync;\n  bar.sync 0;\n  tcgen05.fence::after_thread_sync;\n  @!%p18 "
      "bra issued;\n"
      "  shr.u32 %r95, %r90, 4;\n  cvt.u64.u32 %w1, %r95;\n  or.b64 %w1, %w1, " +
      std::to_string(high) + ";\n  mov.u32 %r60, " +
      std::to_string(1 << 4 | 1 << 7 | 1 << 10 | 1 << 17 | 8 << 24) +
      ";\n  setp.ne.u32 %p2, %r70, %r70;\n"
      "  tcgen05.mma.cta_group::1.kind::f16 [%r70], [%r70+16], %w1, %r60, %p2;\n"
      "  tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r80];\nissued:\nwait_mma:\n"
      "  mbarrier.try_wait.parity.shared::cta.b64 %p16, [%r80], 0;\n  @!%p16 bra wait_mma;\n"
      "  tcgen05.fence::after_thread_sync;\n  tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r3, %r4}, [%r71+1];\n" +
      (wait_load ? load_wait : "") +
      "  mad.wide.u32 %w2, %thread, 8, %out;\n  st.global.v2.u32 [%w2], {%r3, %r4};\n" + store_wait +
      load_wait +
      "  tcgen05.fence::before_thread_sync;\n  bar.sync 0;\n  @!%p17 bra released;\n"
      "  tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r70, 32;\nreleased:\n";
  setenv("MXFA_EMU_SCHEDULE", schedule, 1);
  auto out = run_kernel({body, "", "sm_100a", 128}, {}, 256);
  unsetenv("MXFA_EMU_SCHEDULE");
  return out;
}

const std::vector<uint32_t> kRight(256, bits_of(16.0f));

}  // namespace

TEST_CASE("tcgen05.st and ld with their waits are in time under every schedule", "[one_op]") {
  if (!can_run("sm_100a")) return;
  for (const char* schedule : {"functional", "lazy", "eager", "random", "pct", "split"})
    CHECK(run(true, true, schedule) == kRight);
}

TEST_CASE("a missing tcgen05.wait::st shows under the lazy schedule", "[one_op][emulator-only]") {
  if (!can_run("sm_100a")) return;
  for (const uint32_t word : run(false, true, "lazy")) CHECK(word == 0x7fffffff);  // NaN of poisoned operands
}

TEST_CASE("the use of a register completes its tcgen05.ld", "[one_op]") {
  if (!can_run("sm_100a")) return;
  for (const char* schedule : {"functional", "lazy", "random"}) CHECK(run(true, false, schedule) == kRight);
}

TEST_CASE("a tcgen05.ld is complete in the next turn of a loop, and before a later store of its warp",
          "[one_op]") {
  if (!can_run("sm_100a")) return;
  const std::string body =
      "  .shared .align 8 .b32 slot;\n  mov.u32 %r72, slot;\n  setp.eq.u32 %p17, %warp, 0;\n"
      "  @!%p17 bra allocated;\n  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r72], 32;\n"
      "allocated:\n  tcgen05.fence::before_thread_sync;\n  bar.sync 0;\n"
      "  tcgen05.fence::after_thread_sync;\n  ld.shared.u32 %r70, [%r72];\n  shl.b32 %r71, %warp, 21;\n"
      "  add.u32 %r71, %r71, %r70;\n  mov.u32 %r2, 7;\n"
      "  tcgen05.st.sync.aligned.32x32b.x1.b32 [%r71], {%r2};\n  tcgen05.wait::st.sync.aligned;\n"
      "  mov.u32 %r5, 0;\n  mov.u32 %r3, 100;\n  mov.u32 %r6, 0;\n"
      "turn:\n  add.u32 %r5, %r5, %r3;\n  tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r3}, [%r71];\n"
      "  add.u32 %r6, %r6, 1;\n  setp.lt.u32 %p1, %r6, 3;\n  @%p1 bra turn;\n"
      "  tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r4}, [%r71];\n"
      "  tcgen05.st.sync.aligned.32x32b.x1.b32 [%r71], {%r6};\n  add.u32 %r5, %r5, %r4;\n"
      "  tcgen05.wait::ld.sync.aligned;\n"
      "  mad.wide.u32 %w2, %thread, 4, %out;\n  st.global.u32 [%w2], %r5;\n"
      "  tcgen05.fence::before_thread_sync;\n  bar.sync 0;\n"
      "  @!%p17 bra released;\n  tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r70, 32;\nreleased:\n";
  for (const char* schedule : {"functional", "lazy", "random"}) {
    setenv("MXFA_EMU_SCHEDULE", schedule, 1);
    const auto out = run_kernel({body, "", "sm_100a", 128}, {}, 128);
    unsetenv("MXFA_EMU_SCHEDULE");
    CHECK(out == std::vector<uint32_t>(128, 100 + 7 + 7 + 7));
  }
}

TEST_CASE("a warp reads what another of its lane quarter has stored, without wait::st", "[one_op]") {
  if (!can_run("sm_100a")) return;
  // Warps 0-3 store their thread number and arrive; warps 4-7 load it.
  const std::string body =
      "  .shared .align 8 .b32 slot;\n  mov.u32 %r72, slot;\n  setp.eq.u32 %p17, %warp, 0;\n"
      "  @!%p17 bra allocated;\n  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r72], 32;\n"
      "allocated:\n  tcgen05.fence::before_thread_sync;\n  bar.sync 0;\n"
      "  tcgen05.fence::after_thread_sync;\n  ld.shared.u32 %r70, [%r72];\n  and.b32 %r1, %warp, 3;\n"
      "  shl.b32 %r71, %r1, 21;\n  add.u32 %r71, %r71, %r70;\n  setp.gt.u32 %p1, %warp, 3;\n"
      "  @%p1 bra reader;\n  tcgen05.st.sync.aligned.32x32b.x1.b32 [%r71], {%thread};\n  bar.sync 1, 256;\n"
      "  bra done;\nreader:\n  bar.sync 1, 256;\n  tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r3}, [%r71];\n"
      "  tcgen05.wait::ld.sync.aligned;\n  sub.u32 %r4, %thread, 128;\n"
      "  mad.wide.u32 %w2, %r4, 4, %out;\n  st.global.u32 [%w2], %r3;\n"
      "done:\n  tcgen05.fence::before_thread_sync;\n  bar.sync 0;\n"
      "  @!%p17 bra released;\n  tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r70, 32;\nreleased:\n";
  std::vector<uint32_t> expected(128);
  for (uint32_t t = 0; t < 128; ++t) expected[t] = t;
  for (const char* schedule : {"functional", "lazy", "random"}) {
    setenv("MXFA_EMU_SCHEDULE", schedule, 1);
    CHECK(run_kernel({body, "", "sm_100a", 256}, {}, 128) == expected);
    unsetenv("MXFA_EMU_SCHEDULE");
  }
}
