// Tensor memory and registers as resources: each misuse is a finding with a name, beside the fault or the
// deadlock that it ends in.
#include "hazard_harness.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;

namespace {

void check_rule(const std::string& rule, const std::vector<std::string>& words, const HazardKernel& broken,
                const HazardKernel& repaired) {
  for (const auto& schedule : hazard_schedules()) {
    CAPTURE(static_cast<int>(schedule.kind), schedule.seed);
    const HazardResult bad = check_text(hazard_text(broken), broken, schedule);
    INFO("broken: " << bad.fault << "\n" << bad.report);
    CHECK(bad.has(rule));
    for (const std::string& word : words) CHECK(bad.report.find(word) != std::string::npos);
    const HazardResult good = check_text(hazard_text(repaired), repaired, schedule);
    INFO("repaired: " << good.fault << "\n" << good.report);
    CHECK(good.fault == "");
    CHECK(good.errors() + good.advice() == 0);
  }
}

std::string alloc(const std::string& where, int columns) {
  return "  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [" + where + "], " +
         std::to_string(columns) + ";\n  ld.shared.u32 %r1, [" + where + "];\n";
}
std::string dealloc(const std::string& address, int columns) {
  return "  tcgen05.dealloc.cta_group::1.sync.aligned.b32 " + address + ", " + std::to_string(columns) +
         ";\n";
}

// Two warpgroups; the first of each text is for warps 0 to 3.
HazardKernel warpgroups(const std::string& first, const std::string& second) {
  HazardKernel k{{first, first, first, first, second, second, second, second}};
  k.target = "sm_90a";
  k.directives = ".maxntid 256\n.minnctapersm 1\n";  // 255 registers a thread at most
  return k;
}
std::string setmaxnreg(const std::string& form, int count) {
  return "  setmaxnreg." + form + ".sync.aligned.u32 " + std::to_string(count) + ";\n";
}

}  // namespace

TEST_CASE("tensor memory is given back once, and by its address", "[hazard]") {
  const std::string more = alloc("%tile", 32);
  check_rule("tmem-double-free", {"first tcgen05.dealloc"},
             {{more + dealloc("%r1", 32) + dealloc("%r1", 32)}}, {{more + dealloc("%r1", 32)}});
  check_rule("tmem-wrong-free", {"tcgen05.alloc"},
             {{more + "  add.u32 %r2, %r1, 32;\n" + dealloc("%r2", 32)}}, {{more + dealloc("%r1", 32)}});
  check_rule("tmem-leaked", {"tcgen05.alloc"}, {{more}}, {{more + dealloc("%r1", 32)}});
}

TEST_CASE("tensor memory is used while it is allocated, by the warp of its lanes", "[hazard]") {
  const std::string more = alloc("%tile", 32),
                    load = "  tcgen05.st.sync.aligned.32x32b.x1.b32 [%r1], {%lane};\n" + kWaitStore;
  check_rule("tmem-not-allocated", {"tcgen05.dealloc"}, {{more + dealloc("%r1", 32) + load}},
             {{more + load + dealloc("%r1", 32)}});
  check_rule("tmem-other-lanes", {"reaches lanes 0 to 31"},
             {{"  add.u32 %tmem, %tmem, 0x200000;\n" + tmem_store() + kWaitStore}},
             {{tmem_store() + kWaitStore}});
  const std::string relinquish = "  tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n";
  check_rule("tmem-alloc-order", {"relinquish_alloc_permit"}, {{relinquish + more}},
             {{more + dealloc("%r1", 32) + relinquish}});
}

TEST_CASE("an access to tensor memory stays in one allocation, and names the warp's own lanes", "[hazard]") {
  // 32 columns each, one behind the other.
  const std::string two = alloc("%tile", 32) + "  mov.u32 %r3, %r1;\n" + alloc("%tile+16", 32);
  const auto store = [](const std::string& address) {
    return "  tcgen05.st.sync.aligned.32x32b.x2.b32 [" + address + "], {%lane, %lane};\n" + kWaitStore;
  };
  const std::string free = dealloc("%r3", 32) + dealloc("%r1", 32);
  check_rule("tmem-across-allocations", {"tcgen05.alloc", "neighbours"},
             {{two + "  add.u32 %r4, %r3, 31;\n" + store("%r4") + free}}, {{two + store("%r3") + free}});
  // Warp 1 by lane 0, and by its own.
  check_rule("tmem-other-lanes", {"reaches lanes 32 to 63"},
             {{"", "  and.b32 %tmem, %tmem, 0xffff;\n" + tmem_store() + kWaitStore}},
             {{"", tmem_store() + kWaitStore}});
}

TEST_CASE("setmaxnreg takes no more registers than others have given", "[hazard]") {
  check_rule("setmaxnreg-pool", {"the pool has"}, warpgroups(setmaxnreg("inc", 256), sync(1, 128)),
             warpgroups(setmaxnreg("dec", 40), sync(1, 128)));
}

TEST_CASE("setmaxnreg.dec goes down", "[hazard]") {
  check_rule("setmaxnreg-direction", {"are asked for"},
             warpgroups(setmaxnreg("dec", 40) + setmaxnreg("dec", 80), ""),
             warpgroups(setmaxnreg("dec", 80) + setmaxnreg("dec", 40), ""));
}

TEST_CASE("setmaxnreg is for all four warps of a warpgroup", "[hazard]") {
  HazardKernel part = warpgroups(setmaxnreg("dec", 40), ""), other = part;
  part.roles[2] = "";
  other.roles[2] = setmaxnreg("dec", 48);
  check_rule("setmaxnreg-part-of-warpgroup", {"has not executed it"}, part,
             warpgroups(setmaxnreg("dec", 40), ""));
  check_rule("setmaxnreg-unequal", {"asks for"}, other, warpgroups(setmaxnreg("dec", 40), ""));
}

TEST_CASE("setmaxnreg without a bound on the threads does nothing", "[hazard]") {
  HazardKernel unbound = warpgroups(setmaxnreg("dec", 40), "");
  unbound.directives = "";
  check_rule("setmaxnreg-ignored", {"__launch_bounds__"}, unbound, warpgroups(setmaxnreg("dec", 40), ""));
}

TEST_CASE("bulk stores have read their sources when the thread exits, or there is advice", "[hazard]") {
  const std::string store = kStoreTile + kProxyFence + "  bar.warp.sync 0xffffffff;\n" + kBulkStore;
  check_rule("bulk-reads-at-exit", {"may still read"}, {{store + kBulkCommit}},
             {{store + kBulkCommit + kBulkWaitRead}});
  check_rule("bulk-reads-at-exit", {"no commit_group"}, {{store}}, {{store + kBulkCommit + kBulkWaitRead}});
}

TEST_CASE("cp.async is complete when its warp exits, or there is advice", "[hazard]") {
  const std::string copy =
                        "  mov.u64 %w1, table;\n  shl.b32 %r52, %lane, 2;\n  add.u32 %r52, %r52, %tile;\n"
                        "  cp.async.ca.shared.global [%r52], [%w1], 4;\n",
                    commit = "  cp.async.commit_group;\n";
  const std::string waited = copy + commit + copy + commit + "  cp.async.wait_group 0;\n";
  check_rule("cp.async-at-exit", {"no commit_group", "last cp.async"}, {{copy}},
             {{copy + "  cp.async.wait_all;\n"}});
  check_rule("cp.async-at-exit", {"may still write"}, {{copy + commit}}, {{waited}});
  check_rule("cp.async-at-exit", {"may still write"},
             {{copy + commit + copy + commit + "  cp.async.wait_group 1;\n"}}, {{waited + commit}});
  // An mbarrier that counts them takes them over.
  const HazardKernel counted{
      {copy + "  cp.async.mbarrier.arrive.noinc.shared.b64 [%bar];\n" + wait_for(0, 0)}, {32}};
  check_rule("cp.async-at-exit", {}, {{copy}}, counted);
}
