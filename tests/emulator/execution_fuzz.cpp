// Instructions of the catalogues with operands that nobody would give them, a few in a row, under every
// schedule and with the hazard checks: a kernel ends well or in a Fault, and nothing else happens to the
// process. MXFA_FUZZ_ROUNDS multiplies the number of kernels (default 1), MXFA_FUZZ_SEED begins elsewhere.
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <regex>
#include <sstream>

#include "checks/checks.hpp"
#include "core_harness.hpp"
#include "memory/tensor_map.hpp"
#include "support/catch.hpp"

using namespace mxfa::emulator;

namespace {

using Numbers = std::mt19937_64;

constexpr uint64_t kBuffer = 1 << 16;  // bytes of global memory that operands may point to
constexpr uint64_t kMaps = 8;          // tensor maps at its end

struct Entry {
  std::string header, name, parameters, declarations;
  std::vector<std::pair<std::string, std::string>> registers;  // name, type
  std::vector<std::string> statements;
  bool pair = false;  // of the tensor core's instructions
};

struct Catalogue {
  DeviceModel device;
  std::vector<Entry> entries;
};

std::string read_file(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

void add_registers(Entry& entry, const std::string& type, const std::string& list) {
  static const std::regex kName("([%\\w$]+)(?:<(\\d+)>)?");
  for (auto it = std::sregex_iterator(list.begin(), list.end(), kName); it != std::sregex_iterator(); ++it) {
    const std::string name = (*it)[1];
    if (!(*it)[2].matched) entry.registers.emplace_back(name, type);
    for (int k = 0, n = (*it)[2].matched ? std::stoi((*it)[2]) : 0; k < n; ++k)
      entry.registers.emplace_back(name + std::to_string(k), type);
  }
}

Catalogue read_catalogue(const char* file, bool hopper) {
  Catalogue c;
  if (hopper) c.device.major = 9, c.device.tensor_memory = false;
  const std::string all =
      std::regex_replace(read_file(std::string(MXFA_TEST_DATA "/isa/") + file), std::regex("//[^\n]*"), "");
  const size_t first = all.find(".visible");
  const std::string header = all.substr(all.find(".version"), first - all.find(".version"));
  for (size_t at = first; at != std::string::npos; at = all.find(".visible", at + 1)) {
    const size_t open = all.find('{', at), close = all.find("\n}", open);
    Entry entry;
    entry.header = header;
    entry.parameters = all.substr(at, open - at);
    entry.name = entry.parameters.substr(entry.parameters.find(".entry ") + 7);
    entry.name.erase(entry.name.find('('));
    std::istringstream body(all.substr(open + 1, close - open - 1));
    for (std::string statement; std::getline(body, statement, ';');) {
      statement.erase(0, statement.find_first_not_of(" \t\n"));
      std::smatch found;
      static const std::regex kRegisters("\\.reg\\s+\\.(\\w+)\\s+([^;]*)");
      if (statement.starts_with(".")) entry.declarations += statement + ";\n";
      if (std::regex_match(statement, found, kRegisters))
        add_registers(entry, found[1], found[2]);
      else if (!statement.starts_with(".") && statement.find_first_of("{}:") == std::string::npos)
        entry.statements.push_back(statement + ";\n");
      else if (statement.starts_with("{") || statement.find(",{") != std::string::npos ||
               statement.find(", {") != std::string::npos)
        entry.statements.push_back(statement + ";\n");
    }
    c.entries.push_back(std::move(entry));
  }
  return c;
}

// Something that has a chance to be taken for what the instruction wants.
uint64_t hostile_value(Numbers& random, uint64_t buffer) {
  const uint64_t any = random();
  switch (random() % 14) {
    case 0:
      return any % 4;
    case 1:
      return any % 300;
    case 2:
      return ~uint64_t{0} - any % 16;
    case 3:
      return any;
    case 4:
      return uint64_t{1} << any % 64;
    case 5:  // shared memory, the barriers first
      return 0x400 + any % 64 * 8;
    case 6:
      return 0x400 + any % 32768 / 16 * 16;
    case 7:
      return buffer + any % kBuffer / 16 * 16;
    case 8:
      return buffer + any % (kBuffer + 64);
    case 9:  // a lane and column of tensor memory
      return (any % 4 << 21) | (any >> 8) % 512;
    case 10:  // descriptors of operands in shared memory: 1024 bytes from 0x400 on, strides, swizzle
      return (0x40 + any % 4 * 64) | (any >> 8) % 128 << 16 | (any >> 16) % 128 << 32 | uint64_t{1} << 46 |
             (any >> 61) << 61;
    case 11:  // instruction descriptors: any formats, M and N
      return (any & 0x1fff0) | (any >> 20) % 64 << 17 | (any >> 30) % 32 << 24;
    case 12:  // likely ones
      return 0x10 | any % 2 << 7 | any % 2 << 10 | (any >> 1) % 4 << 15 | (1 + (any >> 3) % 32) << 17 |
             uint64_t{4} << (any >> 8) % 3 << 24;
    default:
      return buffer + kBuffer - (1 + any % kMaps) * sizeof(TensorMap);
  }
}

TensorMap any_map(Numbers& random, uint64_t buffer) {
  for (;;) {
    TiledTensor tensor;
    uint64_t dims[5], strides[5];
    uint32_t box[5], steps[5];
    tensor.type = static_cast<int>(random() % 16);
    tensor.rank = 1 + random() % 5;
    tensor.address = buffer + random() % 64 * 16;
    for (int d = 0; d < 5; ++d) {
      dims[d] = 1 + random() % 200, strides[d] = random() % 64 * 16;
      box[d] = 1 + random() % (d ? 16 : 256), steps[d] = 1 + random() % 2;
    }
    tensor.dims = dims, tensor.strides = strides, tensor.box = box, tensor.element_strides = steps;
    tensor.interleave = 0;
    tensor.swizzle = static_cast<int>(random() % 7);
    tensor.l2_promotion = 0;
    tensor.oob_fill = static_cast<int>(random() % 2);
    TensorMap map;
    std::string error;
    if (!encode_tiled(tensor, &map, &error)) return map;
  }
}

bool mentions_register(const std::string& statement, const std::string& name) {
  const auto word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '%';
  };
  for (size_t at = 0; (at = statement.find(name, at)) != std::string::npos; at += name.size())
    if ((at == 0 || !word(statement[at - 1])) &&
        (at + name.size() == statement.size() || !word(statement[at + name.size()])))
      return true;
  return false;
}

// The statements behind loads that give their registers values, one after the other from the table.
std::string kernel_text(const Entry& entry, const std::string& statements, bool blackwell) {
  std::string text = entry.header + entry.parameters + "{\n.shared .align 1024 .b8 room[4096];\n" +
                     entry.declarations +
                     ".reg .b64 %table;\n.reg .b32 %word;\nld.param.u64 %table, [first];\n";
  const size_t list = text.find('(', text.find(".entry")) + 1;
  text.insert(list, text[list] == ')' ? ".param .u64 first" : ".param .u64 first, ");
  const std::string group = statements.find("cta_group::2") != std::string::npos ? "2" : "1";
  text +=
      "mov.u32 %word, %tid.x;\n{ .reg .pred %zero; setp.eq.u32 %zero, %word, 0;\n"
      "@%zero mbarrier.init.shared::cta.b64 [room], 1;\n@%zero mbarrier.init.shared::cta.b64 [room+8], 128; "
      "}\n"
      "bar.sync 0;\n";
  if (blackwell)
    text +=
        "{ .reg .pred %first_warp; setp.lt.u32 %first_warp, %word, 32; @!%first_warp bra allocated;\n"
        "tcgen05.alloc.cta_group::" +
        group +
        ".sync.aligned.shared::cta.b32 [room+16], 512;\n"
        "allocated: bar.sync 0; }\n";
  int place = 0;
  for (const auto& [name, type] : entry.registers) {
    if (!mentions_register(statements, name)) continue;
    const std::string from = ", [%table+" + std::to_string(place % 256 * 16) + "];\n";
    ++place;
    if (type == "pred")
      text += "ld.global.u32 %word" + from + "setp.ne.u32 " + name + ", %word, 0;\n";
    else
      text += "ld.global.b" + type.substr(1) + " " + name + from;
  }
  return text + statements + "ret;\n}\n";
}

int number(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::max(1, std::atoi(text)) : otherwise;
}

// What went wrong, or nothing; `ran` counts the kernels that were loaded.
std::string problem_of(const std::string& text, const Entry& entry, const DeviceModel& device,
                       Numbers& random, int* ran) {
  Arena& arena = mxfa::test::test_arena();
  const uint64_t buffer = arena.allocate(kBuffer);
  for (uint64_t at = 0; at < kBuffer; at += 8)
    reinterpret_cast<uint64_t*>(buffer)[at / 8] = hostile_value(random, buffer);
  for (uint64_t k = 1; k <= kMaps; ++k) {
    const TensorMap map = any_map(random, buffer);
    std::memcpy(reinterpret_cast<void*>(buffer + kBuffer - k * sizeof map), &map, sizeof map);
  }
  std::string problem;
  try {
    const auto module = Module::load(text, device, arena);
    ++*ran;
    Launch launch;
    launch.module = module.get();
    launch.kernel = module->find_kernel(entry.name);
    const Dim3 cluster = launch.kernel->required_cluster;
    launch.cluster = cluster.x ? cluster : Dim3{1, 1, 1};
    launch.grid = launch.cluster;
    launch.block = {128, 1, 1};
    launch.dynamic_shared = 8192;
    launch.parameters.resize(launch.kernel->parameter_bytes);
    for (uint8_t& byte : launch.parameters) byte = static_cast<uint8_t>(random());
    std::memcpy(launch.parameters.data(), &buffer, 8);
    launch.schedule = {static_cast<Schedule::Kind>(random() % 6), random() % 1000};
    launch.instruction_limit = 100000;
    const CheckMode modes[] = {CheckMode::Off, CheckMode::On, CheckMode::Strict};
    std::optional<Checks> checks;
    if (const CheckMode mode = modes[random() % 3]; mode != CheckMode::Off)
      launch.observers = checks.emplace(mode, *launch.kernel).observers();
    try {
      run_grid(launch, device, arena);
    } catch (const Fault& fault) {
      if (!fault.code || !*fault.what()) problem = "a fault without code or text";
    }
    if (checks) checks->report();
  } catch (const PtxError&) {
    // Not every statement of the catalogues can stand alone.
  } catch (const std::exception& e) {
    problem = std::string("another exception: ") + e.what();
  }
  arena.release(buffer);
  return problem;
}

}  // namespace

TEST_CASE("kernels of catalogue instructions with any operands end well or in a fault", "[fuzz]") {
  Numbers random(number("MXFA_FUZZ_SEED", 3));
  for (const Catalogue& c :
       {read_catalogue("catalogue_sm100a.ptx", false), read_catalogue("catalogue_sm90a.ptx", true)}) {
    int ran = 0;
    const int kernels = 500 * number("MXFA_FUZZ_ROUNDS", 1);
    for (int k = 0; k < kernels; ++k) {
      const Entry& entry = c.entries[random() % c.entries.size()];
      std::string statements;
      for (uint64_t n = 1 + random() % 3; n > 0; --n)
        statements += entry.statements[random() % entry.statements.size()];
      const std::string text = kernel_text(entry, statements, c.device.tensor_memory);
      INFO(text);
      const std::string problem = problem_of(text, entry, c.device, random, &ran);
      if (!problem.empty()) FAIL_CHECK(problem);
    }
    CHECK(ran > kernels / 2);
  }
}

TEST_CASE("accesses that end where the address space does are illegal addresses", "[core]") {
  for (const char* access : {"ld.global.u32 %r1, [%w1];", "st.global.u32 [%w1], %r1;", "ld.u32 %r1, [%w1];",
                             "atom.global.add.u32 %r1, [%w1], 1;", "red.global.add.u32 [%w1], 1;"}) {
    const auto r = mxfa::test::run_core(
        {std::string("  st.global.u32 [%out], 1;\n  mov.u64 %w1, -4;\n  ") + access + "\n  ret;"}, 1);
    CAPTURE(access);
    CHECK(mxfa::test::mentions_all(r.fault, {"illegal global", "4 bytes at 0xfffffffffffffffc"}));
  }
}

TEST_CASE("cp.async counts on no mbarrier of a CTA that does not exist", "[core]") {
  for (const char* form : {"", ".noinc"}) {
    const auto r =
        mxfa::test::run_core({std::string("  mov.u32 %r1, 0x05000400;\n  cp.async.mbarrier.arrive") + form +
                              ".shared.b64 [%r1];\n  ret;"},
                             1);
    CHECK(mxfa::test::mentions_all(r.fault, {"cp.async.mbarrier.arrive by CTA rank 0", "CTA rank 5"}));
  }
}
