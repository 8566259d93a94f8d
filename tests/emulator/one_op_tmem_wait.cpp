// A missing tcgen05.wait shows under the lazy schedule: the store lands after the mma that should have read
// it, the load after the instruction that should have used it.
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

TEST_CASE("a missing tcgen05.wait shows under the lazy schedule", "[one_op][emulator-only]") {
  if (!can_run("sm_100a")) return;
  const std::vector<uint32_t> without_store = run(false, true, "lazy"),
                              without_load = run(true, false, "lazy");
  for (const uint32_t word : without_store) CHECK(word == 0x7fffffff);  // the NaN of poisoned operands
  for (const uint32_t word : without_load) CHECK(word == 0xffffffff);   // the poison of the registers
}
