// mxfa_plan_attention_backward and mxfa_attention_backward: what is supported, what the kernels are told.
#include <algorithm>
#include <cmath>

#include "host/attention_backward_split.hpp"
#include "host/attention_backward_support.hpp"
#include "host/attention_backward_tiles.hpp"
#include "host/attention_lengths.hpp"
#include "host/attention_options.hpp"
#include "host/expand.hpp"
#include "host/tensor_map.hpp"

namespace mxfa {
namespace {

constexpr int32_t kBoxRows = 64;  // rows of a box, unless a step has another number that is no multiple
constexpr int32_t kTransposedRows = 80;  // a step of the main kernel that computes dQ transposed
// Rounds of tiles of keys whose rows are prepared before the main kernel starts (measured, docs/hopper.md).
constexpr int64_t kFirstRounds = 1;

// Overrides of attention_bwd_dq_sm90 are fields of the main kernel's configuration with a prefix; 0: its own.
constexpr char kDqPrefix[] = "dq_";
constexpr const char* kDqFields[] = {"tile_n",   "consumer_warpgroups", "q_stages",          "k_stages",
                                     "v_stages", "consumer_registers",  "producer_registers"};
std::string dq_overrides(const KernelConfig& config) {
  nlohmann::ordered_json overrides = nlohmann::ordered_json::object();
  for (const char* field : kDqFields)
    if (const int64_t value = config.at(kDqPrefix + std::string(field))) overrides[field] = value;
  return overrides.empty() ? std::string() : overrides.dump();
}

nlohmann::ordered_json resolved_options(const mxfa_plan& plan) {
  const mxfa_attention_backward_options& o = plan.backward_options;
  nlohmann::ordered_json options = resolved_attention("attn_bwd", plan);
  options["backward"] = {{"dq_accumulate", o.dq_accumulate == MXFA_DQ_FP16 ? "fp16" : "fp32"},
                         {"dq_scale_log2", o.dq_scale_log2},
                         {"deterministic", o.deterministic != 0},
                         {"dkv_output", o.dkv_output == MXFA_MXFP8 ? "mxfp8" : "bf16"}};
  if (plan.attention.dtype == MXFA_MXFP8) {
    options["mxfp8"] = resolved_mxfp8(plan);
    options["backward"]["ds"] = has_square_ds(plan.attention) ? "mxfp8 32x32" : "bf16";
  }
  return options;
}

// As the main kernel's tables say; 0 where it has no such role.
int32_t warps_of(const mxfa_plan& plan, std::string_view role) {
  const abi::KernelTables& tables = plan.kernel->tables;
  for (uint32_t i = 0; i < tables.role_count; ++i)
    if (role == tables.roles[i].name) return int32_t(tables.roles[i].warps);
  return 0;
}

// With broadcast_q all sequences add to one dQ.  Copies of it spread the additions over addresses; they
// should stay in L2 and be no more than what is walked at the same time.
int32_t choose_replicas(const mxfa_plan& plan, int64_t copy_bytes) {
  if (!plan.attention.broadcast_q) return 1;
  constexpr int64_t kMost = 16, kBytes = int64_t{16} << 20;
  const int64_t affordable = std::clamp<int64_t>(kBytes / std::max<int64_t>(copy_bytes, 1), 1, kMost);
  return int32_t(std::min<int64_t>(affordable, std::max<uint32_t>(plan.grid, 1)));
}

// MXFP8: Q, K, V and dO are multiplied out in the workspace.  After the last piece of its image.
void add_operands(mxfa_plan& plan) {
  const mxfa_attention& a = plan.attention;
  Sequences o = plan.q;
  if (a.broadcast_q) {
    std::vector<int32_t> offsets;
    for (int32_t b = 0; b <= plan.k.batch(); ++b) offsets.push_back(b * plan.q.total());
    o = read_sequences("broadcast_q: the rows of O", plan.k.batch(), offsets.data());
  }
  plan.backward.scale_rows_o = o.scale_rows();
  const uint64_t at_q = plan.workspace.add(plan.q.scale_offsets),
                 at_k = plan.workspace.add(plan.k.scale_offsets),
                 at_offsets_o = plan.workspace.add(o.offsets), at_o = plan.workspace.add(o.scale_offsets);
  plan.expand = plan_expand(plan, {{&plan.q, a.heads_q, MXFA_SCALE_ALONG_D, plan.at_offsets_q, at_q},
                                   {&plan.k, a.heads_kv, MXFA_SCALE_ALONG_D, plan.at_offsets_k, at_k},
                                   {&plan.k, a.heads_kv, MXFA_SCALE_ALONG_D, plan.at_offsets_k, at_k},
                                   {&o, a.heads_q, MXFA_SCALE_ALONG_D, at_offsets_o, at_o}});
}

// The one kernel (with turns where it is deterministic), or the split pair.
struct Choice {
  BackwardMethod method = BackwardMethod::kOneKernel;
  KeyTilePlan keys;
  DqTilePlan dq;
  BackwardCosts costs;
};

KeyTilePlan list_key_tiles(const mxfa_plan& plan, const KernelConfig& config) {
  const mxfa_attention& a = plan.attention;
  const bool with_dq = config.at("with_dq") != 0;
  return plan_key_tiles({.q = &plan.q,
                         .k = &plan.k,
                         .heads_q = a.heads_q,
                         .heads_kv = a.heads_kv,
                         .broadcast_q = a.broadcast_q != 0,
                         .window_left = plan.window_left,
                         .window_right = plan.window_right,
                         .tile_rows = int32_t(config.at("tile_m")),
                         .multiprocessors = plan.backward.max_ctas,
                         .deterministic = with_dq && plan.backward_options.deterministic != 0,
                         .row_bytes = int64_t{a.head_dim} * (2 + 2 + (with_dq ? 4 : 0)),
                         .l2_bytes = plan.context->driver.attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)});
}

DqTilePlan list_dq_tiles(const mxfa_plan& plan, const KernelConfig& dq) {
  const mxfa_attention& a = plan.attention;
  return plan_dq_tiles({.q = &plan.q,
                        .k = &plan.k,
                        .heads = a.heads_q,
                        .broadcast_q = a.broadcast_q != 0,
                        .window_left = plan.window_left,
                        .window_right = plan.window_right,
                        .tile_n = int32_t(dq.at("tile_n")),
                        .max_units = int32_t(dq.at("consumer_warpgroups")),
                        .multiprocessors = plan.backward.max_ctas,
                        .row_bytes = int64_t{a.head_dim} * 2 * 2 * a.heads_kv / a.heads_q,
                        .l2_bytes = plan.context->driver.attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)},
                       a.head_dim);
}

// `asked`: kernel.method.
Choice choose_method(const mxfa_plan& plan, BackwardMethod asked, const KernelConfig& with_dq,
                     const KernelConfig& without_dq, const KernelConfig& dq) {
  const mxfa_attention& a = plan.attention;
  const bool fp16 = plan.backward_options.dq_accumulate == MXFA_DQ_FP16, mxfp8 = a.dtype == MXFA_MXFP8;
  if (fp16 && asked == BackwardMethod::kSplit)
    invalid(
        "kernel.method is split, but dq_accumulate is fp16: the split pair never adds dQ in memory; choose "
        "dq_accumulate fp32, or leave one of the two out");
  if (mxfp8 && asked == BackwardMethod::kSplit)
    invalid("kernel.method is split, but dtype is mxfp8: the split pair has BF16 only; leave it out");
  const bool direct_chunks = override_or(a.kernel, "direct_chunks", -1) >= 0;
  const bool transposed = with_dq.at("tile_m") == kTransposedRows && override_or(a.kernel, "tile_m", 0) != 0;
  if (direct_chunks && asked == BackwardMethod::kSplit)
    invalid(
        "kernel.direct_chunks: method split never adds dQ in memory; leave direct_chunks out, or choose "
        "method one_kernel");
  if (transposed && asked == BackwardMethod::kSplit)
    invalid("kernel.tile_m is 80, which method split does not take; leave one of the two out");
  for (const char* field : kDqFields)
    if (const std::string name = kDqPrefix + std::string(field);
        asked != BackwardMethod::kSplit && override_or(a.kernel, name, 0) != 0)
      invalid("kernel.{} belongs to the split pair; set kernel.method to split, or leave {} out", name, name);
  Choice choice;
  if (plan.k.capacity) {
    if (asked == BackwardMethod::kSplit)
      refuse_with_capacity("kernel.method is split", "choose automatic or one_kernel");
    return choice;
  }
  KeyTilePlan keys = list_key_tiles(plan, with_dq);
  // More tiles of dQ than this are listed for a caller who asks for them, not to compare.
  constexpr int64_t kMostCompared = int64_t{1} << 22, kTileRows = 64;
  int64_t dq_tiles = 0;  // at most
  for (int32_t b = 0; b < plan.q.batch(); ++b)
    dq_tiles += (int64_t{plan.q.length(b)} + kTileRows - 1) / kTileRows;
  if (asked == BackwardMethod::kSplit && dq_tiles > INT32_MAX / a.heads_q - kMostCompared / a.heads_q)
    invalid("offsets_q: {} tiles of {} rows times {} heads: too many for method split", dq_tiles, kTileRows,
            a.heads_q);
  const bool too_many = asked != BackwardMethod::kSplit && dq_tiles > kMostCompared / a.heads_q;
  // FP16 changes the result, so it is the caller's and means the one kernel, as chunks and 80 rows do.
  if (fp16 || mxfp8 || direct_chunks || transposed || too_many) {
    choice.keys = std::move(keys);
    return choice;
  }
  KeyTilePlan keys_without = list_key_tiles(plan, without_dq);
  choice.dq = list_dq_tiles(plan, dq);
  choice.costs = estimate_backward({.head_dim = a.head_dim,
                                    .deterministic = plan.backward_options.deterministic != 0,
                                    .right_mask = plan.window_right >= 0,
                                    .key_rows = int32_t(with_dq.at("tile_m")),
                                    .key_steps = keys.makespan,
                                    .key_steps_without = keys_without.makespan,
                                    .dq_blocks = choice.dq.makespan,
                                    .dq_rows = int32_t(dq.at("consumer_warpgroups")) * kUnitRows,
                                    .dq_keys = int32_t(dq.at("tile_n")),
                                    .row_heads = double(plan.q.total()) * a.heads_q,
                                    .multiprocessors = plan.backward.max_ctas});
  const bool faster = choice.costs.split < choice.costs.one_kernel;
  if (asked == BackwardMethod::kSplit || (asked == BackwardMethod::kAutomatic && faster))
    choice.method = BackwardMethod::kSplit;
  choice.keys = choice.method == BackwardMethod::kSplit ? std::move(keys_without) : std::move(keys);
  return choice;
}

// The lists of tiles of keys and of queries, offsets and counters.  `ahead`: the main kernel may prepare
// rows. Returns the tiles of queries, none where the device lists them.
std::vector<QueryTile> add_lists(mxfa_plan& plan, std::vector<KeyTile>& keys, bool ahead) {
  const mxfa_attention& a = plan.attention;
  const int32_t rows = int32_t(plan.kernel->tables.tile_rows);
  if (plan.k.capacity) {
    constexpr int32_t kTileKeys = 128;
    add_device_lengths(plan, {.of_keys = true,
                              .heads = a.heads_kv,
                              .tile_rows = kTileKeys,
                              .unit_rows = kTileKeys,
                              .block_rows = rows,
                              .in_order = plan.backward_options.deterministic != 0,
                              .zigzag = false,
                              .max_ctas = plan.backward.max_ctas,
                              .q_tile_rows = rows});
    return {};
  }
  plan.tile_count = plan.slot_count = uint32_t(keys.size());
  plan.grid = std::min(plan.tile_count, uint32_t(plan.backward.max_ctas));
  QueryTilePlan queries = plan_query_tiles({.q = &plan.q,
                                            .batch = a.batch,
                                            .heads_q = a.heads_q,
                                            .heads_kv = a.heads_kv,
                                            .broadcast_q = a.broadcast_q != 0,
                                            .rows = rows,
                                            .first_tiles = ahead ? kFirstRounds * plan.grid : INT64_MAX},
                                           keys);
  const int64_t all = int64_t(queries.tiles.size()) * a.heads_q;
  plan.backward.prepare_grid = uint32_t(queries.prepared_first);
  plan.backward.row_tiles = int32_t(all);
  if (queries.prepared_first < all) plan.backward.pairs = a.batch * a.heads_kv;
  plan.at_tiles = plan.workspace.add(keys);
  plan.backward.at_q_tiles = plan.workspace.add(queries.tiles);
  plan.at_counters = plan.workspace.add(std::vector<int32_t>(2, 0));
  plan.at_offsets_q = plan.workspace.add(plan.q.offsets);
  plan.at_offsets_k = plan.workspace.add(plan.k.offsets);
  return std::move(queries.tiles);
}

void add_tiles(mxfa_plan& plan, Choice& choice) {
  const mxfa_attention& a = plan.attention;
  BackwardPlan& backward = plan.backward;
  const bool broadcast = a.broadcast_q != 0, split = choice.method == BackwardMethod::kSplit;
  const int32_t rows = int32_t(plan.kernel->tables.tile_rows);
  KeyTilePlan& keys = choice.keys;
  // The main kernel numbers pairs, twice, in 32 bits.
  const bool ahead =
      !split && plan.backward_options.deterministic == 0 && int64_t{a.batch} * a.heads_kv <= INT32_MAX / 4;
  const std::vector<QueryTile> listed = add_lists(plan, keys.tiles, ahead);
  const int64_t query_tiles = plan.k.capacity ? plan.lengths.params.q_tile_slots : int64_t(listed.size());

  // src/attention/attention_bwd_params.cuh: a sequence starts at offset / rows + its number.
  const int64_t total = plan.q.total();
  const auto padded = [&](int64_t of) {
    return broadcast ? (total + of - 1) / of : total / of + plan.q.batch();
  };
  const int64_t stat_tiles = broadcast ? query_tiles : padded(rows);
  const int64_t dq_units = padded(kDqUnitRows);
  const int64_t dq_element = plan.backward_options.dq_accumulate == MXFA_DQ_FP16 ? 2 : 4;
  const int64_t dq_bytes = a.heads_q * dq_units * kDqUnitRows * a.head_dim * dq_element;
  backward.dq_replicas = split ? choice.dq.run_count() : choose_replicas(plan, dq_bytes);
  const int64_t finish_tiles = broadcast ? (total + rows - 1) / rows : query_tiles;
  const int64_t limit = INT32_MAX / a.heads_q;
  // The kernel numbers units, and with turns panels of units, in 32 bits.
  const bool deterministic = plan.backward_options.deterministic != 0 && !split;
  const int64_t numbered = backward.dq_replicas * dq_units * (deterministic ? 2 : 1);
  if (query_tiles > limit || stat_tiles > limit || numbered > limit)
    invalid("offsets_q: {} tiles of {} rows and {} units of dQ times {} heads; the limit of a launch is {}",
            std::max(query_tiles, stat_tiles), rows, numbered, a.heads_q, INT32_MAX);
  backward.stat_tiles = int32_t(stat_tiles);
  backward.dq_units = int32_t(dq_units);
  // Without a tile of keys nothing is added: dQ is written as the sum over no replica.
  const bool sums = plan.grid > 0 && total > 0;
  if (!sums) backward.dq_replicas = 0;
  if (plan.k.capacity) backward.prepare_grid = backward.row_tiles = int32_t(query_tiles) * a.heads_q;
  if (!sums) backward.prepare_grid = 0;
  if (!split || broadcast) backward.finish_grid = uint32_t(finish_tiles) * a.heads_q;
  // Without broadcast_q a sequence without keys gets its zeros from the dQ kernel, with it from finish.
  if (split && (sums || !broadcast)) backward.dq_tile_count = int32_t(choice.dq.tiles.size());
  backward.dq_grid = uint32_t(std::min(backward.dq_tile_count, backward.max_ctas));

  if (backward.pairs > 0) {
    backward.row_warps = warps_of(plan, "rows") * int32_t(plan.grid);
    // The main kernel finishes most tiles; the CTAs walk over what it leaves.
    if (rows == kTransposedRows && !broadcast)
      backward.finish_grid = std::min(backward.finish_grid, 8 * uint32_t(backward.max_ctas));
    backward.at_rows = plan.workspace.add(list_row_tiles({.queries = listed,
                                                          .keys = keys.tiles,
                                                          .q = plan.q,
                                                          .pairs = backward.pairs,
                                                          .heads_q = a.heads_q,
                                                          .heads_kv = a.heads_kv,
                                                          .broadcast_q = broadcast,
                                                          .rows = rows,
                                                          .stat_tiles = backward.stat_tiles,
                                                          .dq_units = backward.dq_units,
                                                          .compute_warps = warps_of(plan, "compute")}));
  }
  if (split) {
    backward.at_dq_tiles = plan.workspace.add(choice.dq.tiles);
    backward.at_dq_runs = plan.workspace.add(choice.dq.runs);
  }
  if (a.dtype == MXFA_MXFP8) add_operands(plan);
  const uint64_t image_bytes = plan.workspace.bytes().size();
  // LSE and delta of a query row: two floats, or five bf16 (attention_bwd_statistics.cuh).
  const uint64_t row_statistics = a.head_dim == 64 ? 5 * 2 : 2 * 4;
  const uint64_t statistics_bytes = sums ? uint64_t(a.heads_q) * stat_tiles * rows * row_statistics : 0;
  const uint64_t accumulator_bytes = uint64_t(backward.dq_replicas) * dq_bytes;
  backward.at_statistics = plan.workspace.reserve(statistics_bytes);
  backward.at_dq_accumulator = plan.workspace.reserve(accumulator_bytes);
  const uint64_t turns_bytes =
      deterministic ? uint64_t(backward.dq_replicas) * a.heads_q * dq_units * 2 * sizeof(int32_t) : 0;
  backward.at_turns = plan.workspace.reserve(turns_bytes);
  const uint64_t progress_bytes =
      backward.pairs > 0 ? sizeof(int32_t) * (1 + 2 * (uint64_t(backward.pairs) + backward.row_warps)) : 0;
  backward.at_progress = plan.workspace.reserve(progress_bytes);

  const auto rounded = [](double value) { return std::round(value * 100) / 100; };
  plan.options["method"] = {{"chosen", split ? "split" : "one_kernel"},
                            {"one_kernel_clocks", std::round(choice.costs.one_kernel)},
                            {"split_clocks", std::round(choice.costs.split)}};
  if (!plan.k.capacity)
    plan.options["schedule"] = {{"makespan", rounded(keys.makespan)}, {"mean", rounded(keys.mean)}};
  if (split) plan.options["schedule"]["dq_makespan"] = rounded(choice.dq.makespan);
  plan.options["workspace"] = {
      {{"part", "offsets and tile lists"},
       {"bytes", image_bytes},
       {"formula",
        fmt::format("16 * {} tiles of keys, 8 * {} tiles of queries, {}offsets", plan.tile_count, query_tiles,
                    split                ? fmt::format("16 * {} of dQ, ", backward.dq_tile_count)
                    : backward.pairs > 0 ? fmt::format("28 * {} of queries and heads, ", backward.row_tiles)
                                         : "")}},
      {{"part", "LSE and delta"},
       {"bytes", statistics_bytes},
       {"formula",
        fmt::format("{} * {} rows * {} tiles * {} heads", row_statistics, rows, stat_tiles, a.heads_q)}},
      {{"part", "dQ accumulators"},
       {"bytes", accumulator_bytes},
       {"formula", fmt::format("{} * {} rows * {} channels * {} units * {} heads * {} copies", dq_element,
                               kDqUnitRows, a.head_dim, dq_units, a.heads_q, backward.dq_replicas)}}};
  if (progress_bytes > 0)
    plan.options["workspace"].push_back(
        {{"part", "progress"},
         {"bytes", progress_bytes},
         {"formula", fmt::format("4 * (1 + 2 * ({} sequences * {} heads + {} warps))", a.batch, a.heads_kv,
                                 backward.row_warps)}});
  if (a.dtype == MXFA_MXFP8)
    plan.options["workspace"].push_back(
        {{"part", "Q, K, V and dO in BF16"},
         {"bytes", plan.options["expanded_bytes"]},
         {"formula", fmt::format("2 bytes * {} channels * rows * heads of each", a.head_dim)}});
  if (deterministic)
    plan.options["workspace"].push_back(
        {{"part", "turns"},
         {"bytes", turns_bytes},
         {"formula",
          fmt::format("8 * {} units * {} heads * {} copies", dq_units, a.heads_q, backward.dq_replicas)}});
}

std::unique_ptr<mxfa_plan> plan_backward(mxfa_context& context, const mxfa_attention* given,
                                         const mxfa_attention_backward_options* given_options) {
  auto plan = std::make_unique<mxfa_plan>();
  plan->operation = mxfa_plan::Operation::kAttentionBackward;
  plan->context = &context;
  mxfa_attention& attention = plan->attention;
  attention = read_struct(given, default_attention(), "mxfa_attention");
  plan->backward_options.size = sizeof(mxfa_attention_backward_options);
  if (given_options)
    plan->backward_options =
        read_struct(given_options, plan->backward_options, "mxfa_attention_backward_options");
  check_attention(attention);
  check_backward_options(attention, plan->backward_options);
  const std::string& arch = context.driver.arch;
  check_backward_support(attention, plan->backward_options, arch);
  read_lengths(attention, *plan);
  if (plan->k.capacity && attention.dtype == MXFA_MXFP8)
    refuse_with_capacity("dtype is mxfp8 in attn_bwd", "choose dtype bf16");
  if (std::isnan(attention.scale)) attention.scale = float(1.0 / std::sqrt(double(attention.head_dim)));
  const auto [left, right] = effective_windows(attention, plan->q, plan->k);
  plan->window_left = left, plan->window_right = right;
  check_backward_windows(*plan);

  const auto resolve = [&](const char* kernel, const std::vector<ConfigField>& facts, const char* overrides) {
    return resolve_kernel_config(context.configs, kernel, arch, facts, overrides);
  };
  const bool dq_fp16 = plan->backward_options.dq_accumulate == MXFA_DQ_FP16;
  const bool mxfp8 = attention.dtype == MXFA_MXFP8;
  const auto main_config = [&](bool with_dq) {
    return resolve("attention_bwd_sm90",
                   {{"head_dim", attention.head_dim},
                    {"right_mask", right >= 0, true},
                    {"left_mask", left >= 0, true},
                    {"deterministic", with_dq && plan->backward_options.deterministic != 0, true},
                    {"dq_fp16", dq_fp16, true},
                    {"with_dq", with_dq, true},
                    {"mxfp8", mxfp8, true},
                    {"square_ds", has_square_ds(attention), true},
                    {"short_walk", walks_are_short(*plan), true, ConfigField::Use::kChoiceOnly}},
                   attention.kernel);
  };
  KernelConfig config = main_config(true);
  const KernelConfig dq_config = resolve(
      "attention_bwd_dq_sm90",
      {{"head_dim", attention.head_dim}, {"right_mask", right >= 0, true}, {"left_mask", left >= 0, true}},
      dq_overrides(config).c_str());
  plan->backward.max_ctas = resident_ctas(context.driver, config);
  const KernelConfig without_dq = main_config(false);
  Choice choice = choose_method(*plan, BackwardMethod(config.at("method")), config, without_dq, dq_config);
  const bool split = choice.method == BackwardMethod::kSplit;
  if (split) {
    config = without_dq;
    for (const char* field : kDqFields) config.set(kDqPrefix + std::string(field), dq_config.at(field));
  }
  config.set("method", int32_t(choice.method));
  std::vector<ConfigField> beside{
      {"head_dim", attention.head_dim}, {"tile_m", int32_t(config.at("tile_m"))}, {"dq_fp16", dq_fp16, true}};
  const CurrentContext current(context);
  const auto load = [&](const KernelConfig& of) {
    return &context.kernel(of, sizeof(abi::AttentionBackwardParams));
  };
  plan->config = config;
  plan->kernel = load(config);
  if (split) plan->backward.dq = &context.kernel(dq_config, sizeof(abi::AttentionBackwardDqParams));
  if (!split || attention.broadcast_q)
    plan->backward.finish = load(resolve("attention_bwd_finish", beside, nullptr));
  beside.push_back({"mxfp8", mxfp8, true});
  plan->backward.prepare = load(resolve("attention_bwd_prepare", beside, nullptr));
  plan->options = resolved_options(*plan);
  add_tiles(*plan, choice);
  attention.offsets_q = attention.offsets_k = nullptr;  // the caller's; the plan keeps copies
  attention.kernel = nullptr;
  return plan;
}

void check_operands(const mxfa_plan& plan, const mxfa_attention_backward_args& args) {
  const mxfa_attention& a = plan.attention;
  const RowsAre rows_are = rows_are_of(plan);
  const bool mxfp8 = a.dtype == MXFA_MXFP8;
  // scale_rows: of an MXFP8 operand, -1 where the tensor is BF16.
  const int32_t scale_rows_q = mxfp8 ? plan.q.scale_rows() : -1,
                scale_rows_k = mxfp8 ? plan.k.scale_rows() : -1;
  const struct {
    const mxfa_tensor& tensor;
    const char *name, *scales, *rows_are;
    int32_t heads, rows, scale_rows;
  } operands[] = {{args.q, "Q", "Q.scales", rows_are.q, a.heads_q, plan.q.total(), scale_rows_q},
                  {args.k, "K", "K.scales", rows_are.k, a.heads_kv, plan.k.total(), scale_rows_k},
                  {args.v, "V", "V.scales", rows_are.k, a.heads_kv, plan.k.total(), scale_rows_k},
                  {args.o, "O", "O.scales", rows_are.o, a.heads_q, plan.rows_o, -1},
                  {args.d_o, "dO", "dO.scales", rows_are.o, a.heads_q, plan.rows_o,
                   mxfp8 ? plan.backward.scale_rows_o : -1},
                  {args.dq, "dQ", "dQ.scales", rows_are.q, a.heads_q, plan.q.total(), -1},
                  {args.dk, "dK", "dK.scales", rows_are.k, a.heads_kv, plan.k.total(), -1},
                  {args.dv, "dV", "dV.scales", rows_are.k, a.heads_kv, plan.k.total(), -1}};
  for (const auto& o : operands) {
    const bool scaled = o.scale_rows >= 0;
    check_tensor(o.tensor, {o.name, o.rows_are, o.heads, a.head_dim, scaled ? 1 : 2, o.rows});
    if (scaled) {
      check_scales(o.tensor.scales, o.name, MXFA_SCALE_ALONG_D, o.heads, o.scale_rows);
    } else {
      refuse_scales(o.tensor.scales, o.scales, mxfp8 ? "it is bf16" : "dtype is bf16");
    }
  }
  if (plan.rows_o > 0) check_aligned(args.lse, 4, "lse");
  check_offsets_pointers(plan, args.offsets_q, args.offsets_k);
}

void launch_backward(mxfa_plan& plan, const mxfa_attention_backward_args& args, CUstream stream) {
  const mxfa_attention& a = plan.attention;
  const BackwardPlan& backward = plan.backward;
  const Driver& driver = plan.context->driver;
  check_operands(plan, args);
  if (plan.grid == 0 && backward.finish_grid == 0 && backward.dq_grid == 0)
    return;  // no query and no key anywhere: nothing to write
  const uint64_t workspace = plan.require_workspace(args.workspace);

  const auto address = [](const void* pointer) { return reinterpret_cast<uint64_t>(pointer); };
  const auto map = [&](const mxfa_tensor& tensor, int32_t heads, const char* name,
                       int32_t box_rows = kBoxRows) {
    // A tensor without rows may be null, which a tensor map may not hold; nothing is loaded through it then.
    const uint64_t data = tensor.data ? address(tensor.data) : workspace;
    const int64_t row_stride = tensor.data ? tensor.row_stride : int64_t{heads} * a.head_dim;
    return encode_tensor_map(driver,
                             ragged_request({data, a.head_dim, heads, row_stride * 2, true, box_rows}), name);
  };
  abi::AttentionBackwardParams params{};
  const bool mxfp8 = a.dtype == MXFA_MXFP8;
  const auto operand = [&](size_t index, const mxfa_tensor& given) {
    return mxfp8 ? expanded_operand(plan, index, workspace) : given;
  };
  const mxfa_tensor d_o = operand(3, args.d_o);
  const auto rows = int32_t(plan.kernel->tables.tile_rows), q_box_rows = rows % kBoxRows ? rows : kBoxRows;
  params.q = map(operand(0, args.q), a.heads_q, "Q", q_box_rows);
  params.k = map(operand(1, args.k), a.heads_kv, "K");
  params.v = map(operand(2, args.v), a.heads_kv, "V");
  params.d_out = map(d_o, a.heads_q, "dO", q_box_rows);
  params.o = address(args.o.data), params.stride_o = args.o.row_stride;
  params.d_out_rows = address(d_o.data), params.stride_d_out = d_o.row_stride;
  params.lse = address(args.lse);
  params.dq = address(args.dq.data), params.stride_dq = args.dq.row_stride;
  params.dk = address(args.dk.data), params.stride_dk = args.dk.row_stride;
  params.dv = address(args.dv.data), params.stride_dv = args.dv.row_stride;
  params.statistics = workspace + backward.at_statistics;
  params.dq_accumulator = workspace + backward.at_dq_accumulator;
  if (plan.backward_options.deterministic && !backward.dq) params.turns = workspace + backward.at_turns;
  params.tiles = workspace + plan.at_tiles;
  params.q_tiles = workspace + backward.at_q_tiles;
  params.offsets_q = workspace + plan.at_offsets_q;
  params.offsets_k = workspace + plan.at_offsets_k;
  params.counters = workspace + plan.at_counters;
  const bool ahead =
      backward.pairs > 0 && are_short({params.stride_o, params.stride_d_out, params.stride_dq});
  if (ahead)
    params.progress = workspace + backward.at_progress, params.row_list = workspace + backward.at_rows;
  params.row_tiles = backward.row_tiles, params.pairs = backward.pairs;
  params.row_warps = backward.row_warps;
  params.prepared_tiles = int32_t(ahead ? backward.prepare_grid : backward.row_tiles);
  params.rows_o = plan.rows_o;
  params.tile_count = int32_t(plan.tile_count);
  params.heads_q = a.heads_q, params.heads_kv = a.heads_kv;
  params.stat_tiles = backward.stat_tiles;
  params.dq_units = backward.dq_units;
  params.dq_replicas = backward.dq_replicas;
  // MXFP8: dQ and dK are 256 times what they should be until they are scaled (attention_bwd_mx.cuh).
  const int exponent = mxfp8 ? 8 : 0, dq_scale_log2 = plan.backward_options.dq_scale_log2;
  const bool dq_fp16 = plan.backward_options.dq_accumulate == MXFA_DQ_FP16;
  params.scale = std::ldexp(a.scale, -exponent);
  params.scale_log2 = std::max(scale_log2_of(a.scale), kSmallestScale);
  params.inverse_scale_log2 = 1 / params.scale_log2;
  params.dq_scale = std::ldexp(1.0f, dq_fp16 ? dq_scale_log2 - exponent : 0);
  params.dq_unscale = std::ldexp(1.0f, dq_fp16 ? exponent - dq_scale_log2 : 0);
  params.window_left = plan.window_left, params.window_right = plan.window_right;
  params.broadcast_q = a.broadcast_q != 0;

  abi::AttentionBackwardDqParams dq_params{};
  if (backward.dq) {
    const auto tile_n = int32_t(backward.dq->config.at("tile_n"));
    dq_params.q = params.q, dq_params.d_out = params.d_out;
    dq_params.dq = map(args.dq, a.heads_q, "dQ");
    dq_params.k = map(args.k, a.heads_kv, "K", tile_n);
    dq_params.v = map(args.v, a.heads_kv, "V", tile_n);
    dq_params.statistics = params.statistics, dq_params.dq_accumulator = params.dq_accumulator;
    dq_params.tiles = workspace + backward.at_dq_tiles;
    if (a.broadcast_q) dq_params.runs = workspace + backward.at_dq_runs;
    dq_params.offsets_q = params.offsets_q, dq_params.offsets_k = params.offsets_k;
    dq_params.counters = params.counters;
    dq_params.tile_count = backward.dq_tile_count;
    dq_params.heads_q = a.heads_q, dq_params.heads_kv = a.heads_kv;
    dq_params.stat_tiles = backward.stat_tiles, dq_params.dq_units = backward.dq_units;
    dq_params.scale = params.scale, dq_params.scale_log2 = params.scale_log2;
    dq_params.window_left = plan.window_left, dq_params.window_right = plan.window_right;
  }

  const CurrentContext current(*plan.context);
  device_work(*plan.context, [&] {
    if (plan.k.capacity) launch_lengths(plan, workspace, args.offsets_q, args.offsets_k, stream);
    launch_expand(plan, {&args.q, &args.k, &args.v, &args.d_o}, workspace, stream);
    if (backward.prepare_grid > 0) {
      abi::AttentionBackwardParams prepare = params;
      if (backward.dq) prepare.dq_accumulator = 0;  // nothing is added to it
      launch_kernel(driver, *backward.prepare, uint32_t(params.prepared_tiles), &prepare, stream);
    }
    if (backward.dq_grid > 0) launch_kernel(driver, *backward.dq, backward.dq_grid, &dq_params, stream);
    if (plan.grid > 0) launch_kernel(driver, *plan.kernel, plan.grid, &params, stream);
    if (backward.finish_grid > 0)
      launch_kernel(driver, *backward.finish, backward.finish_grid, &params, stream);
  });
}

}  // namespace
}  // namespace mxfa

extern "C" {

mxfa_status mxfa_plan_attention_backward(mxfa_context* context, const mxfa_attention* attention,
                                         const mxfa_attention_backward_options* options, mxfa_plan** plan) {
  return mxfa::entry_point(context, [&] {
    if (!plan) mxfa::invalid("plan is null");
    *plan = nullptr;
    *plan = mxfa::plan_backward(*context, attention, options).release();
  });
}

mxfa_status mxfa_attention_backward(mxfa_plan* plan, const mxfa_attention_backward_args* args, void* stream) {
  if (!plan) return MXFA_ERROR_INVALID;
  return mxfa::entry_point(plan->context, [&] {
    if (plan->operation != mxfa_plan::Operation::kAttentionBackward)
      mxfa::invalid("this plan is not an attention_backward plan");
    const auto known =
        mxfa::read_struct(args, mxfa_attention_backward_args{}, "mxfa_attention_backward_args");
    mxfa::launch_backward(*plan, known, static_cast<CUstream>(stream));
  });
}

}  // extern "C"
