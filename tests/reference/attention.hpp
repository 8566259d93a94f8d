// Softmax attention over jagged sequences in double precision, from its definition; and the same with P
// rounded the way a kernel rounds it, with a bound on what the arithmetic of a kernel may add.
//
// With d = len_k - len_q of the sequence, query i sees key j iff i + d - window_left <= j <= i + d +
// window_right (-1: no limit) and, when causal, j <= i + d.  A query that sees no key has O = +0 and
// LSE = -infinity.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace mxfa::reference {

struct AttentionProblem {
  int batch = 0, heads_q = 0, heads_kv = 0, head_dim = 0;
  std::vector<int32_t> offsets_q, offsets_k;  // batch + 1; offsets_q has 2 entries with broadcast_q
  bool broadcast_q = false;                   // one Q for every sequence; O has batch * offsets_q[1] rows
  bool causal = false;
  int window_left = -1, window_right = -1;
  double scale = 0.0;  // of the scores; 1/sqrt(head_dim) is the caller's to write

  int64_t rows_q() const { return offsets_q.back(); }
  int64_t rows_k() const { return offsets_k.back(); }
  int64_t rows_o() const { return broadcast_q ? int64_t{batch} * offsets_q.back() : rows_q(); }
  int len_q(int b) const { return broadcast_q ? offsets_q[1] : offsets_q[b + 1] - offsets_q[b]; }
  int len_k(int b) const { return offsets_k[b + 1] - offsets_k[b]; }
  int64_t first_q(int b) const { return broadcast_q ? 0 : offsets_q[b]; }
  int64_t first_o(int b) const { return broadcast_q ? int64_t{b} * offsets_q[1] : offsets_q[b]; }
};

// How P = exp2((s - m) * c), c = scale * log2(e), enters the second product.  The row sum is always that of
// the unrounded P.
enum class PFormat {
  kExact,
  kBf16,          // P rounded to BF16
  kE4m3Constant,  // 256 P rounded to E4M3, saturating at 448, times 2^-8
  kE4m3Dynamic  // P / X rounded to E4M3, times X: for each row and 32 keys of the sequence the smallest power
                // of two X that brings the largest visible P to 448 or less
};

// The reference point m decides where P falls between two representable values.  kBlockWalk visits keys in
// blocks of 128 from the last to the first; m moves to the running maximum only when that exceeds m by more
// than the threshold in the log2 domain, and what was accumulated is rescaled then.  kUnknown: the kernel's
// reference point is its own business, so P is not rounded here and the bound admits any rounding of it.
enum class RowMaximum { kWholeRow, kBlockWalk, kUnknown };

struct AttentionOptions {
  PFormat p_format = PFormat::kExact;
  RowMaximum row_maximum = RowMaximum::kWholeRow;
  // Of kBlockWalk.  Negative: log2(448/256) for E4M3, because 256 P must not pass 448; 8 for BF16.
  double threshold_log2 = -1.0;
  bool bounds = false;  // fill o_bound and lse_bound
  int fused_terms = 0;  // products in one fused sum of the tensor core; 0: 32 for E4M3, 16 for BF16
  // Relative error of the kernel's exp2 (PTX ISA, ex2.approx.f32: at most 2^-22).
  double exp2_error = 0x1p-22;
  int threads = 0;  // 0: all of the machine
};

// The options a kernel of this library is compared with.  Blackwell: block walk, its P format, bounds.
// Hopper, BF16: key blocks of many widths and a reference point that moves when sums grow, hence kUnknown.
// Hopper, MXFP8: Blackwell's walk and roundings, but products of BF16 operands and every exponential from
// ex2.approx.
AttentionOptions kernel_numerics(bool mxfp8, bool dynamic_p = false);
AttentionOptions hopper_kernel_numerics(bool mxfp8 = false, bool dynamic_p = false);

// The keys that query `row` of a sequence sees.
struct KeyInterval {
  int64_t first, last;  // half open
  bool empty() const { return first >= last; }
  int64_t count() const { return empty() ? 0 : last - first; }
};
KeyInterval visible_keys(const AttentionProblem& problem, int sequence, int64_t row);

struct AttentionResult {
  std::vector<double> o;    // [rows_o, heads_q, head_dim]
  std::vector<double> lse;  // [heads_q, rows_o], natural logarithm
  // Largest distance of an FP32 kernel from o and lse, before o is rounded to its storage format; derived in
  // attention.cpp.
  std::vector<double> o_bound, lse_bound;
  // Rows whose reference point a rounding error could move; their bound admits any rounding of P.
  int64_t undecided_rows = 0;
};

// q: [rows_q, heads_q, head_dim], k, v: [rows_k, heads_kv, head_dim], contiguous.  Rows that no sequence owns
// are never read.
AttentionResult attention_forward(const AttentionProblem& problem, std::span<const double> q,
                                  std::span<const double> k, std::span<const double> v,
                                  const AttentionOptions& options = {});

}  // namespace mxfa::reference
