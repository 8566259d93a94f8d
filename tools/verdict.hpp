// The limits a result is judged by, in one place, each with its reason.  A shape file overrides them under
// "tolerance".
//
// Always, and not to be overridden: every element of O (or of the gradients) within the bound that
// tests/reference/ derives for the kernel's own arithmetic on the operands it was given (for MXFP8: the
// dequantised ones, P rounded to E4M3 as the kernel does); every LSE likewise; rows without a key exactly +0
// and -infinity; quantised bytes equal to the reference quantiser's; guards untouched.
#pragma once

#include <limits>

#include "host/shape_file.hpp"
#include "reference/compare.hpp"

namespace mxfa::tools {

// What is not required of a shape.
inline constexpr double kNoLimit = -std::numeric_limits<double>::infinity();

struct Limits {
  double sqnr_db = kNoLimit;            // O against the exact reference, at least
  double cosine = kNoLimit;             // O against the exact reference, at least
  double quantized_sqnr_db = kNoLimit;  // O against the quantisation-aware reference, at least
  double lse = std::numeric_limits<double>::infinity();  // |LSE - quantisation-aware reference|, at most
};

inline Limits limits_of(const Shape& shape) {
  Limits limits;
  const bool mxfp8 = shape.dtype == Dtype::mxfp8, backward = shape.op == Op::attn_bwd;
  // Against the exact reference a limit says how good the format is on N(0,1) data with the usual scale: 1.5
  // dB below what an independent emulation of the format reaches.  Heavy tails or larger scores lose more by
  // nature, so there only the figures are printed.
  if (shape.data.distribution == DataDistribution::normal && shape.data.std <= 1.0 && !shape.scale) {
    // The gradients of MXFP8 are compared with those of the BF16 data before it was quantised, all four
    // operands: 24.1 to 25.4 dB on the CPU driver (configs/shapes/backward_mxfp8.json), cosine 0.998.
    limits.sqnr_db = mxfp8 && backward ? 22.5
                     : backward        ? reference::kBf16BackwardMinSqnrDb
                     : mxfp8           ? reference::kMxfp8ForwardMinSqnrDb
                                       : reference::kBf16ForwardMinSqnrDb;
    limits.cosine = mxfp8 && backward ? 0.997
                    : mxfp8           ? reference::kMxfp8ForwardMinCosine
                                      : 0.9999;  // 50 dB is 1 - cos = 5e-6
    // What is left is the order of FP32 sums, exp2.approx and, for MXFP8, an E4M3 rounding of P that falls
    // the other way now and then (6 % of one element); the result is rounded to BF16 (about 52 dB).
    limits.quantized_sqnr_db = mxfp8 ? 35.0 : 45.0;
  }
  if (shape.tolerance.sqnr_db) limits.sqnr_db = *shape.tolerance.sqnr_db;
  if (shape.tolerance.cosine) limits.cosine = *shape.tolerance.cosine;
  if (shape.tolerance.quantized_sqnr_db) limits.quantized_sqnr_db = *shape.tolerance.quantized_sqnr_db;
  if (shape.tolerance.lse) limits.lse = *shape.tolerance.lse;
  return limits;
}

// Multiply-adds of the references above which a result is checked only on request (--check): half a minute on
// two cores.
inline constexpr double kReferenceLimit = 1.5e10;

}  // namespace mxfa::tools
