// Runs PTX text on the interpreter without the driver ABI: for tests of parsing, divergence, schedules and
// reports.  A body finds %out (u64 address of words filled with 0xff), %tid and %lane (b32), and has %r<40>
// (b32), %w<20> (b64), %f<20> (f32), %h<8> (b16) and %p<16> (pred).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/grid.hpp"
#include "memory/memory.hpp"

namespace mxfa::test {

inline const emulator::DeviceModel& blackwell() {
  static const emulator::DeviceModel model;
  return model;
}

inline emulator::Arena& test_arena() {
  static emulator::Arena arena(uint64_t{1} << 32);
  return arena;
}

struct CoreKernel {
  std::string body;
  std::string directives = {};    // after the parameter list: ".maxntid 384"
  std::string declarations = {};  // module scope, before the kernel
  unsigned threads = 32, ctas = 1, cluster = 1, dynamic_shared = 0;
};

inline std::string core_text(const CoreKernel& k) {
  return ".version 9.0\n.target sm_100a\n.address_size 64\n" + k.declarations +
         "\n.visible .entry k(.param .u64 out) " + k.directives +
         "\n{\n  .reg .b64 %out, %w<20>;\n  .reg .b32 %tid, %lane, %r<40>;\n  .reg .f32 %f<20>;\n"
         "  .reg .b16 %h<8>;\n  .reg .pred %p<16>;\n  ld.param.u64 %out, [out];\n  mov.u32 %tid, %tid.x;\n"
         "  mov.u32 %lane, %laneid;\n" +
         k.body + "\n}\n";
}

// Word `index` of the output.
inline std::string store_word(const std::string& index, const std::string& value) {
  return "  mad.wide.u32 %w19, " + index + ", 4, %out;\n  st.global.u32 [%w19], " + value + ";\n";
}

struct CoreResult {
  std::vector<uint32_t> words;
  emulator::Counters counters;
  std::string fault;  // empty if the kernel ended well
  int code = 0;
};

inline CoreResult run_core(const CoreKernel& k, size_t words, emulator::Schedule schedule = {},
                           const emulator::Mutation* mutation = nullptr,
                           uint64_t instruction_limit = UINT64_MAX) {
  using namespace emulator;
  const auto module = Module::load(core_text(k), blackwell(), test_arena(), mutation);
  CoreResult result;
  const uint64_t out = test_arena().allocate(words * 4);
  Launch launch;
  launch.module = module.get();
  launch.kernel = module->find_kernel("k");
  launch.grid = {k.ctas, 1, 1};
  launch.block = {k.threads, 1, 1};
  launch.cluster = {k.cluster, 1, 1};
  launch.dynamic_shared = k.dynamic_shared;
  launch.parameters.resize(8);
  __builtin_memcpy(launch.parameters.data(), &out, 8);
  launch.schedule = schedule;
  launch.instruction_limit = instruction_limit;
  try {
    result.counters = run_grid(launch, blackwell(), test_arena());
  } catch (const Fault& f) {
    result.fault = f.what();
    result.code = f.code;
  }
  const auto* p = reinterpret_cast<const uint32_t*>(out);
  result.words.assign(p, p + words);
  test_arena().release(out);
  return result;
}

inline bool mentions_all(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts)
    if (text.find(part) == std::string::npos) return false;
  return true;
}

}  // namespace mxfa::test
