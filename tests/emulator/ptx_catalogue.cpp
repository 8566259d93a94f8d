// The two catalogues of instruction forms (tests/data/isa; ptxas 13.0 assembles both), and the table of
// docs/instructions.md.  With MXFA_UPDATE_DOCS=1 the table is written instead of compared.
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "core/handlers.hpp"
#include "core_harness.hpp"
#include "ptx/form.hpp"
#include "ptx/parser.hpp"
#include "support/catch.hpp"

namespace mxfa::emulator {
const Kernel* find_lowered_kernel(const Module& module, const KernelInfo& info);
}

namespace {

using namespace mxfa::emulator;
using ptx::Form;
using ptx::Status;

std::string read_file(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

struct Catalogue {
  const char* file;
  DeviceModel device;
};
std::vector<Catalogue> catalogues() {
  DeviceModel hopper;
  hopper.major = 9;
  hopper.tensor_memory = false;
  return {{"catalogue_sm100a.ptx", mxfa::test::blackwell()}, {"catalogue_sm90a.ptx", hopper}};
}

// A statement of a catalogue: its text, its form, and what it became.
struct Statement {
  std::string text, opcode, entry;
  const Form* form = nullptr;
  std::vector<Handler> handlers;
  bool refused() const {
    return std::find(handlers.begin(), handlers.end(), handlers::refuse()) != handlers.end();
  }
};

std::vector<Statement> statements(const Catalogue& c, const std::string& text) {
  const auto module = Module::load(text, c.device, mxfa::test::test_arena());
  const Program& program =
      *find_lowered_kernel(*module, *module->find_kernel(module->kernel_names().at(0)))->program;
  std::map<uint32_t, std::vector<Handler>> by_position;
  for (size_t pc = 0; pc < program.code.size(); ++pc)
    by_position[program.origins[pc].position].push_back(program.code[pc].run);
  std::vector<Statement> result;
  for (const ptx::Function& f : program.module->functions)
    for (const ptx::Instruction& i : f.instructions) {
      Statement s;
      const std::string_view source = program.source->text();
      s.text = source.substr(i.position, source.find(';', i.position) + 1 - i.position);
      s.opcode = s.text.substr(0, s.text.find(' '));
      s.entry = f.name;
      s.form = match_form(*program.source, f, i).form;
      s.handlers = by_position[i.position];
      result.push_back(std::move(s));
    }
  return result;
}

std::string data(const Catalogue& c) { return read_file(std::string(MXFA_TEST_DATA "/isa/") + c.file); }

// The entry with its declarations, and nothing but this statement.
std::string alone(const std::string& catalogue, const Statement& s) {
  const size_t header = catalogue.find("\n.version"), first = catalogue.find(".visible");
  const size_t entry = catalogue.find(".entry " + s.entry + "("), open = catalogue.find('{', entry),
               close = catalogue.find("\n}", open);
  std::string text =
      catalogue.substr(header, catalogue.find('\n', catalogue.find(".address_size")) - header) +
      "\n.visible " + catalogue.substr(entry, open - entry) + "{\n";
  REQUIRE(first != std::string::npos);
  std::istringstream lines(catalogue.substr(open + 1, close - open - 1));
  for (std::string line; std::getline(lines, line);) {
    const size_t begin = line.find_first_not_of(" \t");
    if (begin != std::string::npos &&
        (line.compare(begin, 4, ".reg") == 0 || line.compare(begin, 7, ".shared") == 0))
      text += line + "\n";
  }
  return text + s.text + "\nret;\n}\n";
}

}  // namespace

TEST_CASE("every form of the catalogues is executed, accepted or refused as its row says", "[ptx]") {
  for (const Catalogue& c : catalogues()) {
    const auto all = statements(c, data(c));
    CHECK(all.size() > 600);
    for (const Statement& s : all) {
      INFO(c.file << ": " << s.text);
      CHECK(s.refused() == (s.form->status == Status::Refused));
      // Not even the guard of a form without effect needs an instruction that does something.
      const std::set<Handler> idle{handlers::nop(), handlers::fence(), handlers::broadcast(true),
                                   handlers::tensor_copy("prefetch")};
      bool does_something = false;
      for (const Handler h : s.handlers) does_something |= !idle.count(h);
      if (s.form->status == Status::NoEffect) CHECK(!does_something);
    }
  }
}

TEST_CASE("a refused form is a fault with its name when it is executed", "[ptx]") {
  for (const Catalogue& c : catalogues()) {
    const std::string text = data(c);
    std::set<size_t> seen;
    for (const Statement& s : statements(c, text)) {
      if (s.form->status != Status::Refused || !seen.insert(s.form->row).second) continue;
      INFO(alone(text, s));
      const auto module = Module::load(alone(text, s), c.device, mxfa::test::test_arena());
      Launch launch;
      launch.module = module.get();
      launch.kernel = module->find_kernel(s.entry);
      REQUIRE(launch.kernel);
      launch.grid = launch.cluster = {1, 1, 1};
      launch.block = {32, 1, 1};
      launch.parameters.resize(launch.kernel->parameter_bytes);
      std::string fault;
      try {
        run_grid(launch, c.device, mxfa::test::test_arena());
      } catch (const Fault& f) {
        fault = f.what();
      }
      CHECK(mxfa::test::mentions_all(
          fault, {s.opcode.c_str(), "is not executed", std::string(s.form->note).c_str()}));
    }
    CHECK(!seen.empty());
  }
}

TEST_CASE("an instruction of another architecture is refused with the one that has it", "[ptx]") {
  const auto r = mxfa::test::run_core({"  wgmma.fence.sync.aligned;\n  ret;"}, 1);
  CHECK(mxfa::test::mentions_all(r.fault, {"wgmma.fence", "sm_90a only"}));
  const auto m = mxfa::test::run_core({"  multimem.ld_reduce.global.add.f32 %f1, [%w1];\n  ret;"}, 1);
  CHECK(mxfa::test::mentions_all(m.fault, {"multimem.ld_reduce", "no multicast object"}));
}

// ---- docs/instructions.md

namespace {

std::string modifiers_of(const Form& f) {
  if (f.any_modifiers) return ".*";
  std::string text;
  for (const ptx::Slot& slot : f.slots) {
    std::string one;
    for (const std::string_view s : slot.spellings) {
      if (!one.empty()) one += "\\|";
      one += "." + std::string(s);
    }
    if (slot.optional)
      text += "{" + one + "}";
    else
      text += slot.spellings.size() > 1 ? "(" + one + ")" : one;
  }
  return text;
}

const char* status_name(Status s) {
  switch (s) {
    case Status::Exact:
      return "exact";
    case Status::Approximate:
      return "approximate";
    case Status::NoEffect:
      return "no effect";
    default:
      return "refused";
  }
}

std::string table() {
  std::string text =
      "# Instructions of the CPU driver\n\n"
      "A row is a form: opcodes, then modifiers. `{...}` may be left out, `(...)` is one of several, `#` is "
      "a\n"
      "number. Modifiers may come in any order except among types, as ptxas has it.\n\n"
      "| status | |\n|---|---|\n"
      "| exact | every bit is what the PTX ISA says; tensor-core sums follow the model of silicon.md |\n"
      "| approximate | within the bound that the PTX ISA documents, which is given |\n"
      "| no effect | accepted; nothing it does can be seen here |\n"
      "| refused | a kernel that has it loads; executing it is a fault with its name and the reason |\n\n"
      "An instruction that is in no row is an error when the module is loaded. The table is generated from\n"
      "`runtime/emulator/ptx/opcodes.def` by `MXFA_UPDATE_DOCS=1 mxfa_test_emulator [docs]`, and a test\n"
      "compares it. The section is that of the PTX ISA 9.0.\n\n"
      "| form | devices | status | section |\n|---|---|---|---|\n";
  const auto& forms = ptx::all_forms();
  for (size_t k = 0; k < forms.size();) {
    const Form& f = forms[k];
    std::string opcodes;
    for (; k < forms.size() && forms[k].row == f.row; ++k)
      opcodes += (opcodes.empty() ? "" : " ") + std::string(forms[k].opcode);
    text += "| `" + opcodes + "` `" + modifiers_of(f) + "` | " + ptx::availability_name(f.available) + " | " +
            status_name(f.status) + (f.note.empty() ? "" : ": " + std::string(f.note)) + " | " +
            std::string(f.section) + " |\n";
  }
  return text;
}

}  // namespace

TEST_CASE("the table of instruction forms is the opcode table", "[ptx][docs]") {
  const std::string path = MXFA_SOURCE_DIR "/docs/instructions.md";
  if (std::getenv("MXFA_UPDATE_DOCS")) std::ofstream(path) << table();
  CHECK(read_file(path) == table());
}
