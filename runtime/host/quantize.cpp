// mxfa_plan_quantize and mxfa_quantize: BF16 -> E4M3 payload and UE8M0 scales, all decisions on the host.
#include "host/plan.hpp"

namespace mxfa {
namespace {

const char* layout_name(int32_t layout) {
  return layout == MXFA_QUANTIZE_ALONG_D        ? "along_d"
         : layout == MXFA_QUANTIZE_ALONG_TOKENS ? "along_tokens"
                                                : "square";
}

void check_quantize(const mxfa_quantize_desc& desc) {
  if (desc.head_dim != 64 && desc.head_dim != 96 && desc.head_dim != 128)
    invalid("head_dim is {}; it must be 64, 96 or 128", desc.head_dim);
  if (desc.heads <= 0) invalid("heads is {}; it must be at least 1", desc.heads);
  if (desc.layout < MXFA_QUANTIZE_ALONG_D || desc.layout > MXFA_QUANTIZE_SQUARE)
    invalid(
        "layout is {}; it must be MXFA_QUANTIZE_ALONG_D (0), MXFA_QUANTIZE_ALONG_TOKENS (1) or "
        "MXFA_QUANTIZE_SQUARE (2)",
        desc.layout);
  if (desc.scaling_mode != MXFA_RCEIL && desc.scaling_mode != MXFA_FLOOR)
    invalid("scaling_mode is {}; it must be MXFA_RCEIL (0) or MXFA_FLOOR (1)", desc.scaling_mode);
}

std::unique_ptr<mxfa_plan> plan_quantize(mxfa_context& context, const mxfa_quantize_desc* given) {
  auto plan = std::make_unique<mxfa_plan>();
  plan->operation = mxfa_plan::Operation::kQuantize;
  plan->context = &context;
  mxfa_quantize_desc& desc = plan->quantize;
  mxfa_quantize_desc defaults{};
  desc = read_struct(given, defaults, "mxfa_quantize_desc");
  check_quantize(desc);
  plan->q = read_sequences("offsets", desc.batch, desc.offsets);
  const std::vector<ConfigField> facts = {
      {"head_dim", desc.head_dim, false},
      {"layout", desc.layout, false},
      {"floor", desc.scaling_mode == MXFA_FLOOR, false},
      {"even_heads", desc.heads % 2 == 0, true, ConfigField::Use::kChoiceOnly}};
  const KernelConfig config =
      resolve_kernel_config(context.configs, "mxfp8_quantize", context.driver.arch, facts, desc.kernel);

  const auto heads_per_cta = int32_t(config.at("heads_per_cta"));
  if (desc.heads % heads_per_cta != 0)
    invalid("kernel.heads_per_cta is {}; it must divide heads, {}", heads_per_cta, desc.heads);
  const int64_t grid = int64_t{plan->q.scale_rows()} / kScaleTileRows * (desc.heads / heads_per_cta);
  if (grid > INT32_MAX)
    invalid("{} tiles of {} tokens times {} heads: the limit of a launch is {} CTAs",
            plan->q.scale_rows() / kScaleTileRows, kScaleTileRows, desc.heads, INT32_MAX);

  const CurrentContext current(context);
  plan->config = config;
  plan->kernel = &context.kernel(config, sizeof(abi::QuantizeParams));
  if (plan->kernel->tables.tile_rows != kScaleTileRows)
    device_error("mxfp8_quantize covers {} tokens a tile, the host expects {}",
                 plan->kernel->tables.tile_rows, kScaleTileRows);
  plan->grid = plan->tile_count = uint32_t(grid);
  plan->at_offsets_q = plan->workspace.add(plan->q.offsets);
  plan->at_scale_offsets_q = plan->workspace.add(plan->q.scale_offsets);
  plan->options = {{"op", "mxfp8_quantize"},
                   {"head_dim", desc.head_dim},
                   {"heads", desc.heads},
                   {"batch", desc.batch},
                   {"total", plan->q.total()},
                   {"longest", plan->q.longest()},
                   {"scale_rows", plan->q.scale_rows()},
                   {"layout", layout_name(desc.layout)},
                   {"scaling_mode", desc.scaling_mode == MXFA_FLOOR ? "floor" : "rceil"}};
  desc.offsets = nullptr;  // the caller's; the plan keeps copies
  desc.kernel = nullptr;
  return plan;
}

void launch_quantize(mxfa_plan& plan, const mxfa_quantize_args& args, CUstream stream) {
  const mxfa_quantize_desc& desc = plan.quantize;
  const bool along_d = desc.layout != MXFA_QUANTIZE_ALONG_TOKENS,
             along_tokens = desc.layout != MXFA_QUANTIZE_ALONG_D;
  check_tensor(args.input,
               {"input", "offsets: the last offset", desc.heads, desc.head_dim, 2, plan.q.total()});
  refuse_scales(args.input.scales, "input.scales", "the input is bf16");
  if (along_d) check_scales(args.scales_d, "scales_d", MXFA_SCALE_ALONG_D, desc.heads, plan.q.scale_rows());
  if (along_tokens)
    check_scales(args.scales_tokens, "scales_tokens", MXFA_SCALE_ALONG_TOKENS, desc.heads,
                 plan.q.scale_rows());
  if (!along_d) refuse_scales(args.scales_d, "scales_d", "layout along_tokens does not write it");
  if (!along_tokens) refuse_scales(args.scales_tokens, "scales_tokens", "layout along_d does not write it");
  if (plan.grid == 0) return;  // no token anywhere: nothing to write
  check_aligned(args.payload, 16, "payload");
  const uint64_t workspace = plan.require_workspace(args.workspace);

  abi::QuantizeParams params{};
  params.input = reinterpret_cast<uint64_t>(args.input.data);
  params.row_stride = args.input.row_stride;
  params.payload = reinterpret_cast<uint64_t>(args.payload);
  if (along_d) params.scales_d = reinterpret_cast<uint64_t>(args.scales_d.data);
  if (along_tokens) params.scales_tokens = reinterpret_cast<uint64_t>(args.scales_tokens.data);
  params.offsets = workspace + plan.at_offsets_q;
  params.scale_offsets = workspace + plan.at_scale_offsets_q;
  params.batch = desc.batch, params.heads = desc.heads;
  params.scale_tiles = plan.q.scale_rows() / kScaleTileRows;

  const CurrentContext current(*plan.context);
  device_work(*plan.context,
              [&] { launch_kernel(plan.context->driver, *plan.kernel, plan.grid, &params, stream); });
}

}  // namespace
}  // namespace mxfa

extern "C" {

mxfa_status mxfa_plan_quantize(mxfa_context* context, const mxfa_quantize_desc* desc, mxfa_plan** plan) {
  return mxfa::entry_point(context, [&] {
    if (!plan) mxfa::invalid("plan is null");
    *plan = nullptr;
    *plan = mxfa::plan_quantize(*context, desc).release();
  });
}

mxfa_status mxfa_quantize(mxfa_plan* plan, const mxfa_quantize_args* args, void* stream) {
  if (!plan) return MXFA_ERROR_INVALID;
  return mxfa::entry_point(plan->context, [&] {
    if (plan->operation != mxfa_plan::Operation::kQuantize) mxfa::invalid("this plan is not a quantize plan");
    const auto known = mxfa::read_struct(args, mxfa_quantize_args{}, "mxfa_quantize_args");
    mxfa::launch_quantize(*plan, known, static_cast<CUstream>(stream));
  });
}

}  // extern "C"
