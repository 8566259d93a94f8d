// What the integer references share.
#pragma once

#include <string>
#include <vector>

#include "one_op.hpp"

namespace mxfa::test {

using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using s16 = int16_t;
using s32 = int32_t;
using s64 = int64_t;
using u128 = unsigned __int128;
using s128 = __int128;

struct Row {
  Form form;
  Reference expected;
};

inline std::vector<std::vector<uint64_t>> edges_for(const std::vector<std::string>& types) {
  std::vector<std::vector<uint64_t>> operands;
  for (const auto& type : types)
    operands.push_back(type.ends_with("16") ? edges16() : type.ends_with("32") ? edges32() : edges64());
  return operands;
}

inline void check(const std::vector<Row>& rows, const std::string& target = "sm_90") {
  for (const Row& row : rows) check_form(row.form, combine(edges_for(row.form.inputs)), row.expected, target);
}

inline const std::vector<std::string> k32x1 = {"b32"}, k32x2 = {"b32", "b32"}, k32x3 = {"b32", "b32", "b32"};
inline const std::vector<std::string> k64x1 = {"b64"}, k64x2 = {"b64", "b64"}, k64x3 = {"b64", "b64", "b64"};
inline const std::vector<std::string> k16x1 = {"b16"}, k16x2 = {"b16", "b16"};

}  // namespace mxfa::test
