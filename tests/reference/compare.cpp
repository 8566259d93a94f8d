// Measures of distance, over everything and per tile of 128 rows, and the element gates.
#include "reference/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "reference/formats.hpp"

namespace mxfa::reference {
namespace {

constexpr int kTileRows = 128;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Sums that become a Deviation; can be fed in pieces.
class Accumulator {
 public:
  void add(double got, double want) {
    ++elements_;
    if (!std::isfinite(got)) ++not_finite_;
    if (std::isinf(want)) {
      if (got != want) max_abs_ = error2_ = kInfinity;
      return;
    }
    const double error = std::isnan(got) ? kInfinity : std::fabs(got - want);
    max_abs_ = std::max(max_abs_, error);
    error2_ += error * error;
    want2_ += want * want;
    if (std::isfinite(got)) {
      got2_ += got * got;
      product_ += got * want;
    }
  }
  Deviation result() const {
    Deviation d;
    d.elements = elements_;
    d.not_finite = not_finite_;
    d.max_abs = max_abs_;
    if (error2_ > 0) {
      d.sqnr_db = std::isinf(error2_) ? -kInfinity : 10 * std::log10(want2_ / error2_);
      d.relative_l2 = std::sqrt(error2_ / want2_);
      d.cosine = got2_ > 0 && want2_ > 0 ? product_ / std::sqrt(got2_ * want2_) : 0;
      if (std::isinf(error2_)) d.cosine = 0;
    }
    return d;
  }

 private:
  int64_t elements_ = 0, not_finite_ = 0;
  double error2_ = 0, want2_ = 0, got2_ = 0, product_ = 0, max_abs_ = 0;
};

// visit(place with channel -1, index of the row in O, index in LSE) for every row of O; false stops.
void for_each_row(const AttentionProblem& p,
                  const std::function<bool(const Place&, int64_t o_index, int64_t lse_index)>& visit) {
  for (int b = 0; b < p.batch; ++b)
    for (int head = 0; head < p.heads_q; ++head)
      for (int64_t row = 0; row < p.len_q(b); ++row) {
        const int64_t out_row = p.first_o(b) + row;
        if (!visit({b, head, row, -1}, (out_row * p.heads_q + head) * p.head_dim,
                   head * p.rows_o() + out_row))
          return;
      }
}

double half_bf16_step(double magnitude) {
  const int exponent = magnitude == 0 ? -126 : std::max(std::ilogb(magnitude), -126);
  return std::ldexp(1.0, exponent - 8);
}

std::optional<Mismatch> first_lse_outside(const AttentionProblem& problem, std::span<const float> got,
                                          std::span<const double> want,
                                          const std::function<double(int64_t)>& allowed) {
  std::optional<Mismatch> found;
  for_each_row(problem, [&](const Place& place, int64_t, int64_t i) {
    const bool good = std::isinf(want[i]) ? got[i] == want[i] : std::fabs(got[i] - want[i]) <= allowed(i);
    if (!good) found = Mismatch{place, got[i], want[i], std::isinf(want[i]) ? 0 : allowed(i)};
    return good;
  });
  return found;
}

}  // namespace

Deviation deviation(std::span<const double> got, std::span<const double> want) {
  Accumulator sums;
  for (size_t i = 0; i < want.size(); ++i) sums.add(got[i], want[i]);
  return sums.result();
}

std::string to_string(const Place& place) {
  std::string text = fmt::format("sequence {}, head {}, row {}", place.sequence, place.head, place.row);
  if (place.channel >= 0) text += fmt::format(", channel {}", place.channel);
  return text;
}

std::string to_string(const Mismatch& m) {
  return fmt::format("{}: got {:.9g}, want {:.9g} within {:.3g}", to_string(m.place), m.got, m.want,
                     m.allowed);
}

AttentionDeviation attention_deviation(const AttentionProblem& problem, std::span<const double> got,
                                       std::span<const double> want) {
  AttentionDeviation result;
  Accumulator all, tile;
  Place tile_place;
  const auto close_tile = [&] {
    if (tile_place.sequence < 0) return;
    const Deviation d = tile.result();
    if (d.sqnr_db < result.worst_sqnr_db || result.worst_tile.sequence < 0) {
      result.worst_sqnr_db = d.sqnr_db;
      result.worst_tile = tile_place;
    }
    result.worst_cosine = std::min(result.worst_cosine, d.cosine);
    tile = Accumulator();
  };
  for_each_row(problem, [&](const Place& place, int64_t o, int64_t) {
    if (place.row % kTileRows == 0) {
      close_tile();
      tile_place = place;
    }
    for (int d = 0; d < problem.head_dim; ++d) {
      all.add(got[o + d], want[o + d]);
      tile.add(got[o + d], want[o + d]);
    }
    return true;
  });
  close_tile();
  result.overall = all.result();
  return result;
}

std::optional<Mismatch> first_outside_bound(const AttentionProblem& problem, std::span<const double> got,
                                            const AttentionResult& want) {
  std::optional<Mismatch> found;
  for_each_row(problem, [&](const Place& place, int64_t o, int64_t lse) {
    const bool unseen = std::isinf(want.lse[lse]);
    for (int d = 0; d < problem.head_dim; ++d) {
      const double reference = want.o[o + d], bound = want.o_bound[o + d];
      const double allowed = unseen ? 0 : bound + half_bf16_step(std::fabs(reference) + bound);
      const bool good = std::fabs(got[o + d] - reference) <= allowed && !(unseen && std::signbit(got[o + d]));
      if (good) continue;
      found = Mismatch{place, got[o + d], reference, allowed};
      found->place.channel = d;
      return false;
    }
    return true;
  });
  return found;
}

std::optional<Mismatch> first_lse_outside_bound(const AttentionProblem& problem, std::span<const float> got,
                                                const AttentionResult& want) {
  // Half an FP32 step of the stored number; the bound itself is about the number before that.
  return first_lse_outside(problem, got, want.lse,
                           [&](int64_t i) { return want.lse_bound[i] + 0x1p-24 * std::fabs(want.lse[i]); });
}

std::optional<Mismatch> first_lse_outside_tolerance(const AttentionProblem& problem,
                                                    std::span<const float> got,
                                                    std::span<const double> want) {
  return first_lse_outside(problem, got, want, [&](int64_t i) { return 1e-3 + 1e-5 * std::fabs(want[i]); });
}

Deviation gradient_deviation(const GradientValues& got, const Gradients& want) {
  Accumulator all;
  for (const auto& [g, w] : {std::pair{&got.dq, &want.dq}, {&got.dk, &want.dk}, {&got.dv, &want.dv}})
    for (size_t i = 0; i < w->size(); ++i) all.add((*g)[i], (*w)[i]);
  return all.result();
}

std::optional<Mismatch> first_outside_bound(const std::vector<int32_t>& offsets, int heads, int head_dim,
                                            std::span<const double> got, std::span<const double> want,
                                            std::span<const double> bound) {
  for (size_t i = 0; i < want.size(); ++i) {
    const bool nothing = want[i] == 0 && bound[i] == 0;
    const double allowed = nothing ? 0 : bound[i] + half_bf16_step(std::fabs(want[i]) + bound[i]);
    if (std::fabs(got[i] - want[i]) <= allowed && !(nothing && std::signbit(got[i]))) continue;
    const int64_t row = static_cast<int64_t>(i) / (int64_t{heads} * head_dim);
    const int sequence =
        static_cast<int>(std::upper_bound(offsets.begin(), offsets.end(), row) - offsets.begin()) - 1;
    const Place place{sequence, static_cast<int>(i / head_dim % heads), row - offsets[sequence],
                      static_cast<int>(i % head_dim)};
    return Mismatch{place, got[i], want[i], allowed};
  }
  return std::nullopt;
}

std::optional<std::string> first_gradient_outside_bound(const AttentionProblem& p, const GradientValues& got,
                                                        const Gradients& want) {
  if (const auto wrong =
          first_outside_bound(p.offsets_k, p.heads_kv, p.head_dim, got.dv, want.dv, want.dv_bound))
    return "dV: " + to_string(*wrong);
  if (const auto wrong =
          first_outside_bound(p.offsets_k, p.heads_kv, p.head_dim, got.dk, want.dk, want.dk_bound))
    return "dK: " + to_string(*wrong);
  if (const auto wrong =
          first_outside_bound(p.offsets_q, p.heads_q, p.head_dim, got.dq, want.dq, want.dq_bound))
    return "dQ: " + to_string(*wrong);
  return std::nullopt;
}

double bf16_forward_tolerance(const AttentionProblem& problem, std::span<const double> q,
                              std::span<const double> k, std::span<const double> v,
                              const AttentionResult& exact) {
  AttentionOptions plain;
  plain.p_format = PFormat::kBf16;
  const AttentionResult three_steps = attention_forward(problem, q, k, v, plain);
  double error = 0, largest = 0;
  for (size_t i = 0; i < exact.o.size(); ++i) {
    error = std::max(error, std::fabs(round_to_bf16(three_steps.o[i]) - exact.o[i]));
    largest = std::max(largest, std::fabs(exact.o[i]));
  }
  return 2 * error + 0x1p-9 * largest;
}

}  // namespace mxfa::reference
