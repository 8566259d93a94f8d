// cta_group::2 end to end: two CTAs allocate together, one thread multiplies for both, a multicast commit
// tells both.
#include <cstring>

#include "one_op.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;

namespace {

int a_value(int row, int k) { return (row * 5 + k * 3) % 7 - 3; }
int b_value(int row, int k) { return (row * 3 + k * 2 + 1) % 5 - 2; }
uint16_t bf16(int v) { return static_cast<uint16_t>(bits_of(static_cast<float>(v)) >> 16); }

constexpr int kM = 256, kN = 32, kK = 16;
constexpr uint32_t kB = 4096, kShared = 8192;  // 128 rows of A, then 16 of B, no swizzle: see place()
uint32_t place(int row, int k) {  // rows of 16 bytes; groups of 8 rows 128 bytes, halves of K 2048 apart
  const auto r = static_cast<uint32_t>(row), byte = static_cast<uint32_t>(2 * k);
  return r % 8 * 16 + r / 8 * 128 + byte % 16 + byte / 16 * 2048;
}

}  // namespace

TEST_CASE("tcgen05 with cta_group::2: M = 256 over two CTAs", "[one_op]") {
  if (!can_run("sm_100a")) return;
  // What each CTA copies into its shared memory.
  std::vector<uint32_t> in(2 * kShared / 4);
  for (int rank = 0; rank < 2; ++rank) {
    uint8_t* shared = reinterpret_cast<uint8_t*>(in.data()) + rank * kShared;
    for (int k = 0; k < kK; ++k) {
      for (int row = 0; row < kM / 2; ++row) {
        const uint16_t v = bf16(a_value(rank * kM / 2 + row, k));
        std::memcpy(shared + place(row, k), &v, 2);
      }
      for (int row = 0; row < kN / 2; ++row) {
        const uint16_t v = bf16(b_value(rank * kN / 2 + row, k));
        std::memcpy(shared + kB + place(row, k), &v, 2);
      }
    }
  }
  const uint64_t high = 128ull << 16 | 8ull << 32 | 1ull << 46;
  const uint32_t instruction = 1 << 4 | 1 << 7 | 1 << 10 | (kN >> 3) << 17 | (kM >> 4) << 24;
  const auto descriptor = [&](const std::string& reg, uint32_t offset) {
    return "  add.u32 %r95, %r90, " + std::to_string(offset) +
           ";\n  shr.u32 %r95, %r95, 4;\n  and.b32 %r95, %r95, 0x3fff;\n  cvt.u64.u32 " + reg +
           ", %r95;\n  or.b64 " + reg + ", " + reg + ", " + std::to_string(high) + ";\n";
  };
  std::string body =
      "  .shared .align 8 .b32 slot;\n  .shared .align 8 .b64 gate;\n  mov.u32 %r72, slot;\n  mov.u32 %r80, "
      "gate;\n"
      "  mov.u32 %r90, dynamic;\n  mov.u32 %r1, %cluster_ctarank;\n  mul.wide.u32 %w10, %r1, " +
      std::to_string(kShared) +
      ";\n  add.u64 %in, %in, %w10;\n  mov.u32 %r91, %thread;\nfill:\n  mad.wide.u32 %w39, %r91, 4, %in;\n"
      "  ld.global.u32 %r92, [%w39];\n  mad.lo.u32 %r93, %r91, 4, %r90;\n  st.shared.u32 [%r93], %r92;\n"
      "  add.u32 %r91, %r91, 128;\n  setp.lt.u32 %p19, %r91, " +
      std::to_string(kShared / 4) +
      ";\n  @%p19 bra fill;\n  fence.proxy.async.shared::cta;\n"
      "  setp.eq.u32 %p17, %warp, 0;\n  setp.eq.u32 %p18, %thread, 0;\n  @!%p17 bra allocated;\n"
      "  tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r72], 32;\n"
      "  tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;\nallocated:\n"
      "  @%p18 mbarrier.init.shared::cta.b64 [%r80], 1;\n  fence.mbarrier_init.release.cluster;\n"
      "  tcgen05.fence::before_thread_sync;\n  barrier.cluster.arrive.release;\n  "
      "barrier.cluster.wait.acquire;\n"
      "  tcgen05.fence::after_thread_sync;\n  ld.shared.u32 %r70, [%r72];\n  shl.b32 %r71, %warp, 21;\n"
      "  add.u32 %r71, %r71, %r70;\n  setp.eq.u32 %p2, %r1, 0;\n  and.pred %p2, %p2, %p18;\n  @!%p2 bra "
      "issued;\n" +
      descriptor("%w1", 0) + descriptor("%w2", kB) + "  mov.u32 %r60, " + std::to_string(instruction) +
      ";\n  setp.ne.u32 %p1, %r1, 0;\n"
      "  tcgen05.mma.cta_group::2.kind::f16 [%r70], %w1, %w2, %r60, %p1;\n"
      "  tcgen05.mma.cta_group::2.kind::f16 [%r70], %w1, %w2, %r60, %p2;\n  mov.u16 %h1, 3;\n"
      "  tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r80], "
      "%h1;\n"
      "issued:\nwait_mma:\n  mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p16, [%r80], 0;\n"
      "  @!%p16 bra wait_mma;\n  tcgen05.fence::after_thread_sync;\n  tcgen05.ld.sync.aligned.32x32b.x32.b32 "
      "{";
  for (int i = 0; i < kN; ++i) body += (i ? ", %r" : "%r") + std::to_string(10 + i);
  body +=
      "}, [%r71];\n  tcgen05.wait::ld.sync.aligned;\n  mad.lo.u32 %r2, %r1, 128, %thread;\n  mad.wide.u32 "
      "%w38, %r2, " +
      std::to_string(4 * kN) + ", %out;\n";
  for (int i = 0; i < kN; ++i)
    body += "  st.global.u32 [%w38+" + std::to_string(4 * i) + "], %r" + std::to_string(10 + i) + ";\n";
  body +=
      "  tcgen05.fence::before_thread_sync;\n  barrier.cluster.arrive.release;\n  "
      "barrier.cluster.wait.acquire;\n"
      "  @!%p17 bra released;\n  tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r70, 32;\nreleased:\n";
  for (const char* schedule : {"functional", "lazy", "eager", "random", "pct", "split"}) {
    CAPTURE(schedule);
    setenv("MXFA_EMU_SCHEDULE", schedule, 1);
    const auto out = run_kernel(
        {body, ".extern .shared .align 1024 .b8 dynamic[];\n", "sm_100a", 128, 2, 2, kShared}, in, kM * kN);
    unsetenv("MXFA_EMU_SCHEDULE");
    int wrong = 0;
    for (int row = 0; row < kM; ++row)
      for (int column = 0; column < kN; ++column) {
        int sum = 0;
        for (int k = 0; k < kK; ++k) sum += a_value(row, k) * b_value(column, k);
        wrong += out[static_cast<size_t>(row * kN + column)] != bits_of(static_cast<float>(2 * sum));
      }
    CHECK(wrong == 0);
  }
}

TEST_CASE("tcgen05: a function with both cta_groups does not load", "[one_op][emulator-only]") {
  if (!can_run("sm_100a")) return;
  const std::string text =
      ptx_header("sm_100a") + ptx_kernel("both", "",
                                         "  tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n"
                                         "  tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;");
  CUmodule module = nullptr;
  CHECK(driver_for("sm_100a").cuModuleLoadData(&module, text.c_str()) == CUDA_ERROR_INVALID_PTX);
}
