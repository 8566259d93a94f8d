// `mxfa compile SHAPE...`: compiles every kernel the shapes need and shows what ptxas said; --out writes PTX,
// cubin and report.  Needs no GPU.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "common.hpp"
#include "host/cache.hpp"
#include "plan_shape.hpp"
#include "session.hpp"

namespace mxfa::tools {

namespace {

using nlohmann::ordered_json;

void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw InputError(fmt::format("--out: cannot write {}", path.string()));
}

// Of the main kernel and of those that run before and after it.
std::vector<std::string> keys_of(const ordered_json& description) {
  std::vector<std::string> keys = {description.value("key", "")};
  if (description.contains("other_kernels"))
    for (const ordered_json& other : description["other_kernels"]) keys.push_back(other.value("key", ""));
  return keys;
}

int compile(const std::vector<std::string>& files, const std::string& out, bool strict,
            const CommonFlags& flags) {
  const std::vector<Shape> shapes = load_runnable_shapes(files, flags);
  const JsonReport report(flags.json);
  if (!out.empty() && !std::filesystem::is_directory(out)) {
    throw InputError(fmt::format("--out {}: need an existing directory", out));
  }
  const Session session(flags);
  std::vector<std::vector<std::string>> table = {
      {"kernel", "arch", "registers", "spill bytes", "stack bytes", "compile ms", "warnings", "key"}};
  ordered_json kernels = ordered_json::array();
  std::set<std::string> seen;
  bool clean = true;
  const auto add = [&](const std::string& key) {
    // The plan has just been made, so the artefact is in this process's cache.
    const auto hit = shared_cache(nullptr)->find(key);
    if (!hit)
      throw Error(MXFA_ERROR_DEVICE,
                  fmt::format("the compiled kernel {} is no longer in the cache; try again", key));
    ordered_json entry = ordered_json::parse(hit->artefact->report);
    const std::string name = entry.value("kernel", "kernel"), arch = entry.value("arch", "");
    const int spills = entry.value("spill_stores", 0) + entry.value("spill_loads", 0);
    const ordered_json warnings = entry.value("warnings", ordered_json::array());
    clean = clean && spills == 0 && warnings.empty();
    for (const ordered_json& warning : warnings)
      message(fmt::format("{} {}: {}", name, arch, warning.get<std::string>()));
    table.push_back({name, arch, fmt::format("{}", entry.value("registers", 0)), fmt::format("{}", spills),
                     fmt::format("{}", entry.value("stack_bytes", 0)),
                     fmt::format("{:.0f}", entry.value("compile_ms", 0.0)),
                     fmt::format("{}", warnings.size()), key.substr(0, 12)});
    entry["key"] = key;
    if (!out.empty()) {
      const std::filesystem::path stem =
          std::filesystem::path(out) / fmt::format("{}-{}-{}", name, arch, key.substr(0, 12));
      write_file(stem.string() + ".ptx", hit->artefact->ptx);
      write_file(stem.string() + ".cubin", hit->artefact->cubin);
      write_file(stem.string() + ".json", entry.dump(2) + "\n");
      entry["files"] = stem.string() + ".{ptx,cubin,json}";
      if (!flags.quiet) message(fmt::format("wrote {}.ptx, .cubin and .json", stem.string()));
    }
    kernels.push_back(std::move(entry));
  };
  for (const Shape& shape : shapes) {
    for (const PlannedKernel& planned : plan_all(session.context(), shape)) {
      for (const std::string& key : keys_of(planned.description))
        if (seen.insert(key).second) add(key);
    }
  }
  if (!report.on_stdout()) print_table(table);
  report.write({{"command", "compile"}, {"kernels", kernels}});
  return strict && !clean ? kWrongResult : kPassed;
}

}  // namespace

void add_compile(CLI::App& app, CommonFlags& flags, int& exit_code) {
  CLI::App* command = app.add_subcommand("compile", "compile kernels; show registers, spills and warnings");
  auto files = std::make_shared<std::vector<std::string>>();
  auto out = std::make_shared<std::string>();
  auto strict = std::make_shared<bool>(false);
  command->add_option("SHAPE", *files, "shape files")->required();
  command->add_option("--out", *out, "write PTX, cubin and report of each kernel to this directory");
  command->add_flag("--strict", *strict, "exit with 1 if a kernel spills registers or ptxas warned");
  add_shape_flags(*command, flags);
  command->callback([files, out, strict, &flags, &exit_code] {
    check_environment(flags);
    exit_code = compile(*files, *out, *strict, flags);
  });
}

}  // namespace mxfa::tools
