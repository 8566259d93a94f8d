// mxfa_plan_attention_forward and mxfa_attention_forward: what is supported, what the kernel is told.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

#include "host/attention_lengths.hpp"
#include "host/attention_options.hpp"
#include "host/attention_schedule.hpp"
#include "host/attention_tiles.hpp"
#include "host/expand.hpp"
#include "host/plan.hpp"
#include "host/tensor_map.hpp"

namespace mxfa {
namespace {

constexpr int32_t kKeyTileRows = 128;  // rows of a K or V box: one MMA tile of keys

// kernel.ctas_per_tile 2 asks for attention_fwd_sm100_pair, which is made for one case.
void check_pair_support(const mxfa_plan& plan) {
  const mxfa_attention& a = plan.attention;
  const auto refuse = [](const std::string& why) {
    invalid(
        "kernel.ctas_per_tile is 2, but {}: two CTAs share keys and values in BF16 with head_dim 128 and "
        "without a mask only; leave the field out",
        why);
  };
  if (a.dtype != MXFA_BF16) refuse("dtype is mxfp8");
  if (a.head_dim != 128) refuse(fmt::format("head_dim is {}", a.head_dim));
  if (plan.window_left >= 0 || plan.window_right >= 0)
    refuse(a.causal ? std::string("causal is set")
                    : fmt::format("window is [{}, {}]", a.window_left, a.window_right));
}

nlohmann::ordered_json resolved_options(const mxfa_plan& plan) {
  const mxfa_attention& a = plan.attention;
  nlohmann::ordered_json options = resolved_attention("attn_fwd", plan);
  if (a.dtype == MXFA_MXFP8) options["mxfp8"] = resolved_mxfp8(plan);
  return options;
}

// Whether a broadcast Q is two or four units: tiles of two even where three warpgroups could have three
// (measured; docs/hopper.md).  Not for sequences with queries of their own: the bits of O must not depend on
// how many the others have.
bool has_two_unit_tiles(const mxfa_plan& plan) {
  if (!plan.attention.broadcast_q || plan.q.capacity) return false;
  const int32_t units = units_of(plan.q.length(0));
  return units == 2 || units == 4;
}

// The kernel of the device's architecture with the configuration for this problem.
KernelConfig choose_kernel(const mxfa_context& context, const mxfa_plan& plan) {
  const mxfa_attention& a = plan.attention;
  const std::string& arch = context.driver.arch;
  if (arch != "sm_90a") {
    const bool pair = override_or(a.kernel, "ctas_per_tile", 1) == 2;
    if (pair && plan.k.capacity) refuse_with_capacity("kernel.ctas_per_tile is 2", "leave it out");
    if (pair) check_pair_support(plan);
    return resolve_kernel_config(context.configs, pair ? "attention_fwd_sm100_pair" : "attention_fwd_sm100",
                                 arch,
                                 {{"ctas_per_tile", pair ? 2 : 1},
                                  {"head_dim", a.head_dim},
                                  {"mxfp8", a.dtype == MXFA_MXFP8, true},
                                  {"right_mask", plan.window_right >= 0, true},
                                  {"left_mask", plan.window_left >= 0, true},
                                  {"dynamic_p", a.p_scale == MXFA_P_DYNAMIC, true},
                                  {"packed_heads", 1},               // add_tiles_sm100 says
                                  {"launch_control", false, true}},  // likewise
                                 a.kernel);
  }
  if (a.kernel && std::string_view(a.kernel).find("\"scheduler\"") != std::string_view::npos)
    invalid(
        "kernel.scheduler: the kernels of {} have one scheduler, which hands out tiles through a counter in "
        "memory; static, zigzag, lpt and clc (cluster launch control) belong to attention_fwd_sm100; leave "
        "it "
        "out, or run with --device emulator:b200",
        arch);
  const bool mxfp8 = a.dtype == MXFA_MXFP8;
  const auto resolve = [&](bool two_unit_tiles) {
    return resolve_kernel_config(context.configs, "attention_fwd_sm90", arch,
                                 {{"head_dim", a.head_dim},
                                  {"mxfp8", mxfp8, true},
                                  {"right_mask", plan.window_right >= 0, true},
                                  {"left_mask", plan.window_left >= 0, true},
                                  {"dynamic_p", mxfp8 && a.p_scale == MXFA_P_DYNAMIC, true},
                                  {"two_unit_tiles", two_unit_tiles, true, ConfigField::Use::kChoiceOnly}},
                                 a.kernel);
  };
  KernelConfig config = resolve(false);
  // A caller's fields are changes of the configuration for all lengths, with which they fit together.
  const bool changed = std::any_of(config.fields.begin(), config.fields.end(), [&](const ConfigField& field) {
    return field.use == ConfigField::Use::kField && override_or(a.kernel, field.name, -1) >= 0;
  });
  if (!changed && has_two_unit_tiles(plan)) config = resolve(true);
  if (mxfp8 && config.at("tile_n") != kKeyTileRows)
    invalid(
        "kernel.tile_n is {}, but dtype is mxfp8: the reference points of P follow blocks of {} keys; leave "
        "it out",
        config.at("tile_n"), kKeyTileRows);
  return config;
}

// Keys of a block.
int32_t key_rows(const KernelConfig& config) {
  return config.arch == "sm_90a" ? int32_t(config.at("tile_n")) : kKeyTileRows;
}

// Query heads of a group in one tile, where that is possible and the request (kernel.pack_heads) or the
// estimated work says so.  kPackingGain: packing also makes a tile's stores and LSE less regular.
constexpr double kPackingGain = 0.05;
int32_t choose_packing(const mxfa_attention& a, const KernelConfig& config, const ScheduleProblem& problem,
                       nlohmann::ordered_json& options) {
  enum : int64_t { kAutomatic, kOff, kOn };
  const int64_t request = config.at("pack_heads");
  const int32_t group = a.heads_q / a.heads_kv;
  const int64_t box = config.at("o_box_rows");
  const bool fits = kKeyTileRows % group == 0 && box % group == 0;
  if (request == kOn) {
    if (a.dtype == MXFA_MXFP8)
      invalid(
          "kernel.pack_heads is on, but dtype is mxfp8: the scales of Q lie head by head in tiles of 128 "
          "tokens, which packed rows would cut up; choose automatic or off, or dtype bf16");
    if (kKeyTileRows % group != 0)
      invalid(
          "kernel.pack_heads is on, but heads_q {} / heads_kv {} = {} does not divide the {} rows of a tile; "
          "choose automatic or off",
          a.heads_q, a.heads_kv, group, kKeyTileRows);
    if (!fits)
      invalid(
          "kernel.pack_heads is on, but kernel.o_box_rows {} does not hold {} heads of a token; choose 128",
          box, group);
  }
  if (a.dtype == MXFA_MXFP8 || group == 1 || !fits) return 1;
  ScheduleProblem packed = problem;
  packed.packed_heads = group;
  const double apart = total_cost(problem), together = total_cost(packed);
  const bool pack = request == kOn || (request == kAutomatic && together <= (1 - kPackingGain) * apart);
  options["packing"] = {{"packed_heads", pack ? group : 1}, {"work_apart", apart}, {"work_packed", together}};
  return pack ? group : 1;
}

// Of the options that only the host can decide, those that it is not left to.
void check_capacity_sm100(KernelConfig& config) {
  const auto scheduler = Scheduler(config.at("scheduler"));
  if (scheduler != Scheduler::kAutomatic && scheduler != Scheduler::kZigzag)
    refuse_with_capacity(fmt::format("kernel.scheduler is {}", scheduler_name(scheduler)),
                         "choose automatic or zigzag");
  if (config.at("pack_heads") == 2)
    refuse_with_capacity("kernel.pack_heads is on", "choose automatic or off");
}

void add_device_tiles(mxfa_plan& plan) {
  const KernelConfig& config = plan.config;
  const bool sm90 = config.arch == "sm_90a";
  const int32_t tile_rows = int32_t(plan.kernel->tables.tile_rows);
  add_device_lengths(plan, {.of_keys = false,
                            .heads = plan.attention.heads_q,
                            .tile_rows = tile_rows,
                            .unit_rows = sm90 ? kUnitRows : tile_rows,
                            .block_rows = key_rows(config),
                            .in_order = false,
                            .zigzag = !sm90,
                            .max_ctas = resident_ctas(plan.context->driver, config),
                            .q_tile_rows = 0});
}

void add_tiles_sm100(mxfa_plan& plan, KernelConfig& config) {
  const mxfa_attention& a = plan.attention;
  const Driver& driver = plan.context->driver;
  const int32_t max_ctas = int32_t(config.at("max_ctas"));
  const int32_t ctas = resident_ctas(driver, config);
  const int32_t cluster = int32_t(config.at("ctas_per_tile"));
  if (ctas < cluster)
    invalid("kernel.max_ctas is {}; with kernel.ctas_per_tile {} it must be at least {}", max_ctas, cluster,
            cluster);
  ScheduleProblem problem{.q = &plan.q,
                          .k = &plan.k,
                          .heads_q = a.heads_q,
                          .heads_kv = a.heads_kv,
                          .key_bytes = int64_t{a.head_dim} * (a.dtype == MXFA_MXFP8 ? 1 : 2) * 2,
                          .broadcast_q = a.broadcast_q != 0,
                          .window_left = plan.window_left,
                          .window_right = plan.window_right,
                          .max_ctas = ctas / cluster,
                          .l2_bytes = driver.attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
                          .stage_rows = cluster * kKeyTileRows};
  problem.packed_heads = cluster > 1 ? 1 : choose_packing(a, config, problem, plan.options);
  config.set("packed_heads", problem.packed_heads);
  const auto scheduler = Scheduler(config.at("scheduler"));
  if (max_ctas > 0 && scheduler == Scheduler::kClc)
    invalid(
        "kernel.max_ctas is {}, but with scheduler clc every tile has a CTA of its own and the device "
        "decides how many run at once; choose scheduler static, zigzag or lpt, or leave max_ctas out",
        max_ctas);
  Schedule schedule = schedule_tiles(problem, scheduler);
  if (max_ctas > 0 && schedule.scheduler == Scheduler::kClc)
    schedule = schedule_tiles(problem, Scheduler::kLpt);
  config.set("launch_control", schedule.scheduler == Scheduler::kClc);
  plan.tile_count = schedule.tile_count;
  plan.slot_count = uint32_t(schedule.slots.size());
  plan.grid = schedule.grid * uint32_t(cluster);
  plan.at_tiles = plan.workspace.add(schedule.slots);
  // Estimated work of every CTA, in blocks of keys, under each scheduler.
  auto work = nlohmann::ordered_json::object();
  for (const Scheduler scheduler : kSchedulers) {
    const std::vector<double> walked =
        scheduler == schedule.scheduler ? schedule.work : schedule_tiles(problem, scheduler).work;
    auto& ctas_work = work[scheduler_name(scheduler)] = nlohmann::ordered_json::array();
    for (const double blocks : walked)
      for (int32_t i = 0; i < cluster; ++i) ctas_work.push_back(blocks);
  }
  plan.options["schedule"] = {{"scheduler", scheduler_name(schedule.scheduler)}, {"work", work}};
}

void add_tiles_sm90(mxfa_plan& plan) {
  const Driver& driver = plan.context->driver;
  const int32_t ctas = resident_ctas(driver, plan.config);
  const RowTilePlan rows = plan_row_tiles({.q = &plan.q,
                                           .k = &plan.k,
                                           .heads = plan.attention.heads_q,
                                           .broadcast_q = plan.attention.broadcast_q != 0,
                                           .window_left = plan.window_left,
                                           .window_right = plan.window_right,
                                           .tile_n = key_rows(plan.kernel->config),
                                           .max_units = int32_t(plan.kernel->tables.tile_rows) / kUnitRows,
                                           .multiprocessors = ctas,
                                           .row_bytes = int64_t{plan.attention.head_dim} * 2 * 2 *
                                                        plan.attention.heads_kv / plan.attention.heads_q,
                                           .l2_bytes = driver.attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)});
  plan.tile_count = plan.slot_count = uint32_t(rows.tiles.size());
  plan.grid = std::min(plan.tile_count, uint32_t(ctas));
  plan.at_tiles = plan.workspace.add(rows.tiles);
  plan.at_counters = plan.workspace.add(std::vector<int32_t>(2, 0));
  const auto rounded = [](double value) { return std::round(value * 100) / 100; };
  plan.options["schedule"] = {{"makespan", rounded(rows.makespan)},
                              {"mean", rounded(rows.mean)},
                              {"two_unit_share", rows.two_unit_share}};
}

std::unique_ptr<mxfa_plan> plan_attention(mxfa_context& context, const mxfa_attention* given) {
  auto plan = std::make_unique<mxfa_plan>();
  plan->operation = mxfa_plan::Operation::kAttentionForward;
  plan->context = &context;
  mxfa_attention& attention = plan->attention;
  attention = read_struct(given, default_attention(), "mxfa_attention");
  check_attention(attention);
  read_lengths(attention, *plan);
  if (std::isnan(attention.scale)) attention.scale = float(1.0 / std::sqrt(double(attention.head_dim)));
  for (const Sequences* sequences : {&plan->q, &plan->k})
    if (int64_t{sequences->scale_rows()} / kScaleTileRows * attention.heads_q > INT32_MAX)
      invalid("{} rows of scales (each sequence padded to {}) times {} heads: more scale tiles than {}",
              sequences->scale_rows(), kScaleTileRows, attention.heads_q, INT32_MAX);
  const auto [left, right] = effective_windows(attention, plan->q, plan->k);
  plan->window_left = left, plan->window_right = right;
  KernelConfig config = choose_kernel(context, *plan);
  plan->options = resolved_options(*plan);

  const CurrentContext current(context);
  const bool sm90 = context.driver.arch == "sm_90a";
  const bool capacity = plan->k.capacity.has_value();
  if (!sm90 && capacity) check_capacity_sm100(config);
  if (!sm90 && !capacity) add_tiles_sm100(*plan, config);
  plan->config = config;
  plan->kernel = &context.kernel(config, sizeof(abi::AttentionForwardParams));
  if (capacity) {
    add_device_tiles(*plan);
  } else {
    if (sm90) add_tiles_sm90(*plan);
    plan->at_offsets_q = plan->workspace.add(plan->q.offsets);
    plan->at_offsets_k = plan->workspace.add(plan->k.offsets);
    plan->at_scale_offsets_q = plan->workspace.add(plan->q.scale_offsets);
    plan->at_scale_offsets_k = plan->workspace.add(plan->k.scale_offsets);
  }
  if (sm90 && attention.dtype == MXFA_MXFP8) {
    const uint64_t at_q = plan->at_offsets_q, at_k = plan->at_offsets_k;
    const uint64_t sf_q = plan->at_scale_offsets_q, sf_k = plan->at_scale_offsets_k;
    plan->expand = plan_expand(*plan, {{&plan->q, attention.heads_q, MXFA_SCALE_ALONG_D, at_q, sf_q},
                                       {&plan->k, attention.heads_kv, MXFA_SCALE_ALONG_D, at_k, sf_k},
                                       {&plan->k, attention.heads_kv, MXFA_SCALE_ALONG_TOKENS, at_k, sf_k}});
  }
  attention.offsets_q = attention.offsets_k = nullptr;  // the caller's; the plan keeps copies
  attention.kernel = nullptr;
  return plan;
}

void check_operands(const mxfa_plan& plan, const mxfa_attention_forward_args& args) {
  const mxfa_attention& a = plan.attention;
  const bool mxfp8 = a.dtype == MXFA_MXFP8;
  const int32_t element = mxfp8 ? 1 : 2;
  const RowsAre rows_are = rows_are_of(plan);
  check_tensor(args.q, {"Q", rows_are.q, a.heads_q, a.head_dim, element, plan.q.total()});
  check_tensor(args.k, {"K", rows_are.k, a.heads_kv, a.head_dim, element, plan.k.total()});
  check_tensor(args.v, {"V", rows_are.k, a.heads_kv, a.head_dim, element, plan.k.total()});
  check_tensor(args.o, {"O", rows_are.o, a.heads_q, a.head_dim, 2, plan.rows_o});
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
  check_offsets_pointers(plan, args.offsets_q, args.offsets_k);
}

void launch_attention(mxfa_plan& plan, const mxfa_attention_forward_args& args, CUstream stream) {
  const mxfa_attention& a = plan.attention;
  const Driver& driver = plan.context->driver;
  check_operands(plan, args);
  if (plan.grid == 0) return;  // no query anywhere: nothing to write
  const uint64_t workspace = plan.require_workspace(args.workspace);

  abi::AttentionForwardParams params{};
  const KernelConfig& config = plan.kernel->config;
  const bool sm90 = config.arch == "sm_90a";
  const bool expands = plan.expand.kernel != nullptr;
  const mxfa_tensor q = expands ? expanded_operand(plan, 0, workspace) : args.q,
                    k = expands ? expanded_operand(plan, 1, workspace) : args.k,
                    v = expands ? expanded_operand(plan, 2, workspace) : args.v;
  const bool mxfp8 = a.dtype == MXFA_MXFP8 && !expands;  // as the kernel sees its operands
  const auto map = [&](const mxfa_tensor& tensor, bool bf16, int32_t heads, int32_t box_rows,
                       const char* name, int32_t box_heads = 1) {
    // Without a single key K and V may be null, which a tensor map may not hold; the kernel then loads
    // nothing through it.
    const uint64_t address = tensor.data ? reinterpret_cast<uint64_t>(tensor.data) : workspace;
    const int64_t row_stride = tensor.data ? tensor.row_stride : int64_t{heads} * a.head_dim;
    // attention_fwd_sm100 takes a row of 192 bytes (D = 96, BF16) as three panels of 64, attention_fwd_sm90
    // as two of 128 with the second half empty.
    const int32_t box_row_bytes = !sm90 && bf16 && a.head_dim == 96 ? 64 : 0;
    return encode_tensor_map(driver,
                             ragged_request({address, a.head_dim, heads, row_stride * (bf16 ? 2 : 1), bf16,
                                             box_rows / box_heads, box_row_bytes, box_heads}),
                             name);
  };
  const int32_t q_rows = sm90 ? int32_t(plan.kernel->tables.tile_rows) : kKeyTileRows;
  const int32_t v_rows = key_rows(config);
  // Of a pair each CTA loads half of K, 64 keys, and half of V, 64 channels.
  const int32_t k_rows = sm90 ? v_rows : kKeyTileRows / int32_t(config.at("ctas_per_tile"));
  const int32_t packed = sm90 ? 1 : int32_t(config.at("packed_heads"));
  params.q = map(q, !mxfp8, a.heads_q, q_rows, "Q", packed);
  params.k = map(k, !mxfp8, a.heads_kv, k_rows, "K");
  params.v = map(v, !mxfp8, a.heads_kv, v_rows, "V");
  params.o = map(args.o, true, a.heads_q, sm90 ? kUnitRows : int32_t(config.at("o_box_rows")), "O", packed);
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
  params.rows_o = plan.rows_o;
  params.tile_count = int32_t(plan.slot_count);
  params.heads_q = a.heads_q, params.heads_kv = a.heads_kv;
  params.scale_tiles_q = plan.q.scale_rows() / kScaleTileRows;
  params.scale_tiles_k = plan.k.scale_rows() / kScaleTileRows;
  params.scale_log2 = scale_log2_of(a.scale);
  params.window_left = plan.window_left, params.window_right = plan.window_right;
  params.broadcast_q = a.broadcast_q != 0;
  params.device_batch = plan.k.capacity ? a.batch : 0;
  if (sm90) params.counters = workspace + plan.at_counters;

  const CurrentContext current(*plan.context);
  device_work(*plan.context, [&] {
    if (plan.k.capacity) launch_lengths(plan, workspace, args.offsets_q, args.offsets_k, stream);
    launch_expand(plan, {&args.q, &args.k, &args.v}, workspace, stream);
    launch_kernel(driver, *plan.kernel, plan.grid, &params, stream);
  });
}

}  // namespace
}  // namespace mxfa

extern "C" {

void mxfa_attention_defaults(mxfa_attention* attention, uint32_t size) {
  if (!attention) return;
  mxfa_attention defaults = mxfa::default_attention();
  defaults.size = std::min<uint32_t>(size, sizeof defaults);
  std::memcpy(static_cast<void*>(attention), &defaults, defaults.size);
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
