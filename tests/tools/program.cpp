#include "tools/program.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "support/kernel_cache.hpp"

extern char** environ;

namespace mxfa::test {

namespace fs = std::filesystem;

namespace {

fs::path fresh_directory() {
  std::string name = (fs::temp_directory_path() / "mxfa-test-XXXXXX").string();
  if (!mkdtemp(name.data())) throw std::runtime_error("cannot make a temporary directory");
  return name;
}

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

Workplace::Workplace() : root_(fresh_directory()) {}

Workplace::~Workplace() {
  std::error_code ignored;
  fs::remove_all(root_, ignored);
}

std::string Workplace::write(const std::string& name, const std::string& text) const {
  std::ofstream(root_ / name, std::ios::binary) << text;
  return path(name);
}

std::vector<std::string> Workplace::files() const {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(root_))
    names.push_back(fs::relative(entry.path(), root_).string());
  std::sort(names.begin(), names.end());
  return names;
}

ProgramResult Workplace::run(const std::vector<std::string>& arguments,
                             const std::map<std::string, std::string>& environment) const {
  std::map<std::string, std::string> variables = {{"HOME", root_.string()},
                                                  {"MXFA_CACHE_DIR", kernel_cache()}};
  for (const auto& [name, value] : environment) variables[name] = value;
  std::vector<std::string> lines;
  for (char** entry = environ; *entry; ++entry) {
    const std::string line = *entry, name = line.substr(0, line.find('='));
    if (!name.starts_with("MXFA_") && name != "XDG_CACHE_HOME" && !variables.contains(name))
      lines.push_back(line);
  }
  for (const auto& [name, value] : variables) lines.push_back(name + "=" + value);

  std::vector<char*> argv = {const_cast<char*>(MXFA_PROGRAM)}, envp;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  for (const std::string& line : lines) envp.push_back(const_cast<char*>(line.c_str()));
  argv.push_back(nullptr);
  envp.push_back(nullptr);

  const fs::path streams = fresh_directory();  // outside of the working directory, whose files a test counts
  const std::string out = streams / "out", err = streams / "err";
  const pid_t child = fork();
  if (child == 0) {
    const int in_file = open("/dev/null", O_RDONLY);
    const int out_file = open(out.c_str(), O_WRONLY | O_CREAT, 0600),
              err_file = open(err.c_str(), O_WRONLY | O_CREAT, 0600);
    if (chdir(root_.c_str()) != 0) _exit(127);
    dup2(in_file, 0);
    dup2(out_file, 1);
    dup2(err_file, 2);
    alarm(300);  // a hang fails the test instead of stopping the suite
    execve(MXFA_PROGRAM, argv.data(), envp.data());
    _exit(127);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) throw std::runtime_error("cannot run the program");
  ProgramResult result{WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read(out),
                       read(err)};
  std::error_code ignored;
  fs::remove_all(streams, ignored);
  return result;
}

bool looks_like_a_stack_trace(const std::string& text) {
  for (const char* mark : {"terminate called", "what():", "Traceback", "Segmentation fault", "core dumped",
                           "Aborted", "#0 ", "json.exception", "std::"}) {
    if (text.find(mark) != std::string::npos) return true;
  }
  return false;
}

}  // namespace mxfa::test
