// The list of ptx/forms.def, and the text of the project's device sources.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace mxfa::test {

struct Form {
  std::string header, arch, text;  // ptx/<header>.cuh; sm_90, sm_90a or sm_100a
};

inline const std::vector<Form>& forms() {
#define MXFA_FORM(HEADER, ARCH, TEXT) {#HEADER, #ARCH, TEXT},
  static const std::vector<Form> list = {
#include "ptx/forms.def"
  };
#undef MXFA_FORM
  return list;
}

// "{%r*4}" -> "{%r0, %r1, %r2, %r3}".
inline std::string expand(std::string text) {
  for (size_t star; (star = text.find('*')) != std::string::npos;) {
    size_t end = star + 1;
    while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end]))) ++end;
    const std::string prefix = text.substr(star - 2, 2);
    std::string list;
    for (int i = 0, n = std::stoi(text.substr(star + 1, end - star - 1)); i < n; ++i) {
      list += (i ? ", " : "") + prefix + std::to_string(i);
    }
    text.replace(star - 2, end - star + 2, list);
  }
  return text;
}

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + path.string());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Every file below a folder of the project, by path relative to the project, sorted.
inline std::vector<std::string> files_below(const std::string& folder) {
  const std::filesystem::path root = MXFA_SOURCE_DIR;
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
    if (entry.is_regular_file()) files.push_back(std::filesystem::relative(entry.path(), root).string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace mxfa::test
