// What the attention operations share on the host: the checks of the problem that make no sense on any
// device, and how masks and scale reach the kernels.
#pragma once

#include <nlohmann/json.hpp>

#include "host/plan.hpp"

namespace mxfa {

mxfa_attention default_attention();

// Throws mxfa::Error.
void check_attention(const mxfa_attention& attention);

// Reads and checks the lengths of `attention` into the plan: q, k, rows_o.
void read_lengths(const mxfa_attention& attention, mxfa_plan& plan);

// Where the rows of Q, K and O come from, for the messages of check_tensor.
struct RowsAre {
  const char *q, *k, *o;
};
RowsAre rows_are_of(const mxfa_plan& plan);

// Windows as the kernels take them: causal is a right window of 0, and a window that no sequence can
// feel is none, so that it costs no mask.
struct Windows {
  int32_t left, right;
};
Windows effective_windows(const mxfa_attention& attention, const Sequences& q, const Sequences& k);

// log2(e) because the kernels' exponentials are base 2.  They need a positive, normal number (0 times the
// -inf of a masked score would be NaN, and a subnormal one is flushed to 0).  The smallest normal one stands
// for scale 0: scores that differ by less than 2^100 then differ by less than 2^-26 as exponents, every
// exponential is 1 to FP32 precision, and the result is the uniform average over the visible keys.
float scale_log2_of(float scale);

// CTAs of a persistent kernel: one an SM, or fewer at the request of kernel.max_ctas.
int32_t resident_ctas(const Driver& driver, const KernelConfig& config);

// The options every attention has, as resolved, under the operation's name.
nlohmann::ordered_json resolved_attention(const char* op, const mxfa_plan& plan);
// Those of MXFP8.
nlohmann::ordered_json resolved_mxfp8(const mxfa_plan& plan);

}  // namespace mxfa
