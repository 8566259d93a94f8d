// `mxfa check SHAPE...`: silence or a report, one row a shape.
#include "check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace mxfa::tools {

namespace {

using nlohmann::ordered_json;

// The CPU driver that stands in for the device asked for; hazards are not visible on a real one.
CommonFlags emulated(const CommonFlags& flags) {
  CommonFlags result = flags;
  const DeviceChoice choice = parse_device(flags.device_or_null());
  if (choice.kind == DeviceChoice::Kind::kGpu)
    throw InputError(
        fmt::format("check runs on the CPU driver only, and the device is \"gpu{}\"; leave it out or choose "
                    "emulator, emulator:b200, emulator:gb300 or emulator:h200",
                    choice.ordinal < 0 ? "" : fmt::format(":{}", choice.ordinal)));
  if (choice.kind == DeviceChoice::Kind::kAuto) result.device = "emulator";
  result.seed.reset();  // the data are those of the shape file
  return result;
}

// Of each schedule's name, how many runs: "functional, lazy, 2 random".
std::string count_schedules(const CheckedShape& shape) {
  std::vector<std::pair<std::string, int>> counts;
  for (const Trial& trial : shape.trials) {
    const auto known = std::find_if(counts.begin(), counts.end(),
                                    [&](const auto& entry) { return entry.first == trial.schedule.name; });
    if (known == counts.end())
      counts.emplace_back(trial.schedule.name, 1);
    else
      ++known->second;
  }
  std::string text;
  for (const auto& [name, count] : counts)
    text += fmt::format("{}{}{}", text.empty() ? "" : " ", count > 1 ? fmt::format("{}x", count) : "", name);
  return text;
}

void print(const std::vector<CheckedShape>& shapes) {
  std::vector<std::vector<std::string>> table = {
      {"shape", "dtype", "device", "kernel", "schedules", "reference", "found by", "verdict"}};
  for (const CheckedShape& shape : shapes) {
    const Trial* found = shape.first_finding();
    table.push_back({shape.shape, shape.dtype, shape.device, shape.kernel + " " + shape.arch,
                     count_schedules(shape), shape.judged ? "compared" : "-",
                     found ? found->schedule.text() : "-", shape.verdict()});
  }
  print_table(table);
}

int exit_code_of(const std::vector<CheckedShape>& shapes) {
  int code = kPassed;
  for (const CheckedShape& shape : shapes)
    for (const Trial& trial : shape.trials)
      if (trial.finding != Finding::silent)
        code = std::max<int>(code, trial.finding == Finding::wrong ? kWrongResult : kHazard);
  return code;
}

int check(const std::vector<std::string>& files, const CheckOptions& options, const MutateOptions& mutations,
          const CommonFlags& given) {
  const CommonFlags flags = emulated(given);
  std::vector<Shape> shapes = load_runnable_shapes(files, flags);
  if (options.only > static_cast<int>(shapes.size()))
    throw InputError(fmt::format("--only {}: there are {} shapes", options.only, shapes.size()));
  if (options.only > 0) shapes = {shapes[static_cast<size_t>(options.only) - 1]};
  const JsonReport report(flags.json);
  Reopened session(flags);
  for (const Shape& shape : shapes) (void)plan_shape(session.get(), shape, options.check);  // refusals first
  std::vector<CheckedShape> checked;
  for (const Shape& shape : shapes) {
    checked.push_back(check_shape(session, shape, options, flags));
    if (!checked.back().note.empty() && !flags.quiet)
      message(fmt::format("{}: {}", shape.source, checked.back().note));
  }
  if (const int code = exit_code_of(checked); code != kPassed || !mutations.wanted) {
    ordered_json rows = ordered_json::array();
    for (const CheckedShape& shape : checked) rows.push_back(json_of(shape));
    if (!report.on_stdout()) print(checked);
    report.write({{"command", "check"}, {"rows", rows}});
    return code;
  }
  session.close();
  return mutate(files, shapes, checked, options, mutations, flags);
}

// The CPU driver knows the names; it refuses one at the first launch, which is late for a usage error.
void require_policy(const std::string& policy) {
  for (const char* name : {"functional", "lazy", "eager", "random", "pct", "split"})
    if (policy == name) return;
  if (policy.starts_with("pct:") && policy.find_first_not_of("0123456789", 4) == policy.npos &&
      policy.size() > 4 && policy.size() < 7)
    return;
  throw InputError(fmt::format(
      "--policy {}: there are functional, lazy, eager, random, pct, pct:DEPTH and split", policy));
}

}  // namespace

void add_check(CLI::App& app, CommonFlags& flags, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "check", "run shape files on the CPU driver under many schedules, with hazard checks");
  auto files = std::make_shared<std::vector<std::string>>();
  auto options = std::make_shared<CheckOptions>();
  auto mutations = std::make_shared<MutateOptions>();
  command->add_option("SHAPE", *files, "shape files")->required();
  CLI::Option* schedules =
      command->add_option("--schedules", options->schedules, "randomised schedules for each shape (6)")
          ->check(CLI::Range(0, 100000));
  command
      ->add_option("--policy", options->policies,
                   "only these: functional, lazy, eager, random, pct, pct:DEPTH, split (repeatable)")
      ->allow_extra_args(false);
  command->add_flag(
      "--strict", options->strict,
      "hazard checks by the letter of the PTX ISA, also where published kernels depart from it");
  CLI::Option* references =
      command->add_flag("--check", options->check, "compare with the references even where they take long");
  command
      ->add_flag_callback(
          "--no-reference", [options] { options->judge = false; },
          "only compare the schedules with each other")
      ->excludes(references);
  command->add_flag("--first", options->first, "go on to the next shape at the first finding");
  command
      ->add_option("--only", options->only, "only the shape with this number, counted from 1 over all files")
      ->check(CLI::PositiveNumber);
  CLI::Option* mutate_flag = command->add_flag(
      "--mutate", mutations->wanted,
      "then delete one synchronisation of the kernel at a time and see whether that is found");
  command->add_option("--sample", mutations->sample, "delete only so many, chosen by the seed")
      ->needs(mutate_flag)
      ->check(CLI::PositiveNumber);
  command->add_option("--known", mutations->known, "file of deletions that change nothing, with reasons")
      ->needs(mutate_flag);
  command
      ->add_flag("--all-kernels", mutations->all_kernels,
                 "delete from all kernels that the shape's operation launches")
      ->needs(mutate_flag);
  command->add_option("--jobs", mutations->jobs, "processes at a time (one a core)")
      ->needs(mutate_flag)
      ->check(CLI::PositiveNumber);
  add_shape_flags(*command, flags);
  add_seed_flag(*command, flags, "seed of the first randomised schedule (1)");
  command->callback([files, options, mutations, schedules, &flags, &exit_code] {
    check_environment(flags);
    for (const std::string& policy : options->policies) require_policy(policy);
    if (!options->randomised() && (schedules->count() || (flags.seed && !mutations->sample)))
      throw InputError("--schedules and --seed: --policy names no randomised schedule (random, pct, split)");
    if (flags.seed) options->first_seed = *flags.seed;
    if (trial_schedules(*options).empty())
      throw InputError("--schedules 0: of the schedules that --policy names none is left to run");
    exit_code = check(*files, *options, *mutations, flags);
  });
}

}  // namespace mxfa::tools
