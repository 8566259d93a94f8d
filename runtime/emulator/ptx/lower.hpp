// Lowering of functions: instructions become micro-operations on virtual registers, then live ranges get
// rows.  The families of instructions (lower_*.cpp) use the operand helpers of this class; each checks kinds
// and widths and throws PtxError otherwise.
#pragma once

#include <functional>
#include <unordered_map>

#include "core/kernel.hpp"
#include "memory/memory.hpp"
#include "ptx/ast.hpp"
#include "ptx/cfg.hpp"
#include "ptx/form.hpp"

namespace mxfa::emulator::ptx {

// State shared by the functions of a module.
struct ProgramBuilder {
  Program& program;
  const Module& module;
  const Source& source;
  const DeviceModel& device;
  std::unordered_map<std::string, uint32_t> constants;  // bytes of a lane -> first row
  uint32_t function_rows = 0, function_predicates = 0;  // used by the .func bodies so far
  uint32_t function_local = 0;
  uint32_t constant(uint64_t low, uint64_t high, uint32_t bytes);
};

// Virtual registers: first those of the PTX function, then temporaries.
struct Virtual {
  uint16_t rows = 1;
  bool predicate = false;
};

// Where a micro-operation names a virtual register.
struct Reference {
  enum class Field : uint8_t { Dst, Dst2, Src0, Src1, Src2, Src3, Guard, List };
  uint32_t op = 0;
  Field field = Field::Dst;
  bool def = false;
  uint32_t list = 0;  // Field::List: index in Program::lists
  uint32_t reg = 0;
};

class Lowering {
 public:
  Lowering(ProgramBuilder& builder, int32_t function);
  void run();  // appends to the program, fills its LoweredFunction

  // ---- the instruction being lowered
  const Instruction& in() const { return *instruction_; }
  size_t operands() const { return instruction_->operands.size(); }
  const Operand& operand(size_t k) const;
  [[noreturn]] void fail(const std::string& message) const;
  [[noreturn]] void fail(const Operand& o, const std::string& message) const;
  const DeviceModel& device() const { return builder_.device; }
  Program& program() { return builder_.program; }
  const Module& module() const { return builder_.module; }
  const Function& function() const { return function_; }
  int32_t function_index() const { return index_; }
  bool is_entry() const { return function_.entry; }

  // ---- building micro-operations; a handle stays valid until the next emit
  class Op {
   public:
    Op(Lowering& l, uint32_t index) : l_(l), index_(index) {}
    MicroOp& op() { return l_.builder_.program.code[index_]; }
    uint32_t index() const { return index_; }
    // Registers by operand.  bits: the width the instruction wants; loose: a wider register is allowed (ld,
    // st, cvt).
    Op& dst(const Operand& o, uint32_t bits, bool loose = false);
    Op& dst2(const Operand& o, uint32_t bits, bool loose = false);
    Op& src(int k, const Operand& o, Type type, bool loose = false);
    Op& dst_pred(const Operand& o);
    Op& dst2_pred(const Operand& o);
    Op& src_pred(int k, const Operand& o);
    // Registers by number.
    Op& dst_reg(uint32_t reg);
    Op& dst2_reg(uint32_t reg);
    Op& src_reg(int k, uint32_t reg);
    Op& src_constant(int k, uint64_t value, uint32_t bytes);
    Op& list_dst(const Operand& o, uint32_t bits, bool loose = false);  // vector or single register
    Op& list_src(const Operand& o, Type type, bool loose = false);
    Op& address(int k, const Operand& o, Space space);
    Op& imm(int64_t v) {
      op().imm = v;
      return *this;
    }
    Op& aux(uint32_t v) {
      op().aux = v;
      return *this;
    }
    Op& mode(uint32_t v) {
      op().mode = v;
      return *this;
    }
    Op& flag(uint16_t f, bool on = true) {
      if (on) op().flags |= f;
      return *this;
    }
    // A second address of an instruction: its offset goes into MicroOp::mode.
    Op& second_address(int k, const Operand& o, Space space = Space::Shared);

   private:
    friend class Lowering;
    Lowering& l_;
    uint32_t index_;
  };
  Op emit(Handler handler);
  Op emit_unguarded(Handler handler);  // branches: their guard is an operand
  Op emit_load(const Operand& o, uint32_t bits,
               bool generic = false);  // special register, symbol address; the caller adds the destination
  uint32_t temporary(uint32_t bits, bool predicate = false);
  uint32_t register_of(const Operand& o) const;  // fails unless a register
  uint32_t register_bits(uint32_t reg) const {
    return reg < function_.registers.size() ? bits(function_.registers[reg].type) : virtuals_[reg].rows * 32u;
  }
  // The value of an immediate operand as bits of a type; fails when there is none.
  uint64_t immediate(const Operand& o, Type type) const;
  int64_t integer(const Operand& o, const char* what) const;
  const std::vector<Operand>& elements(const Operand& o) const;  // of a vector or pair
  // An instruction that is known but not executed: loading succeeds, executing it is a fault with this text.
  void refuse(const std::string& why);
  void use_pending_loads(Op& op);  // wait::ld reads every register an outstanding tcgen05.ld may still write
  void mark_pending_load(Op& op);
  void require_cta_group(uint32_t group);  // of tcgen05: the same throughout a function
  // lower_wgmma.cpp: the registers of a wgmma belong to it until the wait_group that covers it.
  void mark_pending_wgmma(Op& op);
  int64_t unfenced() const {  // of the wgmma being lowered (ptx/wgmma_fences.hpp)
    return unfenced_.empty() ? 0 : unfenced_[instruction_number_];
  }
  void note_wgmma_order(Op& op, int64_t outstanding);  // wait_group N, or -1: commit_group
  int32_t join_of_branch() const;                      // block where lanes that diverge here meet, -1: none
  void branch_to(Op& op, int32_t label);               // imm becomes the micro-operation of the label
  void table_branch_to(Op& op, uint32_t list, int32_t label);
  void join_fixup(Op& op) { join_fixups_.push_back(op.index()); }
  uint32_t carry_register();  // CC.CF
  uint32_t constant32(uint32_t value) { return builder_.constant(value, 0, 4) | kConstantBit; }
  bool parameter_of_entry(int32_t variable) const;
  uint64_t variable_address(int32_t variable) const;
  std::string spelled() const;  // opcode with its modifiers
  void note_call(int32_t callee) { lowered_.callees.push_back(callee); }
  LoweredFunction::Slot slot_of(int32_t variable) const;

 private:
  friend class Op;
  void check_width(const Operand& o, uint32_t wanted, bool loose) const;
  uint32_t load_before(Op& user, const Operand& o, Type type, bool generic = false);
  void fill_load(MicroOp& op, const Operand& o, uint32_t width, bool generic);
  void reference(uint32_t op, Reference::Field field, uint32_t reg, bool def, uint32_t list = 0);
  void place_variables();
  void finish_branches();
  void extend_pending_loads();
  void extend_pending_wgmmas();
  int32_t block_of_op(uint32_t op) const;

  ProgramBuilder& builder_;
  const Function& function_;
  int32_t index_;
  LoweredFunction& lowered_;
  const Instruction* instruction_ = nullptr;
  uint32_t instruction_number_ = 0;
  Cfg cfg_;
  std::vector<uint32_t> block_start_;  // block -> first micro-operation, one extra for the end
  std::vector<Virtual> virtuals_;
  std::vector<Reference> references_;
  struct PendingLoad {
    uint32_t op;
    std::vector<uint32_t> registers;
  };
  struct WgmmaOrder {
    uint32_t op;
    int64_t outstanding;
  };
  std::vector<PendingLoad> pending_loads_, pending_wgmmas_;
  std::vector<WgmmaOrder> wgmma_order_;
  std::vector<int64_t> unfenced_;     // wgmmas, by instruction
  std::vector<uint32_t> load_waits_;  // micro-operations of wait::ld
  std::vector<uint32_t> join_fixups_;
  uint32_t carry_ = ~0u, cta_group_ = 0;
  std::vector<std::pair<uint32_t, int32_t>> branch_fixups_, table_fixups_;  // op or list index -> block
};

// Rows and predicate numbers for one function (regalloc.cpp): fills the micro-operations from first_op on.
struct AllocationResult {
  uint32_t rows = 0, predicates = 1;
};
struct AllocationInput {
  std::vector<MicroOp>& code;
  std::vector<uint32_t>& lists;
  uint32_t first_op;
  const Cfg& cfg;
  const std::vector<uint32_t>& block_start;
  const std::vector<Virtual>& virtuals;
  std::vector<Reference>& references;  // sorted by op
  uint32_t first_row, first_predicate;
};
AllocationResult allocate_registers(const AllocationInput& input);

// Parses nothing: fills a program of which source, module and the addresses of module variables are set.
// First every .func, then entries one by one, in any order, as they are needed.
ProgramBuilder lower_functions(Program& program, const DeviceModel& device);
void lower_entry(ProgramBuilder& builder, int32_t function);

}  // namespace mxfa::emulator::ptx
