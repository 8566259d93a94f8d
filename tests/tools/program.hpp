// Runs the program mxfa as a user does: a process with arguments, environment and a fresh working directory.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace mxfa::test {

struct ProgramResult {
  int exit_code = -1;  // 128 + signal when it was killed
  std::string out, err;
};

// A fresh directory that is removed with the object.  The program's working directory and, unless a test says
// otherwise, HOME.
class Workplace {
 public:
  Workplace();
  ~Workplace();
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;

  std::string path(const std::string& name) const { return (root_ / name).string(); }
  std::string write(const std::string& name, const std::string& text) const;  // returns the path
  std::vector<std::string> files() const;  // relative names, sorted, recursively

  // MXFA_ variables of the test's own environment are removed first; the kernel cache is that of all test
  // programs of the build, so that a kernel is compiled once.
  ProgramResult run(const std::vector<std::string>& arguments,
                    const std::map<std::string, std::string>& environment = {}) const;

 private:
  std::filesystem::path root_;
};

// True if a message looks like what a crash or an uncaught exception leaves behind.
bool looks_like_a_stack_trace(const std::string& text);

}  // namespace mxfa::test
