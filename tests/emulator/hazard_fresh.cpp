// Reads of memory that nothing has written, byte by byte.
#include "hazard_harness.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;

namespace {

// Severity: of the broken kernel's finding, when the checks are not strict.
void check_fresh(const std::string& rule, bool error, HazardKernel broken, HazardKernel repaired) {
  broken.fresh = repaired.fresh = true;
  for (const auto& schedule : hazard_schedules()) {
    CAPTURE(static_cast<int>(schedule.kind), schedule.seed);
    const HazardResult bad = check_text(hazard_text(broken), broken, schedule);
    INFO("broken: " << bad.fault << "\n" << bad.report);
    CHECK(bad.fault == "");
    CHECK(bad.has(rule));
    CHECK(bad.errors() == (error ? 1 : 0));
    const HazardResult good = check_text(hazard_text(repaired), repaired, schedule);
    INFO("repaired: " << good.fault << "\n" << good.report);
    CHECK(good.fault == "");
    CHECK(good.errors() + good.advice() == 0);
  }
}

const std::string kWarp = "  bar.warp.sync 0xffffffff;\n";
// Zeros for the operands of mma(): 4 KiB of A and 1 KiB of B behind 512 bytes of it, as one block.
const std::string kFillOperands =
    "  mov.u32 %r30, 0;\nfill:\n  shl.b32 %r31, %lane, 4;\n  add.u32 %r31, %r31, %r30;\n"
    "  add.u32 %r31, %r31, %tile;\n  mov.u32 %r32, 0;\n"
    "  st.shared.v4.u32 [%r31], {%r32, %r32, %r32, %r32};\n  add.u32 %r30, %r30, 512;\n"
    "  setp.lt.u32 %p1, %r30, 16384;\n  @%p1 bra fill;\n" +
    kProxyFence + kWarp;

}  // namespace

TEST_CASE("shared memory is written before a thread reads it", "[hazard]") {
  check_fresh("uninitialised-shared-read", true, {{kLoadTile}}, {{kStoreTile + kWarp + kLoadTile}});
  // The last byte of a word only.
  const std::string bytes = "  @%one st.shared.u16 [%tile], %rs1;\n  @%one st.shared.u8 [%tile+2], %rs1;\n";
  const std::string declare = "  .reg .b16 %rs<2>;\n  mov.u16 %rs1, 3;\n";
  check_fresh(
      "uninitialised-shared-read", true, {{declare + bytes + "  @%one ld.shared.u32 %r1, [%tile];\n"}},
      {{declare + bytes + "  @%one st.shared.u8 [%tile+3], %rs1;\n  @%one ld.shared.u32 %r1, [%tile];\n"}});
}

TEST_CASE("a copy from shared memory that nothing has written is advice", "[hazard]") {
  const std::string store = kBulkStore + kBulkCommit + kBulkWaitRead;
  check_fresh("uninitialised-shared-read", false, {{store}}, {{kStoreTile + kProxyFence + kWarp + store}});
}

TEST_CASE("global memory is written before a thread reads it or adds to it", "[hazard]") {
  const std::string store = "  @%one st.global.u32 [%out], 5;\n",
                    load = "  @%one ld.global.u32 %r1, [%out];\n",
                    add = "  @%one red.global.add.u32 [%out], 1;\n";
  check_fresh("uninitialised-global-read", true, {{load}}, {{store + load}});
  check_fresh("uninitialised-global-read", true, {{add}}, {{store + add}});
}

TEST_CASE("tensor memory is written before it is multiplied or added to", "[hazard]") {
  const auto run = [](const std::string& multiply) { return multiply + commit(0) + wait_for(0, 0); };
  std::string adds = mma();
  const std::string never = "setp.ne.u32 %p13";
  adds.replace(adds.find(never), never.size(), "setp.eq.u32 %p13");
  const auto kernel = [](const std::string& text) { return HazardKernel{{kFillOperands + text}, {1}}; };
  check_fresh("uninitialised-tensor-read", true, kernel(run(adds)), kernel(run(mma() + adds)));
  check_fresh("uninitialised-tensor-read", true, kernel(run(mma("[%r57]"))),
              kernel(run(mma("%w3", 64) + mma("[%r57]"))));
}

TEST_CASE("columns of tensor memory that nothing has written may be loaded, with advice", "[hazard]") {
  check_fresh("uninitialised-tensor-read", false, {{tmem_load() + kWaitLoad}},
              {{tmem_store() + kWaitStore + tmem_load() + kWaitLoad}});
}
