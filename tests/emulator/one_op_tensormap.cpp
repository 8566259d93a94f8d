// tensormap.replace and cp_fenceproxy (PTX ISA 9.7.9.28, 9.7.13.16): a map is changed in shared memory,
// copied to global memory and used.
#include "core_harness.hpp"
#include "one_op_async.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;

namespace {

const std::string kMap = ".global .align 128 .b8 map[128];\n";
// %r2: the map in shared memory, cleared by every lane in turn; %w1: its place in global memory.
const std::string kBegin =
    "  .shared .align 128 .b8 work[128];\n  .shared .align 1024 .b8 tile[1024];\n  .shared .align 8 .b64 "
    "gate;\n"
    "  mov.u32 %r2, work;\n  mov.u64 %w1, map;\n  mov.u32 %r3, tile;\n  mov.u32 %r4, gate;\n"
    "  mad.lo.u32 %r5, %lane, 4, %r2;\n  st.shared.u32 [%r5], 0;\n  bar.warp.sync -1;\n"
    "  setp.eq.u32 %p1, %tid, 0;\n";

std::string replace(const std::string& field, const std::string& type, const std::string& operands) {
  return "  @%p1 tensormap.replace.tile." + field + ".shared::cta.b1024." + type + " [%r2], " + operands +
         ";\n";
}

// A map of 8 x 4 words at `source`: rows of 32 bytes.
const std::string kFields = "  mov.u64 %w2, source;\n" + replace("global_address", "b64", "%w2") +
                            replace("rank", "b32", "1") + replace("elemtype", "b32", "2") +
                            replace("global_dim", "b32", "0, 8") + replace("global_dim", "b32", "1, 4") +
                            replace("global_stride", "b64", "0, 32") + replace("box_dim", "b32", "0, 4") +
                            replace("box_dim", "b32", "1, 2") + replace("element_stride", "b32", "0, 1") +
                            replace("element_stride", "b32", "1, 1") + replace("swizzle_mode", "b32", "0") +
                            replace("fill_mode", "b32", "0");
const std::string kPublish =
    "  bar.warp.sync -1;\n"
    "  tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%w1], [%r2], "
    "128;\n"
    "  fence.proxy.tensormap::generic.acquire.gpu [%w1], 128;\n";
const std::string kLoad =
    "  @%p1 mbarrier.init.shared::cta.b64 [%r4], 1;\n  @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 %w4, "
    "[%r4], "
    "32;\n  mov.u32 %r6, 4;\n  mov.u32 %r7, 1;\n  @%p1 "
    "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [%r3], [%w1, {%r6, %r7}], "
    "[%r4];\n"
    "  bar.warp.sync -1;\nagain:\n  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r4], 0;\n  @!%p2 bra "
    "again;\n"
    "  and.b32 %r8, %lane, 7;\n  mad.lo.u32 %r8, %r8, 4, %r3;\n  ld.shared.u32 %r1, [%r8];\n";

std::string source() {
  std::string text = ".global .align 16 .b32 source[32] = {0";
  for (int i = 1; i < 32; ++i) text += ", " + std::to_string(i);
  return text + "};\n" + kMap;
}

CoreResult run(const std::string& body) {
  return run_core({kBegin + body + store_word("%tid", "%r1") + "  ret;", {}, source()}, 32);
}

}  // namespace

TEST_CASE("a tensor map put together on the device loads its box", "[one_op]") {
  const auto r = run(kFields + kPublish + kLoad);
  INFO(r.fault);
  REQUIRE(r.fault.empty());
  for (uint32_t i = 0; i < 8; ++i) CHECK(r.words[i] == 8 * (1 + i / 4) + 4 + i % 4);
}

TEST_CASE("a map with another swizzle, extent and address is another map", "[one_op]") {
  // Only row 1 is left in bounds, one row further on; the rest of the box is zero.
  const auto r = run(kFields + "  add.u64 %w2, %w2, 32;\n" + replace("global_address", "b64", "%w2") +
                     replace("global_dim", "b32", "1, 2") + kPublish + kLoad);
  INFO(r.fault);
  REQUIRE(r.fault.empty());
  for (uint32_t i = 0; i < 8; ++i) CHECK(r.words[i] == (i < 4 ? 8 * 2 + 4 + i : 0));
}

TEST_CASE("a field that a map cannot have is refused, at the replacement or when it is used", "[one_op]") {
  CHECK(mentions_all(run(replace("rank", "b32", "5")).fault, {"tensormap.replace of rank with 5", "0 to 4"}));
  CHECK(mentions_all(run(replace("box_dim", "b32", "0, 257")).fault, {"box_dim", "257"}));
  CHECK(mentions_all(run(kFields + replace("global_stride", "b64", "0, 24") + kPublish + kLoad).fault,
                     {"tensormap.replace has changed", "globalStrides[0] is 24"}));
  CHECK(mentions_all(run("  @%p1 st.shared.u32 [%r2], 7;\n" + replace("rank", "b32", "1")).fault,
                     {"neither a tensor map nor zero"}));
}

TEST_CASE("a map that plain stores have changed is refused when it is used", "[one_op]") {
  // Every word in turn: what is out of range is named, whatever is not loads or faults as any map would.
  for (int word = 4; word < 32; ++word) {
    const auto r = run(kFields + "  @%p1 st.shared.u32 [%r2+" + std::to_string(4 * word) +
                       "], 0xffffffff;\n" + kPublish + "  mov.u32 %r1, 0;\n" + kLoad);
    if (!r.fault.empty()) CHECK(mentions_all(r.fault, {"PTX line"}));
  }
}
