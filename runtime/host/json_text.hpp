// Strict JSON with the place of every key and value.  UTF-8 only (a UTF-8 byte order mark is skipped, any
// other is refused), no duplicate keys, no comments, no NaN or Infinity, at most kJsonMaxDepth levels.
// Numbers keep their spelling, so that "4.0" is not an integer and a message can quote what the user wrote.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mxfa/mxfa.hpp"

namespace mxfa {

// Something a user wrote is wrong.  The text names the place, the value and the rule, and is shown as it is.
struct InputError : Error {
  explicit InputError(const std::string& text) : Error(MXFA_ERROR_INVALID, text) {}
};

// Nesting that no shape file or kernel configuration needs; bounds the recursion of everything that walks a
// value.
inline constexpr int kJsonMaxDepth = 32;
// Two million sequence lengths fit; more is a wrong file, and reading it would only end in memory trouble (a
// value takes 150 bytes here).
inline constexpr uint64_t kJsonMaxBytes = uint64_t{16} << 20;
inline constexpr int kJsonMaxKeys = 1024;  // of one object

struct JsonMember;

struct JsonValue {
  enum class Kind { kNull, kBool, kInteger, kNumber, kString, kArray, kObject };
  Kind kind = Kind::kNull;
  int line = 0, column = 0;  // both from 1; columns count code points
  bool boolean = false;
  bool fits = true;                 // kInteger: representable as int64_t
  int64_t integer = 0;              // kInteger
  double number = 0;                // kInteger and kNumber; always finite
  std::string text;                 // kString: decoded; kInteger, kNumber: as written
  std::vector<JsonValue> items;     // kArray
  std::vector<JsonMember> members;  // kObject, in file order

  const JsonValue* find(std::string_view key) const;  // nullptr: not an object, or no such key
  std::string quoted() const;  // as a message shows it: 4.5, "4", true, null, a list, an object
  std::string dump() const;    // compact JSON text
};

struct JsonMember {
  std::string key;
  int line = 0, column = 0;
  JsonValue value;
};

// `source` starts every message: "shape.json: line 3, column 9: ...".  Throws InputError.
JsonValue parse_json(std::string_view text, const std::string& source);

// Reads a whole file; a missing, unreadable or oversized file or a directory is an InputError that names the
// path and the reason.
std::string read_text_file(const std::string& path);

// "source: line L, column C: "
std::string json_place(const std::string& source, int line, int column);

// The name closest to `wanted` if it is close enough to be a typing error, else "".
std::string nearest_name(std::string_view wanted, const std::vector<std::string>& names);

// Refuses every member of `object` whose key is not in `names`.  `path` ("" at the top, "mxfp8.", "data.")
// names where it stands.
void refuse_unknown_keys(const JsonValue& object, const std::string& path,
                         const std::vector<std::string>& names, const std::string& source);

// JSON spelling of a string, quotes included; control characters escaped.
std::string json_quote(std::string_view text);

}  // namespace mxfa
