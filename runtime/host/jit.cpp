#include "host/jit.hpp"

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "host/error.hpp"
#include "host/ptxas_report.hpp"
#include "host/sha256.hpp"

namespace mxfa {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// What a kernel's static_asserts ask of its configuration, those that ship keep (tests/runtime compiles
// them), so that one that does not is the caller's.
void refuse_configuration(const KernelConfig& config, std::string_view log) {
  constexpr std::string_view kFailed = "static assertion failed with \"";
  const size_t at = log.find(kFailed);
  if (at == log.npos) return;
  const std::string_view reason = log.substr(at + kFailed.size());
  std::string fields;
  for (const ConfigField& field : config.fields)
    if (field.use == ConfigField::Use::kField) fields += fmt::format(" {}={}", field.name, field.value);
  invalid("{} for {} cannot have{}: {}; change what \"kernel\" overrides", config.kernel, config.arch, fields,
          reason.substr(0, reason.find("\"\n")));
}

}  // namespace

const char* product_version() { return MXFA_VERSION; }

std::vector<std::string> compile_options(const std::string& arch) {
  // A real architecture (sm_, not compute_) makes NVRTC run ptxas, so that one compile gives PTX and cubin.
  // Line information costs nothing at run time and lets profilers and the CPU driver name source lines.
  return {"--gpu-architecture=" + arch, "--std=c++20", "-lineinfo", "--ptxas-options=-v"};
}

std::string kernel_key(const KernelConfig& config, const MxfaEmbedded* headers,
                       const std::string& compiler_version, const std::string& compiler_build) {
  Sha256 hash;
  hash.field("mxfa " MXFA_VERSION ", entry format 1");
  hash.field(config.translation_unit());
  for (const MxfaEmbedded* header = headers; header->path; ++header)
    hash.field(header->path), hash.field(header->text);
  for (const std::string& option : compile_options(config.arch)) hash.field(option);
  hash.field(config.arch);
  hash.field(compiler_version);
  hash.field(compiler_build);
  return hex(hash.digest());
}

Artefact compile_kernel(const Nvrtc& nvrtc, const KernelConfig& config, const MxfaEmbedded* headers) {
  nvrtc.require_arch(config.arch);
  const std::vector<std::string> options = compile_options(config.arch);
  const auto start = Clock::now();
  NvrtcResult result;
  try {
    result = nvrtc.compile(config.kernel + ".cu", config.translation_unit(), headers, options);
  } catch (const Error& error) {
    refuse_configuration(config, error.what());
    throw;
  }
  const double compile_ms = milliseconds_since(start);
  const PtxasReport ptxas = parse_ptxas_log(result.log);
  const nlohmann::ordered_json report = {
      {"kernel", config.kernel},
      {"arch", config.arch},
      {"options", options},
      {"compiler", "NVRTC " + nvrtc.version()},
      {"registers", ptxas.registers},
      {"stack_bytes", ptxas.stack_bytes},
      {"spill_stores", ptxas.spill_stores},
      {"spill_loads", ptxas.spill_loads},
      {"static_shared_bytes", ptxas.static_shared_bytes},
      {"barriers", ptxas.barriers},
      {"warnings", ptxas.warnings},
      {"compile_ms", compile_ms},
  };
  return {std::move(result.ptx), std::move(result.cubin), report.dump()};
}

BuiltKernel build_kernel(const Nvrtc& nvrtc, Cache& cache, const KernelConfig& config,
                         const MxfaEmbedded* headers, bool verbose) {
  BuiltKernel built;
  built.key = kernel_key(config, headers, nvrtc.version(), nvrtc.build_id());
  const auto start = Clock::now();
  if (auto hit = cache.find(built.key)) {
    built.artefact = std::move(hit->artefact);
    built.state = hit->source == Cache::Source::kMemory ? "memory" : "warm";
  } else {
    Artefact artefact = compile_kernel(nvrtc, config, headers);
    built.state = "cold";
    std::fprintf(stderr, "mxfa: compiled %s for %s in %.0f ms\n", config.kernel.c_str(), config.arch.c_str(),
                 milliseconds_since(start));
    built.artefact = cache.insert(built.key, std::move(artefact));
  }
  built.build_ms = milliseconds_since(start);
  if (verbose && built.state != "cold")
    std::fprintf(stderr, "mxfa: found %s for %s in %s in %.1f ms\n", config.kernel.c_str(),
                 config.arch.c_str(), built.state == "warm" ? cache.directory().c_str() : "memory",
                 built.build_ms);
  return built;
}

}  // namespace mxfa
