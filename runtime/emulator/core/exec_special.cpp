// Values that come from the machine: constants, special registers, symbol addresses, address windows.
#include "core/exec.hpp"
#include "core/handlers.hpp"
#include "memory/memory.hpp"
#include "ptx/ast.hpp"

namespace mxfa::emulator {
namespace {

using ptx::SpecialRegister;

template <class T>
Step broadcast_value(Exec& x, const MicroOp& op) {
  const T value = static_cast<T>(op.imm);
  for_lanes<T>(x.mask, lanes<T>(x.dst(op.dst)), [=](int) { return value; });
  return Step::Continue;
}

template <class T, bool kGeneric, bool kDynamic>
Step shared_symbol(Exec& x, const MicroOp& op) {
  uint64_t offset = static_cast<uint64_t>(op.imm);
  if (kDynamic) {
    const uint64_t end = x.program->shared_reserved + x.kernel->static_shared;
    const uint64_t alignment = x.kernel->dynamic_alignment;
    offset += (end + alignment - 1) & ~(alignment - 1);
  }
  uint64_t address = shared_address(*x.cta, static_cast<uint32_t>(offset));
  if (kGeneric) address += kSharedWindow;
  const T value = static_cast<T>(address);
  for_lanes<T>(x.mask, lanes<T>(x.dst(op.dst)), [=](int) { return value; });
  return Step::Continue;
}

uint64_t uniform_special(const Exec& x, SpecialRegister id) {
  const Grid& g = *x.grid;
  const Cta& c = *x.cta;
  using S = SpecialRegister;
  switch (id) {
    case S::NtidX:
      return g.block.x;
    case S::NtidY:
      return g.block.y;
    case S::NtidZ:
      return g.block.z;
    case S::CtaidX:
      return c.id.x;
    case S::CtaidY:
      return c.id.y;
    case S::CtaidZ:
      return c.id.z;
    case S::NctaidX:
      return g.size.x;
    case S::NctaidY:
      return g.size.y;
    case S::NctaidZ:
      return g.size.z;
    case S::ClusteridX:
      return x.cluster->id.x;
    case S::ClusteridY:
      return x.cluster->id.y;
    case S::ClusteridZ:
      return x.cluster->id.z;
    case S::NclusteridX:
      return g.size.x / g.cluster.x;
    case S::NclusteridY:
      return g.size.y / g.cluster.y;
    case S::NclusteridZ:
      return g.size.z / g.cluster.z;
    case S::ClusterCtaidX:
      return c.id.x % g.cluster.x;
    case S::ClusterCtaidY:
      return c.id.y % g.cluster.y;
    case S::ClusterCtaidZ:
      return c.id.z % g.cluster.z;
    case S::ClusterNctaidX:
      return g.cluster.x;
    case S::ClusterNctaidY:
      return g.cluster.y;
    case S::ClusterNctaidZ:
      return g.cluster.z;
    case S::ClusterCtarank:
      return c.rank;
    case S::ClusterNctarank:
      return g.cluster.x * g.cluster.y * g.cluster.z;
    case S::IsExplicitCluster:
      return g.explicit_cluster;
    case S::Warpid:
      return x.warp->index;
    case S::Nwarpid:
      return c.warps.size();
    case S::Smid:
      return c.index % static_cast<uint32_t>(g.device->sm_count);
    case S::Nsmid:
      return static_cast<uint64_t>(g.device->sm_count);
    case S::Gridid:
      return 1;
    // Time is counted in warp instructions: monotonic, deterministic, and no claim about a device.
    case S::Clock:
      return static_cast<uint32_t>(g.clock);
    case S::ClockHi:
      return g.clock >> 32;
    case S::Clock64:
      return g.clock;
    case S::Globaltimer:
      return g.clock;
    case S::GlobaltimerLo:
      return static_cast<uint32_t>(g.clock);
    case S::GlobaltimerHi:
      return g.clock >> 32;
    case S::DynamicSmemSize:
      return g.dynamic_shared;
    case S::TotalSmemSize:
      return (c.shared_size - x.program->shared_reserved + 127) / 128 *
             128;  // in units of 128, as on an H200
    case S::AggrSmemSize:
      return c.shared_size;
    case S::ReservedSmemBegin:
      return 0;
    case S::ReservedSmemEnd:
      return 0x120;  // an H200's answer; what lies there is not documented
    case S::ReservedSmemCap:
      return x.program->shared_reserved;
    default:
      return 0;
  }
}

template <class T>
Step special(Exec& x, const MicroOp& op) {
  const auto id = static_cast<SpecialRegister>(op.aux);
  auto* d = lanes<T>(x.dst(op.dst));
  const auto fill = [&](auto f) {
    for (int i = 0; i < kLanes; ++i)
      if (x.mask >> i & 1) d[i] = static_cast<T>(f(static_cast<uint32_t>(i)));
    return Step::Continue;
  };
  const Dim3 block = x.grid->block;
  const uint32_t first = x.warp->index * kLanes;
  using S = SpecialRegister;
  switch (id) {
    case S::TidX:
      return fill([&](uint32_t i) { return (first + i) % block.x; });
    case S::TidY:
      return fill([&](uint32_t i) { return (first + i) / block.x % block.y; });
    case S::TidZ:
      return fill([&](uint32_t i) { return (first + i) / block.x / block.y; });
    case S::Laneid:
      return fill([](uint32_t i) { return i; });
    case S::LanemaskEq:
      return fill([](uint32_t i) { return 1u << i; });
    case S::LanemaskLt:
      return fill([](uint32_t i) { return (1u << i) - 1; });
    case S::LanemaskLe:
      return fill([](uint32_t i) { return (2u << i) - 1; });
    case S::LanemaskGt:
      return fill([](uint32_t i) { return ~((2u << i) - 1); });
    case S::LanemaskGe:
      return fill([](uint32_t i) { return ~((1u << i) - 1); });
    default:
      break;
  }
  const uint64_t value = uniform_special(x, id);
  return fill([=](uint32_t) { return value; });
}

Step special_predicate(Exec& x, const MicroOp& op) {
  x.set_pred(op.dst, x.grid->explicit_cluster ? ~0u : 0u);
  return Step::Continue;
}

Step add_window(Exec& x, const MicroOp& op) {
  const auto* a = lanes<uint64_t>(x.src(op.src[0]));
  const uint64_t window = static_cast<uint64_t>(op.imm);
  for_lanes<uint64_t>(x.mask, lanes<uint64_t>(x.dst(op.dst)),
                      [=](int i) { return (a[i] & 0xffffffffu) + window; });
  return Step::Continue;
}
Step drop_window(Exec& x, const MicroOp& op) {
  const auto* a = lanes<uint64_t>(x.src(op.src[0]));
  for_lanes<uint64_t>(x.mask, lanes<uint64_t>(x.dst(op.dst)), [=](int i) { return a[i] & 0xffffffffu; });
  return Step::Continue;
}

enum Window : uint32_t { kInShared, kInOwnShared, kInLocal, kInParam, kInGlobal };
Step in_space(Exec& x, const MicroOp& op) {
  const auto* a = lanes<uint64_t>(x.src(op.src[0]));
  const uint32_t rank = x.cta->rank;
  const auto test = [=](uint64_t v) {
    const uint64_t window = v & ~uint64_t{0xffffffff};
    switch (op.aux) {
      case kInShared:
        return window == kSharedWindow;
      case kInOwnShared:
        return window == kSharedWindow && shared_rank(static_cast<uint32_t>(v)) == rank;
      case kInLocal:
        return window == kLocalWindow;
      case kInParam:
        return window == kParamWindow;
      default:
        return window != kSharedWindow && window != kLocalWindow && window != kParamWindow;
    }
  };
  uint32_t result = 0;
  for (int i = 0; i < kLanes; ++i) result |= static_cast<uint32_t>(test(a[i])) << i;
  x.set_pred(op.dst, result);
  return Step::Continue;
}

}  // namespace

namespace handlers {

Handler broadcast(bool wide) { return wide ? &broadcast_value<uint64_t> : &broadcast_value<uint32_t>; }
Handler read_special(bool wide) { return wide ? &special<uint64_t> : &special<uint32_t>; }
Handler read_special_predicate() { return &special_predicate; }

Handler shared_address(bool wide, bool generic, bool dynamic) {
  if (!wide) return dynamic ? &shared_symbol<uint32_t, false, true> : &shared_symbol<uint32_t, false, false>;
  if (generic) return dynamic ? &shared_symbol<uint64_t, true, true> : &shared_symbol<uint64_t, true, false>;
  return dynamic ? &shared_symbol<uint64_t, false, true> : &shared_symbol<uint64_t, false, false>;
}

Handler cvta(Space space, bool to) {
  if (space == Space::Global || space == Space::Const)
    return move(64);  // global addresses are generic addresses
  return to ? &drop_window : &add_window;
}

Handler isspacep() { return &in_space; }
uint32_t isspacep_kind(std::string_view space) {
  if (space == "shared::cluster") return kInShared;
  if (space == "shared" || space == "shared::cta") return kInOwnShared;  // .shared alone means ::cta
  if (space == "local") return kInLocal;
  if (space == "param" || space == "param::entry") return kInParam;
  return kInGlobal;
}

}  // namespace handlers
}  // namespace mxfa::emulator
