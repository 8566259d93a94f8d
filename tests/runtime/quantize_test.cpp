// mxfa_plan_quantize and mxfa_quantize against a recording driver.
#include <cstring>

#include "host/plan.hpp"
#include "runtime/fake_driver.hpp"
#include "support/catch.hpp"

using namespace mxfa;
using namespace mxfa::test;
using mxfa::test::Contains;

namespace {

struct Problem {
  std::vector<int32_t> offsets = {0, 200, 200, 201};
  mxfa_quantize_desc desc{};
  mxfa_quantize_args args{};
  alignas(256) char workspace[512] = {};

  explicit Problem(int32_t layout) {
    desc.size = sizeof desc;
    desc.head_dim = 128, desc.heads = 3, desc.batch = 3;
    desc.offsets = offsets.data();
    desc.layout = layout;
    args.size = sizeof args;
    args.input = {device(0x100000), 384, 201, {}};
    args.payload = device(0x200000);
    if (layout != MXFA_QUANTIZE_ALONG_TOKENS)
      args.scales_d = {device(0x300000), 3 * 384 * 4, MXFA_SCALE_ALONG_D};
    if (layout != MXFA_QUANTIZE_ALONG_D)
      args.scales_tokens = {device(0x400000), 3 * 384 * 4, MXFA_SCALE_ALONG_TOKENS};
    args.workspace = workspace;
  }
};

std::unique_ptr<mxfa_context> context_for_quantize(const char* arch = "sm_90a") {
  auto context = fake_context(arch);
  fake().tables.params_bytes = sizeof(abi::QuantizeParams);
  fake().tables.tile_rows = 128;
  return context;
}

}  // namespace

TEST_CASE("A quantize launch has one CTA for each tile and head", "[quantize]") {
  for (const int32_t layout : {MXFA_QUANTIZE_ALONG_D, MXFA_QUANTIZE_ALONG_TOKENS, MXFA_QUANTIZE_SQUARE}) {
    const auto context = context_for_quantize();
    Problem problem(layout);
    mxfa_plan* plan = nullptr;
    REQUIRE(mxfa_plan_quantize(context.get(), &problem.desc, &plan) == MXFA_OK);
    REQUIRE(mxfa_plan_prepare(plan, problem.workspace, nullptr) == MXFA_OK);
    REQUIRE(mxfa_quantize(plan, &problem.args, nullptr) == MXFA_OK);
    CHECK(fake().launch.gridDimX == 9);  // (2 + 0 + 1) tiles of 128 tokens, 3 heads
    abi::QuantizeParams params;
    std::memcpy(&params, fake().params.data(), sizeof params);
    CHECK(params.row_stride == 384);
    CHECK(params.scales_d == (layout == MXFA_QUANTIZE_ALONG_TOKENS ? 0u : 0x300000u));
    CHECK(params.scales_tokens == (layout == MXFA_QUANTIZE_ALONG_D ? 0u : 0x400000u));
    CHECK(params.scale_tiles == 3);
    CHECK(params.batch == 3);
    const auto* scale_offsets = reinterpret_cast<const int32_t*>(params.scale_offsets);
    CHECK((scale_offsets[1] == 256 && scale_offsets[2] == 256 && scale_offsets[3] == 384));
    mxfa_plan_destroy(plan);
  }
}

TEST_CASE("A quantize launch has fewer CTAs where one takes several heads", "[quantize]") {
  const auto context = context_for_quantize();
  const auto grid_of = [&](int32_t heads, const char* kernel) {
    Problem problem(MXFA_QUANTIZE_ALONG_D);
    problem.desc.heads = heads, problem.desc.kernel = kernel;
    problem.args.input.row_stride = heads * 128;
    problem.args.scales_d.bytes = uint64_t(heads) * 384 * 4;
    mxfa_plan* plan = nullptr;
    REQUIRE(mxfa_plan_quantize(context.get(), &problem.desc, &plan) == MXFA_OK);
    REQUIRE(mxfa_plan_prepare(plan, problem.workspace, nullptr) == MXFA_OK);
    REQUIRE(mxfa_quantize(plan, &problem.args, nullptr) == MXFA_OK);
    mxfa_plan_destroy(plan);
    return fake().launch.gridDimX;
  };
  CHECK(grid_of(4, nullptr) == 3 * 4 / 2);  // an even number of heads: pairs
  CHECK(grid_of(6, R"({"heads_per_cta": 3})") == 3 * 6 / 3);
}

TEST_CASE("Quantize refuses what does not fit, by name", "[quantize]") {
  const auto context = context_for_quantize();
  Problem problem(MXFA_QUANTIZE_SQUARE);
  mxfa_plan* plan = nullptr;
  const auto refused_plan = [&] {
    CHECK(mxfa_plan_quantize(context.get(), &problem.desc, &plan) == MXFA_ERROR_INVALID);
    return std::string(mxfa_error(context.get()));
  };
  SECTION("head_dim") {
    problem.desc.head_dim = 72;
    CHECK_THAT(refused_plan(), Contains("head_dim is 72") && Contains("64, 96 or 128"));
  }
  SECTION("heads") {
    problem.desc.heads = 0;
    CHECK_THAT(refused_plan(), Contains("heads is 0"));
  }
  SECTION("layout") {
    problem.desc.layout = 3;
    CHECK_THAT(refused_plan(), Contains("layout is 3"));
  }
  SECTION("heads of a CTA") {
    problem.desc.kernel = R"({"heads_per_cta": 2})";
    CHECK_THAT(refused_plan(), Contains("kernel.heads_per_cta is 2") && Contains("divide heads, 3"));
  }
  SECTION("mode") {
    problem.desc.scaling_mode = 2;
    CHECK_THAT(refused_plan(), Contains("scaling_mode is 2"));
  }
  SECTION("offsets") {
    problem.offsets[1] = 300;
    CHECK_THAT(refused_plan(), Contains("offsets: index 2 is 200, after 300"));
  }

  const auto refused_launch = [&] {
    REQUIRE(mxfa_plan_quantize(context.get(), &problem.desc, &plan) == MXFA_OK);
    REQUIRE(mxfa_plan_prepare(plan, problem.workspace, nullptr) == MXFA_OK);
    CHECK(mxfa_quantize(plan, &problem.args, nullptr) == MXFA_ERROR_INVALID);
    CHECK(fake().launches == 0);
    mxfa_plan_destroy(plan);
    return std::string(mxfa_error(context.get()));
  };
  SECTION("rows") {
    problem.args.input.rows = 200;
    CHECK_THAT(refused_launch(), Contains("the last offset is 201, but input has 200 rows"));
  }
  SECTION("payload") {
    problem.args.payload = device(0x200001);
    CHECK_THAT(refused_launch(), Contains("payload is at 0x200001"));
  }
  SECTION("scales") {
    problem.args.scales_d.bytes = 100;
    CHECK_THAT(refused_launch(), Contains("scales_d") && Contains("100") && Contains("4608"));
  }
  SECTION("tag") {
    problem.args.scales_tokens.orientation = MXFA_SCALE_ALONG_D;
    CHECK_THAT(refused_launch(), Contains("scales_tokens"));
  }
  SECTION("a scale buffer that would not be written") {
    problem.desc.layout = MXFA_QUANTIZE_ALONG_D;
    CHECK_THAT(refused_launch(), Contains("scales_tokens.data is set") && Contains("along_d"));
  }
}

TEST_CASE("No tokens is success without a launch", "[quantize]") {
  const auto context = context_for_quantize();
  Problem problem(MXFA_QUANTIZE_ALONG_D);
  problem.offsets = {0, 0, 0, 0};
  mxfa_plan* plan = nullptr;
  REQUIRE(mxfa_plan_quantize(context.get(), &problem.desc, &plan) == MXFA_OK);
  mxfa_quantize_args args{};
  args.size = sizeof args;
  CHECK(mxfa_quantize(plan, &args, nullptr) == MXFA_OK);
  CHECK(fake().launches == 0);
  mxfa_plan_destroy(plan);
}

TEST_CASE("An older caller's shorter struct keeps the defaults, a newer one may not ask for the unknown",
          "[quantize]") {
  const auto context = context_for_quantize();
  const Problem problem(MXFA_QUANTIZE_ALONG_D);
  mxfa_plan* plan = nullptr;
  struct Newer {
    mxfa_quantize_desc known;
    uint64_t unknown;
  } newer{problem.desc, 0};
  newer.known.size = sizeof newer;
  CHECK(mxfa_plan_quantize(context.get(), &newer.known, &plan) == MXFA_OK);
  mxfa_plan_destroy(plan);
  newer.unknown = 1;
  CHECK(mxfa_plan_quantize(context.get(), &newer.known, &plan) == MXFA_ERROR_INVALID);
  CHECK_THAT(mxfa_error(context.get()), Contains("byte 40"));
  mxfa_quantize_desc older = problem.desc;
  older.size = offsetof(mxfa_quantize_desc, kernel);
  older.kernel = "garbage that an older caller never wrote";
  CHECK(mxfa_plan_quantize(context.get(), &older, &plan) == MXFA_OK);
  mxfa_plan_destroy(plan);
}
