// `mxfa explain SHAPE...`: the plan without running it.  Everything shown comes from the plan's own
// description (mxfa_plan_describe): numbers and words one a line, lists of records as tables.
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "common.hpp"
#include "load_balance.hpp"
#include "plan_shape.hpp"
#include "session.hpp"

namespace mxfa::tools {

namespace {

using nlohmann::ordered_json;

std::string cell(const ordered_json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

bool is_table(const ordered_json& value) {
  if (!value.is_array() || value.empty()) return false;
  for (const ordered_json& row : value) {
    if (!row.is_object()) return false;
  }
  return true;
}

void print_records(const ordered_json& records) {
  std::vector<std::vector<std::string>> rows(1);
  for (const auto& [key, value] : records.front().items()) rows[0].push_back(key);
  for (const ordered_json& record : records) {
    std::vector<std::string> row;
    for (const std::string& key : rows[0]) row.push_back(record.contains(key) ? cell(record[key]) : "");
    rows.push_back(std::move(row));
  }
  rows[0][0] = "  " + rows[0][0];
  for (size_t i = 1; i < rows.size(); ++i) rows[i][0] = "  " + rows[i][0];
  print_table(rows);
}

void print_object(const ordered_json& object, const std::string& indent) {
  for (const auto& [key, value] : object.items()) {
    if (is_table(value)) {
      fmt::print("{}{}:\n", indent, key);
      print_records(value);
    } else if (value.is_object() && !value.empty()) {
      fmt::print("{}{}:\n", indent, key);
      print_object(value, indent + "  ");
    } else {
      fmt::print("{}{}: {}\n", indent, key, cell(value));
    }
  }
}

// The schedule of a plan that has the work of each SM; null else.
ordered_json schedule_of(const ordered_json& description) {
  const ordered_json schedule =
      description.value("options", ordered_json()).value("schedule", ordered_json());
  return schedule.contains("work") ? schedule : ordered_json();
}

// The description without the list of loads, which load_histogram shows as a picture.
ordered_json without_loads(ordered_json description) {
  if (!schedule_of(description).is_null()) description["options"]["schedule"].erase("work");
  return description;
}

int explain(const std::vector<std::string>& files, const std::string& svg_file, const CommonFlags& flags) {
  const std::vector<Shape> shapes = load_runnable_shapes(files, flags);
  const JsonReport report(flags.json);
  std::ofstream svg;
  if (!svg_file.empty()) {
    svg.open(svg_file, std::ios::binary);
    if (!svg)
      throw InputError(fmt::format("--svg {}: cannot write this path: {}", svg_file, std::strerror(errno)));
  }
  const Session session(flags);
  ordered_json out = ordered_json::array();
  std::vector<TitledSchedule> schedules;
  for (const Shape& shape : shapes) {
    for (const PlannedKernel& planned : plan_all(session.context(), shape)) {
      const ordered_json schedule = schedule_of(planned.description);
      if (!report.on_stdout()) {
        fmt::print("{}: {}\n", shape.source, planned.purpose);
        print_object(without_loads(planned.description), "  ");
        if (!schedule.is_null())
          fmt::print("  estimated work of the SMs, in blocks of keys:\n{}", load_histogram(schedule, "    "));
        fmt::print("\n");
      }
      if (!schedule.is_null()) schedules.push_back({shape.source, schedule});
      out.push_back({{"shape", shape.source}, {"purpose", planned.purpose}, {"plan", planned.description}});
    }
  }
  report.write({{"command", "explain"}, {"plans", out}});
  if (svg.is_open() && !(svg << load_heat_maps(schedules)).flush())
    throw InputError(fmt::format("--svg {}: writing failed", svg_file));
  return kPassed;
}

}  // namespace

void add_explain(CLI::App& app, CommonFlags& flags, int& exit_code) {
  CLI::App* command = app.add_subcommand("explain", "show the plan without running it");
  auto files = std::make_shared<std::vector<std::string>>();
  command->add_option("SHAPE", *files, "shape files")->required();
  auto svg = std::make_shared<std::string>();
  command->add_option("--svg", *svg,
                      "write heat maps of the work of every SM under each scheduler to this file");
  add_shape_flags(*command, flags);
  command->callback([files, svg, &flags, &exit_code] {
    check_environment(flags);
    exit_code = explain(*files, *svg, flags);
  });
}

}  // namespace mxfa::tools
