// Names of the special registers.
#include <array>
#include <unordered_map>

#include "ptx/ast.hpp"

namespace mxfa::emulator::ptx {
namespace {

using S = SpecialRegister;
constexpr std::array kSpecials = {
    SpecialInfo{S::TidX, "%tid.x", Type::U32},
    SpecialInfo{S::TidY, "%tid.y", Type::U32},
    SpecialInfo{S::TidZ, "%tid.z", Type::U32},
    SpecialInfo{S::NtidX, "%ntid.x", Type::U32},
    SpecialInfo{S::NtidY, "%ntid.y", Type::U32},
    SpecialInfo{S::NtidZ, "%ntid.z", Type::U32},
    SpecialInfo{S::CtaidX, "%ctaid.x", Type::U32},
    SpecialInfo{S::CtaidY, "%ctaid.y", Type::U32},
    SpecialInfo{S::CtaidZ, "%ctaid.z", Type::U32},
    SpecialInfo{S::NctaidX, "%nctaid.x", Type::U32},
    SpecialInfo{S::NctaidY, "%nctaid.y", Type::U32},
    SpecialInfo{S::NctaidZ, "%nctaid.z", Type::U32},
    SpecialInfo{S::ClusteridX, "%clusterid.x", Type::U32},
    SpecialInfo{S::ClusteridY, "%clusterid.y", Type::U32},
    SpecialInfo{S::ClusteridZ, "%clusterid.z", Type::U32},
    SpecialInfo{S::NclusteridX, "%nclusterid.x", Type::U32},
    SpecialInfo{S::NclusteridY, "%nclusterid.y", Type::U32},
    SpecialInfo{S::NclusteridZ, "%nclusterid.z", Type::U32},
    SpecialInfo{S::ClusterCtaidX, "%cluster_ctaid.x", Type::U32},
    SpecialInfo{S::ClusterCtaidY, "%cluster_ctaid.y", Type::U32},
    SpecialInfo{S::ClusterCtaidZ, "%cluster_ctaid.z", Type::U32},
    SpecialInfo{S::ClusterNctaidX, "%cluster_nctaid.x", Type::U32},
    SpecialInfo{S::ClusterNctaidY, "%cluster_nctaid.y", Type::U32},
    SpecialInfo{S::ClusterNctaidZ, "%cluster_nctaid.z", Type::U32},
    SpecialInfo{S::ClusterCtarank, "%cluster_ctarank", Type::U32},
    SpecialInfo{S::ClusterNctarank, "%cluster_nctarank", Type::U32},
    SpecialInfo{S::IsExplicitCluster, "%is_explicit_cluster", Type::Pred},
    SpecialInfo{S::Laneid, "%laneid", Type::U32},
    SpecialInfo{S::Warpid, "%warpid", Type::U32},
    SpecialInfo{S::Nwarpid, "%nwarpid", Type::U32},
    SpecialInfo{S::Smid, "%smid", Type::U32},
    SpecialInfo{S::Nsmid, "%nsmid", Type::U32},
    SpecialInfo{S::Gridid, "%gridid", Type::U64},
    SpecialInfo{S::LanemaskEq, "%lanemask_eq", Type::U32},
    SpecialInfo{S::LanemaskLe, "%lanemask_le", Type::U32},
    SpecialInfo{S::LanemaskLt, "%lanemask_lt", Type::U32},
    SpecialInfo{S::LanemaskGe, "%lanemask_ge", Type::U32},
    SpecialInfo{S::LanemaskGt, "%lanemask_gt", Type::U32},
    SpecialInfo{S::Clock, "%clock", Type::U32},
    SpecialInfo{S::ClockHi, "%clock_hi", Type::U32},
    SpecialInfo{S::Clock64, "%clock64", Type::U64},
    SpecialInfo{S::Globaltimer, "%globaltimer", Type::U64},
    SpecialInfo{S::GlobaltimerLo, "%globaltimer_lo", Type::U32},
    SpecialInfo{S::GlobaltimerHi, "%globaltimer_hi", Type::U32},
    SpecialInfo{S::DynamicSmemSize, "%dynamic_smem_size", Type::U32},
    SpecialInfo{S::TotalSmemSize, "%total_smem_size", Type::U32},
    SpecialInfo{S::AggrSmemSize, "%aggr_smem_size", Type::U32},
    SpecialInfo{S::ReservedSmemBegin, "%reserved_smem_offset_begin", Type::U32},
    SpecialInfo{S::ReservedSmemEnd, "%reserved_smem_offset_end", Type::U32},
    SpecialInfo{S::ReservedSmemCap, "%reserved_smem_offset_cap", Type::U32},
    SpecialInfo{S::ReservedSmem0, "%reserved_smem_offset_0", Type::U32},
    SpecialInfo{S::ReservedSmem1, "%reserved_smem_offset_1", Type::U32},
};

}  // namespace

const SpecialInfo* find_special(std::string_view name) {
  static const auto table = [] {
    std::unordered_map<std::string_view, const SpecialInfo*> map;
    for (const SpecialInfo& s : kSpecials) map.emplace(s.name, &s);
    return map;
  }();
  const auto it = table.find(name);
  return it == table.end() ? nullptr : it->second;
}

const SpecialInfo& special_info(SpecialRegister id) { return kSpecials[static_cast<size_t>(id)]; }

}  // namespace mxfa::emulator::ptx
