// mxfa_plan_attention_forward and mxfa_attention_forward against a recording driver.
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <thread>
#include <utility>

#include "host/attention_schedule.hpp"
#include "runtime/fake_driver.hpp"
#include "support/catch.hpp"

using namespace mxfa;
using namespace mxfa::test;
using mxfa::test::Contains;

namespace {

// Two sequences, 300 + 5 queries and 130 + 0 keys, 2 heads of 128, MXFP8.
struct Problem {
  std::vector<int32_t> offsets_q = {0, 300, 305}, offsets_k = {0, 130, 130};
  mxfa_attention attention;
  mxfa_attention_forward_args args{};
  alignas(256) char workspace[4096] = {};

  Problem() {
    mxfa_attention_defaults(&attention, sizeof attention);
    attention.dtype = MXFA_MXFP8;
    attention.head_dim = 128;
    attention.heads_q = attention.heads_kv = 2;
    attention.batch = 2;
    attention.offsets_q = offsets_q.data();
    attention.offsets_k = offsets_k.data();
    args.size = sizeof args;
    args.q = {device(0x100000), 256, 305, {device(0x200000), 2 * 512 * 4, MXFA_SCALE_ALONG_D}};
    args.k = {device(0x300000), 272, 130, {device(0x400000), 2 * 256 * 4, MXFA_SCALE_ALONG_D}};
    args.v = {device(0x500000), 256, 1000, {device(0x600000), 2 * 256 * 4, MXFA_SCALE_ALONG_TOKENS}};
    args.o = {device(0x700000), 256, 305, {}};
    args.lse = static_cast<float*>(device(0x800004));
    args.workspace = workspace;
  }
};

struct PlanDeleter {
  void operator()(mxfa_plan* plan) const { mxfa_plan_destroy(plan); }
};
using PlanPointer = std::unique_ptr<mxfa_plan, PlanDeleter>;

PlanPointer plan_of(mxfa_context& context, const Problem& problem) {
  mxfa_plan* plan = nullptr;
  INFO(context.error);
  REQUIRE(mxfa_plan_attention_forward(&context, &problem.attention, &plan) == MXFA_OK);
  return PlanPointer(plan);
}

// The sentence that refuses a plan; nothing may have been loaded.
std::string refusal(const Problem& problem, const char* arch = "sm_100a") {
  const auto context = fake_context(arch);
  mxfa_plan* plan = reinterpret_cast<mxfa_plan*>(1);
  CHECK(mxfa_plan_attention_forward(context.get(), &problem.attention, &plan) == MXFA_ERROR_INVALID);
  CHECK(plan == nullptr);
  CHECK(fake().loads == 0);
  return mxfa_error(context.get());
}

}  // namespace

TEST_CASE("A launch tells the kernel what the ABI says", "[attention]") {
  const auto context = fake_context();
  Problem problem;
  const PlanPointer plan = plan_of(*context, problem);
  CHECK(mxfa_plan_workspace(plan.get()) == 5 * 256);
  REQUIRE(mxfa_plan_prepare(plan.get(), problem.workspace, nullptr) == MXFA_OK);
  CUstream stream = reinterpret_cast<CUstream>(0x5);
  REQUIRE(mxfa_attention_forward(plan.get(), &problem.args, stream) == MXFA_OK);
  CHECK(fake().launches == 1);
  CHECK(fake().launch.gridDimX == 4);  // SMs, for (2 + 1) tiles of 256 rows, 2 heads
  CHECK(fake().launch.gridDimY * fake().launch.gridDimZ == 1);
  CHECK(fake().launch.blockDimX == 512);
  CHECK(fake().launch.sharedMemBytes == 200000);
  CHECK(fake().launch.hStream == stream);
  CHECK(fake().context_depth == 0);  // what the thread had is restored

  abi::AttentionForwardParams params;
  REQUIRE(fake().params.size() == sizeof params);
  std::memcpy(&params, fake().params.data(), sizeof params);
  CHECK(params.scales_q == 0x200000);
  CHECK(params.scales_v == 0x600000);
  CHECK(params.lse == 0x800004);
  CHECK(params.rows_o == 305);
  CHECK(params.tile_count == 8);  // two rounds of 4 CTAs
  CHECK(params.scale_tiles_q == 4);
  CHECK(params.scale_tiles_k == 2);
  CHECK(params.scale_log2 == float(std::log2(std::exp(1.0)) / std::sqrt(128.0)));
  // Heaviest first, forwards and backwards: rows 0 .. 255 see two blocks with both stages, 256 .. 299 with
  // one; the sequence without keys has tiles too; where a CTA has one tile only, batch -1 ends its list.
  const auto* tiles = reinterpret_cast<const ScheduledTile*>(params.tiles);
  CHECK((tiles[1].batch == 0 && tiles[1].head == 1 && tiles[1].first_row == 0));
  CHECK((tiles[2].batch == 0 && tiles[2].head == 0 && tiles[2].first_row == 256));
  CHECK((tiles[7].batch == 1 && tiles[7].head == 0 && tiles[7].first_row == 0));
  CHECK((tiles[6].batch == 1 && tiles[6].head == 1 && tiles[6].first_row == 0));
  CHECK((tiles[5].batch == -1 && tiles[4].batch == -1));
  const auto* scale_offsets = reinterpret_cast<const int32_t*>(params.scale_offsets_q);
  CHECK((scale_offsets[0] == 0 && scale_offsets[1] == 384 && scale_offsets[2] == 512));

  REQUIRE(fake().maps.size() == 4);
  CHECK(fake().maps[0].address == 0x100000);
  CHECK(fake().maps[1].strides[1] == 272);
  CHECK(fake().maps[2].box[2] == 128);
  CHECK(fake().maps[3].type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
  CHECK(fake().maps[3].box[2] == 32);  // o_box_rows of the configuration
  CHECK(fake().maps[3].box[0] == 64);
}

TEST_CASE("What no kernel honours is refused by name before anything is compiled", "[attention]") {
  Problem problem;
  mxfa_attention& a = problem.attention;
  SECTION("head_dim 72") {
    a.head_dim = 72;
    CHECK_THAT(refusal(problem), Contains("head_dim is 72") && Contains("64, 96 or 128"));
    a.dtype = MXFA_BF16;
    CHECK_THAT(refusal(problem, "sm_90a"), Contains("head_dim is 72") && Contains("64, 96 or 128"));
  }
  SECTION("negative window") {
    a.window_right = -5;
    CHECK_THAT(refusal(problem), Contains("window") && Contains("-5") && Contains("-1"));
  }
  SECTION("indivisible heads") {
    a.heads_q = 3;
    CHECK_THAT(refusal(problem), Contains("heads_q 3 is not a multiple of heads_kv 2"));
  }
  SECTION("reversed heads") {
    a.heads_kv = 8;
    CHECK_THAT(refusal(problem), Contains("heads_q 2") && Contains("heads_kv 8"));
  }
  SECTION("no heads") {
    a.heads_q = 0;
    CHECK_THAT(refusal(problem), Contains("heads_q is 0"));
  }
  SECTION("dynamic P of bf16") {
    a.dtype = MXFA_BF16, a.p_scale = MXFA_P_DYNAMIC;
    CHECK_THAT(refusal(problem), Contains("p_scale 1") && Contains("bf16"));
  }
  SECTION("dtype") {
    a.dtype = 7;
    CHECK_THAT(refusal(problem), Contains("dtype is 7") && Contains("MXFA_BF16"));
  }
  SECTION("scaling of bf16") {
    a.dtype = MXFA_BF16, a.scaling_mode = MXFA_FLOOR;
    CHECK_THAT(refusal(problem), Contains("scaling_mode 1") && Contains("bf16"));
  }
  SECTION("infinite scale") {
    a.scale = INFINITY;
    CHECK_THAT(refusal(problem), Contains("scale is inf") && Contains("finite"));
  }
  SECTION("negative scale") {
    a.scale = -1;
    CHECK_THAT(refusal(problem), Contains("scale is -1"));
  }
  SECTION("offsets") {
    problem.offsets_k = {0, 10, 6};
    CHECK_THAT(refusal(problem), Contains("offsets_k: index 2 is 6, after 10"));
  }
  SECTION("a mask over lengths whose sum leaves 32 bits") {
    problem.offsets_q = problem.offsets_k = {0, 1 << 30, 1 << 30};
    a.causal = 1;
    CHECK_THAT(refusal(problem),
               Contains("1073741824 queries and 1073741824 keys") && Contains("must stay below 2147483391"));
  }
  SECTION("scale tiles beyond 32 bits") {
    problem.offsets_q = {0, 1 << 30, 1 << 30};
    a.heads_q = 256;
    CHECK_THAT(refusal(problem), Contains("times 256 heads") && Contains("scale tiles than 2147483647"));
  }
  SECTION("override") {
    a.kernel = R"({"kv_stage": 3})";
    CHECK_THAT(refusal(problem), Contains("did you mean \"kv_stages\"?"));
  }
  SECTION("struct size") {
    a.size = 0;
    CHECK_THAT(refusal(problem), Contains("size is 0") && Contains("sizeof(mxfa_attention)"));
  }
}

TEST_CASE("32x32 blocks and FLOOR only change how the inputs were quantized", "[attention]") {
  const auto context = fake_context();
  Problem problem;
  problem.attention.block = MXFA_BLOCK_32X32;
  problem.attention.scaling_mode = MXFA_FLOOR;
  const PlanPointer plan = plan_of(*context, problem);
  const auto options = nlohmann::json::parse(mxfa_plan_describe(plan.get()))["options"];
  CHECK(options["mxfp8"]["block"] == "32x32");
  CHECK(options["mxfp8"]["scaling_mode"] == "floor");
}

TEST_CASE("Operands that do not fit are refused with the value, the place and the rule", "[attention]") {
  const auto context = fake_context();
  Problem problem;
  const PlanPointer plan = plan_of(*context, problem);
  REQUIRE(mxfa_plan_prepare(plan.get(), problem.workspace, nullptr) == MXFA_OK);
  mxfa_attention_forward_args& args = problem.args;
  const auto refused = [&] {
    CHECK(mxfa_attention_forward(plan.get(), &args, nullptr) == MXFA_ERROR_INVALID);
    CHECK(fake().launches == 0);
    return std::string(mxfa_error(context.get()));
  };
  SECTION("rows") {
    args.k.rows = 129;
    CHECK_THAT(refused(), Contains("offsets_k: the last offset is 130, but K has 129 rows"));
  }
  SECTION("O rows") {
    args.o.rows = 304;
    CHECK_THAT(refused(), Contains("offsets_q") && Contains("305") && Contains("O has 304 rows"));
  }
  SECTION("null") {
    args.v.data = nullptr;
    CHECK_THAT(refused(), Contains("V.data is null"));
  }
  SECTION("misaligned") {
    args.q.data = device(0x100008);
    CHECK_THAT(refused(), Contains("Q.data is at 0x100008") && Contains("16 bytes"));
  }
  SECTION("stride too small") {
    args.k.row_stride = 255;
    CHECK_THAT(refused(), Contains("K.row_stride is 255") && Contains("2 * 128 = 256"));
  }
  SECTION("stride not of 16 bytes") {
    args.k.row_stride = 264;
    CHECK_THAT(refused(), Contains("264 bytes") && Contains("multiple of 16"));
  }
  SECTION("no scales") {
    args.k.scales.data = nullptr;
    CHECK_THAT(refused(), Contains("K has no scales"));
  }
  SECTION("small scales") {
    args.k.scales.bytes = 1024;
    CHECK_THAT(refused(), Contains("K: the scale buffer has 1024 bytes, it needs 2048"));
  }
  SECTION("orientation") {
    args.v.scales.orientation = MXFA_SCALE_ALONG_D;
    CHECK_THAT(refused(), Contains("V: the scales have orientation 1 (MXFA_SCALE_ALONG_D)") &&
                              Contains("MXFA_SCALE_ALONG_TOKENS"));
  }
  SECTION("no tag") {
    args.q.scales.orientation = 0;
    CHECK_THAT(refused(), Contains("Q") && Contains("orientation 0"));
  }
  SECTION("scale alignment") {
    args.q.scales.data = device(0x200100);
    CHECK_THAT(refused(), Contains("Q scale data is at 0x200100") && Contains("512"));
  }
  SECTION("scales of O") {
    args.o.scales.data = device(0x900000);
    CHECK_THAT(refused(), Contains("O.scales.data is set"));
  }
  SECTION("lse") {
    args.lse = static_cast<float*>(device(0x800002));
    CHECK_THAT(refused(), Contains("lse is at 0x800002"));
  }
  SECTION("workspace") {
    args.workspace = nullptr;
    CHECK_THAT(refused(), Contains("workspace is null"));
  }
  SECTION("unprepared workspace") {
    args.workspace = problem.workspace + 256;
    CHECK_THAT(refused(), Contains("was not prepared") && Contains("mxfa_plan_prepare"));
  }
  SECTION("struct size") {
    args.size = 4;
    CHECK_THAT(refused(), Contains("mxfa_attention_forward_args.size is 4"));
  }
}

TEST_CASE("BF16 operands must not carry scales", "[attention]") {
  const auto context = fake_context();
  Problem problem;
  problem.attention.dtype = MXFA_BF16;
  const PlanPointer plan = plan_of(*context, problem);
  REQUIRE(mxfa_plan_prepare(plan.get(), problem.workspace, nullptr) == MXFA_OK);
  CHECK(mxfa_attention_forward(plan.get(), &problem.args, nullptr) == MXFA_ERROR_INVALID);
  CHECK_THAT(mxfa_error(context.get()), Contains("Q.scales.data is set, but dtype is bf16"));
}

TEST_CASE("jitc-error-log: a kernel that does not compile is an error and never loaded", "[attention]") {
  static const MxfaEmbedded broken[] = {
      {"src/attention.cuh",
       "extern \"C\" __global__ void attention_fwd_sm100(int) {\n  missing_name = 1;\n}\n"},
      {nullptr, nullptr}};
  const auto context = fake_context();
  context->sources = broken;
  const Problem problem;
  mxfa_plan* plan = nullptr;
  CHECK(mxfa_plan_attention_forward(context.get(), &problem.attention, &plan) == MXFA_ERROR_DEVICE);
  CHECK_THAT(mxfa_error(context.get()),
             Contains("src/attention.cuh(2)") && Contains("\"missing_name\" is undefined"));
  CHECK(fake().loads == 0);
  CHECK(plan == nullptr);
}

TEST_CASE("rt-side-stream: everything goes to the stream that was passed", "[attention]") {
  const auto context = fake_context();
  Problem problem;
  const PlanPointer plan = plan_of(*context, problem);
  const auto stream = reinterpret_cast<CUstream>(0x5);
  REQUIRE(mxfa_plan_prepare(plan.get(), problem.workspace, stream) == MXFA_OK);
  for (int i = 0; i < 20; ++i) REQUIRE(mxfa_attention_forward(plan.get(), &problem.args, stream) == MXFA_OK);
  CHECK(fake().launches == 20);
  CHECK(fake().streams == std::vector<CUstream>(1 + 20, stream));
}

TEST_CASE("rt-no-host-sync: a launch neither waits nor copies nor allocates, so it can be captured",
          "[attention]") {
  const auto context = fake_context();
  Problem problem;
  const PlanPointer plan = plan_of(*context, problem);
  REQUIRE(mxfa_plan_prepare(plan.get(), problem.workspace, nullptr) == MXFA_OK);
  // What capture forbids or the host would wait in.
  static int forbidden;
  forbidden = 0;
  Driver& d = context->driver;
  d.cuCtxSynchronize = [] { return ++forbidden, CUDA_SUCCESS; };
  d.cuStreamSynchronize = [](CUstream) { return ++forbidden, CUDA_SUCCESS; };
  d.cuEventSynchronize = [](CUevent) { return ++forbidden, CUDA_SUCCESS; };
  d.cuMemAlloc_v2 = [](CUdeviceptr*, size_t) { return ++forbidden, CUDA_SUCCESS; };
  d.cuMemFree_v2 = [](CUdeviceptr) { return ++forbidden, CUDA_SUCCESS; };
  d.cuMemcpyDtoH_v2 = [](void*, CUdeviceptr, size_t) { return ++forbidden, CUDA_SUCCESS; };
  d.cuMemcpyHtoD_v2 = [](CUdeviceptr, const void*, size_t) { return ++forbidden, CUDA_SUCCESS; };
  d.cuMemcpyDtoHAsync_v2 = [](void*, CUdeviceptr, size_t, CUstream) { return ++forbidden, CUDA_SUCCESS; };
  d.cuMemcpyHtoDAsync_v2 = [](CUdeviceptr, const void*, size_t, CUstream) {
    return ++forbidden, CUDA_SUCCESS;
  };
  for (int i = 0; i < 2; ++i) CHECK(mxfa_attention_forward(plan.get(), &problem.args, nullptr) == MXFA_OK);
  CHECK(fake().launches == 2);
  CHECK(forbidden == 0);
  CHECK(fake().loads == 1);  // when it was planned
}

TEST_CASE("rt-no-host-sync: offsets that the host cannot read are refused with what is missing",
          "[attention]") {
  Problem problem;
  problem.attention.offsets_k = nullptr;
  CHECK_THAT(refusal(problem), Contains("offsets_k is null") && Contains("3 int32 values in host memory"));
}

TEST_CASE("fwd-element-offset-over-2p31: no address of a launch passes through 32 bits", "[attention]") {
  const auto context = fake_context();
  Problem problem;
  const int32_t batch = 512, length = 513, total = batch * length;
  problem.offsets_q.clear();
  for (int32_t b = 0; b <= batch; ++b) problem.offsets_q.push_back(b * length);
  problem.offsets_k = problem.offsets_q;
  mxfa_attention& a = problem.attention;
  a.dtype = MXFA_BF16, a.head_dim = 128, a.batch = batch;
  a.heads_q = a.heads_kv = 64;
  a.offsets_q = problem.offsets_q.data(), a.offsets_k = problem.offsets_k.data();
  const int64_t row = 64 * 128;
  REQUIRE((total - 1) * row > INT32_MAX);  // elements before the last token
  problem.args.q = problem.args.k = problem.args.v = problem.args.o = {device(0x100000000), row, total, {}};
  const PlanPointer plan = plan_of(*context, problem);
  std::vector<char> storage(mxfa_plan_workspace(plan.get()) + 256);
  const auto address = (reinterpret_cast<uint64_t>(storage.data()) + 255) / 256 * 256;
  problem.args.workspace = reinterpret_cast<void*>(address);
  REQUIRE(mxfa_plan_prepare(plan.get(), problem.args.workspace, nullptr) == MXFA_OK);
  REQUIRE(mxfa_attention_forward(plan.get(), &problem.args, nullptr) == MXFA_OK);
  CHECK(nlohmann::json::parse(mxfa_plan_describe(plan.get()))["tiles"] == 3 * 64 * 512);
  CHECK(fake().maps.size() == 4);
  for (const TensorMapRequest& map : fake().maps) {
    // As tensor_map.hpp states it: the last row of the last sequence, [total - length, total).
    const uint64_t offset = uint64_t(kBig - 1) * map.strides[1] + uint64_t(kBig) * map.strides[2] +
                            uint64_t(total) * map.strides[3];
    CHECK(map.address + offset == 0x100000000 + uint64_t(total - 1) * row * 2);
  }
}

TEST_CASE("No queries at all is success without a launch, whatever the buffers", "[attention]") {
  const auto context = fake_context();
  Problem problem;
  problem.offsets_q = {0, 0, 0};
  problem.args.q = problem.args.o = {};
  problem.args.workspace = nullptr;
  const PlanPointer plan = plan_of(*context, problem);
  CHECK(mxfa_attention_forward(plan.get(), &problem.args, nullptr) == MXFA_OK);
  problem.attention.batch = 0;
  problem.attention.offsets_q = problem.attention.offsets_k = nullptr;
  CHECK(mxfa_attention_forward(plan_of(*context, problem).get(), &problem.args, nullptr) == MXFA_OK);
  CHECK(fake().launches == 0);
}

TEST_CASE("No keys at all is a launch that needs neither K nor V", "[attention]") {
  const auto context = fake_context();
  Problem problem;
  problem.offsets_k = {0, 0, 0};
  problem.args.k = problem.args.v = {};
  const PlanPointer plan = plan_of(*context, problem);
  REQUIRE(mxfa_plan_prepare(plan.get(), problem.workspace, nullptr) == MXFA_OK);
  REQUIRE(mxfa_attention_forward(plan.get(), &problem.args, nullptr) == MXFA_OK);
  CHECK(fake().launches == 1);
  CHECK(fake().maps[1].address == reinterpret_cast<uint64_t>(problem.workspace));  // a map needs an address
}

TEST_CASE("rt-launch-error-propagates: a refused launch is returned with its geometry and breaks nothing",
          "[attention]") {
  const auto context = fake_context();
  Problem problem;
  const PlanPointer plan = plan_of(*context, problem);
  REQUIRE(mxfa_plan_prepare(plan.get(), problem.workspace, nullptr) == MXFA_OK);
  for (const CUresult refused : {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
                                 CUDA_ERROR_INVALID_CLUSTER_SIZE, CUDA_ERROR_OUT_OF_MEMORY}) {
    INFO(refused);
    fake().launch_result = refused;
    CHECK(mxfa_attention_forward(plan.get(), &problem.args, nullptr) == MXFA_ERROR_DEVICE);
    CHECK_THAT(mxfa_error(context.get()), Contains("attention_fwd_sm100") && Contains("grid 4") &&
                                              Contains("block 512") && Contains("shared memory") &&
                                              Contains(context->driver.describe(refused)));
    CHECK(fake().launches == 0);
    // Nothing ran, so the same plan goes on.
    fake().launch_result = CUDA_SUCCESS;
    CHECK(mxfa_attention_forward(plan.get(), &problem.args, nullptr) == MXFA_OK);
    CHECK(std::exchange(fake().launches, 0) == 1);
  }
}

TEST_CASE("A copy that the driver refuses does not break the context, and its workspace is not prepared",
          "[attention]") {
  const auto context = fake_context();
  Problem problem;
  const PlanPointer plan = plan_of(*context, problem);
  fake().copy_result = CUDA_ERROR_INVALID_VALUE;
  CHECK(mxfa_plan_prepare(plan.get(), problem.workspace, nullptr) == MXFA_ERROR_DEVICE);
  CHECK_THAT(mxfa_error(context.get()), Contains("workspace") && Contains("CUDA_ERROR_INVALID_VALUE"));
  fake().copy_result = CUDA_SUCCESS;
  CHECK(mxfa_attention_forward(plan.get(), &problem.args, nullptr) == MXFA_ERROR_INVALID);
  CHECK_THAT(mxfa_error(context.get()), Contains("was not prepared"));
  CHECK(mxfa_plan_prepare(plan.get(), problem.workspace, nullptr) == MXFA_OK);
  CHECK(mxfa_attention_forward(plan.get(), &problem.args, nullptr) == MXFA_OK);
}

TEST_CASE("A launch or copy that failed on the device is repeated by every later call", "[attention]") {
  // The last one is no code of this version: what is unknown counts as a failure.
  const CUresult failure = GENERATE(CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_FAILED,
                                    CUDA_ERROR_LAUNCH_TIMEOUT, CUDA_ERROR_UNKNOWN, CUresult(99999));
  const auto context = fake_context();
  Problem problem;
  const PlanPointer plan = plan_of(*context, problem);
  REQUIRE(mxfa_plan_prepare(plan.get(), problem.workspace, nullptr) == MXFA_OK);
  SECTION("launch") {
    fake().launch_result = failure;
    CHECK(mxfa_attention_forward(plan.get(), &problem.args, nullptr) == MXFA_ERROR_DEVICE);
  }
  SECTION("copy, which may report an earlier launch") {
    fake().copy_result = failure;
    CHECK(mxfa_plan_prepare(plan.get(), problem.workspace, nullptr) == MXFA_ERROR_DEVICE);
  }
  const std::string first = mxfa_error(context.get());
  fake().launch_result = fake().copy_result = CUDA_SUCCESS;
  CHECK(mxfa_attention_forward(plan.get(), &problem.args, nullptr) == MXFA_ERROR_DEVICE);
  CHECK_THAT(mxfa_error(context.get()), Contains(first));
  CHECK(fake().launches == 0);
}

TEST_CASE("A refused argument does not break the context", "[attention]") {
  const auto context = fake_context();
  Problem problem;
  const PlanPointer plan = plan_of(*context, problem);
  REQUIRE(mxfa_plan_prepare(plan.get(), problem.workspace, nullptr) == MXFA_OK);
  problem.args.q.row_stride = 1;
  CHECK(mxfa_attention_forward(plan.get(), &problem.args, nullptr) == MXFA_ERROR_INVALID);
  problem.args.q.row_stride = 256;
  CHECK(mxfa_attention_forward(plan.get(), &problem.args, nullptr) == MXFA_OK);
  CHECK(std::string(mxfa_error(context.get())).empty());
}

TEST_CASE("rt-driver-older: an image that the driver refuses names driver and compiler versions",
          "[attention]") {
  const auto context = fake_context();
  context->driver.loads_ptx = false;  // a GPU's driver: machine code, which needs no newer PTX reader
  fake().load_result = CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  mxfa_plan* plan = nullptr;
  const Problem problem;
  CHECK(mxfa_plan_attention_forward(context.get(), &problem.attention, &plan) == MXFA_ERROR_DEVICE);
  CHECK_THAT(mxfa_error(context.get()), Contains("CUDA 12.4") &&
                                            Contains("NVRTC " + context->nvrtc->version()) &&
                                            Contains("must be of the same CUDA major version or newer"));
}

TEST_CASE("rt-driver-older: a GPU gets machine code, the CPU driver gets PTX", "[attention]") {
  const auto context = fake_context();
  plan_of(*context, Problem());
  CHECK(fake().image == "//\n/");
  const auto other = fake_context();
  other->driver.loads_ptx = false;
  plan_of(*other, Problem());
  CHECK(fake().image ==
        "\x7f"
        "ELF");
}

TEST_CASE("Host and kernel must mean the same parameters", "[attention]") {
  const auto context = fake_context();
  const Problem problem;
  mxfa_plan* plan = nullptr;
  SECTION("size") { fake().tables.params_bytes -= 8; }
  SECTION("magic") { fake().tables.magic ^= 1; }
  SECTION("counts") { fake().tables.barrier_count = 25; }
  CHECK(mxfa_plan_attention_forward(context.get(), &problem.attention, &plan) == MXFA_ERROR_DEVICE);
  CHECK_THAT(mxfa_error(context.get()), Contains("attention_fwd_sm100_tables"));
  CHECK(fake().loads == fake().unloads);
}

TEST_CASE("More shared memory than the device has is refused", "[attention]") {
  const auto context = fake_context();
  fake().shared_limit = 101376;
  const Problem problem;
  mxfa_plan* plan = nullptr;
  CHECK(mxfa_plan_attention_forward(context.get(), &problem.attention, &plan) == MXFA_ERROR_INVALID);
  CHECK_THAT(mxfa_error(context.get()), Contains("200000") && Contains("101376"));
}

TEST_CASE("A kernel is loaded once a context and unloaded with it", "[attention]") {
  auto context = fake_context();
  const Problem problem;
  plan_of(*context, problem);
  plan_of(*context, problem);
  CHECK(fake().loads == 1);
  CHECK(fake().retains == 1);
  context.reset();
  CHECK(fake().unloads == 1);
  CHECK(fake().retains == 0);
}

TEST_CASE("rt-thread-without-context: a plan works in a thread that never had a context", "[attention]") {
  const auto context = fake_context();
  Problem problem;
  const PlanPointer plan = plan_of(*context, problem);
  std::thread([&] {
    CHECK(mxfa_plan_prepare(plan.get(), problem.workspace, nullptr) == MXFA_OK);
    CHECK(mxfa_attention_forward(plan.get(), &problem.args, nullptr) == MXFA_OK);
  }).join();
  CHECK(fake().launches == 1);
}

TEST_CASE("rt-fork-after-init: a forked child is refused with a sentence that names fork", "[attention]") {
  const auto context = fake_context();
  Problem problem;
  PlanPointer plan = plan_of(*context, problem);
  const pid_t child = fork();
  if (child == 0) {
    const bool refused = mxfa_plan_prepare(plan.get(), problem.workspace, nullptr) == MXFA_ERROR_DEVICE;
    const std::string error = mxfa_error(context.get());
    _exit(refused && error.find("fork") != std::string::npos &&
                  error.find("fresh process") != std::string::npos
              ? 0
              : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("The description echoes every option as resolved and decodes the tables", "[attention]") {
  const auto context = fake_context();
  abi::KernelTables& tables = fake().tables;
  tables.role_count = tables.smem_count = tables.tmem_count = tables.barrier_count = 1;
  tables.roles[0] = {"softmax", 0, 4, 192};
  tables.smem[0] = {"k", 1024, 16384, 3, 1024};
  tables.tmem[0] = {"s0", 0, 128, "commit", "softmax read"};
  tables.barriers[0] = {"q_full", 16, 2, 1, 16896, "loader", "mma", 2, 0};
  Problem problem;
  problem.attention.kernel = R"({"kv_stages": 4})";
  const PlanPointer plan = plan_of(*context, problem);
  const auto d = nlohmann::json::parse(mxfa_plan_describe(plan.get()));
  CHECK(d["kernel"] == "attention_fwd_sm100");
  CHECK(d["arch"] == "sm_100a");
  CHECK(d["key"].get<std::string>().size() == 64);
  CHECK(d["options"]["dtype"] == "mxfp8");
  CHECK(d["options"]["total_q"] == 305);
  CHECK(d["options"]["window"] == nlohmann::json({-1, -1}));
  CHECK(d["options"]["scale"].get<float>() == Approx(1 / std::sqrt(128.0)));
  CHECK(d["config"]["kv_stages"] == 4);
  CHECK(d["config"]["mxfp8"] == true);
  CHECK(d["overrides"]["kv_stages"] == 4);
  CHECK(d["grid"] == nlohmann::json({4, 1, 1}));
  CHECK(d["tables"]["roles"][0]["registers"] == 192);
  CHECK(d["tables"]["smem"][0]["bytes"] == 16384);
  CHECK(d["tables"]["tmem"][0]["live_until"] == "softmax read");
  CHECK(d["tables"]["barriers"][0]["producer_first_parity"].is_null());
  CHECK(d["tables"]["barriers"][0]["consumer_first_parity"] == 0);
  CHECK(d["ptxas"]["registers"] > 0);
  CHECK(d["cache"]["state"].is_string());
}
