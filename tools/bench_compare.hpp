// Statistics of repeated timings, and the comparison of two reports of `mxfa bench`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace mxfa::tools {

// Quartiles by linear interpolation between the order statistics.
struct Summary {
  double median = 0, min = 0, max = 0, q1 = 0, q3 = 0;

  // Interquartile range in units of the median: one slow repeat does not widen it.
  double relative_spread() const { return median > 0 ? (q3 - q1) / median : 0; }
};
Summary summarize(std::vector<double> samples);  // of at least one number
nlohmann::ordered_json json_of(const Summary& summary);
Summary summary_from(const nlohmann::ordered_json& json);

// What a report is, so that another file is refused as a baseline.
inline constexpr int kBenchFormat = 1;

enum class Change {
  kSame,  // within the spread
  kFaster,
  kSlower,
  kNew,           // not in the baseline
  kMissing,       // in the baseline only
  kIncomparable,  // the shape of this name was another one, or one side has no timing
};

struct Comparison {
  std::string shape;
  Change change = Change::kSame;
  double slowdown =
      0;              // 0.02: takes 2 % longer, measured by the yardstick of the same run where both have it
  double spread = 0;  // what slowdown must exceed: the relative spreads of both runs together
  std::string sentence;  // for a person
};

// Throws InputError unless `report` is one of this format; `source` names it.
void require_bench_report(const nlohmann::ordered_json& report, const std::string& source);

// One entry a row of `report`, then the rows that only the baseline has.
std::vector<Comparison> compare_reports(const nlohmann::ordered_json& baseline,
                                        const nlohmann::ordered_json& report);

}  // namespace mxfa::tools
