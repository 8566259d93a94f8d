// Test vectors of tests/data/vectors: bit patterns are written there as hexadecimal strings.
#pragma once

#include <bit>
#include <cstdint>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace mxfa::reference {

// Kept for the life of the program, so that a loop over a member of the result is safe.
inline const nlohmann::json& load_vectors(const std::string& name) {
  static std::map<std::string, nlohmann::json> loaded;
  const auto [entry, fresh] = loaded.try_emplace(name);
  if (fresh) {
    const std::string path = std::string(MXFA_TEST_DATA) + "/vectors/" + name;
    std::ifstream file(path);
    if (!file) throw std::runtime_error("cannot open " + path);
    entry->second = nlohmann::json::parse(file);
  }
  return entry->second;
}

inline uint32_t hex(const nlohmann::json& text) {
  return static_cast<uint32_t>(std::stoul(text.get<std::string>(), nullptr, 16));
}
inline float float_of(const nlohmann::json& text) { return std::bit_cast<float>(hex(text)); }

// "0a1b..." -> bytes.
inline std::vector<uint8_t> hex_bytes(const nlohmann::json& text) {
  const std::string digits = text.get<std::string>();
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < digits.size(); i += 2)
    bytes.push_back(static_cast<uint8_t>(std::stoul(digits.substr(i, 2), nullptr, 16)));
  return bytes;
}

}  // namespace mxfa::reference
