#include "host/kernel_config.hpp"

#include <algorithm>

#include "host/error.hpp"
#include "host/json_text.hpp"

namespace mxfa {
namespace {

const JsonValue& member(const JsonValue& object, const char* key, const std::string& source) {
  const JsonValue* value = object.find(key);
  if (!value) device_error("{}: \"{}\" is missing", source, key);
  return *value;
}

JsonValue read_config(const MxfaEmbedded* configs, const std::string& kernel, std::string* path) {
  *path = "configs/kernels/" + kernel + ".json";
  for (const MxfaEmbedded* file = configs; file->path; ++file)
    if (*path == file->path) return parse_json(file->text, *path);
  device_error("this build has no {}", *path);
}

bool agrees(const JsonValue& when, const std::vector<ConfigField>& facts, const std::string& arch,
            const std::string& path) {
  return std::all_of(when.members.begin(), when.members.end(), [&](const JsonMember& condition) {
    if (condition.key == "arch") return condition.value.text == arch;
    const auto fact = std::find_if(facts.begin(), facts.end(),
                                   [&](const ConfigField& field) { return field.name == condition.key; });
    if (fact == facts.end())
      device_error("{}: \"when\" asks for {}, which this operation does not state", path, condition.key);
    const JsonValue& value = condition.value;
    return value.kind == JsonValue::Kind::kBool ? fact->value == int64_t(value.boolean)
                                                : fact->value == value.integer;
  });
}

// The value of an override: an integer, or one of the field's names.
JsonValue override_value(const JsonMember& override_, const JsonValue* names, const std::string& kernel) {
  const JsonValue* list = names ? names->find(override_.key) : nullptr;
  if (!list || override_.value.kind != JsonValue::Kind::kString) return override_.value;
  std::vector<std::string> known;
  for (const JsonValue& name : list->items) known.push_back(name.text);
  const auto found = std::find(known.begin(), known.end(), override_.value.text);
  if (found == known.end()) {
    const std::string nearest = nearest_name(override_.value.text, known);
    invalid("kernel.{} is {}; {} has {}{}", override_.key, override_.value.quoted(), kernel,
            fmt::join(known, ", "), nearest.empty() ? "" : fmt::format("; did you mean \"{}\"?", nearest));
  }
  JsonValue value = override_.value;
  value.kind = JsonValue::Kind::kInteger;
  value.integer = found - known.begin();
  return value;
}

void apply_overrides(const char* text, const JsonValue& limits, const JsonValue* value_names,
                     const std::string& kernel, KernelConfig* config) {
  const JsonValue overrides = parse_json(text, "kernel overrides");
  if (overrides.kind != JsonValue::Kind::kObject)
    invalid("kernel overrides: expected an object {{field: integer}}, got {}", overrides.quoted());
  std::vector<std::string> names;
  for (const JsonMember& limit : limits.members) names.push_back(limit.key);
  for (const JsonMember& override_ : overrides.members) {
    const JsonValue* limit = limits.find(override_.key);
    if (!limit) {
      const std::string nearest = nearest_name(override_.key, names);
      invalid("kernel.{}: {} has no such field to override{}; it has {}", override_.key, kernel,
              nearest.empty() ? "" : fmt::format("; did you mean \"{}\"?", nearest),
              names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
    }
    const int64_t low = limit->items.at(0).integer, high = limit->items.at(1).integer,
                  step = limit->items.at(2).integer;
    const JsonValue value = override_value(override_, value_names, kernel);
    if (value.kind != JsonValue::Kind::kInteger || !value.fits || value.integer < low ||
        value.integer > high || (value.integer - low) % step != 0)
      invalid("kernel.{} is {}; {} takes integers from {} to {} in steps of {}", override_.key,
              value.quoted(), kernel, low, high, step);
    const auto field =
        std::find_if(config->fields.begin(), config->fields.end(),
                     [&](const ConfigField& candidate) { return candidate.name == override_.key; });
    if (field == config->fields.end())
      invalid("kernel.{}: not a field of the chosen configuration of {}", override_.key, kernel);
    field->value = value.integer;
  }
  if (!overrides.members.empty()) config->overrides = overrides.dump();
}

}  // namespace

int64_t KernelConfig::at(const std::string& name) const {
  for (const ConfigField& field : fields)
    if (field.name == name) return field.value;
  device_error("the configuration of {} has no field {}", kernel, name);
}

void KernelConfig::set(const std::string& name, int64_t value) {
  for (ConfigField& field : fields)
    if (field.name == name) {
      field.value = value;
      return;
    }
  device_error("the configuration of {} has no field {}", kernel, name);
}

std::string KernelConfig::translation_unit() const {
  std::string text =
      fmt::format("// {} for {}, generated from configs/kernels/{}.json.\n//", kernel, arch, kernel);
  std::vector<ConfigField> seen;
  std::copy_if(fields.begin(), fields.end(), std::back_inserter(seen),
               [](const ConfigField& field) { return field.use == ConfigField::Use::kField; });
  for (const ConfigField& field : seen) text += fmt::format(" {}={}", field.name, field.value);
  text += "\nstruct Config {\n";
  for (const ConfigField& field : seen)
    text += field.boolean ? fmt::format("  static constexpr bool {} = {};\n", field.name, field.value != 0)
                          : fmt::format("  static constexpr int {} = {};\n", field.name, field.value);
  text += fmt::format("}};\n#include \"{}\"\n", source);
  return text;
}

int64_t override_or(const char* overrides, const std::string& field, int64_t otherwise) {
  if (!overrides || !*overrides) return otherwise;
  const JsonValue* value = parse_json(overrides, "kernel overrides").find(field.c_str());
  return value && value->kind == JsonValue::Kind::kInteger && value->fits ? value->integer : otherwise;
}

KernelConfig resolve_kernel_config(const MxfaEmbedded* configs, const std::string& kernel,
                                   const std::string& arch, const std::vector<ConfigField>& facts,
                                   const char* overrides) {
  std::string path;
  const JsonValue file = read_config(configs, kernel, &path);
  KernelConfig config{kernel, member(file, "source", path).text, arch, {}, {}};
  std::copy_if(facts.begin(), facts.end(), std::back_inserter(config.fields),
               [](const ConfigField& fact) { return fact.use == ConfigField::Use::kField; });

  std::vector<std::string> archs;
  for (const JsonValue& item : member(file, "archs", path).items) archs.push_back(item.text);
  if (std::find(archs.begin(), archs.end(), arch) == archs.end())
    invalid("{} has no {} kernel; it has {}", kernel, arch, fmt::join(archs, ", "));

  const auto& choices = member(file, "choices", path).items;
  const auto choice = std::find_if(choices.begin(), choices.end(), [&](const JsonValue& candidate) {
    return agrees(member(candidate, "when", path), facts, arch, path);
  });
  if (choice == choices.end()) {
    std::string wanted;
    for (const ConfigField& fact : facts)
      wanted += fmt::format("{}{} {}", wanted.empty() ? "" : ", ", fact.name, fact.value);
    invalid("{} has no configuration for {} on {} (configs/kernels/{}.json)", kernel, wanted, arch, kernel);
  }
  for (const JsonMember& field : member(*choice, "set", path).members) {
    if (field.value.kind != JsonValue::Kind::kInteger && field.value.kind != JsonValue::Kind::kBool)
      device_error("{}: {} must be an integer or true/false", path, field.key);
    const bool boolean = field.value.kind == JsonValue::Kind::kBool;
    config.fields.push_back(
        {field.key, boolean ? int64_t(field.value.boolean) : field.value.integer, boolean});
  }
  if (const JsonValue* plan = file.find("plan"))
    for (const JsonMember& field : plan->members)
      config.fields.push_back({field.key, field.value.integer, false, ConfigField::Use::kPlanOnly});
  if (overrides && *overrides)
    apply_overrides(overrides, member(file, "limits", path), file.find("names"), kernel, &config);
  return config;
}

}  // namespace mxfa
