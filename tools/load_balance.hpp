// Pictures of a schedule: the estimated work of every SM under each scheduler, from "schedule" of a plan's
// options.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace mxfa::tools {

// For each scheduler a line (busiest SM, mean, their ratio: how much longer than perfect balance) and a
// histogram of the SMs by work; every line begins with `indent`.
std::string load_histogram(const nlohmann::ordered_json& schedule, const std::string& indent);

struct TitledSchedule {
  std::string title;
  nlohmann::ordered_json schedule;
};
// Heat maps as one SVG document: a row for each scheduler, a cell for each SM, white for no work, black for
// the most of any SM of the schedule.
std::string load_heat_maps(const std::vector<TitledSchedule>& schedules);

}  // namespace mxfa::tools
