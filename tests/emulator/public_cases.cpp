// Public cases about instructions that belong to no other file, by their names.
#include "core_harness.hpp"
#include "one_op.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;

TEST_CASE("emu-wgmma-tail-ok: wgmma may read the last bytes of shared memory", "[one_op]") {
  if (!can_run("sm_90a")) return;
  // B: 256 rows of 32 bytes at 0; A: 64 rows of 32 bytes up to the very end.  No swizzle: 8 rows are 128
  // bytes, the second 16 bytes of a row lie 16 bytes times all rows further on.
  const auto descriptor = [](uint64_t start, uint64_t rows) {
    return start >> 4 | (16 * rows >> 4) << 16 | (uint64_t{128} >> 4) << 32;
  };
  constexpr uint32_t kB = 256 * 32, kAll = kB + 64 * 32, kBase = 1024;  // behind the reserved bytes
  std::string d;
  for (int i = 0; i < 128; ++i) d += (i ? ", %d" : "%d") + std::to_string(i);
  const std::string fill = std::to_string(kAll / 4);
  const auto out = run_kernel(
      {"  .reg .f32 %d<128>;\n  mov.u32 %r90, dynamic;\n  mov.u32 %r91, %thread;\nfill:\n"
       "  mad.lo.u32 %r93, %r91, 4, %r90;\n  st.shared.u32 [%r93], 0x3c003c00;\n  add.u32 %r91, %r91, 128;\n"
       "  setp.lt.u32 %p19, %r91, " +
           fill + ";\n  @%p19 bra fill;\n  fence.proxy.async.shared::cta;\n  bar.sync 0;\n  mov.b64 %w1, " +
           std::to_string(descriptor(kBase + kB, 64)) + ";\n  mov.b64 %w2, " +
           std::to_string(descriptor(kBase, 256)) +
           ";\n  wgmma.fence.sync.aligned;\n  wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" + d +
           "}, %w1, %w2, 0, 1, 1, 0, 0;\n  wgmma.commit_group.sync.aligned;\n  wgmma.wait_group.sync.aligned "
           "0;\n"
           "  mad.wide.u32 %w3, %thread, 4, %out;\n  st.global.f32 [%w3], %d127;",
       ".extern .shared .align 1024 .b8 dynamic[];\n", "sm_90a", 128, 1, 1, kAll},
      {}, 128);
  for (const uint32_t word : out) CHECK(word == bits_of(16.0f));
}

TEST_CASE("emu-tmem-not-allocated: an mma into columns that nobody allocated is a fault", "[one_op]") {
  const auto r = run_core(
      {"  .shared .align 1024 .b8 tile[8192];\n  mov.u32 %r1, tile;\n  shr.u32 %r1, %r1, 4;\n  cvt.u64.u32 "
       "%w1, "
       "%r1;\n  or.b64 %w1, %w1, 0x0000400800000000;\n  setp.eq.u32 %p1, %tid, 0;\n  mov.u32 %r2, 0;\n"
       "  mov.u32 %r3, 0x08040490;\n  @%p1 tcgen05.mma.cta_group::1.kind::f16 [%r2], %w1, %w1, %r3, 0;\n  "
       "ret;"},
      1);
  INFO(r.fault);
  CHECK(mentions_all(r.fault, {"tcgen05.mma, D", "are not allocated", "PTX line"}));
}
