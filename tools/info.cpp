// `mxfa info`: what is here, what is missing, and what to do about it.  Never fails to start: each part is
// tried on its own.
#include <fmt/format.h>

#include "common.hpp"
#include "host/cache.hpp"
#include "host/driver.hpp"
#include "host/embedded.hpp"
#include "host/nvrtc.hpp"

namespace mxfa::tools {

namespace {

using nlohmann::ordered_json;

// Runs one part; a failure becomes {"missing": sentence}.
template <class Part>
ordered_json attempt(Part&& part) {
  try {
    return part();
  } catch (const Error& error) {
    return {{"missing", error.what()}};
  }
}

ordered_json driver_part(const DeviceChoice& choice) {
  return attempt([&]() -> ordered_json {
    const Driver driver = load_driver(choice);
    int devices = 0;
    driver.check(driver.cuDeviceGetCount(&devices), "cuDeviceGetCount");
    return {{"device", driver.device_name},
            {"number", driver.device},
            {"devices", devices},
            {"capability", fmt::format("{}.{}", driver.compute_major, driver.compute_minor)},
            {"arch", driver.arch},
            {"multiprocessors", driver.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)},
            {"driver", driver.library},
            {"driver_version", driver.version()}};
  });
}

ordered_json nvrtc_part() {
  return attempt([]() -> ordered_json {
    const Nvrtc nvrtc;
    ordered_json part = {{"library", nvrtc.library()}, {"version", nvrtc.version()}};
    for (const char* arch : {"sm_90a", "sm_100a", "sm_103a"}) {
      const ordered_json able = attempt([&]() -> ordered_json {
        nvrtc.require_arch(arch);
        return {};
      });
      part["architectures"][arch] = able.contains("missing") ? able["missing"] : ordered_json("yes");
    }
    return part;
  });
}

ordered_json cache_part() {
  return attempt([]() -> ordered_json {
    const auto cache = shared_cache(nullptr);
    if (cache->directory().empty()) return {{"directory", "none; compiled kernels are kept in memory only"}};
    return {{"directory", cache->directory()},
            {"set_by", cache->setting()},
            {"entries", cache->list().entries.size()}};
  });
}

ordered_json kernels_part() {
  ordered_json kernels = ordered_json::array();
  for (const MxfaEmbedded* file = mxfa_embedded_kernel_configs; file->path; ++file) {
    const ordered_json config = ordered_json::parse(file->text, nullptr, false);
    if (!config.is_object()) continue;
    std::string archs;
    for (const ordered_json& arch : config.value("archs", ordered_json::array())) {
      archs += (archs.empty() ? "" : ", ") + arch.get<std::string>();
    }
    kernels.push_back({{"kernel", config.value("kernel", file->path)}, {"architectures", archs}});
  }
  return kernels;
}

void print_part(const char* title, const ordered_json& part) {
  fmt::print("{}\n", title);
  for (const auto& [key, value] : part.items()) {
    if (value.is_object()) {
      for (const auto& [inner, text] : value.items()) {
        fmt::print("  {}: {}\n", inner, text.is_string() ? text.get<std::string>() : text.dump());
      }
    } else {
      fmt::print("  {}: {}\n", key, value.is_string() ? value.get<std::string>() : value.dump());
    }
  }
}

int info(const CommonFlags& flags) {
  const JsonReport report(flags.json);
  const DeviceChoice chosen = parse_device(flags.device_or_null());  // a wrong name is a usage error
  ordered_json gpu, emulator;
  if (chosen.kind != DeviceChoice::Kind::kEmulator)
    gpu = driver_part({DeviceChoice::Kind::kGpu, {}, chosen.ordinal});
  if (chosen.kind != DeviceChoice::Kind::kGpu)
    emulator = driver_part({DeviceChoice::Kind::kEmulator, chosen.model, chosen.ordinal});
  const ordered_json nvrtc = nvrtc_part(), cache = cache_part(), kernels = kernels_part();

  const bool has_gpu = !gpu.is_null() && !gpu.contains("missing");
  const bool has_emulator = !emulator.is_null() && !emulator.contains("missing");
  const bool has_nvrtc = !nvrtc.contains("missing");
  std::string result;
  if (!has_nvrtc) {
    result = "not ready: no compiler. Run 'make setup', or name libnvrtc.so.13 in MXFA_NVRTC";
  } else if (!has_gpu && !has_emulator && chosen.ordinal >= 0) {  // one device was asked for by its number
    result = "not ready: " + (gpu.is_null() ? emulator : gpu)["missing"].get<std::string>();
  } else if (!has_gpu && !has_emulator) {
    result =
        "not ready: no device. Build the CPU driver (make), or name libmxfa_emulator.so in "
        "MXFA_EMULATOR_LIBRARY";
  } else {
    result = fmt::format("ready; commands run on {}",
                         has_gpu ? gpu["device"].get<std::string>() : emulator["device"].get<std::string>());
  }

  if (!report.on_stdout()) {
    fmt::print("mxfa {}\n", MXFA_VERSION);
    if (!gpu.is_null()) print_part("GPU", gpu);
    if (!emulator.is_null()) print_part("CPU driver", emulator);
    print_part("NVRTC", nvrtc);
    print_part("cache", cache);
    fmt::print("kernels\n");
    for (const ordered_json& kernel : kernels) {
      fmt::print("  {}: {}\n", kernel["kernel"].get<std::string>(),
                 kernel["architectures"].get<std::string>());
    }
    fmt::print("{}\n", result);
  }
  ordered_json out = {{"command", "info"}, {"version", MXFA_VERSION}};
  if (!gpu.is_null()) out["gpu"] = gpu;
  if (!emulator.is_null()) out["cpu_driver"] = emulator;
  out["nvrtc"] = nvrtc;
  out["cache"] = cache;
  out["kernels"] = kernels;
  out["result"] = result;
  report.write(out);
  return has_nvrtc && (has_gpu || has_emulator) ? kPassed : kDeviceTrouble;
}

}  // namespace

void add_info(CLI::App& app, CommonFlags& flags, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "info", "devices, driver, compiler, cache and kernels; what is missing and the remedy");
  add_device_flag(*command, flags);
  add_json_flag(*command, flags);
  command->callback([&flags, &exit_code] {
    check_environment(flags);
    exit_code = info(flags);
  });
}

}  // namespace mxfa::tools
