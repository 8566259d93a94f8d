#include "host/attention_backward_support.hpp"

#include <algorithm>

namespace mxfa {

void check_backward_options(const mxfa_attention& a, const mxfa_attention_backward_options& o) {
  if (o.dq_accumulate != MXFA_DQ_FP32 && o.dq_accumulate != MXFA_DQ_FP16)
    invalid("dq_accumulate is {}; it must be MXFA_DQ_FP32 (0) or MXFA_DQ_FP16 (1)", o.dq_accumulate);
  if (o.dq_scale_log2 < -30 || o.dq_scale_log2 > 30)
    invalid("dq_scale_log2 is {}; it must be from -30 to 30", o.dq_scale_log2);
  if (o.dq_accumulate == MXFA_DQ_FP32 && o.dq_scale_log2 != 0)
    invalid("dq_scale_log2 is {}; it belongs to dq_accumulate fp16 and must be 0 with fp32", o.dq_scale_log2);
  if (o.deterministic != 0 && o.deterministic != 1)
    invalid("deterministic is {}; it must be 0 or 1", o.deterministic);
  if (o.dkv_output != MXFA_BF16 && o.dkv_output != MXFA_MXFP8)
    invalid("dkv_output is {}; it must be MXFA_BF16 (0) or MXFA_MXFP8 (1)", o.dkv_output);
  if (a.dtype == MXFA_BF16 && o.dkv_output == MXFA_MXFP8)
    invalid("dkv_output mxfp8 belongs to dtype mxfp8; with dtype bf16 it must be bf16");
}

void check_backward_support(const mxfa_attention& a, const mxfa_attention_backward_options& o,
                            const std::string& arch) {
  if (arch != "sm_90a")
    invalid(
        "attn_bwd has no {} kernel; it has sm_90a. Run with --device emulator:h200 "
        "(MXFA_DEVICE=emulator:h200) or on a Hopper GPU",
        arch);
  if (a.scale > 0 && a.scale < kSmallestScale)
    invalid("scale is {}; attn_bwd takes 0, or {} (2^-114) and more", a.scale, kSmallestScale);
  if (a.dtype != MXFA_MXFP8) return;
  if (a.p_scale == MXFA_P_DYNAMIC)
    invalid("p_scale is dynamic, but attn_bwd rounds P with the constant scale 2^-8; use p_scale constant");
  if (a.block == MXFA_BLOCK_32X32 && a.scaling_mode == MXFA_FLOOR)
    invalid(
        "scaling_mode is floor, but attn_bwd with block 32x32 rounds dS with rceil; use scaling_mode rceil, "
        "or block 1x32");
  if (o.dkv_output == MXFA_MXFP8)
    invalid(
        "dkv_output mxfp8: attn_bwd on {} writes dK and dV in bf16; use dkv_output bf16, and mxfa_quantize "
        "after it",
        arch);
}

bool has_square_ds(const mxfa_attention& a) { return a.dtype == MXFA_MXFP8 && a.block == MXFA_BLOCK_32X32; }

void check_backward_windows(const mxfa_plan& plan) {
  const int64_t window = std::max(plan.window_left, plan.window_right);
  if (window < 0) return;
  const int64_t sum = int64_t{plan.q.longest()} + plan.k.longest() + window + 256;
  if (sum > INT32_MAX)
    invalid(
        "causal or window: the longest sequences have {} queries and {} keys; with a window of {} their "
        "sum must stay below {}",
        plan.q.longest(), plan.k.longest(), window, INT32_MAX - 256);
}

}  // namespace mxfa
