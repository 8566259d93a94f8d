#include "host/attention_options.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "host/attention_lengths.hpp"

namespace mxfa {
namespace {

void check_one_of(int32_t value, std::initializer_list<int32_t> allowed, const char* name,
                  const char* spelled) {
  if (std::find(allowed.begin(), allowed.end(), value) == allowed.end())
    invalid("{} is {}; it must be {}", name, value, spelled);
}

}  // namespace

mxfa_attention default_attention() {
  mxfa_attention attention{};
  attention.size = sizeof(attention);
  attention.window_left = attention.window_right = -1;
  attention.scale = std::numeric_limits<float>::quiet_NaN();
  return attention;
}

void check_attention(const mxfa_attention& a) {
  check_one_of(a.dtype, {MXFA_BF16, MXFA_MXFP8}, "dtype", "MXFA_BF16 (0) or MXFA_MXFP8 (1)");
  check_one_of(a.head_dim, {64, 96, 128}, "head_dim", "64, 96 or 128");
  if (a.heads_q <= 0) invalid("heads_q is {}; it must be at least 1", a.heads_q);
  if (a.heads_kv <= 0) invalid("heads_kv is {}; it must be at least 1", a.heads_kv);
  if (a.heads_q % a.heads_kv != 0)
    invalid("heads_q {} is not a multiple of heads_kv {}", a.heads_q, a.heads_kv);
  for (const auto& [value, name] :
       {std::pair{a.window_left, "window_left"}, std::pair{a.window_right, "window_right"}})
    if (value < -1) invalid("window: {} is {}; it must be -1 (unbounded) or more", name, value);
  // The kernels take the row maximum of the unscaled scores, which a negative scale would turn into a
  // minimum.
  if (!std::isnan(a.scale) && !(std::isfinite(a.scale) && a.scale >= 0))
    invalid("scale is {}; it must be finite and not negative, or NaN for 1/sqrt(head_dim)", a.scale);
  check_one_of(a.scaling_mode, {MXFA_RCEIL, MXFA_FLOOR}, "scaling_mode", "MXFA_RCEIL (0) or MXFA_FLOOR (1)");
  check_one_of(a.block, {MXFA_BLOCK_1X32, MXFA_BLOCK_32X32}, "block",
               "MXFA_BLOCK_1X32 (0) or MXFA_BLOCK_32X32 (1)");
  check_one_of(a.p_scale, {MXFA_P_CONSTANT, MXFA_P_DYNAMIC}, "p_scale",
               "MXFA_P_CONSTANT (0) or MXFA_P_DYNAMIC (1)");
  if (a.dtype == MXFA_BF16 && (a.scaling_mode || a.block || a.p_scale))
    invalid("scaling_mode {}, block {} and p_scale {} belong to MXFP8; with dtype bf16 all must be 0",
            a.scaling_mode, a.block, a.p_scale);
}

void read_lengths(const mxfa_attention& a, mxfa_plan& plan) {
  const bool broadcast = a.broadcast_q != 0;
  if (broadcast && a.batch < 0) invalid("batch is {}; it must be at least 0", a.batch);
  if (has_capacity(a)) {
    read_capacity(a, plan);
  } else {
    plan.q = read_sequences("offsets_q", broadcast ? 1 : a.batch, a.offsets_q);
    plan.k = read_sequences("offsets_k", a.batch, a.offsets_k);
  }
  const int64_t rows_o = broadcast ? int64_t{a.batch} * plan.q.total() : plan.q.total();
  if (rows_o >= INT32_MAX)
    invalid("broadcast_q: batch {} times {} queries are {} rows of O; the limit is {}", a.batch,
            plan.q.total(), rows_o, INT32_MAX - 1);
  plan.rows_o = int32_t(rows_o);
}

RowsAre rows_are_of(const mxfa_plan& plan) {
  const bool broadcast = plan.attention.broadcast_q != 0;
  if (plan.k.capacity)
    return {"max_total_q", "max_total_k", broadcast ? "broadcast_q: batch times max_total_q" : "max_total_q"};
  static constexpr char kLastQ[] = "offsets_q: the last offset";
  return {kLastQ, "offsets_k: the last offset",
          broadcast ? "broadcast_q: batch times the last offset of offsets_q" : kLastQ};
}

Windows effective_windows(const mxfa_attention& a, const Sequences& q, const Sequences& k) {
  Windows windows{a.window_left, a.causal ? 0 : a.window_right};
  const int64_t longest_q = q.longest(), longest_k = k.longest();
  // Query i sees keys from i + (len_k - len_q) - left to i + (len_k - len_q) + right: all of them from query
  // 0 on if right >= len_q - 1, up to query len_q - 1 if left >= len_k - 1.
  if (windows.right >= longest_q - 1) windows.right = -1;
  if (windows.left >= longest_k - 1) windows.left = -1;
  if (windows.left < 0 && windows.right < 0) return windows;
  // The kernel adds row, len_k and right in 32 bits; a tile may reach 255 rows past the end.
  const int64_t sum = longest_q + longest_k + std::max(windows.right, 0) + 256;
  if (sum > INT32_MAX)
    invalid(
        "causal or window: the longest sequences have {} queries and {} keys; with a right window of {} "
        "their "
        "sum must stay below {}",
        longest_q, longest_k, windows.right, INT32_MAX - 256);
  return windows;
}

float scale_log2_of(float scale) {
  return std::max(float(double(scale) * 1.4426950408889634), std::numeric_limits<float>::min());
}

int32_t resident_ctas(const Driver& driver, const KernelConfig& config) {
  const int32_t multiprocessors = driver.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  const int32_t max_ctas = int32_t(config.at("max_ctas"));
  return max_ctas > 0 ? std::min(max_ctas, multiprocessors) : multiprocessors;
}

nlohmann::ordered_json resolved_attention(const char* op, const mxfa_plan& plan) {
  const mxfa_attention& a = plan.attention;
  nlohmann::ordered_json options = {
      {"op", op},
      {"dtype", a.dtype == MXFA_MXFP8 ? "mxfp8" : "bf16"},
      {"head_dim", a.head_dim},
      {"heads_q", a.heads_q},
      {"heads_kv", a.heads_kv},
      {"batch", a.batch},
      {"total_q", plan.q.total()},
      {"total_k", plan.k.total()},
      {"longest_q", plan.q.longest()},
      {"longest_k", plan.k.longest()},
      {"rows_o", plan.rows_o},
      {"broadcast_q", a.broadcast_q != 0},
      {"causal", a.causal != 0},
      {"window", {a.window_left, a.window_right}},
      {"scale", a.scale},
  };
  // total, longest and rows_o are then what they may be.
  if (plan.k.capacity) options["lengths"] = "device";
  return options;
}

nlohmann::ordered_json resolved_mxfp8(const mxfa_plan& plan) {
  const mxfa_attention& a = plan.attention;
  return {{"scaling_mode", a.scaling_mode == MXFA_FLOOR ? "floor" : "rceil"},
          {"block", a.block == MXFA_BLOCK_32X32 ? "32x32" : "1x32"},
          {"p_scale", a.p_scale == MXFA_P_DYNAMIC ? "dynamic" : "constant"},
          {"scale_rows_q", plan.q.scale_rows()},
          {"scale_rows_k", plan.k.scale_rows()}};
}

}  // namespace mxfa
