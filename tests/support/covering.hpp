// Covering arrays: few rows in which every allowed pair of values of two factors occurs.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <tuple>
#include <vector>

#include "reference/random.hpp"

namespace mxfa::test {

// A value of each factor; -1: not chosen yet.
using CoveringRow = std::vector<int>;
// Whether two values may stand in one row: (factor, value, factor, value), the first factor smaller.
using PairAllowed = std::function<bool(int, int, int, int)>;

using ValuePair = std::tuple<int, int, int, int>;
inline std::set<ValuePair> allowed_pairs(const std::vector<int>& values, const PairAllowed& allowed) {
  std::set<ValuePair> pairs;
  const int factors = static_cast<int>(values.size());
  for (int a = 0; a < factors; ++a)
    for (int b = a + 1; b < factors; ++b)
      for (int x = 0; x < values[a]; ++x)
        for (int y = 0; y < values[b]; ++y)
          if (allowed(a, x, b, y)) pairs.insert({a, x, b, y});
  return pairs;
}

inline std::set<ValuePair> pairs_of(const CoveringRow& row) {
  std::set<ValuePair> pairs;
  const int factors = static_cast<int>(row.size());
  for (int a = 0; a < factors; ++a)
    for (int b = a + 1; b < factors; ++b)
      if (row[a] >= 0 && row[b] >= 0) pairs.insert({a, row[a], b, row[b]});
  return pairs;
}

// Rows with every combination of the values of some factors, the others not chosen.
inline std::vector<CoveringRow> combinations(const std::vector<int>& values,
                                             const std::vector<int>& factors) {
  std::vector<CoveringRow> rows{CoveringRow(values.size(), -1)};
  for (const int f : factors) {
    std::vector<CoveringRow> longer;
    for (CoveringRow row : rows)
      for (row[f] = 0; row[f] < values[f]; ++row[f]) longer.push_back(row);
    rows = std::move(longer);
  }
  return rows;
}

// values[f]: how many values factor f has; begun: rows that the array has, filled up.  Greedy: of a few rows
// that begin with one of those, then with an uncovered pair, and are filled up factor by factor, the one with
// the most uncovered pairs.  The same rows every time.
inline std::vector<CoveringRow> covering_array(const std::vector<int>& values, const PairAllowed& allowed,
                                               std::vector<CoveringRow> begun = {}) {
  constexpr int kCandidates = 30;
  const int factors = static_cast<int>(values.size());
  std::set<ValuePair> open = allowed_pairs(values, allowed);
  reference::Random random(1);
  const auto below = [&](size_t n) { return static_cast<int>(random.next() % n); };
  const auto gain = [&](const CoveringRow& row) {
    size_t covered = 0;
    for (const ValuePair& pair : pairs_of(row)) covered += open.count(pair);
    return covered;
  };
  std::vector<CoveringRow> rows;
  while (!open.empty() || !begun.empty()) {
    CoveringRow best;
    size_t best_gain = 0;
    for (int candidate = 0; candidate < kCandidates; ++candidate) {
      CoveringRow row(static_cast<size_t>(factors), -1);
      if (begun.empty()) {
        auto first = open.begin();
        std::advance(first, below(open.size()));
        const auto [a, x, b, y] = *first;
        row[a] = x, row[b] = y;
      } else {
        row = begun.back();
      }
      const int start = below(values.size());
      bool complete = true;
      for (int i = 0; i < factors && complete; ++i) {
        const int f = (start + i) % factors;
        if (row[f] >= 0) continue;
        int chosen = -1;
        size_t chosen_gain = 0;
        const int offset = below(static_cast<size_t>(values[f]));
        for (int k = 0; k < values[f]; ++k) {
          row[f] = (k + offset) % values[f];
          bool fits = true;
          for (int g = 0; g < factors && fits; ++g)
            if (g != f && row[g] >= 0)
              fits = g < f ? allowed(g, row[g], f, row[f]) : allowed(f, row[f], g, row[g]);
          if (!fits) continue;
          const size_t here = gain(row) + 1;
          if (here > chosen_gain) chosen = row[f], chosen_gain = here;
        }
        row[f] = chosen;
        complete = chosen >= 0;
      }
      if (!complete) continue;
      const size_t here = gain(row) + 1;
      if (here > best_gain) best = row, best_gain = here;
    }
    if (best.empty()) continue;
    if (!begun.empty()) begun.pop_back();
    for (const ValuePair& pair : pairs_of(best)) open.erase(pair);
    rows.push_back(best);
  }
  return rows;
}

}  // namespace mxfa::test
