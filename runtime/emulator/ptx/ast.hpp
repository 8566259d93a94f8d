// A parsed PTX module: names are resolved (registers and variables to numbers, labels to instruction
// numbers), nothing is interpreted yet. All string_views point into the Source, which outlives the module.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ptx/source.hpp"
#include "ptx/types.hpp"

namespace mxfa::emulator::ptx {

// An initialiser word that holds an address.
struct Relocation {
  uint64_t offset = 0;
  uint32_t size = 8;
  std::string_view symbol;
  int64_t addend = 0;
  uint32_t position = 0;
};

struct Variable {
  std::string_view name;
  Space space = Space::Global;
  Type type = Type::B8;
  uint32_t alignment = 1, position = 0;
  uint64_t bytes = 0;
  bool external = false, unsized = false;
  int32_t function = -1;      // index of the function that declares it, -1: module scope
  std::vector<uint8_t> data;  // shorter than bytes: the rest is zero
  std::vector<Relocation> relocations;
};

struct RegisterDeclaration {
  std::string_view name;
  Type type = Type::B32;
};

struct Operand {
  enum class Kind : uint8_t {
    None,
    Register,
    Integer,
    Float32,
    Float64,
    Special,
    Variable,
    Function,
    Label,
    Sink,
    Address,
    Vector,
    Pair,
    List,
    Prototype
  };
  Kind kind = Kind::None;
  Kind base = Kind::None;  // Address: Register, Variable, Integer
  bool negated = false;    // !p
  uint32_t position = 0;
  int32_t index =
      -1;             // register, variable, function, special register or label number (Address: of the base)
  int64_t value = 0;  // integer; bits of a literal; addend of a symbol or an address
  std::vector<Operand> elements;  // Vector, Pair, List; Address: coordinates of [map, {c, ...}]
};

// Every register that an operand names.
template <class F>
void for_registers(const Operand& o, F&& f) {
  if (o.kind == Operand::Kind::Register ||
      (o.kind == Operand::Kind::Address && o.base == Operand::Kind::Register))
    f(o.index);
  for (const Operand& e : o.elements) for_registers(e, f);
}

struct Location {
  uint32_t file = 0, line = 0, inlined_file = 0, inlined_line = 0;
  std::string_view function_label;
};

struct Instruction {
  std::string_view opcode;
  uint32_t position = 0;
  uint32_t first_modifier = 0, modifiers = 0;  // into Function::modifiers (without dots)
  int32_t guard = -1;                          // predicate register
  bool guard_negated = false;
  int32_t location = -1;  // into Function::locations
  std::vector<Operand> operands;
};

inline constexpr uint64_t kMaxConstants = 65536;   // bytes of .const of a module
inline constexpr uint64_t kMaxParameters = 32764;  // bytes of a kernel's parameters, all together

struct Function {
  std::string_view name;
  uint32_t position = 0;
  bool entry = false, defined = false, external = false;
  std::vector<int32_t> returns, parameters;  // variables of Space::Param
  std::vector<RegisterDeclaration> registers;
  std::vector<std::string_view> modifiers;
  std::vector<Instruction> instructions;
  std::vector<int32_t> label_targets;  // label number -> instruction number
  std::vector<std::string_view> label_names;
  std::vector<std::vector<int32_t>> branch_targets;  // .branchtargets number -> labels
  std::vector<Location> locations;
  uint32_t max_threads[3] = {0, 0, 0}, required_threads[3] = {0, 0, 0}, required_cluster[3] = {0, 0, 0};
  uint32_t min_ctas = 0, max_registers = 0;
  bool explicit_cluster = false;
  std::string_view modifier(const Instruction& i, uint32_t k) const {
    return modifiers[i.first_modifier + k];
  }
};

struct Module {
  std::string_view version, target;
  std::vector<Variable> variables;
  std::vector<Function> functions;
  std::unordered_map<std::string_view, int32_t> variable_names;  // module scope
  std::unordered_map<std::string_view, int32_t> function_names;
  std::unordered_map<uint32_t, std::string> files;                  // .file
  std::unordered_map<std::string_view, std::string> debug_strings;  // labels of .section .debug_str
};

// Special registers, as Operand::index.
enum class SpecialRegister : uint8_t {
  TidX,
  TidY,
  TidZ,
  NtidX,
  NtidY,
  NtidZ,
  CtaidX,
  CtaidY,
  CtaidZ,
  NctaidX,
  NctaidY,
  NctaidZ,
  ClusteridX,
  ClusteridY,
  ClusteridZ,
  NclusteridX,
  NclusteridY,
  NclusteridZ,
  ClusterCtaidX,
  ClusterCtaidY,
  ClusterCtaidZ,
  ClusterNctaidX,
  ClusterNctaidY,
  ClusterNctaidZ,
  ClusterCtarank,
  ClusterNctarank,
  IsExplicitCluster,
  Laneid,
  Warpid,
  Nwarpid,
  Smid,
  Nsmid,
  Gridid,
  LanemaskEq,
  LanemaskLe,
  LanemaskLt,
  LanemaskGe,
  LanemaskGt,
  Clock,
  ClockHi,
  Clock64,
  Globaltimer,
  GlobaltimerLo,
  GlobaltimerHi,
  DynamicSmemSize,
  TotalSmemSize,
  AggrSmemSize,
  ReservedSmemBegin,
  ReservedSmemEnd,
  ReservedSmemCap,
  ReservedSmem0,
  ReservedSmem1,
};
struct SpecialInfo {
  SpecialRegister id;
  std::string_view name;
  Type type;
};
const SpecialInfo* find_special(std::string_view name);  // "%tid.x"
const SpecialInfo& special_info(SpecialRegister id);

}  // namespace mxfa::emulator::ptx
