// Shape files: what to compute, as JSON.  The keys, their defaults and the length generator are documented in
// docs/shape-files.md; field names are the keys.  Everything is parsed, range-checked and kept here; whether
// this version has a kernel for it is decided when it is planned.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "host/json_text.hpp"

namespace mxfa {

enum class Op { attn_fwd, attn_bwd, mxfp8_quantize };
enum class Dtype { bf16, mxfp8 };
enum class ScalingMode { rceil, floor };
enum class BlockShape { b1x32, b32x32 };
enum class PScale { constant, dynamic };
enum class DqAccumulate { fp32, fp16 };
enum class DataDistribution { normal, heavy_tailed, power_of_two, constant };

struct ShapeMxfp8 {
  ScalingMode scaling_mode = ScalingMode::rceil;
  BlockShape block = BlockShape::b1x32;
  PScale p_scale = PScale::constant;
};

struct ShapeBackward {
  DqAccumulate dq_accumulate = DqAccumulate::fp32;
  int32_t dq_scale_log2 = 0;
  bool deterministic = false;
  Dtype dkv_output = Dtype::bf16;
};

struct ShapeData {
  DataDistribution distribution = DataDistribution::normal;
  double std = 1.0;
  uint64_t seed = 1;
};

// Overrides of the limits a result is judged by; unset: the defaults of tools/verdict.hpp, where each has its
// reason.
struct ShapeTolerance {
  std::optional<double> sqnr_db;            // against the exact reference
  std::optional<double> cosine;             // against the exact reference
  std::optional<double> quantized_sqnr_db;  // against the quantisation-aware reference
  std::optional<double> lse;                // |LSE - reference|
};

struct Shape {
  std::string source;  // "quickstart.json", or "quickstart.json#2" for the second of its cases
  Op op = Op::attn_fwd;
  Dtype dtype = Dtype::bf16;
  int32_t head_dim = 0;
  int32_t heads_q = 0, heads_kv = 0;
  std::vector<int32_t> seqlens_q, seqlens_k;
  bool broadcast_q = false;
  bool device_lengths = false;  // planned for their totals and longest, read by the launch
  bool causal = false;
  int32_t window[2] = {-1, -1};
  std::optional<double> scale;  // unset: 1/sqrt(head_dim)
  ShapeMxfp8 mxfp8;
  ShapeBackward backward;
  ShapeData data;
  std::string kernel;  // JSON object as text, "" if absent
  ShapeTolerance tolerance;
};

// All cases of a file (one, unless it has a list under "cases").  Throws InputError.
std::vector<Shape> parse_shapes(std::string_view text, const std::string& source);
std::vector<Shape> load_shapes(const std::string& path);

// Lengths {l0, l1, ..} -> offsets {0, l0, l0+l1, ..}.  The parser has checked that the total fits.
std::vector<int32_t> offsets_of(const std::vector<int32_t>& lengths);

const char* name_of(Op);
const char* name_of(Dtype);
const char* name_of(ScalingMode);
const char* name_of(BlockShape);
const char* name_of(PScale);
const char* name_of(DataDistribution);

// The project's portable random generator, used for lengths and data: xorshift64*.
//   state = seed * 0x9E3779B97F4A7C15 + 1 (mod 2^64; 0 is replaced by 1);  x ^= x >> 12, x << 25, x >> 27;
//   output x * 0x2545F4914F6CDD1D
class PortableRandom {
 public:
  explicit PortableRandom(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {
    if (!state_) state_ = 1;
  }
  uint64_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545F4914F6CDD1Du;
  }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // [0, 1)
  double normal();  // N(0,1); two uniforms, Box-Muller's cosine branch

 private:
  uint64_t state_;
};

}  // namespace mxfa
