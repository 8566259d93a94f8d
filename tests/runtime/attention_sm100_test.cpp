// What the runtime tells attention_fwd_sm100 of masks, heads and head_dim 96, against a recording driver.
#include <cstddef>
#include <cstring>

#include "host/plan.hpp"
#include "runtime/fake_driver.hpp"
#include "support/catch.hpp"

using namespace mxfa;
using namespace mxfa::test;

namespace {

abi::AttentionForwardParams launch(mxfa_context& context, const mxfa_attention& attention,
                                   mxfa_attention_forward_args args) {
  alignas(256) static char workspace[8192];
  mxfa_plan* plan = nullptr;
  INFO(context.error);
  REQUIRE(mxfa_plan_attention_forward(&context, &attention, &plan) == MXFA_OK);
  REQUIRE(mxfa_plan_workspace(plan) <= sizeof workspace);
  REQUIRE(mxfa_plan_prepare(plan, workspace, nullptr) == MXFA_OK);
  args.workspace = workspace;
  REQUIRE(mxfa_attention_forward(plan, &args, nullptr) == MXFA_OK);
  mxfa_plan_destroy(plan);
  abi::AttentionForwardParams params;
  REQUIRE(fake().params.size() == sizeof params);
  std::memcpy(&params, fake().params.data(), sizeof params);
  return params;
}

// 300 queries; 130 and 0 keys, 2 heads of them.
mxfa_attention small_attention(const std::vector<int32_t>& offsets_q, const std::vector<int32_t>& offsets_k) {
  mxfa_attention attention;
  mxfa_attention_defaults(&attention, sizeof attention);
  attention.batch = int32_t(offsets_k.size()) - 1;
  attention.offsets_q = offsets_q.data();
  attention.offsets_k = offsets_k.data();
  return attention;
}

}  // namespace

TEST_CASE("The defaults are written as far as the caller's struct goes", "[attention]") {
  mxfa_attention attention;
  std::memset(static_cast<void*>(&attention), 0x5a, sizeof attention);
  const uint32_t older = offsetof(mxfa_attention, max_total_q);
  mxfa_attention_defaults(&attention, older);
  CHECK(attention.size == older);
  CHECK(attention.window_left == -1);
  CHECK(attention.max_total_q == 0x5a5a5a5a);
}

TEST_CASE("Masks, grouped heads and broadcast queries reach the Blackwell kernel", "[attention]") {
  const auto context = fake_context();
  const std::vector<int32_t> offsets_q{0, 300}, offsets_k{0, 130, 130};
  mxfa_attention attention = small_attention(offsets_q, offsets_k);
  attention.head_dim = 128;
  attention.heads_q = 4, attention.heads_kv = 2;
  attention.broadcast_q = 1;
  attention.causal = 1;
  attention.window_left = 17;
  mxfa_attention_forward_args args{};
  args.size = sizeof args;
  args.q = {device(0x100000), 512, 300, {}};
  args.k = args.v = {device(0x300000), 256, 130, {}};
  args.o = {device(0x700000), 512, 600, {}};
  const abi::AttentionForwardParams params = launch(*context, attention, args);
  CHECK(params.window_left == 17);
  CHECK(params.window_right == 0);
  CHECK(params.broadcast_q == 1);
  CHECK(params.heads_q == 4);
  CHECK(params.heads_kv == 2);
  CHECK(params.rows_o == 600);
  CHECK(params.tile_count == 16);  // 2 tiles of 256 rows, 2 sequences, 4 heads
}

TEST_CASE("Boxes of head_dim 96 are 64 bytes wide in BF16 and 128 in MXFP8", "[attention]") {
  const auto context = fake_context();
  const std::vector<int32_t> offsets_q{0, 300}, offsets_k{0, 130};
  for (const bool mxfp8 : {false, true}) {
    mxfa_attention attention = small_attention(offsets_q, offsets_k);
    attention.head_dim = 96;
    attention.heads_q = attention.heads_kv = 1;
    attention.dtype = mxfp8 ? MXFA_MXFP8 : MXFA_BF16;
    mxfa_attention_forward_args args{};
    args.size = sizeof args;
    args.q = {device(0x100000), 96, 300, {}};
    args.k = args.v = {device(0x300000), 96, 130, {}};
    args.o = {device(0x700000), 96, 300, {}};
    if (mxfp8) {
      args.q.scales = {device(0x200000), 384 * 4, MXFA_SCALE_ALONG_D};
      args.k.scales = {device(0x400000), 256 * 4, MXFA_SCALE_ALONG_D};
      args.v.scales = {device(0x600000), 256 * 4, MXFA_SCALE_ALONG_TOKENS};
    }
    fake().maps.clear();
    launch(*context, attention, args);
    REQUIRE(fake().maps.size() == 4);
    CHECK(fake().maps[0].box[0] == (mxfp8 ? 128 : 32));
    CHECK(fake().maps[0].swizzle == (mxfp8 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B));
    CHECK(fake().maps[3].box[0] == 32);
    CHECK(fake().maps[3].swizzle == CU_TENSOR_MAP_SWIZZLE_64B);
  }
}
