// Lowering of whole functions and modules: placing variables, emitting instructions block by block, binding
// branches, allocating rows.
#include <fmt/format.h>

#include <algorithm>

#include "core/handlers.hpp"
#include "ptx/lower.hpp"
#include "ptx/pending_loads.hpp"
#include "ptx/wgmma_fences.hpp"

namespace mxfa::emulator::ptx {
namespace {

constexpr uint64_t kMaxShared = (1u << 24) - 4096;  // of the window of one CTA

uint64_t align_up(uint64_t value, uint64_t alignment) { return (value + alignment - 1) & ~(alignment - 1); }

}  // namespace

Lowering::Lowering(ProgramBuilder& builder, int32_t function)
    : builder_(builder),
      function_(builder.module.functions[function]),
      index_(function),
      lowered_(builder.program.functions[function]) {
  virtuals_.reserve(function_.registers.size() + 64);
  for (const RegisterDeclaration& r : function_.registers)
    virtuals_.push_back(
        {static_cast<uint16_t>(std::max<uint32_t>(1, bits(r.type) / 32)), r.type == Type::Pred});
}

bool Lowering::parameter_of_entry(int32_t variable) const {
  if (!function_.entry) return false;
  const auto& list = function_.parameters;
  return std::find(list.begin(), list.end(), variable) != list.end();
}

uint64_t Lowering::variable_address(int32_t variable) const { return builder_.program.addresses[variable]; }

LoweredFunction::Slot Lowering::slot_of(int32_t variable) const {
  return {static_cast<uint32_t>(builder_.program.addresses[variable]),
          static_cast<uint32_t>(module().variables[variable].bytes)};
}

// Local and parameter variables of this function get offsets.  Bodies of .func have places of their own,
// below those of entries that call: lanes are independent columns, so static places serve every call except
// recursion (refused by lower_functions).
void Lowering::place_variables() {
  const bool calls = std::any_of(function_.instructions.begin(), function_.instructions.end(),
                                 [](const Instruction& i) { return i.opcode == "call"; });
  uint64_t local = function_.entry ? (calls ? builder_.function_local : 0) : builder_.function_local;
  uint64_t parameter = 0, shared = lowered_.shared_bytes;
  for (size_t v = 0; v < module().variables.size(); ++v) {
    const Variable& variable = module().variables[v];
    if (variable.function != index_) continue;
    uint64_t& address = builder_.program.addresses[v];
    if (variable.space == Space::Param && parameter_of_entry(static_cast<int32_t>(v))) {
      address = parameter = align_up(parameter, variable.alignment);
      parameter += variable.bytes;
    } else if (variable.space == Space::Local || variable.space == Space::Param) {
      address = local = align_up(local, variable.alignment);
      local += variable.bytes;
      if (local > (1u << 20))
        builder_.source.fail(variable.position, "more than 1 MiB of local memory per thread");
    } else if (variable.space == Space::Shared && function_.entry && !variable.external &&
               !variable.unsized) {
      shared = align_up(shared, variable.alignment);
      address = builder_.program.shared_reserved + shared;
      shared += variable.bytes;
      if (shared > kMaxShared) builder_.source.fail(variable.position, "shared memory is too large");
    }
  }
  // As ptxas has it; a launch would find that it has no room.
  if (const uint64_t limit = builder_.device.shared_per_block_optin; shared > limit)
    builder_.source.fail(
        function_.position,
        fmt::format("'{}' has {} bytes of shared memory; a CTA can have {}", function_.name, shared, limit));
  if (parameter > kMaxParameters)
    builder_.source.fail(function_.position, fmt::format("'{}' has {} bytes of parameters; {} are possible",
                                                         function_.name, parameter, kMaxParameters));
  lowered_.local_bytes = static_cast<uint32_t>(align_up(local, 16));
  lowered_.shared_bytes = static_cast<uint32_t>(shared);
  if (!function_.entry) builder_.function_local = lowered_.local_bytes;
  for (const int32_t p : function_.parameters) lowered_.parameters.push_back(slot_of(p));
  for (const int32_t r : function_.returns) lowered_.returns.push_back(slot_of(r));
}

int32_t Lowering::join_of_branch() const {
  return cfg_.blocks[cfg_.block_of[instruction_number_]].post_dominator;
}

void Lowering::branch_to(Op& op, int32_t label) {
  branch_fixups_.emplace_back(op.index(), cfg_.block_of[function_.label_targets[label]]);
}

void Lowering::table_branch_to(Op&, uint32_t list, int32_t label) {
  table_fixups_.emplace_back(list, cfg_.block_of[function_.label_targets[label]]);
}

void Lowering::finish_branches() {
  auto& program = builder_.program;
  for (const auto& [op, block] : branch_fixups_) {
    program.code[op].imm = block_start_[block];
    const int32_t join = static_cast<int32_t>(program.code[op].aux);
    program.code[op].aux = join < 0 ? kNoPc : block_start_[join];
  }
  for (const uint32_t op : join_fixups_) {
    const auto join = static_cast<int32_t>(program.code[op].aux);
    program.code[op].aux = join < 0 ? kNoPc : block_start_[join];
  }
  for (const auto& [list, block] : table_fixups_) program.lists[list] = block_start_[block];
}

void Lowering::mark_pending_load(Op& op) {
  PendingLoad load{op.index(), {}};
  for (auto r = references_.rbegin(); r != references_.rend() && r->op == op.index(); ++r)
    if (r->def) load.registers.push_back(r->reg);
  pending_loads_.push_back(std::move(load));
}

void Lowering::use_pending_loads(Op& op) { load_waits_.push_back(op.index()); }

int32_t Lowering::block_of_op(uint32_t op) const {
  return static_cast<int32_t>(std::upper_bound(block_start_.begin(), block_start_.end(), op) -
                              block_start_.begin()) -
         1;
}

// A tcgen05.ld may write its registers as late as the next wait::ld on any path: those waits count as uses of
// the registers.
void Lowering::extend_pending_loads() {
  if (pending_loads_.empty() || load_waits_.empty()) return;
  std::vector<std::vector<uint32_t>> waits(cfg_.blocks.size());
  for (const uint32_t w : load_waits_) waits[block_of_op(w)].push_back(w);
  std::vector<Reference> extra;
  for (const PendingLoad& load : pending_loads_) {
    std::vector<bool> seen(cfg_.blocks.size());
    std::vector<std::pair<int32_t, uint32_t>> work{{block_of_op(load.op), load.op}};
    while (!work.empty()) {
      const auto [block, from] = work.back();
      work.pop_back();
      const auto next = std::upper_bound(waits[block].begin(), waits[block].end(), from);
      if (next != waits[block].end()) {
        for (const uint32_t reg : load.registers)
          extra.push_back({*next, Reference::Field::List, false, ~0u, reg});
        continue;
      }
      for (const int32_t s : cfg_.blocks[block].successors)
        if (s < static_cast<int32_t>(seen.size()) && !seen[s]) seen[s] = true, work.emplace_back(s, 0);
    }
  }
  references_.insert(references_.end(), extra.begin(), extra.end());
}

void Lowering::run() {
  auto& program = builder_.program;
  lowered_.name = std::string(function_.name);
  lowered_.entry = function_.entry;
  place_variables();
  lowered_.start = static_cast<uint32_t>(program.code.size());
  if (!function_.defined) return;
  cfg_ = build_cfg(builder_.source, function_);
  references_.reserve(function_.instructions.size() * 4);
  unfenced_ = unfenced_wgmmas(function_, cfg_);
  const std::vector<bool> early_uses = uses_of_pending_loads(function_, cfg_);
  for (const Block& block : cfg_.blocks) {
    block_start_.push_back(static_cast<uint32_t>(program.code.size()));
    if (block.join) {
      instruction_ = nullptr;
      emit(handlers::join());
      program.origins.back() = {function_.instructions[block.first].position, index_,
                                function_.instructions[block.first].location};
    }
    for (instruction_number_ = block.first; instruction_number_ < block.last; ++instruction_number_) {
      instruction_ = &function_.instructions[instruction_number_];
      if (!early_uses.empty() && early_uses[instruction_number_]) {
        auto op = emit_unguarded(handlers::tcgen05_load_use());
        use_pending_loads(op);
      }
      const Match match = match_form(builder_.source, function_, *instruction_);
      if (match.form->exists_on(device()))
        match.form->lower(*this, match);
      else
        refuse(fmt::format("it exists on {}", availability_name(match.form->available)));
    }
  }
  block_start_.push_back(static_cast<uint32_t>(program.code.size()));
  // Control must not run off the end: an implicit return.
  if (instruction_) {
    const Instruction end{.opcode = "ret",
                          .position = instruction_->position,
                          .location = instruction_->location,
                          .operands = {}};
    instruction_ = &end;
    emit(handlers::leave(function_.entry));
    instruction_ = nullptr;
  }
  finish_branches();
  extend_pending_loads();
  extend_pending_wgmmas();
  std::stable_sort(references_.begin(), references_.end(),
                   [](const Reference& a, const Reference& b) { return a.op < b.op; });
  const bool calls = !lowered_.callees.empty();
  const uint32_t first_row = function_.entry && !calls ? 0 : builder_.function_rows;
  const uint32_t first_predicate = function_.entry && !calls ? 1 : builder_.function_predicates;
  const AllocationResult result =
      allocate_registers({program.code, program.lists, lowered_.start, cfg_, block_start_, virtuals_,
                          references_, first_row, first_predicate});
  lowered_.rows = result.rows;
  lowered_.predicates = result.predicates;
  lowered_.lowered = true;
  if (!function_.entry) {
    builder_.function_rows = result.rows;
    builder_.function_predicates = result.predicates;
  }
}

namespace {

// Callees use static rows and places, so a function must not call itself, directly or not.  Without recursion
// here either: a chain of calls may be as long as the module.
void refuse_recursion(const ProgramBuilder& b) {
  const auto& functions = b.program.functions;
  std::vector<int> state(functions.size(), 0);  // 1: on the path, 2: done
  std::vector<std::pair<int32_t, size_t>> path;
  for (size_t first = 0; first < functions.size(); ++first) {
    if (state[first] == 0) path.emplace_back(static_cast<int32_t>(first), 0), state[first] = 1;
    while (!path.empty()) {
      auto& [f, next] = path.back();
      if (next == functions[f].callees.size()) {
        state[f] = 2;
        path.pop_back();
        continue;
      }
      const int32_t c = functions[f].callees[next++];
      if (state[c] == 1)
        b.source.fail(b.module.functions[c].position,
                      fmt::format("'{}' is recursive: recursion is not supported", functions[c].name));
      if (state[c] == 0) path.emplace_back(c, 0), state[c] = 1;
    }
  }
}

}  // namespace

ProgramBuilder lower_functions(Program& program, const DeviceModel& device) {
  const Module& module = *program.module;
  ProgramBuilder builder{program, module, *program.source, device, {}, 0, 1, 0};
  program.functions.resize(module.functions.size());
  program.shared_reserved = device.shared_reserved;
  // Shared variables of module scope and of .func bodies have the same place in every kernel: they come
  // first.
  uint64_t shared = 0;
  for (size_t v = 0; v < module.variables.size(); ++v) {
    const Variable& variable = module.variables[v];
    const bool common = variable.function < 0 || !module.functions[variable.function].entry;
    if (variable.space != Space::Shared || variable.external || variable.unsized || !common) continue;
    shared = align_up(shared, variable.alignment);
    program.addresses[v] = program.shared_reserved + shared;
    shared += variable.bytes;
    if (shared > kMaxShared) builder.source.fail(variable.position, "shared memory is too large");
  }
  uint32_t dynamic_alignment = 16;
  for (const Variable& v : module.variables)
    if (v.space == Space::Shared && (v.external || v.unsized))
      dynamic_alignment = std::max(dynamic_alignment, v.alignment);
  for (size_t f = 0; f < module.functions.size(); ++f) {
    program.functions[f].dynamic_alignment = dynamic_alignment;
    if (module.functions[f].entry)
      program.functions[f].shared_bytes = static_cast<uint32_t>(shared);
    else
      Lowering(builder, static_cast<int32_t>(f)).run();
  }
  refuse_recursion(builder);
  return builder;
}

void lower_entry(ProgramBuilder& builder, int32_t function) { Lowering(builder, function).run(); }

}  // namespace mxfa::emulator::ptx
