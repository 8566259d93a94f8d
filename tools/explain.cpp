// `mxfa explain SHAPE...`: the plan without running it.  Everything shown comes from the plan's own
// description (mxfa_plan_describe): numbers and words one a line, lists of records as tables.
#include <fmt/format.h>

#include "common.hpp"
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

int explain(const std::vector<std::string>& files, const CommonFlags& flags) {
  const std::vector<Shape> shapes = load_runnable_shapes(files, flags);
  const JsonReport report(flags.json);
  const Session session(flags);
  ordered_json out = ordered_json::array();
  for (const Shape& shape : shapes) {
    for (const PlannedKernel& planned : plan_all(session.context(), shape)) {
      if (!report.on_stdout()) {
        fmt::print("{}: {}\n", shape.source, planned.purpose);
        print_object(planned.description, "  ");
        fmt::print("\n");
      }
      out.push_back({{"shape", shape.source}, {"purpose", planned.purpose}, {"plan", planned.description}});
    }
  }
  report.write({{"command", "explain"}, {"plans", out}});
  return kPassed;
}

}  // namespace

void add_explain(CLI::App& app, CommonFlags& flags, int& exit_code) {
  CLI::App* command = app.add_subcommand("explain", "show the plan without running it");
  auto files = std::make_shared<std::vector<std::string>>();
  command->add_option("SHAPE", *files, "shape files")->required();
  add_common_flags(*command, flags);
  command->callback([files, &flags, &exit_code] {
    check_environment(flags);
    exit_code = explain(*files, flags);
  });
}

}  // namespace mxfa::tools
