// What attn_bwd can be asked for: everything else is refused by name (mxfa::Error).
#pragma once

#include <string>

#include "host/plan.hpp"

namespace mxfa {

void check_backward_options(const mxfa_attention& a, const mxfa_attention_backward_options& o);

// The smallest softmax scale but 0, whose place it takes: LSE is divided by it, and the quotient is to be
// finite (src/attention/attention_bwd_statistics.cuh).
inline constexpr float kSmallestScale = 0x1p-114f;

// What the device has no kernel for.
void check_backward_support(const mxfa_attention& a, const mxfa_attention_backward_options& o,
                            const std::string& arch);

// dS is rounded to MXFP8 in square blocks, else to BF16.
bool has_square_ds(const mxfa_attention& a);

// The main kernel adds rows, lengths and windows in 32 bits.
void check_backward_windows(const mxfa_plan& plan);

}  // namespace mxfa
