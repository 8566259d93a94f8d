// A lowered PTX module: micro-operations, constants and the facts of each entry.  Written by ptx/lower*.cpp,
// run by core/interpreter.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/grid.hpp"
#include "core/machine.hpp"

namespace mxfa::emulator {

namespace ptx {
class Source;
struct Module;
}  // namespace ptx

struct Exec;
struct MicroOp;

// What the interpreter does after a micro-operation.
enum class Step : uint32_t {
  Continue,  // next instruction
  Sync,      // done, and it was a synchronisation point: the random schedule may switch warps here
  Yield,     // done, but this fragment is polling: let others run
  Blocked,   // not done: execute it again when Cluster::epoch has changed (Fragment::wait says why)
  Gone,      // the fragment no longer exists: its lanes exited or wait at a reconvergence point
};
using Handler = Step (*)(Exec&, const MicroOp&);

// A register operand is a row number; bit 31 selects the constant pool.  A predicate source is (number << 1)
// | negated; predicate 0 is all ones.  Lists hold vectors of operands: lists[list .. list + count).
inline constexpr uint32_t kConstantBit = 0x80000000u, kNoRow = 0x7fffffffu, kNoPc = 0xffffffffu;
struct MicroOp {
  Handler run = nullptr;
  uint32_t guard = 0, guard_xor = 0;  // predicate number; all ones if negated
  uint32_t dst = kNoRow, dst2 = kNoRow;
  uint32_t src[4] = {kNoRow, kNoRow, kNoRow, kNoRow};
  uint32_t list = 0;
  uint16_t count = 0, flags = 0;
  uint32_t mode = 0;  // MXCSR of floating-point operations, else free for the handler
  uint32_t aux = 0;
  int64_t imm = 0;
};
static_assert(sizeof(MicroOp) == 64);

// Flags shared by several handlers.
enum : uint16_t {
  kSaturate = 1,
  kWideAddress = 2 /* 64-bit address register */,
  kGenericAddress = 8,
  kAligned = 16,
  kOption = 32,  // its meaning is the handler's
};

// Where a micro-operation comes from.
struct Origin {
  uint32_t position = 0;                 // in the PTX text
  int32_t function = -1, location = -1;  // of ptx::Module
};

struct LoweredFunction {
  std::string name;
  bool entry = false, lowered = false;
  uint32_t start = 0;                 // first micro-operation
  uint32_t rows = 0, predicates = 1;  // size of the register files this function needs, callees included
  uint32_t local_bytes = 0;
  uint32_t shared_bytes = 0;  // static shared memory, without the reserved area
  uint32_t dynamic_alignment = 16;
  std::vector<int32_t> callees;
  // Parameters of a .func live in local memory: offsets and sizes, for call and return.
  struct Slot {
    uint32_t offset = 0, bytes = 0;
  };
  std::vector<Slot> parameters, returns;
};

struct Program {
  std::unique_ptr<ptx::Source> source;
  std::unique_ptr<ptx::Module> module;
  std::vector<MicroOp> code;
  std::vector<Origin> origins;  // parallel to code
  std::vector<uint32_t> lists;
  std::vector<Row> constants;
  std::vector<std::string> texts;  // messages of refused instructions
  struct Slots {
    std::vector<LoweredFunction::Slot> arguments;
    std::vector<LoweredFunction::Slot> results;
  };
  std::vector<Slots> calls;                // argument places of each call
  std::vector<void*> combines;             // functions of atomics (core/exec_atomic.cpp)
  std::vector<LoweredFunction> functions;  // parallel to module->functions
  std::vector<uint64_t>
      addresses;  // parallel to module->variables: device address, shared offset or local offset
  uint32_t shared_reserved = 1024;
  // By number of function: the inlined calls that all its instructions have in common (role_of).
  mutable std::map<int32_t, std::vector<std::string>> common_calls;
  Program();
  ~Program();
  // "kernel.ptx line 12: `add.s32 ...` (attention.cuh:34)" for reports.
  std::string where(uint32_t pc) const;
  std::string ptx_line(uint32_t pc) const;  // the text of the instruction
  uint32_t ptx_line_number(uint32_t pc) const;
  uint32_t ptx_column_number(uint32_t pc) const;
  std::string cuda_line(uint32_t pc) const;  // "file:line", empty without -lineinfo
  std::string cuda_line(int32_t function, int32_t location) const;
  std::string ptx_text(uint32_t position) const;  // one instruction, from its opcode on
};

// One entry of a program.
class Kernel {
 public:
  KernelInfo info;
  const Program* program = nullptr;
  uint32_t start = 0, rows = 0, predicates = 1, local_bytes = 0, static_shared = 0, dynamic_alignment = 16;
};

// Generic addresses of functions (indirect calls): this base plus the number of the function.
inline constexpr uint64_t kFunctionWindow = 0x00007b0000000000ull;

}  // namespace mxfa::emulator
