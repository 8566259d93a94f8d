// mxfa_silicon: runs the programs of this folder on a device and keeps or compares the answers.
//   mxfa_silicon record FILE --device gpu      every answer whole, into one file; with --expected PATH those
//   that
//                                              agree with the answers there only as checksums
//   mxfa_silicon store FILE FOLDER             that file into the folder the repository keeps, a file a
//   subject mxfa_silicon compare [--answers PATH]      runs the programs and compares with a folder or a
//   recorded file
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <thread>

#include "answers.hpp"

namespace mxfa::silicon {
namespace {

using Clock = std::chrono::steady_clock;

Programs all_programs() {
  Programs programs;
  add_conversions(programs);
  add_arithmetic(programs);
  add_integers(programs);
  add_approximate(programs);
  add_warp(programs);
  add_memory(programs);
  add_barriers(programs);
  add_clusters(programs);
  add_tensor_copies(programs);
  add_wgmma_layouts(programs);
  add_tensor_sums(programs);
  return programs;
}

std::string subject(const std::string& name) { return name.substr(0, name.find('/')); }

// Ends the process when one program takes too long: a hung GPU answers no call, not even the one that asks
// it.
class Watchdog {
 public:
  explicit Watchdog(int seconds) : limit_(seconds) {
    std::thread([this] {
      for (;;) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        if (Clock::now().time_since_epoch().count() < deadline_.load()) continue;
        fmt::print(stderr, "mxfa_silicon: {} did not end in {} s, giving up\n", name_, limit_);
        std::fflush(nullptr);
        _exit(4);
      }
    }).detach();
  }
  void begin(const std::string& name) {
    name_ = name;
    deadline_ = (Clock::now() + std::chrono::seconds(limit_)).time_since_epoch().count();
  }

 private:
  int limit_;
  std::string name_;
  std::atomic<Clock::rep> deadline_{(Clock::now() + std::chrono::seconds(60)).time_since_epoch().count()};
};

struct Options {
  std::string device = "emulator", only, ptx, answers = MXFA_SILICON_ANSWERS, expected, file, folder;
  bool survey = false, verbose = false;
};

std::unique_ptr<Machine> open(const Options& options) {
  const char* chosen = std::getenv("MXFA_EMULATOR_LIBRARY");
  auto machine = std::make_unique<Machine>(options.device == "gpu" ? "libcuda.so.1"
                                           : chosen                ? chosen
                                                                   : MXFA_EMULATOR_LIBRARY);
  machine->dump_folder = options.ptx;
  return machine;
}

// Programs and how each went, in processes of their own: a fault on a GPU spoils the process that caused it,
// so the next process goes on behind the program that failed.  `each` is called in the process that ran the
// program.
template <class F>
void for_programs(const Options& options, const Programs& programs, F each) {
  constexpr int kFaults = 40;  // then give up
  auto* next = static_cast<std::atomic<size_t>*>(
      mmap(nullptr, sizeof(std::atomic<size_t>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  new (next) std::atomic<size_t>(0);
  for (int faults = 0; *next < programs.size() && faults < kFaults; ++faults) {
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child < 0) throw std::runtime_error("cannot start a process");
    if (child) {
      int status = 0;
      waitpid(child, &status, 0);
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0) break;
      if (WIFEXITED(status) && WEXITSTATUS(status) == 3) _exit(3);
      if (WIFEXITED(status) && WEXITSTATUS(status) == 5) continue;  // it has told
      Answer answer;
      answer.failure =
          WIFSIGNALED(status) ? fmt::format("signal {}", WTERMSIG(status)) : "did not end in time";
      each(programs[*next], answer);
      ++*next;
      continue;
    }
    try {
      Watchdog& watchdog =
          *new Watchdog(options.device == "gpu" ? 15 : 120);  // its thread outlives this scope
      watchdog.begin("the start of the driver");
      const auto machine = open(options);
      while (*next < programs.size()) {
        const Program& program = programs[*next];
        watchdog.begin(program.name);
        Answer answer;
        try {
          answer.words = program.run(*machine);
          answer.count = answer.words.size();
          machine->release();
        } catch (const std::exception& error) {
          answer.failure = error.what();
        }
        each(program, answer);
        ++*next;
        if (answer.failure.empty()) continue;
        std::fflush(nullptr);
        _exit(5);
      }
    } catch (const std::exception& error) {
      fmt::print(stderr, "mxfa_silicon: {}\n", error.what());
      _exit(3);
    }
    std::fflush(nullptr);
    _exit(0);
  }
}

// Counts that the processes share.
struct Tally {
  std::atomic<int> programs{0}, failed{0};
  std::atomic<size_t> words{0};
  static Tally& create() {
    return *new (mmap(nullptr, sizeof(Tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
        Tally;
  }
};

Programs chosen_programs(const Options& options) {
  Programs chosen;
  for (Program& program : all_programs())
    if (program.name.find(options.only) != std::string::npos &&
        (options.survey || program.agreement.kind != Agreement::Kind::Survey))
      chosen.push_back(std::move(program));
  return chosen;
}

// Asks a process of its own, so that this one stays without a driver.
std::string description(const Options& options) {
  int ends[2];
  if (pipe(ends)) throw std::runtime_error("no pipe");
  const pid_t child = fork();
  if (child == 0) {
    std::string text;
    try {
      text = open(options)->description();
    } catch (const std::exception& error) {
      text = std::string("!") + error.what();
    }
    [[maybe_unused]] const auto written = write(ends[1], text.data(), text.size());
    _exit(0);
  }
  close(ends[1]);
  char buffer[1024];
  const auto size = read(ends[0], buffer, sizeof buffer);
  close(ends[0]);
  waitpid(child, nullptr, 0);
  const std::string text(buffer, static_cast<size_t>(std::max<ssize_t>(size, 0)));
  if (text.empty() || text[0] == '!') throw std::runtime_error(text.empty() ? "no device" : text.substr(1));
  return text;
}

Answers stored_answers(const std::string& path) {
  Answers answers;
  if (!std::filesystem::is_directory(path)) {
    read_text(path, answers);
    return answers;
  }
  for (const auto& entry : std::filesystem::directory_iterator(path))
    if (entry.path().extension() == ".txt") read_text(entry.path(), answers);
  return answers;
}

int record(const Options& options) {
  const Answers expected = options.expected.empty() ? Answers{} : stored_answers(options.expected);
  const auto start = Clock::now();
  const std::string device = description(options);
  std::ofstream(options.file) << "# " << device << "\n";
  Tally& tally = Tally::create();
  for_programs(options, chosen_programs(options), [&](const Program& program, const Answer& answer) {
    const auto found = expected.find(program.name);
    const bool known =
        found != expected.end() && found->second.hashed && compare({}, found->second, answer.words).agrees;
    // Bounded, should everything differ.
    const bool all = !known && (expected.empty() || (tally.words += answer.count) < 2'000'000);
    std::ofstream(options.file, std::ios::app) << to_text(program.name, all ? answer : shortened(answer));
    ++tally.programs;
    if (answer.failure.empty()) return;
    ++tally.failed;
    fmt::print("{}: {}\n", program.name, answer.failure);
  });
  fmt::print("{}\n{} programs, {} without an answer, {:.1f} s\n", device, tally.programs.load(),
             tally.failed.load(), std::chrono::duration<double>(Clock::now() - start).count());
  return 0;
}

int store(const Options& options) {
  Answers answers;
  std::string heading;
  read_text(options.file, answers, &heading);
  std::filesystem::create_directories(options.folder);
  std::map<std::string, std::string> files;
  for (const Program& program : all_programs()) {
    const auto found = answers.find(program.name);
    if (program.agreement.kind == Agreement::Kind::Survey || found == answers.end()) continue;
    const bool whole =
        program.agreement.kind == Agreement::Kind::Ulp || program.agreement.kind == Agreement::Kind::Absolute;
    files[subject(program.name)] += to_text(program.name, whole ? found->second : shortened(found->second));
  }
  for (const auto& [name, text] : files)
    std::ofstream(options.folder + "/" + name + ".txt") << heading << text;
  return 0;
}

int compare_all(const Options& options) {
  const Answers answers = stored_answers(options.answers);
  std::string device;
  try {
    device = description(options);
  } catch (const std::exception& error) {
    if (options.device != "gpu") throw;
    fmt::print("not run: {}\n", error.what());
    return 0;
  }
  Tally& tally = Tally::create();
  for_programs(options, chosen_programs(options), [&](const Program& program, const Answer& answer) {
    const auto found = answers.find(program.name);
    if (found == answers.end() && program.agreement.kind == Agreement::Kind::Survey) return;
    ++tally.programs;
    if (found == answers.end() || !answer.failure.empty()) {
      ++tally.failed;
      fmt::print("{}: {}\n", program.name, answer.failure.empty() ? "no stored answer" : answer.failure);
      return;
    }
    const Verdict verdict = compare(program.agreement, found->second, answer.words);
    if (options.verbose)
      fmt::print("{}: {} words, largest difference {}\n", program.name, verdict.compared, verdict.largest);
    if (verdict.agrees) return;
    ++tally.failed;
    fmt::print("{}: {} of {} differ, first {}\n", program.name, verdict.different, verdict.compared,
               verdict.first);
  });
  fmt::print("{}: {} programs, {} disagree\n", device, tally.programs.load(), tally.failed.load());
  return tally.failed || !tally.programs ? 1 : 0;
}

}  // namespace
}  // namespace mxfa::silicon

int main(int argc, char** argv) {
  using namespace mxfa::silicon;
  Options options;
  CLI::App app("Small sm_90a programs on a real device and on the CPU driver, and their answers");
  app.require_subcommand(1);
  const auto common = [&](CLI::App* command) {
    command->add_option("--device", options.device)->check(CLI::IsMember({"gpu", "emulator"}));
    command->add_option("--only", options.only, "programs whose name holds this");
    command->add_option("--dump-ptx", options.ptx, "folder for the PTX texts");
    command->add_flag("--survey", options.survey, "also the programs whose answers are not kept");
    return command;
  };
  auto* recording = common(app.add_subcommand("record", "run the programs, every answer whole into FILE"));
  recording->add_option("file", options.file)->required();
  recording->add_option("--expected", options.expected, "a folder, or a recorded file");
  auto* storing =
      app.add_subcommand("store", "a recorded FILE into the FOLDER of answers the repository keeps");
  storing->add_option("file", options.file)->required();
  storing->add_option("folder", options.folder)->required();
  auto* comparing =
      common(app.add_subcommand("compare", "run the programs and compare with answers kept before"));
  comparing->add_option("--answers", options.answers, "a folder, or a recorded file");
  comparing->add_flag("--verbose", options.verbose);
  CLI11_PARSE(app, argc, argv);
  int status = 0;
  try {
    status = recording->parsed() ? record(options)
             : storing->parsed() ? store(options)
                                 : compare_all(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "mxfa_silicon: {}\n", error.what());
    status = 3;
  }
  std::fflush(nullptr);
  return status;
}
