// How far a result is from a reference: signal to noise, cosine, largest element error; for attention also
// per (sequence, head, tile of 128 rows), because one broken tile or scale atom disappears in an average over
// everything.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>

#include "reference/attention.hpp"
#include "reference/attention_backward.hpp"

namespace mxfa::reference {

struct Deviation {
  // 10 log10(sum want^2 / sum (got - want)^2); infinite when equal.
  double sqnr_db = std::numeric_limits<double>::infinity();
  double cosine = 1.0;   // 1 when both are zero
  double max_abs = 0.0;  // of got - want; a NaN in got counts as infinite
  double relative_l2 = 0.0;
  int64_t elements = 0;
  int64_t not_finite = 0;  // elements of got that are NaN or infinite
};
// Elements of want that are -inf or +inf must be equal in got; they do not enter the sums.
Deviation deviation(std::span<const double> got, std::span<const double> want);

struct Place {
  int sequence = -1, head = -1;
  int64_t row = -1;  // within the sequence
  int channel = -1;  // -1: the place is a row
};
std::string to_string(const Place& place);

struct Mismatch {
  Place place;
  double got = 0, want = 0, allowed = 0;
};
std::string to_string(const Mismatch& mismatch);

struct AttentionDeviation {
  Deviation overall;
  double worst_sqnr_db = std::numeric_limits<double>::infinity(), worst_cosine = 1.0;
  Place worst_tile;  // row is the first of the tile; of worst_sqnr_db
};
// got, want: [rows_o, heads_q, head_dim].
AttentionDeviation attention_deviation(const AttentionProblem& problem, std::span<const double> got,
                                       std::span<const double> want);

// First element outside its bound: |got - want| <= bound + half a BF16 step at |want| + bound (the rounding
// of the stored O).  A row without a visible key must be +0.  got is decoded BF16.
std::optional<Mismatch> first_outside_bound(const AttentionProblem& problem, std::span<const double> got,
                                            const AttentionResult& want);
// First LSE outside lse_bound (plus the FP32 rounding of the stored number); -infinity must be -infinity.
std::optional<Mismatch> first_lse_outside_bound(const AttentionProblem& problem, std::span<const float> got,
                                                const AttentionResult& want);
// The coarse LSE gate of everything that is compared with the exact reference: 1e-3 + 1e-5 |LSE|.
std::optional<Mismatch> first_lse_outside_tolerance(const AttentionProblem& problem,
                                                    std::span<const float> got, std::span<const double> want);

// Decoded BF16 gradients, shaped as those of the reference.
struct GradientValues {
  std::vector<double> dq, dk, dv;
};
// dQ, dK and dV as one: a single one may be zero by nature (a softmax over one key has no gradient of
// scores).
Deviation gradient_deviation(const GradientValues& got, const Gradients& want);
// First element outside its bound and the rounding of the stored gradient, with the tensor's name before the
// place; where nothing contributes, it must be +0.
std::optional<std::string> first_gradient_outside_bound(const AttentionProblem& problem,
                                                        const GradientValues& got, const Gradients& want);

// The same of one of them, [rows, heads, head_dim] with the sequences' offsets.
std::optional<Mismatch> first_outside_bound(const std::vector<int32_t>& offsets, int heads, int head_dim,
                                            std::span<const double> got, std::span<const double> want,
                                            std::span<const double> bound);

// Gates against the exact reference on N(0,1) data.
inline constexpr double kMxfp8ForwardMinCosine = 0.998, kMxfp8ForwardMinSqnrDb = 24.0,
                        kMxfp8ForwardMaxRelativeL2 = 0.05;
inline constexpr double kBf16ForwardMinSqnrDb = 50.0;
// P, dS, the O that delta is made of and the gradients are rounded to BF16: 2.4e-3 of relative RMS is 52 dB.
inline constexpr double kBf16BackwardMinSqnrDb = 48.0;
// MXFP8, on the dequantised operands: P rounded to E4M3, in dV and in the O that delta is made of, is 2.6e-2
// of relative RMS or 31 dB, dS in square blocks as much again; a few short rows may have all of their P where
// steps are coarse.
inline constexpr double kMxfp8BackwardMinSqnrDb = 24.0;
// BF16 element gate: 2 E + 2^-9 max|exact|, E = largest error of the plain three steps (S in FP32, P in BF16,
// O rounded to BF16).
double bf16_forward_tolerance(const AttentionProblem& problem, std::span<const double> q,
                              std::span<const double> k, std::span<const double> v,
                              const AttentionResult& exact);

}  // namespace mxfa::reference
