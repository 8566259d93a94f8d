// One broken and one repaired kernel for every kind of access and synchronisation that the litmus pairs leave
// out.
#include "hazard_harness.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;

namespace {

void check_pair(const std::string& rule, const HazardKernel& broken, const HazardKernel& repaired) {
  for (const auto& schedule : hazard_schedules()) {
    CAPTURE(static_cast<int>(schedule.kind), schedule.seed);
    const HazardResult bad = check_text(hazard_text(broken), broken, schedule);
    INFO("broken: " << bad.fault << "\n" << bad.report);
    // Without its init an mbarrier is a fault at once, in schedules that bring the use first.
    CHECK((bad.has(rule) || bad.fault.find("not an initialised mbarrier") != std::string::npos));
    const HazardResult good = check_text(hazard_text(repaired), repaired, schedule);
    INFO("repaired: " << good.fault << "\n" << good.report);
    CHECK(good.fault == "");
    CHECK(good.errors() == 0);
  }
}

const std::string kLoad = expect(0, 1024) + bulk_load(0);
const std::string kBulkWait = "  @%one cp.async.bulk.wait_group 0;\n";
const std::string kClusterSync = "  barrier.cluster.arrive.aligned;\n  barrier.cluster.wait.aligned;\n";

// Text for CTA `rank` of the cluster only.
std::string of_rank(int rank, const std::string& text) {
  static int number = 0;
  const std::string label = "rank_" + std::to_string(number++);
  return "  setp.ne.u32 %p12, %rank, " + std::to_string(rank) + ";\n  @%p12 bra " + label + ";\n" + text +
         label + ":\n";
}
// %r<n> = the same shared address in another CTA.
std::string mapa(int n, const std::string& address, int rank) {
  return "  mapa.shared::cluster.u32 %r" + std::to_string(n) + ", " + address + ", " + std::to_string(rank) +
         ";\n";
}

}  // namespace

TEST_CASE("generic accesses of two warps need a barrier", "[hazard]") {
  check_pair("race-", {{kStoreTile, kLoadTile}}, {{kStoreTile + sync(1, 64), sync(1, 64) + kLoadTile}});
}

TEST_CASE("a finding names the shared variable of its own kernel", "[hazard]") {
  const HazardKernel kernel{{kStoreTile, kLoadTile}};
  std::string text = hazard_text(kernel);
  text.insert(text.find(".visible .entry k"),
              ".visible .entry other()\n{\n  .shared .align 1024 .b8 elsewhere[4096];\n  ret;\n}\n");
  const HazardResult r = check_text(text, kernel, {});
  INFO(r.fault << "\n" << r.report);
  CHECK(r.report.find("(tile)") != std::string::npos);
  CHECK(r.report.find("elsewhere") == std::string::npos);
}

TEST_CASE("atomics on shared memory do not race, a plain read beside them does", "[hazard]") {
  const std::string add = "  red.shared.add.u32 [%tile], 1;\n", get = "  ld.shared.u32 %r1, [%tile];\n";
  check_pair("race-", {{add, add + get}}, {{add, add}});
}

TEST_CASE("the first guess of a compare-and-swap loop may be stale", "[hazard]") {
  const std::string guess = "  ld.shared.u32 %r1, [%tile];\n",
                    swap = "  atom.shared.cas.b32 %r2, [%tile], %r1, 5;\n",
                    store = "  st.shared.u32 [%tile], 5;\n";
  check_pair("race-", {{guess + store, guess + swap}}, {{guess + swap, guess + swap}});
}

TEST_CASE("a flag in shared memory orders with release and acquire, not with relaxed accesses", "[hazard]") {
  const auto kernel = [](const std::string& store, const std::string& load) {
    return HazardKernel{{kStoreTile + "  bar.warp.sync 0xffffffff;\n  @%one " + store + " [%bar+56], 1;\n",
                         "poll:\n  " + load +
                             " %r1, [%bar+56];\n  setp.ne.u32 %p1, %r1, 1;\n  @%p1 bra poll;\n" + kLoadTile}};
  };
  check_pair("race-", kernel("st.relaxed.cta.shared.u32", "ld.relaxed.cta.shared.u32"),
             kernel("st.release.cta.shared.u32", "ld.acquire.cta.shared.u32"));
}

TEST_CASE("an mbarrier may be used by others only after a barrier", "[hazard]") {
  const std::string init = "  @%one mbarrier.init.shared::cta.b64 [%bar+56], 1;\n";
  check_pair(
      "race-with-init",
      {{init, "  nanosleep.u32 20;\n  @%one mbarrier.inval.shared::cta.b64 [%bar];\n" + arrive(7)}, {1}},
      {{init + sync(1, 64), sync(1, 64) + arrive(7)}, {1}});
}

TEST_CASE("scales that tcgen05.cp reads need a proxy fence after their generic stores", "[hazard]") {
  // Zeroes over 512 bytes of the tile, by 32 lanes.
  const std::string
      fill =
          "  shl.b32 %r52, %lane, 4;\n  add.u32 %r52, %r52, %tile;\n"
          "  st.shared.v4.u32 [%r52], {%r52, %r52, %r52, %r52};\n",
      copy =
          "  shr.u32 %r54, %tile, 4;\n  cvt.u64.u32 %w3, %r54;\n  or.b64 %w3, %w3, 0x400800080000;\n"
          "  and.b32 %r56, %tmem, 0xffff;\n"
          "  @%one tcgen05.cp.cta_group::1.32x128b.warpx4 [%r56], %w3;\n" +
          commit(0) + wait_for(0, 0);
  check_pair("missing-proxy-fence", {{fill + sync(1, 64), sync(1, 64) + copy}, {1}},
             {{fill + kProxyFence + sync(1, 64), sync(1, 64) + copy}, {1}});
}

TEST_CASE("columns may be deallocated once the tensor core is done with them", "[hazard]") {
  check_pair("race-with-init-or-dealloc", {{mma() + commit(0)}, {1}},
             {{mma() + commit(0) + wait_for(0, 0)}, {1}});
}

TEST_CASE("the result of a bulk store may be read after wait_group, not after wait_group.read", "[hazard]") {
  const std::string store =
                        kStoreTile + kProxyFence + "  bar.warp.sync 0xffffffff;\n" + kBulkStore + kBulkCommit,
                    read = "  @%one ld.global.u32 %r1, [%out];\n";
  check_pair("race-read-after-write", {{store + kBulkWaitRead + read}}, {{store + kBulkWait + read}});
}

TEST_CASE("bytes that cp.async copies are there after its wait_group", "[hazard]") {
  const std::string copy =
                        "  mov.u64 %w1, table;\n  shl.b32 %r52, %lane, 2;\n  add.u32 %r52, %r52, %tile;\n"
                        "  cp.async.ca.shared.global [%r52], [%w1], 4;\n  cp.async.commit_group;\n",
                    wait = "  cp.async.wait_group 0;\n";
  check_pair("race-read-after-write", {{copy + kLoadTile + wait}}, {{copy + wait + kLoadTile}});
}

TEST_CASE("cp.async with an mbarrier hands its bytes to who waits there", "[hazard]") {
  const auto kernel = [](const std::string& arrival) {
    return HazardKernel{{"  mov.u64 %w1, table;\n  shl.b32 %r52, %lane, 2;\n  add.u32 %r52, %r52, %tile;\n"
                         "  cp.async.ca.shared.global [%r52], [%w1], 4;\n" +
                             arrival,
                         wait_for(0, 0) + kLoadTile},
                        {32}};
  };
  check_pair("race-read-after-write", kernel("  mbarrier.arrive.shared::cta.b64 _, [%bar];\n"),
             kernel("  cp.async.mbarrier.arrive.noinc.shared.b64 [%bar];\n"));
}

TEST_CASE("a response of cluster launch control is there after its mbarrier's phase", "[hazard]") {
  const std::string
      ask = expect(0, 16) +
            "  @%one clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 "
            "[%tile], [%bar];\n",
      get = "  ld.shared.b128 %q0, [%tile];\n";
  check_pair("race-read-after-write", {{ask + get + wait_for(0, 0)}, {1}},
             {{ask + wait_for(0, 0) + get}, {1}});
}

TEST_CASE("st.async counts on the mbarrier beside its data", "[hazard]") {
  const auto kernel = [](const std::string& wait) {
    HazardKernel k{
        {of_rank(0, mapa(2, "%tile", 1) + mapa(3, "%bar", 1) +
                        "  @%one st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r2], 7, "
                        "[%r3];\n") +
         of_rank(1, expect(0, 4) + wait + "  ld.shared.u32 %r4, [%tile];\n" + wait_for(0, 0))},
        {1}};
    k.ctas = k.cluster = 2;
    k.target = "sm_90a";
    return k;
  };
  check_pair("race-", kernel(""), kernel(wait_for(0, 0)));
}

TEST_CASE("stores to another CTA's shared memory need a cluster barrier that releases", "[hazard]") {
  const auto kernel = [](const std::string& arrive_form) {
    HazardKernel k{{of_rank(0, mapa(2, "%tile", 1) + "  @%one st.shared::cluster.u32 [%r2], 7;\n") + "  " +
                    arrive_form + ";\n  barrier.cluster.wait.aligned;\n" +
                    of_rank(1, "  ld.shared.u32 %r4, [%tile];\n")}};
    k.ctas = k.cluster = 2;
    k.target = "sm_90a";
    return k;
  };
  check_pair("race-", kernel("barrier.cluster.arrive.relaxed.aligned"),
             kernel("barrier.cluster.arrive.aligned"));
}

TEST_CASE("fence.mbarrier_init and a relaxed cluster barrier make an init visible to the cluster",
          "[hazard]") {
  const auto kernel = [](const std::string& fence) {
    HazardKernel k{
        {"  @%one mbarrier.init.shared::cta.b64 [%bar+56], 1;\n" + fence +
         "  barrier.cluster.arrive.relaxed.aligned;\n  barrier.cluster.wait.aligned;\n" +
         of_rank(0, mapa(2, "%bar", 1) +
                        "  @%one mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r2+56];\n") +
         of_rank(1, wait_for(7, 0))}};
    k.ctas = k.cluster = 2;
    k.target = "sm_90a";
    return k;
  };
  check_pair("missing-mbarrier-init-fence", kernel(""), kernel("  fence.mbarrier_init.release.cluster;\n"));
}

TEST_CASE("a multicast load may come again when both CTAs have read", "[hazard]") {
  // CTA 0 loads for both; barrier 1 of CTA 0 collects the readers.
  const auto kernel = [](int readers) {
    const std::string
        load =
            "  mov.u64 %w1, table;\n  mov.u16 %rs1, 3;\n  @%one cp.async.bulk.shared::cluster.global."
            "mbarrier::complete_tx::bytes.multicast::cluster [%tile], [%w1], 1024, [%bar], %rs1;\n",
        read = wait_for(0, 0) + kLoadTile + "  bar.warp.sync 0xffffffff;\n";
    const std::string remote = mapa(3, "%bar", 0) +
                               "  @%one mbarrier.arrive.release.cluster.shared::cluster.b64 _, "
                               "[%r3+8];\n";
    HazardKernel k{{"  .reg .b16 %rs<2>;\n" + expect(0, 1024) + kClusterSync + of_rank(0, load) + read +
                    of_rank(0, arrive(1) + wait_for(1, 0)) + of_rank(1, readers == 2 ? remote : "") +
                    expect(0, 1024) + kClusterSync.substr(0, 0) + of_rank(0, load) + wait_for(0, 1)},
                   {1, readers}};
    k.ctas = k.cluster = 2;
    k.target = "sm_90a";
    return k;
  };
  check_pair("race-", kernel(1), kernel(2));
}

TEST_CASE("an MMA of a pair reads the other CTA's operands until its commit", "[hazard]") {
  // CTA 0 multiplies; CTA 1 refills its A when it has been told that the MMA was issued, or that it is done.
  const auto kernel = [](bool waits) {
    const std::string refill = expect(0, 1024) + bulk_load(0) + wait_for(0, 0);
    const std::string both =
        "  mov.u16 %rs1, 3;\n  add.u32 %r51, %bar, 8;\n  @%one tcgen05.commit.cta_group::1.mbarrier::"
        "arrive::one.shared::cluster.multicast::cluster.b64 [%r51], %rs1;\n";
    HazardKernel k{{"  .reg .b16 %rs<2>;\n" + of_rank(0, mma() + both) + kClusterSync +
                    (waits ? wait_for(1, 0) : "") + of_rank(1, refill) + wait_for(1, 0) + kBefore},
                   {1, 1}};
    k.ctas = k.cluster = 2;
    k.cta_group = 2;
    return k;
  };
  check_pair("race-write-after-read", kernel(false), kernel(true));
}

TEST_CASE("CTAs of a grid order global memory by release and acquire at a flag", "[hazard]") {
  const auto kernel = [](const std::string& set, const std::string& get) {
    HazardKernel k{
        {"  mov.u32 %r1, %ctaid.x;\n  setp.ne.u32 %p1, %r1, 0;\n  @%p1 bra reader;\n"
         "  @%one st.global.u32 [%out], 5;\n" +
         set + "  bra ready;\nreader:\n  nanosleep.u32 20;\n" + get +
         "  setp.ne.u32 %p2, %r2, 1;\n  @%p2 bra reader;\n  ld.global.u32 %r3, [%out];\nready:\n"}};
    k.ctas = 2;
    return k;
  };
  const std::string relaxed_set = "  @%one st.relaxed.gpu.global.u32 [%out+64], 1;\n",
                    relaxed_get = "  ld.relaxed.gpu.global.u32 %r2, [%out+64];\n";
  check_pair("race-read-after-write", kernel(relaxed_set, relaxed_get),
             kernel("  @%one st.release.gpu.global.u32 [%out+64], 1;\n",
                    "  ld.acquire.gpu.global.u32 %r2, [%out+64];\n"));
  check_pair("race-read-after-write", kernel(relaxed_set, relaxed_get),
             kernel("  fence.acq_rel.gpu;\n" + relaxed_set, relaxed_get + "  fence.acq_rel.gpu;\n"));
}

TEST_CASE("CTAs that write the same bytes race, those that add atomically do not", "[hazard]") {
  HazardKernel store{{"  @%one st.global.u32 [%out], %r0;\n"}},
      add{{"  @%one red.global.add.u32 [%out], 1;\n"}};
  store.ctas = add.ctas = 3;
  check_pair("race-write-after-write", store, add);
}

TEST_CASE("global data written by the kernel and then loaded by a bulk copy needs a proxy fence",
          "[hazard]") {
  const auto kernel = [](const std::string& fence) {
    return HazardKernel{
        {"  @%one st.global.u32 [%out], 5;\n" + fence + sync(1, 64),
         sync(1, 64) + expect(0, 128) +
             "  @%one cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%tile], [%out], "
             "128, [%bar];\n" +
             wait_for(0, 0)},
        {1}};
  };
  check_pair("missing-proxy-fence", kernel(""), kernel("  fence.proxy.async.global;\n"));
  check_pair("missing-proxy-fence", kernel("  fence.proxy.async.shared::cta;\n"),
             kernel("  fence.proxy.async;\n"));
}

namespace {

// A warpgroup of roles and one warp more.
HazardKernel with_warpgroup(const std::string& group, const std::string& other,
                            std::vector<int> counts = {}) {
  HazardKernel k{{group, group, group, group, other}, std::move(counts)};
  for (int w = 0; w < 4; ++w)  // labels once
    for (size_t at; (at = k.roles[static_cast<size_t>(w)].find("held_")) != std::string::npos;)
      k.roles[static_cast<size_t>(w)].replace(at, 5, "w" + std::to_string(w) + "_");
  k.target = "sm_90a";
  return k;
}
// m64n8k16, A and B in the tile without swizzle.
const std::string kWgmma =
    "  shr.u32 %r54, %tile, 4;\n  and.b32 %r54, %r54, 0x3fff;\n  cvt.u64.u32 %w3, %r54;\n"
    "  or.b64 %w3, %w3, 0x1000080000;\n  add.u64 %w4, %w3, 512;\n  setp.eq.u32 %p13, %r54, %r54;\n"
    "  wgmma.fence.sync.aligned;\n  wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, "
    "%f4}, %w3, "
    "%w4, %p13, 1, 1, 0, 0;\n  wgmma.commit_group.sync.aligned;\n";
const std::string kWgmmaWait = "  wgmma.wait_group.sync.aligned 0;\n";

}  // namespace

TEST_CASE("wgmma reads shared memory through the async proxy", "[hazard]") {
  const std::string multiply = sync(1, 160) + kWgmma + kWgmmaWait;
  check_pair("missing-proxy-fence", with_warpgroup(multiply, kStoreTile + sync(1, 160)),
             with_warpgroup(multiply, kStoreTile + kProxyFence + sync(1, 160)));
}

TEST_CASE("wgmma reads its operands until wait_group", "[hazard]") {
  const std::string producer = kLoad + wait_for(1, 0) + kLoad + wait_for(0, 1);
  check_pair("race-write-after-read",
             with_warpgroup(wait_for(0, 0) + kWgmma + arrive(1) + kWgmmaWait, producer, {1, 4}),
             with_warpgroup(wait_for(0, 0) + kWgmma + kWgmmaWait + arrive(1), producer, {1, 4}));
}
