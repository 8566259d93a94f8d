// Atomic additions of floating-point numbers: in any order they are legal, but a sum that is kept in order
// for some lanes of a warp and not for the others lacks a warp barrier.
#include "hazard_harness.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;
using mxfa::emulator::CheckMode;

namespace {

const std::string kWarp = "  bar.warp.sync 0xffffffff;\n";
const std::string kLaneArrive = "  @%one mbarrier.arrive.shared::cta.b64 _, [%bar];\n";
// Each lane to a word of its own, which all warps share.
const std::string kAdd =
    "  mul.wide.u32 %w1, %lane, 4;\n  add.u64 %w1, %w1, %out;\n  mov.f32 %f1, 0f3F800000;\n"
    "  red.global.add.f32 [%w1+128], %f1;\n";
const std::string kAddQuads =
    "  mul.wide.u32 %w1, %lane, 16;\n  add.u64 %w1, %w1, %out;\n  mov.f32 %f1, 0f3F800000;\n"
    "  red.global.add.v4.f32 [%w1+512], {%f1, %f1, %f1, %f1};\n";
const std::string kAddShared =
    "  shl.b32 %r52, %lane, 2;\n  add.u32 %r52, %r52, %tile;\n  atom.shared.add.f32 %f2, [%r52], "
    "0f3F800000;\n";
const std::string kAddHalves =
    "  mul.wide.u32 %w1, %lane, 4;\n  add.u64 %w1, %w1, %out;\n  mov.u32 %r52, 0x3c003c00;\n"
    "  red.global.add.noftz.f16x2 [%w1+128], %r52;\n";
const std::string kAddIntegers =
    "  mul.wide.u32 %w1, %lane, 4;\n  add.u64 %w1, %w1, %out;\n  red.global.add.u32 [%w1+128], 1;\n";

// The n-th CTA to begin waits until n have handed on (the table, which counts both, begins as zeros); those
// from `free` on wait for nobody and hand nothing on.
HazardKernel in_turns(unsigned ctas, unsigned free, const std::string& add, const std::string& sync) {
  HazardKernel k{
      {"  mov.u64 %w9, table;\n  @%one atom.global.add.u32 %r2, [%w9+4], 1;\n  shfl.sync.idx.b32 %r2, %r2, "
       "0, 31, 0xffffffff;\n  setp.ge.u32 %p2, %r2, " +
       std::to_string(free) +
       ";\n  @%p2 bra taken;\nturn:\n  ld.acquire.gpu.global.u32 %r3, [%w9];\n"
       "  setp.ne.u32 %p1, %r3, %r2;\n  @%p1 bra turn;\ntaken:\n" +
       add + sync + "  @%p2 bra role_0;\n  @%one red.release.gpu.global.add.u32 [%w9], 1;\n"}};
  k.target = "sm_90a";
  k.ctas = ctas;
  return k;
}

void check_missing(const HazardKernel& broken, const HazardKernel& repaired) {
  for (const auto& schedule : hazard_schedules()) {
    CAPTURE(static_cast<int>(schedule.kind), schedule.seed);
    for (const CheckMode mode : {CheckMode::On, CheckMode::Strict}) {
      const HazardResult bad = check_text(hazard_text(broken), broken, schedule, mode);
      INFO("broken: " << bad.fault << "\n" << bad.report);
      CHECK(bad.fault == "");
      CHECK(bad.has("missing-warp-sync"));
      CHECK(bad.findings.size() == 1);
      CHECK(bad.errors() == (mode == CheckMode::Strict ? 1u : 0u));
    }
    const HazardResult good = check_text(hazard_text(repaired), repaired, schedule, CheckMode::Strict);
    INFO("repaired: " << good.fault << "\n" << good.report);
    CHECK(good.fault == "");
    CHECK(good.findings.empty());
  }
}

void check_legal(const HazardKernel& kernel) {
  for (const auto& schedule : hazard_schedules()) {
    CAPTURE(static_cast<int>(schedule.kind), schedule.seed);
    const HazardResult r = check_text(hazard_text(kernel), kernel, schedule, CheckMode::Strict);
    INFO(r.fault << "\n" << r.report);
    CHECK(r.fault == "");
    CHECK(r.findings.empty());
  }
}

}  // namespace

TEST_CASE("CTAs add in turns: the lane that hands the turn on does so after the additions of all lanes",
          "[hazard]") {
  for (const std::string& add : {kAdd, kAddQuads, kAddHalves})
    check_missing(in_turns(3, 3, add, ""), in_turns(3, 3, add, kWarp));
}

TEST_CASE("warps of a CTA add in turns: an elected lane's arrive hands on the additions after a warp barrier",
          "[hazard]") {
  for (const std::string& add : {kAdd, kAddShared})
    check_missing({{add + kLaneArrive, wait_for(0, 0) + add}, {1}},
                  {{add + kWarp + kLaneArrive, wait_for(0, 0) + add}, {1}});
}

TEST_CASE("floating-point additions in any order are legal", "[hazard]") {
  for (const std::string& add : {kAdd, kAddQuads, kAddHalves}) check_legal(in_turns(3, 0, add, ""));
  check_legal({{kAddShared, kAddShared, kAddShared}});
}

TEST_CASE("an order that only some of the additions have is not meant", "[hazard]") {
  check_legal(in_turns(3, 2, kAdd, ""));
}

TEST_CASE("integers may be added in any order, and so between lanes of a warp", "[hazard]") {
  check_legal(in_turns(3, 3, kAddIntegers, ""));
}

TEST_CASE("lanes of one warp may add to a word one after the other without a warp barrier", "[hazard]") {
  const std::string next =
      "  add.u32 %r52, %lane, 1;\n  and.b32 %r52, %r52, 31;\n  mul.wide.u32 %w1, %r52, 4;\n"
      "  add.u64 %w1, %w1, %out;\n  red.global.add.f32 [%w1+128], %f1;\n";
  check_legal({{kAdd + next}});
}
