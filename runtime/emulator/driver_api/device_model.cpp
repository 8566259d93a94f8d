// Reads a device model.  A file must hold every attribute by name, and nothing this reader does not know.
#include "driver_api/device_model.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

struct MxfaEmbedded {
  const char* path;
  const char* text;
};
extern const MxfaEmbedded mxfa_embedded_device_models[];

namespace mxfa::emulator::driver_api {
namespace {

struct AttributeName {
  const char* name;
  int number;
};
constexpr AttributeName kAttributeNames[] = {
#define ATTRIBUTE(name, number) {#name, number},
#include "driver_api/attribute_names.def"
#undef ATTRIBUTE
};

std::string key_of(std::string_view path) {
  path.remove_prefix(path.rfind('/') + 1);
  return std::string(path.substr(0, path.rfind(".json")));
}

void refuse_unknown_keys(const nlohmann::json& object, const std::set<std::string>& known,
                         const char* where) {
  for (const auto& [key, value] : object.items()) {
    if (!known.contains(key)) throw std::runtime_error(fmt::format("{}: unknown key \"{}\"", where, key));
  }
}

DeviceFacts parse(const std::string& key, const MxfaEmbedded& file) {
  const auto json = nlohmann::json::parse(file.text);
  refuse_unknown_keys(json,
                      {"key", "name", "compute_capability", "memory_bytes", "tensor_memory", "max_cluster",
                       "max_cluster_non_portable", "active_clusters", "sources", "absent", "attributes"},
                      file.path);
  DeviceFacts facts;
  DeviceModel& model = facts.model;
  model.key = json.at("key").get<std::string>();
  if (model.key != key) throw std::runtime_error(fmt::format("{}: key is \"{}\"", file.path, model.key));
  model.name = json.at("name").get<std::string>();
  model.major = json.at("compute_capability").at(0).get<int>();
  model.minor = json.at("compute_capability").at(1).get<int>();
  model.memory_bytes = json.at("memory_bytes").get<uint64_t>();
  model.tensor_memory = json.at("tensor_memory").get<bool>();
  model.max_cluster = json.at("max_cluster").get<int>();
  model.max_cluster_non_portable = json.at("max_cluster_non_portable").get<int>();
  for (const auto& [size, count] : json.at("active_clusters").items()) {
    facts.active_clusters[std::stoi(size)] = count.get<int>();
  }

  const auto& attributes = json.at("attributes");
  std::set<std::string> names;
  int count = 0;
  for (const AttributeName& attribute : kAttributeNames) {
    names.insert(attribute.name);
    count = std::max(count, attribute.number + 1);
  }
  refuse_unknown_keys(attributes, names, file.path);
  model.attributes.assign(count, 0);
  facts.has_attribute.assign(count, false);
  for (const AttributeName& attribute : kAttributeNames) {
    if (!attributes.contains(attribute.name)) {
      throw std::runtime_error(fmt::format("{}: attribute {} is missing", file.path, attribute.name));
    }
    model.attributes[attribute.number] = attributes.at(attribute.name).get<int64_t>();
    facts.has_attribute[attribute.number] = true;
  }
  const auto value = [&](const char* name) { return attributes.at(name).get<int64_t>(); };
  model.sm_count = static_cast<int>(value("MULTIPROCESSOR_COUNT"));
  model.shared_per_block_optin = static_cast<uint32_t>(value("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"));
  model.shared_per_sm = static_cast<uint32_t>(value("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"));
  model.shared_reserved = static_cast<uint32_t>(value("RESERVED_SHARED_MEMORY_PER_BLOCK"));
  model.registers_per_sm = static_cast<uint32_t>(value("MAX_REGISTERS_PER_MULTIPROCESSOR"));
  return facts;
}

}  // namespace

std::vector<std::string> device_keys() {
  std::vector<std::string> keys;
  for (const MxfaEmbedded* file = mxfa_embedded_device_models; file->path; ++file)
    keys.push_back(key_of(file->path));
  return keys;
}

DeviceFacts load_device(const std::string& key) {
  for (const MxfaEmbedded* file = mxfa_embedded_device_models; file->path; ++file) {
    if (key_of(file->path) == key) return parse(key, *file);
  }
  throw std::runtime_error(fmt::format("MXFA_EMU_DEVICE={} is not a device model; there are {}", key,
                                       fmt::join(device_keys(), ", ")));
}

}  // namespace mxfa::emulator::driver_api
