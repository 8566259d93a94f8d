// The strict JSON reader, on nlohmann's SAX interface.  That interface tells what was read but not where, so
// the handler walks the same text in step with the events: each event is one token, and tokens are separated
// only by white space, ',' and ':'.
#include "host/json_text.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

namespace mxfa {

namespace {

using Kind = JsonValue::Kind;

class Walker {
 public:
  explicit Walker(std::string_view text) : text_(text) {}

  // Moves to the start of the next token and remembers its place.
  void to_token() {
    while (at_ < text_.size() && std::strchr(" \t\r\n,:", text_[at_])) step();
    token_line_ = line_;
    token_column_ = column_;
    start_ = at_;
  }
  std::string_view take_word() {  // a number or a literal
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) || std::strchr("+-.", text_[at_])))
      step();
    return text_.substr(start_, at_ - start_);
  }
  void take_string() {
    step();
    while (at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] == '\\') step();
      step();
    }
    step();
  }
  void take_bracket() { step(); }
  // The place of the byte that a parse error complains about.
  void to_byte(size_t byte) {
    while (at_ < std::min(byte, text_.size())) step();
    token_line_ = line_;
    token_column_ = column_;
  }
  int line() const { return token_line_; }
  int column() const { return token_column_; }

 private:
  void step() {
    if (at_ >= text_.size()) return;
    const unsigned char c = static_cast<unsigned char>(text_[at_++]);
    if (c == '\n') {
      ++line_;
      column_ = 1;
    } else if (at_ == text_.size() || (static_cast<unsigned char>(text_[at_]) & 0xc0) != 0x80) {
      ++column_;  // the next byte starts a new code point
    }
  }

  std::string_view text_;
  size_t at_ = 0, start_ = 0;
  int line_ = 1, column_ = 1, token_line_ = 1, token_column_ = 1;
};

class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(std::string_view text, const std::string& source) : walker_(text), text_(text), source_(source) {}

  JsonValue root;

  bool null() override { return put_word(Kind::kNull); }
  bool boolean(bool value) override {
    put_word(Kind::kBool);
    last_->boolean = value;
    return true;
  }
  bool number_integer(number_integer_t value) override { return put_integer(value, true); }
  bool number_unsigned(number_unsigned_t value) override {
    return put_integer(static_cast<int64_t>(value), value <= static_cast<uint64_t>(INT64_MAX));
  }
  bool number_float(number_float_t value, const string_t&) override {
    put_word(Kind::kNumber);
    last_->number = value;
    if (last_->text.find_first_of(".eE") == std::string::npos) {  // an integer beyond 64 bits
      last_->kind = Kind::kInteger;
      last_->fits = false;
    }
    return true;
  }
  bool string(string_t& value) override {
    walker_.to_token();
    walker_.take_string();
    put(Kind::kString).text = value;
    return true;
  }
  bool binary(binary_t&) override { return false; }  // cannot occur in text
  bool start_object(std::size_t) override { return open(Kind::kObject); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Kind::kArray); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    walker_.to_token();
    walker_.take_string();
    JsonValue& object = *open_.back();
    for (const JsonMember& member : object.members) {
      if (member.key == name) {
        throw InputError(
            fmt::format("{}duplicate key {}, first given at line {}, column {}; keep one of them", here(),
                        json_quote(name), member.line, member.column));
      }
    }
    if (object.members.size() >= static_cast<size_t>(kJsonMaxKeys)) {
      throw InputError(fmt::format("{}an object with more than {} keys", here(), kJsonMaxKeys));
    }
    object.members.push_back({name, walker_.line(), walker_.column(), {}});
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    walker_.to_token();
    Walker probe = walker_;
    const std::string word(probe.take_word());
    // JSON has no spelling for these; name the key instead of calling it a syntax error.
    for (const char* name : {"nan", "inf", "infinity"}) {
      std::string lower = word.substr(word.starts_with('-') || word.starts_with('+') ? 1 : 0);
      std::transform(lower.begin(), lower.end(), lower.begin(),
                     [](unsigned char c) { return std::tolower(c); });
      if (lower == name)
        throw InputError(fmt::format("{}{}got {}, must be finite", here(), path_prefix(), word));
    }
    if (error.id == 406) {  // out_of_range.406: a number that overflows a double
      throw InputError(
          fmt::format("{}{}got {}, must be finite (it overflows a double)", here(), path_prefix(), word));
    }
    if (position > text_.size()) {
      walker_.to_byte(text_.size());
      throw InputError(fmt::format("{}the text ends too early: {}", here(), reason(error.what())));
    }
    walker_.to_byte(position > 0 ? position - 1 : 0);
    throw InputError(fmt::format("{}not valid JSON: {}", here(), reason(error.what())));
  }

 private:
  std::string here() const { return json_place(source_, walker_.line(), walker_.column()); }

  std::string path_prefix() const {
    std::string path;
    for (const JsonValue* value : open_) {
      if (value->kind == Kind::kObject && !value->members.empty()) {
        path += (path.empty() ? "" : ".") + value->members.back().key;
      } else if (value->kind == Kind::kArray) {
        path += fmt::format("[{}]", value->items.size());
      }
    }
    return path.empty() ? "" : path + ": ";
  }

  // nlohmann: "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while parsing
  // value - ...; last read: '...'; expected ...".  The place is ours, and what was last read may be anything.
  static std::string reason(std::string text) {
    if (const size_t place = text.find(": "); place != std::string::npos) text.erase(0, place + 2);
    const size_t read = text.find("; last read: '"), end = text.rfind('\'');
    if (read != std::string::npos && end > read) text.erase(read, end + 1 - read);
    return text;
  }

  JsonValue& put(Kind kind) {
    JsonValue* slot = &root;
    if (!open_.empty()) {
      JsonValue& parent = *open_.back();
      slot = parent.kind == Kind::kObject ? &parent.members.back().value : &parent.items.emplace_back();
    }
    slot->kind = kind;
    slot->line = walker_.line();
    slot->column = walker_.column();
    return *(last_ = slot);
  }
  bool put_word(Kind kind) {
    walker_.to_token();
    const std::string word(walker_.take_word());
    put(kind).text = word;
    return true;
  }
  bool put_integer(int64_t value, bool fits) {
    put_word(Kind::kInteger);
    last_->integer = value;
    last_->number = static_cast<double>(value);
    last_->fits = fits;
    return true;
  }
  bool open(Kind kind) {
    walker_.to_token();
    walker_.take_bracket();
    if (open_.size() >= static_cast<size_t>(kJsonMaxDepth)) {
      throw InputError(fmt::format("{}nested more than {} levels deep", here(), kJsonMaxDepth));
    }
    open_.push_back(&put(kind));
    return true;
  }
  bool close() {
    walker_.to_token();
    walker_.take_bracket();
    open_.pop_back();
    return true;
  }

  Walker walker_;
  std::string_view text_;
  const std::string& source_;
  std::vector<JsonValue*> open_;  // stable: a parent's vector does not grow while a child is open
  JsonValue* last_ = nullptr;
};

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row.back();
}

}  // namespace

const JsonValue* JsonValue::find(std::string_view key) const {
  for (const JsonMember& member : members) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

std::string json_quote(std::string_view text) {
  // `replace`: bytes that are not UTF-8 (a path, say) must not turn a message into an exception.
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string JsonValue::dump() const {
  switch (kind) {
    case Kind::kString:
      return json_quote(text);
    case Kind::kArray: {
      std::string out = "[";
      for (const JsonValue& item : items) out += (out.size() > 1 ? "," : "") + item.dump();
      return out + "]";
    }
    case Kind::kObject: {
      std::string out = "{";
      for (const JsonMember& member : members) {
        out += (out.size() > 1 ? "," : "") + json_quote(member.key) + ":" + member.value.dump();
      }
      return out + "}";
    }
    default:
      return text;  // null, true, false and numbers as they were written
  }
}

std::string JsonValue::quoted() const {
  if (kind == Kind::kArray) return "a list";
  if (kind == Kind::kObject) return "an object";
  std::string out = dump();
  if (out.size() > 60) out = out.substr(0, 57) + "...";  // a message stays one line
  return out;
}

std::string json_place(const std::string& source, int line, int column) {
  return fmt::format("{}: line {}, column {}: ", source, line, column);
}

JsonValue parse_json(std::string_view text, const std::string& source) {
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) {
    throw InputError(source +
                     ": line 1, column 1: this is UTF-16 text, need UTF-8 JSON; save the file as UTF-8");
  }
  if (text.starts_with("\xef\xbb\xbf"))
    text.remove_prefix(3);  // RFC 8259 section 8.1: a reader may ignore it
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    throw InputError(source + ": line 1, column 1: the file is empty, need a JSON object");
  }
  Builder builder(text, source);
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  return std::move(builder.root);
}

std::string read_text_file(const std::string& path) {
  const auto fail = [&](const std::string& why) {
    return InputError(fmt::format("{}: cannot read this path: {}", path, why));
  };
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) throw fail(std::strerror(errno));
  if (S_ISDIR(info.st_mode)) throw fail("it is a directory, need a file");
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (!file) throw fail(std::strerror(errno));
  std::string text;
  char block[65536];
  for (size_t got; (got = std::fread(block, 1, sizeof block, file)) > 0;) {
    text.append(block, got);
    if (text.size() > kJsonMaxBytes) break;
  }
  const bool bad = std::ferror(file) != 0;
  std::fclose(file);
  if (bad) throw fail("reading failed");
  if (text.size() > kJsonMaxBytes) throw fail(fmt::format("larger than {} bytes", kJsonMaxBytes));
  return text;
}

std::string nearest_name(std::string_view wanted, const std::vector<std::string>& names) {
  std::string best;
  size_t best_distance =
      std::max<size_t>(2, wanted.size() / 3) + 1;  // further away is another word, not a typing error
  for (const std::string& name : names) {
    const size_t distance = edit_distance(wanted, name);
    if (distance < best_distance) {
      best = name;
      best_distance = distance;
    }
  }
  return best;
}

void refuse_unknown_keys(const JsonValue& object, const std::string& path,
                         const std::vector<std::string>& names, const std::string& source) {
  for (const JsonMember& member : object.members) {
    if (std::find(names.begin(), names.end(), member.key) != names.end()) continue;
    const std::string nearest = nearest_name(member.key, names);
    throw InputError(fmt::format(
        "{}unknown key {}; {}", json_place(source, member.line, member.column), json_quote(path + member.key),
        nearest.empty() ? fmt::format("the keys here are {}", fmt::join(names, ", "))
                        : fmt::format("did you mean {}?", json_quote(path + nearest))));
  }
}

}  // namespace mxfa
