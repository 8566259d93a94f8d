#include "host/nvrtc.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "host/error.hpp"
#include "host/paths.hpp"

namespace mxfa {
namespace {

std::vector<std::string> candidates() {
  if (const char* given = std::getenv("MXFA_NVRTC"); given && *given) return {given};
  std::vector<std::string> homes;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* home = std::getenv(variable); home && *home) homes.push_back(home);
  homes.push_back("/usr/local/cuda");
  // A build folder inside the project: the toolkit that tools/setup.sh chose or fetched.
  const std::string project = own_directory() + "/../../.deps";
  std::string chosen;
  if (std::getline(std::ifstream(project + "/cuda_root"), chosen)) homes.push_back(chosen);
  homes.push_back(project + "/cuda");
  std::vector<std::string> names = {"libnvrtc.so.13", "libnvrtc.so.12"};
  for (const std::string& home : homes)
    for (const char* lib : {"/lib64/libnvrtc.so.", "/lib/libnvrtc.so."})
      for (const char* major : {"13", "12"}) names.push_back(home + lib + major);
  return names;
}

// The linker's build id of a loaded library: two NVRTC builds of one version may generate different code.
std::string build_id_of(const void* address) {
  struct Search {
    ElfW(Addr) address;
    std::string id;
  } search{reinterpret_cast<ElfW(Addr)>(address), {}};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto& search = *static_cast<Search*>(data);
        const auto contains = [&](const ElfW(Phdr) & header) {
          const ElfW(Addr) begin = info->dlpi_addr + header.p_vaddr;
          return header.p_type == PT_LOAD && search.address >= begin &&
                 search.address < begin + header.p_memsz;
        };
        if (std::none_of(info->dlpi_phdr, info->dlpi_phdr + info->dlpi_phnum, contains)) return 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const ElfW(Phdr)& header = info->dlpi_phdr[i];
          if (header.p_type != PT_NOTE) continue;
          const char* at = reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr);
          const char* end = at + header.p_memsz;
          while (at + sizeof(ElfW(Nhdr)) <= end) {
            const auto* note = reinterpret_cast<const ElfW(Nhdr)*>(at);
            const char* owner = at + sizeof(*note);
            const char* bytes =
                owner + (note->n_namesz + 3) / 4 * 4;  // name and descriptor are padded to words
            if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && std::memcmp(owner, "GNU", 4) == 0)
              for (unsigned b = 0; b < note->n_descsz; ++b)
                search.id += fmt::format("{:02x}", uint8_t(bytes[b]));
            at = bytes + (note->n_descsz + 3) / 4 * 4;
          }
        }
        return 1;
      },
      &search);
  return search.id;
}

std::string joined(const std::vector<std::string>& options) {
  return fmt::format("{}", fmt::join(options, " "));
}

}  // namespace

Nvrtc::Nvrtc() {
  std::string why;
  void* handle = open_first(candidates(), &library_, &why);
  if (!handle)
    device_error(
        "the CUDA run-time compiler (libnvrtc.so.13 or libnvrtc.so.12) was not found ({}); install NVRTC "
        "12.8 or newer, or name the file in MXFA_NVRTC",
        why);
#define MXFA_NVRTC_LOAD(name)                                    \
  name = reinterpret_cast<decltype(name)>(dlsym(handle, #name)); \
  if (!name) device_error("{} lacks {}; mxfa needs NVRTC 12.8 or newer", library_, #name);
  MXFA_NVRTC_FUNCTIONS(MXFA_NVRTC_LOAD)
#undef MXFA_NVRTC_LOAD
  if (nvrtcVersion(&major_, &minor_) != NVRTC_SUCCESS) device_error("{}: nvrtcVersion failed", library_);
  build_id_ = build_id_of(reinterpret_cast<const void*>(nvrtcVersion));
}

std::string Nvrtc::version() const { return fmt::format("{}.{}", major_, minor_); }

void Nvrtc::require_arch(const std::string& arch) const {
  int count = 0;
  if (nvrtcGetNumSupportedArchs(&count) != NVRTC_SUCCESS) count = 0;
  std::vector<int> known(count);
  if (count > 0) nvrtcGetSupportedArchs(known.data());
  const int wanted = std::atoi(arch.c_str() + std::strlen("sm_"));  // the list has numbers without the suffix
  if (std::find(known.begin(), known.end(), wanted) == known.end())
    device_error(
        "{} (version {}) cannot compile for {}; install NVRTC 12.9 or newer, or name another file in "
        "MXFA_NVRTC",
        library_, version(), arch);
}

NvrtcResult Nvrtc::compile(const std::string& name, const std::string& source, const MxfaEmbedded* headers,
                           const std::vector<std::string>& options) const {
  std::vector<const char*> texts, names, flags;
  for (const MxfaEmbedded* header = headers; header->path; ++header) {
    texts.push_back(header->text);
    names.push_back(header->path);
  }
  for (const std::string& option : options) flags.push_back(option.c_str());

  struct Program {
    const Nvrtc& nvrtc;
    nvrtcProgram handle = nullptr;
    ~Program() { nvrtc.nvrtcDestroyProgram(&handle); }
  } program{*this};
  const nvrtcResult created = nvrtcCreateProgram(&program.handle, source.c_str(), name.c_str(),
                                                 int(texts.size()), texts.data(), names.data());
  if (created != NVRTC_SUCCESS)
    device_error("nvrtcCreateProgram for {}: {}", name, nvrtcGetErrorString(created));
  const nvrtcResult compiled = nvrtcCompileProgram(program.handle, int(flags.size()), flags.data());

  const auto fetch = [&](auto size_of, auto get, const char* what) {
    size_t size = 0;
    std::string text;
    nvrtcResult result = size_of(program.handle, &size);
    if (result == NVRTC_SUCCESS) text.resize(size), result = get(program.handle, text.data());
    if (result != NVRTC_SUCCESS)
      device_error("NVRTC {}: no {} for {}: {}", version(), what, name, nvrtcGetErrorString(result));
    return text;
  };
  const auto fetch_text = [&](auto size_of, auto get, const char* what) {
    std::string text = fetch(size_of, get, what);
    while (!text.empty() && text.back() == '\0') text.pop_back();  // NVRTC counts the terminator
    return text;
  };
  NvrtcResult result;
  result.log = fetch_text(nvrtcGetProgramLogSize, nvrtcGetProgramLog, "log");
  if (compiled != NVRTC_SUCCESS)
    device_error("compiling {} failed: {}\n{}options: {}\ncompiler: {} (NVRTC {})", name,
                 nvrtcGetErrorString(compiled), result.log, joined(options), library_, version());
  result.ptx = fetch_text(nvrtcGetPTXSize, nvrtcGetPTX, "PTX");
  result.cubin = fetch(nvrtcGetCUBINSize, nvrtcGetCUBIN, "cubin");

  // NVRTC puts the working directory in front of every relative name of a .file line; the embedded names are
  // the useful ones.
  std::error_code ignored;
  const std::string here = fmt::format("\"{}/", std::filesystem::current_path(ignored).string());
  for (size_t at = result.ptx.find("\t.file"); at != std::string::npos;
       at = result.ptx.find("\t.file", at + 1)) {
    const size_t quote = result.ptx.find('"', at);
    if (quote != std::string::npos && result.ptx.compare(quote, here.size(), here) == 0)
      result.ptx.erase(quote + 1, here.size() - 1);
  }
  return result;
}

}  // namespace mxfa
