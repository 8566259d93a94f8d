#include "load_balance.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace mxfa::tools {
namespace {

using nlohmann::ordered_json;

constexpr int kBins = 8, kBarWidth = 40;
constexpr int kCell = 8, kRowHeight = 24, kLabelWidth = 80, kTitleHeight = 30, kMinimumWidth = 600;

double most_work(const ordered_json& work) {
  double most = 0;
  for (const auto& [name, loads] : work.items())
    for (const double load : loads.get<std::vector<double>>()) most = std::max(most, load);
  return most;
}

std::string escape(const std::string& text) {
  std::string out;
  for (const char c : text)
    out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  return out;
}

}  // namespace

std::string load_histogram(const ordered_json& schedule, const std::string& indent) {
  const ordered_json& work = schedule.at("work");
  const double most = most_work(work);
  if (most == 0) return "";
  const auto chosen = schedule.at("scheduler").get<std::string>();
  std::string text;
  for (const auto& [name, values] : work.items()) {
    const auto loads = values.get<std::vector<double>>();
    const double mean = std::accumulate(loads.begin(), loads.end(), 0.0) / double(loads.size());
    const double busiest = *std::max_element(loads.begin(), loads.end());
    text += fmt::format("{}{}{}: busiest SM {:.2f}, mean {:.2f}, ratio {:.3f}\n", indent, name,
                        name == chosen ? " (chosen)" : "", busiest, mean, busiest / mean);
    // The same bins for every scheduler, so that the pictures compare.
    int counts[kBins] = {};
    for (const double load : loads) ++counts[std::min(int(load / most * kBins), kBins - 1)];
    for (int bin = 0; bin < kBins; ++bin) {
      const int bar = int(std::ceil(double(counts[bin]) * kBarWidth / double(loads.size())));
      text += fmt::format("{}  {:>9.2f} .. {:<9.2f} {:>4} SMs {}\n", indent, most * bin / kBins,
                          most * (bin + 1) / kBins, counts[bin], std::string(size_t(bar), '#'));
    }
  }
  return text;
}

std::string load_heat_maps(const std::vector<TitledSchedule>& schedules) {
  std::string body;
  int y = 0, width = 0;
  for (const auto& [title, schedule] : schedules) {
    const ordered_json& work = schedule.at("work");
    const double most = std::max(most_work(work), 1e-9);
    body += fmt::format("<text x=\"4\" y=\"{}\">{}: work of each SM, at most {:.2f} blocks of keys</text>\n",
                        y + 18, escape(title), most);
    y += kTitleHeight;
    for (const auto& [name, values] : work.items()) {
      body += fmt::format("<text x=\"4\" y=\"{}\">{}</text>\n", y + 15, name);
      int x = kLabelWidth;
      for (const double load : values.get<std::vector<double>>()) {
        const int grey = 255 - int(std::lround(load / most * 255));
        body += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"rgb({},{},{})\"/>\n",
                            x, y, kCell, kRowHeight - 4, grey, grey, grey);
        x += kCell;
      }
      y += kRowHeight;
      width = std::max(width, x);
    }
  }
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" font-family=\"monospace\" "
             "font-size=\"12\">\n",
             std::max(width, kMinimumWidth), y + 10) +
         body + "</svg>\n";
}

}  // namespace mxfa::tools
