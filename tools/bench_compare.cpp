#include "bench_compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "host/json_text.hpp"

namespace mxfa::tools {

namespace {

using nlohmann::ordered_json;

const ordered_json* find_row(const ordered_json& report, const std::string& shape) {
  for (const ordered_json& row : report["rows"])
    if (row["shape"] == shape) return &row;
  return nullptr;
}

bool timed(const ordered_json& row) { return row.contains("time_ms"); }

// Measured against the yardstick of its own run where both have the same: clocks and temperature of two runs
// differ, and the yardstick saw them too.
bool share_a_yardstick(const ordered_json& a, const ordered_json& b) {
  return a.contains("fraction") && b.contains("fraction") && a["yardstick"]["name"] == b["yardstick"]["name"];
}

Comparison compare_rows(const ordered_json& before, const ordered_json& now) {
  Comparison result;
  result.shape = now["shape"].get<std::string>();
  if (!timed(now) || !timed(before)) {
    result.change = Change::kIncomparable;
    result.sentence =
        fmt::format("{}: has no timing in {}", result.shape, timed(before) ? "this run" : "the baseline");
    return result;
  }
  for (const char* key : {"op", "dtype", "head_dim", "work"}) {
    if (before[key] == now[key]) continue;
    result.change = Change::kIncomparable;
    result.sentence =
        fmt::format("{}: the baseline's shape of this name is another one ({}: {} there, {} here)",
                    result.shape, key, before[key].dump(), now[key].dump());
    return result;
  }
  const bool by_yardstick = share_a_yardstick(before, now);
  const char* key = by_yardstick ? "fraction" : "time_ms";
  const Summary a = summary_from(before[key]), b = summary_from(now[key]);
  result.slowdown = (by_yardstick ? a.median / b.median : b.median / a.median) - 1;
  result.spread = a.relative_spread() + b.relative_spread();
  result.change = result.slowdown > result.spread    ? Change::kSlower
                  : -result.slowdown > result.spread ? Change::kFaster
                                                     : Change::kSame;
  const std::string what =
      by_yardstick
          ? fmt::format("{:.3f} of {}, was {:.3f}", b.median, now["yardstick"]["name"].get<std::string>(),
                        a.median)
          : fmt::format("{:.4f} ms, was {:.4f} (compared by time: no common yardstick)", b.median, a.median);
  result.sentence = fmt::format("{}: {}: {:.1f} % {}, spread of both runs {:.1f} %", result.shape, what,
                                100 * std::fabs(result.slowdown), result.slowdown > 0 ? "slower" : "faster",
                                100 * result.spread);
  return result;
}

}  // namespace

Summary summarize(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const auto quantile = [&](double q) {
    const double at = q * static_cast<double>(samples.size() - 1);
    const size_t low = static_cast<size_t>(at), high = std::min(low + 1, samples.size() - 1);
    return samples[low] + (at - static_cast<double>(low)) * (samples[high] - samples[low]);
  };
  return {quantile(0.5), samples.front(), samples.back(), quantile(0.25), quantile(0.75)};
}

ordered_json json_of(const Summary& summary) {
  return {{"median", summary.median},
          {"min", summary.min},
          {"max", summary.max},
          {"q1", summary.q1},
          {"q3", summary.q3}};
}

Summary summary_from(const ordered_json& json) {
  return {json.at("median"), json.at("min"), json.at("max"), json.at("q1"), json.at("q3")};
}

void require_bench_report(const ordered_json& report, const std::string& source) {
  const auto refuse = [&](const std::string& why) {
    throw InputError(
        fmt::format("{}: {}; a baseline is a file that 'mxfa bench --save' or '--json' wrote", source, why));
  };
  if (!report.is_object() || report.value("command", ordered_json()) != "bench")
    refuse("not a report of bench");
  if (report.value("format", ordered_json()) != kBenchFormat) {
    refuse(fmt::format("format {}, this program reads format {}",
                       report.value("format", ordered_json()).dump(), kBenchFormat));
  }
  const ordered_json device = report.value("device", ordered_json());
  if (!device.is_object() || !device.value("name", ordered_json()).is_string()) refuse("no device.name");
  if (!report.contains("rows") || !report["rows"].is_array()) refuse("no list \"rows\"");
  for (const ordered_json& row : report["rows"]) {
    if (!row.is_object() || !row.value("shape", ordered_json()).is_string())
      refuse("a row without \"shape\"");
    const std::string shape = row["shape"];
    if (!timed(row)) continue;
    for (const char* key : {"op", "dtype", "head_dim", "work"})
      if (!row.contains(key)) refuse(fmt::format("{} lacks \"{}\"", shape, key));
    for (const char* key : {"time_ms", "fraction"}) {
      if (!row.contains(key)) continue;
      const bool whole = row[key].is_object() && row[key].value("median", ordered_json()).is_number();
      for (const char* field : {"median", "min", "max", "q1", "q3"})
        if (!whole || !row[key].value(field, ordered_json()).is_number())
          refuse(fmt::format("{}: {} lacks \"{}\"", shape, key, field));
      if (row[key]["median"].get<double>() <= 0)
        refuse(fmt::format("{}: {}.median is not positive", shape, key));
    }
    if (row.contains("fraction") &&
        (!row.value("yardstick", ordered_json()).is_object() || !row["yardstick"].contains("name")))
      refuse(shape + " lacks yardstick.name");
  }
}

std::vector<Comparison> compare_reports(const ordered_json& baseline, const ordered_json& report) {
  std::vector<Comparison> comparisons;
  for (const ordered_json& row : report["rows"]) {
    const std::string shape = row["shape"];
    if (const ordered_json* before = find_row(baseline, shape)) {
      comparisons.push_back(compare_rows(*before, row));
    } else {
      comparisons.push_back({shape, Change::kNew, 0, 0, shape + ": not in the baseline"});
    }
  }
  for (const ordered_json& row : baseline["rows"]) {
    const std::string shape = row["shape"];
    if (!find_row(report, shape))
      comparisons.push_back({shape, Change::kMissing, 0, 0, shape + ": in the baseline, not in this run"});
  }
  return comparisons;
}

}  // namespace mxfa::tools
