#include "host/attention_lengths.hpp"

#include <algorithm>

namespace mxfa {
namespace {

// What attention_lengths leaves in the workspace.
struct LengthsError {
  enum Kind : int32_t { kNone, kFirstOffset, kDecreasing, kTooLong, kTotal } kind;
  int32_t of_keys, index, value;
  int32_t before;  // the offset in front of `value`
  int32_t unused[3];
};
static_assert(sizeof(LengthsError) == 32);

Sequences read_limits(const char* suffix, int32_t batch, int32_t total, int32_t longest) {
  if (total < 1 || total == INT32_MAX)
    invalid("max_total_{} is {}; a capacity has 1 to {} tokens", suffix, total, INT32_MAX - 1);
  if (longest < 0 || longest > total)
    invalid("max_length_{} is {}; it must be 0 (max_total_{}) to max_total_{} = {}", suffix, longest, suffix,
            suffix, total);
  if (longest == 0) longest = total;
  // The ragged tensor maps count rows of a sequence down from kBig = 2^30.
  constexpr int32_t kLongest = 1 << 30;
  if (longest > kLongest)
    invalid("max_length_{} is {}; the limit of a sequence is {}", suffix, longest, kLongest);
  Sequences sequences;
  sequences.capacity = {batch, total, longest};
  if (int64_t{total} + int64_t{kScaleTileRows} * std::min(batch, total) > INT32_MAX)
    invalid("max_total_{} is {}; with batch {} the sequences may take more than {} rows, each padded to {}",
            suffix, total, batch, INT32_MAX, kScaleTileRows);
  return sequences;
}

// The most tiles of `rows` that lengths within the capacity can have; a sequence's begin at the slot
// offset / rows + its number.
int64_t slots_of(const Sequences& s, int32_t batch, bool broadcast, int32_t rows) {
  if (broadcast) return batch * ((int64_t{s.longest()} + rows - 1) / rows);
  return int64_t{s.total()} / rows + batch;
}

std::string sentence(const LengthsError& e, const mxfa_plan& plan) {
  const Sequences& s = e.of_keys ? plan.k : plan.q;
  const char* suffix = e.of_keys ? "k" : "q";
  switch (e.kind) {
    case LengthsError::kFirstOffset:
      return fmt::format("index 0 is {}; offsets begin with 0", e.value);
    case LengthsError::kDecreasing:
      return fmt::format("index {} is {}, after {}; offsets must not decrease", e.index, e.value, e.before);
    case LengthsError::kTooLong:
      return fmt::format("sequence {} has {} tokens; the plan is for max_length_{} = {}", e.index, e.value,
                         suffix, s.longest());
    default:
      return fmt::format("index {} is {}; the plan is for max_total_{} = {}", e.index, e.value, suffix,
                         s.total());
  }
}

}  // namespace

bool has_capacity(const mxfa_attention& a) {
  return a.max_total_q || a.max_total_k || a.max_length_q || a.max_length_k;
}

void read_capacity(const mxfa_attention& a, mxfa_plan& plan) {
  if (a.offsets_q || a.offsets_k)
    invalid(
        "{} is set, and so is max_total or max_length: lengths are known to the host or lie in device "
        "memory; "
        "with a capacity the offsets belong to the launch",
        a.offsets_q ? "offsets_q" : "offsets_k");
  if (a.batch < 1) invalid("batch is {}; a capacity has at least 1 sequence", a.batch);
  plan.q = read_limits("q", a.broadcast_q ? 1 : a.batch, a.max_total_q, a.max_length_q);
  plan.k = read_limits("k", a.batch, a.max_total_k, a.max_length_k);
}

void refuse_with_capacity(const std::string& what, const char* remedy) {
  invalid(
      "{}, but the lengths lie in device memory (max_total_q, max_total_k), which that is not made for; {}, "
      "or plan with offsets_q and offsets_k",
      what, remedy);
}

void add_device_lengths(mxfa_plan& plan, const DeviceTiles& tiles) {
  mxfa_context& context = *plan.context;
  const mxfa_attention& a = plan.attention;
  const bool broadcast = a.broadcast_q != 0;
  const Sequences& own = tiles.of_keys ? plan.k : plan.q;
  const int64_t slots = slots_of(own, a.batch, broadcast && !tiles.of_keys, tiles.tile_rows);
  const int64_t q_slots =
      tiles.q_tile_rows ? slots_of(plan.q, a.batch, broadcast, tiles.q_tile_rows) : int64_t{0};
  // The kernels add grids to the numbers of tiles.
  const int64_t limit = INT32_MAX - 4 * int64_t{tiles.max_ctas};
  if (slots > limit / tiles.heads || q_slots > limit / tiles.heads)
    invalid("max_total_{}: up to {} tiles of {} rows times {} heads; the limit of a launch is {}",
            tiles.of_keys ? "k" : "q", std::max(slots, q_slots), tiles.tile_rows, tiles.heads, limit);
  const int64_t longest_tiles = (int64_t{own.longest()} + tiles.tile_rows - 1) / tiles.tile_rows;
  const int64_t count = std::min(slots, a.batch * longest_tiles) * tiles.heads;
  if (tiles.in_order && (broadcast ? slots : longest_tiles) >= INT32_MAX / 256)
    invalid("deterministic: more than {} tiles of keys may add to one dQ", INT32_MAX / 256);
  plan.grid = uint32_t(std::min<int64_t>(count, tiles.max_ctas));
  plan.tile_count = uint32_t(count);
  plan.slot_count =
      tiles.zigzag ? (plan.tile_count + plan.grid - 1) / plan.grid * plan.grid : plan.tile_count;

  LengthsPlan& lengths = plan.lengths;
  lengths.kernel = &context.kernel(
      resolve_kernel_config(context.configs, "attention_lengths", context.driver.arch, {}, nullptr),
      sizeof(abi::AttentionLengthsParams));
  lengths.grid = uint32_t(std::min(tiles.heads, tiles.max_ctas));
  lengths.at_error = plan.workspace.add(std::vector<int32_t>(sizeof(LengthsError) / sizeof(int32_t), 0));
  plan.at_counters = plan.workspace.add(std::vector<int32_t>(2, 0));
  const auto offsets = [&](const Sequences& s) {
    return plan.workspace.reserve((uint64_t(s.batch()) + 1) * sizeof(int32_t));
  };
  plan.at_offsets_q = offsets(plan.q), plan.at_offsets_k = offsets(plan.k);
  if (a.dtype == MXFA_MXFP8)
    plan.at_scale_offsets_q = offsets(plan.q), plan.at_scale_offsets_k = offsets(plan.k);
  plan.at_tiles = plan.workspace.reserve(uint64_t{plan.slot_count} * 4 * sizeof(int32_t));
  if (tiles.q_tile_rows)
    plan.backward.at_q_tiles = plan.workspace.reserve(uint64_t(q_slots) * 2 * sizeof(int32_t));

  abi::AttentionLengthsParams& p = lengths.params;
  p.batch = a.batch, p.broadcast_q = broadcast;
  p.max_total_q = plan.q.total(), p.max_total_k = plan.k.total();
  p.max_length_q = plan.q.longest(), p.max_length_k = plan.k.longest();
  p.of_keys = tiles.of_keys, p.heads = tiles.heads;
  p.tile_rows = tiles.tile_rows, p.unit_rows = tiles.unit_rows, p.block_rows = tiles.block_rows;
  // Key j is seen by the queries from j - (len_k - len_q) - right to j - (len_k - len_q) + left.
  p.window_left = tiles.of_keys ? plan.window_right : plan.window_left;
  p.window_right = tiles.of_keys ? plan.window_left : plan.window_right;
  p.in_order = tiles.in_order, p.zigzag = tiles.zigzag, p.grid = int32_t(plan.grid);
  p.tile_slots = int32_t(plan.slot_count);
  p.q_tile_rows = tiles.q_tile_rows, p.q_tile_slots = int32_t(q_slots);
}

void check_offsets_pointers(const mxfa_plan& plan, const int32_t* offsets_q, const int32_t* offsets_k) {
  for (const auto& [offsets, name] :
       {std::pair{offsets_q, "args.offsets_q"}, {offsets_k, "args.offsets_k"}}) {
    if (plan.k.capacity)
      check_aligned(offsets, sizeof(int32_t), name);
    else if (offsets)
      invalid(
          "{} is set, but the plan was made for lengths that the host knows; set it to null, or plan with "
          "max_total_q and max_total_k",
          name);
  }
}

void launch_lengths(const mxfa_plan& plan, uint64_t workspace, const int32_t* offsets_q,
                    const int32_t* offsets_k, CUstream stream) {
  abi::AttentionLengthsParams params = plan.lengths.params;
  params.offsets_q = reinterpret_cast<uint64_t>(offsets_q);
  params.offsets_k = reinterpret_cast<uint64_t>(offsets_k);
  params.checked_q = workspace + plan.at_offsets_q;
  params.checked_k = workspace + plan.at_offsets_k;
  if (plan.attention.dtype == MXFA_MXFP8) {
    params.scale_offsets_q = workspace + plan.at_scale_offsets_q;
    params.scale_offsets_k = workspace + plan.at_scale_offsets_k;
  }
  params.tiles = workspace + plan.at_tiles;
  if (params.q_tile_slots) params.q_tiles = workspace + plan.backward.at_q_tiles;
  params.error = workspace + plan.lengths.at_error;
  launch_kernel(plan.context->driver, *plan.lengths.kernel, plan.lengths.grid, &params, stream);
}

void check_device_lengths(const mxfa_plan& plan, const void* given, CUstream stream) {
  if (!plan.k.capacity) return;
  const uint64_t at = plan.require_workspace(given) + plan.lengths.at_error;
  const Driver& driver = plan.context->driver;
  const CurrentContext current(*plan.context);
  LengthsError error{};
  device_work(*plan.context, [&] {
    driver.check(driver.cuMemcpyDtoHAsync_v2(&error, at, sizeof error, stream),
                 "reading what was wrong with lengths");
    driver.check(driver.cuStreamSynchronize(stream),
                 "waiting for launches whose lengths lie in device memory");
    if (error.kind != LengthsError::kNone)
      driver.check(driver.cuMemsetD8Async(at, 0, sizeof error, stream),
                   "forgetting what was wrong with lengths");
  });
  if (error.kind != LengthsError::kNone)
    invalid(
        "offsets_{} in device memory: {}. Launches with such offsets since the last check have computed "
        "nothing "
        "and left their outputs as they were; this is the first of them. Repair the offsets or plan for more",
        error.of_keys ? "k" : "q", sentence(error, plan));
}

}  // namespace mxfa
