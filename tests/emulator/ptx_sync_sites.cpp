// Deleting a synchronisation from a module: which places there are, and that a kernel without one shows it.
#include <nlohmann/json.hpp>

#include "core_harness.hpp"
#include "driver_table.hpp"
#include "support/catch.hpp"

using namespace mxfa::test;
using mxfa::emulator::Module;
using mxfa::emulator::Mutation;
using mxfa::emulator::Schedule;
using mxfa::emulator::SyncSite;

namespace {

std::vector<std::string> kinds_of(const CoreKernel& k) {
  const Mutation complete;
  std::vector<std::string> kinds;
  const auto module = Module::load(core_text(k), blackwell(), test_arena(), &complete);
  for (const SyncSite& site : module->sync_sites()) kinds.push_back(site.kind);
  return kinds;
}

// Thread 0 of warp 0 copies 256 bytes in four times, into one place; warp 1 adds them up.
const CoreKernel kRing{
    "  .shared .align 16 .b8 box[256];\n  .shared .align 8 .b64 full[1];\n  .shared .align 8 .b64 empty[1];\n"
    "  mov.u32 %r1, box;\n  mov.u32 %r2, full;\n  mov.u32 %r3, empty;\n  setp.ne.u32 %p1, %tid, 0;\n"
    "  mov.u32 %r4, 0;\n  mov.u32 %r20, 0;\n  @%p1 bra ready;\n"
    "  mbarrier.init.shared::cta.b64 [%r2], 1;\n  mbarrier.init.shared::cta.b64 [%r3], 32;\n"
    "ready:\n  bar.sync 0;\n  setp.ge.u32 %p2, %tid, 32;\n  @%p2 bra consumer;\n  @%p1 bra done;\nproducer:\n"
    "  and.b32 %r6, %r4, 1;\n  xor.b32 %r7, %r6, 1;\nempty_wait:\n"
    "  mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r3], %r7;\n  @!%p3 bra empty_wait;\n"
    "  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 256;\n  mov.u64 %w1, table;\n"
    "  mad.wide.u32 %w1, %r4, 256, %w1;\n"
    "  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%w1], 256, [%r2];\n"
    "  add.u32 %r4, %r4, 1;\n  setp.lt.u32 %p5, %r4, 4;\n  @%p5 bra producer;\n  bra done;\n"
    "consumer:\n  and.b32 %r6, %r4, 1;\nfull_wait:\n"
    "  mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r2], %r6;\n  @!%p4 bra full_wait;\n"
    "  mad.lo.u32 %r14, %lane, 8, %r1;\n  ld.shared.v2.u32 {%r15, %r16}, [%r14];\n"
    "  add.u32 %r20, %r20, %r15;\n  add.u32 %r20, %r20, %r16;\n"
    "  mbarrier.arrive.shared::cta.b64 _, [%r3];\n  add.u32 %r4, %r4, 1;\n"
    "  setp.lt.u32 %p5, %r4, 4;\n  @%p5 bra consumer;\n" +
        store_word("%lane", "%r20") + "done:\n  ret;",
    {},
    ".global .align 256 .u32 table[256] = {" +
        [] {
          std::string s;
          for (int i = 0; i < 256; ++i) s += (i ? "," : "") + std::to_string(i * 7 + 1);
          return s;
        }() +
        "};\n",
    64};

bool right(const CoreResult& r) {
  for (uint32_t lane = 0; lane < 32; ++lane) {
    uint32_t sum = 0;
    for (uint32_t turn = 0; turn < 4; ++turn)
      for (uint32_t k = 0; k < 2; ++k) sum += (turn * 64 + lane * 2 + k) * 7 + 1;
    if (r.words[lane] != sum) return false;
  }
  return r.fault.empty();
}

std::vector<Schedule> schedules() {
  using K = Schedule::Kind;
  std::vector<Schedule> all{{}, {K::Lazy, 0}, {K::Eager, 0}, {K::Pct, 1}, {K::Split, 1}};
  for (uint64_t seed = 1; seed <= 6; ++seed) all.push_back({K::Random, seed});
  return all;
}

}  // namespace

TEST_CASE("synchronisation sites are found in the order of the text", "[core][mutate]") {
  CHECK(kinds_of(kRing) == std::vector<std::string>{"bar.sync", "mbarrier.try_wait",
                                                    "mbarrier.arrive.expect_tx", "bytes of arrive.expect_tx",
                                                    "mbarrier.try_wait", "mbarrier.arrive"});
  CHECK(
      kinds_of({"  .shared .align 8 .b64 b;\n  mov.u32 %r1, b;\n"
                "  fence.proxy.async.shared::cta;\n  fence.mbarrier_init.release.cluster;\n"
                "  fence.acq_rel.cta;\n  membar.gl;\n  barrier.cluster.arrive.release.aligned;\n"
                "  barrier.cluster.wait.acquire.aligned;\n  bar.warp.sync -1;\n  bar.arrive 1, 64;\n"
                "  barrier.cta.sync 0;\n  mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 16;\n"
                "  cp.async.bulk.commit_group;\n  cp.async.bulk.wait_group.read 0;\n"
                "  cp.async.wait_all;\n  tcgen05.wait::ld.sync.aligned;\n"
                "  tcgen05.fence::before_thread_sync;\n"
                "  tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r1];\n  ret;"}) ==
      std::vector<std::string>{
          "fence.proxy.async", "fence.mbarrier_init", "fence.acq_rel", "membar.gl", "barrier.cluster.arrive",
          "barrier.cluster.wait", "bar.warp.sync", "bar.arrive", "barrier.cta.sync", "mbarrier.expect_tx",
          "cp.async.bulk.commit_group", "cp.async.bulk.wait_group.read", "cp.async.wait_all",
          "tcgen05.wait::ld", "tcgen05.fence::before_thread_sync", "tcgen05.commit"});
}

TEST_CASE("a pipeline that lacks one of its synchronisations goes wrong under some schedule",
          "[core][mutate]") {
  const size_t count = kinds_of(kRing).size();
  for (const Schedule& s : schedules()) {
    CAPTURE(s.name());
    const Mutation none, beyond{count};
    CHECK(right(run_core(kRing, 32, s, &none)));
    CHECK(right(run_core(kRing, 32, s, &beyond)));
  }
  for (size_t site = 0; site < count; ++site) {
    CAPTURE(site);
    const Mutation deleted{site};
    bool found = false;
    for (const Schedule& s : schedules()) found = found || !right(run_core(kRing, 32, s, &deleted));
    CHECK(found);
  }
}

TEST_CASE("an arrival whose state is used loses it", "[core][mutate]") {
  const CoreKernel k{
      "  .shared .align 8 .b64 b;\n  mov.u32 %r1, b;\n  mbarrier.init.shared::cta.b64 [%r1], 1;\n"
      "  mbarrier.arrive.shared::cta.b64 %w1, [%r1];\nwait:\n"
      "  mbarrier.try_wait.shared::cta.b64 %p1, [%r1], %w1;\n  @!%p1 bra wait;\n" +
          store_word("0", "7") + "  ret;",
      {},
      {},
      1};
  CHECK(run_core(k, 1).words[0] == 7);
  const Mutation arrive{0}, wait{1};
  CHECK(mentions_all(run_core(k, 1, {}, &arrive).fault, {"not a state that mbarrier.arrive returned"}));
  CHECK(run_core(k, 1, {}, &wait).words[0] == 7);
}

TEST_CASE("MXFA_EMU_MUTATE loads a module without one synchronisation and lists them all",
          "[driver][mutate][emulator-only]") {
  Driver& cu = Driver::of("b200");
  const std::string ptx =
      ptx_header("sm_100a") + ptx_kernel("waits", ".param .u64 p",
                                         "  .reg .pred %q<2>;\n  .shared .align 8 .b64 b;\n"
                                         "  mbarrier.init.shared::cta.b64 [b], 2;\nagain:\n"
                                         "  mbarrier.try_wait.parity.shared::cta.b64 %q1, [b], 0;\n"
                                         "  @!%q1 bra again;");
  const auto ask = reinterpret_cast<const char* (*)(const char*)>(cu.symbol("mxfaEmulatorSyncSites"));
  REQUIRE(ask);
  const auto launch = [&] {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    REQUIRE(cu.cuModuleLoadData(&module, ptx.c_str()) == CUDA_SUCCESS);
    REQUIRE(cu.cuModuleGetFunction(&function, module, "waits") == CUDA_SUCCESS);
    CUdeviceptr nothing = 0;
    void* parameters[] = {&nothing};
    REQUIRE(cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr) == CUDA_SUCCESS);
    const CUresult result = cu.cuCtxSynchronize();
    cu.ready();
    return result;
  };
  CHECK(launch() == CUDA_ERROR_LAUNCH_TIMEOUT);
  for (const char* value : {"0", "waits:0"}) {
    setenv("MXFA_EMU_MUTATE", value, 1);
    CHECK(launch() == CUDA_SUCCESS);
  }
  for (const char* value : {"other:0", "waits:list", "7"}) {
    setenv("MXFA_EMU_MUTATE", value, 1);
    CHECK(launch() == CUDA_ERROR_LAUNCH_TIMEOUT);
  }
  const auto sites = nlohmann::json::parse(ask("waits"));
  REQUIRE(sites.size() == 1);
  CHECK(sites[0]["kind"] == "mbarrier.try_wait");
  CHECK(sites[0]["ptx"] == "mbarrier.try_wait.parity.shared::cta.b64 %q1, [b], 0");
  CHECK(ask("other") == nullptr);
  CUmodule module = nullptr;
  for (const char* value : {"waits:1", "one", "waits:-1", "waits:"}) {
    setenv("MXFA_EMU_MUTATE", value, 1);
    CHECK(cu.cuModuleLoadData(&module, ptx.c_str()) == CUDA_ERROR_INVALID_VALUE);
    CHECK(mentions(cu.last_report(), {"MXFA_EMU_MUTATE"}));
  }
  unsetenv("MXFA_EMU_MUTATE");
}
