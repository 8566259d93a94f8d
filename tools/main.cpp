// The program `mxfa`: one file a subcommand.  Results go to stdout, messages to stderr.
// Exit codes: 0 all passed; 1 a result was wrong; 2 bad input or usage; 3 device, driver or compiler trouble;
// 4 hazard or deadlock.
#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "common.hpp"

namespace {

// CLI11 takes an unknown first word for a stray argument; say what it is.
void refuse_unknown_command(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  if (word.starts_with("-") || std::find(names.begin(), names.end(), word) != names.end()) return;
  const std::string nearest = mxfa::nearest_name(word, names);
  throw mxfa::InputError(fmt::format("unknown command {}; {}", mxfa::json_quote(word),
                                     nearest.empty()
                                         ? fmt::format("the commands are {}", fmt::join(names, ", "))
                                         : "did you mean " + mxfa::json_quote(nearest) + "?"));
}

}  // namespace

int main(int argc, char** argv) {
  using namespace mxfa::tools;
  CLI::App app{
      "mxfa: jagged attention kernels for Blackwell, compiled, run and checked from shape files.\n"
      "Exit codes: 0 all passed; 1 a result was wrong; 2 bad input or usage; 3 device, driver or compiler "
      "trouble;\n"
      "4 a hazard or deadlock was found.",
      "mxfa"};
  app.require_subcommand(1);
  app.set_version_flag("--version", "mxfa " MXFA_VERSION);
  CommonFlags flags;
  int exit_code = kPassed;
  add_run(app, flags, exit_code);
  add_check(app, flags, exit_code);
  add_explain(app, flags, exit_code);
  add_compile(app, flags, exit_code);
  add_bench(app, flags, exit_code);
  add_info(app, flags, exit_code);
  add_cache(app, flags, exit_code);
  try {
    if (argc > 1) refuse_unknown_command(app, argv[1]);
    app.parse(argc, argv);
    return exit_code;
  } catch (const CLI::ParseError& error) {
    // --help and --version arrive here with code 0; everything else is a usage error.
    return app.exit(error) == 0 ? kPassed : kBadInput;
  } catch (const mxfa::Error& error) {
    message(error.what());
    if (error.status() == MXFA_ERROR_INVALID) return kBadInput;
    // A kernel that does not end: the CPU driver's deadlock report, or a GPU's watchdog.
    const std::string_view text = error.what();
    return text.find("CUDA_ERROR_LAUNCH_TIMEOUT") != text.npos ? kHazard : kDeviceTrouble;
  } catch (const std::bad_alloc&) {
    message("out of host memory; the shape is too large for this machine");
    return kDeviceTrouble;
  } catch (const std::exception& error) {
    message(error.what());
    return kDeviceTrouble;
  }
}
