// Shape files: keys, ranges and the rules between keys.  Messages: "file: line L, column C: key: got VALUE,
// need RULE".
#include "host/shape_file.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>

#include "host/length_distribution.hpp"

namespace mxfa {

namespace {

using Kind = JsonValue::Kind;

template <class E>
using Names = std::vector<std::pair<E, const char*>>;

const Names<Op> kOps = {
    {Op::attn_fwd, "attn_fwd"}, {Op::attn_bwd, "attn_bwd"}, {Op::mxfp8_quantize, "mxfp8_quantize"}};
const Names<Dtype> kDtypes = {{Dtype::bf16, "bf16"}, {Dtype::mxfp8, "mxfp8"}};
const Names<ScalingMode> kScalingModes = {{ScalingMode::rceil, "rceil"}, {ScalingMode::floor, "floor"}};
const Names<BlockShape> kBlocks = {{BlockShape::b1x32, "1x32"}, {BlockShape::b32x32, "32x32"}};
const Names<PScale> kPScales = {{PScale::constant, "constant"}, {PScale::dynamic, "dynamic"}};
const Names<DqAccumulate> kDqAccumulates = {{DqAccumulate::fp32, "fp32"}, {DqAccumulate::fp16, "fp16"}};
const Names<DataDistribution> kDataDistributions = {{DataDistribution::normal, "normal"},
                                                    {DataDistribution::heavy_tailed, "heavy_tailed"},
                                                    {DataDistribution::power_of_two, "power_of_two"},
                                                    {DataDistribution::constant, "constant"}};

const std::vector<std::string> kKeys = {"op",        "dtype",     "head_dim",      "heads_q", "heads_kv",
                                        "seqlens_q", "seqlens_k", "broadcast_q",   "causal",  "window",
                                        "scale",     "mxfp8",     "backward",      "data",    "kernel",
                                        "tolerance", "cases",     "device_lengths"};

// Operations that are named in the documentation but have no kernels yet.
const std::vector<std::string> kFutureOps = {"rmsnorm_quantize", "gemm_quantize", "pma_module"};

template <class E>
const char* lookup(const Names<E>& names, E value) {
  for (const auto& [known, name] : names) {
    if (known == value) return name;
  }
  return "?";
}

template <class E>
std::string accepted(const Names<E>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + std::string(names[i].second);
  }
  return text;
}

class ShapeReader {
 public:
  ShapeReader(const JsonValue& root, std::string source) : root_(root), source_(std::move(source)) {}

  Shape read() {
    refuse_unknown_keys(root_, "", kKeys, source_);
    Shape shape;
    shape.source = source_;
    read_op(shape);
    shape.dtype = choice(require("dtype"), "dtype", kDtypes);
    shape.head_dim = integer(require("head_dim"), "head_dim", 1, 1024);
    read_heads(shape);
    if (const JsonValue* value = find("broadcast_q")) shape.broadcast_q = boolean(*value, "broadcast_q");
    read_lengths(shape);
    if (const JsonValue* value = find("device_lengths"))
      shape.device_lengths = boolean(*value, "device_lengths");
    if (const JsonValue* value = find("causal")) shape.causal = boolean(*value, "causal");
    if (const JsonValue* value = find("window")) read_window(*value, shape);
    if (const JsonValue* value = find("scale"); value && value->kind != Kind::kNull)
      shape.scale = number(*value, "scale");
    if (const JsonValue* value = find("mxfp8")) read_mxfp8(*value, shape);
    if (const JsonValue* value = find("backward")) read_backward(*value, shape);
    if (const JsonValue* value = find("data")) read_data(*value, shape);
    if (const JsonValue* value = find("kernel")) shape.kernel = object(*value, "kernel").dump();
    if (const JsonValue* value = find("tolerance")) read_tolerance(*value, shape);
    refuse_keys_without_effect(shape);
    return shape;
  }

 private:
  [[noreturn]] void fail(const JsonValue& value, const std::string& key, const std::string& rule) const {
    throw InputError(fmt::format("{}{}: got {}, need {}", json_place(source_, value.line, value.column), key,
                                 value.quoted(), rule));
  }
  [[noreturn]] void fail_at(const JsonValue& value, const std::string& sentence) const {
    throw InputError(json_place(source_, value.line, value.column) + sentence);
  }
  const JsonValue* find(const char* key) const { return root_.find(key); }
  const JsonValue& require(const char* key) const {
    if (const JsonValue* value = find(key)) return *value;
    fail_at(root_, fmt::format("{}: missing; this key has no default", key));
  }

  int32_t integer(const JsonValue& value, const std::string& key, int64_t low, int64_t high) const {
    if (value.kind != Kind::kInteger || !value.fits || value.integer < low || value.integer > high) {
      fail(value, key, fmt::format("an integer from {} to {}", low, high));
    }
    return static_cast<int32_t>(value.integer);
  }
  double number(const JsonValue& value, const std::string& key) const {
    if (value.kind != Kind::kInteger && value.kind != Kind::kNumber) {
      fail(value, key, key == "scale" ? "a finite number or null (1/sqrt(head_dim))" : "a finite number");
    }
    return value.number;
  }
  bool boolean(const JsonValue& value, const std::string& key) const {
    if (value.kind != Kind::kBool) fail(value, key, "true or false");
    return value.boolean;
  }
  const JsonValue& object(const JsonValue& value, const std::string& key) const {
    if (value.kind != Kind::kObject) fail(value, key, "an object");
    return value;
  }
  template <class E>
  E choice(const JsonValue& value, const std::string& key, const Names<E>& names) const {
    if (value.kind == Kind::kString) {
      for (const auto& [known, name] : names) {
        if (value.text == name) return known;
      }
    }
    fail(value, key, accepted(names));
  }

  void read_op(Shape& shape) const {
    const JsonValue& value = require("op");
    for (const std::string& name : kFutureOps) {
      if (value.kind == Kind::kString && value.text == name) {
        fail_at(
            value,
            fmt::format("op: {} is not in this version; it has attn_fwd, attn_bwd and mxfp8_quantize", name));
      }
    }
    shape.op = choice(value, "op", kOps);
  }

  void read_heads(Shape& shape) const {
    const JsonValue& heads_q = require("heads_q");
    shape.heads_q = shape.heads_kv = integer(heads_q, "heads_q", 1, 65535);
    if (const JsonValue* value = find("heads_kv")) shape.heads_kv = integer(*value, "heads_kv", 1, 65535);
    if (shape.heads_q % shape.heads_kv != 0) {
      fail(heads_q, "heads_q", fmt::format("a multiple of heads_kv, which is {}", shape.heads_kv));
    }
  }

  std::vector<int32_t> lengths(const JsonValue& value, const std::string& key, const char* rule) const {
    std::vector<int32_t> out;
    if (value.kind == Kind::kArray) {
      for (size_t i = 0; i < value.items.size(); ++i) {
        out.push_back(integer(value.items[i], fmt::format("{}[{}]", key, i), 0, INT32_MAX));
      }
    } else if (value.kind == Kind::kObject) {
      out = read_length_distribution(value, key, source_);
    } else {
      fail(value, key, rule);
    }
    int64_t total = 0;
    for (const int32_t length : out) total += length;
    if (total > INT32_MAX) {
      fail_at(value, fmt::format("{}: the lengths add up to {}, need at most {} (offsets are 32-bit)", key,
                                 total, INT32_MAX));
    }
    return out;
  }

  void read_lengths(Shape& shape) const {
    const JsonValue& q = require("seqlens_q");
    shape.seqlens_q = lengths(q, "seqlens_q", "a list of integers or an object with a distribution");
    if (shape.broadcast_q && shape.seqlens_q.size() != 1) {
      fail_at(q, fmt::format(
                     "seqlens_q: got {} entries, need exactly 1 with broadcast_q (one Q for every sequence)",
                     shape.seqlens_q.size()));
    }
    if (shape.op == Op::mxfp8_quantize) return;
    const JsonValue& k = require("seqlens_k");
    if (k.kind == Kind::kString && k.text == "same") {
      shape.seqlens_k = shape.seqlens_q;
    } else {
      shape.seqlens_k =
          lengths(k, "seqlens_k", "a list of integers, \"same\" or an object with a distribution");
    }
    if (!shape.broadcast_q && shape.seqlens_q.size() != shape.seqlens_k.size()) {
      fail_at(k, fmt::format("seqlens_k: got {} entries, need as many as seqlens_q, which has {}",
                             shape.seqlens_k.size(), shape.seqlens_q.size()));
    }
  }

  void read_window(const JsonValue& value, Shape& shape) const {
    if (value.kind != Kind::kArray || value.items.size() != 2) {
      fail(value, "window", "a list of two integers [left, right], each -1 (unbounded) or at least 0");
    }
    for (int i = 0; i < 2; ++i) {
      const JsonValue& item = value.items[i];
      if (item.kind != Kind::kInteger || !item.fits || item.integer < -1 || item.integer > INT32_MAX) {
        fail(item, fmt::format("window[{}]", i),
             fmt::format("-1 (unbounded) or an integer from 0 to {}", INT32_MAX));
      }
      shape.window[i] = static_cast<int32_t>(item.integer);
    }
  }

  void read_mxfp8(const JsonValue& value, Shape& shape) const {
    refuse_unknown_keys(object(value, "mxfp8"), "mxfp8.", {"scaling_mode", "block", "p_scale"}, source_);
    ShapeMxfp8& mxfp8 = shape.mxfp8;
    if (const JsonValue* v = value.find("scaling_mode"))
      mxfp8.scaling_mode = choice(*v, "mxfp8.scaling_mode", kScalingModes);
    if (const JsonValue* v = value.find("block")) mxfp8.block = choice(*v, "mxfp8.block", kBlocks);
    if (const JsonValue* v = value.find("p_scale")) mxfp8.p_scale = choice(*v, "mxfp8.p_scale", kPScales);
  }

  void read_backward(const JsonValue& value, Shape& shape) const {
    refuse_unknown_keys(object(value, "backward"), "backward.",
                        {"dq_accumulate", "dq_scale_log2", "deterministic", "dkv_output"}, source_);
    ShapeBackward& backward = shape.backward;
    if (const JsonValue* v = value.find("dq_accumulate")) {
      backward.dq_accumulate = choice(*v, "backward.dq_accumulate", kDqAccumulates);
    }
    // 2^(+-30) leaves no FP16 dQ that is not zero or infinite; the useful range is about 0..14.
    if (const JsonValue* v = value.find("dq_scale_log2"))
      backward.dq_scale_log2 = integer(*v, "backward.dq_scale_log2", -30, 30);
    if (const JsonValue* v = value.find("deterministic"))
      backward.deterministic = boolean(*v, "backward.deterministic");
    if (const JsonValue* v = value.find("dkv_output"))
      backward.dkv_output = choice(*v, "backward.dkv_output", kDtypes);
  }

  void read_data(const JsonValue& value, Shape& shape) const {
    refuse_unknown_keys(object(value, "data"), "data.", {"distribution", "std", "seed"}, source_);
    if (const JsonValue* v = value.find("distribution")) {
      shape.data.distribution = choice(*v, "data.distribution", kDataDistributions);
    }
    if (const JsonValue* v = value.find("std")) {
      shape.data.std = number(*v, "data.std");
      if (shape.data.std < 0) fail(*v, "data.std", "a finite number of at least 0");
    }
    if (const JsonValue* v = value.find("seed")) {
      if (v->kind != Kind::kInteger || !v->fits || v->integer < 0)
        fail(*v, "data.seed", "an integer from 0 to 9223372036854775807");
      shape.data.seed = static_cast<uint64_t>(v->integer);
    }
  }

  void read_tolerance(const JsonValue& value, Shape& shape) const {
    const std::array<std::pair<const char*, std::optional<double>*>, 4> fields = {{
        {"sqnr_db", &shape.tolerance.sqnr_db},
        {"cosine", &shape.tolerance.cosine},
        {"quantized_sqnr_db", &shape.tolerance.quantized_sqnr_db},
        {"lse", &shape.tolerance.lse},
    }};
    refuse_unknown_keys(object(value, "tolerance"), "tolerance.",
                        {"sqnr_db", "cosine", "quantized_sqnr_db", "lse"}, source_);
    for (const auto& [key, field] : fields) {
      if (const JsonValue* v = value.find(key)) *field = number(*v, fmt::format("tolerance.{}", key));
    }
  }

  // A key that cannot change anything is a misunderstanding; saying so is kinder than ignoring it.
  void refuse_keys_without_effect(const Shape& shape) const {
    const auto refuse = [&](const char* key, const char* why) {
      if (const JsonValue* value = find(key))
        fail_at(*value, fmt::format("{}: has no effect {}; remove it", key, why));
    };
    if (shape.op == Op::mxfp8_quantize) {
      for (const char* key : {"seqlens_k", "heads_kv", "broadcast_q", "device_lengths", "causal", "window",
                              "scale", "backward"}) {
        refuse(key, "with op mxfp8_quantize");
      }
      if (const JsonValue* mxfp8 = find("mxfp8"); mxfp8 && mxfp8->find("p_scale")) {
        fail_at(*mxfp8->find("p_scale"), "mxfp8.p_scale: has no effect with op mxfp8_quantize; remove it");
      }
      if (shape.dtype != Dtype::mxfp8) fail(require("dtype"), "dtype", "mxfp8 with op mxfp8_quantize");
    }
    if (shape.op == Op::attn_fwd) refuse("backward", "with op attn_fwd");
    if (shape.dtype == Dtype::bf16) refuse("mxfp8", "with dtype bf16");
    const auto none = [](const std::vector<int32_t>& lengths) { return offsets_of(lengths).back() == 0; };
    if (shape.device_lengths && (none(shape.seqlens_q) || none(shape.seqlens_k)))
      fail(require("device_lengths"), "device_lengths", "false where there are no queries or no keys");
  }

  const JsonValue& root_;
  std::string source_;
};

// The file's keys with those of the case on top.
JsonValue merged(const JsonValue& file, const JsonValue& one) {
  JsonValue out = one;
  for (const JsonMember& member : file.members) {
    if (member.key != "cases" && !one.find(member.key)) out.members.push_back(member);
  }
  return out;
}

}  // namespace

std::vector<Shape> parse_shapes(std::string_view text, const std::string& source) {
  const JsonValue root = parse_json(text, source);
  if (root.kind != Kind::kObject) {
    throw InputError(fmt::format("{}got {}, need an object at the top: {{\"op\": \"attn_fwd\", ...}}",
                                 json_place(source, root.line, root.column), root.quoted()));
  }
  const JsonValue* cases = root.find("cases");
  if (!cases) return {ShapeReader(root, source).read()};
  refuse_unknown_keys(root, "", kKeys, source);
  if (cases->kind != Kind::kArray || cases->items.empty()) {
    throw InputError(fmt::format("{}cases: got {}, need a list of one or more objects",
                                 json_place(source, cases->line, cases->column), cases->quoted()));
  }
  std::vector<Shape> shapes;
  for (size_t i = 0; i < cases->items.size(); ++i) {
    const JsonValue& one = cases->items[i];
    if (one.kind != Kind::kObject || one.find("cases")) {
      throw InputError(fmt::format("{}cases[{}]: got {}, need an object without \"cases\"",
                                   json_place(source, one.line, one.column), i, one.quoted()));
    }
    Shape shape = ShapeReader(merged(root, one), source).read();
    shape.source = fmt::format("{}#{}", source, i + 1);
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

std::vector<Shape> load_shapes(const std::string& path) { return parse_shapes(read_text_file(path), path); }

std::vector<int32_t> offsets_of(const std::vector<int32_t>& lengths) {
  std::vector<int32_t> offsets = {0};
  for (const int32_t length : lengths) offsets.push_back(offsets.back() + length);
  return offsets;
}

const char* name_of(Op value) { return lookup(kOps, value); }
const char* name_of(Dtype value) { return lookup(kDtypes, value); }
const char* name_of(ScalingMode value) { return lookup(kScalingModes, value); }
const char* name_of(BlockShape value) { return lookup(kBlocks, value); }
const char* name_of(PScale value) { return lookup(kPScales, value); }
const char* name_of(DataDistribution value) { return lookup(kDataDistributions, value); }

}  // namespace mxfa
