// Every form of ptx/forms.def assembles with ptxas for every architecture that it claims.
#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "forms.hpp"
#include "support/catch.hpp"

namespace fs = std::filesystem;
using mxfa::test::expand;
using mxfa::test::Form;
using mxfa::test::forms;

namespace {

// ptxas of CUDA_HOME, of the PATH, or of the project's own .deps; empty if there is none.
fs::path find_ptxas() {
  std::vector<fs::path> folders;
  if (const char* home = std::getenv("CUDA_HOME")) folders.push_back(fs::path(home) / "bin");
  std::istringstream path(std::getenv("PATH") ? std::getenv("PATH") : "");
  for (std::string folder; std::getline(path, folder, ':');) {
    if (!folder.empty()) folders.push_back(folder);
  }
  folders.push_back(fs::path(MXFA_SOURCE_DIR) / ".deps/cuda/bin");
  folders.push_back("/usr/local/cuda/bin");
  for (const fs::path& folder : folders) {
    std::error_code ignored;
    if (fs::is_regular_file(folder / "ptxas", ignored)) return folder / "ptxas";
  }
  return {};
}

// One entry a form: ptxas refuses both cta_groups in one function, and a report then names the form.
std::string ptx_of(const std::vector<Form>& list, const std::string& arch) {
  std::string text = ".version 8.8\n.target " + arch + "\n.address_size 64\n";
  for (size_t i = 0; i < list.size(); ++i) {
    // setmaxnreg is dropped unless the register count at entry is known, hence the bounds.
    text += ".visible .entry form" + std::to_string(i) +
            "() .maxntid 128 .minnctapersm 1 { .reg .b32 %r<256>; .reg .b64 %d<8>; .reg .f32 %f<256>; "
            ".reg .b16 %h<8>; .reg .b128 %q<2>; .reg .pred %p<8>; " +
            expand(list[i].text) + " ret; }  // " + list[i].header + "\n";
  }
  return text;
}

struct Result {
  int status;
  std::string output;
};

Result assemble(const fs::path& ptxas, const std::string& ptx, const std::string& arch) {
  const fs::path folder =
      fs::temp_directory_path() / ("mxfa_forms_" + std::to_string(::getpid()) + "_" + arch);
  fs::create_directories(folder);
  std::ofstream(folder / "forms.ptx") << ptx;
  const std::string command = "'" + ptxas.string() + "' -arch=" + arch + " '" +
                              (folder / "forms.ptx").string() + "' -o '" + (folder / "forms.cubin").string() +
                              "' > '" + (folder / "log").string() + "' 2>&1";
  const int status = std::system(command.c_str());
  const std::string log = mxfa::test::read_text(folder / "log");
  fs::remove_all(folder);
  return {status, log};
}

std::vector<Form> forms_of(const std::string& arch) {
  std::vector<Form> list;
  for (const Form& form : forms()) {
    // What the Blackwell kernels use of sm_100a, sm_103a has too.
    if (form.arch == "sm_90" || form.arch == arch || (arch == "sm_103a" && form.arch == "sm_100a"))
      list.push_back(form);
  }
  return list;
}

}  // namespace

TEST_CASE("ptx/forms: every form assembles for each architecture it names", "[ptx]") {
  const fs::path ptxas = find_ptxas();
  if (ptxas.empty()) {
    std::cerr << "SKIPPED: no ptxas in CUDA_HOME/bin, PATH, .deps/cuda/bin or /usr/local/cuda/bin; "
                 "the forms in ptx/forms.def were not assembled\n";
    return;
  }
  for (const char* arch : {"sm_90a", "sm_100a", "sm_103a"}) {
    const std::vector<Form> list = forms_of(arch);
    const Result result = assemble(ptxas, ptx_of(list, arch), arch);
    INFO(arch << ": line n + 3 of the file is form n\n" << result.output);
    CHECK(result.status == 0);
    CHECK(result.output.find("ignored") == std::string::npos);
  }
}

TEST_CASE("ptx/forms: a form that ptxas does not know is reported", "[ptx]") {
  const fs::path ptxas = find_ptxas();
  if (ptxas.empty()) return;
  const std::vector<Form> broken = {{"none", "sm_90", "fence.proxy.nonsense;"}};
  CHECK(assemble(ptxas, ptx_of(broken, "sm_90a"), "sm_90a").status != 0);
}
