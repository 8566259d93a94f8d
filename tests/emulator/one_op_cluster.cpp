// Clusters end to end: special registers, distributed shared memory, asynchronous writes, and cluster launch
// control.
#include <algorithm>

#include "one_op_async.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;

namespace {

struct ScheduleFor {
  explicit ScheduleFor(const char* name) { setenv("MXFA_EMU_SCHEDULE", name, 1); }
  ~ScheduleFor() { unsetenv("MXFA_EMU_SCHEDULE"); }
};
constexpr const char* kSchedules[] = {"functional", "lazy", "eager", "random", "pct", "split"};

const std::string kClusterSync = "  barrier.cluster.arrive.release;\n  barrier.cluster.wait.acquire;\n";

// Launches that fail: the report.
std::string report_of(const Kernel& k, unsigned ctas) {
  Driver& cu = driver_for(k.target);
  PtxModule module(cu, ptx_header(k.target, "8.8") +
                           ".visible .entry body() .explicitcluster .reqnctapercluster " +
                           std::to_string(k.cluster) +
                           ", 1, 1\n{\n  .reg .pred %p<20>;\n  .reg .b32 %r<100>;\n  .reg .b64 %w<40>;\n" +
                           k.body + "\n  ret;\n}\n");
  const CUresult code =
      cu.cuLaunchKernel(module.function("body"), ctas, 1, 1, k.threads, 1, 1, 0, nullptr, nullptr, nullptr);
  const CUresult after = cu.cuCtxSynchronize();
  CHECK((code != CUDA_SUCCESS || after != CUDA_SUCCESS));
  const std::string text = cu.last_report();
  cu.ready();
  return text;
}

}  // namespace

TEST_CASE("cluster special registers in three dimensions", "[one_op]") {
  if (!can_run("sm_90")) return;
  Driver& cu = driver_for("sm_90");
  const char* names[] = {"%ctaid.x",          "%ctaid.y",          "%ctaid.z",          "%clusterid.x",
                         "%clusterid.y",      "%clusterid.z",      "%nclusterid.x",     "%nclusterid.y",
                         "%nclusterid.z",     "%cluster_ctaid.x",  "%cluster_ctaid.y",  "%cluster_ctaid.z",
                         "%cluster_nctaid.x", "%cluster_nctaid.y", "%cluster_nctaid.z", "%cluster_ctarank",
                         "%cluster_nctarank"};
  std::string body =
      "  .reg .b32 %r<8>;\n  .reg .b64 %w<3>;\n  .reg .pred %p;\n  ld.param.u64 %w1, [out];\n"
      "  mov.u32 %r1, %ctaid.x;\n  mov.u32 %r2, %ctaid.y;\n  mov.u32 %r3, %ctaid.z;\n"
      "  mad.lo.u32 %r2, %r3, 4, %r2;\n  mad.lo.u32 %r1, %r2, 4, %r1;\n  mad.wide.u32 %w1, %r1, 72, %w1;\n";
  int offset = 0;
  for (const char* name : names) {
    body += std::string("  mov.u32 %r4, ") + name + ";\n  st.global.u32 [%w1+" + std::to_string(offset) +
            "], %r4;\n";
    offset += 4;
  }
  body +=
      "  mov.pred %p, %is_explicit_cluster;\n  selp.u32 %r4, 1, 0, %p;\n  st.global.u32 [%w1+68], %r4;\n  "
      "ret;";
  PtxModule module(
      cu, ptx_header("sm_90") +
              ".visible .entry ids(.param .u64 out) .explicitcluster .reqnctapercluster 2, 2, 1\n{\n" + body +
              "\n}\n");
  Buffer out(cu, 4 * 4 * 2 * 72);
  CUdeviceptr address = out.address();
  void* parameters[] = {&address};
  REQUIRE(cu.cuLaunchKernel(module.function("ids"), 4, 4, 2, 1, 1, 1, 0, nullptr, parameters, nullptr) ==
          CUDA_SUCCESS);
  REQUIRE(cu.cuCtxSynchronize() == CUDA_SUCCESS);
  const auto words = out.read<uint32_t>();
  for (uint32_t z = 0; z < 2; ++z)
    for (uint32_t y = 0; y < 4; ++y)
      for (uint32_t x = 0; x < 4; ++x) {
        const std::vector<uint32_t> expected = {
            x, y, z, x / 2, y / 2, z, 2, 2, 2, x % 2, y % 2, 0, 2, 2, 1, x % 2 + 2 * (y % 2), 4, 1};
        const auto first = words.begin() + static_cast<ptrdiff_t>(((z * 4 + y) * 4 + x) * 18);
        CHECK(std::vector<uint32_t>(first, first + 18) == expected);
      }
}

TEST_CASE("distributed shared memory: vector loads, atomics and generic addresses of a peer", "[one_op]") {
  if (!can_run("sm_90")) return;
  // Each of 4 CTAs: atomically adds its rank + 1 to every CTA's counter through .shared::cluster, and 16
  // through a generic address; then reads a vector that its right neighbour wrote.
  const Kernel k{
      "  .shared .align 16 .b32 box[8];\n  mov.u32 %r1, %cluster_ctarank;\n  mov.u32 %r2, box;\n" + kFirst +
          "  @%p18 st.shared.u32 [%r2], 0;\n  mad.lo.u32 %r3, %r1, 10, 1;\n  add.u32 %r4, %r3, 1;\n  add.u32 "
          "%r5, %r3, 2;\n"
          "  @%p18 st.shared.v4.u32 [%r2+16], {%r1, %r3, %r4, %r5};\n" +
          kClusterSync +
          "  add.u32 %r6, %r1, 1;\n  mov.u32 %r7, 0;\nnext:\n  mapa.shared::cluster.u32 %r8, %r2, %r7;\n"
          "  @%p18 red.shared::cluster.add.u32 [%r8], %r6;\n  cvt.u64.u32 %w1, %r2;\n  cvta.shared.u64 %w1, "
          "%w1;\n"
          "  mapa.u64 %w2, %w1, %r7;\n  @%p18 atom.add.u32 %r9, [%w2], 16;\n  add.u32 %r7, %r7, 1;\n"
          "  setp.lt.u32 %p1, %r7, 4;\n  @%p1 bra next;\n  and.b32 %r6, %r6, 3;\n  mapa.shared::cluster.u32 "
          "%r8, %r2, %r6;\n"
          "  ld.shared::cluster.v4.u32 {%r10, %r11, %r12, %r13}, [%r8+16];\n" +
          kClusterSync +
          "  ld.shared.u32 %r14, [%r2];\n  mad.wide.u32 %w3, %r1, 20, %out;\n  @%p18 st.global.u32 [%w3], "
          "%r14;\n"
          "  @%p18 st.global.u32 [%w3+4], %r10;\n  @%p18 st.global.u32 [%w3+8], %r11;\n  @%p18 st.global.u32 "
          "[%w3+12], "
          "%r12;\n  @%p18 st.global.u32 [%w3+16], %r13;\n",
      "",
      "sm_90",
      32,
      4,
      4};
  for (const char* schedule : kSchedules) {
    ScheduleFor scope(schedule);
    const auto out = run_kernel(k, {}, 20);
    for (uint32_t rank = 0; rank < 4; ++rank) {
      const uint32_t right = (rank + 1) % 4;
      CHECK(std::vector<uint32_t>(out.begin() + rank * 5, out.begin() + rank * 5 + 5) ==
            std::vector<uint32_t>{1 + 2 + 3 + 4 + 4 * 16, right, right * 10 + 1, right * 10 + 2,
                                  right * 10 + 3});
    }
  }
}

TEST_CASE("st.async and red.async arrive with their mbarrier", "[one_op]") {
  if (!can_run("sm_90")) return;
  // CTA 1 stores 8 bytes and adds 5 and 7 to a word of CTA 0, which expects 8 + 4 + 4 bytes.
  const Kernel k{
      "  .shared .align 16 .b32 box[4];\n  mov.u32 %r1, %cluster_ctarank;\n  mov.u32 %r2, box;\n" + kInit1 +
          "  @%p18 st.shared.u32 [%r2+8], 100;\n  setp.eq.u32 %p1, %r1, 0;\n  and.pred %p2, %p1, %p18;\n"
          "  @%p2 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r80], 16;\n" +
          kClusterSync +
          "  mov.u32 %r3, 0;\n  mapa.shared::cluster.u32 %r4, %r2, %r3;\n"
          "  mapa.shared::cluster.u32 %r5, %r80, %r3;\n  setp.ne.u32 %p3, %r1, 0;\n  and.pred %p3, %p3, "
          "%p18;\n"
          "  mov.b64 %w1, 0x1122334455667788;\n"
          "  @%p3 st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [%r4], %w1, [%r5];\n"
          "  mov.u32 %r6, 5;\n  mov.u32 %r7, 7;\n"
          "  @%p3 red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r4+8], "
          "%r6, "
          "[%r5];\n"
          "  @%p3 red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r4+8], "
          "%r7, "
          "[%r5];\n  @!%p1 bra done;\n" +
          wait("%r80", 0, "data") +
          "  ld.shared.v2.u32 {%r8, %r9}, [%r2];\n  ld.shared.u32 %r10, [%r2+8];\n"
          "  @%p18 st.global.u32 [%out], %r8;\n  @%p18 st.global.u32 [%out+4], %r9;\n"
          "  @%p18 st.global.u32 [%out+8], %r10;\ndone:\n" +
          kClusterSync,
      "",
      "sm_90",
      32,
      2,
      2};
  for (const char* schedule : kSchedules) {
    ScheduleFor scope(schedule);
    CHECK(run_kernel(k, {}, 3) == std::vector<uint32_t>{0x55667788, 0x11223344, 112});
  }
}

TEST_CASE("shared memory of a CTA that has exited cannot be reached", "[one_op][emulator-only]") {
  if (!can_run("sm_90")) return;
  const std::string text =
      report_of({"  .shared .align 4 .b32 box[1];\n  mov.u32 %r1, %cluster_ctarank;\n  setp.eq.u32 %p1, %r1, "
                 "0;\n  @%p1 exit;\n"
                 "  mov.u32 %r2, box;\n  mov.u32 %r3, 0;\n  mapa.shared::cluster.u32 %r4, %r2, %r3;\n"
                 "  st.shared::cluster.u32 [%r4], 1;\n",
                 "", "sm_90", 32, 2, 2},
                2);
  CHECK(mentions(text, {"CTA rank 0", "exited", "cluster barrier"}));
}

// ---- cluster launch control

namespace {

// A persistent CTA: works on its own tile, then on those of the clusters it cancels.  out[tile] counts how
// often a tile was done.  With two CTAs in a cluster, rank 0 asks for both and each adds its rank to the
// first CTA of the answer.
Kernel persistent(unsigned ctas, unsigned cluster) {
  const std::string all = cluster > 1 ? ".multicast::cluster::all" : "";
  return {
      "  .reg .b128 %q0;\n  .shared .align 16 .b8 response[16];\n  mov.u32 %r1, response;\n  mov.u32 %r2, "
      "%cluster_ctarank;\n  mov.u32 %r3, %ctaid.x;\n  mov.u32 %r9, 0;\n" +
          kInit1 + kClusterSync +
          "  setp.eq.u32 %p1, %r2, 0;\n  and.pred %p1, %p1, %p18;\nagain:\n"
          "  @%p18 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r80], 16;\n" +
          (cluster > 1 ? kClusterSync : "") +
          "  @%p1 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes" + all +
          ".b128 [%r1], [%r80];\n  mad.wide.u32 %w1, %r3, 4, %out;\n  @%p18 red.global.add.u32 [%w1], 1;\n"
          "wait_answer:\n  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r80], %r9;\n  @!%p2 bra "
          "wait_answer;\n"
          "  xor.b32 %r9, %r9, 1;\n  ld.shared.b128 %q0, [%r1];\n"
          "  clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p3, %q0;\n  @!%p3 bra done;\n"
          "  clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r4, %r5, %r6, _}, %q0;\n"
          "  clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r7, %q0;\n"
          "  sub.u32 %r8, %r7, %r4;\n  add.u32 %r8, %r8, %r5;\n  add.u32 %r8, %r8, %r6;\n  add.u32 %r3, %r4, "
          "%r2;\n"
          "  add.u32 %r3, %r3, %r8;\n  fence.proxy.async.shared::cta;\n  bar.warp.sync 0xffffffff;\n  bra "
          "again;\n"
          "done:\n" +
          kClusterSync,
      "",
      "sm_100a",
      32,
      ctas,
      cluster};
}

}  // namespace

TEST_CASE("cluster launch control hands out every tile once", "[one_op]") {
  if (!can_run("sm_100a")) return;
  for (const char* schedule : kSchedules)
    for (const char* refusals : {"ordered", "random"})
      for (const unsigned cluster : {1u, 2u}) {
        CAPTURE(schedule, refusals, cluster);
        ScheduleFor scope(schedule);
        setenv("MXFA_EMU_CLC", refusals, 1);
        const auto out = run_kernel(persistent(24, cluster), {}, 24);
        unsetenv("MXFA_EMU_CLC");
        CHECK(std::all_of(out.begin(), out.end(), [](uint32_t n) { return n == 0; }));  // 0xffffffff + 1
      }
}

TEST_CASE("sched-clc-random-grants: every tile once in any order of grants and refusals", "[one_op][cases]") {
  if (!can_run("sm_100a")) return;
  ScheduleFor scope("random");
  for (int seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    setenv("MXFA_EMU_SEED", std::to_string(seed).c_str(), 1);
    const auto out = run_kernel(persistent(24, 1), {}, 24);
    CHECK(std::all_of(out.begin(), out.end(), [](uint32_t n) { return n == 0; }));
  }
  unsetenv("MXFA_EMU_SEED");
}

TEST_CASE("cluster launch control: what is undefined is a fault", "[one_op][emulator-only]") {
  if (!can_run("sm_100a")) return;
  const std::string begin =
      "  .reg .b128 %q0;\n  .shared .align 16 .b8 response[16];\n  mov.u32 %r1, response;\n"
      "  mov.u32 %r2, %tid.x;\n  setp.eq.u32 %p18, %r2, 0;\n" +
      kGate +
      "  @%p18 mbarrier.init.shared::cta.b64 [%r80], 1;\n"
      "  @%p18 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r80], 32;\n  bar.sync 0;\n";
  const std::string
      ask =
          "  @%p18 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 "
          "[%r1], [%r80];\n",
      look =
          "  ld.shared.b128 %q0, [%r1];\n"
          "  clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p3, %q0;\n";
  // A grid of one CTA: every request is refused.
  CHECK(mentions(report_of({begin + ask + look + ask, "", "sm_100a", 32, 1, 1}, 1),
                 {"after a refusal was seen"}));
  CHECK(mentions(report_of({begin + ask +
                                "  ld.shared.b128 %q0, [%r1];\n  clusterlaunchcontrol.query_cancel."
                                "get_first_ctaid::y.b32.b128 %r3, %q0;\n",
                            "", "sm_100a", 32, 1, 1},
                           1),
                 {"refused request"}));
  CHECK(mentions(report_of({begin + look, "", "sm_100a", 32, 1, 1}, 1), {"not a response"}));
}
