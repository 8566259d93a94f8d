// mxfa_plan_describe: the plan as JSON.
#include "host/plan.hpp"

namespace mxfa {
namespace {

using Json = nlohmann::ordered_json;

template <size_t N>
std::string text(const char (&name)[N]) {
  return std::string(name, strnlen(name, N));
}

Json parity(uint32_t first) {
  return first > 1 ? Json(nullptr) : Json(first);
}  // null: this side never waits

Json describe_tables(const abi::KernelTables& tables) {
  Json roles = Json::array(), smem = Json::array(), tmem = Json::array(), barriers = Json::array();
  for (uint32_t i = 0; i < tables.role_count; ++i) {
    const abi::RoleRow& row = tables.roles[i];
    roles.push_back({{"name", text(row.name)},
                     {"first_warp", row.first_warp},
                     {"warps", row.warps},
                     {"registers", row.registers}});
  }
  for (uint32_t i = 0; i < tables.smem_count; ++i) {
    const abi::SmemRow& row = tables.smem[i];
    smem.push_back({{"name", text(row.name)},
                    {"offset", row.offset},
                    {"bytes", row.bytes},
                    {"stages", row.stages},
                    {"alignment", row.alignment}});
  }
  for (uint32_t i = 0; i < tables.tmem_count; ++i) {
    const abi::TmemRow& row = tables.tmem[i];
    tmem.push_back({{"name", text(row.name)},
                    {"column", row.column},
                    {"columns", row.columns},
                    {"live_from", text(row.live_from)},
                    {"live_until", text(row.live_until)}});
  }
  for (uint32_t i = 0; i < tables.barrier_count; ++i) {
    const abi::BarrierRow& row = tables.barriers[i];
    barriers.push_back({{"name", text(row.name)},
                        {"offset", row.offset},
                        {"stages", row.stages},
                        {"count", row.count},
                        {"tx_bytes", row.tx_bytes},
                        {"producer", text(row.producer)},
                        {"consumer", text(row.consumer)},
                        {"producer_first_parity", parity(row.producer_first_parity)},
                        {"consumer_first_parity", parity(row.consumer_first_parity)}});
  }
  return {{"threads", tables.threads},
          {"shared_bytes", tables.shared_bytes},
          {"tmem_columns", tables.tmem_columns},
          {"tile_rows", tables.tile_rows},
          {"roles", roles},
          {"smem", smem},
          {"tmem", tmem},
          {"barriers", barriers}};
}

}  // namespace

std::string describe_plan(const mxfa_plan& plan) {
  const mxfa_context& context = *plan.context;
  const Driver& driver = context.driver;
  const Kernel& kernel = *plan.kernel;
  Json config = Json::object();
  for (const ConfigField& field : plan.config.fields)
    config[field.name] = field.boolean ? Json(field.value != 0) : Json(field.value);
  Json overrides = Json::object();
  if (!plan.config.overrides.empty()) overrides = Json::parse(plan.config.overrides);
  Json description = {
      {"kernel", kernel.config.kernel},
      {"source", kernel.config.source},
      {"arch", kernel.config.arch},
      {"key", kernel.built.key},
      {"device",
       {{"name", driver.device_name},
        {"compute_capability", fmt::format("{}.{}", driver.compute_major, driver.compute_minor)},
        {"driver_library", driver.library},
        {"driver_version", driver.version()},
        {"image", driver.loads_ptx ? "ptx" : "cubin"}}},
      {"options", plan.options},
      {"config", config},
      {"overrides", overrides},
      {"grid", {plan.grid, 1, 1}},
      {"tiles", plan.tile_count},
      {"workspace_bytes", plan.workspace.size()},
      {"tables", describe_tables(kernel.tables)},
      {"ptxas", Json::parse(kernel.built.artefact->report)},
      {"cache",
       {{"state", kernel.built.state},
        {"directory", context.cache->directory()},
        {"setting", context.cache->setting()}}},
      {"build_ms", kernel.built.build_ms},
      {"load_ms", kernel.load_ms},
  };
  Json others = Json::array();
  const BackwardPlan& backward = plan.backward;
  for (const auto& [other, other_grid] : {std::pair{plan.lengths.kernel, plan.lengths.grid},
                                          {plan.expand.kernel, plan.expand.grid},
                                          {backward.prepare, backward.prepare_grid},
                                          {backward.dq, backward.dq_grid},
                                          {backward.finish, backward.finish_grid}})
    if (other)
      others.push_back({{"kernel", other->config.kernel},
                        {"key", other->built.key},
                        {"grid", other_grid},
                        {"threads", other->tables.threads},
                        {"registers", Json::parse(other->built.artefact->report)["registers"]}});
  if (!others.empty()) description["other_kernels"] = others;
  // Names may hold bytes that are not UTF-8 (a folder); the text stays valid JSON.
  return description.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace mxfa
