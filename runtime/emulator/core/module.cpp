// Module::load: PTX text to kernels, with variables of module scope placed in device memory and initialised.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "core/grid.hpp"
#include "core/kernel.hpp"
#include "memory/memory.hpp"
#include "ptx/lower.hpp"
#include "ptx/parser.hpp"
#include "ptx/sync_sites.hpp"

namespace mxfa::emulator {
namespace {

class LoadedModule final : public Module {
 public:
  LoadedModule(std::string_view ptx, const DeviceModel& device, Arena& arena, const Mutation* mutation,
               Lowering lowering)
      : arena_(arena), device_(device) {
    program_.source = std::make_unique<ptx::Source>(std::string(ptx));
    program_.module = ptx::parse(*program_.source);
    check_target(device);
    if (mutation) mutate(*mutation);
    try {
      place_variables();
      builder_.emplace(ptx::lower_functions(program_, device));
      if (lowering == Lowering::AtOnce)
        for (const std::string& name : kernel_names()) find_kernel(name);
    } catch (...) {
      release();
      throw;
    }
  }
  ~LoadedModule() override { release(); }
  LoadedModule(const LoadedModule&) = delete;
  LoadedModule& operator=(const LoadedModule&) = delete;

  const KernelInfo* find_kernel(std::string_view name) override {
    if (const Kernel* k = find(name)) return &k->info;
    const auto& functions = program_.module->functions;
    for (size_t f = 0; f < functions.size(); ++f) {
      if (!functions[f].entry || functions[f].name != name) continue;
      ptx::lower_entry(*builder_, static_cast<int32_t>(f));
      add_kernel(static_cast<int32_t>(f));
      return &kernels_.back()->info;
    }
    return nullptr;
  }
  std::vector<std::string> kernel_names() const override {
    std::vector<std::string> names;
    for (const ptx::Function& f : program_.module->functions)
      if (f.entry) names.emplace_back(f.name);
    return names;
  }
  bool find_global(std::string_view name, uint64_t* address, uint64_t* bytes) const override {
    const auto it = program_.module->variable_names.find(name);
    if (it == program_.module->variable_names.end()) return false;
    const ptx::Variable& v = program_.module->variables[it->second];
    if (v.space != ptx::Space::Global && v.space != ptx::Space::Const) return false;
    *address = program_.addresses[it->second];
    *bytes = v.bytes;
    return true;
  }
  const std::vector<SyncSite>& sync_sites() const override { return sync_sites_; }
  const Kernel* find(std::string_view name) const {
    for (const auto& k : kernels_)
      if (k->info.name == name) return k.get();
    return nullptr;
  }

 private:
  void release() {
    for (const uint64_t a : allocations_) arena_.release(a);
    allocations_.clear();
  }

  // "a" targets run on exactly their device, "f" ones on the family, plain ones on this device or newer.
  void check_target(const DeviceModel& device) {
    std::string_view target = program_.module->target;
    if (target.substr(0, 3) != "sm_")
      program_.source->fail(0, fmt::format(".target '{}' is no sm_ target", target));
    const char suffix = target.back();
    int number = 0;
    for (const char c : target.substr(3))
      if (c >= '0' && c <= '9') number = number * 10 + (c - '0');
    const int have = device.major * 10 + device.minor;
    const bool fits = suffix == 'a'   ? number == have
                      : suffix == 'f' ? number / 10 == device.major && number <= have
                                      : number <= have;
    if (!fits)
      program_.source->fail(static_cast<uint32_t>(target.data() - program_.source->text().data()),
                            fmt::format("PTX for {} does not run on {} (compute capability {}.{})", target,
                                        device.name, device.major, device.minor));
  }

  void mutate(const Mutation& mutation) {
    const std::vector<ptx::SyncSite> sites = ptx::sync_sites(*program_.module);
    for (const ptx::SyncSite& site : sites) {
      const ptx::Function& function = program_.module->functions[site.function];
      const ptx::Instruction& i = function.instructions[site.instruction];
      sync_sites_.push_back({std::string(function.name), site.kind, program_.ptx_text(i.position),
                             program_.cuda_line(site.function, i.location),
                             program_.source->line(i.position)});
    }
    if (mutation.site && *mutation.site < sites.size())
      ptx::delete_site(*program_.module, sites[*mutation.site]);
  }

  void place_variables() {
    const ptx::Module& m = *program_.module;
    program_.addresses.assign(m.variables.size(), 0);
    const auto in_memory = [](const ptx::Variable& v) {
      return v.space == ptx::Space::Global || v.space == ptx::Space::Const;
    };
    for (size_t k = 0; k < m.variables.size(); ++k) {
      const ptx::Variable& v = m.variables[k];
      if (!in_memory(v)) continue;
      if (v.external)
        program_.source->fail(v.position, fmt::format("'{}' is .extern and defined nowhere", v.name));
      const uint64_t address =
          arena_.allocate(std::max<uint64_t>(1, v.bytes), std::max<uint32_t>(256, v.alignment));
      if (!address)
        program_.source->fail(v.position,
                              fmt::format("no device memory for '{}' ({} bytes)", v.name, v.bytes));
      allocations_.push_back(address);
      program_.addresses[k] = address;
    }
    for (size_t k = 0; k < m.variables.size(); ++k) {
      const ptx::Variable& v = m.variables[k];
      if (!in_memory(v)) continue;
      auto* out = reinterpret_cast<uint8_t*>(program_.addresses[k]);
      std::memset(out, 0, v.bytes);  // PTX ISA 5.4.4: without an initial value, .global and .const are zero
      std::copy_n(v.data.data(), std::min<uint64_t>(v.bytes, v.data.size()), out);
      for (const ptx::Relocation& r : v.relocations) {
        const uint64_t value = symbol_address(r);
        std::memcpy(out + r.offset, &value, std::min<uint32_t>(8, r.size));
      }
    }
  }

  uint64_t symbol_address(const ptx::Relocation& r) const {
    const ptx::Module& m = *program_.module;
    if (const auto f = m.function_names.find(r.symbol); f != m.function_names.end())
      return kFunctionWindow + static_cast<uint64_t>(f->second);
    const auto v = m.variable_names.find(r.symbol);
    if (v == m.variable_names.end())
      program_.source->fail(r.position, fmt::format("'{}' is not declared", r.symbol));
    if (m.variables[v->second].space == ptx::Space::Shared)
      program_.source->fail(
          r.position,
          fmt::format("the address of '{}' is not known at load time: it is shared memory", r.symbol));
    return program_.addresses[v->second] + static_cast<uint64_t>(r.addend);
  }

  void add_kernel(int32_t number) {
    const ptx::Function& f = program_.module->functions[number];
    const LoweredFunction& l = program_.functions[number];
    auto k = std::make_unique<Kernel>();
    k->program = &program_;
    k->start = l.start;
    k->rows = l.rows;
    k->predicates = l.predicates;
    k->local_bytes = l.local_bytes;
    k->static_shared = l.shared_bytes;
    k->dynamic_alignment = l.dynamic_alignment;
    KernelInfo& info = k->info;
    info.name = l.name;
    for (const int32_t p : f.parameters) {
      const ptx::Variable& v = program_.module->variables[p];
      const auto offset = static_cast<uint32_t>(program_.addresses[p]);
      info.parameters.push_back({std::string(v.name), offset, static_cast<uint32_t>(v.bytes), v.alignment});
      info.parameter_bytes = offset + static_cast<uint32_t>(v.bytes);
    }
    info.static_shared = l.shared_bytes;
    info.local_bytes = l.local_bytes;
    const auto product = [](const uint32_t(&d)[3]) {
      return d[0] ? d[0] * std::max(1u, d[1]) * std::max(1u, d[2]) : 0;
    };
    const uint32_t threads =
        product(f.required_threads) ? product(f.required_threads) : product(f.max_threads);
    info.max_threads = threads ? std::min(threads, 1024u) : 1024;
    if (product(f.required_threads))
      info.required_block = {f.required_threads[0], f.required_threads[1], f.required_threads[2]};
    // What ptxas gives a kernel whose register count is fixed by its bounds (blackwell-isa 9.7): all the CTAs
    // of .minnctapersm fit.
    if (f.max_registers)
      info.registers = f.max_registers;
    else if (threads && f.min_ctas)
      info.registers =
          std::min(255u, device_.registers_per_sm / (((threads + 31) / 32 * 32) * f.min_ctas)) / 8 * 8;
    if (f.required_cluster[0])
      info.required_cluster = {f.required_cluster[0], f.required_cluster[1], f.required_cluster[2]};
    kernels_.push_back(std::move(k));
  }

  Arena& arena_;
  const DeviceModel& device_;
  Program program_;
  std::optional<ptx::ProgramBuilder> builder_;
  std::vector<uint64_t> allocations_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
  std::vector<SyncSite> sync_sites_;
};

}  // namespace

std::unique_ptr<Module> Module::load(std::string_view ptx, const DeviceModel& device, Arena& arena,
                                     const Mutation* mutation, Lowering lowering) {
  try {
    return std::make_unique<LoadedModule>(ptx, device, arena, mutation, lowering);
  } catch (const std::bad_alloc&) {
    throw PtxError("line 1, column 1: this module needs more memory than the host has");
  } catch (const std::length_error& e) {
    throw PtxError(fmt::format("line 1, column 1: this module is too large: {}", e.what()));
  }
}

const Kernel* find_lowered_kernel(const Module& module, const KernelInfo& info) {
  return static_cast<const LoadedModule&>(module).find(info.name);
}

}  // namespace mxfa::emulator
