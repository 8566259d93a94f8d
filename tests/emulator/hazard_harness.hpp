// Kernels of a few warps with a role each, run under the hazard checks without the driver ABI.
//
// A role finds %r<60>, %w<20>, %f<20>, %p<16>, %q0 (b128), %lane, %one (predicate: lane 0), %rank (of the
// CTA), %tile (shared address of 32 KiB, 1024-aligned), %bar (of eight mbarriers), %out (global words) and,
// on sm_100a, %tmem (128 columns of tensor memory, this warp's lanes).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "checks/checks.hpp"
#include "core_harness.hpp"

namespace mxfa::test {

struct HazardKernel {
  std::vector<std::string> roles;  // by warp
  std::vector<int> counts = {};    // arrivals of the mbarriers
  std::string target = "sm_100a";
  unsigned ctas = 1, cluster = 1;
  std::string before = {};  // executed by all before the first barrier
  int cta_group = 1;        // of the tcgen05 instructions
  // Whether reads of what nothing has written count; most kernels here are about order alone.
  bool fresh = false;
  std::string directives = {};  // of the entry
};

inline std::string hazard_text(const HazardKernel& k) {
  const bool blackwell = k.target == "sm_100a";
  std::string text =
      ".version 9.0\n.target " + k.target +
      "\n.address_size 64\n.global .align 1024 .b8 table[65536];\n"
      ".visible .entry k(.param .u64 out)\n" +
      k.directives +
      "{\n  .reg .b64 %out, %w<20>;\n"
      "  .reg .b32 %lane, %warp, %rank, %tile, %bar, %tmem, %slot, %r<60>;\n  .reg .f32 %f<80>;\n"
      "  .reg .pred %one, %first, %p<16>;\n  .reg .b128 %q0;\n"
      "  .shared .align 1024 .b8 tile[32768];\n  .shared .align 8 .b64 bars[8];\n"
      "  .shared .align 4 .b32 slot;\n"
      "  ld.param.u64 %out, [out];\n  mov.u32 %r0, %tid.x;\n  and.b32 %lane, %r0, 31;\n"
      "  shr.u32 %warp, %r0, 5;\n  mov.u32 %rank, %cluster_ctarank;\n  mov.u32 %tile, tile;\n"
      "  mov.u32 %bar, bars;\n  mov.u32 %slot, slot;\n  setp.eq.u32 %one, %lane, 0;\n"
      "  setp.eq.u32 %first, %r0, 0;\n  mov.u32 %tmem, 0;\n" +
      k.before;
  for (size_t b = 0; b < k.counts.size(); ++b)
    text += "  @%first mbarrier.init.shared::cta.b64 [%bar+" + std::to_string(8 * b) + "], " +
            std::to_string(k.counts[b]) + ";\n";
  text += "  fence.mbarrier_init.release.cluster;\n";
  if (blackwell)
    text +=
        "  setp.ne.u32 %p15, %warp, 0;\n  @%p15 bra allocated;\n"
        "  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%slot], 128;\n"
        "allocated:\n  tcgen05.fence::before_thread_sync;\n";
  text += k.cluster > 1 ? "  barrier.cluster.arrive.aligned;\n  barrier.cluster.wait.aligned;\n"
                        : "  bar.sync 0;\n";
  if (blackwell)
    text +=
        "  tcgen05.fence::after_thread_sync;\n  ld.shared.u32 %tmem, [%slot];\n  and.b32 %r1, %warp, 3;\n  "
        "shl.b32 %r1, %r1, 21;\n"
        "  add.u32 %tmem, %tmem, %r1;\n";
  for (size_t w = 0; w < k.roles.size(); ++w) {
    const std::string n = std::to_string(w);
    text += "  setp.ne.u32 %p15, %warp, " + n + ";\n  @%p15 bra role_" + n + ";\n" + k.roles[w] + "role_" +
            n + ":\n";
  }
  if (blackwell) text += "  tcgen05.fence::before_thread_sync;\n";
  text += k.cluster > 1 ? "  barrier.cluster.arrive.aligned;\n  barrier.cluster.wait.aligned;\n"
                        : "  bar.sync 0;\n";
  if (blackwell)
    text +=
        "  tcgen05.fence::after_thread_sync;\n  and.b32 %tmem, %tmem, 0xffff;\n"
        "  setp.ne.u32 %p15, %warp, 0;\n  @%p15 bra done;\n"
        "  tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tmem, 128;\ndone:\n";
  text += "  ret;\n}\n";
  // For a pair: M = 256 and N = 32 instead of 128 and 16, so that each CTA has the same operands.
  const auto replace = [&](const std::string& from, const std::string& to) {
    for (size_t at = 0; k.cta_group == 2 && (at = text.find(from, at)) != std::string::npos; at += to.size())
      text.replace(at, from.size(), to);
  };
  replace("cta_group::1", "cta_group::2");
  replace("0x8040490", "0x10080490");
  return text;
}

struct HazardResult {
  std::vector<emulator::Finding> findings;
  std::string fault, report;
  size_t errors() const { return count(emulator::Severity::Error); }
  size_t advice() const { return count(emulator::Severity::Advice); }
  size_t count(emulator::Severity severity) const {
    size_t n = 0;
    for (const auto& f : findings) n += f.severity == severity;
    return n;
  }
  bool has(const std::string& rule) const {
    for (const auto& f : findings)
      if (f.rule.starts_with(rule)) return true;
    return false;
  }
};

inline HazardResult check_text(const std::string& text, const HazardKernel& k, emulator::Schedule schedule,
                               emulator::CheckMode mode = emulator::CheckMode::On) {
  using namespace emulator;
  DeviceModel device;
  if (k.target != "sm_100a") device.major = 9, device.tensor_memory = false;
  const auto module = Module::load(text, device, test_arena());
  const uint64_t out = test_arena().allocate(65536);
  Launch launch;
  if (k.fresh) test_arena().written.follow(out, 65536);
  launch.module = module.get();
  launch.kernel = module->find_kernel("k");
  launch.grid = {k.ctas, 1, 1};
  launch.block = {static_cast<uint32_t>(32 * k.roles.size()), 1, 1};
  launch.cluster = {k.cluster, 1, 1};
  launch.parameters.resize(8);
  __builtin_memcpy(launch.parameters.data(), &out, 8);
  launch.schedule = schedule;
  Checks checks(mode, *launch.kernel);
  launch.observers = checks.observers();
  HazardResult result;
  try {
    run_grid(launch, device, test_arena());
  } catch (const Fault& f) {
    result.fault = f.what();
  }
  for (const Finding& f : checks.findings().list())
    if (k.fresh || !f.rule.starts_with("uninitialised-")) result.findings.push_back(f);
  result.report = checks.report();
  test_arena().release(out);
  return result;
}

inline std::vector<emulator::Schedule> hazard_schedules() {
  using Kind = emulator::Schedule::Kind;
  return {{Kind::Functional, 0}, {Kind::Lazy, 0},   {Kind::Eager, 0}, {Kind::Random, 1},
          {Kind::Random, 2},     {Kind::Random, 3}, {Kind::Pct, 1},   {Kind::Split, 1}};
}

// ---- pieces of roles
inline std::string wait_for(int barrier, int parity) {
  static int number = 0;
  const std::string label = "held_" + std::to_string(number++);
  return label + ":\n  mbarrier.try_wait.parity.shared::cta.b64 %p14, [%bar+" + std::to_string(8 * barrier) +
         "], " + std::to_string(parity) + ";\n  @!%p14 bra " + label + ";\n";
}
inline std::string arrive(int barrier) {
  return "  bar.warp.sync 0xffffffff;\n  @%one mbarrier.arrive.shared::cta.b64 _, [%bar+" +
         std::to_string(8 * barrier) + "];\n";
}
inline std::string expect(int barrier, int bytes) {
  return "  @%one mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar+" + std::to_string(8 * barrier) + "], " +
         std::to_string(bytes) + ";\n";
}
// 1024 bytes of the table to the tile.
inline std::string bulk_load(int barrier, int offset = 0) {
  return "  mov.u64 %w1, table;\n  add.u32 %r50, %tile, " + std::to_string(offset) +
         ";\n  add.u32 %r51, %bar, " + std::to_string(8 * barrier) +
         ";\n  @%one cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r50], [%w1], 1024, "
         "[%r51];\n";
}
inline std::string sync(int barrier, int threads) {
  return "  bar.sync " + std::to_string(barrier) + ", " + std::to_string(threads) + ";\n";
}
inline const std::string kLoadTile =
    "  shl.b32 %r52, %lane, 2;\n  add.u32 %r52, %r52, %tile;\n  ld.shared.u32 %r53, [%r52];\n";
inline const std::string kStoreTile =
    "  shl.b32 %r52, %lane, 2;\n  add.u32 %r52, %r52, %tile;\n  st.shared.u32 [%r52], %lane;\n";
inline const std::string kProxyFence = "  fence.proxy.async.shared::cta;\n";
inline const std::string kBulkStore =
    "  @%one cp.async.bulk.global.shared::cta.bulk_group [%out], [%tile], 128;\n";
inline const std::string kBulkCommit = "  @%one cp.async.bulk.commit_group;\n";
inline const std::string kBulkWaitRead = "  @%one cp.async.bulk.wait_group.read 0;\n";
// 128 x 16 x 16, bf16, no swizzle: A at the tile, B 8 KiB on, D in columns 0 to 15.  a: the text of operand
// A.
inline std::string mma(const std::string& a = "%w3", int column = 0) {
  return "  shr.u32 %r54, %tile, 4;\n  and.b32 %r54, %r54, 0x3fff;\n  cvt.u64.u32 %w3, %r54;\n"
         "  or.b64 %w3, %w3, 0x401000080000;\n  add.u64 %w4, %w3, 512;\n  mov.u32 %r55, 0x8040490;\n"
         "  and.b32 %r56, %tmem, 0xffff;\n  add.u32 %r57, %r56, 64;\n  add.u32 %r56, %r56, " +
         std::to_string(column) +
         ";\n  setp.ne.u32 %p13, %r55, %r55;\n"
         "  @%one tcgen05.mma.cta_group::1.kind::f16 [%r56], " +
         a + ", %w4, %r55, %p13;\n";
}
inline std::string commit(int barrier) {
  return "  add.u32 %r51, %bar, " + std::to_string(8 * barrier) +
         ";\n  @%one tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r51];\n";
}
inline std::string tmem_load(int column = 0) {
  return "  add.u32 %r58, %tmem, " + std::to_string(column) +
         ";\n  tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r40}, [%r58];\n";
}
inline std::string tmem_store(int column = 0) {
  return "  add.u32 %r58, %tmem, " + std::to_string(column) +
         ";\n  tcgen05.st.sync.aligned.32x32b.x1.b32 [%r58], {%lane};\n";
}
inline const std::string kWaitLoad = "  tcgen05.wait::ld.sync.aligned;\n";
inline const std::string kWaitStore = "  tcgen05.wait::st.sync.aligned;\n";
inline const std::string kBefore = "  tcgen05.fence::before_thread_sync;\n";
inline const std::string kAfter = "  tcgen05.fence::after_thread_sync;\n";

}  // namespace mxfa::test
