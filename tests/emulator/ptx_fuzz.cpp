// Truncated, mutated and hostile PTX: loading it ends well or in a PtxError with line and column
// (execution_fuzz.cpp runs what loads).  MXFA_FUZZ_ROUNDS multiplies the number of mutants (default 1),
// MXFA_FUZZ_SEED makes them others, a file named by MXFA_FUZZ_PTX is mutated too.
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <random>
#include <regex>
#include <sstream>

#include "core_harness.hpp"
#include "support/catch.hpp"

using namespace mxfa::emulator;

namespace {

std::string read_file(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

DeviceModel device_for(const std::string& text) {
  DeviceModel d;
  if (text.find("sm_90") != std::string::npos) d.major = 9, d.tensor_memory = false;
  return d;
}

// Empty if it loaded or was refused as it should be, else what is wrong.
std::string problem_of(const std::string& text, bool* loaded = nullptr) {
  static Arena arena(uint64_t{1} << 26);
  try {
    Module::load(text, device_for(text), arena);
    if (loaded) *loaded = true;
    return "";
  } catch (const PtxError& e) {
    const std::string message = e.what();
    static const std::regex kPlace("^line [0-9]+, column [0-9]+: [^\\n]+(\\n[^\\n]*)?$");
    return std::regex_match(message, kPlace) ? "" : "an error without a place: " + message;
  } catch (const std::exception& e) {
    return std::string("another exception: ") + e.what();
  }
}

void check(const std::string& text, const std::string& what) {
  const std::string problem = problem_of(text);
  if (problem.empty()) return;
  INFO(what);
  FAIL_CHECK(problem);
}

// Entries of a catalogue as modules of their own: small enough for many mutants.
std::vector<std::string> corpus() {
  std::vector<std::string> texts;
  for (const char* name : {"catalogue_sm100a.ptx", "catalogue_sm90a.ptx"}) {
    const std::string all = read_file(std::string(MXFA_TEST_DATA "/isa/") + name);
    const size_t header = all.find("\n.version"), first = all.find(".visible");
    for (size_t at = first; at != std::string::npos;) {
      const size_t next = all.find(".visible", at + 1);
      texts.push_back(all.substr(header, first - header) + all.substr(at, next - at));
      at = next;
    }
  }
  if (const char* path = std::getenv("MXFA_FUZZ_PTX")) texts.push_back(read_file(path));
  return texts;
}

int rounds() {
  const char* text = std::getenv("MXFA_FUZZ_ROUNDS");
  return text ? std::max(1, std::atoi(text)) : 1;
}

uint32_t seed(uint32_t own) {
  const char* text = std::getenv("MXFA_FUZZ_SEED");
  return own + (text ? static_cast<uint32_t>(std::atoi(text)) * 1000 : 0);
}

std::vector<std::pair<size_t, size_t>> tokens_of(const std::string& text) {
  std::vector<std::pair<size_t, size_t>> tokens;
  const auto word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '%' || c == '$';
  };
  for (size_t i = 0; i < text.size();) {
    size_t end = i + 1;
    if (std::isspace(static_cast<unsigned char>(text[i]))) {
      ++i;
      continue;
    }
    if (word(text[i]))
      while (end < text.size() && word(text[end])) ++end;
    tokens.emplace_back(i, end - i);
    i = end;
  }
  return tokens;
}

const char* const kHostile[] = {"0",
                                "-1",
                                "255",
                                "65536",
                                "4294967295",
                                "4294967296",
                                "9223372036854775807",
                                "18446744073709551615",
                                "0xffffffffffffffff",
                                "-9223372036854775808",
                                "1e308",
                                "0f7fc00000",
                                "{",
                                "}",
                                "(",
                                ")",
                                "[",
                                "]",
                                ";",
                                ",",
                                "|",
                                "!",
                                "-",
                                "+",
                                "@",
                                "~",
                                ".u64",
                                ".pred",
                                ".b128",
                                ".v8",
                                ".reg",
                                ".param",
                                "WARP_SZ",
                                "_",
                                "%tid.x",
                                "%p0",
                                "%d1",
                                "{_,_}",
                                "{%r1,%r2,%r3,%r4}",
                                "[%d1]",
                                "[%r1+0x7fffffffffffffff]",
                                "\"",
                                "/*",
                                "//",
                                "\x01",
                                "\xff"};

}  // namespace

TEST_CASE("PTX cut off anywhere is refused at a place", "[ptx][fuzz]") {
  std::mt19937 random(seed(1));
  for (const std::string& text : corpus())
    for (int k = 0; k < 40 * rounds(); ++k) {
      const size_t end = random() % text.size();
      check(text.substr(0, end), "cut after " + std::to_string(end) + " of:\n" + text.substr(0, 400));
    }
}

TEST_CASE("PTX with changed tokens loads or is refused at a place", "[ptx][fuzz]") {
  std::mt19937 random(seed(2));
  for (const std::string& text : corpus()) {
    const auto tokens = tokens_of(text);
    for (int k = 0; k < 120 * rounds(); ++k) {
      std::string mutant = text;
      std::string what;
      for (int n = 1 + static_cast<int>(random() % 2); n > 0; --n) {
        const auto [at, length] = tokens[random() % tokens.size()];
        const auto [other, other_length] = tokens[random() % tokens.size()];
        if (at + length > mutant.size()) continue;
        std::string with;
        switch (random() % 4) {
          case 0:  // deleted
            break;
          case 1:
            with = text.substr(at, length) + " " + text.substr(at, length);
            break;
          case 2:
            with = text.substr(other, other_length);
            break;
          default:
            with = kHostile[random() % std::size(kHostile)];
        }
        what += std::to_string(at) + " -> '" + with + "'; ";
        mutant.replace(at, length, with);
      }
      check(mutant, what + "in:\n" + text.substr(0, 400));
    }
  }
}

TEST_CASE("sizes and depths beyond reason are refused", "[ptx][fuzz]") {
  const std::string head = ".version 9.0\n.target sm_100a\n.address_size 64\n";
  const auto repeated = [](const std::string& s, size_t n) {
    std::string text;
    for (size_t i = 0; i < n; ++i) text += s;
    return text;
  };
  const auto refused = [&](const std::string& text) {
    bool loaded = false;
    const std::string problem = problem_of(head + text, &loaded);
    INFO(text.substr(0, 200));
    CHECK(problem == "");
    CHECK_FALSE(loaded);
  };
  const auto body = [](const std::string& b) { return ".visible .entry k()\n{\n" + b + "\nret;\n}\n"; };
  refused(".global .b8 x[18446744073709551615];\n");
  refused(".global .b8 x[4294967295][4294967295];\n");
  refused(".global .b64 x[17179869183];\n");
  refused(".global .align 2147483648 .b8 x[4];\n");
  refused(".shared .b8 a[4294967295];\n.shared .b8 b[17179869183];\n" + body(""));
  refused(body(".shared .b8 a[16777216];"));
  refused(body(".local .b8 a[4294967295];\n.local .b8 b[4294967295];"));
  refused(body(".reg .b32 %r<4294967295>;"));
  refused(body(repeated(".reg .b32 %r<1048576>;\n", 40)));
  refused(".visible .entry k(.param .b8 p[4294967295]) { ret; }\n");
  refused(body(repeated("{", 5000)));
  refused(body("mov.u32 " + repeated("{", 5000)));
  refused(body(".reg .b32 %r; mov.u32 %r, " + repeated("(", 5000)));
  refused(body(".reg .b32 %r; mov.u32 %r, " + repeated("-", 5000)));
  refused(".global .b32 x[1] = " + repeated("{", 5000));
  refused(body(".reg .b32 %r<2>; mov.b32 %r0, {" + repeated("%r1,", 70000) + "%r1};"));
  refused(body(".reg .b32 %r<2>; t: .branchtargets " + repeated("l,", 70000) + "l; l: brx.idx %r0, t;"));
  refused(body(".reg .b64 %d<2>; tensormap.replace.tile.box_dim.global.b1024.b32 [%d0], 4294967296, 1;"));
  // Many registers alive across many blocks: quadratic, were it allowed.
  std::string wide = ".reg .b32 %r<100000>; .reg .pred %p;\n";
  for (int i = 0; i < 100000; ++i)
    wide += "add.u32 %r" + std::to_string(i) + ", %r" + std::to_string(i) + ", 1;\n";
  for (int i = 0; i < 50000; ++i) wide += "@%p bra l;\n";
  refused(body(wide + "l: add.u32 %r0, %r0, %r1;"));
  // A chain of calls is fine, a ring is not.
  std::string chain = ".func f0() { ret; }\n";
  for (int i = 1; i < 20000; ++i)
    chain += ".func f" + std::to_string(i) + "() { call f" + std::to_string(i - 1) + ", (); ret; }\n";
  CHECK(problem_of(head + chain) == "");
  refused(".func g();\n.func f() { call g, (); ret; }\n.func g() { call f, (); ret; }\n");
}
