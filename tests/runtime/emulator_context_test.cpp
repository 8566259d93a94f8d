// Contexts on the CPU driver: what is fixed once a process, what a forked child is told.
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "host/context.hpp"
#include "runtime/temporary.hpp"
#include "support/catch.hpp"

using namespace mxfa;
using namespace mxfa::test;
using mxfa::test::Contains;

namespace {

// Where this build's CPU driver is, whatever the caller's environment says.
const char* emulator_library() { return MXFA_EMULATOR_LIBRARY; }

constexpr int32_t kOffsets[] = {0, 130, 130};

mxfa_quantize_desc quantize_desc() {
  mxfa_quantize_desc desc{};
  desc.size = sizeof desc;
  desc.head_dim = 64, desc.heads = 2, desc.batch = 2;
  desc.offsets = kOffsets;
  desc.layout = MXFA_QUANTIZE_SQUARE;
  return desc;
}

}  // namespace

TEST_CASE("A context plans on the CPU driver and finds its kernel again", "[context]") {
  const Environment library("MXFA_EMULATOR_LIBRARY", emulator_library());
  const TemporaryFolder folder;
  std::string key;
  for (const char* state : {"cold", "memory"}) {
    const Context context("emulator:b200", folder.path().c_str());
    const std::string description = context.quantize(quantize_desc()).describe();
    CHECK_THAT(description, Contains("\"arch\": \"sm_100a\"") && Contains("\"image\": \"ptx\""));
    CHECK_THAT(description, Contains(std::string("\"state\": \"") + state + "\""));
    CHECK_THAT(description, Contains("\"grid\": [\n    2,"));  // 2 tiles of 128 tokens, two heads a CTA
  }
  CHECK(files_in(folder.path(), ".mxfa") == 1);
}

TEST_CASE("A process has one model of the CPU driver", "[context]") {
  const Environment library("MXFA_EMULATOR_LIBRARY", emulator_library());
  const Context b200("emulator:b200");
  CHECK_NOTHROW(Context("emulator:b200"));
  CHECK_NOTHROW(Context("emulator"));
  CHECK_THROWS_WITH(Context("emulator:h200"), Contains("emulator:h200") && Contains("\"b200\""));
}

namespace {

int module_loads = 0;
decltype(Driver::cuModuleLoadDataEx) load_module = nullptr;

CUresult counted_load(CUmodule* module, const void* image, unsigned count, CUjit_option* options,
                      void** values) {
  ++module_loads;
  return load_module(module, image, count, options, values);
}

// One head of 64, 3 queries and 5 keys whose scores are 0: every row of O is the mean of V, which is 1.  The
// entry points are called as a program does that never makes a context current.
std::vector<uint16_t> forward(const Context& context) {
  const Driver& driver = context.get()->driver;
  const int32_t offsets_q[] = {0, 3}, offsets_k[] = {0, 5};
  mxfa_attention attention;
  mxfa_attention_defaults(&attention, sizeof attention);
  attention.dtype = MXFA_BF16;
  attention.head_dim = 64;
  attention.heads_q = attention.heads_kv = attention.batch = 1;
  attention.offsets_q = offsets_q, attention.offsets_k = offsets_k;
  const Plan plan = context.attention_forward(attention);
  std::vector<CUdeviceptr> buffers;
  const auto upload = [&](uint64_t bytes, uint16_t value) {
    const CurrentContext current(*context.get());
    const std::vector<uint16_t> data(bytes / 2, value);
    CUdeviceptr address = 0;
    driver.check(driver.cuMemAlloc_v2(&address, bytes), "allocate");
    driver.check(driver.cuMemcpyHtoD_v2(address, data.data(), bytes), "upload");
    buffers.push_back(address);
    return reinterpret_cast<void*>(address);
  };
  mxfa_attention_forward_args args{};
  args.size = sizeof args;
  args.q = {upload(3 * 128, 0), 64, 3, {}};
  args.k = {upload(5 * 128, 0x3f80), 64, 5, {}};
  args.v = {upload(5 * 128, 0x3f80), 64, 5, {}};
  args.o = {upload(3 * 128, 0xffff), 64, 3, {}};
  args.lse = static_cast<float*>(upload(3 * 4, 0xffff));
  args.workspace = upload(plan.workspace(), 0xffff);
  plan.prepare(args.workspace, nullptr);
  plan(args, nullptr);
  const CurrentContext current(*context.get());
  driver.check(driver.cuCtxSynchronize(), "kernel");
  std::vector<uint16_t> o(3 * 64);
  driver.check(driver.cuMemcpyDtoH_v2(o.data(), reinterpret_cast<CUdeviceptr>(args.o.data), 3 * 128),
               "download");
  for (const CUdeviceptr buffer : buffers) driver.cuMemFree_v2(buffer);
  return o;
}

}  // namespace

TEST_CASE("rt-two-devices: compiled once, loaded on each of two devices, used in turn", "[context]") {
  const Environment library("MXFA_EMULATOR_LIBRARY", emulator_library()), devices("MXFA_EMU_DEVICES", "2");
  const TemporaryFolder folder;
  const Context contexts[] = {Context("emulator:b200:0", folder.path().c_str()),
                              Context("emulator:b200:1", folder.path().c_str())};
  module_loads = 0;
  for (int k = 0; k < 2; ++k) {
    Driver& driver = contexts[k].get()->driver;
    CHECK(driver.device == k);
    load_module = driver.cuModuleLoadDataEx;
    driver.cuModuleLoadDataEx = counted_load;
  }
  for (const int k : {0, 1, 0}) CHECK(forward(contexts[k]) == std::vector<uint16_t>(3 * 64, 0x3f80));
  CHECK(module_loads == 2);
  std::vector<std::string> states;
  for (const Context& context : contexts)
    for (const auto& [key, kernel] : context.get()->kernels) states.push_back(kernel->built.state);
  CHECK(states == std::vector<std::string>{"cold", "memory"});  // one compile
  CHECK(files_in(folder.path(), ".mxfa") == 1);
}

TEST_CASE("A device beyond the last is refused with how many there are", "[context]") {
  const Environment library("MXFA_EMULATOR_LIBRARY", emulator_library()), devices("MXFA_EMU_DEVICES", "2");
  CHECK_THROWS_WITH(Context("emulator:b200:2"), Contains("device 2 was asked for") &&
                                                    Contains("has 2; choose 0 to 1") &&
                                                    Contains("MXFA_EMU_DEVICES"));
}

TEST_CASE("Failing to create leaves a context that says why", "[context]") {
  mxfa_context_options options{};
  options.size = sizeof options;
  options.device = "emulator:b300";
  mxfa_context* context = nullptr;
  CHECK(mxfa_create(&options, &context) == MXFA_ERROR_INVALID);
  REQUIRE(context);
  CHECK_THAT(mxfa_error(context), Contains("emulator:b300"));
  mxfa_plan* plan = nullptr;
  const mxfa_quantize_desc desc = quantize_desc();
  CHECK(mxfa_plan_quantize(context, &desc, &plan) == MXFA_ERROR_DEVICE);
  CHECK_THAT(mxfa_error(context), Contains("not created"));
  mxfa_destroy(context);
}

TEST_CASE("rt-fork-after-init: a forked child can neither use nor make a context, and is told so at once",
          "[context]") {
  const Environment library("MXFA_EMULATOR_LIBRARY", emulator_library());
  const Context context("emulator:b200");
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // a hang is a failure
    const auto names_fork = [](auto&& body) {
      try {
        body();
      } catch (const Error& error) {
        return std::string(error.what()).find("fork") != std::string::npos;
      }
      return false;
    };
    const bool use = names_fork([&] { context.quantize(quantize_desc()); });
    const bool make = names_fork([] { Context another("emulator:b200"); });
    _exit(use && make ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("rt-thread-without-context: the first launch may come from a new thread", "[context]") {
  const Environment library("MXFA_EMULATOR_LIBRARY", emulator_library());
  const TemporaryFolder folder;
  const Context context("emulator:b200", folder.path().c_str());
  const Plan plan = context.quantize(quantize_desc());
  const Driver driver = load_driver(parse_device("emulator:b200"));
  CUcontext primary = nullptr;
  driver.check(driver.cuDevicePrimaryCtxRetain(&primary, driver.device), "retain");
  driver.check(driver.cuCtxPushCurrent_v2(primary), "push");
  const std::vector<uint16_t> ones(130 * 2 * 64, 0x3f80);
  const uint64_t scale_bytes = 2 * 256 * 4;  // 2 heads, 130 rows padded to 256
  std::vector<CUdeviceptr> allocated;
  // Aligned to 512, as scales must be; the driver promises 256.
  const auto allocate = [&](uint64_t bytes) {
    CUdeviceptr address = 0;
    driver.check(driver.cuMemAlloc_v2(&address, bytes + 512), "allocate");
    allocated.push_back(address);
    return reinterpret_cast<void*>((address + 511) / 512 * 512);
  };
  mxfa_quantize_args args{};
  args.size = sizeof args;
  args.input = {allocate(ones.size() * 2), 2 * 64, 130, {}};
  args.payload = allocate(ones.size());
  args.scales_d = {allocate(scale_bytes), scale_bytes, MXFA_SCALE_ALONG_D};
  args.scales_tokens = {allocate(scale_bytes), scale_bytes, MXFA_SCALE_ALONG_TOKENS};
  args.workspace = allocate(plan.workspace());
  const auto at = [](const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); };
  driver.check(driver.cuMemcpyHtoD_v2(at(args.input.data), ones.data(), ones.size() * 2), "upload");

  std::string failure;
  std::thread([&] {
    try {
      plan.prepare(args.workspace, nullptr);
      plan(args, nullptr);
    } catch (const Error& error) {
      failure = error.what();
    }
  }).join();
  CHECK(failure.empty());
  driver.check(driver.cuCtxSynchronize(), "kernel");
  std::vector<uint8_t> payload(ones.size());
  driver.check(driver.cuMemcpyDtoH_v2(payload.data(), at(args.payload), payload.size()), "download");
  // 1 / 448 rounds up to the scale 2^-8, and 1 * 2^8 is 0x78 in E4M3.
  CHECK(payload == std::vector<uint8_t>(ones.size(), 0x78));
  for (const CUdeviceptr address : allocated) driver.cuMemFree_v2(address);
  CUcontext popped = nullptr;
  driver.cuCtxPopCurrent_v2(&popped);
  driver.cuDevicePrimaryCtxRelease_v2(driver.device);
}

TEST_CASE("A context made in one thread works in another", "[context]") {
  const Environment library("MXFA_EMULATOR_LIBRARY", emulator_library());
  const TemporaryFolder folder;
  const Context context("emulator:b200", folder.path().c_str());
  std::thread([&] { CHECK_NOTHROW(context.quantize(quantize_desc())); }).join();
}
