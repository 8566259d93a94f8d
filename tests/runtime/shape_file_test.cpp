// Shape files: what is accepted, what the defaults are, and what a refusal says and where it points.
#include "host/shape_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "support/catch.hpp"

using namespace mxfa;

namespace {

const std::string kBase =
    R"("op": "attn_fwd", "dtype": "mxfp8", "head_dim": 128, "heads_q": 4, "seqlens_q": [3, 5])";

Shape parse_one(const std::string& text) { return parse_shapes(text, "t.json").at(0); }

std::string refusal(const std::string& text) {
  try {
    (void)parse_shapes(text, "t.json");
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

std::string with(const std::string& more) { return "{" + kBase + ", " + more + "}"; }

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a minimal shape file gets the documented defaults") {
  const Shape shape = parse_one(with(R"("seqlens_k": "same")"));
  CHECK(shape.heads_kv == 4);
  CHECK(shape.seqlens_k == std::vector<int32_t>{3, 5});
  CHECK_FALSE(shape.broadcast_q);
  CHECK_FALSE(shape.device_lengths);
  CHECK_FALSE(shape.causal);
  CHECK(shape.window[0] == -1);
  CHECK(shape.window[1] == -1);
  CHECK_FALSE(shape.scale.has_value());
  CHECK(shape.mxfp8.scaling_mode == ScalingMode::rceil);
  CHECK(shape.mxfp8.block == BlockShape::b1x32);
  CHECK(shape.mxfp8.p_scale == PScale::constant);
  CHECK(shape.data.distribution == DataDistribution::normal);
  CHECK(shape.data.std == 1.0);
  CHECK(shape.kernel.empty());
}

TEST_CASE("every key is kept as written") {
  const Shape shape =
      parse_one(R"({"op": "attn_bwd", "dtype": "mxfp8", "head_dim": 96, "heads_q": 6, "heads_kv": 2,
    "seqlens_q": [7], "seqlens_k": [3, 0, 9], "broadcast_q": true, "device_lengths": true,
    "causal": true, "window": [5, 0], "scale": 0.25,
    "mxfp8": {"scaling_mode": "floor", "block": "32x32", "p_scale": "dynamic"},
    "backward": {"dq_accumulate": "fp16", "dq_scale_log2": 9, "deterministic": true, "dkv_output": "mxfp8"},
    "data": {"distribution": "heavy_tailed", "std": 0.5, "seed": 12345678901}, "kernel": {"stages": 3},
    "tolerance": {"sqnr_db": 20, "cosine": 0.9, "quantized_sqnr_db": 30, "lse": 0.001}})");
  CHECK(shape.op == Op::attn_bwd);
  CHECK(shape.head_dim == 96);
  CHECK(shape.heads_kv == 2);
  CHECK(shape.broadcast_q);
  CHECK(shape.device_lengths);
  CHECK(shape.causal);
  CHECK(shape.window[0] == 5);
  CHECK(*shape.scale == 0.25);
  CHECK(shape.mxfp8.p_scale == PScale::dynamic);
  CHECK(shape.backward.dq_accumulate == DqAccumulate::fp16);
  CHECK(shape.backward.dq_scale_log2 == 9);
  CHECK(shape.backward.dkv_output == Dtype::mxfp8);
  CHECK(shape.data.seed == 12345678901u);
  CHECK(shape.kernel == R"({"stages":3})");
  CHECK(*shape.tolerance.lse == 0.001);
}

TEST_CASE("cases share the keys of their file and override them") {
  const auto shapes =
      parse_shapes(R"({"op": "attn_fwd", "head_dim": 64, "heads_q": 1, "seqlens_q": [2], "seqlens_k": "same",
    "cases": [{"dtype": "bf16"}, {"dtype": "mxfp8", "head_dim": 128}]})",
                   "t.json");
  REQUIRE(shapes.size() == 2);
  CHECK(shapes[0].source == "t.json#1");
  CHECK(shapes[0].head_dim == 64);
  CHECK(shapes[1].dtype == Dtype::mxfp8);
  CHECK(shapes[1].head_dim == 128);
  CHECK(has(refusal(R"({"cases": []})"), "cases: got a list, need a list of one or more objects"));
  CHECK(has(refusal(R"({"cases": [{"cases": [{}]}]})"), "need an object without \"cases\""));
}

TEST_CASE("a refusal names line, column, key, value and rule") {
  const auto [more, message] = GENERATE(table<std::string, std::string>({
      {R"("seqlens_k": [1, -1])", "seqlens_k[1]: got -1, need an integer from 0 to 2147483647"},
      {R"("seqlens_k": [1, 2147483648])", "seqlens_k[1]: got 2147483648"},
      {R"("seqlens_k": [1, 99999999999999999999])", "seqlens_k[1]: got 99999999999999999999"},
      {R"("seqlens_k": [1, 4.0])", "seqlens_k[1]: got 4.0, need an integer"},
      {R"("seqlens_k": [1, 1e1])", "seqlens_k[1]: got 1e1, need an integer"},
      {R"("seqlens_k": [1, "4"])", "seqlens_k[1]: got \"4\", need an integer"},
      {R"("seqlens_k": [1])", "seqlens_k: got 1 entries, need as many as seqlens_q, which has 2"},
      {R"("seqlens_k": [2147483647, 1])", "seqlens_k: the lengths add up to 2147483648"},
      {R"("seqlens_k": "Same")", "seqlens_k: got \"Same\""},
      {R"("seqlens_k": "same", "heads_kv": 3)", "heads_q: got 4, need a multiple of heads_kv, which is 3"},
      {R"("seqlens_k": "same", "heads_kv": 8)", "heads_q: got 4, need a multiple of heads_kv, which is 8"},
      {R"("seqlens_k": "same", "heads_kv": 0)", "heads_kv: got 0, need an integer from 1"},
      {R"("seqlens_k": "same", "window": [-5, 0])",
       "window[0]: got -5, need -1 (unbounded) or an integer from 0"},
      {R"("seqlens_k": "same", "window": 3)", "window: got 3, need a list of two integers"},
      {R"("seqlens_k": "same", "causal": 1)", "causal: got 1, need true or false"},
      {R"("seqlens_k": "same", "scale": 1e400)", "scale: got 1e400, must be finite"},
      {R"("seqlens_k": "same", "scale": NaN)", "scale: got NaN, must be finite"},
      {R"("seqlens_k": "same", "scale": -Infinity)", "scale: got -Infinity, must be finite"},
      {R"("seqlens_k": "same", "scale": "nan")", "scale: got \"nan\", need a finite number"},
      {R"("seqlens_k": "same", "dtype": "bf16")", "duplicate key \"dtype\", first given at line 1, column"},
      {R"("seqlens_k": "same", "hed_dim": 1)", "unknown key \"hed_dim\"; did you mean \"head_dim\"?"},
      {R"("seqlens_k": "same", "xyzzy": 1)", "unknown key \"xyzzy\"; the keys here are op, dtype"},
      {R"("seqlens_k": "same", "mxfp8": {"blok": 1})",
       "unknown key \"mxfp8.blok\"; did you mean \"mxfp8.block\"?"},
      {R"("seqlens_k": "same", "broadcast_q": true)",
       "seqlens_q: got 2 entries, need exactly 1 with broadcast_q"},
      {R"("seqlens_k": "same", "backward": {})", "backward: has no effect with op attn_fwd; remove it"},
      {R"("causal": false)", "seqlens_k: missing"},
  }));
  CAPTURE(more);
  const std::string text = refusal(with(more));
  CAPTURE(text);
  CHECK(has(text, message));
  CHECK(has(text, "t.json: line 1, column "));
}

TEST_CASE("the place of a refusal is the value, counted in characters") {
  CHECK(refusal("{\n  \"op\": \"attn_fwd\",\n  \"dtype\": \"fp8\"}") ==
        "t.json: line 3, column 12: dtype: got \"fp8\", need bf16 or mxfp8");
  // Two-byte characters count once.
  CHECK(
      has(refusal("{\"\xc3\xa9\xc3\xa9\": 1, \"\xc3\xa9\xc3\xa9\": 2}"), "line 1, column 11: duplicate key"));
}

TEST_CASE("text that is not strict UTF-8 JSON is refused") {
  CHECK(has(refusal("{\"op\":\"attn_fwd\",\"causal\":tr"), "line 1, column 29: the text ends too early"));
  CHECK(has(refusal(""), "the file is empty"));
  CHECK(has(refusal(" \n"), "the file is empty"));
  CHECK(has(refusal("[{}]"), "need an object at the top"));
  CHECK(has(refusal("{} {}"), "not valid JSON"));
  CHECK(has(refusal("{\"op\": // comment\n 1}"), "not valid JSON"));
  CHECK(has(refusal("{\"op\": \"\xff\"}"), "ill-formed UTF-8"));
  CHECK(has(refusal("\xff\xfe{"), "UTF-16"));
  CHECK(has(refusal(std::string(100000, '[')), "nested more than 32 levels deep"));
  CHECK(has(refusal("{\"op\": 1,}"), "line 1, column 10: not valid JSON"));
}

TEST_CASE("a UTF-8 byte order mark and CRLF line ends are accepted") {
  CHECK(parse_one("\xef\xbb\xbf{\r\n" + kBase + ",\r\n\"seqlens_k\": \"same\"}\r\n").head_dim == 128);
}

TEST_CASE("options that cannot change anything are refused") {
  CHECK(has(refusal(R"({"op": "attn_fwd", "dtype": "bf16", "head_dim": 64, "heads_q": 1, "seqlens_q": [1],
    "seqlens_k": "same", "mxfp8": {}})"),
            "mxfp8: has no effect with dtype bf16"));
  const std::string quantize =
      R"({"op": "mxfp8_quantize", "dtype": "mxfp8", "head_dim": 64, "heads_q": 1, "seqlens_q": [1])";
  CHECK(refusal(quantize + "}") == "accepted");
  CHECK(has(refusal(quantize + R"(, "causal": false})"), "causal: has no effect with op mxfp8_quantize"));
  CHECK(has(refusal(quantize + R"(, "device_lengths": true})"),
            "device_lengths: has no effect with op mxfp8_quantize"));
  CHECK(has(refusal(R"({"op": "attn_fwd", "dtype": "bf16", "head_dim": 64, "heads_q": 1, "seqlens_q": [1],
    "seqlens_k": [0], "device_lengths": true})"),
            "device_lengths: got true, need false where there are no queries or no keys"));
  CHECK(has(refusal(quantize + R"(, "mxfp8": {"p_scale": "constant"}})"), "mxfp8.p_scale: has no effect"));
}

TEST_CASE("operations without kernels are refused by name") {
  const std::string op = GENERATE("rmsnorm_quantize", "gemm_quantize", "pma_module");
  CHECK(has(refusal(R"({"op": ")" + op + "\"}"), "op: " + op + " is not in this version"));
}

TEST_CASE("lengths drawn from a distribution are the same everywhere") {
  const auto draw = [](const std::string& distribution) {
    return parse_one(
               R"({"op": "attn_fwd", "dtype": "bf16", "head_dim": 64, "heads_q": 1, "seqlens_k": "same", )"
               R"("seqlens_q": )" +
               distribution + "}")
        .seqlens_q;
  };
  // The first lengths of two published benchmark shapes (xorshift64*, U[1,1024], seeds 1002 and 1004).
  CHECK(draw(R"({"distribution": "uniform", "count": 8, "min": 1, "max": 1024, "seed": 1002})") ==
        std::vector<int32_t>{586, 958, 828, 27, 513, 196, 31, 914});
  CHECK(draw(R"({"distribution": "uniform", "count": 8, "min": 1, "max": 1024, "seed": 2004})") !=
        draw(R"({"distribution": "uniform", "count": 8, "min": 1, "max": 1024, "seed": 1004})"));
  CHECK(draw(R"({"distribution": "constant", "count": 3, "mean": 9})") == std::vector<int32_t>{9, 9, 9});
  CHECK(draw(R"({"distribution": "constant", "count": 0, "mean": 9})").empty());

  // exp(N(ln 700, 1.1)) clipped to [16, 8192]: the mean of the unclipped distribution is 700 exp(1.1^2/2).
  const auto lognormal =
      draw(fmt::format(R"({{"distribution": "lognormal", "count": 512, "mean": {}, "sigma": 1.1, "min": 16, )"
                       R"("max": 8192, "seed": 1003}})",
                       700 * std::exp(0.605)));
  const std::vector<int32_t> published = {2241, 1076, 434, 543, 1506, 357, 915, 76};
  for (size_t i = 0; i < published.size(); ++i) {
    CHECK(std::abs(lognormal[i] - published[i]) <= 1);  // exp, log and cos may differ in the last digit
  }

  // Zipf with exponent 1 over {1, 2, 3}: probabilities 6/11, 3/11, 2/11; 3 sigma of 20000 draws is below
  // 0.011.
  const auto zipf =
      draw(R"({"distribution": "zipf", "count": 20000, "sigma": 1.0, "min": 1, "max": 3, "seed": 5})");
  for (int value = 1; value <= 3; ++value) {
    const double share =
        static_cast<double>(std::count(zipf.begin(), zipf.end(), value)) / static_cast<double>(zipf.size());
    CHECK(std::abs(share - 6.0 / 11.0 / value) < 0.011);
  }
}

TEST_CASE("a distribution refuses what it does not use and names what it lacks") {
  const auto refused = [](const std::string& distribution) {
    return refusal(with(R"("seqlens_k": )" + distribution));
  };
  CHECK(has(refused(R"({"count": 1})"), "seqlens_k.distribution: missing"));
  CHECK(has(refused(R"({"distribution": "poisson", "count": 1})"),
            "need lognormal, uniform, constant or zipf"));
  CHECK(has(refused(R"({"distribution": "uniform", "count": 1, "min": 0})"), "seqlens_k.max: missing"));
  CHECK(has(refused(R"({"distribution": "uniform", "count": 1, "min": 5, "max": 4})"),
            "seqlens_k.max: got 4, need at least min"));
  CHECK(has(refused(R"({"distribution": "uniform", "count": 1, "min": 0, "max": 4, "mean": 2})"),
            "seqlens_k.mean: has no effect"));
  CHECK(has(refused(R"({"distribution": "lognormal", "count": 1, "mean": 0, "sigma": 1})"),
            "seqlens_k.mean: got 0, need a finite"));
  CHECK(has(refused(R"({"distribution": "constant", "count": -1, "mean": 1})"),
            "seqlens_k.count: got -1, need an integer from 0"));
}
