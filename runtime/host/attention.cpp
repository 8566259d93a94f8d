// mxfa_plan_attention_forward and mxfa_attention_forward: what is supported, what the kernel is told.
#include <cmath>
#include <limits>

#include "host/plan.hpp"
#include "host/tensor_map.hpp"

namespace mxfa {
namespace {

constexpr int32_t kKeyTileRows = 128;  // rows of a K or V box: one MMA tile of keys

mxfa_attention default_attention() {
  mxfa_attention attention{};
  attention.size = sizeof(attention);
  attention.window_left = attention.window_right = -1;
  attention.scale = std::numeric_limits<float>::quiet_NaN();
  return attention;
}

void check_one_of(int32_t value, std::initializer_list<int32_t> allowed, const char* name,
                  const char* spelled) {
  if (std::find(allowed.begin(), allowed.end(), value) == allowed.end())
    invalid("{} is {}; it must be {}", name, value, spelled);
}

// Everything that no kernel of this version honours is refused here, by name.
void check_attention(const mxfa_attention& attention, const std::string& arch) {
  const mxfa_attention& a = attention;
  check_one_of(a.dtype, {MXFA_BF16, MXFA_MXFP8}, "dtype", "MXFA_BF16 (0) or MXFA_MXFP8 (1)");
  check_one_of(a.head_dim, {64, 128}, "head_dim", "64 or 128 (supported: 64, 128)");
  if (a.heads_q <= 0) invalid("heads_q is {}; it must be at least 1", a.heads_q);
  if (a.heads_kv <= 0) invalid("heads_kv is {}; it must be at least 1", a.heads_kv);
  if (a.heads_q % a.heads_kv != 0)
    invalid("heads_q {} is not a multiple of heads_kv {}", a.heads_q, a.heads_kv);
  if (a.heads_q != a.heads_kv)
    invalid(
        "heads_q {} with heads_kv {}: grouped heads are not supported by attention_fwd yet; heads_q must "
        "equal heads_kv",
        a.heads_q, a.heads_kv);
  if (a.broadcast_q)
    invalid("broadcast_q is {}: not supported by attention_fwd yet; give every sequence its own queries",
            a.broadcast_q);
  if (a.causal) invalid("causal is {}: not supported by attention_fwd yet; set it to 0", a.causal);
  for (const auto& [value, name] :
       {std::pair{a.window_left, "window_left"}, std::pair{a.window_right, "window_right"}}) {
    if (value < -1) invalid("window: {} is {}; it must be -1 (unbounded) or more", name, value);
    if (value != -1)
      invalid("window: {} is {}: windows are not supported by attention_fwd yet; set it to -1", name, value);
  }
  // The kernel takes the row maximum of the unscaled scores, which needs a positive scale.
  if (!std::isnan(a.scale) && !(std::isfinite(a.scale) && a.scale > 0))
    invalid("scale is {}; it must be finite and positive, or NaN for 1/sqrt(head_dim)", a.scale);
  check_one_of(a.scaling_mode, {MXFA_RCEIL, MXFA_FLOOR}, "scaling_mode", "MXFA_RCEIL (0) or MXFA_FLOOR (1)");
  check_one_of(a.block, {MXFA_BLOCK_1X32, MXFA_BLOCK_32X32}, "block",
               "MXFA_BLOCK_1X32 (0) or MXFA_BLOCK_32X32 (1)");
  check_one_of(a.p_scale, {MXFA_P_CONSTANT, MXFA_P_DYNAMIC}, "p_scale",
               "MXFA_P_CONSTANT (0) or MXFA_P_DYNAMIC (1)");
  if (a.p_scale == MXFA_P_DYNAMIC)
    invalid("p_scale dynamic is not supported by attention_fwd yet; use MXFA_P_CONSTANT (2^-8)");
  if (a.dtype == MXFA_BF16 && (a.scaling_mode || a.block))
    invalid("scaling_mode {} and block {} belong to MXFP8; with dtype bf16 both must be 0", a.scaling_mode,
            a.block);
  if (arch == "sm_90a")
    invalid(
        "attention_fwd has no sm_90a kernel yet; run with --device emulator:b200 "
        "(MXFA_DEVICE=emulator:b200)");
}

nlohmann::ordered_json resolved_options(const mxfa_plan& plan) {
  const mxfa_attention& a = plan.attention;
  nlohmann::ordered_json options = {
      {"op", "attn_fwd"},
      {"dtype", a.dtype == MXFA_MXFP8 ? "mxfp8" : "bf16"},
      {"head_dim", a.head_dim},
      {"heads_q", a.heads_q},
      {"heads_kv", a.heads_kv},
      {"batch", a.batch},
      {"total_q", plan.q.total()},
      {"total_k", plan.k.total()},
      {"longest_q", plan.q.longest()},
      {"longest_k", plan.k.longest()},
      {"broadcast_q", a.broadcast_q != 0},
      {"causal", a.causal != 0},
      {"window", {a.window_left, a.window_right}},
      {"scale", a.scale},
  };
  if (a.dtype == MXFA_MXFP8)
    options["mxfp8"] = {{"scaling_mode", a.scaling_mode == MXFA_FLOOR ? "floor" : "rceil"},
                        {"block", a.block == MXFA_BLOCK_32X32 ? "32x32" : "1x32"},
                        {"p_scale", "constant"},
                        {"scale_rows_q", plan.q.scale_rows()},
                        {"scale_rows_k", plan.k.scale_rows()}};
  return options;
}

std::unique_ptr<mxfa_plan> plan_attention(mxfa_context& context, const mxfa_attention* given) {
  auto plan = std::make_unique<mxfa_plan>();
  plan->operation = mxfa_plan::Operation::kAttentionForward;
  plan->context = &context;
  mxfa_attention& attention = plan->attention;
  attention = read_struct(given, default_attention(), "mxfa_attention");
  check_attention(attention, context.driver.arch);
  plan->q = read_sequences("offsets_q", attention.batch, attention.offsets_q);
  plan->k = read_sequences("offsets_k", attention.batch, attention.offsets_k);
  if (std::isnan(attention.scale)) attention.scale = float(1.0 / std::sqrt(double(attention.head_dim)));
  for (const Sequences* sequences : {&plan->q, &plan->k})
    if (int64_t{sequences->scale_rows()} / kScaleTileRows * attention.heads_q > INT32_MAX)
      invalid("{} rows of scales (each sequence padded to {}) times {} heads: more scale tiles than {}",
              sequences->scale_rows(), kScaleTileRows, attention.heads_q, INT32_MAX);
  const std::vector<ConfigField> facts = {{"head_dim", attention.head_dim, false},
                                          {"mxfp8", attention.dtype == MXFA_MXFP8, true}};
  const KernelConfig config = resolve_kernel_config(context.configs, "attention_fwd_sm100",
                                                    context.driver.arch, facts, attention.kernel);

  const CurrentContext current(context);
  plan->kernel = &context.kernel(config, sizeof(abi::AttentionForwardParams));
  const std::vector<Tile> tiles =
      list_tiles(plan->q, attention.heads_q, int32_t(plan->kernel->tables.tile_rows));
  plan->grid = uint32_t(tiles.size());
  plan->at_tiles = plan->workspace.add(tiles);
  plan->at_offsets_q = plan->workspace.add(plan->q.offsets);
  plan->at_offsets_k = plan->workspace.add(plan->k.offsets);
  plan->at_scale_offsets_q = plan->workspace.add(plan->q.scale_offsets);
  plan->at_scale_offsets_k = plan->workspace.add(plan->k.scale_offsets);
  plan->options = resolved_options(*plan);
  attention.offsets_q = attention.offsets_k = nullptr;  // the caller's; the plan keeps copies
  attention.kernel = nullptr;
  return plan;
}

void check_operands(const mxfa_plan& plan, const mxfa_attention_forward_args& args) {
  const mxfa_attention& a = plan.attention;
  const bool mxfp8 = a.dtype == MXFA_MXFP8;
  const int32_t element = mxfp8 ? 1 : 2;
  check_tensor(args.q, {"Q", "offsets_q", a.heads_q, a.head_dim, element, plan.q.total()});
  check_tensor(args.k, {"K", "offsets_k", a.heads_kv, a.head_dim, element, plan.k.total()});
  check_tensor(args.v, {"V", "offsets_k", a.heads_kv, a.head_dim, element, plan.k.total()});
  check_tensor(args.o, {"O", "offsets_q", a.heads_q, a.head_dim, 2, plan.q.total()});
  if (mxfp8) {
    check_scales(args.q.scales, "Q", MXFA_SCALE_ALONG_D, a.heads_q, plan.q.scale_rows());
    check_scales(args.k.scales, "K", MXFA_SCALE_ALONG_D, a.heads_kv, plan.k.scale_rows());
    check_scales(args.v.scales, "V", MXFA_SCALE_ALONG_TOKENS, a.heads_kv, plan.k.scale_rows());
  } else {
    refuse_scales(args.q.scales, "Q.scales", "dtype is bf16");
    refuse_scales(args.k.scales, "K.scales", "dtype is bf16");
    refuse_scales(args.v.scales, "V.scales", "dtype is bf16");
  }
  refuse_scales(args.o.scales, "O.scales", "O is bf16");
  if (args.lse) check_aligned(args.lse, 4, "lse");
}

void launch_attention(mxfa_plan& plan, const mxfa_attention_forward_args& args, CUstream stream) {
  const mxfa_attention& a = plan.attention;
  const Driver& driver = plan.context->driver;
  check_operands(plan, args);
  if (plan.grid == 0) return;  // no query anywhere: nothing to write
  const uint64_t workspace = plan.require_workspace(args.workspace);

  abi::AttentionForwardParams params{};
  const bool mxfp8 = a.dtype == MXFA_MXFP8;
  const auto map = [&](const mxfa_tensor& tensor, bool bf16, int32_t heads, int32_t box_rows,
                       const char* name) {
    // Without a single key K and V may be null, which a tensor map may not hold; the kernel then loads
    // nothing through it.
    const uint64_t address = tensor.data ? reinterpret_cast<uint64_t>(tensor.data) : workspace;
    const int64_t row_stride = tensor.data ? tensor.row_stride : int64_t{heads} * a.head_dim;
    return encode_tensor_map(
        driver, ragged_request({address, a.head_dim, heads, row_stride * (bf16 ? 2 : 1), bf16, box_rows}),
        name);
  };
  params.q = map(args.q, !mxfp8, a.heads_q, kKeyTileRows, "Q");
  params.k = map(args.k, !mxfp8, a.heads_kv, kKeyTileRows, "K");
  params.v = map(args.v, !mxfp8, a.heads_kv, kKeyTileRows, "V");
  params.o = map(args.o, true, a.heads_q, int32_t(plan.kernel->config.at("o_box_rows")), "O");
  if (mxfp8) {
    params.scales_q = reinterpret_cast<uint64_t>(args.q.scales.data);
    params.scales_k = reinterpret_cast<uint64_t>(args.k.scales.data);
    params.scales_v = reinterpret_cast<uint64_t>(args.v.scales.data);
  }
  params.tiles = workspace + plan.at_tiles;
  params.offsets_q = workspace + plan.at_offsets_q;
  params.offsets_k = workspace + plan.at_offsets_k;
  params.scale_offsets_q = workspace + plan.at_scale_offsets_q;
  params.scale_offsets_k = workspace + plan.at_scale_offsets_k;
  params.lse = reinterpret_cast<uint64_t>(args.lse);
  params.rows_o = plan.q.total();
  params.tile_count = int32_t(plan.grid);
  params.heads_q = a.heads_q, params.heads_kv = a.heads_kv;
  params.scale_tiles_q = plan.q.scale_rows() / kScaleTileRows;
  params.scale_tiles_k = plan.k.scale_rows() / kScaleTileRows;
  params.scale_log2 =
      float(double(a.scale) * 1.4426950408889634);  // log2(e): the kernel's exponentials are base 2

  const CurrentContext current(*plan.context);
  device_work(*plan.context, [&] { launch_kernel(driver, *plan.kernel, plan.grid, &params, stream); });
}

}  // namespace
}  // namespace mxfa

extern "C" {

void mxfa_attention_defaults(mxfa_attention* attention) {
  if (attention) *attention = mxfa::default_attention();
}

mxfa_status mxfa_plan_attention_forward(mxfa_context* context, const mxfa_attention* attention,
                                        mxfa_plan** plan) {
  return mxfa::entry_point(context, [&] {
    if (!plan) mxfa::invalid("plan is null");
    *plan = nullptr;
    *plan = mxfa::plan_attention(*context, attention).release();
  });
}

mxfa_status mxfa_attention_forward(mxfa_plan* plan, const mxfa_attention_forward_args* args, void* stream) {
  if (!plan) return MXFA_ERROR_INVALID;
  return mxfa::entry_point(plan->context, [&] {
    if (plan->operation != mxfa_plan::Operation::kAttentionForward)
      mxfa::invalid("this plan is not an attention_forward plan");
    const auto known = mxfa::read_struct(args, mxfa_attention_forward_args{}, "mxfa_attention_forward_args");
    mxfa::launch_attention(*plan, known, static_cast<CUstream>(stream));
  });
}

}  // extern "C"
